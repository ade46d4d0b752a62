"""An audit from a description to a report: what is compared, what is asked, and of which adversaries."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from croupier.audit import questions as _questions  # noqa: F401 - they are known once they are loaded
from croupier.audit import whose
from croupier.audit.adversary import adversaries, parse
from croupier.audit.bench import Watch, is_undefended
from croupier.audit.distort import CLEAN, Distortion
from croupier.audit.experiment import Defence
from croupier.audit.harness import Answers, part, run
from croupier.audit.outcome import Run, outcome
from croupier.audit.question import SERVER, Adversary, Arm, Question
from croupier.audit.questions.source import ATTACKS, MEMBERSHIP
from croupier.audit.report.result import Report
from croupier.audit.score import LEVEL, over_runs, smooth
from croupier.audit.seen import shows
from croupier.audit.setting import FAST, FULL, Setting
from croupier.audit.verdict import asked, judged
from croupier.core.coins import Coins
from croupier.core.part import Part
from croupier.core.revive import revived
from croupier.errors import SpecError, nearest, option
from croupier.federation import check
from croupier.learn.assemble import Assembled, assemble
from croupier.learn.data import folder_of
from croupier.learn.own import records
from croupier.learn.root import Root
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.release.rows import Rows
from croupier.runtime.kept import Kept, deciding
from croupier.runtime.local import Local
from croupier.spec import Sets, Source, Spec, counted, load, presets
from croupier.statement import Statement, explain
from croupier.systems import intra, naive, plain, rain, sum_servers, tazza, total

SCHEMA = 2
# In the order in which a reader wants them.
ORDER = (
    "source", "membership", "reconstruction", "linkage", "traits", "separation", "permutation", "poisoning", "carries",
)  # fmt: skip
# What a protocol is compared with where nothing else is named.
AGAINST = ("none", "shuffle-model", "shuffle-layer", "shuffle-parameter", "rns-servers", "intra", "rain", "tazza")
# The labels of coins that these had before they had keys.
_NODES = {
    "shuffle-model": "model shuffle", "shuffle-layer": "layer shuffle", "shuffle-parameter": "parameter shuffle",
    "sum": "sum only",
}  # fmt: skip
_TITLES = {
    "none": "no defence: the server sees every update", "shuffle-model": "whole models shuffled",
    "shuffle-layer": "layers shuffled", "shuffle-parameter": "single parameters shuffled", "sum": "the sum only",
    "rns-servers": "the sum only, by servers of which one must be honest (RNS)",
    "intra": "noise by tiers, shuffled in buckets (IntraShuffler)",
    "rain": "noised signs on two servers (RAIN)", "tazza": "weights permuted, grouped in clusters (Tazza)",
    "noise": "your noise, nothing shuffled",
}  # fmt: skip
RUNS, FAST_RUNS = 20, 8
FAST_ROUNDS = 2


def setting_of(spec: Spec, folder: Path | None = None) -> Setting:
    """What a description says about learning."""
    task = spec.task
    return Setting(
        task.data, task.split, task.model, task.fit, spec.federation, task.augment,
        together=task.together, root=task.root, folder=folder, device=spec.run.device,
        workers=spec.run.workers or os.cpu_count() or 1, loss=task.loss, opaque=task.opaque,
    )  # fmt: skip


def audit(
    source: Source = "digits-small",
    *,
    questions: Sequence[str] = (),
    adversary: Sequence[str] = (),
    against: Sequence[str] | None = None,
    sets: Sets = (),
    seeds: int | None = None,
    seed: int = 0,
    fast: bool = False,
    shadow: float = 0.05,
    noise: Distortion | str | Mapping[str, Any] = CLEAN,
    lpips: str = "",
    data: str | Path | None = None,
    watch: Watch = lambda _: None,
    kept: Kept | None = None,
) -> Report:
    """Attack what the parties of a protocol really see, beside what they could have guessed without looking.

    source: what `croupier.run` takes: a preset's name, a TOML file, a table or a `Spec`. Its protocol is audited.
    questions: names of those to ask; all that make sense when not said.
    adversary: who is curious, as "server" or "server+relay"; every single party, and the coalition that the protocol
        forbids, when not said. Other protocols are attacked by their server.
    against: protocols to compare with: names, presets or TOML files; "nothing" for no defence alone. The usual ones
        when not said.
    sets: keys of the description to change, as `{"federation.rounds": 2}` or `["federation.rounds=2"]`.
    seeds: how many independent runs intervals are over, 2 or more; 4 for a verdict.
    seed: the first run's; the others count on from it.
    fast: fewer runs and rounds.
    shadow: the share of each client's records that the adversary holds, and nobody trains on.
    noise: for pictures, how its records are off: clean, rotate, mirror or colour, or a table with fields.
    lpips: for pictures, measure LPIPS, too, by this network.
    data: the data folder; CROUPIER_DATA does the same.
    watch: called with a line now and then, as runs end.
    kept: where finished parts go; what is there is not done again.

    Raises: SpecError, DataError; StoreError where parts cannot be kept.
    """
    runs = seeds if seeds is not None else FAST_RUNS if fast else RUNS
    _check(runs, shadow)
    spec = load(source, sets, count=counted(data))
    tried = FAST if fast else FULL
    depth = replace(tried, lpips=lpips, rounds=min(tried.rounds, spec.federation.rounds))
    if fast:
        spec = quicker(spec, sets)
    setting = replace(
        setting_of(spec, folder_of(data)), shadow=shadow, noise=Distortion.parse(noise, "noise"), depth=depth
    )
    chosen = [Question.parse(name, "question") for name in _asked(questions)]
    made = _assembled(setting, seed)
    clients = len(made.task.enrolled)
    arms, left = arms_of(spec, setting, clients, AGAINST if against is None else against, made, data)
    who: dict[str, tuple[Adversary, ...]] = {arm.key: (SERVER,) for arm in arms}
    own = arms[0]
    who[own.key] = tuple(parse(one, own.pipeline) for one in adversary) or adversaries(own.pipeline)
    numbers = range(seed, seed + runs)
    shelf = Kept() if kept is None else kept
    parts = [part(number, arm) for number in numbers for arm in arms]
    about = _deciding(spec, setting, made, seed, arms, who, chosen)
    shelf.begin(spec.name, about, parts, "parts")
    answers = run(setting, arms, who, chosen, numbers, Local(), watch, shelf)
    return Report(_found(spec, setting, made, numbers, arms, who, chosen, answers, left))


def _check(seeds: int, shadow: float) -> None:
    if not 0 < shadow < 0.5:
        held = "a share above 0 and below 0.5 of each client's records is withheld"
        raise SpecError(f"{option('shadow')} = {shadow}: {held}")
    if seeds < 2:
        raise SpecError(f"{option('seeds')} = {seeds}: intervals are over runs; ask for at least 2")


def _asked(names: Sequence[str]) -> list[str]:
    known = [name for name in ORDER if name in Question.choices()]
    for name in names:
        if name not in known:
            raise SpecError(f"{option('question', 'questions')} = {name!r}: there is none; {nearest(name, known)}")
    return [name for name in known if not names or name in names]


def quicker(spec: Spec, sets: Sets) -> Spec:
    """What --fast changes in a description: fewer rounds, unless their number was said."""
    said = any(str(one).startswith("federation.rounds") for one in sets)
    rounds = spec.federation.rounds if said else min(FAST_ROUNDS, spec.federation.rounds)
    return spec.model_copy(update={"federation": spec.federation.model_copy(update={"rounds": rounds})})


def _assembled(setting: Setting, seed: int) -> Assembled:
    """The task; data that cannot be had are refused here, before anything is begun."""
    return assemble(
        setting.data, setting.split, setting.model, setting.fit, Coins.from_seed(seed), augment=setting.augment,
        root=setting.root, folder=setting.folder, device=setting.device, loss=setting.loss, opaque=setting.opaque,
    )  # fmt: skip


def arms_of(
    spec: Spec, setting: Setting, clients: int, against: Sequence[str], made: Assembled, data: str | Path | None
) -> tuple[list[Arm], dict[str, str]]:
    """The description's own protocol first, then no defence, then others; and why some do not fit the task."""
    cohort, own = spec.federation.cohort or clients, spec.protocol
    chosen = [name for name in against if name != "nothing"]
    names = ["none", *(["noise"] if own.privacy.use != "none" else []), *chosen]
    arms, left = list[Arm](), dict[str, str]()
    check(own, clients, setting.plan, made.task.offers)
    for name in dict.fromkeys(names):
        make = _named(name, own, cohort, spec, data)
        try:
            pipeline = Pipeline.parse(make().plain())
            lacks = "root" in pipeline.aggregate.asks and not spec.task.root.records
            changes: tuple[tuple[str, Part], ...] = (("root", Root(records=100)),) if lacks else ()
            # A server that compares needs records of its own, which are then kept back from everybody.
            offers = made.task.offers | ({"root", "forward"} if changes else frozenset())
            check(pipeline, clients, setting.plan, offers)
        except SpecError as error:
            left[name] = str(error)
            continue
        node = _NODES.get(name, name)
        arms.append(Arm(name, _TITLES.get(name, name), pipeline, changes, node))
    # A protocol that is one of them goes by its own name, and has the same coins.
    twin = next((arm for arm in arms if arm.pipeline == own and not arm.changes), None)
    mine = Arm(spec.name, f"your protocol: {spec.name}", own, node=twin.node if twin else spec.name, own=True)
    return [mine, *(arm for arm in arms if arm is not twin and arm.key != mine.key)], left


