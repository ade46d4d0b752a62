"""Let one of RAIN's two servers cheat, in each of the ways listed beside this file, and count what became of it.

`croupier bench tamper --system rain` runs it (`bench.tamper.systems`). An escape is a result that differs from the
honest one and that an honest client, or the honest server with a round loop that nobody stopped, took for right. The
same is tried with the checks off, which must let much by. Two more things are watched: that nothing is opened before
what precedes it is checked, and that how a round ends does not depend on the order that neither server knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field
from scipy.special import chdtrc

from croupier.core.coins import Coins
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.tamper.rain.dealt_shares import by_shares
from croupier_lab.bench.tamper.rain.messages import RainTamperCell, by_letters
from croupier_lab.bench.tamper.rain.rosters import by_rosters
from croupier_lab.bench.tamper.rain.round import COLLUDERS, RoundSetting, TwoServerRound
from croupier_lab.bench.tamper.rain.shuffle import by_rows
from croupier_lab.bench.tamper.rain.trial import RainTrial
from croupier_lab.bench.tamper.verdicts import Verdict, counted, escaped, table

# Rows of 37 numbers go through plain loops, and those of 205 and 1030 through compiled ones.
SETTINGS = (
    RoundSetting(), RoundSetting(check="product"), RoundSetting(1030), RoundSetting(missing="vote"),
    RoundSetting(205, "product"), RoundSetting(205),
)  # fmt: skip
# What the honest server may not have sent when a round ends over a message that begins so.
_LOCKED = (
    (("w", "q", "key", "e-", "mul", "blind", "v0", "zero", "v1", "hand"), {"hd", "z"}),
    (("hd", "v2"), {"z"}),
    (("z", "v3"), {"outcome", "published"}),
)
# Kinds of tampering that begin at a known row, after which aborts must not depend on the unknown order.
_ORDERED = {"flip", "paired"}


class RainTamperSize(BenchSize):
    """How much is tried."""

    trials: int = Field(10_000, ge=1)


@dataclass(frozen=True)
class RainTrialEnd:
    """How a trial ended.

    `acted`: anything was done at all. `early`: the honest server sent what it may send only after the check of what was
    altered. `unknown` is what the cheating server did not know of the row that it touched, None where it touched no
    known row. `heard` is the last letter that the honest server sent.
    """

    cell: RainTamperCell
    verdict: Verdict
    acted: bool
    early: bool
    unknown: int | None
    heard: str


def cells() -> list[RainTamperCell]:
    """Every way to cheat that is tried."""
    return [*by_letters(), *by_rows(), *by_shares(), *by_rosters()]


def measure(size: RainTamperSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Trials spread evenly over the cells; the control has a tenth as many, and no fewer than there are cells."""
    coins, known = Coins.from_seed(seed), cells()
    # In random order, so that few trials are a sample of all cells.
    every = [known[at] for at in coins.child("order").sampler().permutation(len(known))]
    ended = tried(every, size.trials, coins, watch)
    watch("the control")
    fewer = max(len(every), size.trials // 10)
    control = counted((one.cell.kind, one.verdict) for one in tried(every, fewer, coins.child("control"), watch, False))
    return {
        "system": "rain", **summary(ended), "cells": len(every), "control": control,
        "note": "one of two servers cheats, alone or with clients: no escape is expected",
    }  # fmt: skip


def summary(ended: Sequence[RainTrialEnd]) -> dict[str, Any]:
    """Counts, openings that came too early, and whether aborts depend on the order."""
    locked = [one for one in ended if one.verdict == "aborted" and _forbidden(one.cell.message)]
    touched = [one for one in ended if one.unknown is not None and one.cell.kind in _ORDERED]
    return {
        **counted((one.cell.kind, one.verdict) for one in ended),
        "idle": sum(not one.acted for one in ended),
        "no_opening_before_verdict": {"aborted": len(locked), "violations": sum(one.early for one in locked)},
        "order": {
            "trials": len(touched), "aborted": sum(one.verdict == "aborted" for one in touched),
            **independence((one.cell.party, one.unknown or 0, f"{one.verdict}, {one.heard}") for one in touched),
        },
    }  # fmt: skip


def tried(
    every: Sequence[RainTamperCell], trials: int, coins: Coins, watch: Watch = ignore, checked: bool = True
) -> list[RainTrialEnd]:
    """Play so many trials, each with one way to cheat."""
    earlier: dict[RoundSetting, TwoServerRound] = {}
    ended = []
    for number in range(trials):
        cell = every[number % len(every)]
        fitting = [one for one in SETTINGS if cell.check in (None, one.check)]
        # Each time round, a cell meets the next setting.
        setting = replace(fitting[(number + number // len(every)) % len(fitting)], checked=checked)
        if cell.before != "nothing" and setting not in earlier:
            earlier[setting] = TwoServerRound(setting, coins)
            earlier[setting].sit()
        ended.append(_attempted(cell, setting, earlier.get(setting), coins, number + 1))
        if number and number % 1000 == 0:
            watch(f"{number} trials")
    return ended


def _attempted(
    cell: RainTamperCell, setting: RoundSetting, earlier: TwoServerRound | None, coins: Coins, number: int
) -> RainTrialEnd:
    again = cell.before == "attempt"
    round_ = TwoServerRound(setting, coins, *((0, number) if again else (number, 0)))
    chance = coins.child("tampering", number).secure()
    helped = cell.colluding or int(chance.below(2)[0]) == 1
    trial = RainTrial(round_, cell.party, COLLUDERS if helped else (), chance, earlier)
    tampered = cell.tamper(trial)
    result = trial.run(tampered)
    sent = trial.kinds()
    early = not _forbidden(cell.message).isdisjoint(sent)
    return RainTrialEnd(
        cell, trial.verdict(tampered, result), trial.acted, early, trial.unknown(), sent[-1] if sent else ""
    )


def _forbidden(message: str) -> set[str]:
    return next((kinds for begins, kinds in _LOCKED if message.startswith(begins)), set())


def independence(seen: Iterable[tuple[str, int, str]]) -> dict[str, float]:
    """Pearson's chi-square test that, for each server, outcomes do not depend on what it does not know.

    Without a second outcome there is nothing to depend on: no degrees of freedom, and a p-value of 1.
    """
    groups: dict[str, Counter[tuple[int, str]]] = {}
    for group, unknown, outcome in seen:
        groups.setdefault(group, Counter())[unknown, outcome] += 1
    statistic, freedom = 0.0, 0
    for counts in groups.values():
        rows, columns = sorted({row for row, _ in counts}), sorted({column for _, column in counts})
        found = np.array([[counts[row, column] for column in columns] for row in rows], np.float64)
        expected = found.sum(1, keepdims=True) * found.sum(0, keepdims=True) / found.sum()
        statistic += float(((found - expected) ** 2 / expected).sum())
        freedom += (len(rows) - 1) * (len(columns) - 1)
    p = float(chdtrc(freedom, statistic)) if freedom else 1.0
    return {"statistic": statistic, "degrees": freedom, "p": p}


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"rain: {found['trials']} trials, {found['escapes']} escapes; {found['note']}")
    print(table(found))
    locked, order, control = (found[name] for name in ("no_opening_before_verdict", "order", "control"))
    print(f"opened before its check: {locked['violations']} of {locked['aborted']} aborted rounds")
    print(
        f"rows of the shuffle touched: {order['aborted']} of {order['trials']} aborted; dependence on the order: "
        f"chi-square {order['statistic']:.2f}, {order['degrees']} degrees of freedom, p = {order['p']:.3f}"
    )
    print(f"control, nothing checked: {control['escapes']} escapes of {control['trials']} ({escaped(control)})")
