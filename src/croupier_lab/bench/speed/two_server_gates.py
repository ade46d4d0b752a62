"""What two servers pay to open signs only, or to keep a whole rule secret, beside opening the numbers themselves.

`croupier bench gates` runs it. Opening less costs more turns and more dealt material, and this says how much. Every way
is checked against the plain outcome before its seconds count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from croupier.core.attempt import Attempt, AttemptId, AttemptResult
from croupier.core.coins import Coins
from croupier.core.flow import Flow, Given, Memory, Party, SubFlow
from croupier.core.update import Layout, Slice
from croupier.core.wire import Schema
from croupier.engine.local import Local
from croupier.errors import CroupierError
from croupier.mpc import dealt_shares, ring, signs, trust
from croupier.mpc.dealt_shares import DealtShare
from croupier.mpc.ring import Z32
from croupier.mpc.signs import Signs
from croupier.release.printed import Printed
from croupier_lab.bench.size import BenchSize, Watch, ignore

NAMES = ("server0", "server1")
# A party's sub-flow, given its number and the other's name.
Side = Callable[[int, str], SubFlow]
Deal = Callable[[Coins], tuple[DealtShare, DealtShare]]


class GatesSize(BenchSize):
    """How much: numbers whose signs are opened, clients and parameters of the secret rule, and timed repeats."""

    params: int = Field(100_000, ge=1, description="Sums whose signs are opened.")
    clients: int = Field(20, ge=1, description="Clients, each with one vote in a sum.")
    rule_params: int = Field(1_000, ge=1, description="Parameters of the secret rule.")
    repeats: int = Field(5, ge=1, description="Timed repeats; the best counts.")


def seated(side: Side, schemas: Mapping[str, Schema], links: Coins | None) -> tuple[tuple[Any, Any], AttemptResult]:
    """Run both parties' sub-flows: what each got, and the attempt's result.

    With `links` every message is sealed, sent, opened and parsed. Raises: CroupierError, whatever ended a party.
    """
    got: dict[str, Any] = {}

    def party(given: Given, memory: Memory, coins: Coins) -> Flow:
        me = NAMES.index(given.me)
        got[given.me] = yield from side(me, NAMES[1 - me])
        return memory

    parties: dict[str, Party] = dict.fromkeys(NAMES, party)
    layout = Layout((Slice("w", (1,)),))
    result = Local(links)(
        Attempt(
            attempt_id=AttemptId(bytes(32), bytes(16), 0, 0), parties=parties,
            givens={name: Given(name, bytes(16), 0, 0, (), 0, layout) for name in NAMES}, memories={},
            coins={name: Coins.from_seed(0).child(name) for name in NAMES}, schemas=schemas, bench={},
        )
    )  # fmt: skip
    for outcome in result.outcomes.values():
        if outcome.error:
            raise outcome.error
    return (got[NAMES[0]], got[NAMES[1]]), result


def measure(size: GatesSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Every way on the same numbers, each checked against the plain outcome."""
    coins = Coins.from_seed(seed)
    return {**size.model_dump(), "signs": _signs(size, coins), "rule": _rule(size, coins.child("rule"))}


def _signs(size: GatesSize, coins: Coins) -> dict[str, Any]:
    """Sums of as many votes as there are clients: opened; their signs, 0 shown; their signs, 0 as the sign before."""
    count = size.params
    votes = coins.child("votes").secure().below(2, size.clients * count).reshape(size.clients, count)
    numbers = 2 * votes.sum(0) - size.clients
    before = (1 - 2 * coins.child("before").secure().below(2, count)).astype(np.int8)
    shares = Z32.split(numbers, coins.child("split"))

    def only(ties: signs.Ties, previous: signs.Signs | None) -> dict[str, Any]:
        return _timed(
            lambda own: signs.deal(count, own, Z32, ties),
            lambda me, peer, material: signs.flow(me, peer, "sign", shares[me], material, Z32, previous),
            signs.schemas("sign", count, Z32, ties), signs.fitted(count, Z32, ties),
            signs.plain(numbers, previous), size.repeats, coins,
        )  # fmt: skip

    opened = _opened(shares, numbers, size.repeats, coins)
    return {"opened": opened, "zero": only("zero", None), "previous": only("previous", before)}


