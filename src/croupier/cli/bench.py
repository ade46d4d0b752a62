"""`croupier bench`: measurements that any machine can repeat."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from croupier.cli import options

app = typer.Typer(
    help="Measure, each time against a named rival in the same run.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.callback()
def group() -> None:
    """Keep `bench` a group: more measurements join it."""


@app.command("simulate")
def simulate(
    clients: Annotated[int, typer.Option(help="Simulated clients.", min=2)] = 100,
    rounds: Annotated[int, typer.Option(help="Rounds for the memory mark.", min=6)] = 50,
    repeats: Annotated[int, typer.Option(help="Timed repeats of each side; the best counts.", min=1)] = 5,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Batched simulation of small clients against training them one by one, memory over rounds, and start-up time."""
    from croupier.bench.simulate import describe, measure, show

    if print_config:
        options.show_config(describe(clients), json)
        return
    found = measure(clients, rounds, repeats, seed or 0)
    options.emit(found, json, out)
    if not json:
        show(found)


@app.command("attack")
def attack(
    clients: Annotated[int, typer.Option(help="Clients, and so candidates a parameter.", min=2)] = 10,
    shadow: Annotated[int, typer.Option(help="Records of each shadow set.", min=1)] = 300,
    parameters: Annotated[int, typer.Option(help="Parameters that the plain form is timed on.", min=1)] = 5,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """The un-shuffling attack on single parameters: cached activations against whole forward passes."""
    from croupier.bench.attack import Size, measure, show

    size = Size(clients=clients, shadow=shadow, parameters=parameters)
    if print_config:
        options.show_config(size, json)
        return
    found = measure(size, seed or 0)
    options.emit(found, json, out)
    if not json:
        show(found)


@app.command("sum")
def secure_sum(
    params: Annotated[int, typer.Option(help="Parameters of each update.", min=1)] = 1_000_000,
    clients: Annotated[int, typer.Option(help="Clients.", min=2)] = 10,
    servers: Annotated[int, typer.Option(help="Sum servers, of which one honest one suffices.", min=2, max=16)] = 3,
    digits: Annotated[int, typer.Option(help="Decimal digits of a parameter.", min=1, max=9)] = 5,
    repeats: Annotated[int, typer.Option(help="Timed repeats of each side; the best counts.", min=1)] = 3,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """One secure sum from updates to the decoded total, against SecAgg+ (flwr) and CKKS (tenseal) where installed."""
    from croupier.bench.sum import Size, measure, show

    size = Size(params=params, clients=clients, servers=servers, digits=digits, repeats=repeats)
    if print_config:
        options.show_config(size, json)
        return
    found = measure(size, seed or 0, options.watch)
    options.emit(found, json, out)
    if not json:
        show(found)


class _System(StrEnum):
    SUM_SERVERS = "sum-servers"
    MASKS = "masks"


@app.command("tamper")
def tamper(
    system: Annotated[_System, typer.Option(help="Which placement is tampered with.")] = _System.SUM_SERVERS,
    trials: Annotated[int, typer.Option(help="How many times somebody cheats.", min=1)] = 10_000,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Cheat in every place that there is, and count the wrong sums that were taken for right."""
    from croupier.bench.tamper import Size, measure, show

    size = Size(trials=trials)
    if print_config:
        options.show_config(size, json)
        return
    found = measure(system.value, size, seed or 0, options.watch)
    options.emit(found, json, out)
    if not json:
        show(found)
