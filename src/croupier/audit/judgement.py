"""From findings to a verdict in words: against whom a protocol leaks, and which one to use instead.

The recommendation follows a fixed rule, which a report that compares states in its notes (`audit.notes`). `judged`
takes the rows of a report, each a protocol with its answers (`audit.verdict`), and gives the sentences that page,
Markdown and terminal show first. `audit.described` and `audit.recorded.audited` call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from croupier.audit.question import MALICIOUS, NETWORK, NO_ROWS
from croupier.audit.report.read import UNORDERED, Lenient, is_unordered, stamp
from croupier.audit.report.words import capital, who
from croupier.audit.verdict import CONTRADICTION
from croupier.pipeline import Pipeline

# A protocol is not recommended where it costs more accuracy than this, while another will do.
DEAR = 0.05
# What is said of a protocol that costs more than `DEAR`.
WORTH = " only if what it closes is worth more than 5 points of accuracy to you"
ENCRYPTED = ", provided that links are encrypted"
NOT_BETTER = (
    "None that was compared is shown to be better. What could help: more runs; noise by a privacy budget "
    "(protocol.privacy; croupier plan dp finds how much)."
)


def judged(rows: Sequence[Mapping[str, Any]], malicious: str = "some of the clients") -> dict[str, Any]:
    """What to say of the first row, the own protocol.

    `malicious` says in words how many clients were malicious in the question of what such clients break.
    """
    own = rows[0]
    parties = {key: one["forbidden"] for each in own["questions"].values() for key, one in each["adversaries"].items()}
    against = [_against(own, key, banned, malicious) for key, banned in parties.items()]
    leaks, rare, broken = _leaks(own), _leaks(own, rare=True), _broken(own)
    doubt = any(one["unsure"] for one in own["questions"].values())
    waits = doubt or any(one["light"] == "amber" for one in against if not one["forbidden"])
    light = "red" if leaks else "amber" if rare or broken or waits else "green"
    answered = [one for one in own["questions"].values() if one["status"] != "not-run" and _curious(one)]
    said = _sentences(own, leaks, rare, len(answered) - len(rare))
    if broken:
        said.append(f"{capital(malicious)}, if malicious, break what it learns.")
    if (what_if := [one["adversary"] for one in against if one["forbidden"] and one["light"] == "red"]) and not leaks:
        said.append(f"It would leak to {_and(what_if)}, who must not collude.")
    return {"light": light, "sentence": said[0], "more": said[1:], "against": against, "recommend": _recommend(rows)}


def _sentences(own: Mapping[str, Any], leaks: Sequence[str], rare: Sequence[str], count: int) -> list[str]:
    """What curious parties learn, of so many questions that were answered of the protocol as it trains."""
    said, every = [], own["questions"].values()
    silent = sum(one["status"] == "not-run" for one in every)
    asked = f"of {_many(len(every))}{f' ({silent} without an answer)' if silent else ''}"
    if leaks:
        cells = [pair for name in leaks for pair in own["questions"][name]["adversaries"].items()]
        leaky = [(who(key), one["why"]) for key, one in cells if one["status"] == "leak" and not one["forbidden"]]
        by = dict.fromkeys(f"{n} (which contradicts a proof)" if CONTRADICTION in why else n for n, why in leaky)
        said.append(f"{own['defence']} leaks to {_and([*by])}, in {len(leaks)} {asked}: {_learnt(own, leaks)}.")
    elif count > 0:
        said.append(f"No leak was found in {own['defence']} as it trains, in {count} {asked}.")
    elif not _broken(own):
        said.append(f"Nothing could be judged of {own['defence']}: each question says why.")
    if rare:
        assumed = own["questions"][rare[0]]["worst_case"]
        said.append(f"In the worst case, {assumed}, it {'also ' if leaks else ''}leaks {_learnt(own, rare)}.")
    return said


def _many(count: int, what: str = "question") -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _and(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if names[:-1] else "") + names[-1]


def _curious(cell: Mapping[str, Any]) -> bool:
    """Whether it is asked what somebody learns, and not what somebody breaks."""
    return bool(cell["adversary"] != MALICIOUS.key and not cell["forbidden"])


def _leaks(row: Mapping[str, Any], *, rare: bool = False) -> list[str]:
    """The questions in which it leaks: as the description trains, or in the worst case that they assume."""
    cells = row["questions"].items()
    return [n for n, one in cells if one["status"] == "leak" and bool(one["worst_case"]) == rare and _curious(one)]


def _broken(row: Mapping[str, Any]) -> bool:
    """Whether malicious clients break it."""
    cells = row["questions"].values()
    return any(one["status"] == "leak" and one["adversary"] == MALICIOUS.key for one in cells)


def _against(row: Mapping[str, Any], key: str, forbidden: bool, malicious: str) -> dict[str, Any]:
    """What one adversary learns or breaks, over all questions."""
    cells = {name: one["adversaries"][key] for name, one in row["questions"].items() if key in one["adversaries"]}
    every = [name for name, one in cells.items() if one["status"] == "leak"]
    leaks = [name for name in every if not row["questions"][name]["worst_case"]]
    unsure = [name for name, one in cells.items() if one["unsure"] and one["status"] == "none-found"]
    quiet = [n for n, one in cells.items() if one["status"] in ("none-found", "proved") and n not in unsure]
    they, learn = ("they break", "break") if key == MALICIOUS.key else ("it learns", "learn")
    doubt = f"the audit cannot tell if {they} {_learnt(row, unsure)}" if unsure else ""
    if key == MALICIOUS.key and every:
        light, said = "amber", f"{malicious} break it: {cells[every[0]]['words']}"
    elif every and CONTRADICTION in cells[every[0]]["why"]:
        light, said = "amber", f"measured with a leak, {_learnt(row, every)}: {cells[every[0]]['why']}"
    elif leaks:
        light, said = "red", f"learns {_learnt(row, leaks)}"
    elif every:
        light, said = "amber", f"learns in the worst case {_learnt(row, every)}"
    elif quiet:
        light, said = "green", f"not found to {learn} {_learnt(row, quiet)}"
        if all(cells[name]["status"] == "proved" for name in quiet):
            light, said = "proved", f"proved to see nothing of updates{ENCRYPTED if key == NETWORK else ''}"
    else:
        why = next((one["why"] for one in cells.values()), "nothing was asked")
        light, said = "amber", doubt or f"no answer: {why}"
    if doubt and (every or quiet):
        light, said = light if every else "amber", f"{said}; {doubt}"
    return {"adversary": key, "forbidden": forbidden, "light": light, "sentence": said}


def _recommend(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The protocol to recommend, by the rule in the notes; `bytes` is a factor, `accuracy` a difference to yours."""
    own, others = rows[0], rows[1:]
    measure, mine = own["measure"], [*_leaks(own), *_leaks(own, rare=True)]
    sign = 1 if measure == "accuracy" else -1
    known = [row for row in others if row[measure] is not None and own[measure] is not None]
    better = [row for row in known if _closed(own, row, mine) and not _opens(own, row)]
    cheap = [row for row in better if measure != "accuracy" or own[measure] - row[measure] <= DEAR]
    # What costs a lot is worth it for leaks that were found, not for a worst case.
    fit = cheap or [row for row in better if _closed(own, row, _leaks(own))]
    if not fit:
        judged = any(one["status"] != "not-run" for one in own["questions"].values())
        quiet = "Keep your protocol." if judged else "Nothing is recommended where nothing could be judged."
        said = _dear(own, better) if better else NOT_BETTER if mine else quiet
        return {"defence": None, "sentence": said, "bytes": None, "accuracy": None}
    best = min(fit, key=lambda row: (*_left(own, row), -sign * row[measure], row["bytes_per_client"]))
    use = " ".join([f"Use {best['defence']}{'' if cheap else WORTH}.", *_remains(own, best)])
    return {
        "defence": best["defence"], "sentence": use, "bytes": best["bytes_per_client"] / own["bytes_per_client"],
        "accuracy": best[measure] - own[measure] if measure == "accuracy" else None,
    }  # fmt: skip


