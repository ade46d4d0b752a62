"""Every pipeline that the laws hold for. A new one joins by one line."""

from __future__ import annotations

from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.rows import Rows
from croupier.release.shuffle import Shuffle
from croupier.systems import naive, plain, rns, total
from tests.places.two_hop import TwoHop

PIPELINES: dict[str, Pipeline] = {
    "plain": plain(),
    "plain, uniform": plain("uniform"),
    "plain, differences": Pipeline(encode=Floats(form="delta")),
    "rows behind a relay": Pipeline(release=Rows(), place=Relay()),
    "model shuffle": naive("model"),
    "layer shuffle": naive("layer"),
    "parameter shuffle": naive("parameter"),
    "parameter shuffle, weighted": Pipeline(encode=Floats(weights="slot", cap=50), release=Shuffle(), place=Relay()),
    "shuffled integers": Pipeline(encode=FixedPoint(clients=8), release=Shuffle(grain="layer"), place=Relay()),
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
    "two hops, rows": Pipeline(release=Rows(), place=TwoHop()),
    "two hops, shuffle": Pipeline(release=Shuffle(), place=TwoHop()),
    "two hops, sum": total(8).model_copy(update={"place": TwoHop()}),
}
