"""An audit from a description to findings: which defences are compared, how they are judged, and in what words."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from croupier.audit import membership, source
from croupier.audit.distort import CLEAN, Distortion
from croupier.audit.experiment import Defence, Setting, Watch, part, run
from croupier.audit.outcome import Outcome
from croupier.audit.report.result import Reported
from croupier.audit.score import LEVEL, Rate
from croupier.core.coins import Coins
from croupier.errors import SpecError, option
from croupier.learn.assemble import assemble
from croupier.learn.data import folder_of
from croupier.learn.own import records
from croupier.runtime.kept import Kept, deciding
from croupier.runtime.local import Local
from croupier.spec import Sets, Source, Spec, clients_of, counted, load, presets
from croupier.statement import explain
from croupier.systems import naive, plain, total

UNSHUFFLING = {
    "model": ("algorithm2", "algorithm2-loss", "algorithm2-matched", "algorithm2+prior"),
    "layer": ("algorithm3", "algorithm3-loss", "algorithm3-matched", "algorithm3+prior"),
    "parameter": ("algorithm5", "algorithm5-loss", "algorithm5-cumulative", "algorithm5+prior"),
}

# Each server could make the next one's view of its own.
COARSE_TO_FINE = ("none", "model shuffle", "layer shuffle", "parameter shuffle")
# With fewer runs an interval says next to nothing.
LEAST_RUNS = 4


def defences(cohort: int) -> tuple[Defence, ...]:
    """What is compared for that many clients a round, and the attacks that fit each server's view.

    All count clients alike, so that they learn alike and differ in nothing but what the server sees.
    """
    shuffles = [
        Defence(f"{grain} shuffle", naive(grain), UNSHUFFLING[grain], _whole(grain))  # type: ignore[arg-type]
        for grain in UNSHUFFLING
    ]
    none = Defence("none", plain("uniform"), ("named", "named+prior"), _whole("model"))
    return (none, *shuffles, Defence("sum only", total(cohort), ("tuned", "tuned+prior")))


def _whole(grain: str) -> tuple[str, ...]:
    return ("loss", "rows", "lira") if grain == "model" else ("loss", "lira")


@dataclass(frozen=True, repr=False)
class Findings(Reported):
    """The result of an audit."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One for each defence."""
        rows: list[dict[str, Any]] = self.plain["rows"]
        return rows

    def page(self) -> str:
        """The report, as one HTML document that needs nothing else."""
        from croupier.audit.report.page import render

        return render(self.plain)


def setting_of(spec: Spec, folder: Path | None = None) -> Setting:
    """What a description says about learning; its protocol is not used: an audit compares protocols."""
    task = spec.task
    return Setting(
        task.data, task.split, task.model, task.fit, spec.federation, task.augment,
        together=task.together, root=task.root, folder=folder, device=spec.run.device,
        workers=spec.run.workers or os.cpu_count() or 1, loss=task.loss,
    )  # fmt: skip


def examine(
    source: Source = "digits-uneven",
    *,
    sets: Sets = (),
    seeds: int = 40,
    seed: int = 0,
    shadow: float = 0.05,
    noise: Distortion | str | Mapping[str, Any] = CLEAN,
    data: str | Path | None = None,
    watch: Watch = lambda _: None,
    kept: Kept | None = None,
) -> Findings:
    """Audit a task under every defence: whose record is it?

    source: what `croupier.run` takes: a preset's name, a TOML file, a table or a `Spec`.
    sets: keys of the description to change, as `{"federation.rounds": 2}` or `["federation.rounds=2"]`.
    seeds: how many independent runs intervals are over, 2 or more.
    seed: the first run's; the others count on from it.
    shadow: the share of each client's records that the adversary holds, and nobody trains on.
    noise: for pictures, how its records are off: clean, rotate, mirror or colour, or a table with fields.
    data: the data folder; CROUPIER_DATA does the same.
    watch: called with a line now and then, as runs end.
    kept: where finished seeds go; what is there is not done again.

    Raises: SpecError, DataError; StoreError where seeds cannot be kept.
    """
    if not 0 < shadow < 0.5:
        held = "a share above 0 and below 0.5 of each client's records is withheld"
        raise SpecError(f"{option('shadow')} = {shadow}: {held}")
    if seeds < 2:
        raise SpecError(f"{option('seeds')} = {seeds}: intervals are over runs; ask for at least 2")
    spec = load(source, sets, count=counted(data))
    clients = clients_of(spec.task, data)
    setting = replace(setting_of(spec, folder_of(data)), shadow=shadow, noise=Distortion.parse(noise, "noise"))
    numbers = range(seed, seed + seeds)
    compared = defences(spec.federation.cohort or clients)
    shelf = Kept() if kept is None else kept
    shelf.begin(f"{spec.name}-source", _deciding(spec, setting, seed), [part(number) for number in numbers], "seeds")
    outcomes = run(setting, controlled(compared), numbers, Local(), watch, kept=shelf)
    return Findings(
        {
            "kind": "croupier audit",
            "name": _name(spec),
            "task": spec.plain()["task"],
            "federation": spec.plain()["federation"],
            "clients": clients,
            "cohort": spec.federation.cohort or clients,
            "rounds": spec.federation.rounds,
            "runs": seeds,
            "seeds": list(numbers),
            "shadow": shadow,
            "shadow_noise": setting.noise.plain(),
            "records_per_client": _span(outcomes[0].asked),
            "chance": outcomes[0].chance,
            "threat": threat(shadow),
            "notes": notes(seeds),
            "rows": rows(compared, outcomes),
        }
    )


