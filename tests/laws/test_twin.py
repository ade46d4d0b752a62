"""twin: swapping two honest clients (data and coins) changes nothing that the server of a hiding release can see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor

from croupier.core.coins import Coins, Label, Node
from croupier.core.flow import Received
from croupier.core.update import Layout, Modulus
from croupier.encode.fixed import FixedPoint
from croupier.engine.state import Round
from croupier.kernels import residues
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.place.two_servers.pair import Pair
from croupier.release.shuffle import Shuffle
from croupier.release.sums import Sum
from tests.laws.pipelines import PIPELINES
from tests.laws.toy import CLIENTS, SEED, layout_for, play, task

PAIR = {"c0": "c3", "c3": "c0"}


class Exchanged(Coins):
    """A tree in which two clients have changed places."""

    def child(self, *labels: Label) -> Exchanged:
        """Follow the other one's branch."""
        swapped = [PAIR.get(label, label) if isinstance(label, str) else label for label in labels]
        return Exchanged(super().child(*swapped).export())


def released(pipeline: Pipeline, done: Round) -> dict[str, Tensor]:
    """What the letters that reached the server amount to."""
    view = done.views["server"]
    inbox = [box for box in view.inputs if isinstance(box, tuple) and box and isinstance(box[0], Received)][-1]
    got = pipeline.place.opened(pipeline, view.given.roster, view.given.layout, inbox)
    if pipeline.release.unary and got.rows is not None:
        # Bits that were moved lie elsewhere when others sent them; which arrangement is seen is up to chance alone.
        modulus = pipeline.encode.modulus
        assert isinstance(modulus, tuple)
        slots = pipeline.encode.slots(view.given.layout)
        return {"ones": torch.from_numpy(residues.counts([row.numpy() for row in got.rows], slots, modulus))}
    return {name: values for name in ("rows", "sums") if (values := getattr(got, name)) is not None}


def check(pipeline: Pipeline) -> None:
    """Compare the server's arrays with and without the swap."""
    shards = {who: f"shard of {PAIR.get(who, who)}" for who in CLIENTS}
    here = released(pipeline, play(pipeline, count=1)[0])
    root = Exchanged(Coins.from_seed(SEED).export())
    there = released(
        pipeline, play(pipeline, count=1, coins=root, of=task(shards=shards, layout=layout_for(pipeline)))[0]
    )
    for name in here:
        one, other = here[name], there[name]
        if name == "rows":
            one, other = one.sort(0)[0], other.sort(0)[0]
        assert torch.equal(one, other), f"the server can tell the twins apart by {name}"


# Of two servers' work the server holds shares, which differ by chance: what they hide is the hide law's.
HIDING = [n for n, p in PIPELINES.items() if "ids" in p.release.hides and not isinstance(p.place, Pair)]


@pytest.mark.parametrize("name", HIDING)
def test_twin(name: str) -> None:
    check(PIPELINES[name])


class Ranked(Sum, use="ranked"):
    """A planted fault: later clients count for more."""

    def __call__(self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node) -> Mapping[str, Tensor]:
        """A sum that knows who is who."""
        return super().__call__(
            [row * (i + 1) % int(str(modulus)) for i, row in enumerate(rows)],
            layout,
            modulus,
            coins,
        )


class Marked(Shuffle, use="marked"):
    """A planted fault: every row carries its client's place."""

    def __call__(self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node) -> Mapping[str, Tensor]:
        """A shuffle that leaves a mark."""
        return super().__call__([row + i * 1e-3 for i, row in enumerate(rows)], layout, modulus, coins)


@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline(encode=FixedPoint(clients=80), release=Ranked(), place=Relay()),
        Pipeline(release=Marked(), place=Relay()),
    ],
)
def test_a_release_that_knows_who_is_who_is_caught(pipeline: Pipeline) -> None:
    with pytest.raises(AssertionError, match="tell the twins apart"):
        check(pipeline)


def test_without_a_release_that_hides_the_twins_differ() -> None:
    with pytest.raises(AssertionError, match="tell the twins apart"):
        check_rows(PIPELINES["rows behind a relay"])


def check_rows(pipeline: Pipeline) -> None:
    """The same comparison, order included."""
    shards = {who: f"shard of {PAIR.get(who, who)}" for who in CLIENTS}
    here = released(pipeline, play(pipeline, count=1)[0])["rows"]
    root = Exchanged(Coins.from_seed(SEED).export())
    there = released(
        pipeline, play(pipeline, count=1, coins=root, of=task(shards=shards, layout=layout_for(pipeline)))[0]
    )["rows"]
    assert torch.equal(here, there), "the server can tell the twins apart by rows"
