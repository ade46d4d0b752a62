"""Seconds of each step after training, on the CPU as the product does it and on a device, and whether bytes agree.

It answers whether work after training should move to a device: where no step takes less there, that would be no gain.
`device_rounds` (`croupier bench simulate --device cuda`) calls `compare`. The whole `cpu_s` has what the product pays:
updates come from the device once (`home_s`), and stay; clients encode and mask on all cores at once. The whole
`device_s` has what a device would pay: words of the cipher on their way there, what leaves on its way back, and, where
rows arrive as messages in the CPU's memory, their way there (`there_s`, for all updates once).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.mean import Mean
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout, Model, Slice
from croupier.encode.fixed import FixedPoint
from croupier.kernels import packed, permute, residues
from croupier.kernels.threads import FEW, each
from croupier.learn.batch import home
from croupier.release.release import blocks
from croupier.release.shuffle import shuffle_into
from croupier_lab.bench.speed import device_steps

# Decimal digits of a parameter, and masks of each client.
DIGITS, SEEDS = 4, 2
Bytes = npt.NDArray[np.uint8]
NO_DRAWS = np.zeros(0, np.uint32)


class TimedStep(NamedTuple):
    """One step: as the product does it, on the device, and how what they give is compared."""

    name: str
    cpu: Callable[[], Any]
    device: Callable[[], Any]
    bytes_of: Callable[[Any], bytes]


def compare(rows: Tensor, coins: Coins, repeats: int = 3) -> dict[str, Any]:
    """Every step on updates that lie on a device: seconds on both, the best of several, and whether they agree."""
    ready(rows.device)
    home_s, _ = best(lambda: home(rows), rows.device, repeats)
    plain_s, came = best(lambda: rows.cpu(), rows.device, repeats)
    there_s, _ = best(lambda: came.to(rows.device), rows.device, repeats)
    found = list[dict[str, Any]]()
    for step in steps(rows, came, coins):
        cpu_s, one = best(step.cpu, rows.device, repeats)
        device_s, other = best(step.device, rows.device, repeats)
        same = step.bytes_of(one) == step.bytes_of(other)
        found.append({"step": step.name, "cpu_s": cpu_s, "device_s": device_s, "same_bytes": same})
    return {
        "clients": len(rows), "parameters": rows.shape[1], "home_s": home_s, "home_plainly_s": plain_s,
        "there_s": there_s, "steps": found,
        "cpu_s": home_s + sum(one["cpu_s"] for one in found), "device_s": sum(one["device_s"] for one in found),
    }  # fmt: skip


def steps(rows: Tensor, here: Tensor, coins: Coins) -> list[TimedStep]:
    """All steps on the same updates, on a device and in the CPU's ordinary memory."""
    clients, width = rows.shape
    fixed = FixedPoint(clients=clients, digits=DIGITS)
    bits, grid = fixed.bits, residues.Quantiser(np.ones(1), fixed.unit, fixed.top)
    encoded = [residues.wrapped(row.numpy(), grid, NO_DRAWS, bits)[0] for row in here]
    there = device_steps.rounded(rows, fixed.unit, fixed.top, bits)
    own = [[coins.child("mask", c, s).secure().packed(bits) for s in range(SEEDS)] for c in range(clients)]
    shares = [packed.cover(row, bits, sources)[0] for row, sources in zip(encoded, own, strict=True)]
    size = packed.size(width, bits)
    weights = torch.arange(1, clients + 1, dtype=torch.float64)

    def masked() -> list[Bytes]:
        draws = partial(_drawn, width, bits, rows.device)
        made = [
            device_steps.covered(row, [draws(one) for one in mine], bits) for row, mine in zip(there, own, strict=True)
        ]
        return [_bytes(words, size) for words in made]

    return [
        TimedStep(
            "encode",
            lambda: _at_once(lambda c: residues.wrapped(here[c].numpy(), grid, NO_DRAWS, bits)[0], clients, width),
            lambda: home(device_steps.rounded(rows, fixed.unit, fixed.top, bits)).numpy(), _joined,
        ),
        TimedStep(
            "mask", lambda: _at_once(lambda c: packed.cover(encoded[c], bits, own[c])[0], clients, width),
            masked, _joined,
        ),
        TimedStep(
            "fold", lambda: packed.fold(shares, (), width, bits),
            lambda: _bytes(
                device_steps.folded([_words(row).to(rows.device) for row in shares], width, bits), size
            ), _joined,
        ),
        TimedStep(
            "shuffle", lambda: _shuffled(here, coins.child("relay")),
            lambda: _shuffled_there(here.to(rows.device), here, coins.child("relay")), _joined,
        ),
        TimedStep(
            "mean", lambda: _mean(here, weights),
            lambda: device_steps.averaged(
                here.to(rows.device), weights.to(rows.device)
            ).cpu().div_(float(weights.sum())).float(),
            lambda vector: bytes(vector.numpy().data),
        ),
    ]  # fmt: skip