def _dear(own: Mapping[str, Any], better: Sequence[Mapping[str, Any]]) -> str:
    """What less leaks would cost."""
    found = _and([f"{row['defence']} has {row['accuracy']:.1%}" for row in better])
    return f"Keep your protocol: what leaks less costs over 5 points of accuracy: {found}, yours {own['accuracy']:.1%}."


def _remains(own: Mapping[str, Any], best: Mapping[str, Any]) -> list[str]:
    """What a change brings, what it leaves, and on what it rests."""
    mine, left, closed = _leaks(own), _leaks(best), _closed(own, best, _leaks(own))
    said = [f"It closes {len(closed)} of {_many(len(mine), 'leak')} found: {_learnt(own, closed)}."] if closed else []
    alike = dict[tuple[str, str], list[str]]()
    for name in [name for name in mine if name not in (*closed, *left)]:
        alike.setdefault(_unclosed(own["questions"][name], best, name), []).append(name)
    said += [f"{head}: {_learnt(own, names)}{why}." for (head, why), names in alike.items()]
    if left:
        said.append(f"It still leaks {_learnt(best, left)}.")
    for name in [name for name in _leaks(best, rare=True) if own["questions"][name]["gain"]]:
        then, now = (row["questions"][name]["gain"]["rate"] for row in (own, best))
        said.append(f"In the worst case it still leaks {_learnt(best, [name])}: a gain of {now:.2g}, yours {then:.2g}.")
    here, there = (Pipeline.parse(row["protocol"]) for row in (own, best))
    if more := [who(name) for name in there.place.middle(there) if name not in here.place.middle(here)]:
        said.append(f"It takes {len(more)} more {'parties' if more[1:] else 'party'}: {_and(more)}.")
    if apart := [f"{who(one)} must not work together with {who(other)}" for one, other in best["must_not_collude"]]:
        said.append(f"It rests on this: {'; '.join(apart)}.")
    if _broken(best):
        said.append("Malicious clients break it, too.")
    return [*said, "Of curious parties, its server alone attacked it here: audit it by itself for the others."]


