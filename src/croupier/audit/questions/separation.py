"""The question `separation`: can single updates be taken out of sums over rounds?

A sum hides single updates in one round. Over several rounds the clients in it change, or clients collude, and then sums
can be taken apart. The attack is `audit.attacks.separation`, in a process of its own; its answers are compared here
with the true updates. `audit.harness` plays the question for `croupier audit`; `audit.recorded.audited` and the
laboratory's `bench/leakage/disaggregation` use its parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from croupier.audit.attacks.separation import own_update
from croupier.audit.bench import Answered, Bench, PlayedRounds
from croupier.audit.blind import Panel
from croupier.audit.question import SERVER, UNSEEN, Adversary, Arm, Promise, Question, QuestionRun, Score
from croupier.audit.report.read import UNTESTED
from croupier.audit.seen import shows
from croupier.core.update import Layout, Slice
from croupier.encode.floats import Floats
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.release.rows import Rows

# No defence: every update in the clear, with its sender's name.
NAMED = Pipeline(encode=Floats(), release=Rows(), place=Direct())
# The planted case of the control: so many clients, so many sums without each of them, and about so many coordinates.
PLANTED, REPEATED, COORDINATES = 6, 3, 5000
SAID = (
    "The prior is the cosine of a round's mean update, or of all rounds' together where that is nearer, taken as the "
    "guess for each client: whoever takes part is handed the models. For a single client it is the mean of the others."
)
HEADS = ["sums", "clients", "combinations told apart", "told from all others", "found by subtraction", "what stays"]


@dataclass(frozen=True)
class SeparationAnswer:
    """What an attack answers about all rounds, and every client's true update by round."""

    answer: Answered
    truth: Mapping[tuple[str, int], Tensor]

    def score(self, attack: str) -> Score:
        """The mean over clients; of priors the better of a round's mean and of all rounds' together.

        What several rounds say of everybody alike is no separation: it must not count as such.
        """
        each = self.scores(attack).values()
        value, mean = (sum(one) / len(each) for one in zip(*((s.value, s.prior) for s in each), strict=True))
        everybody = self.answer.result()[attack]["means"].mean(0, keepdim=True)
        near = torch.nn.functional.cosine_similarity(everybody, self._true(attack), 1)
        return Score(value, max(mean, float(near.mean())))

    def _true(self, attack: str) -> Tensor:
        got = self.answer.result()[attack]
        return torch.stack([self.truth[key] for key in zip(got["clients"], got["when"], strict=True)])

    def scores(self, attack: str) -> dict[str, Score]:
        """By client, cosines to its true update: of what was recovered, and of the mean of its round."""
        got = self.answer.result()[attack]
        true = self._true(attack)
        near = [torch.nn.functional.cosine_similarity(got[key], true, 1).tolist() for key in ("updates", "means")]
        return {who: Score(*pair) for who, *pair in zip(got["clients"], *near, strict=True)}


def look(bench: Bench, arm: Arm, adversary: Adversary, attack: str) -> SeparationAnswer | None:
    """Mount an attack on all that an adversary sees of all rounds; None where that is nothing."""
    stage, played = bench.stage(arm), bench.played(arm)
    rounds = _rounds(played, adversary)
    if not rounds:
        return None
    alone, protocol = "client" in adversary.parties, arm.pipeline.plain()
    asked = {"rounds": rounds, "protocol": protocol, "attacks": (attack,), "less_own": alone}
    truth = {
        (who, done.number): own_update(views[who])
        for done, views in zip(played.rounds, played.views, strict=True)
        for who in done.present
    }
    return SeparationAnswer(bench.panel.ask("separation", known(stage.task.layout), asked), truth)


def known(layout: Layout) -> dict[str, Any]:
    """What every adversary knows: the network."""
    return {"layout": tuple(asdict(one) for one in layout.slices)}


def _rounds(played: PlayedRounds, adversary: Adversary) -> tuple[dict[str, Any], ...]:
    """What it sees, round by round: the same clients collude in all of them."""
    clients = {"client", "clients"}.union(*(done.present for done in played.rounds))
    team, others = _team(played, adversary), [party for party in adversary.parties if party not in clients]
    found = []
    for at, done in enumerate(played.rounds):
        parties = (*others, *(who for who in team if who in done.present))
        views = played.seen_by(replace(adversary, parties=parties), at)
        if not others:
            # Clients alone see what came of a round when they take part in the next one.
            views = {who: each for who, each in views.items() if len(each) > 1}
        if views:
            found.append({"round": done.number, "views": views, "start": played.starts[at]})
    return tuple(found)


