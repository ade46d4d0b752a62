"""What do malicious clients break? On digits, with a plain mean, a rule that resists, and nobody malicious."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from croupier.aggregate.median import Median
from croupier.audit.attacked_training import SeededTask, with_malicious_clients
from croupier.audit.bench import Bench
from croupier.audit.blind import Panel
from croupier.audit.poison import LabelFlip, Scaling, audit_attacks
from croupier.audit.question import MALICIOUS, Arm, QuestionRun
from croupier.audit.questions.poisoning import KEYS, Poisoning, summarise
from croupier.audit.setting import Depth, Setting
from croupier.audit.verdict import cell
from croupier.core.intervals import Rate
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.learn.datasets import Cifar10, Digits
from croupier.learn.fit import Adam
from croupier.learn.models import Mlp
from croupier.learn.root import Root
from croupier.learn.split import Iid
from croupier.systems import naive, plain, rain, tazza, total

CLIENTS = 8
SETTING = Setting(
    Digits(), Iid(clients=CLIENTS), Mlp(hidden=(32,)), Adam(lr=0.01, epochs=3, batch=16), Federation(rounds=3),
    together=1,
)  # fmt: skip
BARE = Arm("none", "none", plain("uniform"))


def bench(*arms: Arm, setting: Setting = SETTING, seed: int = 0) -> Bench:
    return Bench(setting, seed, Panel(0), Local(), arms=arms)


def trial(arm: Arm, setting: Setting = SETTING, seed: int = 0, *others: Arm) -> QuestionRun:
    """One run of the question."""
    here = bench(arm, *others, setting=setting, seed=seed)
    assert Poisoning().unfit(here, arm) == ""
    return Poisoning().play(here, arm, (MALICIOUS,))()[MALICIOUS.key]


@cache
def broken() -> Sequence[QuestionRun]:
    """Runs of the undefended arm."""
    return tuple(trial(BARE, seed=seed) for seed in range(4))


def test_backdoors_and_flipped_labels_break_a_plain_mean() -> None:
    found = cell(Poisoning(), broken(), broken())
    assert list(found["attacks"]) == list(KEYS)
    assert (found["attack"], found["status"]) == ("replacement", "leak")
    assert found["words"].startswith("a hidden trigger can be planted; of 100 records that carry it, ")
    for name in ("backdoor", "replacement"):
        assert found["attacks"][name]["gain"]["rate"] > 0.4
        assert found["attacks"][name]["scored"]
    assert found["attacks"]["label-flip"]["gain"]["rate"] > 0.02


def test_nobody_malicious_breaks_nothing() -> None:
    found = trial(BARE, replace(SETTING, share=0.0))
    assert set(found.scores) == set(KEYS)
    assert all(one.value == one.prior for one in found.scores.values())
    assert "0 of 8 clients are malicious" in summarise([found.facts] * 2)["sentences"][0]


def test_what_is_left_out_is_said_and_changes_no_other_number() -> None:
    found = trial(BARE, replace(SETTING, depth=Depth(poisons=("replacement",))))
    assert found.scores == {"replacement": broken()[0].scores["replacement"]}
    assert set(found.not_run) == {*KEYS} - {"replacement"}
    assert all("--fast" in why for why in found.not_run.values())
    said = summarise([found.facts] * 2)["sentences"]
    assert any(one.startswith("Model replacement: ") for one in said)
    assert not any(one.startswith("Label flip: ") for one in said)


def test_shuffles_and_sums_do_not_help_and_a_median_does() -> None:
    bare = broken()[0].scores
    for pipeline in (naive("parameter"), total(CLIENTS)):
        found = trial(Arm("other", "other", pipeline)).scores
        assert found["replacement"].value == pytest.approx(bare["replacement"].value, abs=0.1)
    median = plain("uniform").model_copy(update={"aggregate": Median()})
    found = trial(Arm("median", "median", median)).scores
    assert found["replacement"].value - found["replacement"].prior < 0.4


def test_arms_that_train_alike_train_once() -> None:
    shuffled = Arm("other", "other", naive("model"))
    here = bench(BARE, shuffled)
    first = Poisoning().play(here, BARE, (MALICIOUS,))()[MALICIOUS.key]
    seeded = next(one for key, one in here.kept.items() if key[0] == "attacked")
    before = {key: len(one.known) for key, one in seeded.remembered.items()}
    again = Poisoning().play(here, shuffled, (MALICIOUS,))()[MALICIOUS.key]
    assert again.scores == first.scores == broken()[0].scores
    # The mean of shuffled rows may differ in last bits, and a second round then trains anew; the first does not.
    assert all(len(one.known) < 2 * before[key] for key, one in seeded.remembered.items())


def test_malicious_clients_of_two_servers_come_through() -> None:
    """They add no noise, and the check that looks after them must not keep them from sending."""
    seeded = SeededTask(replace(SETTING, root=Root(records=100), plan=Federation(rounds=1)), 0)
    task, threat = with_malicious_clients(rain(), seeded.made.task, seeded.malicious, LabelFlip(), 10, seeded.coins)
    (done,) = rounds(rain(), task, seeded.setting.plan, seeded.coins, Local(), threat=threat)
    assert set(seeded.malicious) <= set(done.present)


def test_what_is_refused_is_said() -> None:
    told = [{**one.facts, "rows": [{**row} for row in one.facts["rows"]]} for one in broken()[:2]]
    assert not [said for said in summarise(told)["sentences"] if "refused" in said]
    for one in told:
        next(row for row in one["rows"] if row["attack"] == "backdoor")["accepted"] = 0
    assert (
        "Backdoor: 0 of 12 updates of the malicious were taken; the others were refused."
        in summarise(told)["sentences"]
    )


def test_all_arms_train_on_the_same_records() -> None:
    other = Arm("tazza", "tazza", tazza())
    here = bench(BARE, other)
    for arm in (BARE, other):
        Poisoning().unfit(here, arm)
    (seeded,) = [one for key, one in here.kept.items() if key[0] == "attacked"]
    assert seeded.setting.root == Root(records=100)


def test_the_mark_follows_the_records() -> None:
    for shape, said in (((1, 28, 28), "4 x 4 pixels"), ((9, 4), "first 4 steps"), ((64,), "every fourth feature")):
        assert said in audit_attacks(SETTING, shape)["backdoor"][1]
    attack = audit_attacks(replace(SETTING, data=Cifar10()), (3, 32, 32))["backdoor"][0]
    assert isinstance(attack, Scaling)
    assert attack.value == (1.0, 0.0, 0.0)


def test_words_say_what_a_gain_means() -> None:
    question, sure, none = Poisoning(), Rate(0.2, 0.1, 0.3), Rate(0.0, -0.1, 0.04)
    assert question.words(sure, "label-flip") == "of 100 test records, 20 more are answered wrongly"
    planted = "a hidden trigger can be planted; of 100 records that carry it, 20 more are taken for the class that the "
    planted += "attackers want"
    assert question.words(sure, "backdoor") == planted
    assert question.words(none, "backdoor") == "no damage found; if there is any, it is at most 4 of 100 records (95 %)"


def test_of_whom_it_cannot_be_asked() -> None:
    here = bench(BARE)
    assert Poisoning().unfit(here, BARE) == ""
    assert Poisoning.by == MALICIOUS
    lone = replace(SETTING, split=Iid(clients=1))
    assert "too few clients" in Poisoning().unfit(bench(BARE, setting=lone), BARE)


def test_what_has_no_classes_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Digits().load(None)
    monkeypatch.setattr(Digits, "load", lambda *_: replace(made, goal="forecast"))
    assert "measures by classes" in Poisoning().unfit(bench(BARE), BARE)


def test_records_that_are_no_quantities_cannot_be_marked() -> None:
    here = bench(BARE, setting=replace(SETTING, plan=Federation(rounds=1)))
    assert Poisoning().unfit(here, BARE) == ""
    (seeded,) = [one for key, one in here.kept.items() if key[0] == "attacked"]
    seeded.__dict__["made"] = replace(seeded.made, task=replace(seeded.made.task, answers=None))
    found = Poisoning().play(here, BARE, (MALICIOUS,))()[MALICIOUS.key]
    assert set(found.scores) == {"noise", "label-flip"}
    assert set(found.not_run.values()) == {"records that are no quantities cannot be marked"}


def test_a_table_says_what_honest_clients_receive() -> None:
    found = Poisoning().facts(broken())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    rows = {row["attack"]: row for row in found["numbers"]["rows"]}
    assert (found["numbers"]["clients"], found["numbers"]["malicious"]) == (CLIENTS, 2)
    assert rows["label flip"]["received"]["rate"] < rows["no attack"]["received"]["rate"]
    assert rows["label flip"]["success"]["rate"] is None
    (table,) = found["tables"]
    assert [row[0] for row in table["rows"]] == list(rows)
    assert all(len(row) == len(table["heads"]) for row in table["rows"])
