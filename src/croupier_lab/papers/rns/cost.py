"""What RNS's encoding costs: bits a parameter and seconds here, beside the paper's numbers.

The paper's figures are pictures; where its text prints a number for one of their points, that number stands beside
ours. `croupier reproduce` runs it for Figures 2 and 11 to 14 and Tables 1, 9 and 10 (`rns/figure2`, and so on).
`papers.rns.mixnets` uses its sizes.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice, Update
from croupier.core.wire import Field, Schema, bit_rows
from croupier.encode.floats import Floats
from croupier.encode.moduli import Moduli, moduli, one_modulus, values_of
from croupier.encode.residues import Residues
from croupier.kernels import residues
from croupier_lab.bench.speed import rns_encoding, shamir_sum
from croupier_lab.bench.speed.rns_chunks import RnsEncodingSize
from croupier_lab.papers.rns.bits_per_parameter import PLAIN
from croupier_lab.papers.shared.figure import Figure, Scale, counted

PAPER = "Athanasiou, Jung and Palamidessi, ICLR 2026"
UNPRINTED = "figure, not printed"
# By scale: parameters of a payload, and coordinates that are really shared.
COUNTS: Mapping[Scale, int] = {"smoke": 1_000, "small": 100_000, "paper": 1_000_000}
SHARED: Mapping[Scale, int] = {"smoke": 8, "small": 32, "paper": 128}
# Beyond this many clients, sharing everything with everybody is counted by formula.
MANY = 20
READ = (
    "Bits are those of encoded bodies, 8 times their bytes over the number of parameters: residues in unary as we send "
    "them (m - 1 bits a modulus), with the paper's m bits, residues in binary (the paper's RLE, run-length encoding, "
    "which needs a trusted shuffler), one binary modulus (all that a trusted adder needs), and 32-bit floats. Digits "
    "beyond the seven of a float32 cost bits but carry nothing."
)
SA_READ = (
    " Secret sharing (SA): every coordinate to each of the other n - 1 clients in a share of C bits, t = n - 1 shares "
    "giving the sum; over a 61-bit prime, run for real up to 20 clients; beyond, and with the least C that holds every "
    "sum, by formula C (n - 1). The paper's Table 9 prints C (n - 2) with C for sums without signs. Additive shares "
    "from seeds would cost C bits and 32 bytes a server."
)


def cost(clients: int, digits: int, scale: Scale) -> dict[str, Any]:
    """Bits a parameter of each way to send an update.

    They are counted on payloads that are built, except for the printed form, which is scaled up, and for one modulus
    that no word holds.
    """
    count = COUNTS[scale]
    ours, literal = moduli(clients, digits), moduli(clients, digits, "sum")
    numbers = _numbers(count, digits)
    binary = one_modulus(values_of(clients, 10**digits - 1))
    return {
        "clients": clients,
        "digits": digits,
        "moduli": len(ours.values),
        "unary": _per(_unary(numbers, clients, digits, ours), count),
        "paper_form": _per(_literal(numbers, literal), count),
        "binary_residues": _per(_narrow(numbers, ours.values), count),
        "one_modulus": _per(_narrow(numbers, binary.values), count) if binary.packed_bits < 64 else binary.packed_bits,
        "floats": _per(_floats(count), count),
    }


def _per(body: int, count: int) -> float:
    """Bits a parameter, to a hundredth: the whole bytes at the end do not matter for a model."""
    return round(8 * body / count, 2)


def _numbers(count: int, digits: int) -> residues.Ints:
    """Integers of that many digits; the largest, the smallest and 0 first."""
    top = 10**digits - 1
    numbers: residues.Ints = Coins.from_seed(digits).secure().below(2 * top + 1, count) - top
    numbers[:3] = top, -top, 0
    return numbers


def _unary(numbers: residues.Ints, clients: int, digits: int, chosen: Moduli) -> int:
    """Bytes of residues in unary on the wire. The encoder keeps to nine digits; above, the bits are made plainly."""
    if digits <= 9:
        encoder, layout = Residues(clients=clients, digits=digits), Layout((Slice("w", (len(numbers),)),))
        vector = torch.from_numpy((numbers / 10**digits).astype(np.float32))
        sent = encoder.encode(Update(vector, layout), {}, Coins.from_seed(0)).vector
        return len(Schema((encoder.field(layout),)).pack({"vector": sent}))
    body = torch.from_numpy(residues.spread_plain(numbers, chosen.values))
    return len(Schema((bit_rows("vector", (), len(numbers), chosen.values),)).pack({"vector": body}))


def _literal(numbers: residues.Ints, chosen: Moduli) -> int:
    """Bytes with m bits a modulus, as printed: counted on the first 1,000 and scaled up."""
    part = numbers[:1000]
    codes = [np.arange(m) < (part % m)[:, None] for m in chosen.values]
    return len(np.packbits(np.concatenate(codes, 1))) * len(numbers) // len(part)


def _narrow(numbers: residues.Ints, chosen: Sequence[int]) -> int:
    """Bytes of residues as binary numbers of no more bits than they need."""
    widths = tuple((m - 1).bit_length() for m in chosen)
    values = torch.from_numpy(np.stack([numbers % m for m in chosen], 1))
    return len(Schema((Field("vector", "<i8", tuple(values.shape), widths=widths),)).pack({"vector": values}))


def _floats(count: int) -> int:
    encoder, layout = Floats(), Layout((Slice("w", (count,)),))
    sent = encoder.encode(Update(torch.zeros(count), layout), {}, Coins.from_seed(0)).vector
    return len(Schema((encoder.field(layout),)).pack({"vector": sent}))


def shared(clients: int, digits: int, scale: Scale) -> dict[str, Any]:
    """Bits a parameter of secret sharing: run and checked for few clients, by formula for many."""
    sums = values_of(clients, 10**digits - 1)
    least, bits = one_modulus(sums).packed_bits, None
    if sums > shamir_sum.PRIME:
        how = "sums do not fit"
    elif clients > MANY:
        how, bits = "by formula", float(shamir_sum.BITS * (clients - 1))
    else:
        count = SHARED[scale]
        updates = [_numbers(count, digits)[::-1].tolist() if who % 2 else _numbers(count, digits).tolist()
                   for who in range(clients)]  # fmt: skip
        tally = shamir_sum.aggregate(updates, max(1, clients - 1), Coins.from_seed(clients))
        if tally.sums != [sum(column) for column in zip(*updates, strict=True)]:
            raise AssertionError("shared sums are wrong")
        how, bits = "run", _per(tally.to_clients, count)
    return {"sharing_61_bits": bits, "sharing_is": how, "sharing_least_c": least * (clients - 1)}


def _figure2(scale: Scale) -> list[dict[str, Any]]:
    return [
        {**cost(clients, digits, scale), **shared(clients, digits, scale), "paper": UNPRINTED}
        for digits in (4, 8)
        for clients in (5, 10, 20, 50, 100)
    ]


def _figure11(scale: Scale) -> list[dict[str, Any]]:
    """Rounds of shuffling: one for every modulus."""
    return [
        {
            "clients": clients,
            "digits": digits,
            "rounds": len(moduli(clients, digits).values),
            "rounds_by_sum": len(moduli(clients, digits, "sum").values),
            "paper": UNPRINTED,
        }
        for clients in (5, 10, 100, 1000)
        for digits in range(1, 9)
    ]


def _few(digits: int, said: str, scale: Scale) -> list[dict[str, Any]]:
    return [
        {
            **cost(clients, digits, scale),
            **shared(clients, digits, scale),
            "paper": said if clients == 10 else UNPRINTED,
        }
        for clients in (2, 3, 4, 5, 10, 15, 20)
    ]


def _figure12(scale: Scale) -> list[dict[str, Any]]:
    return _few(4, "about 23 bits more than 32 (no number of clients named)", scale)


def _figure13(scale: Scale) -> list[dict[str, Any]]:
    return _few(8, "around 78 bits more than 32 (no number of clients named)", scale)


def _figure14(scale: Scale) -> list[dict[str, Any]]:
    said = {5: "1.81; with RLE 1.03", 8: "2.4 to fully match"}
    return [_expansion(digits, scale) | {"paper": said.get(digits, UNPRINTED)} for digits in range(1, 9)]


def _expansion(digits: int, scale: Scale) -> dict[str, Any]:
    """Sizes over those of 32-bit floats, ten clients."""
    found = cost(10, digits, scale)
    ways = ("unary", "paper_form", "binary_residues", "one_modulus")
    return {"clients": 10, "digits": digits} | {way: round(found[way] / found["floats"], 2) for way in ways}


# By task, the digits and the printed expansion over 32-bit floats.
TABLE1 = {
    "CNN, MNIST": (3, 1.04), "CNN, CIFAR-10": (5, 1.81), "ResNet, CIFAR-100": (5, 1.81), "MLP, synthetic": (4, 1.28),
    "CNN, HAR": (4, 1.28), "Transformer, Newsgroups": (4, 1.28),
}  # fmt: skip


def _table1(scale: Scale) -> list[dict[str, Any]]:
    return [{"task": task, **_expansion(r, scale), "paper": factor} for task, (r, factor) in TABLE1.items()]


# By clients and digits, the printed bits of secret sharing, of unary residues and of residues in binary (RLE).
TABLE9 = {
    (1000, 8): (36926, 160, 43), (10_000, 8): (399920, 160, 42), (1000, 12): (49900, 281, 61),
    (10_000, 12): (539892, 328, 67), (1000, 16): (63872, 381, 73), (10_000, 16): (669866, 440, 79),
}  # fmt: skip


def _table9(scale: Scale) -> list[dict[str, Any]]:
    rows = []
    for (clients, digits), (sa, unary, rle) in TABLE9.items():
        said = {"paper": unary, "paper_rle": rle, "paper_sa": sa, "paper_floats": PLAIN}
        # The printed numbers of secret sharing (SA) are C (n - 2), though the text says C (n - 1).
        rebuilt = math.ceil(math.log2(clients * (10**digits - 1))) * (clients - 2)
        rows.append({**cost(clients, digits, scale), **shared(clients, digits, scale), **said, "sa_rebuilt": rebuilt})
    return rows


# By model, its parameters and the printed seconds to encode and to decode.
TABLE10 = {
    "MNIST/CNN": (643_850, 1.16, 3.8),
    "CIFAR-10/CNN": (940_362, 1.6, 5.6),
    "CIFAR-100/ResNet": (11_237_432, 19.1, 57.0),
}


def _table10(scale: Scale) -> list[dict[str, Any]]:
    """Seconds, ten clients with five digits: the paper does not say how many. Smaller scales leave out the largest."""
    rows = []
    for model, (params, encode, decode) in TABLE10.items():
        if scale == "paper" or params < 10**6:
            ours = rns_encoding.seconds(RnsEncodingSize(params=params, repeats=3), 0)
            rows.append(
                {"model": model, "parameters": params, "encode_s": round(ours[0], 4), "decode_s": round(ours[1], 4),
                 "paper_encode_s": encode, "paper_decode_s": decode, "machine": machine(),
                 "paper_machine": "Mac M1 Max"}
            )  # fmt: skip
    return rows


def machine() -> str:
    """What this runs on."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text("utf-8", "replace").splitlines() if facts.exists() else []
    named = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{named}, {os.cpu_count()} cores"


