"""How a round went wrong: is there proof of foul play, did it merely lack clients, and what was the first cause.

When one party stops, others stop because of it, and the last error to be seen says least. Here the first cause is
found: the failure furthest from the server, and who was turned away at a door and why. It is also decided here whether
a round merely lacked clients, which may be passed over, or somebody has proof of foul play, which never is.
`engine.loop` calls all three functions, and the laboratory's `croupier bench tamper` calls `alarmed`.
"""

from __future__ import annotations

from collections.abc import Mapping

from croupier.core.attempt import AttemptResult
from croupier.errors import IntegrityError, ProtocolError, TooFew


def alarmed(number: int, cohort: tuple[str, ...], result: AttemptResult, witnesses: tuple[str, ...] = ()) -> None:
    """Raises: IntegrityError on proof of foul play; ProtocolError where a witness or every client did not end well.

    What the server made of a round that is refused here is worth nothing. A round in which no client could make its
    check is refused, too: to prevent all checks would be an easy way around them.
    """
    errors = {name: result.outcomes[name].error for name in cohort if name in result.outcomes}
    for error in errors.values():
        if isinstance(error, IntegrityError):
            raise IntegrityError(f"round {number + 1} is refused: {error}") from error
    server = result.outcomes["server"].error
    for name in witnesses:
        if server is None and (name not in result.outcomes or result.outcomes[name].error is not None):
            raise ProtocolError(f"round {number + 1} is refused: {name} did not end content")
    if server is None and errors and all(errors.values()):
        raise ProtocolError(f"round {number + 1} is refused: no client ended content. {next(iter(errors.values()))}")


def short(result: AttemptResult, cohort: tuple[str, ...]) -> bool:
    """Whether a round failed for want of clients, and for nothing else that a party of the placement found."""
    clients = frozenset(cohort)
    found = [outcome.error for name, outcome in result.outcomes.items() if name not in clients and outcome.error]
    return bool(found) and all(isinstance(error, TooFew) for error in found)


def why(number: int, result: AttemptResult, overspent: Mapping[str, str]) -> str:
    """The first cause of a failed round: what went wrong furthest from the server, and who was turned away.

    A party that waited in vain for another one (`TooFew`) is not the cause, and a client that did so was not refused.
    """
    errors = {name: o.error for name, o in result.outcomes.items() if o.error is not None}
    vain = {name for name, error in errors.items() if isinstance(error, TooFew)}
    refusals = [one for one in result.refusals if not (one.at == one.source and one.source in vain)]
    turned_away = {refusal.source for refusal in refusals}
    clients = next(iter(result.views.values())).given.roster if result.views else ()
    outer = {"server", *turned_away, *clients}
    middle = [error for name, error in errors.items() if name not in outer]
    causes = [error for error in (*middle, errors["server"]) if not isinstance(error, TooFew)]
    said = f"round {number + 1} cannot go on: {(causes or middle or [errors['server']])[0]}"
    if overspent and not causes:
        many = f" ({len(overspent)} clients are past their budgets)" if len(overspent) > 1 else ""
        return f"{said}. Cause: {next(iter(overspent.values()))}{many}"
    if not refusals:
        few = [error for error in (*middle, errors["server"]) if isinstance(error, TooFew)]
        return said if causes else f"{said}. Remedy: {few[0].remedy}"
    first = refusals[0]
    others = f" ({len(turned_away)} were refused)" if len(turned_away) > 1 else ""
    return f"{said}. {first.source} was refused at {first.at}: {first.why}{others}"
