"""Whole systems as values: each is one choice of the same five parts."""

from __future__ import annotations

from typing import Literal

from croupier.aggregate.mean import Mean, Scaled
from croupier.aggregate.signs import SignTrust
from croupier.encode.encoder import Weights
from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.encode.residues import Residues
from croupier.encode.signs import Signs
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.place.pair import Pair
from croupier.place.relay import Relay
from croupier.place.servers import SumServers
from croupier.privacy.gaussian import Gaussian
from croupier.release.release import Release
from croupier.release.rows import Rows
from croupier.release.scored import ScoredSum
from croupier.release.shuffle import Grain, Shuffle
from croupier.release.sums import Sum


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


def rain(clip: float = 0.3, sigma: float = 0.005, lr: float = 0.02, *, malicious: bool = True) -> Pipeline:
    """RAIN: noised signs on two servers' shares, shuffled, scored against a hidden reference, and summed."""
    return Pipeline(
        privacy=Gaussian(clip=clip, sigma=sigma), encode=Signs(), release=ScoredSum(), aggregate=SignTrust(lr=lr),
        place=Pair(malicious=malicious),
    )  # fmt: skip
