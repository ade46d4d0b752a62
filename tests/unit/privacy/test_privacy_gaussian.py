"""Gaussian noise at the client: clipping, calibration, and an epsilon that is never rounded down."""

from __future__ import annotations

import math
import tracemalloc
from decimal import Decimal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from croupier.core import norm
from croupier.core.coins import BLOCK, Coins
from croupier.core.norm import length
from croupier.core.update import Layout, Slice, Update
from croupier.encode.floats import Floats
from croupier.errors import PrivacyError, SpecError
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.gdp import epsilon_of
from croupier.privacy.local import LocalPrivacy, rounded_up, shown
from croupier.release.shuffle import Shuffle
from croupier.statement import explain

ROOT = Coins.from_seed(11)


def difference(values: object) -> Update:
    """An update of one tensor, as a difference."""
    vector = torch.as_tensor(values, dtype=torch.float32)
    return Update(vector, Layout((Slice("w", (len(vector),)),)), form="delta")


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 64, 1000, 70001])
def test_a_length_is_exact_to_the_last_digits(size: int) -> None:
    values = torch.from_numpy(ROOT.child(size).secure().normal(size)).float()
    exact = math.sqrt(math.fsum(float(value) ** 2 for value in values))
    assert length(values) == pytest.approx(exact, rel=1e-14)


def test_a_length_neither_overflows_nor_depends_on_how_memory_lies() -> None:
    assert length(torch.full((4,), 1e38)) == pytest.approx(2e38)
    values = torch.from_numpy(ROOT.child("strided").secure().normal(2000)).float()
    assert length(values[::2]) == length(values[::2].clone())


def at_once(values: torch.Tensor) -> float:
    """The length from all squares together, added in halves."""
    squares = np.square(values.numpy().astype(np.float64))
    count = len(squares)
    while count > 1:
        upper = (count + 1) // 2
        squares[: count - upper] += squares[upper:count]
        count = upper
    return math.sqrt(float(squares[0]))


