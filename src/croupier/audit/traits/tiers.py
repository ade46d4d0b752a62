"""Noise by tiers under attack: one training of each noise serves every view, so that views can be compared.

If every view had a training of its own, differences between two views would partly be chance. So
`TieredExperiment` trains once on the real loop, keeps the named and noised rows, and computes each release from the
same rows (`released`), with the truth of whose value is where. `audit.traits.findings` uses it for audits of protocols
such as `intra`; the laboratory's `attacks/tiers` and its papers `papers/intra` build on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from croupier.aggregate.mean import Mean
from croupier.audit.attacks.traits.views import RoundView, bucket_view, named_view
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
# The name of the training without noise.
QUIET = "no noise"
# The model that was handed out in a round, and what its clients sent, by name.
PlayedRound = tuple[Tensor, RoundView]
# Sums are of whole numbers: the clip is so many steps of them.
_STEPS = 1 << 24


@dataclass(frozen=True)
class TieredSetting:
    """A setting with its tiers of noise.

    `smallest` is the least size of a bucket. Auxiliary clients are trained from the model of one in `every` rounds.
    """

    setting: Setting
    privacy: Tiers
    smallest: int = 8
    every: int = 5


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

    def privacy(self, noise: str) -> Tiers:
        """The public tiers, which put clients into buckets, whether or not there is noise."""
        return self.tiered.privacy

    def rounds(self, task: Task, noise: str, drive: Drive, watch: Watch) -> Iterator[PlayedRound]:
        """Train on the real loop, every client counting alike, and take down each round."""
        plan, tiers = self.tiered.setting.plan, self.privacy(noise)
        # No noise is the same clipping with a deviation of nought.
        quiet = Gaussian(clip=tiers.clip, sigma=0, delta=tiers.delta)
        pipeline = Pipeline(
            privacy=quiet if noise == QUIET else tiers, encode=Floats(weights="uniform", form="delta"), release=Rows(),
            aggregate=Mean(), place=Direct(),
        )  # fmt: skip
        # How well the model does is another question than what it tells.
        task, start = replace(task, evaluate=lambda _: {}), task.first.vector
        for done in rounds(pipeline, task, plan, self.coins, drive, keep={"server": "keep"}):
            watch(f"{noise}: round {done.number + 1} of {plan.rounds}")
            seen = read_server(facts(done.views["server"]), pipeline.plain(), task.layout)
            if seen.rows is None or seen.ids is None:
                raise ProtocolError(f"round {done.number + 1}: no named rows to look at")
            added = {who: 0.0 if noise == QUIET else tiers.tier(who).sigma for who in seen.ids}
            yield start, named_view(done.number, seen.rows, seen.ids, added.__getitem__)
            start = done.state.model.vector

    def attack_input(
        self, noise: str, played: Sequence[PlayedRound], views: Sequence[View], watch: Watch
    ) -> AttackInput:  # fmt: skip
        """What attacks are sent of these rounds: every view of them, and what auxiliary clients learn."""
        watch(f"{noise}: auxiliary clients")
        tiers = self.privacy(noise)
        starts = {one.number: start for start, one in played if one.number % self.tiered.every == 0}
        auxiliary = self.auxiliary.learn_from(starts, tiers.clip, self.coins)
        truths: dict[str, TraitTruth] = {}
        for view in views:
            coins = [self.coins.child("release", noise, view, one.number) for _, one in played]
            each = [
                released(view, one, tiers, self.tiered.smallest, self.task.layout, own)
                for (_, one), own in zip(played, coins, strict=True)
            ]
            truths[view] = TraitTruth(tuple(each), self.attributes)
        watch(f"{noise}: attacks")
        node = self.coins.child("attack", noise)
        levels = torch.tensor(tiers.sigmas, dtype=torch.float64) * (noise != QUIET)
        known = {"auxiliary": vars(auxiliary), "levels": levels, "coins": node.child("study").export()}
        shown = {view: tuple(vars(one.view) for one in truth.rounds) for view, truth in truths.items()}
        return AttackInput(known, {"shown": shown, "coins": node.export()}, truths, self.auxiliary.guesses(auxiliary))


def released(view: View, one: RoundView, public: Tiers, smallest: int, layout: Layout, coins: Coins) -> RoundTruth:
    """One round of named rows through one release. Raises: ProtocolError when its clients do not fill a bucket."""
    if view == "rows":
        return RoundTruth.of_named(one)
    tiers = [public.tier(who) for who in one.names]
    sigma = {who: noise for (who,), (noise,) in zip(one.members, one.deviations, strict=True)}.__getitem__
    if view == "sums":
        release, clip = BucketSums(smallest=smallest), public.clip
        # Sums are of whole numbers, as sum servers make them: exact, and far below 2^53.
        whole = (one.rows.double() * (_STEPS / clip)).round()
        each = [whole[list(bucket.members)].sum(0) * (clip / _STEPS) / bucket.size for bucket in release.buckets(tiers)]
        rows = torch.stack(each).float()
        return RoundTruth(bucket_view(one.number, rows, one.names, release, tiers, sigma), one.names, None)
    shuffle = Buckets(grain=view, smallest=smallest)
    rows = shuffle.within(list(one.rows), layout, None, coins, tiers)["rows"]
    # The same coins move the members' numbers as they moved their values.
    numbers = [torch.full_like(one.rows[0], float(at)) for at in range(len(one.rows))]
    sources = shuffle.within(numbers, layout, None, coins, tiers)["rows"].to(torch.int64)
    return RoundTruth(bucket_view(one.number, rows, one.names, shuffle, tiers, sigma), one.names, sources)
