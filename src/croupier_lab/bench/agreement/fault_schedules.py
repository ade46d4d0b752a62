"""Random schedules of faults for an agreement: what goes wrong with its notes, in which turn, by whom and for whom.

Clients agree through a board, which is the relay that passes their notes on. A turn is one exchange of notes. A
schedule is a value drawn from one seed, so that whatever it brings to light can be played again. It only says what is
to go wrong; `faulty_parties` and `two_faced_clients` do it, and `faults_and_cost` (`croupier bench agree`) draws the
schedules.
"""

from __future__ import annotations

from dataclasses import dataclass

from croupier.core.coins import Stream

# What a faulty client does: nothing more, change a byte, send an old note, give each reader another reader's part, or
# sign a digest of nothing.
CLIENT = ("silent", "garble", "replay", "cross", "lie")
# What a faulty relay does: leave a client's note out, exchange two clients' notes, change a byte, send a client's old
# note, or give a reader nothing.
RELAY = ("drop", "swap", "garble", "replay", "withhold")
# The turns in which a fault may fall, by the form of agreement. What stands twice is drawn twice as often.
KINDS = {
    "joint": ("commit", "echo", "reveal", "compare"),
    "pbft": ("key", "propose", "prepare", "commit", "commit", "close", "proof", "change"),
}


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong: what, in which turn, from or about whom, and for which readers.

    `view` is the view of PBFT in which it happens; None: in all of them.
    """

    what: str
    turn: str
    view: int | None
    who: str
    readers: frozenset[str]

    def hits(self, kind: str) -> bool:
        """Whether it befalls messages of this kind."""
        turn, _, view = kind.removesuffix(" all").partition(".")
        return turn == self.turn and (not view or self.view in (None, int(view)))


@dataclass(frozen=True)
class Schedule:
    """Who is faulty, whether the relay is, and what goes wrong; after `until` attempts nothing goes wrong any more.

    With `twins` every faulty client tells the readers on one `side` something else than the others. When `parted`, the
    relay also keeps from each side what the other side's honest clients say.
    """

    clients: tuple[str, ...]
    faulty: frozenset[str]
    relay: bool
    faults: tuple[Fault, ...]
    twins: bool = False
    side: frozenset[str] = frozenset()
    parted: bool = False
    until: int = 1

    @property
    def honest(self) -> tuple[str, ...]:
        """The clients that are not faulty."""
        return tuple(name for name in self.clients if name not in self.faulty)


def draw(form: str, clients: int, chance: Stream, faulty: int, head: str = "") -> Schedule:
    """A random schedule with at most so many faulty clients.

    A `head` (the client that leads the first view of PBFT) is among them more often than others.
    """

    def pick(limit: int) -> int:
        return int(chance.below(limit)[0])

    names = tuple(f"c{number}" for number in range(clients))
    order = [names[i] for i in chance.permutation(clients)]
    if head and pick(2):
        order.sort(key=lambda name: name != head)
    bad, relay, until = frozenset(order[: pick(faulty + 1)]), bool(pick(3)), 1 + pick(2)

    def fault(whats: tuple[str, ...], who: str) -> Fault:
        readers = frozenset(name for name in names if pick(2)) or frozenset(names)
        turn, view = KINDS[form][pick(len(KINDS[form]))], (None, 0, 1)[pick(3)]
        return Fault(whats[pick(len(whats))], turn, view, who, readers)

    twins = relay and bool(bad) and bool(pick(2))
    # Twins that nothing else disturbs come furthest.
    calm = twins and bool(pick(2))
    faults = [fault(CLIENT, who) for who in sorted(bad) for _ in range(0 if calm else pick(3))]
    faults += [fault(RELAY, names[pick(clients)]) for _ in range(1 + pick(8))] if relay and not calm else []
    side = frozenset(name for name in names if pick(2)) - bad
    return Schedule(names, bad, relay, tuple(faults), twins, side, form == "pbft" and bool(pick(2)), until)
