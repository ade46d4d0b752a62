"""Two servers that open less: signs alone, and no distances; and the refusals that go with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from tests.laws.pipelines import BY_SIGN, PIPELINES, signed
from tests.laws.toy import absent, play, tap
from torch import Tensor

from croupier.aggregate.signs import SignTrust
from croupier.core.coins import Coins
from croupier.core.flow import Letter
from croupier.core.view import View
from croupier.encode.signs import Signs
from croupier.engine.state import Threat
from croupier.errors import CroupierError, ProtocolError, RangeError, SpecError
from croupier.mpc.deal_shares import DealSpec
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.place.two_servers.pair import Pair
from croupier.place.two_servers.scoring import Scoring
from croupier.release.printed import Printed
from croupier.release.scored import ScoredSum
from croupier.statement import explain
from croupier_lab.bench.speed.two_server_gates import plain_rule

SECRET: Mapping[str, Any] = {"opens": "signs", "scores": "secret", "weights": "relu", "gate": False}


def random_rows(rows: int, size: int, seed: int) -> tuple[list[Tensor], Tensor]:
    """Rows that lean towards a reference, and the reference."""
    rng = np.random.default_rng(seed)
    wanted = rng.integers(0, 2, size)
    flips = rng.random((rows, size)) < rng.uniform(0.1, 0.6, (rows, 1))
    return [torch.from_numpy(row.astype(np.uint8)) for row in wanted ^ flips], torch.from_numpy(wanted.astype(np.uint8))


def test_only_the_signs_of_the_sum_leave() -> None:
    rows, wanted = random_rows(7, 200, 1)
    sums = ScoredSum(gate=False, among=1).against(rows, wanted, Coins.from_seed(1))
    signs = ScoredSum(gate=False, among=1, opens="signs").against(rows, wanted, Coins.from_seed(1))
    assert int(sums["total"]) > 1
    assert int(signs["total"]) == 1
    assert torch.equal(signs["sums"], sums["sums"].sign())
    assert torch.equal(signs["distances"], sums["distances"])


def test_where_no_row_counts_no_sign_leaves() -> None:
    rows, wanted = random_rows(4, 50, 2)
    found = ScoredSum(gate=False, among=9, opens="signs").against(rows, wanted, Coins.from_seed(1))
    assert int(found["total"]) == 0
    assert not found["sums"].any()


@pytest.mark.parametrize("floor", [True, False])
@pytest.mark.parametrize("spread", [0.5, 2.2])
@pytest.mark.parametrize("seed", range(5))
def test_the_secret_rule_is_the_printed_one(seed: int, spread: float, floor: bool) -> None:
    rows, wanted = random_rows(4 + seed, 60, seed)
    release = ScoredSum(spread=spread, floor=floor, **SECRET)
    found = release.against(rows, wanted, Coins.from_seed(seed))
    rule = Scoring(release, DealSpec(len(rows), 60, "none")).rule
    votes = np.stack([row.numpy() for row in rows]).astype(np.int64)
    want = plain_rule(votes, wanted.numpy().astype(np.int64), rule)
    assert set(found) == {"total", "sums"}
    assert np.array_equal(found["sums"].numpy(), want)


def test_the_least_deviation_is_that_of_rows_half_of_which_differ() -> None:
    assert Printed.of(2.2, 10_000, True).floor == round(4 * 50 / 1.4826)
    assert Printed.of(2.2, 10_000, False).floor == 0
    same = np.array([40, 40, 40])
    assert not Printed.of(2.2, 100, False).weights(same).any()
    assert (Printed.of(2.2, 100, True).weights(same) > 0).all()


def kinds(pipeline: Pipeline) -> set[str]:
    """Every kind of letter that a round sends."""
    threat, log = tap(pipeline)
    play(pipeline, count=1, threat=threat)
    return {letter.kind for letters in log.values() for letter in letters}


def test_the_servers_never_exchange_what_they_do_not_open() -> None:
    assert {"hd", "z"} <= kinds(PIPELINES["two servers"])
    assert "hd" in kinds(PIPELINES["two servers, signs"])
    assert "z" not in kinds(PIPELINES["two servers, signs"])
    assert not {"hd", "z"} & kinds(PIPELINES["two servers, secret scores"])


@pytest.mark.parametrize("name", ["two servers, signs", "two servers, secret scores"])
def test_only_the_dealt_kinds_are_described(name: str) -> None:
    pipeline = PIPELINES[name]
    given = play(pipeline, count=1)[0].views["server"].given
    assert kinds(pipeline) == set(pipeline.schemas(given))


def test_numbers_that_need_64_bits_are_lifted() -> None:
    """So wide a threshold that weights times rows no longer fit 32 bits."""
    pipeline = signed(Pair(malicious=False), BY_SIGN, opens="signs", scores="secret", weights="relu", spread=100_000.5)
    done = play(pipeline, count=2)
    assert "lift0" in pipeline.schemas(done[0].views["server"].given)
    assert "lift0" not in PIPELINES["two servers, secret scores"].schemas(done[0].views["server"].given)
    clear = play(pipeline.model_copy(update={"place": Relay()}), count=2)
    for one, other in zip(done, clear, strict=True):
        assert torch.equal(one.state.model.vector, other.state.model.vector)


@pytest.mark.parametrize("name", ["two servers, signs", "two servers, secret scores"])
def test_a_uniform_row_stands_for_the_missing(name: str) -> None:
    base = PIPELINES[name]
    pipeline = base.model_copy(update={"place": Pair(malicious=False, missing="vote")})
    (done,) = play(pipeline, count=1, threat=absent("c1"))
    assert done.present == ("c0", "c2", "c3")
    assert done.attempt == 0


def test_material_of_the_wrong_size_is_refused_before_anything_is_sent() -> None:
    def short(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        def cut(letter: Letter) -> Letter:
            if letter.kind != "gates1" or isinstance(letter.body, bytes):
                return letter
            return Letter(letter.target, letter.kind, {**letter.body, "fitted": letter.body["fitted"][:-8]})

        return tuple(map(cut, letters))

    with pytest.raises(CroupierError):
        play(PIPELINES["two servers, signs"], count=1, threat=Threat(corrupted={"dealer": short}))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scores": "secret"}, "opens = 'signs'"),
        ({"scores": "secret", "opens": "signs"}, "weights = 'relu'"),
        ({"scores": "secret", "opens": "signs", "weights": "relu"}, "gate = false"),
        ({**SECRET, "expected": 0.3}, "set none"),
    ],
)
def test_secret_scores_take_the_printed_rule_only(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        ScoredSum(**fields)


def test_a_mean_of_signs_is_refused() -> None:
    with pytest.raises(SpecError, match="divides it; use output = 'sign'"):
        signed(Pair(malicious=False), SignTrust(output="mean"), opens="signs")


def test_gates_without_tags_are_refused_with_malicious_servers() -> None:
    with pytest.raises(SpecError, match="carries none; use malicious = false"):
        signed(Pair(entropy=0), BY_SIGN, opens="signs")


def test_too_many_coordinates_for_secret_scores_are_refused() -> None:
    with pytest.raises(RangeError, match="fewer parameters"):
        _ = Scoring(ScoredSum(**SECRET), DealSpec(1 << 20, 1 << 50, "none")).rule


def test_another_release_is_refused() -> None:
    with pytest.raises(ProtocolError, match="computes release = 'scored'"):
        Scoring.of(PIPELINES["sum"].release, DealSpec(4, 4, "none"))


def test_the_statement_says_that_only_signs_are_opened() -> None:
    said = explain(PIPELINES["two servers, signs"])
    assert "how large the sum is is not opened" in str(said)
    said = explain(PIPELINES["two servers, secret scores"])
    assert "no distance, no weight and no sum" in str(said)
    assert "how large the sum is" not in str(explain(Pipeline(
        encode=Signs(), release=ScoredSum(), aggregate=SignTrust(), place=Pair(malicious=False)
    )))  # fmt: skip