def _named(
    name: str, own: Pipeline, cohort: int, spec: Spec, data: str | Path | None
) -> Callable[[], Pipeline]:  # fmt: skip
    """What makes a protocol that goes by that name. Raises: SpecError when none does."""
    known: dict[str, Callable[[], Pipeline]] = {
        "none": lambda: plain("uniform"), "shuffle-model": lambda: naive("model"),
        "shuffle-layer": lambda: naive("layer"), "shuffle-parameter": lambda: naive("parameter"),
        "sum": lambda: total(cohort), "rns-servers": lambda: sum_servers(cohort), "rain": rain, "tazza": tazza,
        "intra": lambda: intra(smallest=min(8, max(2, cohort // 2))),
        "noise": lambda: own.model_copy(update={"release": Rows(), "place": Direct()}),
    }  # fmt: skip
    if name in known:
        return known[name]
    if name in presets() or name.endswith(".toml"):
        count = counted(data)
        other = load(name, count=count).protocol.plain()
        return lambda: load(spec.plain() | {"protocol": other}, count=count).protocol
    every = list(dict.fromkeys([*known, *presets()]))
    raise SpecError(f"{option('against')} = {name!r}: no protocol has that name; {nearest(name, every)}")


def _deciding(
    spec: Spec, setting: Setting, made: Assembled, seed: int, arms: Sequence[Arm],
    who: Mapping[str, Sequence[Adversary]], chosen: Sequence[Question],
) -> dict[str, Any]:  # fmt: skip
    """All that decides a part's result."""
    described = spec.plain()
    more = {
        "arms": {arm.key: arm.pipeline.plain() for arm in arms}, "own": records(spec), "shadow": setting.shadow,
        "who": {key: [one.key for one in each] for key, each in who.items()}, "noise": setting.noise.plain(),
        "questions": [one.plain() for one in chosen], "device": setting.device, "depth": asdict(setting.depth),
    }  # fmt: skip
    about = {key: described[key] for key in ("task", "federation", "protocol")}
    return deciding(about, made.dataset.digest, made.task.first.vector, seed, **more)


def _found(
    spec: Spec, setting: Setting, made: Assembled, seeds: Sequence[int], arms: Sequence[Arm],
    who: Mapping[str, Sequence[Adversary]], chosen: Sequence[Question], answers: Mapping[str, Sequence[Answers]],
    left: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """The whole report as plain values."""
    described, clients = spec.plain(), len(made.task.enrolled)
    bare = next((arm for arm in arms if is_undefended(arm)), None)
    control = answers[bare.key] if bare else []
    rows = [_row(arm, who[arm.key], chosen, answers[arm.key], control, spec, clients) for arm in arms]
    _pass_on(rows)
    _add_source(rows, arms, answers)
    return {
        "kind": "croupier audit", "schema": SCHEMA, "name": _name(spec),
        **{key: described[key] for key in ("task", "federation", "protocol")},
        "clients": clients, "cohort": spec.federation.cohort or clients, "rounds": setting.plan.rounds,
        "runs": len(seeds), "seeds": list(seeds), "level": LEVEL, "shadow": setting.shadow,
        "shadow_noise": setting.noise.plain(), "chance": 1 / (spec.federation.cohort or clients),
        "questions": {one.use: about(one) for one in chosen},
        "verdict": judged(rows), "rows": rows, "left_out": dict(left), "pictures": _pictures(rows),
        "threat": threat(setting.shadow), "notes": notes(len(seeds)),
    }  # fmt: skip


def about(question: Question) -> dict[str, Any]:
    return {
        "asks": question.asks, "learns": question.learns, "gains": question.gains, "unit": question.unit,
        "worst_case": question.worst,
        "attacks": dict(question.titles),
    }  # fmt: skip


def _row(
    arm: Arm, who: Sequence[Adversary], chosen: Sequence[Question], answers: Sequence[Answers],
    control: Sequence[Answers], spec: Spec, clients: int,
) -> dict[str, Any]:  # fmt: skip
    said, forbidden = _said(arm, spec), {one.key: one.forbidden for one in who}
    proved = {one.key: found.why for one in who if (found := shows(arm.pipeline, one)).kind in ("noise", "nothing")}
    costs = [one.cost for one in answers if one.cost is not None]
    numbers = [number for number in costs[0].by_round if all(number in one.by_round for one in costs)]
    measure = costs[0].measure
    interval = smooth if measure == "accuracy" else over_runs
    by_round = [{"round": at, **asdict(interval([one.by_round[at] for one in costs]))} for at in numbers]
    last = by_round[-1] if by_round else {"rate": None, "low": None, "high": None}
    return {
        "defence": arm.key, "title": arm.title, "own": arm.own, "protocol": arm.pipeline.plain(),
        "changes": {name: one.plain() for name, one in arm.changes},
        "statement": dict(said.sentences()), "must_not_collude": [list(pair) for pair in said.must_not_collude],
        "server_learns": said.learns["server"], "differential_privacy": said.differential_privacy,
        "measure": measure, measure: last["rate"], f"{measure}_low": last["low"], f"{measure}_high": last["high"],
        f"{measure}_by_round": by_round, "bytes_per_client": sum(one.bytes for one in costs) / len(costs),
        "epsilon": said.differential_privacy, "seconds_per_round": min(one.seconds for one in costs),
        "questions": {one.use: asked(one, answers, control, forbidden, proved) for one in chosen},
    }  # fmt: skip


def _said(arm: Arm, spec: Spec) -> Statement:
    return explain(arm.pipeline, rounds=spec.federation.rounds, cohorts=bool(spec.federation.cohort))


def _pass_on(rows: Sequence[dict[str, Any]]) -> None:
    """Who sees coarser shuffles could shuffle on: what a finer one leaks, they do."""
    chain = ["none", "shuffle-model", "shuffle-layer", "shuffle-parameter"]
    known = {row["defence"]: row for row in rows}
    for fine, coarse in zip(chain[::-1], chain[-2::-1], strict=False):
        if fine not in known or coarse not in known:
            continue
        for name, one in known[fine]["questions"].items():
            other = known[coarse]["questions"][name]
            if one["status"] == "leak" and one["adversary"] == "server" and other["status"] in ("none-found",):
                more = {"status": "leak", "why": f"as {fine} does: who sees these updates can shuffle them further"}
                other |= more
                other["adversaries"]["server"] |= more


def _add_source(rows: Sequence[dict[str, Any]], arms: Sequence[Arm], answers: Mapping[str, Sequence[Answers]]) -> None:
    """The server's source attacks as reports before this schema had them."""
    runs, defences = list[list[Run]](), list[Defence]()
    for arm in arms:
        kind = shows(arm.pipeline, SERVER).kind
        told = [one.trials["source"]["server"].facts for one in answers[arm.key] if _has_source(one)]
        if len(told) < 2 or kind not in ATTACKS:
            continue
        runs.append([revived(Run, one["run"]) for one in told])
        defences.append(Defence(arm.key, arm.pipeline, ATTACKS[kind], MEMBERSHIP[kind], arm.changes))
    if not runs:
        return
    found = whose.rows(defences, [outcome(one.name, each) for one, each in zip(defences, runs, strict=True)])
    by = {row["defence"]: row for row in found}
    for row in rows:
        if row["defence"] in by:
            row |= {key: by[row["defence"]][key] for key in ("attacks", "membership", "verdict")}


def _has_source(one: Answers) -> bool:
    found = one.trials.get("source", {}).get("server")
    return found is not None and "run" in found.facts


def _pictures(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Examples of what was reconstructed, by defence and adversary; a what-if's stay with it."""
    return [
        {"defence": row["defence"], "adversary": key, **one}
        for row in rows
        for question in row["questions"].values()
        for key, cell in question["adversaries"].items()
        if not cell["forbidden"]
        for one in cell["facts"].pop("pictures", ())[: None if row["own"] else 2]
    ]


def _name(spec: Spec) -> str:
    """The description's name; one's own data under a preset's name go by their own."""
    given = spec.name not in (*presets(), "run")
    return spec.name if given else str(getattr(spec.task.data, "make", spec.name))


def threat(shadow: float) -> str:
    """Who attacks, and what it knows."""
    return (
        "Adversaries are honest but curious: they follow the protocol and keep all that they see. Unless a question "
        "says otherwise, they know that the records they are asked about were trained on in the round, and hold, for "
        f"every client of the round, a shadow set of {shadow:.1%} of its records (two at least), drawn from the same "
        "distribution and not trained on. A coalition puts the views of its parties together; one that the protocol "
        "forbids is shown as a what-if and decides no verdict."
    )


def notes(runs: int) -> list[str]:
    """How the numbers are to be read."""
    return [
        f"Intervals are 95 %, over {runs} independent runs: records of one run share its models. Those of shares are "
        "Student's, widened as though two more runs had been seen, because most gains are 0 and few runs often agree "
        "by chance. How often they hold: croupier bench coverage.",
        "A verdict looks at the attack that was named in advance (the last one listed), by its 95 % interval, and at "
        "the others by intervals that hold for all of them together with 95 % (Bonferroni). How often defences that "
        "leak nothing are accused: croupier bench accuse.",
        "The prior is the best attack with the same knowledge and no view. Success above chance is not yet a leak: "
        "judge by the gain over the prior.",
        "An attack's control is what it comes to on undefended updates. One that does not work there is not scored. Of "
        "source the bar is 1/n, which is low: what shadow sets tell carries some attacks over it. Judge by the gain.",
        "Recommended is, of the protocols that leak less in what was answered of both, the one with the fewest leaks "
        "as it trains, then the smallest worst case, among those that cost at most 5 points of accuracy, if any; of "
        "several the most accurate, then the cheapest. "
        "What malicious clients break is said beside it and decides nothing.",
        "Means are over all rounds; the best round is never shown alone. Ties are broken at random.",
        "Attacks that find nothing prove nothing. What a protocol is proved to hide, croupier explain says.",
    ]