def _team(played: PlayedRounds, adversary: Adversary) -> tuple[str, ...]:
    """The clients that collude: those named, all but one, or the one that most often comes twice running."""
    came = [set(done.present) for done in played.rounds]
    everybody = sorted(set().union(*came))
    if "clients" in adversary.parties:
        return tuple(everybody[:-1])
    if "client" in adversary.parties:
        return (max(everybody, key=lambda who: sum(who in one & two for one, two in pairwise(came))),)
    return tuple(party for party in adversary.parties if party in everybody)


def planted(panel: Panel, start: Tensor, updates: Mapping[str, Tensor]) -> SeparationAnswer | None:
    """A case in which the attack must work, made of the updates of one round.

    Each sum leaves one client out, and each client is left out several times. None where there are fewer than three
    clients.
    """
    every, some = max(1, len(start) // COORDINATES), tuple(updates)[:PLANTED]
    if len(some) < 3:
        return None
    start, true = start[::every], {who: updates[who][::every] for who in some}
    rows = {who: (start.double() + update).float() for who, update in true.items()}
    rounds = tuple(
        {"round": at, "views": {"server": (named_view({w: rows[w] for w in some if w != out}),)}, "start": start}
        for at, out in enumerate(some * REPEATED)
    )
    asked = {"rounds": rounds, "protocol": NAMED.plain(), "attacks": ("sums",)}
    layout = Layout((Slice("some", (len(start),)),))
    same = {(who, at): true[who] for who in some for at in range(len(rounds))}
    return SeparationAnswer(panel.ask("separation", known(layout), asked), same)


def named_view(models: Mapping[str, Tensor]) -> dict[str, Any]:
    """The view of a server to which clients sent these models by name."""
    letters = tuple({"kind": "up", "source": who, "body": {"vector": row}} for who, row in models.items())
    return {"inputs": (letters,), "given": {"roster": tuple(models)}}


class Separation(Question, use="separation"):
    """Each client's update out of all rounds' sums."""

    asks: ClassVar[str] = "Can single updates be taken out of sums over rounds?"
    learns: ClassVar[str] = "single clients' updates"
    gains: ClassVar[str] = "single updates are found {n} nearer to the true ones than by the mean of their round"
    unit: ClassVar = "cosine"
    titles: ClassVar[Mapping[str, str]] = {
        "named": "updates as they are seen, with their senders' names",
        "sums": "ridge regression over the sums of changing clients, less what colluders sent",
    }

    def unfit(self, bench: Bench, arm: Arm) -> str:
        """Why it cannot be asked: hidden coordinates differ from round to round, and cannot be added up."""
        if arm.pipeline.encode.agrees:
            return "updates lie in coordinates that the server does not know, so that rounds cannot be added up"
        return ""

    def unseen(self, bench: Bench, arm: Arm, adversary: Adversary) -> str:
        """Why there is nothing to take apart: one sum alone, or sums that are always of the same clients."""
        found, plan = shows(arm.pipeline, adversary), bench.chosen(arm).plan
        if why := super().unseen(bench, arm, adversary):
            return why
        if found.kind == "named" or "clients" in adversary.parties or arm.pipeline.release.tiered:
            return ""
        enrolled = bench.stage(arm).task.enrolled
        if not plan.joins and (plan.cohort or len(enrolled)) >= len(enrolled):
            return found.why or (
                f"{UNTESTED}: the same clients take part in every round, so that sums do not differ in who is in them, "
                "as they do where clients drop out; set federation.cohort to fewer than all to see what that tells"
            )
        return "" if plan.rounds > 1 else "there is one round, and nothing to hold its sum against"

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """On all rounds together; where nothing defends, on sums that can be taken apart as well."""
        kinds = {one.key: shows(arm.pipeline, one).kind for one in adversaries}
        attacks = {key: "named" if kind in ("named", "noise") else "sums" for key, kind in kinds.items()}
        looks = {one.key: look(bench, arm, one, attacks[one.key]) for one in adversaries}
        control = None
        if arm == bench.undefended and SERVER in adversaries:
            played = bench.played(arm)
            first = {who: own_update(played.views[0][who]) for who in played.rounds[0].present[:PLANTED]}
            control = planted(bench.panel, played.starts[0], first)
        return lambda: {
            key: _trial(found, attacks[key], control if key == SERVER.key else None) for key, found in looks.items()
        }


def _trial(found: SeparationAnswer | None, attack: str, control: SeparationAnswer | None) -> QuestionRun:
    controls = {"sums": control.score("sums")} if control else {}
    if found is None:
        return QuestionRun(not_run={attack: UNSEEN})
    facts: dict[str, Any] = {"sentences": [SAID]}
    if attack == "sums":
        got = found.answer.result()[attack]
        row = [got["sums"], len(got["clients"]), got["rank"], len(got["alone"]), len(got["exact"]), got["stays"]]
        facts["tables"] = [{"title": "What sums over rounds tell apart", "heads": HEADS, "rows": [row]}]
    return QuestionRun({attack: found.score(attack)}, controls, facts=facts)
