"""Findings for the report's tests: usual ones, hostile ones and bare ones. The numbers are invented."""

from __future__ import annotations

from typing import Any

ROUNDS = (1, 2, 3, 4, 5)
LONG = "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz"


def rate(middle: float, half: float) -> dict[str, Any]:
    """A rate with a symmetric interval."""
    return {"rate": middle, "low": middle - half, "high": middle + half}


def attack(title: str, middle: float, half: float = 0.04, passed: bool = True) -> dict[str, Any]:
    """One attack beside a prior of 52 %."""
    by = [{"round": number, **rate(middle + 0.007 * (number % 3) - 0.007, half)} for number in ROUNDS]
    control = {**rate(0.713 if passed else 0.124, 0.05), "passed": passed}
    return {
        "title": title, **rate(middle, half), "prior": 0.52, "chance": 0.1, "leak": rate(middle - 0.52, half / 3),
        "best_round": max(by, key=lambda moment: float(moment["rate"])), "by_round": by, "control": control,
        "scored": passed,
    }  # fmt: skip


def member(title: str, middle: float) -> dict[str, Any]:
    """One membership attack."""
    return {
        "title": title, **rate(middle, 0.031), "prior": 0.5, "chance": 0.5, "leak": rate(middle - 0.5, 0.031),
        "tpr_at_1_percent_fpr": rate(0.023, 0.009),
    }  # fmt: skip


def row(name: str, leaks: str, attacks: dict[str, Any], sent: float = 19400.0, last: float = 0.93) -> dict[str, Any]:
    """One defence."""
    return {
        "defence": name, "server_learns": f"what {name} lets out; and which clients took part",
        "accuracy": last, "accuracy_low": last - 0.011, "accuracy_high": last + 0.012,
        "accuracy_by_round": [{"round": number, **rate(last - 0.3 / number + 0.06, 0.02)} for number in ROUNDS],
        "bytes_per_client": sent, "attacks": {"prior": attack("the adversary's knowledge, no view", 0.52), **attacks},
        "membership": {"loss": member("loss threshold", 0.561), "lira": member("likelihood ratio", 0.584)},
        "verdict": {"leaks": leaks, "sentence": f"The verdict on {name} in a sentence."},
    }  # fmt: skip


def usual() -> dict[str, Any]:
    """Four defences as an audit finds them: leaking, unclear, one attack that failed its control, none at all."""
    rows = [
        row("none", "yes", {"named": attack("lowest loss", 0.501), "both": attack("loss and prior", 0.613, 0.03)}),
        row("model shuffle", "yes", {"algorithm2": attack("Algorithm 2", 0.447, 0.06)}),
        row("parameter shuffle", "no", {"algorithm5": attack("Algorithm 5", 0.112, 0.06, passed=False),
            "algorithm5+prior": attack("Algorithm 5 and prior", 0.526)}),
        row("sum only", "unclear", {}, 38800.0, 0.921),
    ]  # fmt: skip
    return {
        "kind": "croupier audit", "version": "0.1.0", "made": "2026-11-15T23:59:00Z", "name": "digits",
        "command": "croupier audit digits --seeds 5",
        "task": {"data": {"use": "digits", "test": 0.2}, "model": {"use": "mlp", "hidden": [64]}},
        "federation": {"rounds": 5, "cohort": None}, "clients": 10, "cohort": 10, "chance": 0.1, "rounds": 5, "runs": 5,
        "seeds": [3, 4, 5, 6, 7], "shadow": 0.05, "shadow_noise": "clean", "records_per_client": 18,
        "threat": "The server is honest but curious. It holds a shadow set for every client.",
        "notes": ["Intervals are 95 %, Student's t over 5 runs."], "rows": rows,
    }  # fmt: skip


def hostile() -> dict[str, Any]:
    """Twelve defences with long and wicked names, rates of 0 and 1, intervals past both, holes."""
    found = usual()
    rows = [row(f"{LONG} {index}", "yes", {"x": attack(LONG * 2, 0.3 + 0.05 * index)}) for index in range(9)]
    for index, one in enumerate(rows):
        for moment in one["accuracy_by_round"]:
            moment["rate"] -= 0.002 * index
    wicked = row("<script>alert(1)</script>", "maybe", {"y": attack('"><img src=x onerror=alert(1)>', 0.0, 0.3)})
    ends = row("</style>&amp;", "no", {"one": attack("always", 1.0, 0.3), "hole": {"title": None, "rate": None}})
    ends["accuracy_by_round"] = [{"round": number, **rate(number / 100, 0.02)} for number in range(1, 101)]
    huge = row("huge", "unclear", {"z": attack("alone", 0.5)}, 4.2e12) | {"membership": None, "verdict": None}
    huge["attacks"]["z"]["by_round"] = huge["attacks"]["z"]["by_round"][:1]
    name = f"{LONG}-{LONG}"
    return found | {"rows": [*rows, wicked, ends, huge], "name": name, "command": f"croupier audit {'/path' * 60}"}


def bare() -> list[dict[str, Any]]:
    """Findings from which more and more is missing."""
    holes: list[Any] = [
        {},
        {"defence": None, "attacks": {"prior": None, "x": None}, "membership": {"loss": None}},
        None,
    ]
    lone = {"defence": "one", "attacks": {"x": {"rate": 0.5}}, "accuracy_by_round": [{"round": 1, "rate": 0.5}]}
    return [{}, {"name": None, "rows": None, "notes": None}, {"rows": holes}, {"rows": [lone], "chance": float("nan")}]
