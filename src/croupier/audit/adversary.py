"""Who could be curious in a protocol: every party alone, and the parties together that the statement keeps apart.

`audit.described` asks for all of them, or parses those that the command line names. A placement says which parties must
not put their views together; such a coalition is attacked all the same, and what it finds is shown as a what-if.
"""

from __future__ import annotations

from croupier.audit.question import SERVER, Adversary
from croupier.errors import SpecError, nearest, option
from croupier.pipeline import Pipeline

NETWORK = "network"


def adversaries(pipeline: Pipeline) -> tuple[Adversary, ...]:
    """Every party alone, the server first; then the coalitions that the protocol forbids."""
    alone = (Adversary((party,)) for party in (*pipeline.place.middle(pipeline), "client", NETWORK))
    return (SERVER, *alone, *(Adversary(parties, forbidden=True) for parties in pipeline.place.breaks))


def parse(text: str, pipeline: Pipeline) -> Adversary:
    """An adversary from its parties' names, joined by "+".

    Raises: SpecError on a party that the protocol does not have, and on a network that sees with others.
    """
    known, asked = _parties(pipeline), [word.strip() for word in text.split("+")]
    for word in asked:
        if word not in known:
            raise SpecError(
                f"{option('adversary')} = {text!r}: this protocol has no party {word!r}; {_meant(word, known)}"
            )
    if NETWORK in asked and set(asked) != {NETWORK}:
        raise SpecError(
            f"{option('adversary')} = {text!r}: the network sees nothing of updates that others do not; leave it out"
        )
    parties = tuple(party for party in known if party in asked)
    return Adversary(parties, any(set(parties) >= set(apart) for apart in pipeline.place.breaks))


def _parties(pipeline: Pipeline) -> tuple[str, ...]:
    """By name, in the order in which adversaries name them; "clients" only where they matter together."""
    several = (party for parties in pipeline.place.breaks for party in parties)
    return tuple(dict.fromkeys(("server", *pipeline.place.middle(pipeline), "client", *several, NETWORK)))


def _meant(word: str, known: tuple[str, ...]) -> str:
    """The nearest name, and all there are."""
    said = nearest(word, known)
    return said if said.startswith("known") else f"{said} It has {', '.join(known)}"