def _deciding(spec: Spec, setting: Setting, seed: int) -> dict[str, Any]:
    """All that decides a seed's result; data that cannot be had are refused here, before anything is begun."""
    made = assemble(
        setting.data, setting.split, setting.model, setting.fit, Coins.from_seed(seed), augment=setting.augment,
        root=setting.root, folder=setting.folder, device=setting.device,
    )  # fmt: skip
    plain = spec.plain()
    described = {"kind": "source", "task": plain["task"], "federation": plain["federation"], "device": setting.device}
    more = {"shadow": setting.shadow, "noise": setting.noise.plain(), "own": records(spec)}
    return deciding(described, made.dataset.digest, made.task.first.vector, seed, **more)


def _name(spec: Spec) -> str:
    """The description's name; one's own data under a preset's name go by their own."""
    given = spec.name not in (*presets(), "run")
    return spec.name if given else str(getattr(spec.task.data, "make", spec.name))


def threat(shadow: float) -> str:
    """Who attacks, and what it knows."""
    return (
        "The server is honest but curious: it follows the protocol and keeps all that it sees. It knows that the "
        "records it is asked about were trained on in the round, and it holds, for every client of the round, a shadow "
        f"set of {shadow:.1%} of the client's records (two at least), drawn from the same distribution and not trained "
        "on. It looks at one round at a time, and does not collude with the relay."
    )


def notes(runs: int) -> list[str]:
    """How the numbers are to be read."""
    return [
        f"Intervals are 95 %, over {runs} independent runs: records of one run share its models. They are Student's, "
        "widened as though two more runs had been seen, because most gains are 0 and few runs often agree by chance; "
        "accuracies vary smoothly, and theirs are not widened. How often they hold: croupier bench coverage.",
        "A verdict looks at the attack that joins prior and view, named in advance, by its 95 % interval, and at the "
        "others by intervals that hold for all of them together with 95 % (Bonferroni). An accusation needs an "
        "interval above zero, which is half of its doubt: 2.5 % from each of the two. How often defences that leak "
        "nothing are accused: croupier bench accuse.",
        "An attack's control is its success on the first round of undefended updates, which must lie above 1/n. That "
        "bar is low: what shadow sets tell carries some attacks over it. Judge by the leak.",
        "The prior is the best of several view-free attacks (labels; learners on the records of the shadow sets, alone "
        "and weighed with labels), chosen on left-out shadow records, never on records asked about. Attacks that join "
        "prior and view join this one.",
        "The best round stands beside the mean over rounds; alone it would overstate.",
        "Ties are broken at random.",
        "Attacks that find nothing prove nothing: for what a protocol is proved to hide, ask croupier explain.",
    ]


def controlled(compared: Sequence[Defence]) -> list[Defence]:
    """The same defences, with every attack mounted on the undefended one's first round too: its positive control.

    Attacks on counts of ones find none there: their control is that they are above 1/n where they are mounted.
    """
    first, *others = compared
    known = {*first.attacks, *source.ON_COUNTS}
    extra = [name for other in others for name in other.attacks if name not in known]
    return [replace(first, control=tuple(dict.fromkeys(extra))), *others]


def rows(compared: Sequence[Defence], outcomes: Sequence[Outcome], comparisons: int = 1) -> list[dict[str, Any]]:
    """One object for each defence. Rates are means over rounds and runs.

    `leak_together` is an interval that holds with 95 % for so many comparisons at once (Bonferroni).
    """
    control = outcomes[0]
    found = [_row(defence, outcome, control, comparisons) for defence, outcome in zip(compared, outcomes, strict=True)]
    by_name = {row["defence"]: row["verdict"] for row in found}
    for coarse, fine in reversed(list(pairwise(COARSE_TO_FINE))):
        if coarse in by_name and by_name.get(fine, {}).get("leaks") == "yes" and by_name[coarse]["leaks"] != "yes":
            by_name[coarse] |= {
                "leaks": "yes",
                "sentence": f"Leaks, because {fine!r} does: who sees these updates can shuffle them further and attack "
                f"that. By itself: {by_name[coarse]['sentence']}",
            }
    return found


