"""The command line. Commands load what they need when they run, so that help is quick.

Each command is a file beside this one; `main` is the entry point of `croupier` and `python -m croupier`. What is wrong
with the input, or with the user's own code, ends as one line with a remedy and status 2; anything else is a fault of
ours, and shows its traceback. The laboratory adds two commands through `lab`.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib.metadata import version
from typing import Annotated, NoReturn

import click
import typer

from croupier.cli import (
    accept,
    audit,
    ceremony,
    compare,
    doctor,
    enrol,
    explain,
    flower,
    init,
    lab,
    plan,
    recommend,
    report,
    run,
    serve,
    up,
)
from croupier.errors import CroupierError, OwnError, at_a_shell
from croupier.kernels.memory import own_process

app = typer.Typer(
    name="croupier",
    no_args_is_help=True,
    add_completion=False,
    # The library below has suggestions of its own.
    suggest_commands=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("init")(init.command)
app.command("run")(run.command)
app.command("audit")(audit.command)
app.command("explain")(explain.command)
app.command("compare")(compare.command)
app.command("recommend")(recommend.command)
app.command("doctor")(doctor.command)
app.command("keygen")(ceremony.keygen)
app.command("enrol")(enrol.command)
app.command("accept", cls=accept.QuotedWords)(accept.command)
app.command("group")(ceremony.group)
app.command("rotate")(ceremony.rotate)
app.command("serve")(serve.command)
app.command("join")(serve.join)
app.command("up")(up.command)
app.add_typer(plan.app, name="plan")
app.add_typer(flower.app, name="flower-guard")
app.add_typer(report.app, name="report")
lab.attach(app)


def _prose(text: str) -> str:
    """Paragraphs without the line breaks of the source: the terminal has its own width."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


_groups = [group.typer_instance for group in app.registered_groups]
for _command in (*app.registered_commands, *(one for group in _groups if group for one in group.registered_commands)):
    _command.help = _prose(_command.help or (_command.callback and _command.callback.__doc__) or "")


def _version(asked: bool) -> None:
    if asked:
        print(f"croupier {version('croupier')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and stop.")
    ] = False,
) -> None:
    """Federated learning whose server gets a sum or a shuffled set, and a plain account of what each party learns."""


def main() -> NoReturn:
    """Run the command line; what is wrong with what it was given is one line and a status, never a traceback."""
    asked: list[str] = []
    own_process()
    if "_CROUPIER_COMPLETE" in os.environ:
        _complete_by_typer()
    try:
        with at_a_shell():
            code = _with_debug(typer.main.get_command(app), asked).main(prog_name="croupier", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        at = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "croupier"
        said = " ".join(error.format_message().split()).rstrip(".")
        _end(error, f"{said}; see {at} --help", asked)
    except CroupierError as error:
        _end(error, str(error), asked, own=isinstance(error, OwnError))
    except Exception as error:
        if not (said := _own_line(error)):
            raise
        _end(error, said, asked, own=True)
    sys.exit(code or 0)


def _complete_by_typer() -> None:
    """Let typer write and answer a shell's completions: click's own script asks in words that typer refuses."""
    from typer._completion_classes import completion_init

    completion_init()


def _with_debug(command: click.Command, asked: list[str]) -> click.Command:
    """The same, with --debug understood by every command."""

    def note(context: click.Context, option: click.Parameter, value: bool | None) -> None:
        asked.extend(["debug"] if value else [])

    option = typer.core.TyperOption(
        param_decls=["--debug"], is_flag=True, is_eager=True, expose_value=False, callback=note,
        help="When something fails, show where, in full.",
    )  # fmt: skip
    command.params.append(option)
    for inner in getattr(command, "commands", {}).values():
        _with_debug(inner, asked)
    return command


def _own_line(error: Exception) -> str:
    """An error that came up in the user's own code, by its file and line; nothing where the fault is not theirs."""
    if "croupier.learn.own" not in sys.modules:
        return ""
    from croupier.learn.beside import is_entered
    from croupier.learn.own import error_in_own_code

    return error_in_own_code(error, is_entered)


def _end(error: Exception, said: str, asked: list[str], own: bool = False) -> NoReturn:
    if asked:
        traceback.print_exception(error)
    more = " (--debug shows all of it)" if own and not asked else ""
    print(f"croupier: error: {said}{more}", file=sys.stderr)
    sys.exit(2)
