"""A protected run from its first round to its last: the server's party on the loop, and who its nodes are.

With the server's key file at hand (CROUPIER_KEY, or given) it is the server that the roster names. Without one, in
Flower's simulation, it rehearses: throw-away keys for everybody and all hosts on this machine, which protects nobody.
`flower.strategy` opens a `Session` with its first round, and drives `flower.lead` through it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from croupier.core.coins import Coins
from croupier.errors import RosterError, SpecError
from croupier.flower.background import wait_for
from croupier.flower.lead import OpenRound, Root, RoundMean, StrategyLead, identities_of
from croupier.flower.letters import RECORD, Told, name_in
from croupier.flower.rehearse import RehearsalPlan, Rehearsed, rehearse
from croupier.flower.station import Station, server_key, station_at
from croupier.service.alone import alone
from croupier.service.member import SERVER, Member

# Where the server listens, if not at the address that the roster has for it.
LISTEN = "CROUPIER_LISTEN"
# Seconds for nodes to say who they are, and to look what came of the last round.
_PATIENCE = 300.0


@dataclass
class Session:
    """The server's side of one protected run.

    `names` has the client of the roster behind each node that proved to be one.
    """

    lead: StrategyLead
    rehearsed: Rehearsed | None = None
    names: dict[int, str] = field(default_factory=dict)
    # Nodes that took part in a round and were sent no message since: with the next one they check what came of it.
    owed: set[int] = field(default_factory=set)
    _release: Callable[[], None] = lambda: None

    @property
    def member(self) -> Member:
        """The server as the roster in force names it."""
        return self.lead.member

    @property
    def rehearsal(self) -> str:
        """The folder of throw-away keys; nothing where the keys are the parties' own."""
        return str(self.rehearsed.folder) if self.rehearsed else ""

    def meet(self, grid: Grid, nodes: Iterable[int]) -> None:
        """Ask nodes that are new here who they are; who does not prove to be a client of the roster stays unknown."""
        new = [node for node in nodes if node not in self.names]
        if not new:
            return
        nonce = Coins.from_os().export()
        asked = [self.message(node, Told(hello=nonce, rehearsal=self.rehearsal)) for node in new]
        known = identities_of(self.member)
        for reply in grid.send_and_receive(asked, timeout=_PATIENCE):
            if (name := name_in(reply, nonce, known)) is not None and name not in self.names.values():
                self.names[reply.metadata.src_node_id] = name
        if strangers := [node for node in new if node not in self.names]:
            self.lead.options.tell("not in the roster", nodes=len(strangers))

    def message(self, node: int, told: Told) -> Message:
        """A message of ours alone."""
        return Message(RecordDict({RECORD: told.record()}), dst_node_id=node, message_type="train")

    def open_round(self, nodes: Iterable[int], vector: Tensor) -> OpenRound:
        """Open a round for these nodes."""
        cohort = tuple(sorted(self.names[node] for node in nodes))
        return wait_for(self.lead.open_round(cohort, vector))

    def close_round(self) -> RoundMean:
        """What came of it. Raises: CroupierError when it was lost."""
        return wait_for(self.lead.close_round())

    def say_farewell(self, grid: Grid) -> None:
        """Let nodes look what came of the last round, as they would with the next message."""
        if self.owed:
            told = Told(rehearsal=self.rehearsal)
            list(grid.send_and_receive([self.message(node, told) for node in sorted(self.owed)], timeout=_PATIENCE))
            self.owed.clear()

    def close(self) -> None:
        """Hang up, and remove what was made for a rehearsal."""
        wait_for(self.lead.stop())
        self._release()
        if self.rehearsed:
            self.rehearsed.close()


def open_session(
    key: Path | None, grid: Grid, arrays: ArrayRecord, plan: RehearsalPlan, root: Root | None
) -> Session:  # fmt: skip
    """The server's party, listening. Raises: SpecError, RosterError, StoreError."""
    found = key or server_key()
    if found is not None:
        return begin_session(station_at(found), root=root)
    if type(grid).__name__ != "InMemoryGrid":
        raise SpecError(
            "the server has no key file: name it by CROUPIER_KEY in the environment of the SuperLink, or by "
            "croupier.flower.protect(strategy, key=...); only Flower's simulation runs without, and protects nobody"
        )
    rehearsed = rehearse(plan, len(list(grid.get_node_ids())), arrays)
    try:
        return begin_session(rehearsed.server, rehearsed, root)
    except BaseException:
        rehearsed.close()
        raise


def begin_session(station: Station, rehearsed: Rehearsed | None = None, root: Root | None = None) -> Session:
    """A session for a server whose station is known. Raises: RosterError, SpecError, StoreError."""
    member = station.member
    if member.name != SERVER:
        raise RosterError(f"the key file is that of {member.name}, and a strategy is the server's; name server.key")
    taken = alone(station.folder)
    taken.__enter__()

    def release() -> None:
        taken.__exit__(None, None, None)

    try:
        lead = wait_for(_led(station, root))
    except BaseException:
        release()
        raise
    return Session(lead, rehearsed, _release=release)


async def _led(station: Station, root: Root | None) -> StrategyLead:
    lead = StrategyLead(station, root)
    await lead.start(os.environ.get(LISTEN) or station.member.roster.address(SERVER))
    return lead
