"""An audit of updates that any engine recorded: nothing is trained here, and the report is as any other.

There is one run, so that intervals are over its clients: each one's records are traced, or not, by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from croupier.audit.bench import Answered, Watch
from croupier.audit.blind import Panel
from croupier.audit.harness import Answers
from croupier.audit.question import Question, Score, Trial
from croupier.audit.questions import separation
from croupier.audit.questions.separation import NAMED, known, named_view, planted
from croupier.audit.questions.source import ATTACKS, MEMBERSHIP
from croupier.audit.recorded import Recorded, Recording, Seen, read
from croupier.audit.report.result import Report
from croupier.audit.score import LEVEL, area
from croupier.audit.seen import Kind
from croupier.audit.verdict import LEAST_RUNS, asked, judged, not_run
from croupier.auditing import SCHEMA, about
from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.core.wire import bitmap
from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.learn.data import folder_of
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.shuffle import Shuffle
from croupier.release.sums import Sum

KINDS: Mapping[Seen, Kind] = {
    "named": "named", "shuffle-model": "model", "shuffle-layer": "layer", "shuffle-parameter": "parameter",
    "sum": "sum",
}  # fmt: skip
# What is asked, in a reader's order; why some of it is not; and the rest is only mentioned.
ASKED = ("source", "membership", "linkage", "traits", "separation")
NAMED_ALREADY = "recordings are not linked: who sees updates by name need not, and a sum has no rows to link"
NO_HABITS = "what clients are like was not recorded"
# As fine as whole numbers of a sum can be.
DIGITS = 9


def recorded(
    folder: str | Path, *, seed: int = 0, data: str | Path | None = None, watch: Watch = lambda _: None
) -> Report:
    """Audit the updates in a folder, which `docs/recorded-updates.md` describes.

    folder: where `updates.toml` and the files lie.
    seed: of the attacks' coins.
    data: the data folder, which is handed to the shadow function; CROUPIER_DATA does the same.
    watch: called with a line now and then.

    Raises: SpecError, DataError.
    """
    held = read(Path(folder), folder_of(data))
    with Panel(1) as panel:
        heard = _Heard(held, Coins.from_seed(seed), panel, watch)
        answers, control = heard.answers()
    return Report(_report(Path(folder).resolve().name, held, seed, answers, control))


@dataclass(frozen=True)
class _Heard:
    """What is asked of a recording, and what attacks answer."""

    held: Recording
    coins: Coins
    panel: Panel
    watch: Watch

    @property
    def kind(self) -> Kind:
        return KINDS[self.held.manifest.seen]

    def answers(self) -> tuple[list[Answers], list[Answers]]:
        """By client, as if each were a run: what was seen, and the same attacks on updates that are seen by name."""
        pipeline, rounds = protocol(self.held), self.held.rounds
        suspects = MEMBERSHIP[self.kind] if self.held.told.members else ()
        looks = [self._look(one, pipeline, ATTACKS[self.kind], suspects) for one in rounds]
        first = rounds[0]
        bare = self._look(first, NAMED, ATTACKS[self.kind], ()) if first.models and self.kind != "named" else None
        apart, proof = self._separation(pipeline)
        found = {"source": _source(looks), "membership": _membership(looks[-1], suspects)}
        proved = {"source": _source([bare]) if bare else {}}
        refused = {} if suspects else {"membership": {"server": "the shadow function gives no members and others"}}
        if isinstance(apart, str):
            refused["separation"] = {"server": apart}
        else:
            found["separation"], proved["separation"] = apart, proof
        return _by_client(self.held.clients, found, refused), _by_client(self.held.clients, proved, {})

    def _look(self, one: Recorded, pipeline: Pipeline, attacks: Sequence[str], suspects: Sequence[str]) -> _Look:
        """Mount attacks on one round as a protocol shows it, and on no view."""
        self.watch(f"round {one.number}: {pipeline.release.use}")
        present = self.held.present(one)
        knowledge, owners, whose, members = self.held.knowledge(present, self.coins.child("audit", *present))
        told = {"knowledge": knowledge.plain(), "quiet": self.coins.child("study", *present).export()}

        def ask(views: Any, protocol: Any, source: Sequence[str], member: Sequence[str], coins: Coins) -> Answered:
            asked = {"views": views, "start": one.start, "protocol": protocol, "source": tuple(source)}
            return self.panel.ask("source", told, {**asked, "membership": tuple(member), "coins": coins.export()})

        views = {"server": (_view(self.held, one, pipeline, self.coins.child("view", one.number)),)}
        node = self.coins.child("attack", pipeline.release.use, one.number)
        prior = ask({}, {}, ("prior",), ("prior",) * bool(suspects), self.coins.child("prior", *present))
        return _Look(
            one.number,
            present,
            tuple(attacks),
            owners,
            whose,
            members,
            prior,
            ask(views, pipeline.plain(), attacks, suspects, node),
        )

    def _separation(self, pipeline: Pipeline) -> tuple[str | dict[str, Trial], dict[str, Trial]]:
        """Single updates out of all rounds' sums, by client; or why that cannot be asked."""
        if why := _inseparable(self.held):
            return why, {}
        rounds = [one for one in self.held.rounds if one.start is not None]
        truth = {(who, one.number): _moved(row, one) for one in rounds for who, row in one.models.items()}
        views = tuple(
            {
                "round": one.number, "start": one.start,
                "views": {"server": (_view(self.held, one, pipeline, self.coins.child("view", one.number)),)},
            }
            for one in rounds
        )  # fmt: skip
        attack = "named" if self.kind == "named" else "sums"
        asked = {"rounds": views, "protocol": pipeline.plain(), "attacks": (attack,)}
        found = separation.Look(self.panel.ask("separation", known(self.held.layout), asked), truth)
        first, start = rounds[0], rounds[0].start
        control = None
        if attack == "sums" and start is not None:
            control = planted(self.panel, start, {who: _moved(row, first) for who, row in first.models.items()})
        proof = {} if control is None else {who: Trial({"sums": s}) for who, s in control.scores("sums").items()}
        if attack == "named":
            # What is seen by name is there to be seen: it is its own control.
            proof = {who: Trial({attack: s}) for who, s in found.scores(attack).items()}
        facts = {"sentences": [separation.SAID]}
        return {who: Trial({attack: s}, facts=facts) for who, s in found.scores(attack).items()}, proof


