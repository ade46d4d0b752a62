"""What integer residue sums tell beyond the sum: bits a parameter, candidates that are left, and whose record it is.

Where sums of residues are seen as integers, and not modulo, their carries tell more than the total. There are four
readings of them: how often two inputs with one sum are told apart; bits of entropy (for drawn values a bound, and the
exact number for two clients of two digits; for trained values an estimate); how many pairs of values a sum of two
leaves; and what source inference makes of it. `croupier bench reveal` runs it on `attacks.residue_sums`.
`bench.leakage.disaggregation` uses its `setting`.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from croupier.audit.setting import Setting, setting_of
from croupier.core.coins import Coins
from croupier.core.view import facts
from croupier.encode.moduli import Cost, moduli
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.learn.assemble import assemble
from croupier.learn.split import Dirichlet
from croupier.spec import load
from croupier.systems import plain, rns, total
from croupier_lab.attacks.residue_sums import (
    Inputs,
    candidate_shrinkage,
    distinguisher_success,
    leaked,
    most_leaked,
    rounded_normal,
    view_leakage,
)
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.source_inference.experiment import Defence, run

DEVIATION = 0.05
# Earlier estimates that are printed beside ours: bits by clients (two digits, the paper's moduli of least sum), and
# factors by digits.
BEFORE = {2: "2.7", 5: "5.6", 10: "9 to 11", 100: "18"}
FACTORS = {2: 6, 3: 11, 4: 16, 5: 25}
# Drawn pairs of values for the factor by which candidates shrink.
PAIRS = 400
ATTACKS = ("carries", "carries+prior")


class ResidueSumsSize(BenchSize):
    """How much is measured: clients of the trained views and attacks, digits they send, and seeded runs of attacks."""

    clients: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (2, 3, 5, 10), description="Clients of the trained rounds; may be repeated. By default 2, 3, 5 and 10."
    )
    digits: int = Field(4, ge=1, le=6, description="Decimal digits that the trained rounds send.")
    alpha: float = Field(0.1, ge=0.001, description="How alike clients of the trained rounds are.")
    seeds: int = Field(0, ge=0, description="Runs of source inference on the carries; 0 leaves it out.")


def measure(size: ResidueSumsSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """All readings, from one seed; source inference only where runs of it are asked for."""
    coins = Coins.from_seed(seed)
    return {
        "deviation": DEVIATION,
        "distinguisher": {name: _distinguished(integers) for name, integers in (("counts", True), ("mod", False))},
        "bits": [_bits(clients, 2, "sum", before) for clients, before in BEFORE.items()]
        + [_bits(clients, digits, "bits", None) for digits in (2, 3, 4) for clients in BEFORE],
        "exact_two_clients_two_digits": leaked(_inputs(2), 2, moduli(2, 2).values),
        "factors": [_factor(digits, coins.child("pairs", digits)) for digits in FACTORS],
        "alpha": size.alpha,
        "digits": size.digits,
        "views": [_view(size, clients, coins.child("view", clients)) for clients in size.clients],
        "attacks": [_attacked(size, clients, seed) for clients in size.clients] if size.seeds else [],
    }


def _inputs(digits: int) -> Inputs:
    return rounded_normal(DEVIATION * 10**digits, 10**digits - 1)


def _distinguished(integers: bool) -> float:
    return distinguisher_success(np.zeros((2, 1), np.int64), np.array([[1], [-1]]), moduli(2, 2).values, integers)


def _bits(clients: int, digits: int, cost: Cost, before: str | None) -> dict[str, Any]:
    chosen = moduli(clients, digits, cost).values
    most = most_leaked(_inputs(digits), clients, chosen)
    found = {"clients": clients, "digits": digits, "moduli": list(chosen), "cost": cost, "most_bits": most}
    return found | ({} if before is None else {"before": before})


def _factor(digits: int, coins: Coins) -> dict[str, Any]:
    draws = coins.sampler().normal(0, DEVIATION * 10**digits, (2, PAIRS))
    found = candidate_shrinkage(np.rint(draws).astype(np.int64), 10**digits - 1, moduli(2, digits).values)
    ends = {name: 2**value for name, value in asdict(found).items()}
    return {"digits": digits, "factor": ends["rate"], "low": ends["low"], "high": ends["high"]} | {
        "before": FACTORS[digits]
    }


def setting(clients: int, alpha: float, count: int = 1) -> Setting:
    """The audit's view of the preset `digits-uneven`, with so many clients, so alike, over so many rounds."""
    split = Dirichlet(clients=clients, alpha=alpha, least=20)
    return replace(setting_of(load("digits-uneven")), split=split, plan=Federation(rounds=count))


