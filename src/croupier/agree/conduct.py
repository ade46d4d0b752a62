"""What the two conductors share: an agreement's conductor decides, from public facts, what clients do before a round.

A conductor (`one_epoch`, `each_round`) is a generator: it yields what is to be done next (`Called`), is told who
complained and why attempts failed (`Reports`), and returns what the round begins with (`RoundDecision`). So one text
serves two callers: a simulation plays what it yields with everybody at one table (`epochs`), a deployed server
announces it over the network (`service.chair`). It sees no secret: of a client it knows what that client says it signed
and holds (`PublicFacts.known`). A conductor that starts anew, because its server did, goes on from the same facts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from croupier.agree.alike import asked_of
from croupier.agree.before_round import AgreementRules, UpcomingRound
from croupier.agree.board import SERVER
from croupier.agree.called import FIRST, Called, Reports
from croupier.agree.standing import PublicStanding
from croupier.core.epoch import Frame
from croupier.core.update import Model, meant_for
from croupier.errors import ProtocolError


@dataclass(frozen=True)
class RoundDecision:
    """What a round begins with: who forgets older secrets, who cannot open its model, and why the round is not held.

    `strangers` are the clients that came and cannot open the model meant for them: they lack its secret. With `unknown`
    the round is not held because too few of those who came know the rule that the last model lies under.
    """

    forget: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    lost: str = ""
    unknown: bool = False


Steps = Generator[Called, Reports, None]
Conduct = Generator[Called, Reports, RoundDecision]


@dataclass(frozen=True)
class PublicFacts:
    """What whoever conducts agreements goes by: rules, public keys, the round, clients' public standings, the models.

    `known` and `models` are asked anew each time, because attempts change what they answer. `since` is the last number
    and attempt that a deployed server called, so that after a restart it calls none twice; a simulation leaves it out.
    `meeting` is the round that is about to begin.
    """

    rules: AgreementRules
    run: bytes
    public: Mapping[str, bytes]
    meeting: UpcomingRound
    known: Callable[[str], PublicStanding]
    models: Callable[[], tuple[Model, ...]]
    since: tuple[int, int] = (-1, -1)

    def opens(self, who: str, models: tuple[Model, ...]) -> bool:
        """Whether a client can open the model meant for it."""
        frame = meant_for(who, models).frame
        return not frame or self.known(who).behind(Frame.unpack(frame)) is not None

    def holders(self, roster: tuple[str, ...], number: int) -> tuple[str, ...]:
        """Those of a roster who hold the outcome of an agreement's number."""
        return tuple(who for who in roster if self.known(who).holds(number))

    def next_attempt(self, number: int) -> int:
        """The first attempt of a number that was not called before."""
        return self.since[1] + 1 if self.since[0] == number else 0


def draw_first(facts: PublicFacts, holders: tuple[str, ...]) -> Steps:
    """The first model, from clients that hold the secret, where there is none yet. Raises: ProtocolError."""
    epochs = [epoch for who in holders if (epoch := facts.known(who).epoch) is not None]
    if facts.models() or not epochs:
        return
    number = facts.meeting.number
    reports = yield Called(FIRST, number, asked_of(holders, number, epochs[0].digest), {})
    if failed := reason_of(reports, SERVER):
        raise ProtocolError(f"there is no first model: {failed}")


def reason_of(reports: Reports, who: str) -> str:
    """Why a party ended early; empty where it did not, or does not tell."""
    return reports[who].reason if who in reports else ""


def first_reason(reports: Reports) -> str:
    """The first reason that any party gave; empty where none did."""
    return next((report.reason for report in reports.values() if report.reason), "")