def ready(device: torch.device) -> None:
    """Wait until a device has done what it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def best(work: Callable[[], Any], device: torch.device, repeats: int) -> tuple[float, Any]:
    """The fewest seconds of several times, after one that does not count, and what it gave."""
    seconds, made = [], work()
    for _ in range(repeats):
        ready(device)
        start = time.perf_counter()
        made = work()
        ready(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds), made


def _at_once(work: Callable[[int], npt.NDArray[Any]], clients: int, width: int) -> list[npt.NDArray[Any]]:
    """What each client makes: on all cores, or one after another where vectors are short, as `engine.local` does it."""
    if width < FEW:
        return [work(client) for client in range(clients)]
    found: dict[int, npt.NDArray[Any]] = {}

    def one(client: int) -> None:
        found[client] = work(client)

    each([partial(one, client) for client in range(clients)])
    return [found[client] for client in range(clients)]


def _shuffled(rows: Tensor, coins: Coins) -> npt.NDArray[np.float32]:
    out = np.empty(tuple(rows.shape), np.float32)
    shuffle_into(out, list(rows), "parameter", _flat(rows.shape[1]), coins)
    return out


def _shuffled_there(rows: Tensor, here: Tensor, coins: Coins) -> npt.NDArray[np.float32]:
    """On the device; blocks in which a word was refused (one of 2^24 is) are done anew on the CPU."""
    spans = list(blocks(rows.shape[1]))
    count = len(permute.batches(len(rows)))
    pinned = rows.device.type == "cuda"
    words = torch.empty(count, rows.shape[1], dtype=torch.int64, pin_memory=pinned)

    def draw(number: int, start: int, stop: int) -> None:
        stream, step = coins.child("block", number).secure(), max(1, permute.DRAWN // count)
        for at in range(start, stop, step):
            wide = min(step, stop - at)
            words.numpy()[:, at : at + wide] = stream.words(count * wide).view(np.int64).reshape(count, wide)

    each([partial(draw, *span) for span in spans])
    moved, refused = device_steps.shuffled(rows, words.to(rows.device, non_blocking=True))
    out: npt.NDArray[np.float32] = home(moved).numpy()
    again = set((refused.nonzero()[:, 0] // spans[0][2]).tolist())
    for number, start, stop in spans:
        if number in again:
            out[:, start:stop] = here[:, start:stop].numpy()
            coins.child("block", number).secure().permute_columns(out[:, start:stop])
    return out


def _mean(rows: Tensor, weights: Tensor) -> Tensor:
    layout = _flat(rows.shape[1])
    last = Model(torch.zeros(rows.shape[1]))
    gathered = Gathered(tuple(f"c{c}" for c in range(len(rows))), rows, weights=weights)
    (model,), _ = Mean()(gathered, Desk((last,), layout, Coins.from_seed(0)), {})
    return model.vector


def _flat(width: int) -> Layout:
    return Layout((Slice("all", (width,)),))


def _drawn(width: int, bits: int, device: torch.device, source: packed.Source) -> Tensor:
    """A mask's words from the cipher, on their way to the device."""
    words = torch.empty(-(-width * bits // 64), dtype=torch.int64, pin_memory=device.type == "cuda")
    source(0)(words.numpy().view(np.uint64), width)
    return words.to(device, non_blocking=True)


def _words(row: Bytes) -> Tensor:
    full = np.zeros(-(-len(row) // 8) * 8, np.uint8)
    full[: len(row)] = row
    return torch.from_numpy(full.view(np.int64))


def _bytes(words: Tensor, size: int) -> Bytes:
    return words.cpu().numpy().view(np.uint8)[:size]


def _joined(parts: Sequence[Any]) -> bytes:
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