def _figure(name: str, source: str, title: str, rows: Any, reading: str = READ) -> Figure:
    return Figure(f"rns/{name}", f"{PAPER}, {source}", title, reading, counted(rows))


FIGURES = (
    _figure("figure2", "Figure 2", "bits a parameter by clients, r = 4 and 8", _figure2, READ + SA_READ),
    _figure("figure11", "Figure 11", "rounds of shuffling: as many as moduli", _figure11,
            "One round of shuffling a modulus: of the set with the fewest bits, and of the one with the least sum."),
    _figure("figure12", "Figure 12", "bits a parameter for up to 20 clients, r = 4", _figure12, READ + SA_READ),
    _figure("figure13", "Figure 13", "bits a parameter for up to 20 clients, r = 8", _figure13, READ + SA_READ),
    _figure("figure14", "Figure 14", "size over that of 32-bit floats by digits, 10 clients", _figure14),
    _figure("table1", "Table 1", "size over that of 32-bit floats by task, 10 clients", _table1,
            READ + " `croupier explain rns --table` says which of the paper's entries cannot be lossless."),
    _figure("table9", "Table 9", "bits a parameter for many clients and digits", _table9, READ + SA_READ),
    _figure("table10", "Table 10", "seconds to encode and decode", _table10,
            "One client's update to packed bits, and residues of a sum to the mean; the best of three on this machine. "
            "The paper's are another machine's, and it does not say for how many clients and digits."),
)  # fmt: skip
