"""`croupier bench`: measurements that any machine can repeat."""

from __future__ import annotations

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
