"""The server's line: any strategy that needs the mean and nothing else, behind the roster's protocol.

`protect(FedAvg())`, which an app calls as `croupier.flower.protect`, is a strategy like the one it is given. Nodes are
chosen, models handed out, metrics evaluated and steps taken by the one inside; only what nodes learned comes another
way (`flower.session`). The strategy inside is handed one reply, which holds the mean, so that whatever it does with a
mean (momentum, Adam, Yogi) it does as ever.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import Tensor

from croupier.core.coins import Coins
from croupier.errors import CroupierError, CroupierWarning, ProtocolError, SpecError
from croupier.flower.arrays import check_arrays, from_vector, to_vector, typed_as
from croupier.flower.fitting import check_protocol, check_rule, check_strategy
from croupier.flower.layouts import EXAMPLES, check_weight
from croupier.flower.lead import Root, RoundMean
from croupier.flower.letters import RECORD, Told
from croupier.flower.rehearse import WARNING, RehearsalPlan
from croupier.flower.session import Session, open_session
from croupier.spec import Source

Open = Callable[[Grid, ArrayRecord, RehearsalPlan, Root | None], Session]
# A training function of the server's own, on records that it keeps for itself.
OwnTraining = Callable[[ArrayRecord], ArrayRecord]
_OUTERMOST = (
    "a protected strategy plays its rounds itself, and here another strategy or program calls them: "
    "croupier.flower.protect must be the outermost, and start be called on what it returns. Replies hold no update, so "
    "that a strategy around it, such as Flower's for differential privacy, clips nothing and claims it did; noise is "
    "added by the node itself: describe it in the roster, as protocol.privacy (croupier explain intra-sum)"
)


def protect(
    strategy: Strategy, *, key: str | Path | None = None, describe: Source = "flower",
    metrics: Mapping[str, float] | None = None, root: OwnTraining | None = None,
) -> Protected:  # fmt: skip
    """The same strategy, to which nobody's update is shown.

    strategy: FedAvg, FedAvgM, FedAdam, FedYogi, FedAdagrad, FedProx, or a subclass that aggregates as they do.
    key: the server's key file; what CROUPIER_KEY names unless given.
    describe: in a simulation, where there is no roster, the description whose protocol is rehearsed.
    metrics: in a simulation, metrics of training that travel with updates, each with the largest value it can have.
    root: trains a model on the server's own records, for protocols that compare updates with that (`rain`).

    It must be the outermost: call `start` on what this returns, and wrap nothing around it.

    Raises: SpecError when the strategy needs more than the mean of the updates.
    """
    plan = RehearsalPlan(describe, dict(metrics or {}))
    found = None if key is None else Path(key)
    return Protected(strategy, plan, partial(open_session, found), root)


class Protected(Strategy):
    """A strategy behind the roster's protocol."""

    def __init__(self, strategy: Strategy, plan: RehearsalPlan, opened: Open, root: OwnTraining | None = None) -> None:
        check_strategy(strategy)
        self.strategy = strategy
        self._plan, self._open, self._root = plan, opened, root
        self._session: Session | None = None
        self._arrays, self._asked = ArrayRecord(), list[Message]()
        # Whether rounds are being played by our own `start`.
        self._started = False

    def summary(self) -> None:
        """As the strategy inside has it."""
        self.strategy.summary()

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *more: Any, **named: Any) -> Result:
        """Run all rounds, and let nodes that have not done so yet look what came of the last one."""
        self._plan = replace(self._plan, rounds=max(1, num_rounds))
        self._started = True
        try:
            result = super().start(grid, initial_arrays, num_rounds, *more, **named)
            if self._session is not None:
                self._session.say_farewell(grid)
            return result
        finally:
            self._started = False
            self.close()

    def _check_outermost(self) -> None:
        """Raises: SpecError when another strategy plays the rounds: what it does to replies would do nothing."""
        if not self._started:
            raise SpecError(_OUTERMOST)

    def close(self) -> None:
        """Hang up."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def session(self, grid: Grid, arrays: ArrayRecord) -> Session:
        """The server's party, listening."""
        if self._session is None:
            made = self._open(grid, arrays, self._plan, self._trained if self._root else None)
            self._session = made
            if made.rehearsed:
                warnings.warn(WARNING, CroupierWarning, stacklevel=3)
            check_protocol(made.member.pipeline)
            check_rule(self.strategy, made.member.pipeline)
            check_arrays(arrays, made.member.roster.layout)
        return self._session

    def _trained(self, start: Tensor, coins: Coins) -> Tensor:
        """What the server's own training makes of a model."""
        if self._session is None or self._root is None:
            raise ProtocolError("the server has no training of its own")
        layout = self._session.member.roster.layout
        return to_vector(self._root(from_vector(start, layout, self._arrays)[0]), layout)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy inside chooses nodes; of them, those that are clients of the roster get a notice."""
        self._check_outermost()
        self._arrays, self._asked = arrays, []
        session = self.session(grid, arrays)
        check_weight(self._weight_key, session.member.roster.layout)
        chosen = list(self.strategy.configure_train(server_round, arrays, config, grid))
        if not chosen:
            return []
        session.meet(grid, [message.metadata.dst_node_id for message in chosen])
        chosen = [message for message in chosen if message.metadata.dst_node_id in session.names]
        nodes = [message.metadata.dst_node_id for message in chosen]
        opened = session.open_round(nodes, to_vector(arrays, session.member.roster.layout))
        told = Told(
            notice=opened.notice, beside=opened.beside, weight=self._weight_key, rehearsal=session.rehearsal
        )  # fmt: skip
        session.owed.update(nodes)
        self._asked = [_with(message, told) for message in chosen]
        return self._asked

    @property
    def _weight_key(self) -> str:
        return str(getattr(self.strategy, "weighted_by_key", EXAMPLES))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """What the strategy inside makes of the mean; nothing where the round was lost."""
        self._check_outermost()
        answers = list(replies)
        if self._session is None or not self._asked:
            return None, None
        missing = len(self._asked) - sum(not reply.has_error() for reply in answers)
        if missing:
            self._session.lead.options.tell("missing", round=server_round, nodes=missing)
        try:
            found = self._session.close_round()
        except CroupierError as error:
            warnings.warn(f"round {server_round} was lost: {error}", CroupierWarning, stacklevel=2)
            return None, None
        arrays, metrics = self.strategy.aggregate_train(server_round, [self._as_reply(found, self._session)])
        return None if arrays is None else typed_as(arrays, self._arrays), metrics

    def _as_reply(self, found: RoundMean, session: Session) -> Message:
        """The mean as the one reply that the strategy inside sees."""
        arrays, metrics = from_vector(found.vector, session.member.roster.layout, self._arrays)
        numbers = MetricRecord({**metrics, self._weight_key: found.weight})
        return Message(RecordDict({"arrays": arrays, "metrics": numbers}), reply_to=self._asked[0])

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy inside does; a node looks at the same time what came of its last round."""
        self._check_outermost()
        session = self.session(grid, arrays)
        told = Told(rehearsal=session.rehearsal)
        chosen = list(self.strategy.configure_evaluate(server_round, arrays, config, grid))
        session.owed -= {message.metadata.dst_node_id for message in chosen}
        return [_with(message, told) for message in chosen]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the strategy inside does."""
        return self.strategy.aggregate_evaluate(server_round, replies)


def _with(message: Message, told: Told) -> Message:
    """A message with what we tell beside it; the record that a strategy made is shared by all nodes and left alone."""
    if RECORD in message.content:
        raise SpecError(f"the strategy sends a record called {RECORD!r}, which is ours; call it otherwise")
    content = RecordDict({**message.content, RECORD: told.record()})
    meta = message.metadata
    return Message(content, dst_node_id=meta.dst_node_id, message_type=meta.message_type, group_id=meta.group_id)
