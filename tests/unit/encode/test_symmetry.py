"""Symmetries as values: declared by hand, drawn from a secret, applied to vectors and inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice
from croupier.encode.axes import Axis, Factor, fixed, free
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import RangeError, SpecError

SEED = bytes(range(32))
LAYOUT = Layout(
    (
        Slice("first.weight", (4, 3)),
        Slice("first.bias", (4,)),
        Slice("last.weight", (2, 4)),
        Slice("mean", (4,), "statistic"),
        Slice("seen", (), "counter"),
    )
)
AXES = {
    "first.weight": (free("hidden", 4), free("input", 3)),
    "first.bias": (free("hidden", 4),),
    "last.weight": (fixed(2, "classes"), free("hidden", 4)),
    "mean": (free("hidden", 4),),
}
TWO = Symmetry(LAYOUT, AXES, (free("input", 3),))


def test_a_declared_symmetry_indexes_every_axis_of_a_group_alike() -> None:
    rule = Rule({"hidden": np.array([2, 0, 3, 1]), "input": np.array([1, 2, 0])})
    vector = torch.arange(28, dtype=torch.float32)
    plain, moved = LAYOUT.split(vector), LAYOUT.split(TWO.apply(vector, rule))
    assert torch.equal(moved["first.weight"], plain["first.weight"][[2, 0, 3, 1]][:, [1, 2, 0]])
    assert torch.equal(moved["first.bias"], plain["first.bias"][[2, 0, 3, 1]])
    assert torch.equal(moved["last.weight"], plain["last.weight"][:, [2, 0, 3, 1]])
    assert torch.equal(moved["mean"], plain["mean"][[2, 0, 3, 1]])
    assert torch.equal(TWO.permute_inputs(torch.tensor([[5.0, 6, 7]]), rule), torch.tensor([[6.0, 7, 5]]))
    assert torch.equal(TWO.invert(TWO.apply(vector, rule), rule), vector)
    shuffled = TWO.under(rule)
    assert torch.equal(shuffled.restore(shuffled.permute(torch.tensor([[5.0, 6, 7]]))), torch.tensor([[5.0, 6, 7]]))


def test_weights_alone_are_permuted_as_in_the_whole_vector() -> None:
    shuffled = TWO.under(TWO.rule(SEED, 1))
    vector = torch.randn(28)
    assert torch.equal(shuffled.apply(vector[:24]), shuffled.apply(vector)[:24])
    with pytest.raises(RangeError, match=r"shape \(23,\), but the rule is for \(28,\)"):
        shuffled.apply(vector[:23])
    with pytest.raises(RangeError, match="inputs have shape"):
        shuffled.permute(torch.zeros(1, 4))


@pytest.mark.parametrize(
    "kind", [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool, torch.complex64]
)
def test_numbers_of_every_kind_are_permuted(kind: torch.dtype) -> None:
    shuffled = TWO.under(TWO.rule(SEED, 1))
    index = shuffled.apply(torch.arange(28))
    vector = torch.arange(28).remainder(2 if kind is torch.bool else 28).to(kind)
    out = torch.empty_like(vector)
    assert torch.equal(shuffled.apply(vector, out), vector[index])
    assert torch.equal(out, vector[index])
    assert torch.equal(shuffled.invert(out), vector)


def test_where_the_result_goes_must_be_like_the_vector_and_not_itself() -> None:
    shuffled, vector = TWO.under(TWO.rule(SEED, 1)), torch.randn(28)
    for out in (torch.empty(24), torch.empty(28, dtype=torch.float64), torch.empty(56)[::2]):
        with pytest.raises(RangeError, match="must be like the vector"):
            shuffled.apply(vector, out)
    with pytest.raises(RangeError, match="the vector itself"):
        shuffled.invert(vector, vector)
    apart = torch.stack([vector, vector], 1)[:, 0]
    assert torch.equal(shuffled.apply(apart), shuffled.apply(vector))


def test_blocks_and_factors_stand_for_what_was_concatenated_and_flattened() -> None:
    # Channels a (2) and b (3), each of 2 places, one after the other: columns of a layer after a flattened picture.
    place = Factor(2, reason="a window slides along it")
    axis = Axis(((Factor(2, "a"), place), (Factor(3, "b"), place)))
    symmetry = Symmetry(Layout((Slice("w", (10,)),)), {"w": (axis,)}, (fixed(1, "one"),))
    rule = Rule({"a": np.array([1, 0]), "b": np.array([1, 2, 0])})
    got = symmetry.apply(torch.arange(10, dtype=torch.float32), rule)
    assert got.tolist() == [2, 3, 0, 1, 6, 7, 8, 9, 4, 5]
    assert [(held.tensor, held.size) for held in symmetry.held] == [("w", 2)]


def test_a_group_spread_over_two_axes_permutes_pairs() -> None:
    # A 4 x 4 picture of four 2 x 2 patches: the patch is a row digit and a column digit, and so is the pixel in it.
    def side(digit: int) -> Axis:
        return Axis(((Factor(2, "patch", digit=digit), Factor(2, "pixel", digit=digit)),))

    symmetry = Symmetry(Layout((Slice("w", (4,)),)), {"w": (free("patch", 4),)}, (side(0), side(1)))
    assert symmetry.groups == {"patch": 4, "pixel": 4}
    rule = Rule({"patch": np.array([3, 1, 2, 0]), "pixel": np.array([1, 0, 2, 3])})
    picture = torch.arange(16).reshape(1, 4, 4)
    want = torch.tensor([[11, 10, 3, 2], [14, 15, 6, 7], [9, 8, 1, 0], [12, 13, 4, 5]])
    assert torch.equal(symmetry.permute_inputs(picture, rule)[0], want)


def test_a_rule_is_a_function_of_secret_round_and_group_alone() -> None:
    one = TWO.rule(SEED, 5)
    turned = Symmetry(LAYOUT, dict(reversed(AXES.items())), (free("input", 3),))
    wide = Symmetry(
        Layout((Slice("w", (4, 300)),)), {"w": (free("hidden", 4), free("wide", 300))}, (free("wide", 300),)
    )
    assert all(np.array_equal(turned.rule(SEED, 5).of[name], one.of[name]) for name in one.of)
    assert np.array_equal(wide.rule(SEED, 5).of["hidden"], one.of["hidden"])
    draws = [
        wide.rule(SEED, 5), wide.rule(SEED, 6), wide.rule(bytes(32), 5), wide.draw(Coins.from_seed(1), 5),
    ]  # fmt: skip
    assert len({draw.of["wide"].tobytes() for draw in draws}) == 4
    with pytest.raises(RangeError, match="32 bytes"):
        TWO.rule(bytes(16), 0)


def test_a_rule_shows_nothing_of_itself() -> None:
    rule = TWO.rule(SEED, 5)
    shuffled = TWO.under(rule)
    assert repr(rule) == "Rule(input: 3 places, hidden: 4 places)"
    assert "array" not in repr(shuffled)
    assert "array" not in repr(shuffled.ways[0])


def test_a_symmetry_says_what_moves_and_what_stays() -> None:
    assert TWO.says() == (
        "input: 3 places are permuted",
        "hidden: 4 places are permuted",
        "stays as it is, because classes: last.weight axis 0",
    )


def test_still_counts_what_stays() -> None:
    rule = Rule({"hidden": np.array([0, 1, 3, 2]), "input": np.arange(3)})
    assert rule.still() == {"hidden": 0.5, "input": 1.0}
    assert TWO.under(rule).still == 0.5
    assert TWO.under(Rule({"hidden": np.arange(4), "input": np.arange(3)})).still == 1.0


@pytest.mark.parametrize(
    ("axes", "inputs", "said"),
    [
        ({key: AXES[key] for key in AXES if key != "mean"}, (), "says nothing of 'mean'"),
        (AXES | {"mean": (free("hidden", 5),)}, (), "shape \\(4,\\), but axes of sizes \\(5,\\)"),
        (AXES | {"other": (free("hidden", 4),)}, (), "'other', which the network does not carry"),
        (AXES, (free("input", 4),), "group 'input' has 4 places, but 3"),
        (AXES, (Axis(((Factor(3, "input", digit=1),),)),), "only the digits \\[1\\]"),
    ],
)
def test_a_declaration_that_does_not_fit_is_an_error(
    axes: dict[str, tuple[Axis, ...]], inputs: tuple[Axis, ...], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        Symmetry(LAYOUT, axes, inputs)


def test_a_factor_is_free_or_has_a_reason() -> None:
    for wrong in ({"size": 2}, {"size": 2, "group": "a", "reason": "b"}, {"size": 0, "group": "a"}):
        with pytest.raises(SpecError, match="either a group or the reason"):
            Factor(**wrong)


def test_a_rule_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(RangeError, match="no permutation"):
        Rule({"hidden": np.array([0, 0, 1])})
    with pytest.raises(RangeError, match="3 places for group 'input'"):
        TWO.under(Rule({"hidden": np.arange(4)}))


@pytest.mark.parametrize(
    ("seed", "given"),
    [(b"short", "5 bytes"), (bytes(33), "33 bytes"), ("x" * 32, "type str"), (7, "type int")],
)
def test_a_secret_of_another_kind_or_length_is_refused(seed: Any, given: str) -> None:
    with pytest.raises(RangeError, match=f"the secret of a rule is 32 bytes, not .*{given}") as caught:
        TWO.rule(seed, 1)
    assert "xx" not in str(caught.value)
