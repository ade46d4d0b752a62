"""Bits a parameter for RNS in unary: the least that keeps every sum apart, and a verdict on what its paper prints.

A printed number of bits is the sum of some coprime moduli. The paper (the source-inference paper) does not say which.
But no moduli of that sum have a product above Landau's function, the largest there is, so where even that is too small,
some sums are confused whatever the moduli were. Only bits of unary residues are judged, not those of its other
encodings. `croupier explain rns --table` prints `table` and `judged`, `papers.rns.cost` uses `PLAIN`, and two rows of
docs/results.md rest on the test of these verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from croupier.encode.moduli import cheapest, largest, moduli, one_modulus, values_of

# The numbers of clients and of decimal digits in our own table.
CLIENTS = (5, 10, 20, 50, 100, 1000, 10_000)
DIGITS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
# Bits of a parameter that is sent as a plain float.
PLAIN = 32


@dataclass(frozen=True)
class PaperClaim:
    """Bits that the paper prints for sums of so many clients' values from -top to top.

    `digits` are the decimal digits of a value, None where the paper gives none; `about`: the paper says "about".
    """

    where: str
    clients: int
    bits: int
    top: int
    digits: int | None = None
    about: bool = False


def _digits(where: str, clients: int, digits: int, bits: int, about: bool = False) -> PaperClaim:
    """A claim on values of this many decimal digits."""
    return PaperClaim(where, clients, bits, int(10**digits) - 1, digits, about)


def expanded(factor: float) -> int:
    """The bits that a printed expansion factor over 32-bit floats stands for."""
    return round(factor * PLAIN)


# The paper names no number of clients for its figures: 10, as in its Table 1, is ours.
CLAIMS = (
    _digits("Table 1, r = 3, 1.04x", 10, 3, expanded(1.04)),
    _digits("Table 1, r = 4, 1.28x", 10, 4, expanded(1.28)),
    _digits("Table 1, r = 5, 1.81x", 10, 5, expanded(1.81)),
    _digits("Figure 14, r = 8 by Section 7.2, 2.4x", 10, 8, expanded(2.4)),
    PaperClaim("Appendix F.2.2, 8-bit integers, 1.28x", 10, expanded(1.28), 127),
    _digits("Figure 12, r = 4, about 23 extra", 10, 4, PLAIN + 23, about=True),
    _digits("Figure 13, r = 8, about 78 extra", 10, 8, PLAIN + 78, about=True),
    _digits("Table 9, r = 8", 1000, 8, 160),
    _digits("Table 9, r = 8", 10_000, 8, 160),
    _digits("Table 9, r = 12", 1000, 12, 281),
    _digits("Table 9, r = 12", 10_000, 12, 328),
    _digits("Table 9, r = 16", 1000, 16, 381),
    _digits("Table 9, r = 16", 10_000, 16, 440),
)


def judged() -> list[dict[str, Any]]:
    """Every claim with its verdict, computed."""
    return [judge(claim) for claim in CLAIMS]


def judge(claim: PaperClaim) -> dict[str, Any]:
    """Whether any moduli that add up to the printed bits keep all sums of values apart; and what is needed for it.

    With n clients and values up to v (`top`), all sums are kept apart where the moduli's product M is at least
    2 n v + 1, or n v + 1 for values without signs, and that is what the verdict goes by. "Not the least" means that
    fewer bits would do. The paper asks for a little more, n v < floor((M - 1) / 2), so a claim that fails
    here breaks the paper's condition, too. `least_sum` is the least number of bits in the paper's form, m for each
    modulus m, and `least_bits` in ours, m - 1.
    """
    sums, most = values_of(claim.clients, claim.top), largest(claim.bits)
    apart, unsigned = most >= sums, most >= claim.clients * claim.top + 1
    least = cheapest(sums, "sum").literal_bits
    verdict = "holds" if least == claim.bits else "holds, not the least"
    if not apart:
        verdict = "breaks its condition" + ("" if unsigned else ", even without signs")
    return {
        "where": claim.where,
        "clients": claim.clients,
        "digits": claim.digits,
        "largest_value": claim.top,
        "bits": claim.bits,
        "approximate": claim.about,
        "most_sums": most,
        "sums": sums,
        "lossless": apart,
        "lossless_without_signs": unsigned,
        "verdict": f"{verdict} (printed as about)" if claim.about else verdict,
        "least_sum": least,
        "least_bits": cheapest(sums).bits,
    }


def table() -> list[dict[str, Any]]:
    """Our moduli and bits, for each number of clients and digits."""
    return [_cell(clients, digits) for digits in DIGITS for clients in CLIENTS]


def _cell(clients: int, digits: int) -> dict[str, Any]:
    ours, literal = moduli(clients, digits), moduli(clients, digits, "sum")
    printed = [claim.bits for claim in CLAIMS if (claim.clients, claim.digits) == (clients, digits)]
    return {
        "clients": clients,
        "digits": digits,
        "moduli": list(ours.values),
        "bits": ours.bits,
        "sum": literal.literal_bits,
        "binary_residues": ours.packed_bits,
        "one_modulus": one_modulus(ours.bound).packed_bits,
        "printed": printed,
    }
