"""replay: a view reproduces the bytes its party sent and its next memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from croupier.core import canon
from croupier.core.coins import Node
from croupier.core.update import Layout, Modulus
from croupier.core.view import replay
from croupier.errors import IntegrityError
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.shuffle import Shuffle
from tests.laws.pipelines import PIPELINES
from tests.laws.toy import CLIENTS, play, tap


def check(pipeline: Pipeline) -> None:
    """Replay every party of every round."""
    threat, sent = tap(pipeline)
    for done in play(pipeline, threat=threat):
        parties = pipeline.parties(CLIENTS)
        for name, view in done.views.items():
            letters, memory = replay(parties[name], view)
            wrote = sent.get((name, done.number), [])
            assert canon.digest(tuple(letters)) == canon.digest(tuple(wrote)), f"{name} sent something else"
            assert canon.digest(memory) == canon.digest(done.state.memories[name]), f"{name} remembers something else"


@pytest.mark.parametrize("name", PIPELINES)
def test_replay(name: str) -> None:
    check(PIPELINES[name])


class Moody(Shuffle, use="moody"):
    """A planted fault: permutations that are not from the party's coins."""

    def __call__(self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node) -> Mapping[str, Tensor]:
        """Shuffle by chance that no view holds."""
        # A permutation alone would come out the same twice now and then, and the fault would go unseen.
        chance = np.frombuffer(os.urandom(8 * len(rows)), "<u8") / 2**64
        return {"rows": torch.stack([row + float(moved) for row, moved in zip(rows, chance, strict=True)])}


def test_hidden_randomness_is_caught() -> None:
    with pytest.raises(AssertionError, match="relay sent something else"):
        check(Pipeline(release=Moody(), place=Relay()))


def test_a_view_that_lost_an_input_is_caught() -> None:
    pipeline = PIPELINES["parameter shuffle"]
    (done,) = play(pipeline, count=1)
    done.views["c0"].inputs.pop()
    with pytest.raises(IntegrityError, match="more than its view holds"):
        replay(pipeline.client, done.views["c0"])
