"""open: decoded sums are within the stated bound. conserve: a shuffle keeps every slot's values. hide: exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from croupier.core.coins import Coins, Node
from croupier.core.update import Layout, Modulus, Slice, Update
from croupier.encode.encoder import Released
from croupier.encode.grid import OnGrid
from croupier.kernels import residues
from croupier.release.bits import Bits, Counts, Mod
from croupier.release.release import Release
from croupier.release.shuffle import Shuffle
from croupier.release.sums import Sum
from tests.laws.pipelines import PIPELINES
from tests.tape import Tape, outcomes
from tests.tiers import examples

SHUFFLES = [name for name, pipeline in PIPELINES.items() if isinstance(pipeline.release, Shuffle)]
SUMS = [name for name, pipeline in PIPELINES.items() if pipeline.release.shape == "sums"]


def inside(row: list[float], edge: float) -> Tensor:
    """The nearest float32 values that are not beyond the edge: float32 may round 0.999999999 up to 1."""
    values = np.array(row, np.float32)
    return torch.from_numpy(
        np.where(np.abs(values.astype(np.float64)) > edge, np.nextafter(values, np.float32(0)), values)
    )


@pytest.mark.parametrize("name", SUMS)
@examples(60)
@given(data=st.data())
def test_open(name: str, data: st.DataObject) -> None:
    encode = PIPELINES[name].encode
    assert isinstance(encode, OnGrid)
    unit = encode.unit
    edge = encode.top / unit
    # No more than the sum has room for: a round refuses more.
    count = data.draw(st.integers(2, min(8, encode.clients)))
    values = st.one_of(st.floats(-edge, edge), st.sampled_from([-edge, edge, 0.0]))
    rows = [data.draw(st.lists(values, min_size=3, max_size=3)) for _ in range(count)]
    layout = Layout((Slice("w", (3,)),))
    records = [float(data.draw(st.integers(1, 50))) for _ in rows]
    updates = [
        Update(inside(row, edge), layout, {"weight": torch.tensor([n]).double()})
        for row, n in zip(rows, records, strict=True)
    ]
    sent = [encode.encode(update, {}, Coins.from_seed(i)).vector for i, update in enumerate(updates)]
    out = PIPELINES[name].release(sent, layout, encode.modulus, Coins.from_seed(0))
    present = tuple(f"c{i}" for i in range(count))
    got = encode.decode(Released(present, out.get("rows"), out.get("sums"), layout=layout), {})
    assert got.sums is not None
    assert got.weights is not None
    shares = np.array(records) / encode.cap if encode.cap else np.ones(count)
    true = (shares[:, None] * np.array([u.vector.double().numpy() for u in updates])).sum(0) / shares.sum()
    mean = (got.sums / got.weights).numpy()
    off = 1.0 if encode.rounding == "stochastic" else 0.5
    bound = off / unit if not encode.cap else (off + 0.5 * np.abs(true)) / (unit * shares.mean() - 0.5)
    assert (np.abs(mean - true) <= bound + 1e-12).all()


def conserved(release: Release, encode_dtype: torch.dtype = torch.float32) -> None:
    """Every slot keeps its values."""
    layout = Layout((Slice("a.weight", (70_000,)), Slice("b.weight", (1_000,))))
    rows = [torch.from_numpy(Coins.from_seed(i).secure().normal(layout.size)).to(encode_dtype) for i in range(5)]
    out = release(rows, layout, None, Coins.from_seed(3))["rows"]
    assert torch.equal(out.sort(0)[0], torch.stack(rows).sort(0)[0]), "a slot lost or gained a value"


@pytest.mark.parametrize("name", SHUFFLES)
def test_conserve(name: str) -> None:
    conserved(PIPELINES[name].release)


class Careless(Shuffle, use="careless"):
    """A planted fault: the last row is lost and the first one sent twice."""

    def __call__(self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node) -> Mapping[str, Tensor]:
        """Drop a row."""
        return super().__call__([*rows[:-1], rows[0]], layout, modulus, coins)


def test_a_dropped_row_is_caught() -> None:
    with pytest.raises(AssertionError, match="lost or gained"):
        conserved(Careless())


def seen(release: Release, rows: list[list[float]], modulus: int | None) -> dict[tuple[float, ...], float]:
    """The exact distribution of what the server sees."""
    layout = Layout((Slice("a.weight", (1,)), Slice("b.weight", (len(rows[0]) - 1,))))
    kind = torch.float32 if modulus is None else torch.int64
    tensors = [torch.tensor(row, dtype=kind) for row in rows]

    def view(tape: Tape) -> tuple[float, ...]:
        return tuple(next(iter(release(tensors, layout, modulus, tape).values())).reshape(-1).tolist())

    return {key: round(value, 12) for key, value in outcomes(view).items()}


# Two inputs with the same permitted leakage; and what a coarser grain may still tell apart.
BASE = [[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]
SAME_MODEL = [BASE[2], BASE[0], BASE[1]]
SAME_SLOTS = [[1.0, 20.0], [2.0, 30.0], [3.0, 10.0]]


@pytest.mark.parametrize(
    ("grain", "other", "equal"),
    [
        ("model", SAME_MODEL, True),
        ("model", SAME_SLOTS, False),
        ("layer", SAME_SLOTS, True),
        ("parameter", SAME_SLOTS, True),
        ("parameter", [[1.0, 20.0], [2.0, 30.0], [4.0, 10.0]], False),
    ],
)
def test_hide_by_shuffles(grain: str, other: list[list[float]], equal: bool) -> None:
    release = Shuffle.parse({"grain": grain, "use": "shuffle"})
    assert (seen(release, BASE, None) == seen(release, other, None)) is equal


def test_hide_by_a_sum() -> None:
    assert seen(Sum(), [[0, 0], [0, 0]], 8) == seen(Sum(), [[1, 7], [7, 1]], 8)
    assert seen(Sum(), [[0, 0], [0, 0]], 8) != seen(Sum(), [[1, 0], [0, 0]], 8)


# Moduli whose blocks are small enough to walk every arrangement of two clients' bits.
MODULI = (3, 7)


def told(release: Release, pair: tuple[int, int]) -> dict[tuple[int, ...], float]:
    """The exact distribution of what the server sees of two clients' integers in unary."""
    rows = [torch.from_numpy(residues.spread(np.array([number]), 9, MODULI)) for number in pair]
    layout = Layout((Slice("w", (1,)),))

    def view(tape: Tape) -> tuple[int, ...]:
        return tuple(next(iter(release(rows, layout, MODULI, tape).values())).reshape(-1).tolist())

    return {key: round(value, 12) for key, value in outcomes(view).items()}


