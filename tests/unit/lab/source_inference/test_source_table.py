"""Source inference by defence: what counts, what is scored, and in what words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from croupier.audit.notes import notes
from croupier.audit.questions.source import ATTACKS, MEMBERSHIP
from croupier.core.intervals import Rate, gain, over_runs
from croupier.systems import naive, plain, total
from croupier_lab.source_inference.experiment import Defence
from croupier_lab.source_inference.outcome import MembershipOutcome, SourceOutcome
from croupier_lab.source_inference.table import controlled, rows, verdict

CLIENTS = 4
PRIOR = [0.30, 0.31, 0.32, 0.33]


def defences(cohort: int) -> list[Defence]:
    """What tables compare."""
    shuffles = [
        Defence(f"{grain} shuffle", naive(grain), ATTACKS[grain], MEMBERSHIP[grain])
        for grain in ("model", "layer", "parameter")
    ]
    none = Defence("none", plain("uniform"), ATTACKS["named"], MEMBERSHIP["named"])
    return [none, *shuffles, Defence("sum only", total(cohort), ATTACKS["sum"])]


def outcome(runs: Mapping[str, Sequence[float]], name: str = "none") -> SourceOutcome:
    """What a defence came to in four runs, attack by attack; the prior is always there."""
    every = {"prior": PRIOR, **runs}
    overall = {attack: over_runs(rates) for attack, rates in every.items()}
    gains = {attack: [a - b for a, b in zip(rates, PRIOR, strict=True)] for attack, rates in every.items()}
    flat = Rate(0.5, 0.4, 0.6)
    members = {attack: MembershipOutcome(flat, flat, flat, flat) for attack in MEMBERSHIP["named"]}
    success = {attack: {1: rate} for attack, rate in overall.items()}
    return SourceOutcome(name, 1 / CLIENTS, (5, 5), {1: flat}, 100.0, success, overall, gains, members)


BOTH = ["named", "named+prior"]


def test_a_leak_is_said_with_its_numbers() -> None:
    got = verdict(
        outcome({"named": [0.5, 0.51, 0.53, 0.52], "named+prior": [0.6, 0.61, 0.63, 0.62]}), BOTH, "named+prior"
    )
    assert got["leaks"] == "yes"
    assert got["sentence"].startswith(
        "Leaks whose record it is: an attack names the right client for 61.5% of the records, the same adversary "
        "without a view for 31.5%. The view adds +30.0 points ("
    )


def test_no_leak_found_says_what_could_have_gone_unseen() -> None:
    found = outcome({"named": [0.1, 0.5, 0.2, 0.4], "named+prior": [0.25, 0.36, 0.33, 0.30]})
    got = verdict(found, BOTH, "named+prior")
    assert got["leaks"] == "unclear"
    high = max(found.leak("named").high, found.leak("named+prior").high)
    assert got["sentence"].startswith("Cannot tell: the best of these attacks changes the adversary's success by ")
    assert got["sentence"].endswith(f"They may gain up to {100 * high:.1f} points; other attacks may gain more.")


def test_nothing_scored_is_not_judged() -> None:
    got = verdict(outcome({"named": [0.9, 0.91, 0.92, 0.93]}), [], "named")
    assert got == {
        "leaks": "unclear", "sentence": "Not judged: no attack on it passed its control on undefended updates.",
    }  # fmt: skip


def test_attacks_that_were_not_run_are_not_said_to_have_failed() -> None:
    none = replace(outcome({}), unsuited={"named": "why", "named+prior": "why"})
    assert verdict(none, [], "named+prior")["sentence"] == "Not judged: its attacks were not run: why."
    some = replace(outcome({"named": BAD}), unsuited={"named+prior": "why"})
    assert "no attack on it passed its control" in verdict(some, [], "named+prior")["sentence"]


def test_an_attack_that_is_worse_than_the_prior_is_no_leak() -> None:
    got = verdict(outcome({"named": [0.01, 0.02, 0.03, 0.04]}), ["named"], "named+prior")
    assert got["leaks"] == "unclear"
    assert "gain up to 0.0 points" in got["sentence"]
    assert "95\u00a0%" in got["sentence"]


def test_too_few_runs_are_not_judged() -> None:
    found = replace(outcome({"named": [0.9, 0.91, 0.92, 0.93]}), gains={"named": [0.5, 0.5, 0.5]})
    assert verdict(found, ["named"], "named")["sentence"] == "Not judged: 3 runs are too few; ask for 4 or more."


def between(low: float, high: float) -> list[float]:
    """Four gains whose interval is above zero at a doubt of `high`, but not at `low`."""
    for step in range(1, 4000):
        gains = [step / 10000 + spread for spread in (-0.02, -0.003, 0.003, 0.02)]
        if gain(gains, high).low > 0 >= gain(gains, low).low:
            return gains
    raise AssertionError("there are none")


def test_one_level_everywhere_of_one_attack_or_of_all_others_together() -> None:
    """The one named in advance is judged by its own 95 % interval, the others by 95 % for all of them together."""
    edge = [prior + more for prior, more in zip(PRIOR, between(0.025, 0.05), strict=True)]
    nothing = [0.25, 0.36, 0.33, 0.30]
    got = verdict(outcome({"named": nothing, "named+prior": edge}), BOTH, "named+prior")
    assert got["leaks"] == "yes"
    assert re.search(r"95\u00a0%\)", got["sentence"])
    # The same numbers, but found by one of two others: not enough, for each has half the doubt.
    three = ["named", "tuned", "named+prior"]
    one = outcome({"named": edge, "tuned": nothing, "named+prior": nothing})
    assert verdict(one, three, "named+prior")["leaks"] == "unclear"
    clear = [prior + more for prior, more in zip(PRIOR, between(0.0125, 0.025), strict=True)]
    two = outcome({"named": clear, "tuned": nothing, "named+prior": nothing})
    found = verdict(two, three, "named+prior")
    assert found["leaks"] == "yes"
    assert "95\u00a0% for 2 attacks together" in found["sentence"]


def test_no_interval_of_another_level_is_shown() -> None:
    every = json.dumps(rows(compared(), outcomes({}))) + " ".join(notes(40))
    assert not re.search(r"9[0-46-9](\.\d+)?[\s\u00a0]*%", every.replace("99 of", ""))


NAMES = ("none", "model shuffle")
GOOD, BAD = [0.60, 0.61, 0.63, 0.62], [0.25, 0.26, 0.24, 0.26]
EVERY = ("named", "named+prior", "algorithm2", "algorithm2-loss", "algorithm2-matched", "algorithm2+prior")


def outcomes(control: Mapping[str, Sequence[float]]) -> list[SourceOutcome]:
    """Undefended and model-shuffled; all attacks do well on the second, and on the first unless said otherwise."""
    good = dict.fromkeys(EVERY, GOOD)
    return [outcome({**good, **control}, NAMES[0]), outcome(good, NAMES[1])]


def compared() -> list[Defence]:
    return [defence for defence in defences(CLIENTS) if defence.name in NAMES]


def test_an_attack_that_fails_its_control_is_not_scored() -> None:
    """Its interval on undefended updates reaches down to 1/n: then what it says of a defence says nothing."""
    found = rows(compared(), outcomes({"algorithm2": BAD, "algorithm2+prior": BAD}))
    attacks = found[1]["attacks"]
    assert {name for name, attack in attacks.items() if not attack["scored"]} == {"algorithm2", "algorithm2+prior"}
    for name in ("algorithm2", "algorithm2+prior"):
        assert attacks[name]["control"]["passed"] is False
        assert attacks[name]["control"]["low"] <= attacks[name]["chance"]
        assert attacks[name]["rate"] == pytest.approx(sum(GOOD) / 4)
    assert attacks["prior"]["scored"] is True
    # The others did pass, and convict.
    assert found[1]["verdict"]["leaks"] == "yes"


def test_a_verdict_hears_only_attacks_that_passed() -> None:
    found = rows(compared(), outcomes({name: BAD for name in EVERY if name.startswith("algorithm2")}))
    assert found[1]["verdict"]["sentence"].startswith("Not judged")
    assert found[0]["verdict"]["leaks"] == "yes"


def test_the_control_mounts_every_attack_on_undefended_updates_once() -> None:
    every = defences(CLIENTS)
    first, *others = controlled(every)
    assert others == list(every[1:])
    assert first.attacks == every[0].attacks
    mounted = (*first.attacks, *first.control)
    assert len(mounted) == len(set(mounted))
    assert set(mounted) == {name for defence in every for name in defence.attacks}


def test_a_finer_shuffle_that_leaks_accuses_the_coarser_ones() -> None:
    """A server can shuffle what it sees: its view tells at least as much as a finer one."""
    compared = [
        Defence(name, plain("uniform"), ("named", "named+prior"), ())
        for name in ("none", "model shuffle", "layer shuffle", "parameter shuffle", "sum only")
    ]
    nothing, much = [0.25, 0.36, 0.33, 0.30], [0.6, 0.61, 0.63, 0.62]
    outcomes = [
        outcome(dict.fromkeys(BOTH, much if one.name in ("none", "layer shuffle") else nothing), one.name)
        for one in compared
    ]
    got = {row["defence"]: row["verdict"] for row in rows(compared, outcomes)}
    assert [got[one.name]["leaks"] for one in compared] == ["yes", "yes", "yes", "unclear", "unclear"]
    assert got["model shuffle"]["sentence"].startswith("Leaks, because 'shuffle-layer' does: ")
    assert "By itself: Cannot tell" in got["model shuffle"]["sentence"]
