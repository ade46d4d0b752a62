"""An audit of a description: what is asked, of which adversaries and protocols, and the whole report.

`audit` is both `croupier.audit(...)` and the work of `croupier audit`. It reads the description, chooses arms,
adversaries and questions, lets `audit.harness` play and attack them, and makes the report from the answers
(`audit.verdict`, `audit.judgement`). Updates that were recorded elsewhere are audited by `audit.recorded.audited`
instead. `croupier audit --print-config` calls `quicker`, too, which says what `--fast` changes in a description.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from croupier.audit import questions as _questions  # noqa: F401 - they are known once they are loaded
from croupier.audit.arms import AGAINST, FEWER, arms_of
from croupier.audit.bench import Watch, is_undefended
from croupier.audit.harness import ArmAnswers, part, run
from croupier.audit.judgement import judged
from croupier.audit.notes import fewer, no_better, notes, shorter, threat
from croupier.audit.question import SERVER, Adversary, Arm, Question, adversaries, parse
from croupier.audit.report.read import KIND, SCHEMA
from croupier.audit.report.result import Report
from croupier.audit.seen import shows
from croupier.audit.setting import FAST, FULL, Setting, setting_of
from croupier.audit.verdict import LEAST_RUNS, asked, pass_on
from croupier.core.coins import Coins
from croupier.core.intervals import LEVEL, over_runs, smooth
from croupier.engine.local import Local
from croupier.engine.shelf import FolderShelf, deciding
from croupier.errors import SpecError, nearest, option
from croupier.learn.assemble import Assembled
from croupier.learn.data import folder_of
from croupier.learn.distort import CLEAN, Distortion
from croupier.learn.own import records
from croupier.spec import Source, Spec, counted, load
from croupier.statement import explain
from croupier.toml_read import Sets, called, presets

# In the order in which a reader wants them.
ORDER = (
    "source", "membership", "reconstruction", "linkage", "traits", "separation", "permutation", "poisoning", "carries",
)  # fmt: skip
# Independent runs, and with --fast runs and rounds, where the user names no numbers.
RUNS, FAST_RUNS = 20, 8
FAST_ROUNDS = 2
# With --fast, of larger data: so many records are drawn to train on, for each client and in all at least, and to test;
# so many of each client are asked about; so many models an adversary trains itself; and so malicious clients attack.
FAST_HELD, FAST_TRAINED, FAST_TESTED, FAST_ASKED, FAST_MODELS = 100, 2000, 500, 30, 4
FAST_POISONS = ("label-flip", "replacement")


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
    kept: FolderShelf | None = None,
) -> Report:
    """Attack what the parties of a protocol really see, beside what they could have guessed without looking.

    source: what `croupier.run` takes: a preset's name, a TOML file, a table or a `Spec`. Its protocol is audited.
    questions: names of those to ask; all that make sense when not said.
    adversary: who is curious, as "server" or "server+relay"; every single party, and the coalition that the protocol
        forbids, when not said. Other protocols are attacked by their server.
    against: protocols to compare with: names, presets, TOML files; "nothing" for no defence alone; else the usual ones.
    sets: keys of the description to change, as `{"federation.rounds": 2}` or `["federation.rounds=2"]`.
    seeds: how many independent runs intervals are over, 2 or more, 4 for a verdict; 20, or 8 or 4 with fast.
    seed: the first run's; the others count on from it.
    fast: fewer runs and rounds, fewer records of large data, and less that is tried.
    shadow: the share of each client's records that the adversary holds, and nobody trains on.
    noise: for pictures, how the adversary's are off: clean, rotate, mirror or colour, or a table with fields.
    lpips: for pictures, measure LPIPS, too, by this network.
    data: the data folder; CROUPIER_DATA does the same.
    watch: called with a line now and then, as runs end.
    kept: where finished parts go; what is there is not done again.

    Raises: SpecError, DataError; StoreError where parts cannot be kept.
    """
    if not 0 < shadow < 0.5:
        held = "a share above 0 and below 0.5 of each client's records is withheld"
        raise SpecError(f"{option('shadow')} = {shadow}: {held}")
    if seeds is not None and seeds < 2:
        raise SpecError(f"{option('seeds')} = {seeds}: intervals are over runs; ask for at least 2")
    spec, tried = load(source, sets, count=counted(data)), FAST if fast else FULL
    depth = replace(tried, lpips=lpips, rounds=min(tried.rounds, spec.federation.rounds))
    whole, spec = spec.federation.rounds, quicker(spec, sets) if fast else spec
    learnt, off = setting_of(spec, folder_of(data)), Distortion.parse(noise, "noise")
    chosen = [Question.parse(name, "question") for name in _asked(questions)]
    # Data that cannot be had are refused here, before anything is begun.
    setting, made, bounds, seen = _made(replace(learnt, shadow=shadow, noise=off, depth=depth), seed, fast)
    runs = seeds or (LEAST_RUNS if bounds else FAST_RUNS if fast else RUNS)
    name, usual = called(spec.name, source), FEWER if bounds else AGAINST
    arms, left = arms_of(spec, setting, against, made, data, usual, name)
    own = arms[0]
    curious = tuple(parse(one, own.pipeline) for one in adversary) or adversaries(own.pipeline)
    who = {arm.key: (SERVER,) for arm in arms} | {own.key: curious}
    said, numbers = [*shorter(whole, setting), *bounds], range(seed, seed + runs)
    one = _Audit(spec, setting, made, numbers, arms, who, chosen, said, name, seen)
    shelf = FolderShelf() if kept is None else kept
    shelf.begin(name, one.deciding(), [part(number, arm) for number in one.seeds for arm in arms], "parts")
    return Report(one.found(run(setting, arms, who, chosen, one.seeds, Local(), watch, shelf), left))


def _asked(names: Sequence[str]) -> list[str]:
    known = [name for name in ORDER if name in Question.choices()]
    for name in names:
        if name not in known:
            raise SpecError(f"{option('question', 'questions')} = {name!r}: there is none; {nearest(name, known)}")
    return [name for name in known if not names or name in names]


def _made(setting: Setting, seed: int, fast: bool) -> tuple[Setting, Assembled, list[str], dict[str, Any]]:
    """The task, and what all its data are; with --fast less is tried where they are large, and that is said."""
    made = setting.assembled(Coins.from_seed(seed))
    drawn = max(FAST_TRAINED, FAST_HELD * len(made.task.enrolled))
    if not fast or len(made.dataset.train) <= drawn:
        return setting, made, [], made.dataset.facts()
    depth = replace(setting.depth, train=drawn, test=FAST_TESTED, models=FAST_MODELS, poisons=FAST_POISONS)
    setting = replace(setting, depth=depth, records=FAST_ASKED)
    return setting, setting.assembled(Coins.from_seed(seed)), fewer(made.dataset, setting), made.dataset.facts()


def quicker(spec: Spec, sets: Sets) -> Spec:
    """What --fast changes in a description: fewer rounds, unless their number was said."""
    said = any(str(one).startswith("federation.rounds") for one in sets)
    rounds = spec.federation.rounds if said else min(FAST_ROUNDS, spec.federation.rounds)
    return spec.model_copy(update={"federation": spec.federation.model_copy(update={"rounds": rounds})})


@dataclass(frozen=True)
class _Audit:
    """One audit: what is learnt, the arms, who attacks each, and what is asked."""

    spec: Spec
    setting: Setting
    made: Assembled
    seeds: Sequence[int]
    arms: Sequence[Arm]
    who: Mapping[str, Sequence[Adversary]]
    chosen: Sequence[Question]
    bounds: Sequence[str]
    name: str
    data: Mapping[str, Any]

    @property
    def described(self) -> dict[str, Any]:
        """The description but for what decides no result."""
        plain = self.spec.plain()
        return {key: plain[key] for key in ("task", "federation", "protocol")}

    def deciding(self) -> dict[str, Any]:
        """All that decides a part's result."""
        setting = self.setting
        more = {
            "arms": {arm.key: arm.pipeline.plain() for arm in self.arms}, "own": records(self.spec),
            "who": {key: [one.key for one in each] for key, each in self.who.items()}, "shadow": setting.shadow,
            "noise": setting.noise.plain(), "questions": [one.plain() for one in self.chosen],
            "device": setting.device, "depth": asdict(setting.depth),
        }  # fmt: skip
        data, first = self.made.dataset.digest, self.made.task.first.vector
        return deciding(self.described, data, first, self.seeds[0], **more)

    def found(self, answers: Mapping[str, Sequence[ArmAnswers]], left: Mapping[str, str]) -> dict[str, Any]:
        """The whole report as plain values."""
        setting, clients = self.setting, len(self.made.task.enrolled)
        cohort = self.spec.federation.cohort or clients
        bare = next((arm for arm in self.arms if is_undefended(arm)), None)
        control = answers[bare.key] if bare else []
        rows = [self._row(arm, answers[arm.key], control) for arm in self.arms]
        pass_on(rows)
        _add_source(rows)
        verdict = judged(rows, f"{round(setting.share * clients)} of {clients} clients")
        more = [*filter(None, [self.arms[0].about]), *no_better(self.data, rows[0])]
        return {
            "kind": KIND, "schema": SCHEMA, "name": _name(self.spec, self.name), **self.described,
            "data": dict(self.data), "clients": clients, "cohort": cohort, "rounds": setting.plan.rounds,
            "runs": len(self.seeds), "seeds": list(self.seeds), "level": LEVEL, "shadow": setting.shadow,
            "shadow_noise": setting.noise.plain(), "chance": 1 / cohort,
            "questions": {one.use: one.about() for one in self.chosen},
            "verdict": verdict | {"more": more + verdict["more"]}, "rows": rows,
            "left_out": dict(left), "pictures": _pictures(rows),
            "threat": threat(setting.shadow), "bounds": list(self.bounds), "notes": notes(len(self.seeds)),
        }  # fmt: skip

    def _row(self, arm: Arm, answers: Sequence[ArmAnswers], control: Sequence[ArmAnswers]) -> dict[str, Any]:
        plan, who = self.spec.federation, self.who[arm.key]
        said = explain(arm.pipeline, rounds=plan.rounds, cohorts=bool(plan.cohort))
        forbidden = {one.key: one.forbidden for one in who}
        proved = {one.key: found.why for one in who if (found := shows(arm.pipeline, one)).kind in ("noise", "nothing")}
        costs = [one.cost for one in answers if one.cost is not None]
        numbers = [number for number in costs[0].by_round if all(number in one.by_round for one in costs)]
        measure = costs[0].measure
        interval = smooth if measure == "accuracy" else over_runs
        sent = [one.bytes for one in costs if one.bytes]
        by_round = [{"round": at, **asdict(interval([one.by_round[at] for one in costs]))} for at in numbers]
        last = by_round[-1] if by_round else {"rate": None, "low": None, "high": None}
        return {
            "defence": arm.key, "title": arm.title, "own": arm.own, "protocol": arm.pipeline.plain(),
            "changes": {name: one.plain() for name, one in arm.changes},
            "hidden_coordinates": arm.pipeline.encode.agrees,
            "statement": dict(said.sentences()), "must_not_collude": [list(pair) for pair in said.must_not_collude],
            "server_learns": said.learns["server"], "differential_privacy": said.differential_privacy,
            "measure": measure, measure: last["rate"], f"{measure}_low": last["low"], f"{measure}_high": last["high"],
            f"{measure}_by_round": by_round, "bytes_per_client": sum(sent) / len(sent) if sent else None,
            "epsilon": said.differential_privacy,
            "seconds_per_round": min(one.seconds for one in costs if one.bytes) if sent else None,
            "questions": {one.use: asked(one, answers, control, forbidden, proved) for one in self.chosen},
        }  # fmt: skip


def _add_source(rows: Sequence[dict[str, Any]]) -> None:
    """The server's source attacks at the place and under the names that reports had from the first."""
    for row in rows:
        server = row["questions"].get("source", {}).get("adversaries", {}).get("server", {})
        if found := server.get("attacks"):
            row["attacks"] = {
                name: one if "not_run" in one else {**one, "rate": one["value"], "leak": one["gain"]}
                for name, one in found.items()
            }


def _pictures(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Examples of what was reconstructed, by defence and adversary."""
    return [
        {"defence": row["defence"], "adversary": key, "forbidden": cell["forbidden"], **one}
        for row in rows
        for question in row["questions"].values()
        for key, cell in question["adversaries"].items()
        for one in cell["facts"].pop("pictures", ())[: None if row["own"] else 2]
    ]


def _name(spec: Spec, name: str) -> str:
    """The description's name; one's own data under a preset's name go by their own."""
    given = name not in (*presets(), "run")
    return name if given else str(getattr(spec.task.data, "make", name))