def _view(size: ResidueSumsSize, clients: int, coins: Coins) -> dict[str, Any]:
    """The leak of a server's view of a first round on digits: real weights, which are far from independent."""
    one, pipeline = setting(clients, size.alpha), rns(clients, size.digits, "counts")
    task = assemble(one.data, one.split, one.model, one.fit, coins.child("task"), folder=None).task
    (done,) = rounds(pipeline, task, one.plan, coins.child("run"), Local(), keep={"server": "keep"})
    rate = view_leakage(facts(done.views["server"]), pipeline.plain(), task.layout, coins.child("parts"))
    return {"clients": clients, "parameters": task.layout.size, "most_bits": asdict(rate)}


def _attacked(size: ResidueSumsSize, clients: int, seed: int) -> dict[str, Any]:
    """Source inference on counts, against the prior and against the best attack on a plain sum."""
    compared = [
        Defence("none", plain("uniform"), ("named+prior",), ()),
        Defence("counts", rns(clients, size.digits, "counts"), ATTACKS, ()),
        Defence("sum only", total(clients, size.digits), ("tuned+prior",), ()),
    ]
    outcomes = run(setting(clients, size.alpha, 2), compared, range(seed, seed + size.seeds), Local())
    rows = {
        name: {**asdict(outcome.overall[name]), "leak": asdict(outcome.leak(name))}
        for outcome, defence in zip(outcomes, compared, strict=True)
        for name in ("prior", *defence.attacks)
    }
    return {"clients": clients, "chance": outcomes[0].chance, "runs": size.seeds, "attacks": rows}


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    told = found["distinguisher"]
    print(f"(0, 0) from (1, -1): right {told['counts']:.0%} of the time on counts, {told['mod']:.0%} on 'mod'")
    print(f"At most so many bits a parameter beyond the sum, weights of deviation {found['deviation']}:")
    for row in found["bits"]:
        which = (
            f"moduli of least sum; an earlier estimate: {row['before']}" if "before" in row else "moduli of least bits"
        )
        print(f"  {row['clients']:4d} clients, {row['digits']} digits  {row['most_bits']:6.2f}   ({which})")
    print("Pairs that a sum leaves shrink by:")
    for row in found["factors"]:
        ends = f"({row['low']:.1f} to {row['high']:.1f}; an earlier estimate: {row['before']})"
        print(f"  {row['digits']} digits  {row['factor']:5.1f} {ends}")
    print(f"At most so many bits a parameter in a server's view of digits, alpha = {found['alpha']:g}:")
    for row in found["views"]:
        bits = row["most_bits"]
        ends = f"({bits['low']:.2f} to {bits['high']:.2f})"
        print(f"  {row['clients']:4d} clients, {found['digits']} digits  {bits['rate']:6.2f} {ends}")
    for row in found["attacks"]:
        print(f"Source inference, {row['clients']} clients, {row['runs']} runs:")
        for name, rate in row["attacks"].items():
            leak = rate["leak"]
            ends = f"{100 * leak['rate']:+.1f} ({100 * leak['low']:+.1f} to {100 * leak['high']:+.1f})"
            print(f"  {name:14s} {rate['rate']:6.1%}   against the prior {ends}")
