"""How long one secure sum takes and what a client sends for it: sum servers, masks, and what others have built.

`croupier bench sum` runs it, from updates to the decoded total, with every message of the real placements. Flower's
SecAgg+ and TenSEAL's CKKS are run on the same updates where they are installed (`other_secure_sums`), and `sum_limit`
says how fast a sum could be. The benches of tampering, mix chains, starts and Flower use its updates or its sums.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from pydantic import Field

from croupier.core.attempt import Attempt, AttemptId, AttemptResult
from croupier.core.coins import Coins
from croupier.core.flow import Flow, Given, Memory, Party, roster_digest
from croupier.core.update import Layout, Slice, Update
from croupier.encode.encoder import Released
from croupier.engine.local import Local
from croupier.engine.state import run_id
from croupier.errors import CroupierError
from croupier.pipeline import Pipeline
from croupier.place.masks import Masks
from croupier.place.placement import residue_bits
from croupier.systems import sum_servers
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed.other_secure_sums import PACKAGES, RIVALS
from croupier_lab.bench.speed.sum_limit import limit


class SecureSumSize(BenchSize):
    """How much is summed: parameters, clients, sum servers, decimal digits, and timed repeats."""

    params: int = Field(1_000_000, ge=1, description="Parameters of each update.")
    clients: int = Field(10, ge=2, description="Clients.")
    servers: int = Field(3, ge=2, le=16, description="Sum servers, of which one honest one suffices.")
    digits: int = Field(5, ge=1, le=9, description="Decimal digits of a parameter.")
    repeats: int = Field(3, ge=1, description="Timed repeats of each side; the best counts.")


@dataclass(frozen=True)
class Seated:
    """One sum from updates to the decoded total, with no model handed out: the attempt, and what the server got."""

    attempt: Attempt
    got: list[Released]


def seated(
    pipeline: Pipeline,
    updates: Mapping[str, Update],
    coins: Coins,
    round_: int = 0,
    attempt: int = 0,
    quorum: int | None = None,
) -> Seated:
    """Seat everybody for one sum; what passes the server's checks will lie in `got`."""
    roster = tuple(sorted(updates))
    run = run_id(coins)
    keys = pipeline.place.enrol(roster, coins.child("enrol"))
    got: list[Released] = []

    def client(given: Given, memory: Memory, own: Coins) -> Flow:
        payload = pipeline.encode.encode(updates[given.me], {}, own.child("encode"))
        once = own.child("attempt", given.attempt, roster_digest(given.roster))
        submitting = pipeline.place.submit(pipeline, given, payload, memory["keys"], once.child("submit"))
        # As a client of a pipeline does: it holds nothing that it has sent.
        del payload
        yield from submitting
        return {}

    def server(given: Given, memory: Memory, own: Coins) -> Flow:
        released = yield from pipeline.place.collect(pipeline, given, own.child("collect"))
        gathered = pipeline.encode.decode(released, {})
        got.append(released)
        return {"gathered": gathered}

    parties: dict[str, Party] = {
        **dict.fromkeys(roster, client), **pipeline.place.middle(pipeline), "server": server,
    }  # fmt: skip
    layout = next(iter(updates.values())).layout
    least = len(roster) if quorum is None else quorum
    givens = {name: Given(name, run, round_, attempt, roster, least, layout) for name in parties}
    return Seated(
        Attempt(
            attempt_id=AttemptId(pipeline.digest(), run, round_, attempt), parties=parties, givens=givens,
            memories={name: {"keys": keys.get(name, {})} for name in parties},
            coins={name: coins.child("party", name, "round", round_) for name in parties},
            schemas=pipeline.schemas(givens["server"]), bench={},
        ),
        got,
    )  # fmt: skip


def one_sum(
    pipeline: Pipeline, updates: Mapping[str, Update], coins: Coins, links: Coins | None, round_: int = 0
) -> tuple[AttemptResult, torch.Tensor | None]:
    """One honest sum: who ended how, and the sum. With `links` every message is sealed, sent, opened and parsed."""
    result = Local(links)(seated(pipeline, updates, coins, round_).attempt)
    memory = result.outcomes["server"].memory
    return result, memory["gathered"].sums if memory else None


