"""How long a mix network takes for all bits of a model, form by form, beside a copy of the same bits.

A form is one of the protocols by which `place.chain` mixes. `croupier bench mix` runs them, but for the one with
escrowed keys, and beside them a single relay. `papers.rns.mixnets` uses its pipelines. The real placements are played
from updates to the decoded sum, in one process, one party after the other, and each party's own seconds are counted.
`mix_s` is what all mix servers take together, `hop_s` one server's part of it, `hop_ns_a_bit` the same in processor
time (of all cores, and of no other process), `deal_s` the dealer's work, which can be done by a machine of its own, and
`copy_s` a copy of the packed bits. Forms that prove nothing have no `prove_s` and `verify_s`. The one that proves is
timed by `mix_proofs`, on fewer bits.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from pydantic import Field

from croupier.aggregate.mean import Mean
from croupier.core.attempt import AttemptResult
from croupier.core.coins import Coins
from croupier.core.flow import Flow, Given, Memory, Party
from croupier.core.update import Update
from croupier.encode.fixed import FixedPoint
from croupier.encode.residues import Residues
from croupier.engine.local import Local
from croupier.errors import CroupierError
from croupier.pipeline import Pipeline
from croupier.place.chain.chain import Chain
from croupier.place.relay import Relay
from croupier.release.bits import Bits
from croupier.release.shuffle import Shuffle
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed import mix_proofs
from croupier_lab.bench.speed.secure_sum import drawn, seated

# By form, the kind of letter whose size is counted: from one server to the next, or, with one, on to the server.
_HOPS = {"dealer": "hop", "pairs": "hop", "onion": "hop1", "full": "mixed", "relay": "released"}


class MixSize(BenchSize):
    """How much is mixed: parameters, clients, servers, decimal digits, and timed repeats."""

    params: int = Field(643_850, ge=1, description="Parameters of each update; by default the paper's CNN for MNIST.")
    clients: int = Field(10, ge=3, description="Clients.")
    servers: int = Field(3, ge=2, le=16, description="Mix servers of the forms that take any number.")
    digits: int = Field(5, ge=1, le=9, description="Decimal digits of a parameter.")
    encrypted: int = Field(
        100_000, ge=0, description="Bits that are encrypted one by one, for servers that prove what they do; 0: none."
    )
    repeats: int = Field(1, ge=1, description="Timed repeats of each form, after one that loads compiled loops.")


def pipelines(size: MixSize) -> dict[str, Pipeline]:
    """The forms that prove nothing, and the relay; "onion" moves whole rows in boxes, not bits in unary."""
    unary = Residues(clients=size.clients, digits=size.digits)
    places = {
        "relay": Relay(), "full": Chain(trust="full"), "pairs": Chain(shuffle="pairs"),
        "dealer": Chain(servers=size.servers),
    }  # fmt: skip
    found = {
        name: Pipeline(encode=unary, release=Bits(), aggregate=Mean(), place=place) for name, place in places.items()
    }
    whole = FixedPoint(clients=size.clients, digits=size.digits)
    boxes = Chain(shuffle="onion", servers=size.servers)
    found["onion"] = Pipeline(encode=whole, release=Shuffle(grain="model"), aggregate=Mean(), place=boxes)
    return found


def measure(size: MixSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """One row a form."""
    coins = Coins.from_seed(seed)
    updates = drawn(size.params, size.clients, coins)
    rows = []
    for name, pipeline in pipelines(size).items():
        watch(name)
        # Compiled loops are loaded on a few parameters.
        played(pipeline, drawn(20_000, size.clients, coins.child("warm")), coins.child("warm"))
        best = min(
            (played(pipeline, updates, coins.child(name, number)) for number in range(size.repeats)),
            key=lambda one: float(one["round_s"]),
        )
        rows.append({"form": name, **best})
    if size.encrypted:
        watch("malicious")
        rows.append(mix_proofs.measure(size.encrypted, size.clients, size.servers, coins.child("malicious")))
    return {
        "params": size.params, "clients": size.clients, "digits": size.digits, "forms": rows,
    }  # fmt: skip


def played(pipeline: Pipeline, updates: Mapping[str, Update], coins: Coins) -> dict[str, Any]:
    """One round of one form, timed party by party. Raises: CroupierError when its sum is wrong."""
    seconds: Counter[str] = Counter()
    worked: Counter[str] = Counter()
    sitting = seated(pipeline, updates, coins)
    parties = {name: _timed(name, party, seconds, worked) for name, party in sitting.attempt.parties.items()}
    start = time.perf_counter()
    result = Local()(replace(sitting.attempt, parties=parties))
    round_s = time.perf_counter() - start
    if wrong := [outcome.error for outcome in result.outcomes.values() if outcome.error]:
        raise wrong[0]
    _check(pipeline, updates, result)
    given = sitting.attempt.givens["server"]
    middle = [name for name in pipeline.place.middle(pipeline) if name != "dealer"]
    bits = len(updates) * given.layout.size * _bits(pipeline)
    mix_s, copy_s = sum(seconds[name] for name in middle), _copied(bits)
    form = pipeline.place.plain().get("shuffle", "relay") if pipeline.place.plain().get("trust") != "full" else "full"
    return {
        "servers": len(middle), "bits": bits, "client_bytes": max(result.traffic.sent[who] for who in updates),
        "hop_bytes": sitting.attempt.schemas[_HOPS[str(form)]].most_bytes, "mix_s": mix_s, "prove_s": None,
        "verify_s": None, "hop_s": mix_s / len(middle), "deal_s": seconds["dealer"] or None, "copy_s": copy_s,
        "hop_copies": mix_s / len(middle) / copy_s,
        "hop_ns_a_bit": 1e9 * sum(worked[name] for name in middle) / len(middle) / bits,
        "client_s": max(seconds[who] for who in updates),
        "server_s": seconds["server"], "round_s": round_s,
    }  # fmt: skip


def _bits(pipeline: Pipeline) -> int:
    bits: int = getattr(pipeline.encode, "bits", 32)
    return bits


def _timed(name: str, party: Party, seconds: Counter[str], worked: Counter[str]) -> Party:
    """The same party, whose work between two waits is counted, by the clock and in processor time."""

    def played_by(given: Given, memory: Memory, coins: Coins) -> Flow:
        flow, answer = party(given, memory, coins), None
        while True:
            start, busy = time.perf_counter(), time.process_time()
            try:
                ask = flow.send(answer)
            except StopIteration as stop:
                return dict(stop.value)
            finally:
                seconds[name] += time.perf_counter() - start  # type: ignore[assignment]
                worked[name] += time.process_time() - busy  # type: ignore[assignment]
            answer = yield ask

    return played_by


def _copied(bits: int) -> float:
    """Seconds for a copy of so many packed bits: the best of three, into memory that is there already."""
    source = np.ones(-(-bits // 8), np.uint8)
    target, best = np.zeros_like(source), float("inf")
    for _ in range(3):
        start = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - start)
    return best


def _check(pipeline: Pipeline, updates: Mapping[str, Update], result: AttemptResult) -> None:
    """Raises: CroupierError when what came out does not add up to what went in."""
    memory = result.outcomes["server"].memory
    if memory is None:
        raise CroupierError("nothing came out of the chain")
    got = memory["gathered"]
    total = got.sums if got.sums is not None else got.rows.double().sum(0)
    true = torch.stack([update.vector.double() for update in updates.values()]).sum(0)
    if float((total - true).abs().max()) > len(updates) * 0.5 * 10.0 ** -getattr(pipeline.encode, "digits", 5) + 1e-9:
        raise CroupierError("the sum of what came out of the chain is not that of the updates")


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"{found['clients']} clients, {found['params']} parameters of {found['digits']} digits")
    print(
        f"{'form':<8}{'servers':>8}{'bits':>13}{'client B':>12}{'hop B':>12}{'mix s':>9}{'hop / copy':>12}"
        f"{'ns a bit':>10}{'deal s':>8}"
    )
    for row in found["forms"]:
        if row["form"] == "malicious":
            mix_proofs.show(row)
            continue
        deal = f"{row['deal_s']:.2f}" if row["deal_s"] else "-"
        print(
            f"{row['form']:<8}{row['servers']:>8}{row['bits']:>13}{row['client_bytes']:>12}{row['hop_bytes']:>12}"
            f"{row['mix_s']:>9.2f}{row['hop_copies']:>12.0f}{row['hop_ns_a_bit']:>10.2f}"
            f"{deal:>8}"
        )
