"""Noise by tiers: views are what releases give, with the truth beside them; attributes are cut by auxiliary clients."""

from __future__ import annotations

import pytest
import torch

from croupier.audit.attacks.traits.views import RoundView, named_view
from croupier.audit.traits.tiers import released
from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice
from croupier.errors import SpecError
from croupier.learn.attributes import attributes
from croupier.learn.data import Dataset, Windows
from croupier.privacy.tiers import Tiers

LAYOUT = Layout((Slice("a.weight", (30,)), Slice("b.weight", (10,))))


def noised(count: int = 12) -> tuple[RoundView, Tiers]:
    drawn = torch.randn(count, 40, generator=torch.Generator().manual_seed(1))
    noise = Tiers(clip=1.0, tiers=(1.0, 8.0))
    names = tuple(f"c{i:02}" for i in range(count))
    return named_view(0, drawn, names, lambda who: noise.tier(who).sigma), noise


@pytest.mark.parametrize("view", ["rows", "model", "layer", "parameter", "sums"])
def test_a_view_is_what_the_release_gives_and_the_truth_beside_it_fits(view: str) -> None:
    one, noise = noised()
    found = released(view, one, noise, 4, LAYOUT, Coins.from_seed(0))  # type: ignore[arg-type]
    seen = found.view
    assert sorted(name for who in seen.members for name in who) == list(one.names)
    if found.sources is None:
        for row, who in zip(seen.rows, seen.members, strict=True):
            mean = one.rows[[one.names.index(name) for name in who]].double().mean(0)
            assert torch.allclose(row.double(), mean, atol=1e-6)
        return
    assert torch.equal(one.rows.gather(0, found.sources), seen.rows)
    for row in range(len(seen.rows)):
        inside = {one.names.index(name) for name in seen.members[int(seen.bucket[row])]}
        assert set(found.sources[row].tolist()) <= inside
    whole = {"rows": 1, "model": 1, "layer": 2, "parameter": 40}[view]
    assert max(len(set(row.tolist())) for row in found.sources) <= whole
    assert seen.intact == (view in ("rows", "model"))
    assert seen.named == (view == "rows")


def test_households_are_cut_by_auxiliary_ones_alone() -> None:
    days = torch.full((4, 3, 48), 0.1)
    days[1, :, 16:40] = 0.5
    days[3, :, :16] = 0.5
    series = days.reshape(-1)
    starts = torch.cat([torch.arange(0, 144 - 48) + 144 * at for at in range(4)])
    train = Windows(series, starts, 47)
    owner = torch.arange(4).repeat_interleave(96)
    data = Dataset("households", "forecast", 0, train, train, "", "", owner=owner, owners=("a", "b", "c", "d"))
    index = {name: (owner == at).nonzero()[:, 0] for at, name in enumerate("abcd")}
    found = attributes(data, index, ["c", "d"])
    assert found["day"].labels["b"] == 1
    assert found["day"].labels["d"] == 0
    assert found["use"].labels["b"] == 2
    with pytest.raises(SpecError, match="no attribute"):
        attributes(Dataset("else", "forecast", 0, train, train, "", ""), index, ["a"])


def test_all_other_members_of_a_bucket_uncover_the_last_one_bit_for_bit() -> None:
    one, noise = noised()
    seen = released("parameter", one, noise, 4, LAYOUT, Coins.from_seed(0)).view
    for bucket, members in enumerate(seen.members):
        places = [one.names.index(name) for name in members]
        for victim in places:
            # The exclusive-or of all values of a coordinate and those of the colluders is the victim's value.
            left = torch.zeros(LAYOUT.size, dtype=torch.int32)
            others = one.rows[[place for place in places if place != victim]]
            for row in (*seen.rows[seen.bucket == bucket], *others):
                left ^= row.contiguous().view(torch.int32)
            assert torch.equal(left.view(torch.float32), one.rows[victim])