def drawn(params: int, clients: int, coins: Coins) -> dict[str, Update]:
    """Updates like trained weights: small normals."""
    layout = Layout((Slice("w", (params,)),))
    made = {}
    for number in range(clients):
        draw = coins.child("update", number).fast()
        values = (0.05 * torch.randn(params, generator=draw)).clamp(-0.99, 0.99)
        made[f"c{number:02}"] = Update(values, layout, {"weight": torch.ones(1, dtype=torch.float64)})
    return made


def measure(size: SecureSumSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Our sum servers and masks, and the rivals that are installed, on the same updates."""
    coins = Coins.from_seed(seed)
    updates = drawn(size.params, size.clients, coins)
    true = torch.stack([update.vector.double() for update in updates.values()]).sum(0)
    servers = sum_servers(size.clients, size.digits, size.servers)
    masks = servers.model_copy(update={"place": Masks()})
    found: dict[str, Any] = {
        "params": size.params, "clients": size.clients, "servers": size.servers, "digits": size.digits,
    }  # fmt: skip
    for name, pipeline in (("", servers), ("masks_", masks)):
        watch("sum servers" if pipeline is servers else "masks")
        seconds, result, off = _timed(pipeline, updates, coins, size.repeats, true)
        sent = max(result.traffic.sent[who] for who in updates)
        found |= {f"{name}round_s": seconds, f"{name}bytes_up": sent, f"{name}largest_error": off}
    found["itemised"] = _itemised(servers, size)
    watch("the limit")
    found |= limit(size.params, size.clients, size.servers, residue_bits(servers), size.repeats)
    found["limit_ratio"] = found["round_s"] / found["limit_s"]
    for name, rival in RIVALS.items():
        if find_spec(PACKAGES[name]):
            watch(name)
            seconds, sent, total = rival(updates, size.repeats)
            found |= {f"{name}_s": seconds, f"{name}_bytes_up": sent, f"{name}_ratio": seconds / found["round_s"]}
            found[f"{name}_largest_error"] = float((total - true).abs().max())
            found[f"{name}_bytes_ratio"] = found["bytes_up"] / sent
    return found


def _timed(
    pipeline: Pipeline, updates: Mapping[str, Update], coins: Coins, repeats: int, true: torch.Tensor
) -> tuple[float, AttemptResult, float]:
    best, off = float("inf"), 0.0
    for number in range(repeats + 1):
        start = time.perf_counter()
        result, total = one_sum(pipeline, updates, coins, coins.child("links"), number)
        spent = time.perf_counter() - start
        if total is None or (wrong := [o.error for o in result.outcomes.values() if o.error]):
            raise next(iter(wrong), CroupierError("the sum was not computed"))
        off = float((total - true).abs().max())
        # The first one loads compiled loops.
        best = min(best, spent) if number else best
    return best, result, off


def _itemised(pipeline: Pipeline, size: SecureSumSize) -> dict[str, int]:
    """What a client's long message consists of, in bytes; in a seed's, 32 stand in place of payload and tag."""
    from croupier.core.envelope import CHUNK, Header

    header = len(Header(bytes(32), bytes(16), 0, 0, "share", "c", "s", 0, 0).pack())
    bits = getattr(pipeline.encode, "bits", 0)
    payload = (size.params * bits + 7) // 8
    chunks = max(1, -(-(payload + 8) // CHUNK))
    return {"payload": payload, "tag": 8, "header": header, "seal": chunks * (header + 8 + 16)}


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"{found['clients']} clients, {found['params']} parameters of {found['digits']} digits: best of the repeats")
    rows = {"sum servers": "", "masks": "masks_", "SecAgg+ (flwr)": "secaggplus_", "CKKS (tenseal)": "ckks_"}
    print(f"{'limit':<16}{found['limit_s']:9.3f} s: the bytes alone, at this machine's rates")
    for name, key in rows.items():
        seconds = found.get(f"{key}s" if key in ("secaggplus_", "ckks_") else f"{key}round_s")
        if seconds is None:
            print(f"{name:<16}not installed")
        else:
            print(f"{name:<16}{seconds:9.3f} s {found[f'{key}bytes_up']:>12} bytes up a client")
