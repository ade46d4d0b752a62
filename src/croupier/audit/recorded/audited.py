"""An audit of updates that any engine recorded: no round is played, and intervals are over clients, not runs.

It attacks what another system sent, without describing that system here: `audit.recorded.files` reads the folder, a
pipeline that shows the server the same thing turns updates into views, and the attacks of the questions `source`,
`membership` and `separation` are mounted on these. There is one run, so each client stands in the place of a run.
`croupier audit --updates` calls `recorded`, and `croupier audit --views` calls `recorded_views`, for views that a party
of a deployment kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from croupier.audit.bench import Watch
from croupier.audit.blind import Panel
from croupier.audit.harness import ArmAnswers
from croupier.audit.judgement import judged
from croupier.audit.knowledge import Knowledge, Sample
from croupier.audit.notes import RECORDED_THREAT, recorded_notes
from croupier.audit.question import Question, QuestionRun
from croupier.audit.questions import separation, source
from croupier.audit.questions.separation import NAMED, known, named_view, planted
from croupier.audit.recorded.files import RecordedRound, Recording, Seen, read, read_beside
from croupier.audit.recorded.viewed import PartyViews, rounds_in
from croupier.audit.report.read import KIND, SCHEMA
from croupier.audit.report.result import Report
from croupier.audit.seen import Kind
from croupier.audit.stage import Truth
from croupier.audit.verdict import LEAST_RUNS, asked, not_run
from croupier.core.coins import Coins
from croupier.core.intervals import LEVEL
from croupier.core.update import Update
from croupier.core.wire import bitmap
from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.learn.data import folder_of
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.shuffle import Shuffle
from croupier.release.sums import Sum

# What the manifest calls `seen`, in the words of `audit.seen`.
KINDS: Mapping[Seen, Kind] = {
    "named": "named", "shuffle-model": "model", "shuffle-layer": "layer", "shuffle-parameter": "parameter",
    "sum": "sum",
}  # fmt: skip
# What is asked, in a reader's order, and why some of it cannot be; the rest is only mentioned.
ASKED = ("source", "membership", "linkage", "traits", "separation")
UNASKED = {
    "linkage": "recordings are not linked: who sees updates by name need not, and a sum has no rows to link",
    "traits": "what clients are like was not recorded",
}
NO_SUSPECTS = "the shadow function gives no members and others"
COMPARED = "Nothing was compared: describe the protocol in a TOML file, and croupier audit plays it beside others."
# So many records of each client are asked about at most.
RECORDS = 100
# As fine as whole numbers of a sum can be.
DIGITS = 9


def recorded(
    folder: str | Path, *, seed: int = 0, data: str | Path | None = None, watch: Watch = lambda _: None
) -> Report:
    """Audit the updates in a folder with an `updates.toml`; the shadow function is handed the data folder.

    Raises: SpecError, DataError.
    """
    return _audited(Path(folder).resolve().name, read(Path(folder), folder_of(data)), seed, watch)


def recorded_views(
    kept: PartyViews, folder: str | Path, task: Mapping[str, Any], *, seed: int = 0,
    data: str | Path | None = None, watch: Watch = lambda _: None,
) -> Report:  # fmt: skip
    """Audit what one party's own views show; `task` is the description's, `updates.toml` names the shadow function.

    Raises: SpecError, also where nothing can be asked of these views; DataError.
    """
    rounds = rounds_in(kept)
    for said in rounds.failed:
        watch(f"left out: {said}")
    return _audited(f"views-of-{kept.party}", read_beside(Path(folder), rounds, task, folder_of(data)), seed, watch)


def _audited(name: str, held: Recording, seed: int, watch: Watch) -> Report:
    with Panel(1) as panel:
        answers, control = _Attacked(held, protocol(held), Coins.from_seed(seed), panel, watch).answers()
    every = {one: Question.parse(one) for one in ASKED if one in Question.choices()}
    cells = {one: _cell(question, answers, control) for one, question in every.items()}
    return Report(_report(name, held, seed, every, cells))


@dataclass(frozen=True)
class _Attacked:
    """A recording under attack: what was seen of it, round by round, and what attacks answer."""

    held: Recording
    pipeline: Pipeline
    coins: Coins
    panel: Panel
    watch: Watch

    def answers(self) -> tuple[list[ArmAnswers], list[ArmAnswers]]:
        """By client, as if each were a run: what was seen, and the same attacks on updates that are seen by name."""
        rounds, kind, members = self.held.rounds, KINDS[self.held.manifest.seen], self.held.given.members
        suspects = source.MEMBERSHIP[kind] if members else ()
        looks = [self._look(one, self.pipeline, source.ATTACKS[kind], suspects) for one in rounds]
        seen = source.Attacked(tuple(looks), source.ATTACKS[kind], suspects)
        able = [who for who in looks[-1].present if who in members]
        bare = [self._look(rounds[0], NAMED, source.ATTACKS[kind], ())] if rounds[0].models and kind != "named" else []
        found = {"source": self._traced(seen), "membership": {who: source.told_apart(seen, who) for who in able}}
        proved = {"source": self._traced(source.Attacked(tuple(bare), source.ATTACKS[kind], ()))}
        refused = {} if suspects else {"membership": {"server": NO_SUSPECTS}}
        if why := _inseparable(self.held):
            refused["separation"] = {"server": why}
        else:
            found["separation"], proved["separation"] = self._separation("named" if kind == "named" else "sums")
        return _by_client(self.held.clients, found, refused), _by_client(self.held.clients, proved, {})

    def _look(
        self, one: RecordedRound, pipeline: Pipeline, attacks: Sequence[str], suspects: Sequence[str]
    ) -> source.AttackedRound:
        """Mount attacks on one round as a protocol shows it, and on no view."""
        self.watch(f"round {one.number}: {pipeline.release.use}")
        present = self.held.present(one)
        knowledge, truth = asked_of(self.held, present, self.coins.child("audit", *present))
        mounted = source.SourceAttacks(self.panel, knowledge, self.coins, present)
        node = self.coins.child("attack", pipeline.release.use, one.number)
        view = {"views": self._views(one, pipeline), "start": one.start, "protocol": pipeline.plain()}
        prior, answer = mounted.prior(bool(suspects)), mounted.on_view(view, attacks, suspects, node)
        # Rounds go by the numbers that they were recorded by.
        return source.AttackedRound(one.number - 1, present, truth, prior, answer)

    def _traced(self, seen: source.Attacked) -> dict[str, QuestionRun]:
        clients = dict.fromkeys(who for one in seen.rounds for who in one.present)
        return {who: source.traced(seen, who) for who in clients}

    def _views(self, one: RecordedRound, pipeline: Pipeline) -> dict[str, Any]:
        """What the server is shown of a round: the protocol's own release of the updates."""
        coins, names = self.coins.child("view", one.number), self.held.present(one)
        # A joint model is the mean of as many like it.
        models = one.models or {who: one.joint for who in names if one.joint is not None}
        if pipeline == NAMED:
            return {"server": (named_view(models),)}
        encode, layout = pipeline.encode, self.held.layout
        made = {who: encode.encode(Update(row, layout), {}, coins.child("encode", who)) for who, row in models.items()}
        rows = [one.vector for one in made.values()]
        body = {"present": bitmap(names, names), **pipeline.release(rows, layout, encode.modulus, coins.child("out"))}
        letter = {"kind": "released", "source": "relay", "body": body}
        return {"server": ({"inputs": ((letter,),), "given": {"roster": names}},)}

    def _separation(self, attack: str) -> tuple[dict[str, QuestionRun], dict[str, QuestionRun]]:
        """Single updates out of all rounds' sums, by client; and the same attack where it must work."""
        rounds = self.held.rounds
        moved = {one.number: _moved(one) for one in rounds}
        truth = {(who, number): row for number, each in moved.items() for who, row in each.items()}
        views = [{"round": one.number, "start": one.start, "views": self._views(one, self.pipeline)} for one in rounds]
        asked = {"rounds": tuple(views), "protocol": self.pipeline.plain(), "attacks": (attack,)}
        answer = self.panel.ask("separation", known(self.held.layout), asked)
        scores = separation.SeparationAnswer(answer, truth).scores(attack)
        # What is seen by name is there to be seen: it is its own control.
        proof, first = scores, rounds[0]
        if attack == "sums" and first.start is not None:
            control = planted(self.panel, first.start, moved[first.number])
            proof = {} if control is None else control.scores(attack)
        facts = {"sentences": [separation.SAID]}
        found = {who: QuestionRun({attack: one}, facts=facts) for who, one in scores.items()}
        return found, {who: QuestionRun({attack: one}) for who, one in proof.items()}


