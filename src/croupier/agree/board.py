"""The board: participants that reach each other only through a relay, turn by turn.

In a turn everybody hands one note to the relay, and the relay hands everybody the notes of all. What counts in a note
is signed, and what only one reader may know is sealed to that reader: the relay can keep notes back, and what it
alters, swaps, repeats or tells differently to different readers, the readers' checks must find.

Every form of agreement in this room is written in such turns (`commit_reveal`, `pbft/`, `welcome`), and
`croupier bench agree` has faulty participants and relays in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, SubFlow, Wait
from croupier.core.wire import Field, Schema, attendance, bitmap, chosen
from croupier.mpc.authentic import byte_tensor

SERVER = "server"
SIGNATURE = 64
# How patient each is (`core.flow.Wait`), so that deadlines come in order: in each step the relay goes on without a note
# before a reader goes on without the relay, and both before anybody gives up on the next step.
RELAY, READER, STEP = 1, 2, 2

Note = Mapping[str, bytes]
Notes = Mapping[str, Note]


@dataclass(frozen=True)
class Turn:
    """One turn: the bytes of each field of a note, and of those fields that are there once for each reader.

    Its step is its place among all turns, and so its deadline.
    """

    name: str
    fields: Mapping[str, int]
    apart: Mapping[str, int] = field(default_factory=dict)
    step: int = 0

    @property
    def down(self) -> str:
        """The kind of the letter in which the relay hands out all notes."""
        return f"{self.name} all"

    def schemas(self, roster: tuple[str, ...]) -> dict[str, Schema]:
        """Both kinds of message of this turn."""
        one = [Field(name, "|u1", (size,)) for name, size in self.fields.items()]
        many = [Field(name, "|u1", (len(roster), size)) for name, size in self.apart.items()]
        sizes = {**self.fields, **self.apart}
        all_ = [Field(name, "|u1", ("present", size)) for name, size in sizes.items()]
        return {self.name: Schema((*one, *many)), self.down: Schema((attendance(roster), *all_))}

    def letter(self, note: Mapping[str, bytes | list[bytes]]) -> Letter:
        """A note on its way to the relay."""
        body = {name: byte_tensor(_flat(note[name])) for name in self.fields}
        body |= {name: byte_tensor(_flat(note[name])).reshape(-1, size) for name, size in self.apart.items()}
        return Letter(SERVER, self.name, body)

    def bundle(self, given: Given, notes: Mapping[str, Mapping[str, Tensor]], reader: str) -> dict[str, Tensor]:
        """What one reader is handed."""
        place = given.roster.index(reader)
        body = {"present": bitmap(given.roster, tuple(notes))}
        for name, size in {**self.fields, **self.apart}.items():
            rows = [note[name][place] if name in self.apart else note[name] for note in notes.values()]
            body[name] = torch.stack(rows) if rows else torch.zeros((0, size), dtype=torch.uint8)
        return body


def _flat(value: bytes | list[bytes]) -> bytes:
    return value if isinstance(value, bytes) else b"".join(value)


def hand_in(turn: Turn, given: Given, note: Mapping[str, bytes | list[bytes]] | None, *, need: bool = True) -> SubFlow:
    """A participant's part of a turn: the notes of all that were handed out, by name, in the order of the roster.

    Raises: TooFew when the relay hands out nothing; unless `need` is false, where that counts as a turn without notes.
    """
    letters = () if note is None else (turn.letter(note),)
    inbox = yield Exchange(letters, Wait(turn.down, (SERVER,), None if need else 0, READER + STEP * turn.step))
    return read(turn, given, inbox[0].body) if inbox else {}


def read(turn: Turn, given: Given, body: Mapping[str, Tensor]) -> Notes:
    """The notes of a bundle."""
    rows: dict[str, np.ndarray] = {name: body[name].numpy() for name in (*turn.fields, *turn.apart)}
    present = chosen(given.roster, body["present"])
    return {who: {name: rows[name][at].tobytes() for name in rows} for at, who in enumerate(present)}


def pass_on(
    turn: Turn, given: Given, sources: tuple[str, ...], readers: tuple[str, ...], *, always: bool = False
) -> SubFlow:
    """The relay's part of a turn: the notes it got. Where it got none it hands out none, unless told to `always`."""
    inbox = yield Exchange(wait=Wait(turn.name, sources, 0, RELAY + STEP * turn.step))
    notes = {letter.source: letter.body for letter in inbox}
    if not notes and not always:
        return notes
    if not turn.apart:
        shared = turn.bundle(given, notes, given.roster[0])
        yield Exchange(tuple(Letter(name, turn.down, shared) for name in readers))
    else:
        yield Exchange(tuple(Letter(name, turn.down, turn.bundle(given, notes, name)) for name in readers))
    return notes


def enrol(clients: tuple[str, ...], coins: Coins) -> dict[str, dict[str, object]]:
    """A signature key for every client, and everybody's public one; pinned beforehand, and never told by the relay."""
    own = {name: coins.child("identity", name).export() for name in clients}
    public = {
        name: Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw() for name, seed in own.items()
    }
    return {name: {"identity": seed, "public": public} for name, seed in own.items()}
