"""What an audit trains, what the adversary gets beside its views, and how much is tried; all arms share it.

Protocols can be compared only if clients learn the same thing under each of them. So what a description says about
learning is taken out of it here (`setting_of`), apart from the protocol. `audit.described` makes the `Setting`;
`audit.stage` and `audit.attacked_training` train by it, and the laboratory's benches and papers that audit make their
own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from croupier.audit.knowledge import Knowledge, Sample
from croupier.core.coins import Coins
from croupier.engine.federation import Federation
from croupier.errors import SpecError
from croupier.kernels.threads import cores
from croupier.learn.assemble import Assembled, Hardware, TaskOptions, assemble
from croupier.learn.augment import AS_IS, Augment
from croupier.learn.data import Data, Dataset
from croupier.learn.distort import CLEAN, Distortion
from croupier.learn.fewer import FewerRecords
from croupier.learn.fit import Fit
from croupier.learn.flat import frozen_of
from croupier.learn.models.network import Network
from croupier.learn.root import NONE, Root
from croupier.learn.split import Split
from croupier.spec import Spec

# Who holds which records: any split of the data, also one that keeps some back.
Cut = Callable[[Dataset, Coins], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Depth:
    """How much is tried where trying takes long.

    For hidden coordinates `rounds` of training are played, and so many `uploads` are matched in each. Of records that
    must be searched for, `searched` are tried, in so many `steps`. `lpips` names the network to measure LPIPS with as
    well. `models` is how many an adversary trains itself, `train` and `test` how many records are drawn of larger data;
    0 stands for the usual number, or all. `poisons` names what malicious clients try where that is not everything.
    """

    rounds: int = 5
    uploads: int = 5
    searched: int = 2
    steps: int = 100
    lpips: str = ""
    models: int = 0
    train: int = 0
    test: int = 0
    poisons: tuple[str, ...] = ()


# The usual depth, and that of `--fast`.
FULL, FAST = Depth(), Depth(rounds=3, uploads=3, searched=1, steps=50)


@dataclass(frozen=True)
class Setting:
    """What is learned, and what the adversary gets beside its view.

    `shadow` is the share of each client's records that is held out of its training and given to the adversary,
    distorted by `noise`; `fresh` the share that nobody trains on and that members are told from; `records` is how many
    training records of each client it is asked about at most. Without `suspects` nothing is set aside for membership
    attacks. `share` of the clients are malicious where it is asked what such clients break.
    """

    data: Data
    split: Split
    model: Network
    fit: Fit
    plan: Federation
    augment: Augment = AS_IS
    shadow: float = 0.05
    noise: Distortion = CLEAN
    fresh: float = 0.1
    records: int = 100
    suspects: bool = True
    together: int = 64
    folder: Path | None = None
    device: str = "cpu"
    workers: int = 1
    root: Root = NONE
    loss: str | None = None
    opaque: tuple[str, ...] = ()
    share: float = 0.25
    depth: Depth = FULL

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise SpecError(f"share = {self.share}: the malicious are a share of the clients from 0 to below 1")

    def assembled(self, coins: Coins, split: Cut | None = None) -> Assembled:
        """The task, on its own split or another one of the data. Raises: SpecError, DataError."""
        data, depth = self.data, self.depth
        if depth.train:
            drawn = coins.child("fewer records").export()
            data = FewerRecords(data=data, train=depth.train, test=depth.test, coins=drawn)
        options = TaskOptions(
            augment=self.augment, root=self.root, together=self.together, opaque=self.opaque, loss=self.loss
        )
        machine = Hardware(device=self.device, workers=self.workers)
        return assemble(
            data, split or self.split, self.model, self.fit, coins, options=options, folder=self.folder, machine=machine
        )

    def knowledge(
        self, made: Assembled, records: Sample, suspects: Sample, clients: tuple[str, ...] = (),
        shadows: tuple[Sample, ...] = (),
    ) -> Knowledge:  # fmt: skip
        """What an adversary knows of a task beside its views: all that is public, and these records."""
        return Knowledge(
            clients, self.model.plain(), self.fit.plain(), made.dataset.classes, records, shadows, suspects,
            frozen_of(made.module), {"loss": self.loss or made.dataset.goal}, self.depth.models,
        )  # fmt: skip


def setting_of(spec: Spec, folder: Path | None = None) -> Setting:
    """What a description says about learning."""
    task = spec.task
    return Setting(
        task.data, task.split, task.model, task.fit, spec.federation, task.augment,
        together=task.together, root=task.root, folder=folder, device=spec.run.device,
        workers=spec.run.workers or cores(), loss=task.loss, opaque=task.opaque,
    )  # fmt: skip
