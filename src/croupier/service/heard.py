"""What clients tell the server when they ask for notices: how their last round ended, and which group secret they hold.

Neither is believed in anything that matters: the tags of sums are checked by the clients themselves. But a round with
which no client was content is worth nothing, and clients that hold different secrets would take each other's sums for
foul play, so both are said before it comes to that. Of a secret only a digest is told, which is in `group.sealed`, too.
`service.announcer` keeps a `ClientsWord`, `service.lead` asks it, and `service.client` makes what is told and reads the
answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from croupier.core import canon
from croupier.errors import CroupierError, WireError
from croupier.service.group import fingerprint, group_check
from croupier.service.home import sealed_name
from croupier.service.member import Versions
from croupier.service.roster import Roster
from croupier.service.store import Store

# How an answer begins that says who holds which secret.
_DIFFER = b"differ "
# A client tells of so many versions of a roster at most: no run has more of them in force or to come.
MOST_VERSIONS = 16
_DIGEST = 32


def word_of(versions: Versions, ended: tuple[bytes, bool]) -> dict[str, Any]:
    """What a client tells: its last ended attempt at a round, whether it was content, and digests of its secrets."""
    groups = {}
    for roster in versions.rosters()[-MOST_VERSIONS:]:
        # A version whose secret is not here yet has none to tell of.
        with suppress(CroupierError):
            if group := versions.of(roster.digest).group:
                groups[roster.digest.hex()] = group_check(roster, group)
    return {"ended": ended[0], "content": ended[1], "groups": groups}


class ClientsWord:
    """What each client said last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._groups: dict[str, Mapping[str, bytes]] = {}
        self._ended: dict[str, tuple[bytes, bool]] = {}
        self._begun: dict[bytes, bytes] = {}

    def hear(self, who: str, plain: Any) -> None:
        """Take down what a client says. Raises: WireError when it is not what it should be."""
        if not isinstance(plain, Mapping) or set(plain) != {"ended", "content", "groups"}:
            raise WireError("values that are no word of a client's")
        ended, content, groups = plain["ended"], plain["content"], plain["groups"]
        sound = isinstance(ended, bytes) and len(ended) in (0, _DIGEST) and isinstance(content, bool)
        if not sound or not isinstance(groups, Mapping) or len(groups) > MOST_VERSIONS:
            raise WireError("values that are no word of a client's")
        if not all(isinstance(check, bytes) and len(check) == _DIGEST for check in groups.values()):
            raise WireError("values that are no word of a client's")
        self._groups[who], self._ended[who] = dict(groups), (ended, content)

    # ---- how rounds ended

    def content(self, key: bytes, cohort: Collection[str]) -> tuple[list[str], list[str]]:
        """Who of a cohort ended an attempt content, and who did not."""
        said = {who: self._ended[who][1] for who in cohort if self._ended.get(who, (b"", False))[0] == key}
        return [who for who, well in said.items() if well], [who for who, well in said.items() if not well]

    # ---- the clients' secret

    def spoke(self, cohort: Collection[str]) -> bool:
        """Whether everybody of a cohort has said a word since the server started."""
        return all(who in self._groups for who in cohort)

    def holders(self, roster: Roster) -> Mapping[bytes, tuple[str, ...]]:
        """Who holds which secret, among the clients of a roster that have said so."""
        found: dict[bytes, tuple[str, ...]] = {}
        for who in roster.clients:
            if (check := self._groups.get(who, {}).get(roster.digest.hex())) is not None:
                found[check] = (*found.get(check, ()), who)
        return found

    def settle(self, roster: Roster) -> None:
        """A round begins with the secret that all hold who have told of one: it stays, whoever comes later."""
        if len(held := self.holders(roster)) == 1:
            self._begun[roster.digest] = next(iter(held))
            self._store.remember({_settled(roster): self._begun[roster.digest]})

    def settled(self, roster: Roster) -> bytes | None:
        """The digest of the secret that rounds under a roster began with; None before the first."""
        if roster.digest not in self._begun and (kept := self._store.fact(_settled(roster))) is not None:
            self._begun[roster.digest] = kept
        return self._begun.get(roster.digest)

    def at_odds(self, roster: Roster, who: str) -> bytes:
        """What a client is answered that holds another secret than others; nothing where all is well.

        Once a round has begun it concerns only who holds another one than it began with.
        """
        mine = self._groups.get(who, {}).get(roster.digest.hex())
        if mine is None or mine == (settled := self.settled(roster)):
            return b""
        held = self.holders(roster)
        if settled is None and len(held) < 2:
            return b""
        if settled is not None:
            held = {settled: (), **held}
        return _DIFFER + canon.dump({check.hex(): names for check, names in held.items()})


def _settled(roster: Roster) -> str:
    return f"settled secret {roster.digest.hex()}"


def read_at_odds(said: bytes) -> Mapping[bytes, tuple[str, ...]]:
    """Who holds which secret, from an answer of the server's; nothing where it says something else. Raises: WireError.

    The names and digests are the server's word, and only shown.
    """
    if not said.startswith(_DIFFER):
        return {}
    table = canon.load(said.removeprefix(_DIFFER))
    if not isinstance(table, Mapping) or not 2 <= len(table) <= 1 << 16:
        raise WireError("an answer that cannot be read")
    found = {}
    for check, names in table.items():
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise WireError("an answer that cannot be read")
        try:
            found[bytes.fromhex(check)] = names
        except (TypeError, ValueError):
            raise WireError("an answer that cannot be read") from None
    return found


def said_of(held: Mapping[bytes, tuple[str, ...]], roster: Roster) -> str:
    """The clients' different secrets in one line, with the remedy."""
    each = [
        f"{', '.join(names[:8]) or 'the rounds so far'}: {fingerprint(check)}"
        for check, names in list(held.items())[:8]
    ]
    return (
        f"clients hold different group secrets under version {roster.version} ({'; '.join(each)}): one client draws "
        "the secret, and the others open its file. Nothing was sent. Whoever drew one by mistake deletes "
        f"NAME.runs/{roster.run.hex()}/{roster.version}.group beside its key, runs croupier group --open "
        f"{sealed_name(roster)} --key NAME.key, and starts again"
    )
