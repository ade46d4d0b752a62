"""What two servers and a dealer withstand and learn, in the words of the statement.

Everything here follows from the options of `place/two_servers/pair`, which calls it, and is printed by
`croupier explain`. It is a module of its own because the sentences are long and depend on every option.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from croupier.place.placement import Tolerance
from croupier.place.two_servers.messages import DEALER, SECOND

PairShuffle = Literal["dealer", "translate", "transfer", "onion"]

_MALICIOUS = (
    "one of the two servers, malicious, with as many clients as protocol.release.colluders says: it learns the "
    "distances in random order, the sum, and who took part, before it may end the round; not which row is whose, while "
    "the other server and the dealer are honest and rows carry enough noise. More colluding clients take their own "
    "rows off the sum. A client signs the model it was handed, and one that was handed another is left out: a server "
    "can leave clients out, down to the quorum. The dealer with either server reads every row"
)
_HONEST = (
    "one of the two servers that follows the protocol, with any clients: it learns what is released, "
    "and who took part. One that does not can find out which row is whose"
)
_WITH = "The dealer with either server reads every row"
_NAMELESS = f"{_WITH}, in random order: whose it is, the dealer does not know"
_BOXED = "; a client whose inner boxes are no good ends the round, and nobody knows whose they were"
_DEALER = {"dealer": _WITH, "translate": _WITH, "transfer": _NAMELESS, "onion": _NAMELESS}


def dealer_knows_whose(shuffle: PairShuffle) -> bool:
    """Whether the dealer, with either server, reads not only rows but also whose they are."""
    return _DEALER[shuffle] != _NAMELESS


def withstands(malicious: bool, check: str, missing: str, shuffle: PairShuffle, decks: int) -> Tolerance:
    """Against whom it holds: the options as `pair` has them."""
    return Tolerance(
        privacy=_MALICIOUS if malicious else f"{_HONEST}. {_DEALER[shuffle]}",
        integrity=f"{_integrity(malicious, check, missing)}. {_trusted(decks)} A client's row is a row of signs "
        "whatever it sends",
        liveness=_liveness(malicious, missing, shuffle, decks),
        apart=(("server", SECOND), (DEALER, "server or second")),
    )


def who_learns(revealed: str, missing: str, malicious: bool) -> Mapping[str, str]:
    """What each party learns: both servers the release, the dealer nothing; clients of malicious servers the sum."""
    votes = "; one uniform row for each missing client is among the rows" if missing == "vote" else ""
    seen = f"{revealed}{votes}; and which clients took part"
    told = f"the sum, the sum of the weights{votes.replace(';', ',')}, and who took part"
    return {
        "server": f"{seen}; and uniform numbers",
        SECOND: f"{seen}; the reference, once all updates are fixed; and uniform numbers",
        DEALER: "which clients were invited",
        **({"each client": told} if malicious else {}),
    }


def _integrity(malicious: bool, check: str, missing: str) -> str:
    if not malicious:
        return "none: both servers follow the protocol"
    stand_ins = ", and of one uniform row for each missing client" if missing == "vote" else ""
    return (
        "one of the two servers, malicious, with any clients: the sum is that of the rows that the clients named sent, "
        f"each once{stand_ins}, or the round ends, but for a chance of "
        f"{'2^-58' if check == 'hash' else '(3 rows + 6) / 2^61'}; clients check both servers' signatures. The model "
        "that the server makes of the sum is not covered"
    )


def _liveness(malicious: bool, missing: str, shuffle: PairShuffle, decks: int) -> str:
    parties = f"both servers and the dealer{', until all sets but one are opened' if decks > 1 else ''}; "
    lost = (
        "a round starts again without the missing clients until distances are opened, and is lost after that"
        if missing == "restart"
        else "a uniform row stands for every missing client, above the quorum"
    )
    refused = "; any client can end a round by refusing what both servers signed" if malicious else ""
    return f"{parties}{lost}{refused}{_BOXED if shuffle == 'onion' else ''}"


def _trusted(decks: int) -> str:
    if decks == 1:
        return "The dealer is trusted for correctness: a wrong mask flips votes unseen."
    return (
        f"A dealer that deals wrong is caught before rows are sent, but for a chance of 1 in {decks}, when it flips "
        f"votes unseen: all but one of {decks} whole sets are opened, and everybody computes them again."
    )
