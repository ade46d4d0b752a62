"""One seed of an audit: what its questions share, so that nothing is trained or attacked twice.

A `Bench` has the task of the seed with records withheld for the adversary, the rounds of an arm with every party's
view, and whatever questions make of these. `audit.harness` makes one for each seed and hands it to every question
(`audit.questions`); in the laboratory `source_inference/experiment`, `bench/leakage/disaggregation` and
`bench/leakage/false_alarms` make their own. It has nothing to do with the command `croupier bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import Any, TypeVar

from torch import Tensor

from croupier.audit.blind import Panel
from croupier.audit.client_view import handed
from croupier.audit.question import SERVER, Adversary, Arm
from croupier.audit.report.read import LOST
from croupier.audit.setting import Setting
from croupier.audit.stage import Stage
from croupier.core.attempt import Drive
from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.core.view import facts
from croupier.engine.loop import rounds
from croupier.engine.state import Round
from croupier.engine.task import Fits
from croupier.errors import CroupierError, ProtocolError
from croupier.learn.distort import CLEAN

# Hears a line now and then, as work goes on: `croupier audit` shows these lines.
Watch = Callable[[str], None]
Made = TypeVar("Made")


@dataclass(frozen=True)
class PlayedRounds:
    """A protocol's rounds, with everybody's view as plain values: by round, then by party.

    `starts` is the model that was handed out in each round, as its first client got it; `coins` are everybody's own;
    `seconds` is what a round takes beside training, all parties on this machine; `lost` is why there are no rounds.
    """

    rounds: tuple[Round, ...]
    views: tuple[Mapping[str, Mapping[str, Any]], ...] = field(repr=False)
    starts: tuple[Tensor, ...] = field(repr=False)
    coins: tuple[Mapping[str, bytes], ...] = field(default=(), repr=False)
    seconds: float = 0.0
    lost: str = f"{LOST}: too few clients could take part"

    def seen_by(self, adversary: Adversary, at: int) -> dict[str, tuple[Mapping[str, Any], ...]]:
        """The views that an adversary's parties have of a round and of the next one.

        The next one counts because only in it clients are handed what came of the round.

        In an adversary "client" stands for one client, if possible one that takes part in the next round, too;
        "clients" stands for all but the last of them. Each view comes with the party's coins of the round.
        """
        present, found = self.rounds[at].present, {}
        later = self.rounds[at + 1].present if at + 1 < len(self.rounds) else ()
        present = (*(name for name in present if name in later), *(name for name in present if name not in later))
        stand = {"client": present[:1], "clients": present[:-1]}
        for name in [name for party in adversary.parties for name in stand.get(party, (party,))]:
            found[name] = tuple(views[name] for views in self.views[at : at + 2] if name in views)
            if found[name] and self.coins:
                found[name] = ({**found[name][0], "coins": self.coins[at][name]}, *found[name][1:])
        return found

    def shown_to(self, adversary: Adversary) -> dict[int, dict[str, tuple[Mapping[str, Any], ...]]]:
        """By round, the views of an adversary, without rounds of which it sees too little.

        A single client needs two views: it is handed what came of a round in the next one, and so never what came of
        the last.
        """
        views = {at: self.seen_by(adversary, at) for at in range(len(self.rounds))}
        least = 2 if adversary.parties == ("client",) else 1
        return {at: one for at, one in views.items() if all(len(each) >= least for each in one.values())}


@dataclass
class Bench:
    """A seed with its training, its driver, and `panel`, the processes in which attacks run.

    `stage(arm)` is the task with records withheld for the adversary; `played(arm)` the protocol's rounds on it. `once`
    keeps what several questions or arms need, by a key; what belongs to an arm is dropped when another arm is asked
    for. `who` names the adversaries of each arm; `membership` says whether the prior is asked about membership, too.
    """

    setting: Setting
    seed: int
    panel: Panel
    drive: Drive
    watch: Watch = lambda _: None
    arms: tuple[Arm, ...] = ()
    who: Mapping[str, tuple[Adversary, ...]] = field(default_factory=dict)
    membership: bool = True
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def coins(self) -> Coins:
        """The seed's."""
        return Coins.from_seed(self.seed)

    @property
    def undefended(self) -> Arm | None:
        """The arm on which attacks show that they work (see `is_undefended`); None where there is none."""
        return next((arm for arm in self.arms if is_undefended(arm)), None)

    def adversaries(self, arm: Arm) -> tuple[Adversary, ...]:
        """Who attacks an arm."""
        return self.who.get(arm.key, (SERVER,))

    def once(self, key: Any, make: Callable[[], Made], arm: Arm | None = None) -> Made:
        """What is made once for the whole seed, or for one arm, and then dropped with the views of its rounds."""
        kept = self.kept if arm is None else self._of(arm)
        if key not in kept:
            kept[key] = make()
        found: Made = kept[key]
        return found

    def _of(self, arm: Arm) -> dict[Any, Any]:
        """What is kept of the arm that was asked for last; what was of another one goes first."""
        if self.kept.get("arm", (None, None))[0] != arm:
            self.kept["arm"] = arm, {}
        found: dict[Any, Any] = self.kept["arm"][1]
        return found

    def chosen(self, arm: Arm) -> Setting:
        """The setting under an arm."""
        return arm.applied(self.setting)

    def stage(self, arm: Arm) -> Stage:
        """The task that an arm trains; what the adversary's pictures look like changes no training."""
        learnt = replace(self.chosen(arm), noise=CLEAN)
        return self.once(("stage", learnt), lambda: Stage(learnt, self.coins))

    def played(self, arm: Arm) -> PlayedRounds:
        """An arm's rounds with everybody's views; they are kept until another arm's are asked for."""

        def make() -> PlayedRounds:
            self.watch(f"seed {self.seed}: {arm.title}")
            return self._play(arm)

        return self.once("played", make, arm)

    def _play(self, arm: Arm) -> PlayedRounds:
        stage, spent, begun = self.stage(arm), [0.0], perf_counter()

        def fit(jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
            begun = perf_counter()
            done = stage.task.fit(jobs)
            spent[0] += perf_counter() - begun
            return done

        try:
            found = self.play(arm, fit, self.chosen(arm).plan.rounds)
        except ProtocolError as error:
            # What a description is compared with may not fit its task; the rest is asked all the same.
            if arm.own:
                raise
            return PlayedRounds((), (), (), lost=f"{LOST}: {error}")
        each = (perf_counter() - begun - spent[0]) / max(1, len(found.rounds))
        return replace(found, seconds=each)

    def play(self, arm: Arm, fit: Fits, count: int) -> PlayedRounds:
        """So many rounds of an arm from the first model, everybody's views kept, with clients that train by `fit`."""
        found, views, starts, coins = [], [], [], []
        task, plan = replace(self.stage(arm).task, fit=fit), self.chosen(arm).plan.model_copy(update={"rounds": count})
        for done in rounds(arm.pipeline, task, plan, self.coins, self.drive, keep={"*": "keep"}):
            if not done.present:
                # A round that was not held shows nothing.
                continue
            views.append({name: facts(view) for name, view in done.views.items()})
            coins.append({name: view.coins.export() for name, view in done.views.items()})
            starts.append(handed(views[-1][done.present[0]]))
            found.append(replace(done, views={}))
        return PlayedRounds(tuple(found), tuple(views), tuple(starts), tuple(coins))


def is_undefended(arm: Arm) -> bool:
    """Whether the server sees every update as it was learnt, with its sender's name.

    Rows that travel multiplied by their weight count as such: the weight travels in the row, and attacks divide by it.
    """
    pipeline = arm.pipeline
    bare = pipeline.privacy.noiseless and pipeline.encode.verbatim and pipeline.encode.form == "weights"
    return bare and not pipeline.release.hides and not arm.changes


# What an attack answers, as plain values, once its process has finished.
Answered = Future[dict[str, Any]]
