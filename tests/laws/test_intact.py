"""intact: a release that says so lets out whole rows only, each one sender's; one that mixes rows does not say so."""

from __future__ import annotations

import pytest
import torch

from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice
from croupier.release.release import Release, ReleaseContext
from croupier.release.shuffle import Shuffle
from tests.laws.pipelines import PIPELINES, TIERS

LAYOUT = Layout((Slice("a.weight", (40,)), Slice("b.weight", (40,))))
CONTEXT = ReleaseContext(tiers=tuple(TIERS.tier(name) for name in ("c0", "c1", "c2", "c3")))
# A row of groups is no single sender's: rules for whole rows then judge groups.
ROWS = [name for name, one in PIPELINES.items() if one.release.shape == "rows" and not one.release.grouped]


def mixes(release: Release) -> bool:
    """Whether some row that leaves has coordinates of two senders.

    What lies in a place tells whose it is, and senders take turns in having the largest.
    """
    places = torch.arange(LAYOUT.size)
    sent = [((number + places) % 4).float() for number in range(4)]
    owners = (release.compute(sent, LAYOUT, None, Coins.from_seed(1), CONTEXT)["rows"] - places) % 4
    return not bool((owners == owners[:, :1]).all())


@pytest.mark.parametrize("name", ROWS)
def test_intact(name: str) -> None:
    release = PIPELINES[name].release
    assert release.intact is not mixes(release)


class Boastful(Shuffle, use="boastful"):
    """A planted fault: it shuffles single parameters, and says that rows stay whole."""

    @property
    def intact(self) -> bool:
        """Not so."""
        return True


def test_a_wrong_claim_is_caught() -> None:
    assert Boastful().intact
    assert mixes(Boastful())
