"""What a chain whose servers prove what they do withstands, in words with numbers: `croupier explain` prints them."""

from __future__ import annotations

from croupier.place.chain.bit_table import at_least
from croupier.place.placement import Tolerance

# So many changed numbers are said the chance for.
CHANGED = (1, 10, 100)


def learns() -> dict[str, str]:
    """Nothing that could be opened."""
    return {
        "each mix server": "which clients took part, its own permutations, which numbers were proven, and encrypted "
        "bits that it cannot open",
    }


def tolerance(servers: int, share: float) -> Tolerance:
    """For so many servers, of which each proves that share of the numbers."""
    chances = zip(CHANGED, at_least(share, CHANGED), strict=True)
    said = ", ".join(f"{_percent(chance)} % for t = {many}" for many, chance in chances)
    return Tolerance(
        privacy="the server and all mix servers but one, colluding and doing what they like, by the decisional "
        "Diffie-Hellman assumption on secp256k1: to mark bits in order to find them again is to risk being named. "
        f"Every server proves that it only moved the bits of {_percent(share)} % of the numbers, which a joint coin "
        "draws after all have mixed: marks in t numbers are caught before anything is opened with a chance of at least "
        f"1 - (1 - {share:g})^t ({said}). Marks that the coin misses show when they are opened, but where the bit "
        "hides them, as one more on a 0 does; their maker is named then, and the server has seen them. The paper's "
        "traps are these numbers, drawn late: those that are known before protect only themselves. Multiplication of "
        "points takes other times for other scalars: who shares a machine with a mix server or a client might learn "
        "from it. "
        "Among those present; colluders know their own part",
        integrity="any one honest mix server: clients prove that each bit is one, every server proves for all numbers "
        "that no block's sum changed, and that it opened with its key. A wrong sum passes with a chance below 2^-100, "
        "in the random oracle model, and who made it is named. All mix servers sign for every client that its bits are "
        "in. Clients may send any value within the scale",
        liveness=f"all mix servers and the server: {servers} of {servers} must be live, because nothing opens without "
        "every key; a round completes with the clients that reached all mix servers, above the quorum. Any client can "
        "end a round by a proof that does not hold, and is named",
        apart=(("one mix server", "all the others"),),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g}"
