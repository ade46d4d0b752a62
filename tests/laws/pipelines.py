"""Every pipeline that the laws hold for. A new one joins by one line."""

from __future__ import annotations

from typing import Any

from croupier.aggregate.mean import Mean, Scaled
from croupier.aggregate.median import Median
from croupier.aggregate.signs import SignTrust
from croupier.aggregate.step import FedYogi
from croupier.encode.encoder import Encoder
from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.encode.hidden import HiddenUnits
from croupier.encode.residues import Residues
from croupier.encode.signs import Signs
from croupier.pipeline import Pipeline
from croupier.place.chain.chain import Chain
from croupier.place.masks import Masks
from croupier.place.placement import Placement
from croupier.place.relay import Relay
from croupier.place.servers import SumServers
from croupier.place.two_servers.pair import Pair
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.response import Response
from croupier.privacy.tiers import Tiers
from croupier.release.bits import Bits
from croupier.release.bucketed import Buckets, BucketSums
from croupier.release.groups import Groups
from croupier.release.rows import Rows
from croupier.release.scored import ScoredSum
from croupier.release.shuffle import Grain, Shuffle
from croupier.release.sums import Sum
from croupier.systems import naive, plain, rns, total
from tests.places.two_hop import TwoHop


def signed(place: Placement, rule: SignTrust | None = None, **more: Any) -> Pipeline:
    """Rows of signs, scored; so few clients and coordinates that nothing is turned away for being few."""
    loose = ScoredSum(gate=False, among=1, **more)
    return Pipeline(encode=Signs(), release=loose, aggregate=rule or SignTrust(), place=place)


def placed(pipeline: Pipeline, place: Placement) -> Pipeline:
    """The same pipeline, with other parties between clients and server."""
    return Pipeline.parse({**pipeline.plain(), "place": place.plain()})


BY_SIGN = SignTrust(output="sign")
# The twins of the laws, c0 and c3, are of one tier; when one of them is missing, the buckets merge.
TIERS = Tiers(clip=1, tiers=(2, 8), wishes={"c0": 2, "c1": 8, "c2": 8, "c3": 2})
GRID = FixedPoint(clients=8, form="delta", scale=64, steps=512)


def bucketed(place: Placement, grain: Grain | None = None, encode: Encoder | None = None) -> Pipeline:
    """Buckets of two clients or more: shuffled, or only their sums."""
    release = BucketSums(smallest=2) if grain is None else Buckets(smallest=2, grain=grain)
    return Pipeline(privacy=TIERS, encode=encode or (GRID if grain is None else DELTAS), release=release, place=place)


DELTAS = Floats(form="delta")


