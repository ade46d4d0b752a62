"""How long a mix of encrypted bits takes with its proofs, beside libsodium: the `malicious` row of `bench mix`.

One server's step is played with the placement's own record (`place.chain.mix_record`): bits are given fresh randomness
and permuted (`mix_s`), all sums and a random part of the numbers are proven (`prove_s`), and another party checks all
of it (`verify_s`). Clients' own work is not in it. The rival multiplies and adds on ristretto255 by one call of
libsodium for each multiple and sum, as Python calls it, and only mixes. `mix_chain` calls it.
"""

from __future__ import annotations

import time
from typing import Any

from croupier.core.coins import Coins
from croupier.core.flow import Given
from croupier.core.update import Layout, Slice
from croupier.encode.residues import Residues
from croupier.mpc import curve
from croupier.mpc.elgamal import Ciphertexts, MixKey
from croupier.mpc.fixed_points import base, shifted
from croupier.mpc.occasion import Occasion
from croupier.pipeline import Pipeline
from croupier.place.chain.bit_table import BitTable
from croupier.place.chain.chain import Chain
from croupier.place.chain.mix_record import MixKeys, MixRecord, OwnStep
from croupier.place.chain.proven_cost import MixSizes
from croupier.place.chain.table import MixTable
from croupier.release.bits import Bits

# Ciphertexts that the rival is timed on.
_RIVAL = 500
# The goals: seconds that 10^5 bits may take with proofs of a twentieth of the numbers, and how many times as fast as
# single calls of libsodium a mix must be.
GOAL_S, GOAL_RATIO, GOAL_BITS = 120.0, 3.0, 100_000


def measure(bits: int, clients: int, servers: int, coins: Coins, share: float = 0.05) -> dict[str, Any]:
    """One server's step on about so many encrypted bits, and the rival's."""
    place = Chain(trust="malicious", servers=servers, proven=share)
    whole = Pipeline(encode=Residues(clients=clients, digits=2), release=Bits(), place=place)
    roster = tuple(f"c{number:02}" for number in range(clients))
    wide = sum(m - 1 for m in Residues(clients=clients, digits=2).modulus)
    layout = Layout((Slice("w", (max(1, round(bits / clients / wide)),)),))
    table = BitTable(MixTable(whole, roster, layout))
    given = Given("mix1", bytes(16), 0, 0, roster, 2, layout)
    public = {name: MixKey.make(coins.child("key", name)).public for name in place.names}
    keys = MixKeys(Occasion.of(given), public)
    many = clients * table.length
    rand = curve.drawn(coins.child("rand"), many)
    inputs = Ciphertexts(base(rand), shifted(None, keys.joint, rand))
    record, watcher = (MixRecord(table, keys, roster, inputs) for _ in range(2))
    # Compiled loops are loaded.
    table.order(roster, coins.child("warm").export())
    start = time.perf_counter()
    step = OwnStep(table.order(roster, coins.child("order").export()), curve.drawn(coins.child("fresh"), many))
    drawn = time.perf_counter()
    mixed = record.remixed(step)
    mixes = time.perf_counter()
    body = record.prove_mix("mix1", step, mixed, coins.child("sums"))
    coin = coins.child("coin").export()
    slots = table.chosen(coin, share)
    proof = record.prove("mix1", step, slots, coin, coins.child("prove"))
    proves = time.perf_counter()
    watcher.check_mix("mix1", body)
    watcher.check_proofs("mix1", slots, coin, proof, coins.child("check"))
    checks = time.perf_counter()
    sizes = MixSizes(clients, table.slots, table.widths, servers, share)
    mix_us, rival = 1e6 * (mixes - drawn) / many, _rival()
    return {
        "form": "malicious", "servers": servers, "bits": many, "client_bytes": sizes.client_bytes,
        "hop_bytes": sizes.hop_bytes + sizes.proof_bytes, "mix_s": mixes - start, "prove_s": proves - mixes,
        "verify_s": checks - proves, "proven": len(slots) / table.slots, "mix_us": mix_us, "libsodium_us": rival,
        "faster": None if rival is None else rival / mix_us,
        "whole_s_of_1e5": (checks - start) * GOAL_BITS / many,
    }  # fmt: skip


def _rival() -> float | None:
    """Microseconds a ciphertext by libsodium, one call for each multiple and sum; None where rbcl is not there."""
    try:
        import rbcl
    except ImportError:
        return None
    key = rbcl.crypto_scalarmult_ristretto255_base(rbcl.crypto_core_ristretto255_scalar_random())
    points = [rbcl.crypto_core_ristretto255_random() for _ in range(2)]
    scalars = [rbcl.crypto_core_ristretto255_scalar_random() for _ in range(_RIVAL)]
    start = time.perf_counter()
    for scalar in scalars:
        rbcl.crypto_core_ristretto255_add(points[0], rbcl.crypto_scalarmult_ristretto255_base(scalar))
        rbcl.crypto_core_ristretto255_add(points[1], rbcl.crypto_scalarmult_ristretto255(scalar, key))
    return 1e6 * (time.perf_counter() - start) / _RIVAL


def show(row: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    rival = "rbcl is not installed" if row["faster"] is None else (
        f"{row['libsodium_us']:.0f} by libsodium's calls: {row['faster']:.1f} times as fast (goal {GOAL_RATIO:g})"
    )  # fmt: skip
    print(
        f"with proofs: {row['bits']} bits, {row['servers']} servers, {row['client_bytes']} B a client and server, "
        f"{row['hop_bytes']} B a hop; mix {row['mix_s']:.2f} s, prove sums and {row['proven']:.0%} of the numbers "
        f"{row['prove_s']:.2f} s, verify {row['verify_s']:.2f} s; 10^5 bits in {row['whole_s_of_1e5']:.1f} s (goal "
        f"{GOAL_S:g}); {row['mix_us']:.1f} µs a ciphertext, {rival}"
    )
