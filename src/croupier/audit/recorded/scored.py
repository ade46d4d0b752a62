"""What is asked of recorded clients, and the truth that no attack is given."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from croupier.audit.knowledge import Knowledge, Sample
from croupier.audit.recorded.files import Recording
from croupier.audit.stage import Truth
from croupier.core.coins import Coins

# So many records of each client are asked about at most.
RECORDS = 100


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
