"""Run any figure or table: check what was asked for, run it, and return a result that says at which scale it was run.

`croupier reproduce` (`croupier_lab/cli/reproduce.py`) prints what comes out, and tests run figures by it.
"""

from __future__ import annotations

from typing import Any

from croupier.audit.bench import Watch
from croupier.errors import SpecError, nearest
from croupier_lab.papers.shared.comparison import compare
from croupier_lab.papers.shared.figure import SCALES, Figure, Means, Scale


def reproduce(
    figure: Figure, scale: Scale, means: Means, *, seeds: int | None = None, seed: int = 0, watch: Watch
) -> dict[str, Any]:
    """Run a figure, or its cases whose label is or holds `means.only`. Raises: SpecError for options that do not fit.

    The result says of which kind it is. A `ledger` (here a list of costs, no client's budget) is counted or timed once,
    without seeds; a `reproduction` is made of source-inference experiments; of a `trial` the figure's own function
    makes the rows, over the seeds given. The last two also say their seeds and device.
    """
    _check(figure, scale, means, seeds)
    named = {"entry": figure.name, "source": figure.source, "title": figure.title, "reading": figure.reading}
    if figure.rows is not None and not figure.seeds:
        return {"kind": "croupier ledger", **named, "scale": scale, "rows": figure.rows(scale, means, (), watch)}
    numbers = range(seed, seed + (seeds or figure.seeds[scale]))
    how = {"scale": scale, "scale_means": SCALES[scale], "seeds": list(numbers), "device": means.device}
    if figure.rows is None:
        return {"kind": "croupier reproduction", **named, **how, **compare(figure, scale, means, numbers, watch)}
    found = figure.rows(scale, means, numbers, watch)
    return {
        "kind": "croupier trial",
        **named,
        **how,
        **({} if means.rounds is None else {"rounds": means.rounds}),
        "substitutions": [one for one in figure.substitutions if _holds_at(scale, one)],
        "rows": found,
        "says": figure.says(found),
    }


def _check(figure: Figure, scale: Scale, means: Means, seeds: int | None) -> None:
    """Raises: SpecError when an option does not fit the figure."""
    only = means.only
    if figure.rows is not None and not figure.seeds and (only or seeds is not None):
        raise SpecError(
            f"{figure.name} is counted or timed once: it has no cases and no seeds; leave out --only and --seeds"
        )
    if only:
        known = figure.case_names(scale)
        if not known:
            raise SpecError(f"--only = {only!r}: {figure.name} has no cases; leave it out")
        if not any(only in case for case in known):
            raise SpecError(f"--only = {only!r}: no case of {figure.name} holds that; {nearest(only, known)}")
    if means.rounds is not None and not figure.takes_rounds:
        raise SpecError(f"--rounds = {means.rounds}: {figure.name} has a length of its own; leave it out")


def _holds_at(scale: Scale, substitution: str) -> bool:
    """Whether a substitution is one of this scale: those of one scale alone begin with its name."""
    return not any(substitution.startswith(f"{other}: ") for other in SCALES if other != scale)
