"""The statement of a pipeline: who learns what, who must not collude, and what is not claimed.

It is computed: every part says in words what it reveals, what it rests on and what it does not claim. This file puts
the sentences in order, and has those that follow from several parts together (amplification, rounds, anonymity), or
that hold for every pipeline (`NETWORK`). A guarantee is a number with its theorem or a reason why there is none.
`croupier explain` prints it; audits, runs (`summary.json`) and `croupier recommend` give it beside what they found.
"""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Any

from croupier.core.html import html_table
from croupier.core.part import Part
from croupier.pipeline import Pipeline
from croupier.privacy import central
from croupier.privacy.amplify import claim
from croupier.privacy.local import rounded_up, times

CLIENT = "each client"
NETWORK = "who talks to whom, when, and message sizes, which tell who took part and no more"
NAMED = "none: the server sees every update with its name"
# The delta for which a shuffle's epsilon is stated. For a local guarantee with a delta of its own, `claim` refuses.
DELTA = 1e-5

# An epsilon below this is 0 but for rounding.
_NOTHING = 1e-6


@dataclass(frozen=True)
class Statement:
    """Composed from what each part says about itself, and from what follows of several parts together."""

    backend: str
    learns: dict[str, str]
    must_not_collude: tuple[tuple[str, ...], ...]
    privacy_threshold: str
    integrity_threshold: str
    liveness_threshold: str
    encoding: tuple[str, ...]
    warnings: dict[str, str]
    differential_privacy: str
    amplification: str
    robustness: str
    anonymity: str
    over_rounds: str

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def sentences(self) -> list[tuple[str, str]]:
        """All that follows the line of the five parts (`backend`), each with its head, as people read it."""
        apart = "; ".join(" with ".join(pair) for pair in self.must_not_collude)
        return [
            *((f"{who} learns", what) for who, what in self.learns.items()),
            ("must not collude", apart or "nobody is kept apart"),
            ("privacy threshold", self.privacy_threshold),
            ("integrity threshold", self.integrity_threshold),
            ("liveness threshold", self.liveness_threshold),
            *(("encoding", one) for one in self.encoding),
            *self.warnings.items(),
            ("differential privacy", self.differential_privacy),
            ("amplification", self.amplification),
            ("robustness", self.robustness),
            ("anonymity", self.anonymity),
            ("over rounds", self.over_rounds),
        ]

    def __str__(self) -> str:
        return "\n".join([self.backend, "", *(f"{head + ':':<22} {text}" for head, text in self.sentences())])

    def _repr_html_(self) -> str:
        return html_table(self.backend, (), self.sentences())

    def __repr__(self) -> str:
        return f"Statement(server learns {textwrap.shorten(self.learns['server'], 90, placeholder=' ...')!r})"


def explain(
    pipeline: Pipeline,
    *,
    noise: str = "",
    cohorts: bool | None = None,
    rounds: int | None = None,
    present: int | None = None,
    invited: tuple[int, int] | None = None,
) -> Statement:
    """Ask every part what it reveals.

    `noise` is what training itself says of noise that it adds; `cohorts` says whether other clients are invited from
    round to round, `rounds` in how many a client takes part at most, `present` with how few clients a round ends, and
    `invited` how many clients are enrolled and how many of them invited, where that is known.
    """
    place, tolerance = pipeline.place, pipeline.place.tolerance
    learns = dict(place.learns(pipeline))
    if more := pipeline.encode.server_learns():
        learns["server"] += f"; and {more}"
    met = pipeline.encode.meets(*invited, "ids" in pipeline.aggregate.asks) if invited else ()
    own = ["every model the server hands out, and its own update", *([learns.pop(CLIENT)] if CLIENT in learns else [])]
    return Statement(
        backend=" → ".join(
            f"{verb} {_named(getattr(pipeline, verb))}"
            for verb in ("privacy", "encode", "release", "place", "aggregate")
        ),
        learns={
            **learns,
            CLIENT: "; ".join(own),
            "the network": NETWORK,
        },
        must_not_collude=tolerance.apart,
        privacy_threshold=tolerance.privacy if pipeline.release.hides or place.keeps_ids else NAMED,
        integrity_threshold=tolerance.integrity,
        liveness_threshold="; ".join(filter(None, (tolerance.liveness, pipeline.encode.waits_for()))),
        encoding=(*pipeline.encode.says(), *met),
        warnings=dict(pipeline.encode.warns()),
        differential_privacy=_noise(pipeline, noise, rounds or 1),
        amplification=_amplification(pipeline, rounds or 1, present),
        robustness=pipeline.aggregate.tolerates(),
        anonymity=_anonymity(pipeline),
        over_rounds=_over_rounds(pipeline, cohorts),
    )


