"""How fast residues in unary are encoded, shuffled and decoded, against a copy and against the paper's plain form.

`croupier bench rns` runs it; each of its measurements runs in a fresh process, so that its peak of resident memory is
its own. RNS's Table 10 (`papers.rns.cost`) calls `seconds`, which runs in the caller's process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.encode.encoder import Released
from croupier.encode.moduli import moduli
from croupier.encode.residues import Residues
from croupier.release.bits import Bits, Mod
from croupier.release.release import Release
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed.process import apart, resident, timed
from croupier_lab.bench.speed.rns_chunks import Kind, RnsEncodingSize, chunks, coded, draw, flat, sweep_point, warm

# The plain form is timed on so many parameters; more would take minutes and gigabytes.
PART = 1 << 20
# The fewest parameters of the sweep, and the most of which it makes shuffled bits.
SMALLEST = 10**5
LITERAL = 10**7


class RnsEncodingSweep(BenchSize):
    """Whether other sizes are measured too, and up to which."""

    sweep: bool = Field(False, description="Also time and memory from 10^5 parameters upwards.")
    largest: int = Field(10**8, ge=1, description="Where the sweep ends.")


SWEEP = RnsEncodingSweep


def measure(size: RnsEncodingSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Encode, decode and shuffle at one size."""
    return apart(_one_size, size, seed)


def sweep(size: RnsEncodingSize, seed: int, watch: Watch = ignore, *, largest: int) -> list[dict[str, Any]]:
    """The same work at sizes ten times apart: residues of sums and sum servers up to the largest, bits up to 10^7."""
    sizes = [SMALLEST * 10**k for k in range(12) if SMALLEST * 10**k <= largest] or [largest]
    points: list[tuple[Kind, int]] = [("mod", params) for params in sizes]
    points += [("sum-servers", params) for params in sizes]
    points += [("bits", params) for params in sizes if params <= LITERAL]
    return [apart(sweep_point, kind, size.model_copy(update={"params": params}), seed) for kind, params in points]


def _one_size(size: RnsEncodingSize, seed: int) -> dict[str, Any]:
    coins, encoder = Coins.from_seed(seed), Residues(clients=size.clients, digits=size.digits)
    warm(encoder, coins)
    before = resident("VmRSS")
    vector = torch.from_numpy(np.concatenate([draw(coins.child(0, k), b - a) for k, a, b in chunks(size.params)]))
    update, layout = Update(vector, flat(size.params)), flat(size.params)
    encode_s, sent = timed(lambda: encoder.encode(update, {}, coins.child("rounding")))
    wire = len(sent.vector)
    del sent
    cpu = time.process_time()
    bits_s, _, _ = _released(Bits(), encoder, size, coins)
    cpu = time.process_time() - cpu
    mod_s, sums, first = _released(Mod(), encoder, size, coins)
    released = Released(tuple(f"c{i}" for i in range(size.clients)), sums=sums, layout=layout)
    decode_s, mean = timed(lambda: _mean(encoder, released))
    peak = resident("VmHWM")
    error = float((mean[: len(first)].double() - first).abs().max()) * encoder.unit
    copied = _buffers(4 * size.params + wire)
    copy_s = _copy(*copied)
    # In turn, so that what else the machine does touches all of them alike.
    for _ in range(size.repeats - 1):
        encode_s = min(encode_s, timed(lambda: encoder.encode(update, {}, coins.child("rounding")))[0])
        copy_s = min(copy_s, _copy(*copied))
        decode_s = min(decode_s, timed(lambda: _mean(encoder, released))[0])
    plain_s, sampled = _plain(vector[:PART].numpy(), size)
    plain_s *= size.params / sampled
    return {
        "params": size.params,
        "clients": size.clients,
        "digits": size.digits,
        "moduli": list(encoder.modulus),
        "bits_per_parameter": encoder.bits,
        "bytes_per_client": wire,
        "encode_s": encode_s,
        "decode_s": decode_s,
        "shuffle_bits_s": bits_s,
        # Of all cores, encoding included: what others do on the machine does not lengthen it.
        "shuffle_bits_cpu_s": cpu,
        "shuffle_mod_s": mod_s,
        "copy_s": copy_s,
        "copy_bytes": 4 * size.params + wire,
        "plain_encode_s": plain_s,
        "plain_measured_on": sampled,
        "encode_to_copy": encode_s / copy_s,
        "plain_to_encode": plain_s / encode_s,
        "peak_bytes": peak,
        "peak_growth_bytes": peak - before,
        "peak_is": "resident high-water mark of a fresh process that encodes, shuffles and decodes; "
        "growth is beyond what the loaded program took before",
        "largest_error_units": error,
        "cores": torch.get_num_threads(),
    }


def _mean(encoder: Residues, released: Released) -> Tensor:
    """What the server does: from residues to the mean as floats."""
    gathered = encoder.decode(released, {})
    if gathered.sums is None or gathered.weights is None:
        raise AssertionError
    return (gathered.sums / gathered.weights).float()


