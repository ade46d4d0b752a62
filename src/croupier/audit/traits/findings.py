"""What all rounds that an adversary saw tell of clients' traits and of links between rounds, scored against the truth.

The questions `traits` and `linkage` (`audit.questions.traits`) share one attack on all rounds together, and `findings`
mounts it once for both; only here and in `audit.traits.scores` do its answers meet the truth. Where the description
noises by tiers, one training of each noise serves every view (`audit.traits.tiers`), so that views can be compared. Of
any other protocol the real views are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from croupier.audit.attacks.traits import READ
from croupier.audit.attacks.traits.views import RoundView, differences, read_rounds
from croupier.audit.bench import Bench, PlayedRounds, is_undefended
from croupier.audit.question import SERVER, Adversary, Arm
from croupier.audit.seen import begun, seen, shows
from croupier.audit.traits.auxiliary import AuxiliaryClients, auxiliary_clients, with_all_households
from croupier.audit.traits.scores import AttackInput, Measures, RoundTruth, Scored, TraitTruth
from croupier.audit.traits.tiers import QUIET, TieredExperiment, TieredSetting, View
from croupier.core.coins import Coins
from croupier.core.update import Layout
from croupier.errors import SpecError
from croupier.pipeline import Pipeline

# Auxiliary clients train from the models of so many rounds, evenly spread over those that were seen.
_STUDIED = 4
# Links go nine rounds back: of longer runs the first rounds are enough, and fit into memory.
_LOOKED = 12


@dataclass(frozen=True)
class Findings:
    """What one adversary found in one run: measures, and those of the same knowledge without a view.

    `named` says that rows came with names; `sentences` who the auxiliary clients were, where there were any.
    """

    measures: Measures
    prior: Measures
    attributes: Sequence[str] = ()
    named: bool = False
    sentences: tuple[str, ...] = ()

    def table(self, title: str, names: Sequence[str]) -> list[dict[str, Any]]:
        """These measures beside those without a view, as a table for the report."""
        # Without auxiliary clients there is nothing to denoise with.
        how = "linear denoiser (optimal for the auxiliary mean and covariance)" if self.sentences else "as received"
        rows = [
            [name, f"{self.measures[name]:.3f}", f"{self.prior[name]:.3f}" if name in self.prior else ""]
            for name in names
        ]  # fmt: skip
        return [{"title": f"{title}, first run", "heads": ["measure", how, "without a view"], "rows": rows}]


def findings(bench: Bench, arm: Arm, adversary: Adversary) -> Callable[[], Findings]:
    """What an adversary finds in all rounds, for both questions at once."""
    case, experiment = tiered_case(bench, arm, adversary), tiered_experiment(bench)

    def make() -> Callable[[], Findings]:
        return cache(_tiers(bench, experiment, *case) if case and experiment else _read(bench, arm, adversary))

    return bench.once(("findings", adversary), make, arm)


def tiered_case(bench: Bench, arm: Arm, adversary: Adversary) -> tuple[str, View] | None:
    """The noise and the view in the experiment of the tiers that an arm amounts to for an adversary.

    None where the arm is no case of that experiment, so that its real views are read.
    """
    experiment = None if arm.changes else tiered_experiment(bench)
    if experiment is None:
        return None
    pipeline, kind = arm.pipeline, shows(arm.pipeline, adversary).kind
    if is_undefended(arm):
        return QUIET, "rows"
    if pipeline.privacy != experiment.tiered.privacy:
        return None
    if kind == "named":
        return "tiers", "rows"
    release = pipeline.release
    if release.tiered and release.pieces is not None and kind == release.pieces:
        return "tiers", release.pieces
    summed = release.tiered and release.grouped and adversary == SERVER
    return ("tiers", "sums") if summed else None


def tiered_experiment(bench: Bench) -> TieredExperiment | None:
    """The experiment on the tiers of the description's own protocol.

    None where it has no tiers, or where too few clients are left to learn from. Households that are no clients are the
    attacker's auxiliary clients.
    """

    def make() -> TieredExperiment | None:
        own = next((one.pipeline for one in bench.arms if one.own), None)
        tiers = own.privacy.as_tiers() if own else None
        if own is None or tiers is None:
            return None
        data, split = with_all_households(bench.setting.data, bench.setting.split)
        smallest, _ = own.release.bucket or (8, 0)
        setting = replace(bench.setting, data=data, split=split)
        try:
            return TieredExperiment(TieredSetting(setting, tiers, smallest), bench.coins)
        except SpecError:
            return None

    return bench.once("tiers", make)


def _tiers(bench: Bench, experiment: TieredExperiment, noise: str, view: View) -> Callable[[], Findings]:
    played = bench.once(("tiers", noise), lambda: _played(bench, experiment, noise))

    def done() -> Findings:
        count, clients = len(experiment.auxiliary.names), len(experiment.task.shards)
        says = _says(count, f"none of the {clients} attacked", experiment.tiered.every)
        if view == "parameter":
            says += (
                "All other members of a bucket, with the server, take their own values out of the shuffle: what is "
                "left is the last one's row, bit for bit.",
            )
        return Findings(*played()[view], tuple(experiment.attributes), view == "rows", says)

    return done


def _played(bench: Bench, experiment: TieredExperiment, noise: str) -> Callable[[], Scored]:
    """The scores of one training for all arms of a noise."""
    cases = [tiered_case(bench, arm, who) for arm in bench.arms for who in bench.adversaries(arm)]
    views = list(dict.fromkeys(case[1] for case in cases if case and case[0] == noise))

    def watch(stage: str) -> None:
        bench.watch(f"seed {bench.seed}: {stage}")

    rounds = tuple(experiment.rounds(experiment.task, noise, bench.drive, watch))
    return experiment.attack_input(noise, rounds, views, watch).asked_of(bench.panel)


def _says(count: int, who: str, every: int) -> tuple[str, ...]:
    return (
        f"The adversary holds the records of {count} auxiliary clients, {who}, and trains them itself from the models "
        f"of one in {every} rounds.",
    )


def auxiliary(bench: Bench, arm: Arm) -> AuxiliaryClients | SpecError:
    """Auxiliary clients of an arm's task, or why there are none."""
    stage = bench.stage(arm)

    def make() -> AuxiliaryClients | SpecError:
        try:
            return auxiliary_clients(stage)
        except SpecError as error:
            return error

    return bench.once(("auxiliary", stage.setting), make)