@dataclass(frozen=True)
class _Look:
    """What attacks answer about a round, and the truth: whose each record and suspect is, and which are members."""

    number: int
    present: tuple[str, ...]
    attacks: tuple[str, ...]
    owners: Tensor
    whose: Tensor
    members: Tensor
    prior: Answered
    answer: Answered

    def hits(self) -> dict[str, dict[str, float]]:
        """By client and attack, the share of its records that are traced to it."""
        guesses = {**self.prior.result()["guesses"], **self.answer.result()["guesses"]}
        right = {name: (guess == self.owners).double() for name, guess in guesses.items()}
        return {
            who: {name: float(each[self.owners == place].mean()) for name, each in right.items()}
            for place, who in enumerate(self.present)
        }


def _source(looks: Sequence[_Look]) -> dict[str, Trial]:
    """By client, over all rounds in which it took part."""
    hits = {look.number: look.hits() for look in looks}
    unsuited = {name: why for look in looks for name, why in look.answer.result()["unsuited"].items()}
    chance = max(1 / len(look.present) for look in looks)
    found = {}
    for who in dict.fromkeys(who for look in looks for who in look.present):
        mine = {number: each[who] for number, each in hits.items() if who in each}
        names = [name for name in looks[0].attacks if name not in unsuited]
        mean = {name: sum(one[name] for one in mine.values()) / len(mine) for name in ("prior", *names)}
        by = {name: {number: one[name] for number, one in mine.items()} for name in names}
        scores = {name: Score(mean[name], mean["prior"], by[name], chance) for name in names}
        found[who] = Trial(scores, not_run=unsuited)
    return found


def _membership(look: _Look, attacks: Sequence[str]) -> dict[str, Trial]:
    """By client, of the last round: the area under the ROC curve of its own suspects."""
    scores = {**look.prior.result()["scores"], **look.answer.result()["scores"]}
    found = {}
    for place, who in enumerate(look.present):
        inside, outside = (look.whose == place) & look.members, (look.whose == place) & ~look.members
        if bool(inside.any()):
            areas = {name: area(score[inside], score[outside]) for name, score in scores.items()}
            found[who] = Trial({name: Score(areas[name], areas["prior"]) for name in attacks})
    return found


def _by_client(
    clients: Sequence[str], found: Mapping[str, Mapping[str, Trial]], refused: Mapping[str, Mapping[str, str]]
) -> list[Answers]:
    return [
        Answers({name: {"server": each[who]} for name, each in found.items() if who in each}, refused)
        for who in clients
    ]


def protocol(held: Recording) -> Pipeline:
    """The protocol whose server sees what the manifest says; sums are as fine as they can be."""
    seen = held.manifest.seen
    if seen == "named":
        return NAMED
    if seen != "sum":
        return Pipeline(encode=Floats(), release=Shuffle.parse({"use": "shuffle", "grain": KINDS[seen]}), place=Relay())
    every = [row for one in held.rounds for row in (one.joint, *one.models.values()) if row is not None]
    largest = max(float(row.abs().max()) for row in every)
    scale = 2.0 ** max(-20, math.ceil(math.log2(largest + 1e-9)) + 1)
    return Pipeline(
        encode=FixedPoint(clients=len(held.clients), digits=DIGITS, scale=scale), release=Sum(), place=Relay()
    )


def _view(held: Recording, one: Recorded, pipeline: Pipeline, coins: Coins) -> dict[str, Any]:
    """What the server is shown of a round: the protocol's own release of the updates."""
    names = held.present(one)
    # A joint model is the mean of as many like it.
    models = one.models or {who: one.joint for who in names if one.joint is not None}
    if pipeline == NAMED:
        return named_view(models)
    encode = pipeline.encode
    rows = [
        encode.encode(Update(row, held.layout), {}, coins.child("encode", who)).vector for who, row in models.items()
    ]
    body = {"present": bitmap(names, names), **pipeline.release(rows, held.layout, encode.modulus, coins.child("out"))}
    return {"inputs": (({"kind": "released", "source": "relay", "body": body},),), "given": {"roster": names}}