def _released(release: Release, encoder: Residues, size: RnsEncodingSize, coins: Coins) -> tuple[float, Tensor, Tensor]:
    """Seconds of a release of all clients' bits, chunk by chunk; its sums, and the true mean of the first chunk.

    There are no sums where the release gives bits.
    """
    spent, parts, true = 0.0, list[Tensor](), torch.zeros(0, dtype=torch.float64)
    for number, start, stop in chunks(size.params):
        nodes = [coins.child(who, number) for who in range(size.clients)]
        rows = [coded(encoder, node, stop - start) for node in nodes]
        if number == 0:
            drawn = [torch.from_numpy(draw(node, stop - start)).double() for node in nodes]
            true = torch.stack(drawn).mean(0)
        node, layout = coins.child("release", number), flat(stop - start)
        took, out = timed(lambda: release(rows, layout, encoder.modulus, node))  # noqa: B023 - called at once
        spent += took
        parts += [out["sums"]] if "sums" in out else []
    return spent, torch.cat(parts) if parts else torch.zeros(0), true


def _buffers(count: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Two arrays whose every page has been touched."""
    return np.full(count, 1, np.uint8), np.full(count, 2, np.uint8)


def _copy(source: npt.NDArray[np.uint8], target: npt.NDArray[np.uint8]) -> float:
    return timed(lambda: np.copyto(target, source))[0]


def _plain(values: npt.NDArray[np.float32], size: RnsEncodingSize) -> tuple[float, int]:
    """Seconds of the paper's Algorithm 1 in plain NumPy, and on how many parameters."""
    chosen = moduli(size.clients, size.digits, "sum").values
    _algorithm1(values[:1000], chosen, size.digits)
    return min(timed(lambda: _algorithm1(values, chosen, size.digits))[0] for _ in range(2)), len(values)


def _algorithm1(values: npt.NDArray[np.float32], chosen: tuple[int, ...], digits: int) -> npt.NDArray[np.uint8]:
    """The paper's Algorithm 1 as printed: scale, round down, take residues, write each in unary with m bits.

    The bits are packed into bytes to be sent.
    """
    whole = np.floor(values.astype(np.float64) * 10**digits).astype(np.int64)
    codes = [np.arange(m) < (whole % m)[:, None] for m in chosen]
    return np.packbits(np.concatenate(codes, 1))


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(
        f"{found['params']} parameters, {found['clients']} clients, {found['digits']} digits: "
        f"{found['bits_per_parameter']} bits a parameter, {found['bytes_per_client'] / 1e6:.1f} MB a client"
    )
    lines = {
        "encode, one client": f"{found['encode_s']:9.3f} s, {found['encode_to_copy']:.1f} times a copy of what it "
        f"reads and writes ({found['copy_s']:.3f} s)",
        "the paper's plain form": f"{found['plain_encode_s']:9.3f} s, scaled up from {found['plain_measured_on']} "
        f"parameters: {found['plain_to_encode']:.0f} times ours",
        "decode the sum": f"{found['decode_s']:9.3f} s, at most {found['largest_error_units']:.3f} units off the mean",
        "shuffle all bits": f"{found['shuffle_bits_s']:9.3f} s, all clients "
        f"({found['shuffle_bits_cpu_s']:.1f} s of processor time, encoding included)",
        "count and reduce": f"{found['shuffle_mod_s']:9.3f} s, all clients",
    }
    for head, text in lines.items():
        print(f"{head:24}{text}")
    print(
        f"peak {found['peak_bytes'] / 1e6:.0f} MB, {found['peak_growth_bytes'] / 1e6:.0f} MB beyond the loaded program "
        f"({found['peak_is']})"
    )


def draw_sweep(points: Sequence[Mapping[str, Any]]) -> str:
    """Seconds and memory against size, as a picture."""
    # Not at the top: what is measured here does not draw, and its memory is counted.
    from croupier_lab.drawing import lines

    return lines.sweep(points, "a sum", "parameters")


def show_sweep(points: list[dict[str, Any]]) -> None:
    """One line a size."""
    print(f"{'release':12}{'parameters':>12}{'seconds':>10}{'ns each':>10}{'peak MB':>10}{'growth MB':>11}")
    for point in points:
        print(
            f"{point['release']:12}{point['params']:>12}{point['seconds']:>10.2f}"
            f"{point['ns_per_parameter_and_client']:>10.1f}{point['peak_bytes'] / 1e6:>10.0f}"
            f"{point['peak_growth_bytes'] / 1e6:>11.0f}"
        )
    print("encoding, releasing and decoding, a chunk at a time; ns each: for one parameter of one client")


def seconds(size: RnsEncodingSize, seed: int) -> tuple[float, float]:
    """Seconds to encode one client's update and to decode a sum, the best of several, in this process."""
    coins, encoder = Coins.from_seed(seed), Residues(clients=size.clients, digits=size.digits)
    warm(encoder, coins)
    update = Update(torch.from_numpy(draw(coins.child(0), size.params)), flat(size.params))
    sent = encoder.encode(update, {}, coins)
    # What everybody sending the same would add up to.
    sums = Mod()([sent.vector] * size.clients, update.layout, encoder.modulus, coins)["sums"]
    released = Released(tuple(f"c{i}" for i in range(size.clients)), sums=sums, layout=update.layout)
    encode = min(timed(lambda: encoder.encode(update, {}, coins))[0] for _ in range(size.repeats))
    return encode, min(timed(lambda: _mean(encoder, released))[0] for _ in range(size.repeats))
