"""Show that the same noised updates give the same model when shown plainly, shuffled by rows or values, or in buckets.

A mean does not see the order of its terms, so what a release hides costs no accuracy at equal noise. `utility_table`
calls `differences`, and Tables 3 and 8 print the largest difference of any weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from croupier.aggregate.mean import Mean
from croupier.core.coins import Coins
from croupier.encode.floats import Floats
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.place.relay import Relay
from croupier.release.bucketed import Buckets
from croupier.release.rows import Rows
from croupier.release.shuffle import Shuffle
from croupier_lab.papers.intra.protocols import SMALLEST, NoiseArm, privacy
from croupier_lab.papers.shared.trainings import PublicTask, TrainingTask

# So many rounds are run to show it.
SHOWN = 3
USUAL = NoiseArm("cosine")


def ways(known: PublicTask, cohort: int, arm: NoiseArm) -> Mapping[str, Pipeline]:
    """The paper's columns as pipelines that differ only in the release and in who passes rows on."""
    parts = {"privacy": privacy(arm, known), "encode": Floats(form="delta", weights="uniform"), "aggregate": Mean()}
    smallest = min(SMALLEST, cohort)
    return {
        "Plain FL-DP": Pipeline(**parts, release=Rows(), place=Direct()),
        "Shuffle-DP": Pipeline(**parts, release=Shuffle(grain="model"), place=Relay()),
        "IntraShuffler": Pipeline(**parts, release=Buckets(smallest=smallest), place=Relay()),
        "no bucket": Pipeline(**parts, release=Shuffle(grain="parameter"), place=Relay()),
    }


def differences(work: TrainingTask, known: PublicTask, seed: int, arm: NoiseArm = USUAL) -> dict[str, float]:
    """The largest difference of any weight from the model of Plain FL-DP, by way, after a few rounds of one seed."""
    short = replace(work, plan=work.plan.model_copy(update={"rounds": min(SHOWN, work.plan.rounds)}))
    cohort = work.plan.cohort or work.clients
    ends = {name: _last(short, way, seed) for name, way in ways(known, cohort, arm).items()}
    plain = ends["Plain FL-DP"]
    return {name: float((vector - plain).abs().max()) for name, vector in ends.items()}


def _last(work: TrainingTask, pipeline: Pipeline, seed: int) -> Tensor:
    coins = Coins.from_seed(seed)
    task = replace(work.built(coins).task, evaluate=lambda _: {})
    *_, done = rounds(pipeline, task, work.plan, coins, Local())
    return done.state.model.vector