def _rule(size: GatesSize, coins: Coins) -> dict[str, Any]:
    """RAIN's rule on random votes, of which half lean towards the reference."""
    rule = trust.SecretRule(size.clients, size.rule_params)
    draw = coins.child("votes").secure()
    votes = draw.below(2, size.clients * size.rule_params).reshape(size.clients, size.rule_params)
    reference = draw.below(2, size.rule_params)
    votes[::2] = np.where(draw.below(3, size.rule_params) > 0, reference, votes[::2])
    shares = rule.ring.split(votes, coins.child("split"))
    found = _timed(
        lambda own: trust.deal(rule, own),
        lambda me, peer, material: trust.secret_rule(me, peer, "rule", shares[me], material, rule, reference),
        trust.schemas("rule", rule), trust.fitted(rule), plain_rule(votes, reference, rule), size.repeats, coins,
    )  # fmt: skip
    return {"bits": rule.ring.bits, **found}


def plain_rule(
    votes: npt.NDArray[np.int64], reference: npt.NDArray[np.int64], rule: trust.SecretRule,
    previous: Signs | None = None,
) -> Signs:  # fmt: skip
    """The signs of the secret rule's z in the clear."""
    weights = Printed(rule.num, rule.floor, rule.den).weights((votes != reference).sum(1))
    return signs.plain(weights @ (2 * votes.astype(np.int64) - 1), previous)


def _timed(
    deal: Deal, flow: Callable[[int, str, DealtShare], SubFlow], kinds: Mapping[str, Schema], fitted: int,
    true: npt.NDArray[Any], repeats: int, coins: Coins,
) -> dict[str, Any]:  # fmt: skip
    """Best of the repeats, dealing and talking apart; both parties and their channel share one process."""
    best, dealing = float("inf"), float("inf")
    for number in range(repeats + 1):
        start = time.perf_counter()
        dealt = deal(coins.child("deal", number))
        middle = time.perf_counter()
        (one, two), result = seated(lambda me, peer, d=dealt: flow(me, peer, d[me]), kinds, coins.child("links"))  # type: ignore[misc]
        # The first one loads what the others find loaded.
        if number:
            dealing, best = min(dealing, middle - start), min(best, time.perf_counter() - middle)
        if not (np.array_equal(one, true) and np.array_equal(two, true)):
            raise CroupierError("two servers computed another outcome than the plain rule")
    sizes = [len(dealt_shares.schema(side, fitted).pack(material.body())) for side, material in enumerate(deal(coins))]
    return {
        "seconds": best, "rounds": len(kinds), "bytes_each_way": max(result.traffic.sent.values()),
        "deal_s": dealing, "dealt_bytes": sizes,
    }  # fmt: skip


def _opened(
    shares: tuple[npt.NDArray[Any], ...], numbers: npt.NDArray[np.int64], repeats: int, coins: Coins
) -> dict[str, Any]:
    """The rival: both servers send each other their shares, and know the numbers."""
    kinds, best = {"sum.v": ring.schema(Z32, len(numbers))}, float("inf")
    for _ in range(repeats + 1):
        start = time.perf_counter()
        (one, _two), result = seated(lambda me, peer: ring.opened(peer, "sum.v", Z32, shares[me]), kinds, coins)
        best = min(best, time.perf_counter() - start)
        if not np.array_equal(Z32.signed(one), numbers):
            raise CroupierError("two servers opened other numbers than were shared")
    return {"seconds": best, "rounds": 1, "bytes_each_way": max(result.traffic.sent.values()), "dealt_bytes": [0, 0]}


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"signs of {found['params']} sums of {found['clients']} votes; a rule of {found['rule_params']} parameters")
    rows = {
        "sums opened": found["signs"]["opened"], "signs, 0 shown": found["signs"]["zero"],
        "signs, 0 hidden": found["signs"]["previous"], "secret rule": found["rule"],
    }  # fmt: skip
    for name, row in rows.items():
        dealt = " + ".join(str(size) for size in row["dealt_bytes"])
        print(
            f"{name:<16}{row['seconds']:9.4f} s {row['rounds']:>4} rounds {row['bytes_each_way']:>10} bytes each way",
            end="",
        )
        print(f", dealt {dealt} bytes in {row.get('deal_s', 0.0):.4f} s")