def _moved(row: Tensor, one: Recorded) -> Tensor:
    return row.double() if one.start is None else row.double() - one.start.double()


def _inseparable(held: Recording) -> str:
    """Why it cannot be asked whether single updates come out of sums; nothing where it can."""
    if any(one.joint is not None for one in held.rounds):
        return "no single update was recorded to compare with"
    if any(one.start is None for one in held.rounds):
        return "the models that rounds began with were not recorded; set start in updates.toml"
    if held.manifest.seen == "named":
        return ""
    if len({tuple(one.models) for one in held.rounds}) < 2:
        return "the same clients take part in every round, so that sums do not differ in who is in them"
    return ""


def _report(
    name: str, held: Recording, seed: int, answers: Sequence[Answers], control: Sequence[Answers]
) -> dict[str, Any]:
    """The whole report as plain values."""
    every = {one: Question.parse(one) for one in ASKED if one in Question.choices()}
    cells = {one: _cell(question, answers, control) for one, question in every.items()}
    pipeline, manifest, many = protocol(held), held.manifest, len(held.clients)
    row = {
        "defence": "recorded", "title": f"recorded updates, seen as: {manifest.seen}", "own": True,
        "protocol": pipeline.plain(), "changes": {}, "must_not_collude": [], "epsilon": None,
        "statement": {"server learns": pipeline.release.reveals()}, "server_learns": pipeline.release.reveals(),
        "measure": "accuracy", "accuracy": None, "accuracy_low": None, "accuracy_high": None, "accuracy_by_round": [],
        "bytes_per_client": 4.0 * held.layout.size, "seconds_per_round": None, "questions": cells,
    }  # fmt: skip
    verdict = judged([row])
    verdict["recommend"] |= {
        "sentence": "Nothing was compared: describe the protocol in a TOML file, and croupier audit plays it beside "
        "others."
    }
    fewest = min(len(held.present(one)) for one in held.rounds)
    return {
        "kind": "croupier audit", "schema": SCHEMA, "name": name,
        "task": {"model": manifest.model.plain(), "fit": manifest.fit.plain()},
        "federation": {"rounds": len(held.rounds)}, "protocol": pipeline.plain(), "recorded": manifest.plain(),
        "clients": many, "cohort": fewest, "rounds": len(held.rounds), "runs": 1, "seeds": [seed], "level": LEVEL,
        "chance": 1 / fewest, "questions": {one: about(question) for one, question in every.items()},
        "verdict": verdict, "rows": [row], "left_out": {}, "pictures": [], "threat": THREAT, "notes": notes(many),
    }  # fmt: skip


def _cell(question: Question, answers: Sequence[Answers], control: Sequence[Answers]) -> dict[str, Any]:
    """One question: its intervals are over clients, in the place of runs."""
    parties = {"server": False}
    if why := {"linkage": NAMED_ALREADY, "traits": NO_HABITS}.get(question.use, ""):
        return asked(question, [Answers({}, {question.use: {"server": why}})], [], parties, {})
    made = asked(question, answers, control, parties, {})
    count = sum("server" in one.trials.get(question.use, {}) for one in answers)
    if 0 < count < LEAST_RUNS:
        why = f"{count} clients are too few to judge by: intervals are over clients; record {LEAST_RUNS} or more"
        cell = made["adversaries"]["server"]
        cell |= not_run(why, cell["attacks"]) if count < 2 else {"status": "not-run", "why": why}
        made |= {key: value for key, value in cell.items() if key not in ("attacks", "facts", "forbidden")}
    return made


THREAT = (
    "The server is honest but curious: it follows the protocol and keeps what it sees, as updates.toml says. It knows "
    "that the records it is asked about were trained on in the round, and holds the shadow sets that the shadow "
    "function gives."
)


def notes(clients: int) -> list[str]:
    """How the numbers are to be read."""
    return [
        f"One run was recorded. Intervals are 95 % over its {clients} clients (Student's, widened for shares as though "
        "two more had been seen): a client's records share its model, so that they count as one. They say how the "
        "result would vary with other clients of the same kind, not how it would with another start, another order of "
        "training or other noise: record several runs for that, and audit each.",
        "Clients of one run share joint models, and a record that is traced to one is not traced to another: the "
        "intervals take clients for independent, and are a little too sure where few took part.",
        "The prior is the best attack with the same knowledge and no view. Judge by the gain over the prior.",
        "An attack's control is what it comes to on the recorded updates seen by name, where each client's was "
        "recorded, and elsewhere on what is audited itself. One that does not work there is not scored.",
        "Other questions are not asked of recorded updates: describe the protocol in a TOML file, and croupier audit "
        "plays it. Attacks that find nothing prove nothing.",
    ]
