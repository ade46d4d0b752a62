"""`croupier plan dp`: noise, epsilon or participations before a run, any one from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.privacy.plan import Plan

app = typer.Typer(
    help="What a run will cost, computed before it starts.", no_args_is_help=True, rich_markup_mode="rich"
)
SAMPLING = "sampling gives no local amplification: the server sees who takes part, and what each of them sends"


@app.callback()
def group() -> None:
    """What a run will cost, computed before it starts."""


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
    options.emit(facts, json, out)
    if not json:
        _show(facts)


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
    from croupier.privacy.amplify import Claim
    from croupier.privacy.plan import CLOSED, shuffled

    if honest is None:
        return {}
    found = shuffled(plan, honest)
    said = found.claimed.says() if isinstance(found.claimed, Claim) else found.claimed
    return {
        "amplification": {
            "honest": honest, "claim": said, "pure_epsilon": found.pure, "closed_form": found.closed,
            "closed_form_used": CLOSED,
        }
    }  # fmt: skip


def _show(facts: dict[str, Any]) -> None:
    from croupier.cli.tables import wrapped
    from croupier.privacy.local import rounded_up, shown, times

    print(f"unit: {facts['unit']}; adjacency: {facts['adjacency']}")
    print(f"clip C = {facts['clip']:g}, sensitivity 2C = {facts['sensitivity']:g}, delta = {facts['delta']:g}")
    print(f"sigma = {facts['sigma']:.6g} (analytic), mu = {facts['mu']:.4g}")
    print(f"{times(1)}: {shown(facts['one_participation'], facts['delta'])}")
    if facts["participations"] > 1:
        print(f"{times(facts['participations'])}: {shown(facts['epsilon'], facts['delta'])}")
    if facts["classical_sigma"] is not None:
        said = (
            f"classical formula, never used: sigma = {facts['classical_sigma']:.4g} for the epsilon of one "
            f"participation, which would be {rounded_up(facts['classical_true_epsilon'])} in truth; it is proved "
            "below 1 only"
        )
        print(wrapped(said))
    for line in _more(facts):
        print(wrapped(line))


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
