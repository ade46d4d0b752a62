"""How often an audit's 95 % interval holds the true mean, for many distributions of a run's gain.

Gains of attacks are bounded, few and mostly exactly 0, and Student's interval then has no width. An audit uses another
one, `core.intervals.gain`, called "chosen" here, and this measures whether it can be trusted. A law here is a
probability distribution of the gain of one run; most laws are made to be hard for Student's interval, which stands
beside. No training takes part: a simulated audit is a handful of drawn numbers. `croupier bench coverage` runs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from croupier.core.coins import Coins
from croupier.core.intervals import LEVEL, Rate, gain, over_runs
from croupier_lab.bench.size import BenchSize, Watch, ignore

Floats = npt.NDArray[np.float64]
RUNS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 80, 200)
# The share that the chosen interval must reach under every law and number of runs, two points below the 95 % that it is
# made for. `show` prints no verdict on it; tests/unit/core/test_intervals.py checks it on few simulated audits.
GOAL = 0.93


class CoverageSize(BenchSize):
    """How many audits are simulated for each law and number of runs."""

    trials: int = Field(2000, ge=100, description="Simulated audits for each law and number of runs.")
    runs: tuple[int, ...] = RUNS


@dataclass(frozen=True)
class Law:
    """A probability distribution of the gains of single runs, and its true mean."""

    title: str
    draw: Callable[[np.random.Generator, tuple[int, int]], Floats]
    mean: float


def _some(share: float, mean: float, spread: float) -> Law:
    """A gain of exactly 0 in most runs, and a normal one in a `share` of them.

    So are gains of an attack that joins prior and view, where it trusts its view in some runs only.
    """
    title = f"0 but in {share:.0%} of runs, there {100 * mean:+.0f} ± {100 * spread:.0f} points"

    def draw(source: np.random.Generator, shape: tuple[int, int]) -> Floats:
        found: Floats = np.where(source.random(shape) < share, source.normal(mean, spread, shape), 0.0)
        return found

    return Law(title, draw, share * mean)


def _jumps(share: float, size: float) -> Law:
    """A gain of 0 in most runs, and of exactly `size` in a `share` of them."""
    title = f"0 but in {share:.0%} of runs, there {100 * size:+.0f} points"
    return Law(title, lambda draw, shape: np.where(draw.random(shape) < share, size, 0.0), share * size)


def _skewed(spread: float) -> Law:
    """A log-normal gain: small losses in most runs, and large gains in few."""
    title = f"skewed (log-normal, {spread:g}), 2 points of scale"
    return Law(
        title,
        lambda draw, shape: 0.02 * (draw.lognormal(0, spread, shape) - 1),
        0.02 * (math.exp(spread**2 / 2) - 1),
    )


def _counted(records: int, won: float, lost: float) -> Law:
    """The difference of two binomial rates on so many records."""
    title = f"{records} records, {won:.0%} won and {lost:.0%} lost"
    return Law(
        title,
        lambda draw, shape: (draw.binomial(records, won, shape) - draw.binomial(records, lost, shape)) / records,
        won - lost,
    )


def _shared(records: int, chance: float, alike: float) -> Law:
    """A binomial rate whose chance is drawn once a run, because records of one run share its models."""

    def draw(source: np.random.Generator, shape: tuple[int, int]) -> Floats:
        found: Floats = source.binomial(records, source.beta(chance * alike, (1 - chance) * alike, shape)) / records
        return found

    return Law(f"{records} records that share a run's chance, {chance:.0%} on average", draw, chance)


LAWS = (
    Law("near normal, +2 ± 3 points", lambda draw, shape: draw.normal(0.02, 0.03, shape), 0.02),
    _some(0.05, 0.02, 0.03), _some(0.1, 0.02, 0.03), _some(0.3, 0.02, 0.03), _some(0.1, 0.1, 0.05),
    _jumps(0.02, 0.1), _jumps(0.05, 0.1), _jumps(0.05, -0.1), _jumps(0.05, 0.2), _jumps(0.03, 0.3),
    _skewed(0.5), _skewed(1.0), _counted(50, 0.02, 0.01), _counted(200, 0.3, 0.3),
    _shared(100, 0.3, 10), _shared(100, 0.03, 3),
)  # fmt: skip

Interval = Callable[[Sequence[float], float], Rate]
METHODS: dict[str, Interval] = {"chosen": gain, "Student's t": over_runs}


def measure(size: CoverageSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """The share of simulated audits whose interval holds the true mean, by law and runs; Student's beside it."""
    coins = Coins.from_seed(seed)
    rows: list[dict[str, Any]] = []
    for at, law in enumerate(LAWS):
        for runs in size.runs:
            drawn = law.draw(coins.child(at, runs).sampler(), (size.trials, runs)).clip(-1, 1).tolist()
            rows.append(
                {"law": law.title, "runs": runs, **{name: _held(drawn, law.mean, m) for name, m in METHODS.items()}}
            )
    least = {
        name: {str(runs): min(float(row[name]) for row in rows if row["runs"] == runs) for runs in size.runs}
        for name in METHODS
    }  # fmt: skip
    return {"level": LEVEL, "goal": GOAL, "trials": size.trials, "runs": list(size.runs), "rows": rows, "least": least}


def _held(drawn: list[list[float]], mean: float, method: Interval) -> float:
    found = [method(gains, 1 - LEVEL) for gains in drawn]
    # A mean that equals an end up to rounding is held.
    return sum(one.low - 1e-12 <= mean <= one.high + 1e-12 for one in found) / len(found)


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people, as a table that docs can hold."""
    runs = found["runs"]
    print(
        f"Per cent of {found['trials']} simulated audits whose {found['level']:.0%} interval holds the mean, by runs:"
    )
    print("| law of gains | " + " | ".join(str(many) for many in runs) + " |")
    print("|---" * (len(runs) + 1) + "|")
    for title in dict.fromkeys(row["law"] for row in found["rows"]):
        held = [100 * row["chosen"] for row in found["rows"] if row["law"] == title]
        print(f"| {title} | " + " | ".join(f"{one:.1f}" for one in held) + " |")
    for name in METHODS:
        print(
            f"| least, {name} | " + " | ".join(f"{100 * found['least'][name][str(many)]:.1f}" for many in runs) + " |"
        )