@pytest.mark.parametrize("release", [Bits(), Counts()], ids=["bits", "counts"])
def test_shuffled_bits_do_not_hide_what_a_sum_hides(release: Release) -> None:
    """Theorem 1 of the paper fails here: (0, 0) and (1, -1) have one sum, and the server tells them with certainty."""
    zeros, opposite = told(release, (0, 0)), told(release, (1, -1))
    assert not set(zeros) & set(opposite), "some view is possible under both"
    assert "more than the sum" in release.reveals()
    # The order of the clients is hidden all the same.
    assert told(release, (1, -1)) == told(release, (-1, 1))


def test_shuffled_bits_tell_no_more_than_their_counts() -> None:
    """Different inputs with the same counts give one distribution of bits (Proposition A.2)."""
    assert told(Counts(), (0, 4)) == told(Counts(), (1, 3))
    assert told(Bits(), (0, 4)) == told(Bits(), (1, 3))


def test_residues_of_a_sum_tell_the_sum_alone() -> None:
    for total in range(-4, 5):
        views = {tuple(told(Mod(), (one, total - one)).items()) for one in range(-2, 3) if abs(total - one) <= 2}
        assert len(views) == 1, total
    every = [tuple(told(Mod(), (total, 0)).items()) for total in range(-10, 11)]
    assert len(set(every)) == 21, "two sums give one view"
