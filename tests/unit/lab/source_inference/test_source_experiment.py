"""The experiment: it finds a planted leak, finds none where there is none, and does no training twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.scenes import Here
from torch import Tensor

from croupier.audit import records
from croupier.audit import setting as settings
from croupier.audit.attacks import source
from croupier.audit.context import AttackContext
from croupier.audit.knowledge import Knowledge
from croupier.audit.setting import Setting
from croupier.audit.stage import Stage, Truth
from croupier.core.coins import Coins
from croupier.core.intervals import gain
from croupier.core.update import Update
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.errors import CroupierError, SpecError
from croupier.learn.assemble import assemble
from croupier.learn.datasets import Digits
from croupier.learn.distort import Distortion
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Dirichlet, Iid
from croupier.systems import naive, plain, total
from croupier_lab.source_inference import experiment
from croupier_lab.source_inference.experiment import Defence, run
from croupier_lab.source_inference.outcome import SourceOutcome

CLIENTS = 4
SETTING = Setting(
    Digits(), Dirichlet(clients=CLIENTS, alpha=0.5, least=20), Mlp(hidden=(16,)), Sgd(lr=0.1, epochs=1),
    Federation(rounds=1), records=20,
)  # fmt: skip
NONE = Defence("none", plain("uniform"), ("named", "named+prior"), ())
MODELS = Defence("model shuffle", naive("model"), ("algorithm2-loss", "algorithm2+prior"), ())
VALUES = Defence("parameter shuffle", naive("parameter"), ("algorithm5-loss",), ())
TOTAL = Defence("sum only", total(CLIENTS), ("tuned",), ("loss",))
ALL = (NONE, MODELS, VALUES, TOTAL)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Here]:
    """Experiments whose attacks run in this process, with forests of few trees; the panels that were opened."""
    monkeypatch.setattr(records, "TREES", 10)
    opened: list[Here] = []

    def open_panel(count: int, device: str) -> Here:
        opened.append(Here(count, device))
        return opened[-1]

    monkeypatch.setattr(experiment, "Panel", open_panel)
    return opened


def outcomes(setting: Setting, defences: Sequence[Defence], seeds: Sequence[int] = (0, 1)) -> list[SourceOutcome]:
    return run(setting, defences, seeds, Local())


Counted = Callable[[], int]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """How many clients were really trained."""
    jobs: list[int] = []

    def counting(*args: Any, **kwargs: Any) -> Any:
        made = assemble(*args, **kwargs)
        fit = made.task.fit

        def counted(todo: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
            jobs.append(len(todo))
            return fit(todo)

        return replace(made, task=replace(made.task, fit=counted))

    monkeypatch.setattr(settings, "assemble", counting)
    return lambda: sum(jobs)


def test_what_only_the_server_sees_otherwise_is_trained_once(here: list[Here], trained: Counted) -> None:
    outcomes(replace(SETTING, plan=Federation(rounds=2)), (NONE, MODELS, VALUES))
    assert trained() == 2 * 2 * CLIENTS  # two seeds, two rounds


def test_a_sum_is_rounded_so_only_its_first_round_is_shared(here: list[Here], trained: Counted) -> None:
    outcomes(replace(SETTING, plan=Federation(rounds=2)), (NONE, replace(TOTAL, membership=())))
    assert trained() == 2 * (2 + 1) * CLIENTS


def test_another_task_is_trained_again(here: list[Here], trained: Counted) -> None:
    slow = replace(NONE, name="slow", changes=(("fit", Sgd(lr=0.01)),))
    outcomes(SETTING, (NONE, slow))
    assert trained() == 2 * 2 * CLIENTS


class Backwards(Distortion):
    """Inputs from their end. It has no name, so that no list of parts shows it."""

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        return inputs.flip(1)


def test_other_pictures_of_the_adversary_are_not_trained_again(here: list[Here], trained: Counted) -> None:
    blurred = replace(MODELS, name="blurred", changes=(("noise", Backwards()),))
    one, two = outcomes(SETTING, (MODELS, blurred))
    assert trained() == 2 * CLIENTS
    assert one.accuracy == two.accuracy
    # Labels of the shadow sets are as they were; what the prior and the rows make of the inputs is not.
    assert one.success["algorithm2-loss"] != two.success["algorithm2-loss"]
    seeds = [Knowledge(**known["knowledge"]) for _, known, asked, _ in here[0].asked if asked["views"]]
    for clean, changed in zip(seeds[::2], seeds[1::2], strict=True):
        assert torch.equal(clean.shadows[0][0].flip(1), changed.shadows[0][0])
        assert torch.equal(clean.records[0], changed.records[0])


def test_a_defences_result_does_not_depend_on_the_others(here: list[Here]) -> None:
    setting = replace(SETTING, plan=Federation(rounds=2))
    together = {got.name: got for got in outcomes(setting, ALL)}
    backwards = {got.name: got for got in outcomes(setting, ALL[::-1])}
    assert list(together) == [defence.name for defence in ALL]
    assert together == backwards
    for defence in ALL:
        (alone,) = outcomes(setting, [defence])
        assert alone == together[defence.name]


def test_only_the_clients_of_the_round_are_asked_about(here: list[Here]) -> None:
    cohort = 3
    split = Dirichlet(clients=8, alpha=0.5, least=20)
    setting = replace(SETTING, split=split, plan=Federation(rounds=3, cohort=cohort))
    (got,) = outcomes(setting, [NONE])
    assert got.chance == 1 / cohort
    (panel,) = here
    heard = [(Knowledge(**known["knowledge"]), asked["views"], answer) for _, known, asked, answer in panel.asked]
    cohorts = {known.clients for known, views, _ in heard if views}
    assert len(cohorts) > 1
    for known, views, answer in heard:
        assert len(known.clients) == len(known.shadows) == cohort
        assert len(known.records[1]) == cohort * setting.records
        assert all(set(guesses.tolist()) <= set(range(cohort)) for guesses in answer["guesses"].values())
        if views:
            assert known.clients == views["server"][0]["given"]["roster"]
    # The prior is asked about every cohort that attacks are.
    assert {known.clients for known, views, _ in heard if not views} == cohorts


def constant(scene: AttackContext, coins: Coins) -> Tensor:
    """Always the second client."""
    scores = torch.zeros(len(scene.knowledge.clients), len(scene.knowledge.records[1]))
    scores[1] = 1.0
    return scores


def coin(scene: AttackContext, coins: Coins) -> Tensor:
    """Any client."""
    return torch.rand(len(scene.knowledge.clients), len(scene.knowledge.records[1]), generator=coins.fast())


@pytest.mark.parametrize("defence", [NONE, TOTAL], ids=["none", "sum only"])
def test_attacks_that_know_nothing_score_at_one_in_n(
    defence: Defence, here: list[Here], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(source.ATTACKS, "constant", constant)
    monkeypatch.setitem(source.ATTACKS, "coin", coin)
    blunt = replace(defence, attacks=("constant", "coin"), membership=())
    (got,) = outcomes(replace(SETTING, plan=Federation(rounds=2)), [blunt], range(8))
    assert got.chance == 1 / CLIENTS
    for name in ("constant", "coin"):
        rate = got.overall[name]
        assert rate.low <= 1 / CLIENTS <= rate.high
        assert rate.high - rate.low < 0.3
    # As many records of each client are asked about, so a constant guess is right exactly once in n.
    assert got.overall["constant"].rate == pytest.approx(1 / CLIENTS)
    assert got.overall["coin"].high > got.overall["coin"].low


def test_an_attack_that_knows_the_truth_is_always_right(here: list[Here], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses and truth meet in one order: records, clients, rounds and seeds."""
    told: dict[bytes, Tensor] = {}
    real = Stage._ask

    def leaky(self: Stage, *args: Any) -> tuple[Knowledge, Truth]:
        known, truth = real(self, *args)
        told[known.records[0].numpy().tobytes()] = truth.owners
        return known, truth

    def cheat(scene: AttackContext, coins: Coins) -> Tensor:
        owners = told[scene.knowledge.records[0].numpy().tobytes()]
        return torch.nn.functional.one_hot(owners, len(scene.knowledge.clients)).T.double()

    monkeypatch.setattr(Stage, "_ask", leaky)
    monkeypatch.setitem(source.ATTACKS, "cheat", cheat)
    setting = replace(SETTING, plan=Federation(rounds=2, cohort=3))
    (got,) = outcomes(setting, [replace(NONE, attacks=("cheat",))])
    assert all(rate.rate == 1.0 for rate in got.success["cheat"].values())
    assert got.overall["prior"].rate < 1.0


