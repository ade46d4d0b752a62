"""Whole systems as values: each is one choice of the same five parts."""

from __future__ import annotations

from typing import Literal

from croupier.aggregate.clusters import Clusters
from croupier.aggregate.mean import Mean, Scaled
from croupier.aggregate.signs import SignTrust
from croupier.encode.encoder import Weights
from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.encode.hidden import HiddenUnits
from croupier.encode.residues import Residues
from croupier.encode.signs import Signs
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.place.pair import Pair
from croupier.place.relay import Relay
from croupier.place.servers import SumServers
from croupier.privacy.central import grid
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.gdp import sigma_for
from croupier.privacy.tiers import Tiers
from croupier.release.bucketed import Buckets, BucketSums
from croupier.release.release import Release
from croupier.release.rows import Rows
from croupier.release.scored import ScoredSum
from croupier.release.shuffle import Grain, Shuffle
from croupier.release.sums import Sum

# The paper's five.
TIERS = (0.5, 1.0, 2.0, 4.0, 8.0)


def plain(weights: Weights = "open") -> Pipeline:
    """FedAvg as everybody runs it: the server sees every update."""
    return Pipeline(encode=Floats(weights=weights), release=Rows(), aggregate=Mean(), place=Direct())


def naive(grain: Grain = "parameter") -> Pipeline:
    """FedAvg behind a relay that shuffles whole models, layers or single parameters."""
    return Pipeline(encode=Floats(), release=Shuffle(grain=grain), aggregate=Mean(), place=Relay())


def total(clients: int, digits: int = 4) -> Pipeline:
    """FedAvg behind a relay that lets out nothing but the sum."""
    encode = FixedPoint(clients=clients, digits=digits)
    return Pipeline(encode=encode, release=Sum(), aggregate=Scaled(), place=Relay())


def sum_servers(clients: int, digits: int = 4, servers: int = 3) -> Pipeline:
    """FedAvg behind several servers of which one honest one suffices: nothing but the sum comes out."""
    encode = FixedPoint(clients=clients, digits=digits)
    return Pipeline(encode=encode, release=Sum(), aggregate=Scaled(), place=SumServers(servers=servers))


def rns(clients: int, digits: int = 4, release: Literal["bits", "counts", "mod"] = "mod") -> Pipeline:
    """RNS behind a trusted relay: residues in unary, of which shuffled bits, counts or the sum's residues leave."""
    encode = Residues(clients=clients, digits=digits)
    return Pipeline(encode=encode, release=Release.parse(release), aggregate=Scaled(), place=Relay())


def intra(
    clip: float = 1.0, tiers: tuple[float, ...] = TIERS, smallest: int = 8, grain: Grain = "parameter",
    *, colluders: int = 0,
) -> Pipeline:  # fmt: skip
    """IntraShuffler: every client noises as its tier says, and values are shuffled inside buckets of like tiers."""
    return Pipeline(
        privacy=Tiers(clip=clip, tiers=tiers), encode=Floats(form="delta"),
        release=Buckets(smallest=smallest, grain=grain, colluders=colluders), place=Relay(),
    )  # fmt: skip


def intra_sum(
    clients: int, clip: float = 1.0, tiers: tuple[float, ...] = TIERS, smallest: int = 8, servers: int = 3,
    *, colluders: int = 0,
) -> Pipeline:  # fmt: skip
    """The same noise, of which nothing but each bucket's sum comes out of servers of which one honest one suffices.

    The grid is as fine and as wide as the central guarantee of sums asks for.
    """
    local = Tiers(clip=clip, tiers=tiers)
    scale, steps = grid(clip, [sigma_for(one, local.delta, clip) for one in tiers])
    return Pipeline(
        privacy=local, encode=FixedPoint(clients=clients, form="delta", scale=scale, steps=steps),
        release=BucketSums(smallest=smallest, colluders=colluders), place=SumServers(servers=servers),
    )  # fmt: skip


def rain(clip: float = 0.3, sigma: float = 0.005, lr: float = 0.02, *, malicious: bool = True) -> Pipeline:
    """RAIN: noised signs on two servers' shares, shuffled, scored against a hidden reference, and summed."""
    return Pipeline(
        privacy=Gaussian(clip=clip, sigma=sigma), encode=Signs(), release=ScoredSum(), aggregate=SignTrust(lr=lr),
        place=Pair(malicious=malicious),
    )  # fmt: skip


def tazza(*, kept: bool = False, first: Literal["clients", "open"] = "clients") -> Pipeline:
    """Tazza: weights under a rule that only clients know, grouped by their answers to probes, averaged by group."""
    return Pipeline(encode=HiddenUnits(kept=kept, first=first), release=Rows(), aggregate=Clusters(), place=Direct())
