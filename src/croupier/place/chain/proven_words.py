"""Sentences and numbers for `chain.proven`: whom its proofs protect against, and with what chance a cheat passes.

`Proven` returns them as what it withstands and what servers learn, which `croupier explain` prints. The chances come
from `bit_table`.
"""

from __future__ import annotations

from croupier.place.chain.bit_table import at_least, passes
from croupier.place.placement import Tolerance

# The statement gives the chance of being caught for so many changed numbers (t), and that of passing for some (t, R):
# so many changed numbers, and so many rounds in which it is tried.
CHANGED = (1, 10, 100)
TRIED = ((10, 3), (100, 100))

_ALL = (
    "the server and all mix servers but one, colluding and doing what they like, by the decisional Diffie-Hellman "
    "assumption on secp256k1: every server proves, before anything is opened, that it only moved the bits of all "
    "numbers. "
)
# The last server can give every client's own bits back: it knows which they were when they came, and its sums hold.
_SOME = (
    "the server and all mix servers but one, colluding, as long as mix servers follow the protocol, by the decisional "
    "Diffie-Hellman assumption on secp256k1. One that does not can undo the mixing of t numbers, or mark their bits. "
    "Every server proves that it only moved the bits of {percent} % of the numbers, which a joint coin draws after all "
    "have mixed, so that in each round it is caught before anything is opened with a chance of at least "
    "1 - (1 - {share})^t ({said}). The last to open its part of the coin sees the coin first: who would be caught can "
    "fall silent, lose the round, and try again, so that one of R tries passes with a chance of up to "
    "1 - (1 - (1 - {share})^t)^R ({again}). A silent party is named as missing and not as a cheat. What the coin "
    "misses is not noticed later, but for marks that are no bits, where the server is honest. With proven = 1 nothing "
    "is missed. "
)
_REST = (
    "Multiplication of points takes other times for other scalars: who shares a machine with a mix server or a client "
    "might learn from it. Among those present; colluders know their own part"
)


def learns() -> dict[str, str]:
    """What a mix server learns: nothing that could be opened."""
    return {
        "each mix server": "which clients took part, its own permutations, which numbers were proven, and encrypted "
        "bits that it cannot open",
    }


def tolerance(servers: int, share: float) -> Tolerance:
    """What the form withstands, for so many servers, of which each proves that share of the numbers."""
    chances = zip(CHANGED, at_least(share, CHANGED), strict=True)
    said = ", ".join(f"{_percent(chance)} % for t = {many}" for many, chance in chances)
    again = ", ".join(f"{_percent(passes(share, *one))} % for t = {one[0]} and R = {one[1]}" for one in TRIED)
    return Tolerance(
        privacy=(
            _ALL if share == 1 else _SOME.format(percent=_percent(share), share=f"{share:g}", said=said, again=again)
        )
        + _REST,
        integrity="any one honest mix server, towards a server that follows the protocol: clients prove that each bit "
        "is one, every server proves for all numbers that no block's sum changed, and that it opened with its key. A "
        "wrong sum passes with a chance of 2^-128 for each hash that the cheat tries, in the random oracle model. A "
        "proof that does not hold names its maker, unless parties were shown different things, which nobody can tell "
        "from it; who would be found out may fall silent, and the round is lost. The model that the server makes of "
        "the sum is not checked. All mix servers sign for every client that its bits are in. Clients may send any "
        "residues: one that lies can move the sum anywhere",
        liveness=f"all mix servers and the server: {servers} of {servers} must be live, because nothing opens without "
        "every key; a round completes with the clients that reached all mix servers, above the quorum. Any client can "
        "end a round by a proof that does not hold, and is named",
        apart=(("one mix server", "all the others"),),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g}"