def test_a_leak_in_a_pipeline_is_found(here: list[Here]) -> None:
    """Two records a client are a poor prior; named models of unlike clients say more. A sum says less than they do."""
    split = Dirichlet(clients=6, alpha=0.2, least=40)
    setting = replace(SETTING, split=split, shadow=0.001, fit=Sgd(lr=0.1, epochs=3, batch=16), records=40)
    (got,) = outcomes(setting, [NONE], range(8))
    assert got.leak("named+prior").low > 0
    assert got.overall["named+prior"].low > got.overall["prior"].rate


def test_nothing_is_found_where_there_is_nothing(here: list[Here]) -> None:
    """Clients that are alike, and steps too small for a float: no attack is above 1/n by more than its interval."""
    setting = replace(SETTING, split=Iid(clients=CLIENTS), fit=Sgd(lr=1e-30, epochs=1), records=40)
    (got,) = outcomes(setting, [NONE], range(5))
    assert got.leak("named+prior").low <= 0 <= got.leak("named+prior").high
    # Steps that are merely tiny are no protection: a record's own step shows however small it is.
    (tiny,) = outcomes(replace(setting, fit=Sgd(lr=1e-5, epochs=1)), [NONE], range(5))
    assert tiny.leak("named+prior").low > 0
    assert got.overall["prior"].low <= got.chance <= got.overall["prior"].high