PIPELINES: dict[str, Pipeline] = {
    "plain": plain(),
    "plain, uniform": plain("uniform"),
    "plain, differences": Pipeline(encode=Floats(form="delta")),
    "rows behind a relay": Pipeline(release=Rows(), place=Relay()),
    "model shuffle": naive("model"),
    "layer shuffle": naive("layer"),
    "parameter shuffle": naive("parameter"),
    "parameter shuffle, weighted": Pipeline(encode=Floats(weights="slot", cap=50), release=Shuffle(), place=Relay()),
    "parameter shuffle, median": Pipeline(release=Shuffle(), aggregate=Median(), place=Relay()),
    "parameter shuffle, adaptive step": Pipeline(release=Shuffle(), aggregate=Mean(step=FedYogi()), place=Relay()),
    "shuffled integers": Pipeline(encode=FixedPoint(clients=8), release=Shuffle(grain="layer"), place=Relay()),
    "shuffled models, Gaussian noise": Pipeline(
        privacy=Gaussian(clip=1, sigma=0.1), encode=Floats(form="delta"), release=Shuffle(grain="model"), place=Relay()
    ),
    # Tiers are public: only clients of one tier can be each other's twins.
    "shuffled models, in tiers": Pipeline(
        privacy=Tiers(clip=1, wishes={"c0": 4.0, "c1": 1.0, "c2": 1.0, "c3": 4.0}, budgets=(40.0,)),
        encode=Floats(form="delta"),
        release=Shuffle(grain="model"),
        place=Relay(),
    ),
    "shuffled models, randomised response": Pipeline(
        privacy=Response(coordinates=2, epsilon=2),
        encode=Floats(form="delta"),
        release=Shuffle(grain="model"),
        place=Relay(),
    ),
    "sum": total(8),
    "sum, weighted": Pipeline.parse(
        {"encode": {"use": "fixed", "clients": 8, "weights": "slot", "cap": 50}, "release": "sum", "place": "relay"}
    ),
    "sum, wide": total(8, digits=9),
    "bits": rns(8, release="bits"),
    "counts": rns(8, release="counts"),
    "residues of sums": rns(8),
    "residues of sums, weighted, in steps, at random": Pipeline.parse(
        {
            "encode": {
                "use": "residues",
                "clients": 8,
                "weights": "slot",
                "cap": 50,
                "steps": 127,
                "rounding": "stochastic",
            },
            "release": "mod",
            "place": "relay",
        }
    ),
    "sum servers": Pipeline(encode=FixedPoint(clients=8), release=Sum(), aggregate=Scaled(), place=SumServers()),
    "two sum servers, weighted": Pipeline.parse(
        {
            "encode": {"use": "fixed", "clients": 8, "weights": "slot", "cap": 50, "digits": 9},
            "release": "sum",
            "place": {"use": "sum-servers", "servers": 2},
        }
    ),
    "masks": Pipeline(encode=FixedPoint(clients=8), release=Sum(), aggregate=Scaled(), place=Masks()),
    "median of groups": Pipeline(
        encode=FixedPoint(clients=8), release=Groups(size=3), aggregate=Median(), place=Relay()
    ),
    "buckets of models": bucketed(Relay(), "model"),
    "buckets of layers": bucketed(Relay(), "layer"),
    "buckets of parameters": bucketed(Relay(), "parameter"),
    "buckets of integers": bucketed(Relay(), "parameter", GRID),
    "buckets of one tier": bucketed(Relay(), "parameter").model_copy(update={"privacy": Gaussian(clip=1, sigma=2)}),
    "sums of buckets": bucketed(Relay()),
    "sums of buckets, sum servers": bucketed(SumServers()),
    "sums of buckets, wide, two sum servers": bucketed(
        SumServers(servers=2), encode=FixedPoint(clients=8, form="delta", scale=64, digits=9)
    ),
    "two hops, buckets": bucketed(TwoHop(), "parameter"),
    "scored sum": signed(Relay()),
    "two servers": signed(Pair(malicious=False)),
    "two servers, one malicious": signed(Pair(entropy=0)),
    "two servers, one malicious, by products, a public reference": signed(
        Pair(entropy=0, check="product"), SignTrust(shown="public", output="sign", reference="last")
    ),
    "scored signs": signed(Relay(), BY_SIGN, opens="signs"),
    "two servers, signs": signed(Pair(malicious=False), BY_SIGN, opens="signs"),
    "two servers, secret scores": signed(
        Pair(malicious=False), BY_SIGN, opens="signs", scores="secret", weights="relu"
    ),
    "two servers, translated": signed(Pair(malicious=False, shuffle="translate")),
    "two servers, transferred": signed(Pair(malicious=False, shuffle="transfer")),
    "two servers, boxes": signed(Pair(malicious=False, shuffle="onion"), BY_SIGN, opens="signs"),
    "two servers, one malicious, three sets": signed(Pair(entropy=0, decks=3)),
    "two servers, two sets": signed(Pair(malicious=False, decks=2)),
    "shuffled signs": Pipeline(encode=Signs(), release=Shuffle(grain="model"), aggregate=Mean(), place=Relay()),
    "bits, chain": placed(rns(8, release="bits"), Chain()),
    "parameter shuffle, chain of two": placed(naive("parameter"), Chain(servers=2)),
    "shuffled integers, chain": Pipeline(
        encode=FixedPoint(clients=8), release=Shuffle(grain="layer"), place=Chain(smallest=2)
    ),
    "buckets of parameters, chain": bucketed(Chain(), "parameter"),
    "bits, chain of pairs": placed(rns(8, release="bits"), Chain(shuffle="pairs")),
    "shuffled models, chain of boxes": placed(naive("model"), Chain(shuffle="onion")),
    "shuffled models, boxes in escrow": placed(naive("model"), Chain(shuffle="onion", threshold=2)),
    "bits, chain that clients run": placed(rns(4, release="bits"), Chain(servers=4, clients_mix=True)),
    "bits, chain that proves": Pipeline(
        encode=Residues(clients=4, steps=7),
        release=Bits(),
        aggregate=Scaled(),
        place=Chain(trust="malicious", servers=2, proven=0.5),
    ),
    "bits, trusted chain": placed(rns(8, release="bits"), Chain(trust="full")),
    "two hops, rows": Pipeline(release=Rows(), place=TwoHop()),
    "two hops, shuffle": Pipeline(release=Shuffle(), place=TwoHop()),
    "two hops, sum": total(8).model_copy(update={"place": TwoHop()}),
}

# Those that complete with the clients present; the others lose the round when one is missing.
COMPLETING = [name for name, pipeline in PIPELINES.items() if not isinstance(pipeline.place, Masks)]

# In coordinates of the clients' own: what they agree on first is no round, and what a client sends is not what it made.
HIDDEN: dict[str, Pipeline] = {
    "hidden units": Pipeline(encode=HiddenUnits()),
    "hidden units, one frame, differences": Pipeline(encode=HiddenUnits(form="delta", kept=True)),
    "hidden units, from an open start": Pipeline(encode=HiddenUnits(first="open")),
    "hidden units, agreed on every round": Pipeline(encode=HiddenUnits(agree="round")),
    "hidden units, agreed on every round by PBFT": Pipeline(encode=HiddenUnits(agree="round", by="pbft")),
}
