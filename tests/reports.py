"""A report as an audit writes it (docs/audit-report.md): three defences, five questions, all that can happen to one."""

from __future__ import annotations

import copy
from typing import Any

import torch

from croupier.core.coins import Coins
from croupier.learn.png import png

QUESTIONS: dict[str, dict[str, Any]] = {
    "source": {
        "asks": "Whose record is it?", "unit": "share", "worse": "higher",
        "gains": "of 100 records, {n} more are traced to their client than without looking",
        "attacks": {"tuned": "a classifier tuned on what was seen", "tuned+prior": "the same, joined with the prior"},
    },
    "membership": {
        "asks": "Was this record trained on?", "unit": "share", "worse": "higher",
        "gains": "of 100 pairs of a trained and an untrained record, {n} more are told apart than without looking",
        "attacks": {"loss": "the lower loss", "lira": "likelihood ratio (LiRA)"},
    },
    "reconstruction": {
        "asks": "Can a record be rebuilt?", "unit": "dB", "worse": "higher",
        "gains": "records are rebuilt {n} closer than by guessing",
        "attacks": {"invert": "inverting gradients (Geiping et al.)"},
    },
    "linkage": {
        "asks": "Are two updates from the same client?", "unit": "share", "worse": "higher",
        "gains": "of 100 updates, {n} more are linked to their sender's earlier one than without looking",
        "attacks": {"match": "the nearest update of the round before"},
    },
    "poisoning": {
        "asks": "Can a malicious client break the model?", "unit": "share", "worse": "higher",
        "gains": "of 100 test records, {n} more are misread than without the malicious clients",
        "attacks": {"flip": "turned updates, ten times as large"},
    },
}  # fmt: skip
PRIORS = {"source": 0.41, "membership": 0.53, "reconstruction": 9.4, "linkage": 0.1, "poisoning": 0.09}
SERVERS = ("sum1", "sum2", "sum3")
PROVED = "it sees uniform numbers that depend on nobody's update"
HIDDEN = "the server sees one sum a round: there are no two updates to link"


def spread(rate: float, half: float) -> dict[str, float]:
    """A rate with an interval."""
    return {"rate": rate, "low": rate - half, "high": rate + half}


def attacked(question: str, gain: float, half: float, title: str, passed: bool = True) -> dict[str, Any]:
    """One attack that was mounted."""
    prior = PRIORS[question]
    control = {"rate": prior * 1.5, "low": prior * 1.4, "high": prior * 1.6} if passed else spread(prior, half)
    return {
        "title": title, "value": prior + gain, "low": prior + gain - half, "high": prior + gain + half, "prior": prior,
        "gain": spread(gain, half), "gain_together": spread(gain, 1.4 * half), "control": control | {"passed": passed},
        "scored": passed, "not_run": "",
        "by_round": [{"round": number, **spread(prior + gain, 2 * half)} for number in (1, 2)],
    }  # fmt: skip


def cell(
    question: str, gain: float, half: float, proved: str = "", forbidden: bool = False, **facts: Any
) -> dict[str, Any]:
    """One adversary that was asked about; the last attack is the one that counts."""
    names = QUESTIONS[question]["attacks"]
    attacks = {
        name: attacked(question, gain if at else gain / 2, half, names[name]) for at, name in enumerate(names, 1)
    }
    attacks["blunt"] = attacked(question, 0.0, half, "the largest change", passed=False)
    attacks["deep"] = {"title": "a network over layers", "scored": False, "not_run": "it needs a network with layers"}
    front = attacks[list(names)[-1]]
    leaks = gain - half > 0
    shown = f"{100 * gain:.0f}" if QUESTIONS[question]["unit"] == "share" else f"{gain:.2g} dB"
    words = (
        QUESTIONS[question]["gains"].format(n=shown) if leaks else f"no leak found: {shown} more than without looking"
    )
    return {
        "forbidden": forbidden, "attack": list(names)[-1],
        **{key: front[key] for key in ("value", "low", "high", "prior")},
        "gain": front["gain"], "control": front["control"], "words": words,
        "status": "leak" if leaks else "proved" if proved else "none-found", "why": "" if leaks else proved,
        "attacks": attacks, "facts": facts,
    }  # fmt: skip


