"""The tables; each cell carries its column's name, so that a narrow screen can stack a row as a card."""

from __future__ import annotations

from collections.abc import Sequence

from croupier.audit.report.facts import Attack, Membership, Moment, Row
from croupier.audit.report.plots import FAILED
from croupier.audit.report.words import NOTHING, Html, Rate, decimal, full, interval, joined, percent, points, tag

NUMBERS = ("Attack", "Success", "95 % interval", "Prior", "Leak (points)", "Best round (not a result)", "Control")
MEMBERS = ("Attack", "AUC", "95 % interval", "Above the prior", "TPR at 1 % FPR")


def numbers(rows: Sequence[Row]) -> Html:
    """Every success, leak, best round and control."""
    caption = "Success is the share of records whose client is named correctly, as a mean over rounds and runs."
    return table("numbers", caption, NUMBERS, [(row.name, _numbers(row)) for row in rows])


def membership(rows: Sequence[Row]) -> Html:
    """Every membership attack against the prior."""
    caption = (
        "Was a record trained on? AUC 0.5 is guessing. "
        "The prior is how easy a record is for models that never saw it. "
        "TPR at 1 % FPR: the share of members found when at most one other in 100 is taken for one."
    )
    return table("members", caption, MEMBERS, [(row.name, _members(row)) for row in rows if row.membership])


def _numbers(row: Row) -> list[list[Html]]:
    prior = [_prior(row.prior)] if row.prior else []
    return prior + [_attack(attack, row) for attack in row.attacks] or [[_plain("no numbers")]]


def _prior(prior: Attack) -> list[Html]:
    origin = f", from {prior.carried}" if prior.carried else ""
    name = joined([prior.title, tag("small", f"the prior: the reference, not an attack{origin}")])
    share, spread = _plain(percent(prior.rate.rate if prior.rate else None)), _plain(interval(prior.rate))
    return [name, share, spread, _plain(NOTHING), _plain(NOTHING), _best(prior.best), _plain(NOTHING)]


def _attack(attack: Attack, row: Row) -> list[Html]:
    aside = f"not run: {attack.not_run}" if attack.not_run else FAILED
    name = joined([attack.title] if attack.scored else [attack.title, tag("small", aside)])
    known = row.prior.rate.rate if row.prior and row.prior.rate else None
    return [
        name,
        _plain(percent(attack.rate.rate if attack.rate else None)),
        _plain(interval(attack.rate)),
        _plain(percent(known if attack.prior is None else attack.prior)),
        _two(points(attack.leak.rate if attack.leak else None), attack.leak),
        _best(attack.best),
        _control(attack),
    ]


def _control(attack: Attack) -> Html:
    word = {True: "passed", False: "failed", None: "not run"}[attack.passed]
    if attack.control is None:
        return _plain(word)
    return joined([f"{word}: {percent(attack.control.rate)}", tag("small", interval(attack.control))])


def _best(best: Moment | None) -> Html:
    if best is None:
        return _plain(NOTHING)
    return _two(f"round {best.round}: {percent(best.rate.rate)}", best.rate)


def _members(row: Row) -> list[list[Html]]:
    return [_member(attack) for attack in row.membership]


def _member(attack: Membership) -> list[Html]:
    return [
        _plain(attack.title),
        _plain(decimal(attack.auc.rate, 3) if attack.auc else NOTHING),
        _plain(interval(attack.auc, 1, 3)),
        joined([_signed(attack.leak), tag("small", interval(attack.leak, 1, 3))]) if attack.leak else _plain(NOTHING),
        _plain(full(attack.hits)),
    ]


def _signed(rate: Rate) -> str:
    said = decimal(rate.rate, 3)
    return f"+{said}" if rate.rate > 0 and float(said) else said


def _plain(said: str) -> Html:
    return joined([said])


def _two(said: str, rate: Rate | None) -> Html:
    """A number with its interval on the next line."""
    return joined([said, tag("small", interval(rate))] if rate and rate.ends else [said])


def table(kind: str, caption: str, heads: Sequence[str], groups: Sequence[tuple[str, list[list[Html]]]]) -> Html:
    """A table in groups; the roles repeat what the elements say, because CSS that stacks rows takes it from them."""
    top = tag("tr", *(tag("th", head, scope="col", role="columnheader") for head in heads), role="row")
    bodies = [_body(name, lines, heads) for name, lines in groups]
    said = tag("caption", caption)
    return tag("table", said, tag("thead", top, role="rowgroup"), *bodies, class_=kind, role="table")


def _body(name: str, lines: Sequence[Sequence[Html]], heads: Sequence[str]) -> Html:
    group = tag("th", name, scope="rowgroup", colspan=len(heads), role="rowheader")
    rows = [tag("tr", group, class_="group", role="row"), *(_row(line, heads) for line in lines)]
    return tag("tbody", *rows, role="rowgroup")


def _row(cells: Sequence[Html], heads: Sequence[str]) -> Html:
    first = tag("th", cells[0], scope="row", role="rowheader")
    # The value is one box, so that a stacked cell has two columns: its column's name and its value.
    rest = [
        tag("td", tag("div", cell), class_="empty" if cell == NOTHING else None, data_head=head, role="cell")
        for head, cell in zip(heads[1:], cells[1:], strict=False)
    ]
    return tag("tr", first, *rest, role="row")
