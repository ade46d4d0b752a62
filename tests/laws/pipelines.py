"""Every pipeline that the laws hold for. A new one joins by one line."""

from __future__ import annotations

from croupier.aggregate.median import Median
from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.rows import Rows
from croupier.release.shuffle import Shuffle
from croupier.systems import naive, plain, total
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
    "parameter shuffle, median": Pipeline(release=Shuffle(), aggregate=Median(), place=Relay()),
    "shuffled integers": Pipeline(encode=FixedPoint(clients=8), release=Shuffle(grain="layer"), place=Relay()),
    "sum": total(8),
    "sum, weighted": Pipeline.parse(
        {"encode": {"use": "fixed", "clients": 8, "weights": "slot", "cap": 50}, "release": "sum", "place": "relay"}
    ),
    "sum, wide": total(8, digits=9),
    "two hops, rows": Pipeline(release=Rows(), place=TwoHop()),
    "two hops, shuffle": Pipeline(release=Shuffle(), place=TwoHop()),
    "two hops, sum": total(8).model_copy(update={"place": TwoHop()}),
}
