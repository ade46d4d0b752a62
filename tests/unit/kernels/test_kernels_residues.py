"""Residues in unary: compiled loops against plain references, and scattered ones that favour no place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.tape import Tape, outcomes
from tests.tiers import examples

from croupier.core.coins import Coins
from croupier.kernels import _residues_jit as jit
from croupier.kernels import residues, threads
from croupier.kernels.residues import Quantiser, Rounding

# 12, 57, 64, 75 and 147 bits a number: within a word, a whole one, and across one and two ends of a word.
SETS = [
    (3, 5, 7),
    (3, 5, 7, 8, 11, 13, 17),
    (3, 5, 7, 11, 13, 31),
    (3, 5, 7, 8, 11, 13, 17, 19),
    (5, 7, 9, 11, 13, 16, 17, 19, 29, 31),
]
# Around one word's worth of numbers, the least compiled size, a cache full, and what is worth a second thread.
SIZES = [0, 1, 2, 63, 64, 65, 1023, 1024, 1025, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 1 << 17, (1 << 17) + 65]
AROUND = pytest.mark.parametrize("count", SIZES)
EVERY = pytest.mark.parametrize("moduli", SETS, ids=lambda moduli: f"{sum(moduli) - len(moduli)} bits")


def numbers_of(count: int, top: int, seed: int = 1) -> residues.Ints:
    """Numbers within the range, its edges and 0 among them."""
    numbers = Coins.from_seed(seed).secure().below(2 * top + 1, count) - top
    numbers[:3] = [top, -top, 0][:count]
    return numbers


def values_of(count: int, seed: int = 1) -> npt.NDArray[np.float32]:
    """Values within and some beyond 1, among them ties and edges."""
    values = Coins.from_seed(seed).secure().normal(count).astype(np.float32) * np.float32(0.4)
    values[:6] = [1.0, -1.0, 0.5, -0.5, 0.0, 1.5][:count]
    return values


def words_of(count: int) -> residues.Words:
    return np.frombuffer(Coins.from_seed(2).secure().bytes(4 * count), "<u4")


@EVERY
@AROUND
def test_spread_and_count_and_join_are_their_references(count: int, moduli: tuple[int, ...]) -> None:
    top = min(50_000, (math.prod(moduli) - 1) // 2)
    numbers = numbers_of(count, top)
    bits = residues.spread(numbers, top, moduli)
    assert bits.tobytes() == residues.spread_plain(numbers, moduli).tobytes()
    assert len(bits) == -(-count * (sum(moduli) - len(moduli)) // 8)
    ones = residues.counts([bits], count, moduli)
    assert np.array_equal(ones, numbers[:, None] % np.array(moduli))
    assert np.array_equal(ones, residues.counts_plain([bits], count, moduli))
    assert np.array_equal(residues.join(ones, moduli), numbers)
    assert np.array_equal(residues.join_plain(ones, moduli), numbers)


@EVERY
def test_counts_of_several_rows_add_up(moduli: tuple[int, ...]) -> None:
    rows = [numbers_of(1100, 20, seed) for seed in range(5)]
    bits = [residues.spread(row, 20, moduli) for row in rows]
    want = sum(row[:, None] % np.array(moduli) for row in rows)
    assert np.array_equal(residues.counts(bits, 1100, moduli), want)
    assert np.array_equal(residues.counts_plain(bits, 1100, moduli), want)


@pytest.mark.parametrize("top", [(1 << 21) - 1, 1 << 21, 10**8 - 1])
def test_numbers_without_a_table_are_written_alike(top: int) -> None:
    moduli = (5, 7, 9, 11, 13, 16, 17, 19, 29, 31)
    for count in (1024, 1025, (1 << 14) + 1):
        numbers = numbers_of(count, top)
        assert np.array_equal(residues.spread(numbers, top, moduli), residues.spread_plain(numbers, moduli))


@AROUND
@pytest.mark.parametrize("rounding", ["even", "stochastic", "floor"])
@pytest.mark.parametrize("each", [False, True], ids=["one scale", "a scale each"])
def test_encoding_at_once_is_rounding_and_then_spreading(count: int, rounding: Rounding, each: bool) -> None:
    moduli, values = SETS[1], values_of(count)
    scales = np.full(count if each else 1, 0.5)
    scales[::2] = 2.0
    grid = Quantiser(scales, 10**5, 10**5 - 1, 0.75, rounding)
    draws = words_of(count) if rounding == "stochastic" else np.zeros(0, np.uint32)
    want, clamped = residues.whole_plain(values, grid, draws)
    got = residues.whole(values, grid, draws)
    assert np.array_equal(got[0], want)
    assert got[1] == clamped
    bits, also = residues.encode(values, grid, draws, moduli)
    assert bits.tobytes() == residues.spread_plain(want, moduli).tobytes()
    assert also == clamped


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    count, moduli = (1 << 17) + 777, SETS[3]
    grid, values = Quantiser(np.ones(1), 10**5, 10**5 - 1), values_of(count)

    def made() -> tuple[bytes, int, bytes]:
        bits, clamped = residues.encode(values, grid, np.zeros(0, np.uint32), moduli)
        return bits.tobytes(), clamped, residues.counts([bits], count, moduli).tobytes()

    found = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
        found.append(made())
    assert found[0] == found[1] == found[2]


@examples()
@given(st.integers(-(10**18), 10**18), st.sampled_from([SETS[1], SETS[4], (43, 47, 53, 59, 61, 64, 37, 41, 31, 29)]))
def test_join_finds_the_number_nearest_to_0(number: int, moduli: tuple[int, ...]) -> None:
    whole = math.prod(moduli)
    assert whole < 1 << 62
    want = (number + whole // 2) % whole - whole // 2
    want = want + whole if want == -(whole // 2) and whole % 2 == 0 else want
    ones = np.array([[number % m for m in moduli]])
    assert residues.join(ones, moduli).tolist() == [want]
    assert residues.join(np.repeat(ones, 2000, 0), moduli).tolist() == [want] * 2000


def arrangement(rows: npt.NDArray[np.uint8], width: int) -> tuple[int, ...]:
    """The bits of one block, client by client."""
    return tuple(np.unpackbits(rows, axis=1, bitorder="little")[:, :width].reshape(-1).tolist())


def literal(bits: Sequence[int], tape: Tape) -> tuple[int, ...]:
    """What Algorithm 1 prints: permute a block's bits."""
    return tuple(bits[i] for i in tape.permutation(len(bits)))