def _unclosed(mine: Mapping[str, Any], best: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Why a leak is not said to be closed, in words that a report's table has: what stands before it, and behind."""
    its = best["questions"][name]
    if its["status"] == "none-found" and is_unordered(Lenient(best)):
        return f"No leak found, but {UNORDERED}", ""
    if its["status"] == "not-run":
        word = stamp(Lenient(its))[1]
        return capital(word), f" ({its['why'].removeprefix(f'{word}: ')})"
    if mine["adversaries"].get(its["adversary"], {}).get("status") != "leak":
        return "Its server was not found to learn, but yours leaks to others, who did not attack it here", ""
    quiet = "No leak found, but too few runs to say that it is less than yours"
    return "Too few runs to tell" if its["unsure"] else quiet, ""


def _learnt(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return _and([row["questions"][name]["learns"] for name in names])


def _closed(own: Mapping[str, Any], other: Mapping[str, Any], leaks: Sequence[str]) -> list[str]:
    """Which leaks the other surely lessens, or is proved not to have, to the same adversary; or has no rows to link.

    What was not found in hidden coordinates that nobody put in order first is no sure sign.
    """
    found = {name: other["questions"][name] for name in leaks}
    every = {name: own["questions"][name]["adversaries"].get(one["adversary"], {}) for name, one in found.items()}
    mine = {name: one["gain"]["low"] for name, one in every.items() if one.get("status") == "leak"}
    tried = not is_unordered(Lenient(other))
    sure = {name for name, one in found.items() if tried and one["status"] == "none-found" and not one["unsure"]}
    none = {name for name, one in found.items() if one["status"] == "proved" or one["why"] == NO_ROWS}
    return [n for n in mine if n in none or (n in sure and found[n]["gain"]["high"] < mine[n])]


def _opens(own: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether it leaks or breaks where the own protocol was not found to.

    To lack a privacy threshold that the own protocol has counts as well.
    """
    cells = [row["questions"].items() for row in (own, other)]
    mine, its = ({n for n, one in each if one["status"] == "leak" and not one["forbidden"]} for each in cells)
    bare = [row.get("statement", {}).get("privacy threshold", "").startswith("none") for row in (own, other)]
    return not its <= mine or bare == [False, True]


def _left(own: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[int, float, int]:
    """Own leaks found in it, too, or not answered; its worst case; last, as chance plays a part, what it closes."""
    mine, rare = [row["questions"][name] for name in _leaks(own)], _leaks(row, rare=True)
    quiet = ("proved",) if is_unordered(Lenient(row)) else ("none-found", "proved")
    still = sum(one["status"] not in quiet and one["why"] != NO_ROWS for one in mine)
    worst = float(sum(row["questions"][name]["gain"]["rate"] for name in rare))
    return still, worst, -len(_closed(own, row, _leaks(own)))
