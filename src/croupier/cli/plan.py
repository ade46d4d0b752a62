"""`croupier plan`: what a run will cost; `croupier plan dp`: noise, epsilon or participations, one from the others.

Two commands in one: `plan DESCRIPTION` asks `croupier.outlook` for bytes, seconds, memory and epsilon; `plan dp` asks
`croupier.privacy.plan` for the missing one of three numbers. Both print ranges and reasons where a number is not known
before the run. The numbers come from there; this file asks and prints.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any, Optional

import click
import typer
from click.shell_completion import CompletionItem
from typer.core import TyperGroup

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.outlook import Forecast
    from croupier.privacy.plan import Plan

RUN = "run"


class _Planning(TyperGroup):
    """What is no command here is a description: `plan digits` is `plan run digits`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = [RUN, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """A command, or a description."""
        named = [CompletionItem(name) for name in options.descriptions(incomplete)]
        return [*super().shell_complete(ctx, incomplete), *named]


app = typer.Typer(cls=_Planning, no_args_is_help=True, rich_markup_mode="rich")
SAMPLING = "sampling gives no local amplification: the server sees who takes part, and what each of them sends"


@app.callback()
def group() -> None:
    """What a run will cost, before it starts.

    `croupier plan digits`: bytes, seconds, memory and epsilon of a preset or TOML file.

    `croupier plan dp --epsilon 8 --rounds 5`: noise for a wished epsilon.
    """


@app.command(RUN)
def run(
    spec: Annotated[str, typer.Argument(help="A preset or TOML file.", autocompletion=options.descriptions)],
    sets: options.Sets = None,
    seed: options.Seed = None,
    data: options.Data = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Bytes, seconds, memory and epsilon of a description, before it is run.

    The word `run` may be left out: `croupier plan my.toml`

    Bytes follow from the protocol's message lengths. Seconds and memory are estimates from a short trial: some
    clients are trained, and two rounds are played; nothing is written. If data or model are your own, your functions
    are called.
    """
    from croupier.outlook import plan
    from croupier.spec import unread

    if print_config:
        described, supposed = unread(spec, sets or ())
        options.show_config(described, json, supposed)
        return
    options.caution(spec, sets or ())
    found = plan(spec, sets=sets or (), seed=seed, data=data)
    options.give(found.plain() | {"seed": seed}, json, out, lambda: _tell(found))


def _tell(found: Forecast) -> None:
    from rich.table import Table

    from croupier.cli.fit import show
    from croupier.cli.tables import size

    print(
        f"{found.name}: {found.rounds} rounds, {found.cohort} of {found.clients} clients a round, "
        f"{found.parameters:,} parameters"
    )
    table = Table(title=f"bytes in the whole run{'' if found.exact else ' (estimate)'}", title_justify="left")
    for head in ("party", "sends", "receives"):
        table.add_column(head, justify="left" if head == "party" else "right")
    for name, sent in found.sent.items():
        table.add_row(name, size(sent), size(found.got[name]))
    table.add_row("all together", size(found.total), "")
    show(table)
    print(f"a client that is invited to a round: {size(found.up)} up, {size(found.down)} down")
    if found.why_not:
        print(_folded(f"bytes are an estimate: {found.why_not}"))
    print(_folded(f"time: about {_span(found.seconds)} (estimate); {_shares(found)}"))
    print(f"memory: about {size(found.peak_bytes)} (estimate)")
    for line in (*_epsilons(found), *found.notes):
        print(_folded(line))


def _folded(said: str) -> str:
    return textwrap.fill(said, 80, subsequent_indent="  ")


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _shares(found: Forecast) -> str:
    parts = {"training": found.training, "messages": found.messages, "testing": found.testing}
    return ", ".join(f"{name} {_span(took)}" for name, took in parts.items())


def _epsilons(found: Forecast) -> list[str]:
    from croupier.privacy.local import rounded_up

    if not found.epsilon:
        return [f"epsilon: {found.privacy}"]
    said = []
    for one in found.epsilon:
        whom = f"{one['clients']} clients" if one["unit"] == "client" else "records of any client"
        if one["epsilon"] is None:
            said.append(f"epsilon of {whom}: not computed: {one['why_not']}")
            continue
        limit = "" if one["budget"] is None else f", and never above the total of {one['budget']:g}"
        said.append(
            f"epsilon of {whom}: {rounded_up(one['one'])} for one participation, {rounded_up(one['epsilon'])} for "
            f"{one['participations']}, the most that this run asks{limit} (delta = {one['delta']:g})"
        )
    return [*said, *dict.fromkeys(f"unit: {one['unit']}; {one['adjacency']}" for one in found.epsilon)]


@app.command("dp")
def dp(
    epsilon: Annotated[Optional[float], typer.Option(help="Total epsilon of one client.")] = None,  # noqa: UP045
    sigma: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Deviation of the noise on each coordinate."),
    ] = None,
    rounds: Annotated[Optional[int], typer.Option(help="Participations of one client.")] = None,  # noqa: UP045
    clip: Annotated[float, typer.Option(help="Length to which an update is clipped.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Total delta of one client.")] = 1e-5,
    clients: Annotated[Optional[int], typer.Option(help="Clients that are enrolled.")] = None,  # noqa: UP045
    cohort: Annotated[Optional[int], typer.Option(help="Clients invited to each round.")] = None,  # noqa: UP045
    total: Annotated[Optional[int], typer.Option(help="Rounds of the whole run.")] = None,  # noqa: UP045
    out: options.OutFile = None,
    json: options.Json = False,
) -> None:
    """Plan the local privacy of whole clients: give two of epsilon, sigma and rounds, and get the third.

    `croupier plan dp --epsilon 8 --rounds 5 --clip 1`

    `croupier plan dp --sigma 4 --rounds 10 --clients 200 --cohort 20 --total 50`
    """
    from croupier.privacy.plan import planned

    found = planned(epsilon, sigma, rounds, clip, delta)
    facts = (
        _facts(found) | _turns(found, clients, cohort, total) | _shuffle(found, clients if cohort is None else cohort)
    )
    options.give(facts, json, out, lambda: _show(facts))


def _facts(plan: Plan) -> dict[str, Any]:
    from croupier.privacy.gdp import epsilon_of, mu_of
    from croupier.privacy.ledger import ADJACENCY

    loose = plan.one > 0
    return {
        "unit": "client", "adjacency": ADJACENCY["client"], "clip": plan.clip, "sensitivity": 2 * plan.clip,
        "delta": plan.delta, "sigma": plan.sigma, "mu": plan.mu, "participations": plan.participations,
        "epsilon": plan.after(plan.participations), "wished": plan.epsilon, "one_participation": plan.one,
        "classical_sigma": plan.classical if loose else None,
        "classical_true_epsilon": epsilon_of(mu_of(plan.clip, plan.classical), plan.delta) if loose else None,
        "calibration": "analytic Gaussian mechanism, composed by Gaussian DP; the classical formula is never used",
    }  # fmt: skip


def _turns(plan: Plan, clients: int | None, cohort: int | None, total: int | None) -> dict[str, Any]:
    from croupier.errors import RangeError
    from croupier.privacy.plan import SURE, turns

    if total is None:
        return {}
    if clients is None or cohort is None:
        raise RangeError("--total: how often a client takes part depends on --clients and --cohort; give both")
    found = turns(clients, cohort, total)
    counts = {"expected": found.expected, "likely_most": found.likely, "most": found.most}
    each = {name: {"participations": count, "epsilon": plan.after(count)} for name, count in counts.items()}
    return {"sampling": {**each, "likely_most_chance": SURE, "note": SAMPLING}}


def _shuffle(plan: Plan, honest: int | None) -> dict[str, Any]:
    from croupier.privacy.amplify import ShuffleGuarantee
    from croupier.privacy.plan import CLOSED, shuffled

    if honest is None:
        return {}
    found = shuffled(plan, honest)
    said = found.claimed.says() if isinstance(found.claimed, ShuffleGuarantee) else found.claimed
    return {
        "amplification": {
            "honest": honest, "claim": said, "pure_epsilon": found.pure, "closed_form": found.closed,
            "closed_form_used": CLOSED,
        }
    }  # fmt: skip


def _show(facts: dict[str, Any]) -> None:
    from croupier.cli.fit import line, wrapped
    from croupier.privacy.local import rounded_up, shown, times

    print(line(f"unit: {facts['unit']}; adjacency: {facts['adjacency']}"))
    print(f"clip C = {facts['clip']:g}, sensitivity 2C = {facts['sensitivity']:g}, delta = {facts['delta']:g}")
    print(f"sigma = {facts['sigma']:.6g} (analytic), mu = {facts['mu']:.4g}")
    print(line(f"{times(1)}: {shown(facts['one_participation'], facts['delta'])}"))
    if facts["participations"] > 1:
        print(line(f"{times(facts['participations'])}: {shown(facts['epsilon'], facts['delta'])}"))
    if facts["classical_sigma"] is not None:
        said = (
            f"classical formula, never used: sigma = {facts['classical_sigma']:.4g} for the epsilon of one "
            f"participation, which would be {rounded_up(facts['classical_true_epsilon'])} in truth; it is proved "
            "below 1 only"
        )
        print(wrapped(said))
    for more in _more(facts):
        print(wrapped(more))


def _more(facts: dict[str, Any]) -> list[str]:
    from croupier.privacy.local import rounded_up, shown

    said = []
    if drawn := facts.get("sampling"):
        for name, words in {
            "expected": "expected", "likely_most": f"most of all clients, with chance {drawn['likely_most_chance']:g}",
            "most": "most that can be",
        }.items():  # fmt: skip
            one = drawn[name]
            said.append(f"participations, {words}: {one['participations']:g}, {shown(one['epsilon'], facts['delta'])}")
        said.append(drawn["note"])
    if gain := facts.get("amplification"):
        said.append(f"shuffled among {gain['honest']} honest clients: {gain['claim']}")
        if gain["pure_epsilon"] is not None:
            closed = gain["closed_form"]
            closed = f"{closed:.5g}" if isinstance(closed, float) else closed
            said.append(
                f"rows of the same epsilon without a delta would get {rounded_up(gain['pure_epsilon'])} by the clone "
                f"bound of 2021, evaluated numerically; closed form ({gain['closed_form_used']}): {closed}"
            )
    return said
