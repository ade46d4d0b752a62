"""What is asked of recorded clients, the truth, and what attacks' answers come to, client by client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from croupier.audit.knowledge import Knowledge, Sample
from croupier.audit.membership import area
from croupier.audit.question import QuestionRun, Score
from croupier.audit.questions.source import AttackedRound
from croupier.audit.recorded.files import Recording
from croupier.audit.stage import Truth
from croupier.core.coins import Coins

# So many records of each client are asked about at most.
RECORDS = 100


@dataclass(frozen=True)
class RecordedTruth(Truth):
    """The truth, and whose each suspect is."""

    whose: Tensor


def asked_of(held: Recording, present: tuple[str, ...], coins: Coins) -> tuple[Knowledge, RecordedTruth]:
    """What the adversary knows of some clients, and the truth.

    As many records of each client are asked about, and in a random order: neither must tell whose they are.
    """
    given, manifest = held.given, held.manifest
    count = min(RECORDS, *(len(given.asked[who][1]) for who in present))
    records = []
    for who in present:
        x, y = given.asked[who]
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
    return knowledge, RecordedTruth(owners, part % 2 == 0, torch.tensor(able, dtype=torch.int64)[part // 2])


def _mixed(parts: Sequence[Sample], coins: Coins) -> tuple[Sample, Tensor]:
    """All records in a random order, and of which part each is."""
    counts = torch.tensor([len(y) for _, y in parts], dtype=torch.int64)
    order = torch.from_numpy(coins.sampler().permutation(int(counts.sum())))
    sample = torch.cat([x for x, _ in parts])[order], torch.cat([y for _, y in parts])[order]
    return sample, torch.arange(len(parts)).repeat_interleave(counts)[order]


@dataclass(frozen=True)
class RecordedLook(AttackedRound):
    """What attacks answer about a round, and the truth."""

    truth: RecordedTruth
    attacks: tuple[str, ...]

    def hits(self) -> dict[str, dict[str, float]]:
        """By client and attack, the share of its records that are traced to it."""
        owners = self.truth.owners
        right = {name: (guess == owners).double() for name, guess in self.answers("guesses").items()}
        return {
            who: {name: float(each[owners == place].mean()) for name, each in right.items()}
            for place, who in enumerate(self.present)
        }


def source_by_client(looks: Sequence[RecordedLook]) -> dict[str, QuestionRun]:
    """By client, over all rounds in which it took part."""
    hits = {look.number: look.hits() for look in looks}
    why = {name: why for look in looks for name, why in look.answer.result()["unsuited"].items()}
    unsuited = {name: why[name] for name in looks[0].attacks if name in why}
    chance = max(1 / len(look.present) for look in looks)
    found = {}
    for who in dict.fromkeys(who for look in looks for who in look.present):
        mine = {number: each[who] for number, each in hits.items() if who in each}
        names = [name for name in looks[0].attacks if name not in unsuited]
        mean = {name: sum(one[name] for one in mine.values()) / len(mine) for name in ("prior", *names)}
        by = {name: {number: one[name] for number, one in mine.items()} for name in names}
        scores = {name: Score(mean[name], mean["prior"], by[name], chance) for name in names}
        found[who] = QuestionRun(scores, not_run=unsuited)
    return found


def membership_by_client(look: RecordedLook, attacks: Sequence[str]) -> dict[str, QuestionRun]:
    """By client, of the last round: the area under the ROC curve of its own suspects."""
    scores, truth, found = look.answers("scores"), look.truth, {}
    unsuited = look.answer.result()["unsuited"]
    not_run = {name: unsuited[name] for name in attacks if name in unsuited}
    for place, who in enumerate(look.present):
        inside, outside = (truth.whose == place) & truth.members, (truth.whose == place) & ~truth.members
        if bool(inside.any()):
            areas = {name: area(score[inside], score[outside]) for name, score in scores.items()}
            able = {name: Score(areas[name], areas["prior"]) for name in attacks if name not in unsuited}
            found[who] = QuestionRun(able, not_run=not_run)
    return found
