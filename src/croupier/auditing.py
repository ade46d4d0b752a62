"""An audit of any kind from Python: which one a description asks for, and what it ends with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

from croupier import disclosure, inquiry, profiling, soundness
from croupier.audit.report.result import Reported
from croupier.errors import SpecError, nearest
from croupier.pipeline import Pipeline
from croupier.spec import Sets, Source, counted, load

Kind = Literal["source", "profile", "integrity", "secrecy"]
KINDS: tuple[str, ...] = get_args(Kind)
_ASKED: dict[str, Callable[..., Reported]] = {
    "source": inquiry.examine, "profile": profiling.profile, "integrity": soundness.examine,
    "secrecy": disclosure.examine,
}  # fmt: skip


def kind_of(protocol: Pipeline) -> Kind:
    """What is asked of a protocol where nothing else is said."""
    if protocol.aggregate.use == "clusters":
        return "integrity"
    return "profile" if protocol.privacy.use == "tiers" else "source"


def audit(
    source: Source = "digits-uneven",
    *,
    kind: Kind | None = None,
    sets: Sets = (),
    seeds: int | None = None,
    seed: int = 0,
    data: str | Path | None = None,
    **more: Any,
) -> Reported:
    """Attack what the server of a run really sees, beside what it could have guessed without looking.

    source: what `croupier.run` takes: a preset's name, a TOML file, a table or a `Spec`.
    kind: "source" (whose record is it?), "profile" (what are clients like, for protocols in tiers), "integrity" (what
        do malicious clients break, for clusters), or "secrecy" (what is read of hidden coordinates). By the protocol
        when not said, and never the last.
    sets: keys of the description to change, as `{"federation.rounds": 2}` or `["federation.rounds=2"]`.
    seeds: how many independent runs intervals are over; as many as that kind of audit has by default.
    seed: the first run's; the others count on from it.
    data: the data folder; CROUPIER_DATA does the same.
    more: what one kind alone takes: `shadow`, `noise` (source), `noises` (profile), `abreast`, `depth` (integrity,
        secrecy), and `watch` for progress.

    The findings have `plain` (all numbers), `page()` and `save(path)` (the report). Raises: SpecError, DataError.
    """
    if kind is not None and kind not in KINDS:
        raise SpecError(f"kind = {kind!r}: there is no such audit; {nearest(str(kind), KINDS)}")
    spec = load(source, sets, count=counted(data))
    given = {} if seeds is None else {"seeds": seeds}
    return _ASKED[kind or kind_of(spec.protocol)](spec, seed=seed, data=data, **given, **more)