@pytest.mark.parametrize("size", [1, 3, 4, 5, 8, 9, 31, 33, 100, 1001])
def test_a_length_has_the_same_bits_however_few_squares_are_held(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.from_numpy(ROOT.child("held", size).secure().normal(size)).float()
    for held in (1, 4, 7):
        monkeypatch.setattr(norm, "_HELD", held)
        assert length(values) == at_once(values)


def test_no_copy_of_a_long_update_is_made_in_doubles() -> None:
    update = difference(torch.linspace(-1, 1, 1 << 21))
    tracemalloc.start()
    try:
        length(update.vector)
        of_length = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        Gaussian(clip=1, sigma=0.1)(update, ROOT)
        of_noise = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Doubles of all would be 16 MiB, beside the 8 MiB that are sent; a block of them and its noise are 5 MiB.
    assert of_length < 4 << 20
    assert of_noise < 16 << 20


def test_a_long_difference_is_noised_as_if_it_were_all_at_once() -> None:
    update, part = difference(torch.linspace(-1, 1, 2 * BLOCK + 5)), Gaussian(clip=1, sigma=0.25)
    wide = update.vector.numpy().astype(np.float64) * (1 / at_once(update.vector))
    for number, start in enumerate(range(0, len(wide), BLOCK)):
        some = wide[start : start + BLOCK]
        some += 0.25 * ROOT.child("block", number).secure().normal(len(some))
    assert np.array_equal(part(update, ROOT)[0].vector.numpy(), wide.astype(np.float32))


def test_a_long_difference_is_clipped_and_a_short_one_is_not() -> None:
    part = Gaussian(clip=1, sigma=0)
    long, spent = part(difference([3.0, -4.0]), ROOT)
    assert long.vector.tolist() == pytest.approx([0.6, -0.8])
    assert spent.noted == {"clipped_updates": 1}
    short, spent = part(difference([0.3, -0.4]), ROOT)
    assert torch.equal(short.vector, torch.tensor([0.3, -0.4]))
    assert spent.noted == {"clipped_updates": 0}
    assert spent.mechanism == "gaussian"
    assert spent.facts == {"clip": 1, "sigma": 0}


def test_noise_has_its_deviation_and_is_new_in_every_block() -> None:
    size = 2 * BLOCK + 5
    part = Gaussian(clip=1, sigma=0.25)
    sent, spent = part(difference(np.zeros(size)), ROOT)
    assert sent.vector.dtype == torch.float32
    assert float(sent.vector.double().std()) == pytest.approx(0.25, rel=0.01)
    assert abs(float(sent.vector.double().mean())) < 5 * 0.25 / math.sqrt(size)
    assert not torch.equal(sent.vector[:BLOCK], sent.vector[BLOCK : 2 * BLOCK])
    assert torch.equal(part(difference(np.zeros(size)), ROOT)[0].vector, sent.vector)
    assert spent.facts == {"clip": 1, "sigma": 0.25, "mu": 8.0}


def test_the_sum_of_update_and_noise_is_made_in_doubles() -> None:
    values = np.full(100, 0.05)
    sent, _ = Gaussian(clip=100, sigma=1e-9)(difference(values), ROOT)
    drawn = ROOT.child("block", 0).secure().normal(100)
    wanted = (np.float32(0.05).astype(np.float64) + 1e-9 * drawn).astype(np.float32)
    assert np.array_equal(sent.vector.numpy(), wanted)


def test_whole_weights_are_refused() -> None:
    whole = Update(torch.ones(2), Layout((Slice("w", (2,)),)))
    with pytest.raises(PrivacyError, match=r"encode\.form = 'delta'"):
        Gaussian(clip=1, sigma=1)(whole, ROOT)
    with pytest.raises(SpecError, match=r"privacy = 'gaussian' .* use encode\.form = 'delta'"):
        Pipeline(privacy=Gaussian(clip=1, sigma=1))


@pytest.mark.parametrize("wrong", [{"clip": 0}, {"sigma": -1}, {"delta": 0}, {"delta": 1}, {"clip": math.inf}])
def test_fields_that_cannot_be(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(SpecError, match=name):
        LocalPrivacy.parse({"use": "gaussian", "clip": 1, "sigma": 1, **wrong})


def test_without_noise_nothing_is_claimed() -> None:
    part = Gaussian(clip=1, sigma=0)
    assert part.guarantee() is None
    assert "no differential privacy is claimed" in part.claims(5)
    assert "eps" not in part.claims(5)


def test_the_claim_names_everything_and_grows_with_participations() -> None:
    part = Gaussian(clip=1, sigma=4)
    said = part.claims(25)
    for word in ("unit: a client", "replaced", "C = 1", "sigma = 4", "mu = 2C/sigma = 0.5", "mu sqrt(T)", "not used"):
        assert word in said
    assert f"one participation: ({rounded_up(epsilon_of(0.5, 1e-5))}, 1e-05)" in said
    all_of_them = f"mu = 2.5, ({rounded_up(epsilon_of(2.5, 1e-5))}, 1e-05)"
    assert f"25 participations, the most that this run asks of a client: {all_of_them}" in said
    assert "participations, the most" not in part.claims()
    assert "too large to promise much" in Gaussian(clip=1, sigma=0.01).claims()
    assert "too large" not in part.claims()


def test_a_printed_epsilon_is_never_below_the_true_one() -> None:
    for value in (1.00004, 1.99999, 91.81, 20851.6, 3.0, 0.00012344, 9.99951):
        assert float(rounded_up(value)) >= value
        assert float(rounded_up(value)) <= value * 1.002
    told = {0.496434: "0.4965", 291_236.0: "2.913e+05", 1.00004: "1.001", 9.99951: "10", 0.4965: "0.4965", 0.0: "0"}
    assert {value: rounded_up(value) for value in told} == told
    assert rounded_up(math.inf) == "inf"
    assert shown(3.0, 1e-5) == "(3, 1e-05)"


@given(st.floats(1e-300, 1e300))
def test_no_smaller_number_of_four_digits_would_hold(value: float) -> None:
    printed = Decimal(rounded_up(value))
    # A thousand and nothing after it: the number below has a digit more after the point.
    digit = printed.adjusted() - (4 if printed == Decimal(1).scaleb(printed.adjusted()) else 3)
    # The last bits of a computed value are no reason to round up.
    assert float(printed) >= value * (1 - 1e-12)
    assert float(printed - Decimal(1).scaleb(digit)) < value


def test_a_statement_shows_all_rounds_and_no_amplification() -> None:
    pipeline = Pipeline(
        privacy=Gaussian(clip=1, sigma=0.2), encode=Floats(form="delta"), release=Shuffle(grain="model"), place=Relay()
    )
    said = explain(pipeline, rounds=9, present=100)
    assert said.differential_privacy == pipeline.privacy.claims(9)
    assert said.amplification.startswith("no amplification claimed: the local epsilon 91.8")
    quiet = pipeline.model_copy(update={"privacy": Gaussian(clip=1, sigma=4)})
    assert "up to a delta of 1e-05 only" in explain(quiet, present=100).amplification
    assert "not known here" in explain(quiet).amplification
    named = Pipeline(privacy=Gaussian(clip=1, sigma=4), encode=Floats(form="delta"))
    assert "rows keep their names" in explain(named, present=100).amplification


def test_what_training_says_of_noise_does_not_hide_what_the_client_adds() -> None:
    pipeline = Pipeline(privacy=Gaussian(clip=1, sigma=1), encode=Floats(form="delta", weights="open"))
    said = explain(pipeline, noise="clients train by DP-SGD", rounds=2).differential_privacy
    assert said.startswith("clients train by DP-SGD. Besides, unit: a client")
    assert said.endswith("The number of records, which travels too (weights = 'open'), is not covered")


def test_a_client_notes_for_itself_that_it_was_clipped() -> None:
    from tests.laws.toy import play

    from croupier.encode.fixed import FixedPoint
    from croupier.release.sums import Sum

    encode = FixedPoint(clients=8, form="delta")
    pipeline = Pipeline(privacy=Gaussian(clip=1e-3, sigma=0), encode=encode, release=Sum(), place=Relay())
    (done,) = play(pipeline, count=1)
    for noted in done.noted.values():
        assert noted["clipped_updates"] == 1
        assert "clamped" in noted, "the encoder's own notes are kept"