def _by_client(
    clients: Sequence[str], found: Mapping[str, Mapping[str, QuestionRun]], refused: Mapping[str, Mapping[str, str]]
) -> list[ArmAnswers]:
    mine = [{name: {"server": each[who]} for name, each in found.items() if who in each} for who in clients]
    return [ArmAnswers(one, refused) for one in mine]


def protocol(held: Recording) -> Pipeline:
    """A protocol whose server sees what the manifest says; for sums, with numbers as fine as sums allow."""
    seen = held.manifest.seen
    if seen == "named":
        return NAMED
    if seen != "sum":
        return Pipeline(encode=Floats(), release=Shuffle.parse({"use": "shuffle", "grain": KINDS[seen]}), place=Relay())
    every = [row for one in held.rounds for row in (one.joint, *one.models.values()) if row is not None]
    largest = max(float(row.abs().max()) for row in every)
    scale = 2.0 ** max(-20, math.ceil(math.log2(largest + 1e-9)) + 1)
    encode = FixedPoint(clients=len(held.clients), digits=DIGITS, scale=scale)
    return Pipeline(encode=encode, release=Sum(), place=Relay())


def asked_of(held: Recording, present: tuple[str, ...], coins: Coins) -> tuple[Knowledge, Truth]:
    """What the adversary knows of some clients, and the truth.

    As many records of each client are asked about, and in a random order: neither must tell whose they are.
    """
    given, manifest = held.given, held.manifest
    count = min(RECORDS, *(len(given.asked[who][1]) for who in present))
    records = []
    for who, (x, y) in [(who, given.asked[who]) for who in present]:
        some = torch.from_numpy(coins.child("records", who).sampler().permutation(len(y)))[:count]
        records.append((x[some], y[some]))
    shown, owners = _mixed(records, coins.child("order"))
    able = [place for place, who in enumerate(present) if who in given.members]
    parts = [part[present[place]] for place in able for part in (given.members, given.others)]
    suspects, part = _mixed(parts, coins.child("mixed")) if parts else ((shown[0][:0], shown[1][:0]), owners[:0])
    knowledge = Knowledge(
        present, manifest.model.plain(), manifest.fit.plain(), given.classes, shown,
        tuple(given.shadows[who] for who in present), suspects, held.frozen,
        {"loss": manifest.loss or ("classify" if given.classes else "forecast")},
    )  # fmt: skip
    return knowledge, Truth(owners, part % 2 == 0, torch.tensor(able, dtype=torch.int64)[part // 2])


def _mixed(parts: Sequence[Sample], coins: Coins) -> tuple[Sample, Tensor]:
    """All records in a random order, and of which part each is."""
    counts = torch.tensor([len(y) for _, y in parts], dtype=torch.int64)
    order = torch.from_numpy(coins.sampler().permutation(int(counts.sum())))
    sample = torch.cat([x for x, _ in parts])[order], torch.cat([y for _, y in parts])[order]
    return sample, torch.arange(len(parts)).repeat_interleave(counts)[order]


def _moved(one: RecordedRound) -> dict[str, Tensor]:
    """What each client learnt in a round."""
    start = 0.0 if one.start is None else one.start.double()
    return {who: row.double() - start for who, row in one.models.items()}


def _inseparable(held: Recording) -> str:
    """Why it cannot be asked whether single updates come out of sums; nothing where it can."""
    if any(one.joint is not None for one in held.rounds):
        return "no single update was recorded to compare with"
    if any(one.start is None for one in held.rounds):
        return "the models that rounds began with were not recorded; set start in updates.toml"
    if held.manifest.seen != "named" and len({tuple(one.models) for one in held.rounds}) < 2:
        return "the same clients take part in every round, so that sums do not differ in who is in them"
    return ""


def _cell(question: Question, answers: Sequence[ArmAnswers], control: Sequence[ArmAnswers]) -> dict[str, Any]:
    """One question: its intervals are over clients, in the place of runs."""
    parties = {"server": False}
    if why := UNASKED.get(question.use):
        return asked(question, [ArmAnswers({}, {question.use: {"server": why}})], [], parties, {})
    made = asked(question, answers, control, parties, {})
    count = sum("server" in one.trials.get(question.use, {}) for one in answers)
    if 0 < count < LEAST_RUNS:
        why = f"{count} clients are too few to judge by: intervals are over clients; record {LEAST_RUNS} or more"
        cell = made["adversaries"]["server"]
        cell |= not_run(why, cell["attacks"]) if count < 2 else {"status": "not-run", "why": why}
        made |= {key: value for key, value in cell.items() if key not in ("attacks", "facts", "forbidden")}
    return made


def _report(
    name: str, held: Recording, seed: int, every: Mapping[str, Question], cells: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole report as plain values."""
    pipeline, manifest, many = protocol(held), held.manifest, len(held.clients)
    learns = pipeline.release.reveals()
    row = {
        "defence": "recorded", "title": f"recorded updates, seen as: {manifest.seen}", "own": True,
        "protocol": pipeline.plain(), "changes": {}, "must_not_collude": [], "epsilon": None,
        "hidden_coordinates": pipeline.encode.agrees,
        "statement": {"server learns": learns}, "server_learns": learns,
        "measure": "accuracy", "accuracy": None, "accuracy_low": None, "accuracy_high": None, "accuracy_by_round": [],
        "bytes_per_client": 4.0 * held.layout.size, "seconds_per_round": None, "questions": cells,
    }  # fmt: skip
    verdict = judged([row])
    verdict["recommend"] |= {"sentence": COMPARED}
    fewest = min(len(held.present(one)) for one in held.rounds)
    return {
        "kind": KIND, "schema": SCHEMA, "name": name,
        "task": {"model": manifest.model.plain(), "fit": manifest.fit.plain()},
        "federation": {"rounds": len(held.rounds)}, "protocol": pipeline.plain(), "recorded": manifest.plain(),
        "clients": many, "cohort": fewest, "rounds": len(held.rounds), "runs": 1, "seeds": [seed], "level": LEVEL,
        "chance": 1 / fewest, "questions": {one: question.about() for one, question in every.items()},
        "verdict": verdict, "rows": [row], "left_out": {}, "pictures": [], "threat": RECORDED_THREAT,
        "notes": recorded_notes(many),
    }  # fmt: skip
