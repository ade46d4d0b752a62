"""No local noise: nothing is changed, and nothing is claimed."""

from __future__ import annotations

import torch

from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice, Update
from croupier.privacy.local import LocalPrivacy, NoNoise, ParticipationCost


def test_no_noise_changes_nothing_and_claims_nothing() -> None:
    update = Update(torch.tensor([1.0, -2.0]), Layout((Slice("w", (2,)),)), {"weight": torch.ones(1)})
    got, spent = NoNoise()(update, Coins.from_seed(1))
    assert got is update
    assert spent == ParticipationCost("none")
    assert "no differential privacy is claimed" in NoNoise().claims()
    assert LocalPrivacy.parse("none") == NoNoise()
