"""An audit from a description to findings: which defences are compared, how they are judged, and in what words."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from croupier.audit import membership, source
from croupier.audit.distort import CLEAN, Distortion
from croupier.audit.experiment import Defence, Setting, Watch, run
from croupier.audit.outcome import Outcome
from croupier.audit.report.result import Reported
from croupier.audit.score import LEVEL, Rate
from croupier.errors import SpecError
from croupier.learn.data import folder_of
from croupier.runtime.local import Local
from croupier.spec import Spec, load, presets
from croupier.statement import explain
from croupier.systems import naive, plain, total

UNSHUFFLING = {
    "model": ("algorithm2", "algorithm2-loss", "algorithm2-matched", "algorithm2+prior"),
    "layer": ("algorithm3", "algorithm3-loss", "algorithm3-matched", "algorithm3+prior"),
    "parameter": ("algorithm5", "algorithm5-loss", "algorithm5-cumulative", "algorithm5+prior"),
}

# Each server could make the next one's view of its own.
COARSE_TO_FINE = ("none", "model shuffle", "layer shuffle", "parameter shuffle")
# How often a verdict may accuse a defence that leaks nothing: by the attack named in advance, and by all the others.
FIRST, OTHERS = 0.04, 0.01
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


@dataclass(frozen=True)
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
        workers=spec.run.workers or os.cpu_count() or 1,
    )  # fmt: skip


def examine(
    source: str | Path | Mapping[str, Any] | Spec = "digits-uneven",
    *,
    sets: Sequence[str] = (),
    seeds: int = 40,
    seed: int = 0,
    shadow: float = 0.05,
    noise: Distortion | str | Mapping[str, Any] = CLEAN,
    data: str | Path | None = None,
    watch: Watch = lambda _: None,
) -> Findings:
    """Audit a task under every defence: a preset's name, a TOML file, a table or a spec.

    `seeds` independent runs start at `seed`. Raises: SpecError, DataError.
    """
    if not 0 < shadow < 0.5:
        raise SpecError(f"--shadow = {shadow}: a share above 0 and below 0.5 of each client's records is withheld")
    if seeds < 2:
        raise SpecError(f"--seeds = {seeds}: intervals are over runs; ask for at least 2")
    spec = load(source, sets)
    clients = getattr(spec.task.split, "clients", None)
    if clients is None:
        raise SpecError(f"task.split = {spec.task.split.use!r}: set task.split.clients, so that 1/n is known")
    setting = replace(setting_of(spec, folder_of(data)), shadow=shadow, noise=Distortion.parse(noise, "noise"))
    numbers = range(seed, seed + seeds)
    compared = defences(spec.federation.cohort or clients)
    outcomes = run(setting, controlled(compared), numbers, Local(), watch)
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
        f"Intervals are 95 %, Student's t over {runs} independent runs: records of one run share its models.",
        "A verdict looks at all attacks on a defence: at the one that joins prior and view, named in advance, with a "
        "96 % interval, and at the others with intervals that hold together with 99 %. A defence that leaks nothing is "
        "accused by its own attacks in about 2.5 % of audits where gains are near normal, and in 10 % at most counting "
        "what it takes over from finer shuffles.",
        "An attack's control is its success on the first round of undefended updates, which must lie above 1/n. That "
        "bar is low: what shadow sets tell carries some attacks over it. Judge by the leak.",
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
        "accuracy": last.rate,
        "accuracy_low": last.low,
        "accuracy_high": last.high,
        "accuracy_by_round": _by_round(outcome.accuracy),
        "bytes_per_client": outcome.bytes_per_client,
        "attacks": attacks,
        "membership": {name: _member(name, outcome) for name in defence.membership},
        "verdict": verdict(outcome, [name for name in defence.attacks if attacks[name]["scored"]], defence.attacks[-1]),
    }


def _attack(name: str, outcome: Outcome, control: Outcome, comparisons: int) -> dict[str, Any]:
    proof = control.overall.get(name, outcome.overall[name])
    passed = name == "prior" or proof.low > control.chance
    number, best = outcome.best(name)
    return {
        "title": source.TITLES[name],
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
        return {"leaks": "unclear", "sentence": "Not judged: no attack on it passed its control on undefended updates."}
    if len(outcome.gains[scored[0]]) < LEAST_RUNS:
        said = f"Not judged: {len(outcome.gains[scored[0]])} runs are too few; ask for {LEAST_RUNS} or more."
        return {"leaks": "unclear", "sentence": said}
    share = OTHERS / max(1, len([name for name in scored if name != first]))
    leaks = {name: outcome.leak(name, FIRST if name == first else share) for name in scored}

    def points(name: str) -> str:
        leak, level = leaks[name], 100 * (1 - (FIRST if name == first else share))
        return f"{100 * leak.rate:+.1f} points ({100 * leak.low:+.1f} to {100 * leak.high:+.1f}, {level:.3g}\u00a0%)"

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
