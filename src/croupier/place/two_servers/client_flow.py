"""A client's part with two servers: its row under the dealer's mask to both, and a check of what they sign.

`place/two_servers/pair` plays it at every client where rows are shuffled by the dealer's material (the other shuffles
have `shuffles.Mix.submit`); `server_flow` is the other side. With malicious servers a client accepts a round only if
both of them signed a list of rows with its own in it, and then the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from croupier.core.flow import Exchange, Given, Inbox, Letter, SubFlow, Wait
from croupier.encode.encoder import Brief
from croupier.errors import IntegrityError, PrivacyError
from croupier.kernels import field as kernel
from croupier.mpc import dealer
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.deal_shares import DealSpec
from croupier.mpc.signatures import root_of, signed, verified
from croupier.place.placement import Keys
from croupier.place.two_servers import messages
from croupier.place.two_servers.cut_and_choose import Cut
from croupier.place.two_servers.messages import DEALER, SERVERS


def check_noise(have: float, entropy: float, size: int) -> None:
    """Raises: PrivacyError when a row of so many signs carries fewer bits of noise than the placement asks for."""
    if have < entropy:
        raise PrivacyError(
            f"a row of {size} signs carries {have:.1f} bits of noise, and protocol.place.entropy = "
            f"{entropy:g}: a malicious server could guess it and see whether it guessed right; add noise: "
            "raise protocol.privacy.sigma, or lower protocol.privacy.clip"
        )


@dataclass(frozen=True)
class ClientFlow:
    """One client in one attempt; `malicious`: servers sign, and the client checks."""

    given: Given
    deal: DealSpec
    keys: Keys = field(repr=False)
    brief: Brief = field(repr=False)
    cut: Cut | None
    malicious: bool

    def play(self, vector: Tensor) -> SubFlow:
        """Send the hidden row. Raises: IntegrityError when the servers do not both sign a round with it, or its end."""
        seed = yield from self._seed()
        row = kernel.packed(vector.numpy()) ^ dealer.mask_of(bytes_of(seed), self.deal)
        body = {"row": torch.from_numpy(row)}
        if not self.malicious:
            yield Exchange(tuple(Letter(name, "up", body) for name in SERVERS))
            return
        handed = self.brief["handed"]
        claim = messages.claim(self.given, self.given.me, row, bytes_of(handed))
        body |= {"handed": handed, "signature": byte_tensor(signed(self.keys["identity"], claim))}
        letters = tuple(Letter(name, "up", body) for name in SERVERS)
        inbox = yield Exchange(letters, Wait("receipt", SERVERS))
        root = self._received(row, inbox)
        (told,) = yield Exchange(wait=Wait("published", ("server",)))
        outcome = messages.outcome(root, told.body["sums"], told.body["total"])
        for place, name in enumerate(SERVERS):
            if not verified(self.keys["public"][name], outcome, bytes_of(told.body["signatures"][place])):
                raise IntegrityError(f"{name} did not sign the outcome that was published")

    def _seed(self) -> SubFlow:
        """The seed of the client's mask, from the dealer; where several sets are dealt, from the one that is kept."""
        if self.cut:
            told = yield from self.cut.seed("seed")
            return told["seed"]
        (letter,) = yield Exchange(wait=Wait("seed", (DEALER,)))
        return letter.body["seed"]

    def _received(self, row: kernel.Bytes, inbox: Inbox) -> bytes:
        """What both servers signed of who sent what."""
        digests, bound = inbox[0].body["digests"], bytes_of(self.brief["commitment"]) + bytes_of(self.brief["handed"])
        mine = self.given.roster.index(self.given.me)
        if bytes_of(digests[mine]) != messages.row_digest(row):
            raise IntegrityError("a client's row is missing from what the servers signed, or altered")
        root = root_of(self.given, bytes_of(inbox[0].body["identity"]), bound, digests)
        for letter in inbox:
            if not verified(self.keys["public"][letter.source], root, bytes_of(letter.body["signature"])):
                raise IntegrityError(f"{letter.source} did not sign the rows that {inbox[0].source} names")
        return root