def _row(defence: Defence, outcome: Outcome, control: Outcome, comparisons: int) -> dict[str, Any]:
    attacks = {name: _attack(name, outcome, control, comparisons) for name in ("prior", *defence.attacks)}
    last = outcome.accuracy[max(outcome.accuracy)]
    return {
        "defence": defence.name,
        "server_learns": explain(defence.pipeline).learns["server"],
        "changes": {name: part.plain() for name, part in defence.changes},
        outcome.measure: last.rate,
        f"{outcome.measure}_low": last.low,
        f"{outcome.measure}_high": last.high,
        f"{outcome.measure}_by_round": _by_round(outcome.accuracy),
        "bytes_per_client": outcome.bytes_per_client,
        "attacks": attacks,
        "membership": {name: _member(name, outcome) for name in defence.membership},
        "verdict": verdict(outcome, [name for name in defence.attacks if attacks[name]["scored"]], defence.attacks[-1]),
    }


def _attack(name: str, outcome: Outcome, control: Outcome, comparisons: int) -> dict[str, Any]:
    if name in outcome.unsuited:
        return {"title": source.TITLES[name], "not_run": outcome.unsuited[name], "scored": False}
    proof = control.overall.get(name, outcome.overall[name])
    passed = name == "prior" or proof.low > control.chance
    number, best = outcome.best(name)
    return {
        "title": source.TITLES[name],
        **({"carried": carried(outcome.carried)} if name == "prior" else {}),
        **asdict(outcome.overall[name]),
        "prior": outcome.overall["prior"].rate,
        "chance": outcome.chance,
        "leak": asdict(outcome.leak(name)),
        "leak_together": asdict(outcome.leak(name, (1 - LEVEL) / comparisons)),
        "best_round": {"round": number, **asdict(best)},
        "by_round": _by_round(outcome.success[name]),
        "control": {**asdict(proof), "passed": passed},
        "scored": passed,
    }


def carried(runs: Sequence[str]) -> str:
    """What the prior was made of, the commonest first; how often, where runs differ."""
    found = Counter(runs).most_common()
    return "; ".join(said if len(found) == 1 else f"{said} ({many} of {len(runs)} runs)" for said, many in found)


def _by_round(rates: Mapping[int, Rate]) -> list[dict[str, Any]]:
    return [{"round": number, **asdict(rate)} for number, rate in rates.items()]


def _member(name: str, outcome: Outcome) -> dict[str, Any]:
    found = outcome.membership[name]
    return {
        "title": membership.TITLES[name],
        **asdict(found.auc),
        "prior": found.prior.rate,
        "chance": 0.5,
        "leak": asdict(found.leak),
        "tpr_at_1_percent_fpr": asdict(found.caught),
    }


def verdict(outcome: Outcome, scored: Sequence[str], first: str) -> dict[str, str]:
    """What the attacks that passed their control found, in a sentence; `first` is the one named in advance."""
    if not scored:
        why = "no attack on it passed its control on undefended updates"
        if set(outcome.gains) <= {"prior"} and first in outcome.unsuited:
            why = f"its attacks were not run: {outcome.unsuited[first]}"
        return {"leaks": "unclear", "sentence": f"Not judged: {why}."}
    if len(outcome.gains[scored[0]]) < LEAST_RUNS:
        said = f"Not judged: {len(outcome.gains[scored[0]])} runs are too few; ask for {LEAST_RUNS} or more."
        return {"leaks": "unclear", "sentence": said}
    others = max(1, len([name for name in scored if name != first]))
    leaks = {name: outcome.leak(name, (1 - LEVEL) / (1 if name == first else others)) for name in scored}

    def points(name: str) -> str:
        leak = leaks[name]
        level = f"{100 * LEVEL:.3g}\u00a0%" + (
            f" for {others} attacks together" if name != first and others > 1 else ""
        )
        return f"{100 * leak.rate:+.1f} points ({100 * leak.low:+.1f} to {100 * leak.high:+.1f}, {level})"

    surest = max(scored, key=lambda name: leaks[name].low)
    if leaks[surest].low > 0:
        rate, prior = outcome.overall[surest].rate, outcome.overall["prior"].rate
        said = (
            f"Leaks whose record it is: an attack names the right client for {rate:.1%} of the records, the same "
            f"adversary without a view for {prior:.1%}. The view adds {points(surest)}."
        )
        return {"leaks": "yes", "sentence": said}
    best = max(scored, key=lambda name: leaks[name].rate)
    most = max(0.0, *(leak.high for leak in leaks.values()))
    said = (
        f"Cannot tell: the best of these attacks changes the adversary's success by {points(best)}, against no view at "
        f"all. They may gain up to {100 * most:.1f} points; other attacks may gain more."
    )
    return {"leaks": "unclear", "sentence": said}


def _span(ends: tuple[int, int]) -> str:
    return f"{ends[0]}" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}, by run"