def test_runs_in_several_processes_give_the_same(here: list[Here]) -> None:
    """Each seed in its own process, with a blind one of its own: bit for bit what one after another gives here."""
    defences = [replace(NONE, attacks=("named+prior",)), replace(TOTAL, membership=())]
    processes = run(SETTING, defences, (0, 1), Local(), processes=2)
    assert not here
    assert processes == outcomes(SETTING, defences)


def test_an_outcome_compares_run_by_run(here: list[Here]) -> None:
    (got,) = outcomes(replace(SETTING, plan=Federation(rounds=2)), [NONE], (0, 1, 2))
    (last,) = outcomes(replace(SETTING, plan=Federation(rounds=2)), [NONE], (1, 2))
    assert last.gains["named"] == got.gains["named"][1:]
    assert got.leak("named") == gain(got.gains["named"])
    assert got.leak("named", 0.01).low < got.leak("named").low
    assert got.gains["prior"] == [0.0, 0.0, 0.0]
    mean = sum(rate.rate for rate in got.success["named"].values()) / 2
    assert got.overall["named"].rate == pytest.approx(mean)
    number, best = got.best("named")
    assert best.rate == max(rate.rate for rate in got.success["named"].values())
    assert got.success["named"][number] == best
    assert list(got.success["named"]) == list(got.accuracy) == [1, 2]


def test_controls_are_mounted_on_the_first_round_only(here: list[Here]) -> None:
    """They say whether an attack works at all, beside the defence's own attacks, and change nothing of those."""
    setting = replace(SETTING, plan=Federation(rounds=2))
    (got,) = outcomes(setting, [replace(NONE, control=("algorithm2-loss",))])
    (without,) = outcomes(setting, [NONE])
    assert list(got.success["algorithm2-loss"]) == [1]
    assert got.overall["algorithm2-loss"].rate == got.success["algorithm2-loss"][1].rate
    assert got.overall["named"] == without.overall["named"]
    assert got.overall["named+prior"] == without.overall["named+prior"]


def test_membership_is_asked_of_the_last_round(here: list[Here]) -> None:
    one, two = outcomes(SETTING, [TOTAL, NONE])
    assert set(one.membership) == {"loss"}
    assert two.membership == {}
    found = one.membership["loss"]
    assert found.leak.rate == pytest.approx(found.auc.rate - found.prior.rate)
    assert 0 <= found.caught.rate <= 1


def test_too_few_records_to_withhold_are_refused(here: list[Here]) -> None:
    setting = replace(SETTING, split=Iid(clients=300))
    with pytest.raises(SpecError, match=r"task.split: c\d+ has \d records, too few .* use fewer clients, or set"):
        outcomes(setting, [NONE])


def test_bytes_are_those_that_a_client_sends(here: list[Here]) -> None:
    """Four bytes a parameter and a header; nothing of the audit is counted."""
    (got,) = outcomes(SETTING, [NONE])
    size = 64 * 16 + 16 + 16 * 10 + 10
    assert 4 * size < got.bytes_per_client < 4 * size + 1000