def silent(status: str, why: str) -> dict[str, Any]:
    """One adversary that was not attacked: nothing to see, or not asked."""
    return {
        "forbidden": False, "attack": None, "value": None, "low": None, "high": None, "prior": None, "gain": None,
        "control": None, "status": status, "why": why, "words": "not run" if status == "not-run" else "proved",
        "attacks": {}, "facts": {},
    }  # fmt: skip


def asked(adversaries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A question in front of its adversaries: the first is the worst that is allowed."""
    front = next(iter(adversaries))
    head = {key: value for key, value in adversaries[front].items() if key not in ("forbidden", "attacks", "facts")}
    return {"adversary": front, **head, "adversaries": adversaries}


def picture(noise: float, seed: int = 3) -> str:
    """A ring, more or less drowned in noise."""
    at = torch.linspace(-1, 1, 16)
    ring = (-((at[:, None] ** 2 + at[None] ** 2).sqrt() - 0.6).abs() * 6).exp()
    rest = torch.rand(16, 16, generator=Coins.from_seed(seed).fast())
    return png(((1 - noise) * ring + noise * rest)[None])


def strip(defence: str, adversary: str, says: str, noise: float) -> dict[str, Any]:
    """A record beside what an attack made of it."""
    made = [{"says": "the record", "png": picture(0.0)}, {"says": says, "png": picture(noise)}]
    whose = {"defence": defence, "adversary": adversary, "forbidden": "+" in adversary}
    return {**whose, "title": "record 17, inverting gradients", "pictures": made}


def own() -> dict[str, dict[str, Any]]:
    """Three sum servers: each sees nothing, all together see every update."""
    proved = {name: silent("proved", PROVED) for name in SERVERS}
    source = {"server": cell("source", 0.012, 0.02), **proved, "client": cell("source", 0.004, 0.02)}
    source["sum1+sum2+sum3"] = cell("source", 0.31, 0.04, forbidden=True)
    members = {"server": cell("membership", 0.03, 0.012), **proved, "client": cell("membership", 0.026, 0.013)}
    members["sum1+sum2+sum3"] = cell("membership", 0.12, 0.02, forbidden=True)
    rebuilt = {"server": cell("reconstruction", 0.2, 0.5), **proved}
    table = {"title": "Records rebuilt", "heads": ["Record", "PSNR", "Of"], "rows": [["17", 9.6, 10], ["23", 9.5, 10]]}
    said = ["Of 10 records none is rebuilt beyond recognition of its class."]
    rebuilt["sum1+sum2+sum3"] = cell("reconstruction", 14.8, 1.1, forbidden=True, tables=[table], sentences=said)
    return {
        "source": asked(source), "membership": asked(members), "reconstruction": asked(rebuilt),
        "linkage": asked({"server": silent("proved", HIDDEN), **proved}),
        "poisoning": asked({"client": silent("not-run", "12 runs of poisoned training take long; ask without --fast")}),
    }  # fmt: skip


def other(gains: dict[str, tuple[float, float]], **facts: Any) -> dict[str, dict[str, Any]]:
    """A defence that only the server and a client look at."""
    found = {}
    for name, (gain, half) in gains.items():
        shown = facts if name == "reconstruction" else {}
        found[name] = asked({"server": cell(name, gain, half, **shown), "client": cell(name, gain / 9, half)})
    return found


def row(
    defence: str, title: str, questions: dict[str, Any], accuracy: float, sent: float, **more: Any
) -> dict[str, Any]:
    """One defence."""
    rounds = [{"round": 1, **spread(0.81, 0.02)}, {"round": 2, **spread(accuracy, 0.01)}]
    return {
        "defence": defence, "title": title, "own": False, "same_as": "", "protocol": {"release": defence},
        "statement": {"server learns": f"what {defence} lets out", "robustness": "none: a liar can move the model"},
        "must_not_collude": [], "measure": "accuracy", "accuracy": accuracy, "accuracy_low": accuracy - 0.01,
        "accuracy_high": accuracy + 0.01, "accuracy_by_round": rounds,
        "bytes_per_client": sent, "seconds_per_round": 0.12, "epsilon": None, "questions": questions, **more,
    }  # fmt: skip


def report() -> dict[str, Any]:
    """The whole report."""
    mine = row(
        "rns-servers", "your protocol: rns-servers", own(), 0.907, 36906.0, own=True, seconds_per_round=0.31,
        must_not_collude=[["one sum server", "all the others"], ["any client", "the server or a sum server"]],
        statement={
            "server learns": "the sum of the encoded updates of the clients present, exact; and which took part",
            "each sum server learns": "which clients took part, and uniform numbers that depend on nobody's update",
            "must not collude": "one sum server with all the others",
            "differential privacy": "no noise is added: no differential privacy is claimed",
        },
    )  # fmt: skip
    plain = {
        "source": (0.44, 0.03),
        "membership": (0.14, 0.02),
        "reconstruction": (15.1, 0.9),
        "linkage": (0.81, 0.05),
        "poisoning": (0.62, 0.08),
    }
    mixed = {
        "source": (0.02, 0.021),
        "membership": (0.031, 0.012),
        "reconstruction": (0.4, 0.6),
        "linkage": (0.01, 0.03),
        "poisoning": (0.6, 0.09),
    }
    spoken = "Your protocol tells the server who was trained on, a little; whose record it is stays hidden."
    against = [("server", "red", "The sum tells whether a record was trained on, for 3 more of 100.")]
    against += [(name, "green", f"Proved: {PROVED}.") for name in SERVERS]
    against += [("client", "red", "It learns from the model what the server does; poisoning was not tried.")]
    keep = "Keep rns-servers: of what was compared, nothing leaks less. Against membership, add noise."
    split = {"use": "dirichlet", "clients": 10}
    strips = [
        strip("rns-servers", "server", "rebuilt: 9.6 dB", 0.85),
        strip("rns-servers", "sum1+sum2+sum3", "rebuilt: 24.2 dB", 0.15),
        strip("none", "server", "rebuilt: 24.5 dB", 0.12), strip("shuffle-parameter", "server", "rebuilt: 9.8 dB", 0.8),
    ]  # fmt: skip
    return {
        "kind": "croupier audit", "schema": 3, "name": "rns-servers",
        "task": {"data": {"use": "digits"}, "split": split, "model": {"use": "mlp", "hidden": [64]}},
        "federation": {"rounds": 2, "cohort": None},
        "protocol": {"release": "sum", "place": {"use": "sum-servers", "servers": 3}},
        "data": {
            "train": 1442, "test": 355, "inputs": [64], "classes": 10, "digest": "ab", "commonest": 3, "share": 0.104,
        },
        "clients": 10, "cohort": 10, "rounds": 2, "runs": 12, "seeds": list(range(12)), "level": 0.95,
        "verdict": {
            "light": "red", "sentence": spoken,
            "against": [{"adversary": who, "light": light, "sentence": said} for who, light, said in against],
            "recommend": {"defence": "rns-servers", "sentence": keep, "bytes": 3.1, "accuracy": -0.003},
        },
        "questions": copy.deepcopy(QUESTIONS),
        "rows": [
            mine,
            row("none", "no defence", other(plain), 0.91, 11905.0),
            row("shuffle-parameter", "parameter shuffle", other(mixed), 0.91, 12100.0),
        ],
        "pictures": strips,
        "threat": "Every party follows the protocol and keeps all that it sees. It knows which records it is asked "
        "about, and holds a shadow set of 5 % of each client's records.",
        "notes": ["Intervals are 95 %, over 12 independent runs.", "Attacks that find nothing prove nothing."],
        "command": "croupier audit rns-servers --fast", "version": "0.1.0", "made": "2026-11-18T02:20:12Z",
    }  # fmt: skip


WICKED = '"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;'
# What decides how a report is read stays as it is.
KEPT = ("unit", "status", "light", "png", "kind")


def hostile() -> dict[str, Any]:
    """The same with a wicked and long name in the place of every text, and many more defences."""
    found: dict[str, Any] = _wicked(report())
    found["rows"] += [{**found["rows"][1], "defence": f"{'very' * 30}-{number}"} for number in range(3)]
    found["rows"][3] |= {"title": "long" * 60, "measure": "error", "bytes_per_client": 4.2e12, "accuracy": -1e9}
    found["rows"][4]["title"] = "=1+1"
    return found


def _wicked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: one if key in KEPT else _wicked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_wicked(one) for one in value]
    return f"{WICKED}{value}" if isinstance(value, str) else value


def bare() -> dict[str, Any]:
    """A report from which nearly all is missing."""
    return {"rows": [None, {}, {"defence": "one", "questions": {"x": None, "y": {"gain": {"rate": 0.5}}}}]}