@pytest.mark.parametrize("bits", [(0, 0, 0, 0), (1, 0, 0, 0), (1, 1, 0, 1, 0, 0), (1, 0, 1, 1, 1, 1)])
def test_scattering_is_permuting_the_bits(bits: tuple[int, ...]) -> None:
    """Proposition A.2: shuffled bits tell their number and nothing else. Exactly, over all choices."""
    people, width = 2, len(bits) // 2
    ones = np.array([[sum(bits)]])
    scattered = outcomes(lambda tape: arrangement(tape.scatter(ones, people, (width + 1,)), width))
    permuted = outcomes(lambda tape: literal(bits, tape))
    assert scattered == pytest.approx(permuted)
    assert len(scattered) == math.comb(len(bits), sum(bits))
    assert list(scattered.values()) == pytest.approx([1 / len(scattered)] * len(scattered))


def fed(words: Sequence[int]) -> Callable[[int, int], npt.NDArray[Any]]:
    """Draws these words, then words that every choice accepts."""

    def draw(count: int, bits: int) -> npt.NDArray[Any]:
        out = np.full(count, (1 << bits) - 1, f"<u{bits // 8}")
        out[: len(words)] = words[:count]
        return out

    return draw


@pytest.mark.parametrize(("size", "ones"), [(4, 1), (4, 2), (4, 3), (6, 2), (6, 3), (6, 4)])
def test_every_choice_of_the_compiled_loop_leads_to_each_arrangement_alike(size: int, ones: int) -> None:
    """All sequences of choices are equally likely; each arrangement must come from as many of them."""
    rare = min(ones, size - ones)
    spans = range(size - rare + 1, size + 1)
    found: Counter[tuple[int, ...]] = Counter()
    for choices in product(*(range(span) for span in spans)):
        # The last word that leads to a choice is always accepted.
        words = [-(-((choice + 1) << 16) // span) - 1 for choice, span in zip(choices, spans, strict=True)]
        rows = residues.scatter(np.array([[ones]]), 2, (size // 2 + 1,), fed(words))
        found[arrangement(rows, size // 2)] += 1
    want = {tuple(int(i in places) for i in range(size)) for places in combinations(range(size), ones)}
    assert set(found) == want
    assert len(set(found.values())) == 1


def tossed(size: int, ones: int, coins: Sequence[int], choices: Sequence[int]) -> tuple[int, ...] | None:
    """A block of two clients that is tossed like this and mended by these choices; None where they do not suffice."""
    words = np.array([-(-((choice + 1) << 16) // size) - 1 for choice in choices], np.uint16)
    out = np.zeros((2, 1), np.uint64)
    counts, widths, toss = np.array([[ones]]), np.array([size // 2]), np.array(coins, np.uint64)
    done = jit.scatter(counts, widths, words, toss, 0, 16, out)
    return None if done < 0 else arrangement(out.view(np.uint8), size // 2)


@pytest.mark.parametrize("ones", [1, 2, 3])
def test_every_toss_and_choice_leads_to_each_arrangement_alike(ones: int) -> None:
    """All tosses, and all choices up to a number of them: each arrangement comes from as many of those that suffice."""
    size = 4
    found: Counter[tuple[int, ...] | None] = Counter()
    for coins in product(range(1 << size), repeat=3):
        # The third word counts for odds of 3 and 5 eighths alone, which a block of four never has.
        for choices in product(range(size), repeat=3) if not coins[2] else ():
            found[tossed(size, ones, coins, choices)] += 1
    del found[None]
    want = {tuple(int(i in places) for i in range(size)) for places in combinations(range(size), ones)}
    assert set(found) == want
    assert len(set(found.values())) == 1


@pytest.mark.parametrize("share", [2, 3, 4, 5, 6])
def test_a_toss_has_the_odds_it_says(share: int) -> None:
    """Each of a word's bits, over all eight settings of the three that make it."""
    words = [[np.uint64(-bit % (1 << 64)) for bit in bits] for bits in product((0, 1), repeat=3)]
    made = [int(jit._tossed(share, *three)) for three in words]
    assert set(made) <= {0, (1 << 64) - 1}
    assert sum(word > 0 for word in made) == share


@pytest.mark.parametrize("least", [0, 1 << 30], ids=["tossed", "placed"])
@pytest.mark.parametrize(
    ("people", "width", "ones"), [(3, 2, 3), (3, 2, 2), (4, 2, 3), (4, 2, 5), (10, 16, 60), (10, 16, 97), (10, 2, 9)]
)
def test_both_ways_are_uniform(people: int, width: int, ones: int, least: int) -> None:
    """Chi-square over arrangements, or over pairs of places where there are too many."""
    trials, size = 12_000, people * width
    stream = Coins.from_seed(8).secure()
    rows = residues.scatter(np.full((trials, 1), ones), people, (width + 1,), stream._narrow, least)
    bits = np.unpackbits(rows, axis=1, bitorder="little")[:, : trials * width].reshape(people, trials, width)
    blocks = bits.transpose(1, 0, 2).reshape(trials, size)
    assert (blocks.sum(1) == ones).all()
    if size < 10:
        seen = list(Counter(map(tuple, blocks.tolist())).values())
        assert len(seen) == math.comb(size, ones)
        assert stats.chisquare(seen).pvalue > 1e-4
        return
    # Neighbours within a word, across words and across clients: each pair is set together as often as any other.
    rate = ones * (ones - 1) / (size * (size - 1))
    for apart in (1, width, size // 2):
        both = (blocks & np.roll(blocks, apart, 1)).sum(0)
        assert (np.abs(both - trials * rate) < 5 * math.sqrt(trials * rate * (1 - rate))).all()


def test_every_accepted_word_counts_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three places: of 2^16 words one must be refused, and each place gets a third of the others."""
    monkeypatch.setattr(residues, "_STRIP", 1 << 17)
    words = list(range(1 << 16))
    ones = np.ones((len(words) - 1, 1), np.int64)
    rows = residues.scatter(ones, 3, (2,), fed(words))
    bits = np.unpackbits(rows, axis=1, bitorder="little")[:, : len(ones)]
    assert bits.sum(0).tolist() == [1] * len(ones)
    assert bits.sum(1).tolist() == [21_845] * 3


def test_when_words_run_out_all_are_drawn_afresh() -> None:
    asked: list[int] = []

    def draw(count: int, bits: int) -> npt.NDArray[Any]:
        asked.extend([count] if bits == 16 else [])
        # Nothing but refused words at first.
        return np.full(count, 0 if len(asked) == 1 else 7, f"<u{bits // 8}")

    rows = residues.scatter(np.array([[1]]), 3, (2,), draw)
    assert len(asked) == 2
    assert asked[1] > asked[0]
    assert np.unpackbits(rows, axis=1, bitorder="little").sum() == 1


@pytest.mark.parametrize(("people", "moduli"), [(2, (3,)), (3, (2,)), (2, (4,)), (1400, (4,))])
def test_the_real_stream_is_uniform(people: int, moduli: tuple[int, ...]) -> None:
    """Chi-square over arrangements, or over places where there are too many; 1400 people draw 32-bit words."""
    trials, width = 12_000 if people < 10 else 1_500, moduli[0] - 1
    ones = np.full((trials, 1), 2)
    rows = Coins.from_seed(5).secure().scatter(ones, people, moduli)
    bits = np.unpackbits(rows, axis=1, bitorder="little")[:, : trials * width].reshape(people, trials, width)
    blocks = bits.transpose(1, 0, 2).reshape(trials, -1)
    assert blocks.sum(1).tolist() == [2] * trials
    if people < 10:
        seen = list(Counter(map(tuple, blocks.tolist())).values())
        assert len(seen) == math.comb(people * width, 2)
    else:
        seen = blocks.reshape(trials, 60, -1).sum((0, 2)).tolist()
    assert stats.chisquare(seen).pvalue > 1e-4


def test_a_scatter_that_favours_a_place_is_caught() -> None:
    """The planted fault: modulo without refusal on 3-bit words."""
    places = (Coins.from_seed(5).secure().below(8, 12_000) % 3).tolist()
    assert stats.chisquare(list(Counter(places).values())).pvalue < 1e-4


@EVERY
@pytest.mark.parametrize("people", [2, 5, 33])
def test_scattered_rows_keep_every_count(people: int, moduli: tuple[int, ...]) -> None:
    for count in (1, 3, 65, 2047, 2048, 2049, 4097):
        top = np.array(moduli) - 1
        ones = np.stack([Coins.from_seed(j).secure().below(people * int(t) + 1, count) for j, t in enumerate(top)], 1)
        ones[0], ones[-1] = 0, people * top
        rows = Coins.from_seed(9).secure().scatter(ones, people, moduli)
        assert rows.shape == (people, residues.size(count, moduli))
        assert np.array_equal(residues.counts(list(rows), count, moduli), ones)
        spare = 8 * rows.shape[1] - count * int(top.sum())
        assert not spare or not (rows[:, -1] >> (8 - spare)).any()
