"""The statement of a pipeline: who learns what, who must not collude, and what is not claimed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from croupier.core.part import Part
from croupier.pipeline import Pipeline

ORDER = ("privacy", "encode", "release", "place", "aggregate")


CLIENT = "each client"
NAMED = "none: the server sees every update with its name"


@dataclass(frozen=True)
class Statement:
    """Composed from what each part says about itself; nothing is written here that no part said."""

    backend: str
    learns: dict[str, str]
    must_not_collude: tuple[tuple[str, ...], ...]
    privacy_threshold: str
    integrity_threshold: str
    liveness_threshold: str
    encoding: tuple[str, ...]
    differential_privacy: str
    robustness: str
    anonymity: str
    over_rounds: str

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def explain(pipeline: Pipeline, *, noise: str = "", cohorts: bool | None = None) -> Statement:
    """Ask every part what it reveals.

    `noise` is what training itself says of noise that it adds; `cohorts` says whether other clients are invited from
    round to round, where that is known.
    """
    place, tolerance = pipeline.place, pipeline.place.tolerance
    learns = dict(place.learns(pipeline))
    own = ["every model the server hands out, and its own update", *([learns.pop(CLIENT)] if CLIENT in learns else [])]
    return Statement(
        backend=" → ".join(
            f"{verb} {_named(getattr(pipeline, verb))}"
            for verb in ("privacy", "encode", "release", "place", "aggregate")
        ),
        learns={
            **learns,
            CLIENT: "; ".join(own),
            "the network": "who talks to whom, when, and message sizes, which tell who took part and no more",
        },
        must_not_collude=tolerance.apart,
        privacy_threshold=tolerance.privacy if pipeline.release.hides or place.keeps_ids else NAMED,
        integrity_threshold=tolerance.integrity,
        liveness_threshold=tolerance.liveness,
        encoding=pipeline.encode.says(),
        differential_privacy=noise or pipeline.privacy.claims(),
        robustness=pipeline.aggregate.tolerates(),
        anonymity=_anonymity(pipeline),
        over_rounds=_over_rounds(pipeline, cohorts),
    )


def _named(part: Part) -> str:
    said = [f"{key}={value}" for key, value in part.plain().items() if key != "use" and value is not None]
    return part.use + (f" ({', '.join(said)})" if said else "")


def _over_rounds(pipeline: Pipeline, cohorts: bool | None) -> str:
    if "ids" not in pipeline.release.hides:
        return "everything, every round"
    if "rows" not in pipeline.release.hides:
        return "nothing is claimed: a client's values of several rounds can be linked by what they are"
    apart = (
        "nothing is claimed for single updates: sums over changing cohorts can be taken apart again, the better the "
        "more slowly clients move (croupier bench disaggregate)"
    )
    same = "with the same clients every round, their sum again and again, from which single updates do not follow"
    if cohorts is None:
        return f"{same}; with changing cohorts {apart}"
    return f"cohorts change here: {apart}" if cohorts else f"{same}; a missing client changes the cohort"


def _anonymity(pipeline: Pipeline) -> str:
    if "ids" not in pipeline.release.hides:
        return "none: each update is known by its sender's name"
    return (
        "at most (clients present minus clients that collude with the server); a client among colluders only is known. "
        "Values themselves can still tell who sent them: nothing is claimed beyond the order being hidden"
        if "rows" not in pipeline.release.hides
        else "a sum of (clients present minus clients that collude with the server); a last honest one is known exactly"
    )
