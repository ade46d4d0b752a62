"""`croupier recommend`: which preset fits a worry, what it costs, and what remains.

The rules from a worry to a preset are in `croupier.advice`, and are the same for everybody; here the questions are
asked that options left open, and the advice is shown.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.advice import Advice, Needs


# The worries, for a shell's completion: it must not wait for what advice loads.
COMPLETED = ("updates", "poisoning", "budgets", "model")


def _worries(incomplete: str) -> list[str]:
    return [worry for worry in COMPLETED if worry.startswith(incomplete)]


def command(
    worry: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="What must not happen: updates, poisoning, budgets or model; one of them.", autocompletion=_worries
        ),
    ] = None,
    clients: Annotated[Optional[int], typer.Option(help="How many clients take part in a round.")] = None,  # noqa: UP045
    parameters: Annotated[Optional[int], typer.Option(help="Parameters of the model.")] = None,  # noqa: UP045
    hosts: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Organisations besides the server that can run a host and would not all collude."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of the run.")] = 10,
    epsilon: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="With worry budgets: what a client may spend in the whole run."),
    ] = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Say which preset fits, what it costs and what remains, by written rules. Asks for what is not said.

    `croupier recommend --worry updates --clients 20 --parameters 100000 --hosts 3`

    The worries: *updates* (nobody may see a single update), *poisoning* (some clients may lie), *budgets* (every client
    its own proved epsilon), *model* (the server must not use the model).
    """
    from croupier.advice import WORRIES, Needs, recommend
    from croupier.errors import SpecError

    if worry and len(worry) > 1:
        raise SpecError(f"--worry is named {len(worry)} times: no preset answers several; ask once for each")
    if not worry and sys.stdin.isatty():
        for name, meaning in WORRIES.items():
            print(f"  {name:<10} {meaning}", file=sys.stderr)
    named = worry[0] if worry else _ask("worry", "What worries you most?", "updates")
    chosen = next((one for one in WORRIES if one == named), None)
    if chosen is None:
        raise SpecError(f"--worry = {named!r}: there are {', '.join(WORRIES)}")
    needs = Needs(
        chosen,
        _number("clients", clients, "How many clients take part in a round?", 10),
        _number("parameters", parameters, "How many parameters has the model?", 100_000),
        _number("hosts", hosts, "How many organisations besides the server can run a host, and would not collude?", 0),
        rounds,
        epsilon,
    )
    advice = recommend(needs)
    if print_config:
        from croupier.toml_text import to_toml

        print("# Put this into your description in place of its [protocol]. task.split.clients, or federation.cohort,")
        print(f"# must be {needs.clients} there: the protocol is for so many clients a round.")
        print(to_toml({"protocol": advice.protocol.plain()}).rstrip())
        return
    options.give(advice.plain_data(), json, out, lambda: _show(needs, advice))


def _number(name: str, given: int | None, question: str, usual: int) -> int:
    if given is not None:
        return given
    said = _ask(name, question, str(usual))
    from croupier.errors import SpecError

    try:
        return int(said.replace(",", "").replace("_", ""))
    except ValueError:
        raise SpecError(f"--{name} = {said!r}: give a whole number") from None


def _ask(name: str, question: str, usual: str) -> str:
    """What the person at the terminal answers. Raises: SpecError where nobody sits at one."""
    from croupier.errors import SpecError

    if not sys.stdin.isatty():
        raise SpecError(f"--{name} is missing, and nobody is at a terminal to ask; say --{name}")
    return str(typer.prompt(question, default=usual, err=True))


def _show(needs: Needs, advice: Advice) -> None:
    from croupier.cli.fit import wrapped
    from croupier.cli.tables import size

    print(f"use {advice.preset}")
    lines = [
        ("why", advice.why),
        *(("remains", one) for one in advice.remains),
        ("server learns", advice.statement.learns["server"]),
        ("rests on", advice.statement.privacy_threshold),
        ("proved epsilon", advice.statement.differential_privacy),
        (
            "costs",
            f"a client sends {size(advice.up)} a round, {advice.up / advice.plain:.2f} times the {size(advice.plain)} "
            "of plain averaging; croupier plan has the rest",
        ),
    ]
    for head, text in lines:
        print(wrapped(text, f"{head + ':':<16}", " " * 16))
    print(
        f"try it: croupier run {advice.preset}; croupier explain {advice.preset}; croupier audit {advice.preset} --fast"
    )
    print("for your own numbers: the same command with --print-config")