def _named(part: Part) -> str:
    said = [f"{key}={value}" for key, value in part.plain().items() if key != "use" and value is not None]
    return part.use + (f" ({', '.join(said)})" if said else "")


def _noise(pipeline: Pipeline, training: str, rounds: int) -> str:
    local, said = pipeline.privacy.guarantee(), pipeline.privacy.claims(rounds)
    open_to_all = ""
    if pipeline.encode.weights != "uniform":
        # Neither noise hides it: a client's is on its update, and training's takes that number as public.
        open_to_all = (
            f". The number of records, which travels too (weights = {pipeline.encode.weights!r}), is not covered"
        )
    if none := pipeline.encode.claims_none():
        return f"{none}{', whatever noise training adds' if training else ''}"
    if training and not pipeline.privacy.noiseless:
        return f"{training}. Besides, {said}{open_to_all}"
    return f"{training or said}{open_to_all if training or local is not None else ''}"


def _amplification(pipeline: Pipeline, rounds: int, present: int | None) -> str:
    """What a shuffle or a sum adds to local noise, by which theorem; or the reason why nothing is claimed."""
    local = pipeline.privacy.guarantee()
    if local is None:
        return "no amplification claimed: there is no local guarantee to amplify"
    if "ids" not in pipeline.release.hides:
        return "no amplification claimed: rows keep their names"
    if pipeline.release.bucket is not None:
        smallest, colluders = pipeline.release.bucket
        if pipeline.release.shape == "bucketed":
            return _central(pipeline, smallest, colluders, rounds)
        return (
            f"no amplification claimed: values are shuffled among {smallest - colluders} honest clients or few more, "
            "for which no theorem gives less than the largest local epsilon of the bucket; each client keeps its "
            "own"
        )
    if pipeline.encode.weights != "uniform":
        return "no amplification claimed: rows carry their number of records, which is not noised and can name them"
    if present is None:
        return "no amplification claimed: it depends on how many honest clients are present, which is not known here"
    if local.epsilon < _NOTHING:
        return "no amplification claimed: the local epsilon is 0 but for rounding, and cannot be less"
    found = claim(present, local.epsilon, local.delta or DELTA, local.delta)
    if isinstance(found, str):
        return found
    together = "; ".join(" with ".join(pair) for pair in pipeline.place.tolerance.apart)
    many = (
        f". {times(rounds).capitalize()}: ({rounded_up(rounds * found.epsilon)}, {rounds * found.delta:g}) by adding up"
        if rounds > 1
        else ""
    )
    return (
        f"{found.says()}{many}. Each client that colludes counts for one less. Only against who knows "
        "nothing of the permutation: not against a party that permutes, or sees rows before that"
        f"{f', nor against {together}' if together else ''}"
    )


def _central(pipeline: Pipeline, smallest: int, colluders: int, rounds: int) -> str:
    """What the noise of a bucket's members gives each of them, on the public grid that they round to."""
    grid, noise = pipeline.encode.public_grid(), pipeline.privacy.gaussian()
    if grid is None:
        return "no central guarantee is claimed for sums: values must be rounded to the nearest; use rounding = 'even'"
    if pipeline.aggregate.rescales:
        return "no central guarantee is claimed for sums: the grid follows the model; use aggregate = 'mean'"
    if noise is None:
        return f"no central guarantee is claimed for sums: privacy = {pipeline.privacy.use!r} is not Gaussian noise"
    return central.says(
        noise.clip, noise.tiers, noise.delta, central.Lattice(grid.step, grid.edge, grid.modulus),
        members=grid.clients, smallest=smallest, colluders=colluders, participations=rounds,
    )  # fmt: skip


def _over_rounds(pipeline: Pipeline, cohorts: bool | None) -> str:
    """What several rounds tell that one does not."""
    if "ids" not in pipeline.release.hides:
        return "everything, every round"
    if own := pipeline.release.over_rounds():
        return own
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
    """Among how many a client is hidden."""
    if own := pipeline.release.anonymity():
        return own
    if "ids" not in pipeline.release.hides:
        return "none: each update is known by its sender's name"
    return (
        "at most (clients present minus clients that collude with the server); a client among colluders only is known. "
        "Values themselves can still tell who sent them: nothing is claimed beyond the order being hidden"
        if "rows" not in pipeline.release.hides
        else "a sum of (clients present minus clients that collude with the server); a last honest one is known exactly"
    )
