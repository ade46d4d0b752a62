"""IntraShuffler's tables with tiny tasks: whole rows, equal models at equal noise, sentences that are computed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from statistics import fmean
from typing import Any

import pytest
import torch

from croupier.core.coins import Coins
from croupier.engine.federation import Federation
from croupier.engine.loop import rounds
from croupier.engine.state import Round
from croupier.errors import ProtocolError, SpecError
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Iid
from croupier.privacy.gdp import sigma_for
from croupier_lab.papers.catalogue import FIGURES
from croupier_lab.papers.intra import recombination, utility, utility_findings
from croupier_lab.papers.intra.protocols import (
    ADAM,
    FEDAVG,
    FEDPROX,
    TIERS,
    NoiseArm,
    calm,
    cosine,
    epsilons,
    pipeline,
    rate,
    sigmas,
)
from croupier_lab.papers.intra.same_model import differences
from croupier_lab.papers.intra.tasks import LONDON, UtilitySize
from croupier_lab.papers.intra.utility_table import ABSENT, Board, UtilityCell
from croupier_lab.papers.shared import trainings
from croupier_lab.papers.shared.figure import Figure, Means, Scale
from croupier_lab.papers.shared.reproduce import reproduce
from croupier_lab.papers.shared.trainings import (
    First,
    PublicTask,
    TrainingEnd,
    TrainingTask,
    cell,
    in_processes,
    naive,
    public,
    shown,
    train,
)

KNOWN = PublicTask(clip=0.5, size=4000, start=0.5, naive=0.3)
WATCH: Any = lambda _: None  # noqa: E731


def tiny(*_: Any) -> TrainingTask:
    """Digits among a few clients."""
    fit = Sgd(lr=0.05, epochs=1, batch=32)
    return TrainingTask(Digits(), Digits(), Iid(clients=14), 10, Mlp(hidden=(8,)), fit, Federation(rounds=2), Means())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("london", "people", "pictures"):
        monkeypatch.setattr(utility, name, tiny)


def trial(name: str) -> Figure:
    return FIGURES[name]


@pytest.mark.parametrize("name", ["intra/table3", "intra/table4", "intra/table8", "intra/table9"])
def test_every_table_is_whole(small: None, name: str) -> None:
    heard: list[str] = []
    found = reproduce(trial(name), "smoke", Means(), seeds=2, watch=heard.append)
    assert json.loads(json.dumps(found)) == found
    rows = found["rows"]
    assert all(list(row)[:10] == list(rows[0])[:10] for row in rows)
    ran = [row for row in rows if row["_facts"]]
    assert ran[0]["noise"] == "none"
    assert {row["noise"] for row in ran} >= {"none", "stated", "cosine 0.12"}
    assert all("Table" in row["paper"] for row in rows if row["ours"] == ABSENT)
    assert (name == "intra/table9") == all(row["ours"] != ABSENT for row in rows)
    assert len(ran[0]["_cell"]["runs"]) == 2
    assert found["says"]
    assert heard


def test_the_same_updates_make_the_same_model_however_they_are_handed_over() -> None:
    work = tiny()
    known = public(work, 0)
    for arm in (NoiseArm("stated"), NoiseArm("cosine")):
        found = differences(work, known, 0, arm)
        assert set(found) == {"Plain FL-DP", "Shuffle-DP", "IntraShuffler", "no bucket"}
        assert set(found.values()) == {0.0}


def test_weights_by_tier_and_by_bucket_make_other_models() -> None:
    work = tiny()
    known = public(work, 0)
    ends = {
        arm.weighed: train(work, pipeline(arm, FEDAVG, known, 10), 0, 2)
        for arm in (NoiseArm("cosine"), NoiseArm("cosine", "tier"), NoiseArm("cosine", "tier", "epsilon"))
    }
    assert len(ends) == 3
    assert len({ended.curve for ended in ends.values()}) > 1
    assert all(sum(ended.participations.values()) == 20 for ended in ends.values())


def test_noise_by_cosine_is_the_stated_one_made_smaller() -> None:
    stated, quieter = sigmas(NoiseArm("stated"), KNOWN), sigmas(NoiseArm("cosine"), KNOWN)
    assert stated == tuple(sigma_for(one, 1e-5, KNOWN.clip) for one in TIERS)
    ratios = [a / b for a, b in zip(quieter, stated, strict=True)]
    assert ratios == pytest.approx([ratios[0]] * 5)
    assert fmean(cosine(one, KNOWN) for one in quieter) == pytest.approx(0.12, abs=1e-9)
    assert epsilons(NoiseArm("stated"), KNOWN) == TIERS
    # What is printed beside it is the truth: tens to hundreds, not 0.5 to 8.
    assert all(true > 10 * said for true, said in zip(epsilons(NoiseArm("cosine"), KNOWN), TIERS, strict=True))
    assert sigmas(NoiseArm("none"), KNOWN) == epsilons(NoiseArm("none"), KNOWN) == ()
    vector = torch.zeros(4000, dtype=torch.float64)
    vector[0] = KNOWN.clip
    noise = torch.randn(4000, dtype=torch.float64, generator=Coins.from_seed(1).fast())
    seen = float(torch.nn.functional.cosine_similarity(vector, vector + quieter[2] * noise, 0))
    assert seen == pytest.approx(cosine(quieter[2], KNOWN), abs=0.05)


def test_a_quiet_step_is_the_share_that_signal_can_have() -> None:
    arm = NoiseArm("stated", quiet=True)
    variance = fmean(one**2 for one in sigmas(arm, KNOWN)) / 20
    assert rate(arm, FEDAVG, KNOWN, 20) == pytest.approx(0.25 / (0.25 + 4000 * variance))
    assert calm(replace(arm, weights="tier"), KNOWN, 20) > calm(arm, KNOWN, 20)
    assert rate(NoiseArm("stated"), FEDAVG, KNOWN, 20) == 1
    assert (rate(NoiseArm("stated"), ADAM, KNOWN, 20), rate(arm, ADAM, KNOWN, 20)) == (0.01, 0.001)
    assert pipeline(arm, FEDAVG, KNOWN, 20).aggregate.step.use == "damped"  # type: ignore[attr-defined]
    assert FEDPROX.fit(Sgd()).proximal == 0.01  # type: ignore[attr-defined]
    assert FEDAVG.fit(Sgd()) == Sgd()


def test_the_clip_is_the_median_of_those_who_never_train() -> None:
    work = tiny()
    found = public(work, 3)
    everyone = work.built(Coins.from_seed(3), others=True)
    clients = work.built(Coins.from_seed(3))
    assert len(everyone.task.enrolled) == 4
    assert not set(everyone.task.enrolled) & set(clients.task.enrolled)
    assert torch.equal(everyone.task.first.vector, clients.task.first.vector)
    assert found.size == len(clients.task.first.vector)
    assert found.clip > 0
    assert found.naive == naive(clients.dataset) == pytest.approx(0.1, abs=0.02)
    assert public(work, 3) == found != public(work, 4)
    with pytest.raises(SpecError, match="none beside the first 14"):
        First(Iid(clients=14), 14, others=True)(clients.dataset, Coins.from_seed(0))


def test_a_training_that_is_lost_is_counted_and_not_averaged() -> None:
    work = tiny()
    wild = replace(work, fit=Sgd(lr=1e30, epochs=1, batch=32))
    ended = train(wild, pipeline(NoiseArm("none"), FEDAVG, KNOWN, 10), 0, 1)
    assert ended.lost
    assert ended.last == math.inf
    found = cell([0.5, 0.7, math.inf])
    assert (found["mean"], found["lost"]) == (pytest.approx(0.6), 1)
    assert shown(found).endswith("; 1 lost")
    assert shown(cell([math.inf, math.inf])) == "2 runs lost"


def test_a_lost_round_stands_in_the_curve_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> Iterator[Round]:
        yield from islice(rounds(*given), 3)
        raise ProtocolError("round 4 cannot go on")

    monkeypatch.setattr(trainings, "rounds", broken)
    work = replace(tiny(), plan=Federation(rounds=6))
    ended = train(work, pipeline(NoiseArm("none"), FEDAVG, KNOWN, 10), 0, 2)
    assert [number for number, _ in ended.curve] == [2, 4]
    assert (ended.last, ended.lost) == (math.inf, "round 4 cannot go on")


def test_a_board_trains_once_and_alike_in_several_processes() -> None:
    cells = [UtilityCell(("digits", "MLP"), FEDAVG, NoiseArm("none"))]
    rows = []
    for at_once in (1, 2):
        board = Board({("digits", "MLP"): tiny()}, (0, 1), Means(processes=at_once), WATCH)
        board.ahead([*cells, *cells])
        rows.append(board.row(cells[0], "-"))
    assert rows[0] == rows[1]
    assert in_processes(abs, [-1, 2], 1) == [1, 2]


def test_paper_scale_is_the_papers() -> None:
    assert replace(LONDON["paper"], stride=1) == UtilitySize(200, 69, 20, 50, 1)
    # Every stride visits all hours of the day.
    assert all(math.gcd(size.stride, 48) == 1 for size in LONDON.values())
    assert all(trial(f"intra/table{number}").seeds["paper"] >= 3 for number in (3, 4, 6, 8, 9))


def test_sentences_follow_the_rows() -> None:
    def row(noise: str, mean: float, moved: float, *, quiet: bool = False) -> dict[str, Any]:
        def at(value: float) -> dict[str, Any]:
            return {"mean": value, "low": value - 0.01, "high": value + 0.01, "runs": [value], "lost": 0}

        facts = {
            "forecast": True, "clip": at(0.2), "size": 100, "epsilons": [1.0], "sigmas": [2.0], "spent": [3.0],
            "quiet": quiet, "noise": noise, "cosine": 0.12, "naive": 0.3,
        }  # fmt: skip
        return {
            "data": "D", "model": "M", "aggregator": "FedAvg", "_cell": at(mean), "_start": at(0.5),
            "_moved": at(moved), "_facts": facts, "_same": {"Shuffle-DP": 0.0} if noise == "none" else {},
        }  # fmt: skip

    poor = [row("none", 0.2, -0.3), row("stated", 2.0, 1.5), row("stated", 0.5, 0.0, quiet=True)]
    said = " ".join(utility_findings.says([*poor, row("cosine", 0.21, -0.29)]))
    assert "0 of 2 rows end better" in said
    assert "cannot be had there" in said
    assert "20 to 20 times as long as C" in said
    fine = " ".join(utility_findings.says([poor[0], row("stated", 0.25, -0.25)]))
    assert "1 of 1 rows end better" in fine
    assert "cannot be had there" not in fine


def test_values_are_put_together_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: Any) -> TrainingTask:
        return replace(tiny(), split=Iid(clients=20), clients=16)

    monkeypatch.setattr(recombination, "london", work)
    monkeypatch.setattr(recombination, "replace", lambda one, **to: one if "model" in to else replace(one, **to))
    rows = reproduce(trial("intra/table6"), "smoke", Means(), watch=WATCH)["rows"]
    assert [row["bucket"] for row in rows] == [4] * 3 + [8] * 3 + [16] * 3
    assert all(row["looked_at"] == row["bucket"] * row["parameters"] for row in rows)
    assert rows[0]["one_update"] == f"10^{rows[0]['parameters'] * math.log10(4):.0f}"
    assert rows[0]["all_updates"] == f"10^{rows[0]['parameters'] * math.log10(4 * 3 * 2):.0f}"
    stated = [row for row in rows if row["noise"] == "stated"]
    assert all(abs(row["_right"]["mean"] - row["_chance"]) < 0.1 for row in stated)
    # The paper's numbers are those of ten thousand parameters.
    for members, exponent in recombination.PRINTED.items():
        assert abs(10_000 * math.log10(members) - exponent) < 1


def test_noise_is_named_as_what_stops_it_only_where_it_works_without() -> None:
    def said(*found: tuple[int, str, float]) -> str:
        rows = [
            {"bucket": members, "noise": noise, "greedy_s": 0.1, "_right": {"low": low}, "_chance": 1 / members}
            for members, noise, low in found
        ]
        return recombination.says(rows)[1]

    works, noised = (4, "none", 0.9), (4, "stated", 0.2)
    assert said(works, noised).endswith("it is the noise that stops it, not the number of ways.")
    assert said(works, (4, "stated", 0.8)).endswith("neither the noise nor the number of ways stops it.")
    mixed = said(works, noised, (8, "none", 0.1), (8, "stated", 0.1), (16, "none", 0.0))
    assert mixed.startswith("Without noise it is right more often than 1/n in 1 of 3 bucket sizes, with noise in 0 of")
    assert mixed.endswith("with buckets of 8, 16 it fails even without noise.")


def test_scales_are_known(small: None) -> None:
    scales: tuple[Scale, ...] = ("smoke", "small", "paper")
    assert all(set(trial(f"intra/table{number}").seeds) == set(scales) for number in (3, 4, 8, 9))
    assert isinstance(TrainingEnd(((1, 0.5),), {}).last, float)