def _read(bench: Bench, arm: Arm, adversary: Adversary) -> Callable[[], Findings]:
    stage, played, pipeline = bench.stage(arm), bench.played(arm), arm.pipeline
    shown = {at: views for at, views in played.shown_to(adversary).items() if views and at < _LOOKED}
    if not shown:
        return lambda: Findings({}, {})
    starts = {played.rounds[at].number: played.starts[at] for at in shown}
    every = math.ceil(len(starts) / _STUDIED)
    aux, node = auxiliary(bench, arm), stage.coins.child("traits", arm.node or arm.key, adversary.key)
    known = aux if isinstance(aux, AuxiliaryClients) else None
    updates = None
    if known:
        clip = getattr(pipeline.privacy, "clip", math.inf)
        # In the order of what is read: a client of hidden coordinates undoes theirs, and whoever trains needs that.
        studied = {
            number: begun(views, pipeline.plain(), start)
            for (number, start), views in list(zip(starts.items(), shown.values(), strict=True))[::every]
        }
        updates = known.learn_from(studied, clip, stage.coins.child("auxiliary"))
    asked = {
        "rounds": tuple(
            {"number": number, "views": views, "start": start}
            for (number, start), views in zip(starts.items(), shown.values(), strict=True)
        ),
        "protocol": pipeline.plain(), "layout": tuple(asdict(one) for one in stage.task.layout.slices),
        "coins": node.export(),
    }  # fmt: skip
    rounds = tuple(
        _truth(one, pipeline, played, at, stage.task.layout, node.child("ties"))
        for one, at in zip(read_rounds(asked), shown, strict=True)
    )
    truth = TraitTruth(rounds, known.attributes if known else {})
    # All deviations of noise that there may be.
    tiers = [pipeline.privacy.tier(who) for at in shown for who in played.rounds[at].present]
    told = {
        "auxiliary": vars(updates) if updates else None,
        "levels": torch.unique(torch.tensor([one.sigma if one else 0.0 for one in tiers], dtype=torch.float64)),
        "coins": stage.coins.child("traits study").export(),
    }
    guesses = known.guesses(updates) if known and updates else {}
    named, attributes = all(one.view.named for one in rounds), tuple(truth.attributes)
    answer = AttackInput(told, asked, {READ: truth}, guesses).asked_of(bench.panel)

    def done() -> Findings:
        says = _says(len(known.names), "none of those attacked", every) if known else ()
        return Findings(*answer()[READ], attributes, named, says)

    return done


def _truth(
    view: RoundView, pipeline: Pipeline, played: PlayedRounds, at: int, layout: Layout, coins: Coins
) -> RoundTruth:
    """The view with the truth beside it: whose each coordinate is."""
    names = played.rounds[at].present
    if view.named:
        return RoundTruth.of_named(view)
    if bool((view.counts > 1).any()):
        return RoundTruth(view, names, None)
    # Who shuffles knows what it was sent by whom.
    relay, start = played.seen_by(Adversary(("relay",)), at), played.starts[at]
    got = seen(relay, pipeline.plain(), layout, start)
    sent = dict(zip(got.ids or (), differences(got, start), strict=True))
    sources = torch.empty(view.rows.shape, dtype=torch.int64)
    for bucket, members in enumerate(view.members):
        inside = view.bucket == bucket
        own = torch.stack([sent[who] for who in members])
        numbers = torch.tensor([names.index(who) for who in members])
        sources[inside] = numbers[matched(view.rows[inside], own, coins.child(at, bucket))]
    return RoundTruth(view, names, sources)


def matched(rows: Tensor, sent: Tensor, coins: Coins) -> Tensor:
    """Which row was sent as each shuffled value, by rank, coordinate by coordinate; of equal ones any, at random."""
    mixed = torch.rand(sent.shape, generator=coins.fast()).argsort(0)
    order = mixed.gather(0, sent.gather(0, mixed).argsort(dim=0, stable=True))
    return torch.empty_like(order).scatter_(0, rows.argsort(0), order)
