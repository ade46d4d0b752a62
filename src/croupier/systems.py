"""Whole systems as values: each is one choice of the same five parts.

They are offered in Python, as `croupier.rain()`. Each has the same five parts as a preset of that system; numbers may
differ (the preset `intra` has clip 0.1 and buckets of 4). They are pipelines like any other, to be changed, explained,
run and compared. `audit.arms` compares with most of them by default, and `advice` recommends from them.
"""

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
from croupier.place.relay import Relay
from croupier.place.servers import SumServers
from croupier.place.two_servers.pair import Pair
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

# IntraShuffler's five epsilons.
TIERS = (0.5, 1.0, 2.0, 4.0, 8.0)
# With fewer clients in a round these are not recommended, and audits do not compare with them unasked.
LEAST = {"rain": 10, "intra": 8}


def plain(weights: Weights = "open") -> Pipeline:
    """FedAvg as everybody runs it: the server sees every update.

    weights: whether clients count by their records, sent beside the update ("open"), or all alike ("uniform").
    """
    return Pipeline(encode=Floats(weights=weights), release=Rows(), aggregate=Mean(), place=Direct())


def naive(grain: Grain = "parameter") -> Pipeline:
    """FedAvg behind a relay that shuffles.

    grain: what is shuffled: whole models ("model"), each layer by itself ("layer") or each "parameter".
    """
    return Pipeline(encode=Floats(), release=Shuffle(grain=grain), aggregate=Mean(), place=Relay())


def total(clients: int, digits: int = 4) -> Pipeline:
    """FedAvg behind a relay that lets out nothing but the sum.

    clients: the most that are ever summed.
    digits: decimal digits of a weight, relative to the public scale.
    """
    encode = FixedPoint(clients=clients, digits=digits)
    return Pipeline(encode=encode, release=Sum(), aggregate=Scaled(), place=Relay())


def sum_servers(clients: int, digits: int = 4, servers: int = 3) -> Pipeline:
    """FedAvg behind several servers of which one honest one suffices: nothing but the sum comes out.

    clients: the most that are ever summed.
    digits: decimal digits of a weight, relative to the public scale.
    servers: how many servers share the sum.
    """
    encode = FixedPoint(clients=clients, digits=digits)
    return Pipeline(encode=encode, release=Sum(), aggregate=Scaled(), place=SumServers(servers=servers))


def rns(clients: int, digits: int = 4, release: Literal["bits", "counts", "mod"] = "mod") -> Pipeline:
    """RNS behind a trusted relay: integers as residues in unary.

    clients: the most that are ever summed.
    digits: decimal digits of a weight, relative to the public scale.
    release: what leaves the relay: all "bits" shuffled, "counts" of ones, or the sum's residues ("mod").
    """
    encode = Residues(clients=clients, digits=digits)
    return Pipeline(encode=encode, release=Release.parse(release), aggregate=Scaled(), place=Relay())


def intra(
    clip: float = 1.0, tiers: tuple[float, ...] = TIERS, smallest: int = 8, grain: Grain = "parameter",
    *, colluders: int = 0,
) -> Pipeline:  # fmt: skip
    """IntraShuffler: every client noises as its tier says, and values are shuffled inside buckets of like tiers.

    clip: the length to which an update is clipped.
    tiers: the public list of epsilons of one participation.
    smallest: the fewest clients of a bucket.
    grain: what is shuffled inside a bucket: "model", "layer" or "parameter".
    colluders: how many members of a bucket are assumed to tell what they sent.
    """
    return Pipeline(
        privacy=Tiers(clip=clip, tiers=tiers), encode=Floats(form="delta"),
        release=Buckets(smallest=smallest, grain=grain, colluders=colluders), place=Relay(),
    )  # fmt: skip


def intra_sum(
    clients: int, clip: float = 1.0, tiers: tuple[float, ...] = TIERS, smallest: int = 8, servers: int = 3,
    *, colluders: int = 0,
) -> Pipeline:  # fmt: skip
    """As `intra`, but only each bucket's sum comes out of servers, of which one honest one suffices.

    clients: the most that are ever summed.
    clip, tiers, smallest, colluders: as for `intra`.
    servers: how many servers share the sums.

    The grid is as fine and as wide as the central guarantee of sums asks for.
    """
    local = Tiers(clip=clip, tiers=tiers)
    scale, steps = grid(clip, [sigma_for(one, local.delta, clip) for one in tiers])
    return Pipeline(
        privacy=local, encode=FixedPoint(clients=clients, form="delta", scale=scale, steps=steps),
        release=BucketSums(smallest=smallest, colluders=colluders), place=SumServers(servers=servers),
    )  # fmt: skip


def rain(clip: float = 0.3, sigma: float = 0.005, lr: float = 0.02, *, malicious: bool = True) -> Pipeline:
    """RAIN: noised signs on two servers' shares, shuffled, scored against a hidden reference, and summed.

    clip: the length to which an update is clipped.
    sigma: the deviation of the noise on each coordinate, before its sign is taken.
    lr: how far the model goes along the mean of the accepted signs.
    malicious: whether one of the two servers may be malicious; if not, both are trusted to follow the protocol.
    """
    return Pipeline(
        privacy=Gaussian(clip=clip, sigma=sigma), encode=Signs(), release=ScoredSum(), aggregate=SignTrust(lr=lr),
        place=Pair(malicious=malicious),
    )  # fmt: skip


def tazza(*, kept: bool = False, first: Literal["clients", "open"] = "clients") -> Pipeline:
    """Tazza: weights under a rule that only clients know, grouped by their answers to probes, averaged by group.

    kept: one rule for the whole epoch instead of one a round, which is weaker.
    first: whether the "clients" draw the first model, or it is the server's, in the "open".
    """
    return Pipeline(encode=HiddenUnits(kept=kept, first=first), release=Rows(), aggregate=Clusters(), place=Direct())
