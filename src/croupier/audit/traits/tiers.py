"""Noise by tiers, attacked: one training of a noise serves every view, by the releases themselves.

Where a description's own protocol noises by tiers, the questions `traits` and `linkage` are answered here and not on
the real views (`audit.traits.findings`), so that views of one training can be compared. IntraShuffler's tables in the
laboratory are made of the same experiment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from croupier.aggregate.mean import Mean
from croupier.audit.attacks.traits.views import bucket_view, named_view
from croupier.audit.bench import Watch
from croupier.audit.seen import read_server
from croupier.audit.setting import Setting
from croupier.audit.traits.auxiliary import AuxiliaryClients, SetAside, assembled
from croupier.audit.traits.scores import AttackInput, RoundTruth, TraitTruth
from croupier.core.attempt import Drive
from croupier.core.coins import Coins
from croupier.core.update import Layout
from croupier.core.view import facts
from croupier.encode.floats import Floats
from croupier.engine.loop import rounds
from croupier.engine.task import Task
from croupier.errors import ProtocolError
from croupier.learn.attributes import attributes
from croupier.learn.augment import AS_IS
from croupier.learn.root import NONE
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.tiers import Tiers
from croupier.release.bucketed import Buckets, BucketSums
from croupier.release.rows import Rows

View = Literal["rows", "model", "layer", "parameter", "sums"]
# Sums are of integers: so many steps to the clip.
_STEPS = 1 << 24


@dataclass(frozen=True)
class TieredSetting:
    """A setting, and how it is noised; `every` so many rounds the attacker trains its auxiliary clients anew."""

    setting: Setting
    privacy: Tiers
    smallest: int = 8
    every: int = 5


@dataclass(frozen=True)
class TierNoise:
    """What clients add: their public tiers (which put them into buckets), and how much of that noise is really added.

    `share` is 1 for the tiers as they are, 0 for none at all.
    """

    title: str
    privacy: Tiers
    share: float = 1.0

    def sigma(self, name: str) -> float:
        """The deviation of what this client adds."""
        return self.share * self.privacy.tier(name).sigma

    @property
    def levels(self) -> Tensor:
        """Every deviation there may be, by rising epsilon."""
        each = [self.privacy.model_copy(update={"wishes": {"x": one}}).tier("x").sigma for one in self.privacy.tiers]
        return self.share * torch.tensor(each, dtype=torch.float64)


@dataclass(frozen=True)
class NoisedRound:
    """One round: the model that was handed out, who took part, and one noised row each."""

    number: int
    start: Tensor
    names: tuple[str, ...]
    sent: Tensor


class TieredExperiment:
    """One seed's data, model and clients, on which noises play one after another. Raises: SpecError, DataError."""

    def __init__(self, tiered: TieredSetting, coins: Coins) -> None:
        self.tiered, self.coins = tiered, coins
        held = SetAside(tiered.setting.split)
        everybody, dataset = assembled(replace(tiered.setting, augment=AS_IS, root=NONE), held, coins)
        clients = {who: shard for who, shard in everybody.shards.items() if who not in held.aside}
        self.task: Task = replace(everybody, shards=clients)
        self.attributes = attributes(dataset, held.index, held.aside)
        self.auxiliary = AuxiliaryClients(everybody, held.aside, self.attributes)

    def noise(self, name: str) -> TierNoise:
        """No noise, or the tiers as described."""
        return TierNoise(name, self.tiered.privacy, 1.0 if name == "tiers" else 0.0)

    def rounds(self, task: Task, noise: TierNoise, drive: Drive, watch: Watch) -> Iterator[NoisedRound]:
        """Train on the real loop, every client counting alike, and take down each round."""
        clip, plan = noise.privacy.clip, self.tiered.setting.plan
        # No noise is the same clipping with a deviation of nought.
        privacy = noise.privacy if noise.share else Gaussian(clip=clip, sigma=0, delta=noise.privacy.delta)
        pipeline = Pipeline(
            privacy=privacy, encode=Floats(weights="uniform", form="delta"), release=Rows(), aggregate=Mean(),
            place=Direct(),
        )  # fmt: skip
        # How well the model does is another question than what it tells.
        task, start = replace(task, evaluate=lambda _: {}), task.first.vector
        for done in rounds(pipeline, task, plan, self.coins, drive, keep={"server": "keep"}):
            watch(f"{noise.title}: round {done.number + 1} of {plan.rounds}")
            seen = read_server(facts(done.views["server"]), pipeline.plain(), task.layout)
            if seen.rows is None or seen.ids is None:
                raise ProtocolError(f"round {done.number + 1}: no named rows to look at")
            yield NoisedRound(done.number, start, seen.ids, seen.rows)
            start = done.state.model.vector

    def attack_input(
        self, noise: TierNoise, played: Sequence[NoisedRound], views: Sequence[View], watch: Watch
    ) -> AttackInput:
        """What attacks are sent of these rounds: every view of them, and what auxiliary clients learn."""
        watch(f"{noise.title}: auxiliary clients")
        starts = {one.number: one.start for one in played if one.number % self.tiered.every == 0}
        auxiliary = self.auxiliary.learn_from(starts, noise.privacy.clip, self.coins)
        truths: dict[str, TraitTruth] = {}
        for view in views:
            coins = [self.coins.child("release", noise.title, view, one.number) for one in played]
            each = [
                released(view, one, noise, self.tiered.smallest, self.task.layout, own)
                for one, own in zip(played, coins, strict=True)
            ]
            truths[view] = TraitTruth(tuple(each), self.attributes)
        watch(f"{noise.title}: attacks")
        node = self.coins.child("attack", noise.title)
        known = {"auxiliary": auxiliary.plain(), "levels": noise.levels, "coins": node.child("study").export()}
        shown = {view: tuple(one.view.plain() for one in truth.rounds) for view, truth in truths.items()}
        return AttackInput(known, {"shown": shown, "coins": node.export()}, auxiliary, truths)


def released(
    view: View, one: NoisedRound, noise: TierNoise, smallest: int, layout: Layout, coins: Coins
) -> RoundTruth:  # fmt: skip
    """One round through one release. Raises: ProtocolError when its clients do not fill a bucket."""
    if view == "rows":
        return RoundTruth.of_named(named_view(one.number, one.sent, one.names, noise.sigma), one.names)
    tiers = [noise.privacy.tier(who) for who in one.names]
    if view == "sums":
        release, clip = BucketSums(smallest=smallest), noise.privacy.clip
        # Sums are of whole numbers, as sum servers make them: exact, and far below 2^53.
        whole = (one.sent.double() * (_STEPS / clip)).round()
        each = [whole[list(bucket.members)].sum(0) * (clip / _STEPS) / bucket.size for bucket in release.buckets(tiers)]
        rows = torch.stack(each).float()
        return RoundTruth(bucket_view(one.number, rows, one.names, release, tiers, noise.sigma), one.names, None)
    shuffle = Buckets(grain=view, smallest=smallest)
    rows = shuffle.within(list(one.sent), layout, None, coins, tiers)["rows"]
    # The same coins move the members' numbers as they moved their values.
    numbers = [torch.full_like(one.sent[0], float(at)) for at in range(len(one.names))]
    sources = shuffle.within(numbers, layout, None, coins, tiers)["rows"].to(torch.int64)
    return RoundTruth(bucket_view(one.number, rows, one.names, shuffle, tiers, noise.sigma), one.names, sources)
