"""Groups of clients dealt by lot: every deal is as likely, nobody is left out, and pairs must be asked for."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
import torch
from tests.tape import Tape, outcomes

from croupier.aggregate.median import Median
from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice
from croupier.encode.encoder import Released
from croupier.encode.fixed import FixedPoint
from croupier.errors import IntegrityError, ProtocolError, SpecError
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.groups import Groups

LAYOUT = Layout((Slice("w", (1,)),))
PAIRS = Groups(size=2, literal=True)


def rows(*values: int) -> list[torch.Tensor]:
    return [torch.tensor([value], dtype=torch.int32) for value in values]


def test_pairs_are_refused_unless_asked_for_by_name() -> None:
    for size, colluders in ((2, 0), (3, 1), (5, 3)):
        with pytest.raises(
            SpecError, match=rf"size = {size} with colluders = {colluders}.*set size to {3 + colluders}"
        ):
            Groups(size=size, colluders=colluders)
    assert Groups(size=5, colluders=2).least == 5
    assert PAIRS.least == 2


def test_every_way_to_deal_pairs_is_as_likely() -> None:
    sent = rows(1, 2, 4, 8)

    def view(tape: Tape) -> tuple[int, ...]:
        return tuple(sorted(PAIRS(sent, LAYOUT, 64, tape)["rows"].flatten().tolist()))

    found = outcomes(view)
    pairs = {tuple(sorted((a + b, 15 - a - b))) for a, b in combinations((1, 2, 4, 8), 2)}
    assert set(found) == pairs
    assert all(chance == pytest.approx(1 / 3) for chance in found.values())


@pytest.mark.parametrize(("count", "size", "want"), [(6, 3, [3, 3]), (7, 3, [4, 3]), (5, 3, [5]), (11, 3, [4, 4, 3])])
def test_nobody_is_left_out(count: int, size: int, want: list[int]) -> None:
    out = Groups(size=size)(rows(*(1 << i for i in range(count))), LAYOUT, 1 << 20, Coins.from_seed(3))
    assert out["sizes"].tolist() == want
    assert out["grouped"].tolist() == [1] * len(want) + [0] * (count - len(want))
    assert int(out["rows"].sum()) == (1 << count) - 1


def test_groups_are_dealt_anew() -> None:
    seen = Counter(
        tuple(PAIRS(rows(1, 2, 4, 8), LAYOUT, 64, Coins.from_seed(seed))["rows"].flatten().tolist())
        for seed in range(60)
    )
    assert len(seen) == 6


def test_too_few_and_floats_are_refused() -> None:
    with pytest.raises(ProtocolError, match="2 clients do not fill a group of 3"):
        Groups()(rows(1, 2), LAYOUT, 8, Tape())
    with pytest.raises(ProtocolError, match="only integers"):
        Groups()([torch.zeros(1)] * 3, LAYOUT, None, Tape())
    with pytest.raises(SpecError, match="adds integers only"):
        Pipeline(release=Groups(), place=Relay())
    with pytest.raises(SpecError, match="counts every client alike"):
        Pipeline(
            encode=FixedPoint(clients=4, weights="slot", cap=3), release=Groups(), aggregate=Median(), place=Relay()
        )


def test_a_row_is_its_groups_mean_and_may_not_exceed_it() -> None:
    encode = FixedPoint(clients=6, digits=2)
    sums = torch.tensor([[90], [encode.modulus - 60]], dtype=torch.int32)
    released = Released(("a", "b", "c", "d", "e"), sums, layout=LAYOUT, sizes=torch.tensor([3, 2]))
    got = encode.decode(released, {})
    assert got.rows is not None
    assert got.rows.flatten().tolist() == pytest.approx([0.3, -0.3])
    assert got.weights is not None
    assert got.weights.tolist() == [1.0, 1.0]
    with pytest.raises(IntegrityError, match="outside ±198"):
        encode.decode(
            Released(("a",) * 5, torch.tensor([[199], [0]]).int(), layout=LAYOUT, sizes=torch.tensor([2, 3])), {}
        )
