"""Rounds read off the views that one party kept of a deployment: what it can make of them, as recorded rounds.

So an organisation can audit what it really received, instead of a simulation. `service.views` opens the files of views
and makes `PartyViews`; `audit.recorded.audited` turns them into rounds with `rounds_in` and attacks these. The way from
the command line is `croupier audit --views`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from croupier.audit.client_view import handed
from croupier.audit.question import Adversary
from croupier.audit.recorded.files import KeptRounds, RecordedRound, Seen
from croupier.audit.seen import Kind, begun, seen, server_model, shows
from croupier.core.update import Gathered, Layout
from croupier.errors import CroupierError, SpecError
from croupier.pipeline import Pipeline

# What can be audited, and what a manifest (`audit.recorded.files`) calls it.
_SEEN: Mapping[Kind, Seen] = {"named": "named", "sum": "sum", "counts": "sum"}
_PLAYED = "describe the protocol in a TOML file, and croupier audit plays it"


@dataclass(frozen=True)
class PartyViews:
    """One party's views by round, from 1 (`core.view.facts`), and the protocol and layout that they belong to."""

    party: str
    views: Mapping[int, Mapping[str, Any]]
    pipeline: Pipeline
    layout: Layout


def rounds_in(kept: PartyViews) -> KeptRounds:
    """What the views show, round by round. Raises: SpecError that says why nothing can be asked of them."""
    middle = ("server", *kept.pipeline.place.middle(kept.pipeline))
    role = kept.party if kept.party in middle else "client"
    found = shows(kept.pipeline, Adversary((role,)))
    if found.kind not in _SEEN:
        why = found.why or f"it sees rows without names, shuffled by {found.kind}, and no attack can be checked on them"
        raise SpecError(f"views of {kept.party}: nothing can be asked of them: {why}; {_PLAYED}")
    rounds, failed = [], list[str]()
    for number in sorted(kept.views):
        try:
            rounds.append(_round(kept, number, found.kind))
        except CroupierError as error:
            failed.append(f"round {number}: {error}")
    if not rounds:
        raise SpecError(f"views of {kept.party}: no round can be read ({failed[0]}); {_PLAYED}")
    return KeptRounds(_SEEN[found.kind], tuple(rounds), kept.layout, tuple(failed))


def _round(kept: PartyViews, number: int, kind: Kind) -> RecordedRound:
    start = _start(kept, number)
    # A client is handed what came of a round in the next one.
    views = [kept.views[at] for at in (number, number + 1) if at in kept.views]
    try:
        got = seen({kept.party: views}, kept.pipeline.plain(), kept.layout, start)
    except (IndexError, KeyError, StopIteration):
        # Letters are missing that a round has when it was completed.
        raise SpecError("the attempt ended before anything was released") from None
    if kind == "named":
        return RecordedRound(number, _named(got), None, start)
    if got.sums is None or got.weights is None:
        raise SpecError("the view holds no sum")
    return RecordedRound(number, {}, (got.sums.double() / float(got.weights.sum())).float(), start)


def _named(got: Gathered) -> dict[str, Tensor]:
    if got.rows is None or got.ids is None:
        raise SpecError("the view holds no updates by name")
    rows = dict(zip(got.ids, got.rows, strict=True))
    if len(rows) < 2:
        raise SpecError("one client alone took part")
    return rows


def _start(kept: PartyViews, number: int) -> Tensor | None:
    """The model that a round began with, as a client was handed it or the server made it; None where no view tells."""
    with suppress(StopIteration):
        view = kept.views[number]
        return begun({kept.party: (view,)}, kept.pipeline.plain(), handed(view))
    if kept.party != "server" or number - 1 not in kept.views:
        return None
    # A round before that failed left the model as it was, which no view of it tells.
    with suppress(SpecError):
        return server_model(kept.views[number - 1])
    return None
