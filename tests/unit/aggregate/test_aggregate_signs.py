"""The step along accepted signs: references, commitments, ties, and rounds in which nobody was accepted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.signs import SignTrust
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout, Model, Slice
from croupier.encode.signs import commitment
from croupier.errors import CroupierError, ProtocolError

LAYOUT = Layout((Slice("w", (4,)),))
START = torch.tensor([1.0, 1.0, 1.0, 1.0])
TAUGHT = torch.tensor([0.5, -0.5, 0.1, 2.0])


def taught(start: Tensor, coins: Coins) -> Tensor:
    """The server's own training."""
    return start + TAUGHT


def desk(root: bool = True, seed: int = 1) -> Desk:
    """A server with one model."""
    return Desk((Model(START),), LAYOUT, Coins.from_seed(seed), taught if root else None)


def votes(*sums: int, total: int) -> Gathered:
    """What was released."""
    weights = torch.tensor([total], dtype=torch.float64)
    return Gathered(("a", "b"), sums=torch.tensor(sums), weights=weights, form="delta")


def step(rule: SignTrust, gathered: Gathered, memory: Any = None) -> tuple[list[float], Any]:
    """How far the model moved, and what the rule remembers."""
    ((model,), after) = rule(gathered, desk(), memory or {})
    return [round(float(v), 6) for v in (model.vector - START)], after


def test_the_mean_of_signs_and_its_sign() -> None:
    got = votes(4, -2, 0, 1, total=4)
    assert step(SignTrust(lr=0.1), got)[0] == pytest.approx([0.1, -0.05, 0, 0.025])
    assert step(SignTrust(lr=0.1, output="sign"), got)[0] == pytest.approx([0.1, -0.1, 0, 0.1]), "a tie does not move"


def test_the_reference_is_bound_by_its_commitment() -> None:
    brief = SignTrust().brief(desk(), {})
    assert brief["reference"].tolist() == [1, 0, 1, 1]
    assert torch.equal(brief["commitment"], commitment(brief["reference"], brief["nonce"]))
    other = SignTrust().brief(desk(seed=2), {})
    assert torch.equal(other["reference"], brief["reference"])
    assert not torch.equal(other["commitment"], brief["commitment"]), "a fresh nonce hides the same reference"


def test_who_is_told_what_and_when() -> None:
    late, public = SignTrust(), SignTrust(shown="public")
    assert [field.name for field in late.public(LAYOUT)] == ["commitment"]
    assert [field.name for field in public.public(LAYOUT)] == ["commitment", "reference"]
    assert [field.name for field in late.late(LAYOUT)] == ["reference", "nonce"]
    assert "no row of a round can copy it" in late.tolerates()
    assert "copy it all but" in public.tolerates()


def test_the_last_step_as_the_next_reference() -> None:
    rule = SignTrust(reference="last")
    assert rule.brief(desk(), {})["reference"].tolist() == [1, 0, 1, 1], "the first is the root's"
    _, after = step(rule, votes(-4, 2, 0, -1, total=4))
    assert after["last"].tolist() == [0, 1, 1, 0]
    assert rule.brief(desk(root=False), after)["reference"].tolist() == [0, 1, 1, 0]
    _, kept = step(rule, votes(0, 0, 0, 0, total=0), after)
    assert kept["last"].tolist() == [0, 1, 1, 0], "an empty round changes no direction"
    assert "last" not in step(SignTrust(), votes(1, 1, 1, 1, total=4))[1]


def test_nobody_accepted() -> None:
    none = votes(0, 0, 0, 0, total=0)
    moved, after = step(SignTrust(), none, {"empty": 2})
    assert moved == [0, 0, 0, 0]
    assert after["empty"] == 3
    moved, after = step(SignTrust(lr=0.1, empty="reference"), none)
    assert moved == pytest.approx([0.1, -0.1, 0.1, 0.1])
    assert after["empty"] == 1, "a round without accepted rows is counted whatever the model does"
    assert step(SignTrust(), votes(1, 1, 1, 1, total=1))[1]["empty"] == 0


def test_what_it_cannot_work_with() -> None:
    with pytest.raises(ProtocolError, match=r"needs root data; set task.root.records"):
        SignTrust().brief(desk(root=False), {})
    rows = Gathered(("a",), torch.ones(1, 4), weights=torch.ones(1, dtype=torch.float64), form="delta")
    with pytest.raises(ProtocolError, match="use release = 'scored'"):
        SignTrust()(rows, desk(), {})


@pytest.mark.parametrize(("field", "value"), [("lr", 0), ("output", "median"), ("reference", "none"), ("empty", "go")])
def test_bad_fields_are_named(field: str, value: Any) -> None:
    with pytest.raises(CroupierError, match=field):
        SignTrust.parse({"use": "sign-trust", field: value})


def test_a_coin_decides_where_root_records_teach_nothing() -> None:
    def nothing(start: Tensor, coins: Coins) -> Tensor:
        return start.clone()

    seen = [
        tuple(
            SignTrust().brief(Desk((Model(START),), LAYOUT, Coins.from_seed(seed), nothing), {})["reference"].tolist()
        )
        for seed in range(40)
    ]
    assert len(set(seen)) > 5
