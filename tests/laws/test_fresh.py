"""fresh: every node of coins is drawn once, and carries the run, round and attempt (or participation) it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from croupier.core.coins import Coins, Label, Node, Stream
from croupier.core.flow import Letter
from croupier.core.update import Layout, Modulus, Update
from croupier.core.view import View
from croupier.engine.state import Threat, run_id
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.privacy.local import LocalPrivacy, ParticipationCost
from croupier.release.shuffle import Shuffle
from tests.laws.pipelines import PIPELINES
from tests.laws.toy import CLIENTS, absent, play
from tests.places.two_hop import TwoHop

Path = tuple[Label, ...]


class Watched(Coins):
    """Coins that write down which of their nodes were drawn from."""

    path: Path = ()
    drawn: list[Path]

    def __init__(self, seed: bytes) -> None:
        super().__init__(seed)
        self.drawn = []

    def child(self, *labels: Label) -> Watched:
        """A watched node."""
        below = Watched(super().child(*labels).export())
        below.path, below.drawn = (*self.path, *labels), self.drawn
        return below

    def secure(self) -> Stream:
        """Draw, and write it down."""
        self.drawn.append(self.path)
        return super().secure()


def nodes(pipeline: Pipeline, threat: Threat | None = None) -> list[Path]:
    """All nodes drawn in three rounds."""
    root = Watched(Coins.from_seed(5).export())
    play(pipeline, count=3, coins=root, threat=threat)
    return root.drawn


def check(pipeline: Pipeline, threat: Threat | None = None) -> None:
    """Drawn once, and bound."""
    drawn = nodes(pipeline, threat)
    twice = {path for path in drawn if drawn.count(path) > 1}
    assert not twice, f"drawn twice: {twice}"
    run = run_id(Coins.from_seed(5))
    for path in drawn:
        assert path[0] == "party"
        if path[-1] == "mask":
            assert any(isinstance(label, bytes) and len(label) == 32 for label in path), f"no roster: {path}"
        assert path[2:4] == ("run", run)
        assert path[4] == "round"
        own = path[1] in CLIENTS and ("toy" in path or "encode" in path or "privacy" in path)
        assert ("participation" if own else "attempt") in path, f"unbound: {path}"


@pytest.mark.parametrize("name", PIPELINES)
def test_fresh(name: str) -> None:
    check(PIPELINES[name])


@pytest.mark.parametrize("release", ["shuffle", "sum"])
def test_a_second_attempt_draws_fresh_coins_and_sends_the_same_update(release: str) -> None:
    base = PIPELINES["two hops, shuffle" if release == "shuffle" else "two hops, sum"]
    pipeline = base.model_copy(update={"place": TwoHop(patient=True)})
    seen: dict[tuple[str, int, int], bytes] = {}

    def listen(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        for letter in letters:
            if letter.kind == "up" and not isinstance(letter.body, bytes):
                key = (view.party, view.given.round, view.given.attempt)
                seen[key] = letter.body["vector"].numpy().tobytes()
        return letters

    threat = replace(absent("c1"), corrupted=dict.fromkeys(CLIENTS, listen))
    done = play(pipeline, threat=threat)
    assert [one.attempt for one in done] == [1, 1]
    assert done[0].cohort == ("c0", "c2", "c3")
    assert seen["c0", 0, 0] == seen["c0", 0, 1]
    assert seen["c0", 0, 0] != seen["c0", 1, 0]
    check(pipeline, absent("c1"))
    middle = [path for path in nodes(pipeline, absent("c1")) if path[1] == "second"]
    assert all(path[6:8] == ("attempt", 1) for path in middle), "a middle party drew from another attempt's node"


class Dither(LocalPrivacy, use="dither"):
    """A little noise, to see which node it comes from."""

    def __call__(self, update: Update, coins: Coins) -> tuple[Update, ParticipationCost]:
        """Add it."""
        noise = torch.from_numpy(coins.secure().normal(len(update.vector))).float()
        return replace(update, vector=update.vector + 1e-3 * noise), ParticipationCost("dither")

    def claims(self, participations: int = 1) -> str:
        """None."""
        return "none"


def test_noise_belongs_to_the_participation_and_outlives_an_attempt() -> None:
    pipeline = Pipeline(privacy=Dither(), release=Shuffle(), place=TwoHop(patient=True))
    seen: dict[tuple[int, int], bytes] = {}

    def listen(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        for letter in letters:
            if not isinstance(letter.body, bytes):
                seen[view.given.round, view.given.attempt] = letter.body["vector"].numpy().tobytes()
        return letters

    play(pipeline, threat=replace(absent("c1"), corrupted={"c0": listen}))
    assert seen[0, 0] == seen[0, 1]
    assert seen[1, 0] == seen[1, 1]
    assert seen[0, 0] != seen[1, 0]


@pytest.mark.parametrize("name", PIPELINES)
def test_no_partys_coins_lead_to_anothers(name: str) -> None:
    (done,) = play(PIPELINES[name], count=1)
    assert all(view.coins._above is None for view in done.views.values())


class Stuck(Shuffle, use="stuck"):
    """A planted fault: every block is permuted by the same node."""

    def __call__(self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node) -> Mapping[str, Tensor]:
        """Draw twice from one node."""
        coins.child("block", 0).secure()
        return super().__call__(rows, layout, modulus, coins)


def test_a_reused_node_is_caught() -> None:
    with pytest.raises(AssertionError, match="drawn twice"):
        check(Pipeline(release=Stuck(), place=Relay()))
