"""`croupier audit`: attacks on what the server really sees, against what it could have guessed without looking."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.audit.experiment import Defence, Outcome
    from croupier.spec import Spec

DEFAULTS = ("task.split.alpha=0.1", "task.split.least=20", "federation.rounds=5")


def command(
    spec: Annotated[
        str, typer.Argument(help="A preset or TOML file: its task is audited under each defence.")
    ] = "digits",
    sets: options.Sets = None,
    seeds: Annotated[int, typer.Option(help="Independent runs; intervals are over runs.", min=2, max=31)] = 5,
    fast: Annotated[bool, typer.Option("--fast", help="Two rounds and three runs: under a minute.")] = False,
    shadow: Annotated[float, typer.Option(help="Share of each client's records that the adversary holds.")] = 0.05,
    seed: options.Seed = None,
    data: options.Data = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Whose record is it? Source inference on plain and naively shuffled updates, against the prior.

    The server knows that a record was trained on, and has a small shadow set of each client's distribution. The prior
    is what that knowledge guesses without any view; a defence leaks what an attack adds to it.

    `croupier audit --fast`: handwritten digits, ten clients, alpha = 0.1.
    """
    from croupier.audit import experiment
    from croupier.errors import SpecError
    from croupier.learn.data import folder_of
    from croupier.runtime.local import Local
    from croupier.spec import load

    if not 0 < shadow < 0.5:
        raise SpecError(f"--shadow = {shadow}: a share above 0 and below 0.5 of each client's records is withheld")
    described = load(
        spec, [*(DEFAULTS if spec == "digits" else ()), *(["federation.rounds=2"] if fast else []), *(sets or [])]
    )
    if print_config:
        options.show_config(described, json)
        return
    task = described.task
    setting = experiment.Setting(
        task.data, task.split, task.model, task.fit, described.federation, shadow,
        together=task.together, folder=folder_of(data), workers=described.run.workers or os.cpu_count(),
    )  # fmt: skip
    first = seed or 0
    numbers = range(first, first + (3 if fast else seeds))
    outcomes = experiment.run(setting, defences(), numbers, Local(), _watch)
    options.emit(report(described, outcomes, len(numbers)), json, out)
    if not json:
        _show(described, outcomes, len(numbers))


def defences() -> list[Defence]:
    """What is compared, and the attacks that fit each server's view."""
    from croupier.audit.experiment import Defence
    from croupier.systems import naive, plain

    return [
        Defence("none", plain(), ("named", "named+prior")),
        Defence("model shuffle", naive("model"), ("algorithm2", "algorithm2-loss", "algorithm2+prior")),
        Defence("layer shuffle", naive("layer"), ("algorithm3", "algorithm3-loss", "algorithm3+prior")),
        Defence(
            "parameter shuffle",
            naive("parameter"),
            ("algorithm5", "algorithm5-loss", "algorithm5-cumulative", "algorithm5+prior"),
        ),
    ]


def report(spec: Spec, outcomes: list[Outcome], runs: int) -> dict[str, Any]:
    """The whole result as plain data. Rates are means over rounds and runs; the best round stands beside, labelled."""
    clients = getattr(spec.task.split, "clients", None)
    chance = 1 / clients if clients else None

    def row(outcome: Outcome) -> dict[str, Any]:
        prior = outcome.overall["prior"]
        attacks = {
            name: {
                "rate": rate.rate, "low": rate.low, "high": rate.high, "prior": prior.rate, "chance": chance,
                "leak": vars(outcome.leak[name]), "best_round": outcome.best[name].rate,
            }
            for name, rate in outcome.overall.items()
        }  # fmt: skip
        return {
            "defence": outcome.name,
            "accuracy": outcome.accuracy.rate,
            "bytes_per_client": outcome.bytes_per_client,
            "attacks": attacks,
        }

    threat = "the server, honest but curious, with a shadow set of each client; it knows the records were trained on"
    return {"task": spec.plain()["task"], "runs": runs, "threat": threat, "rows": [row(o) for o in outcomes]}


def _watch(said: str) -> None:
    if sys.stderr.isatty():
        print(said, file=sys.stderr)


def _show(spec: Spec, outcomes: list[Outcome], runs: int) -> None:
    from rich.table import Table

    from croupier.cli.tables import show, size

    table = Table(title=f"{spec.name}: whose record is it? Means over rounds and {runs} runs", title_justify="left")
    for head in (
        "defence",
        "attack",
        "success",
        "95 % interval",
        "prior",
        "leak",
        "best round",
        "accuracy",
        "up/client",
    ):
        table.add_column(head, justify="left" if head in ("defence", "attack") else "right")
    for outcome in outcomes:
        prior = outcome.overall["prior"].rate
        for number, (name, rate) in enumerate((n, r) for n, r in outcome.overall.items() if n != "prior"):
            leak = outcome.leak[name]
            table.add_row(
                "" if number else outcome.name, name, f"{rate.rate:.1%}", f"{rate.low:.0%} to {rate.high:.0%}",
                f"{prior:.1%}", f"{100 * leak.rate:+.1f} ({100 * leak.low:+.1f} to {100 * leak.high:+.1f})",
                f"{outcome.best[name].rate:.1%}", "" if number else f"{outcome.accuracy.rate:.1%}",
                "" if number else size(outcome.bytes_per_client),
            )  # fmt: skip
        table.add_section()
    show(table)
    clients = getattr(spec.task.split, "clients", None)
    print(f"1/n = {1 / clients:.1%}. " if clients else "", end="")
    print("The prior is the adversary's knowledge without a view; the leak is what the view adds to it.")
