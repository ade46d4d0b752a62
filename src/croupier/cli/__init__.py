"""The command line. Commands load what they need when they run, so that help is quick.

`COMMANDS` names the file of each command beside this one; `cli.program` calls `main` for `croupier` and
`python -m croupier`. What is wrong with the input, or with the user's own code, ends as one line with a remedy and
status 2, and Ctrl-C with 130; anything else is a fault of ours, and shows its traceback. `accept`, `serve` and `join`
have further statuses, which their help explains. The laboratory adds two commands through `cli.lab`.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import click
import typer

from croupier.errors import CroupierError, OwnError, at_a_shell
from croupier.kernels.memory import own_process

if TYPE_CHECKING:
    app: typer.Typer

# Command: its file beside this one, and what it is made of there: a function, or the application of a group.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("init", "command"),
    "run": ("run", "command"),
    "audit": ("audit", "command"),
    "explain": ("explain", "command"),
    "compare": ("compare", "command"),
    "recommend": ("recommend", "command"),
    "doctor": ("doctor", "command"),
    "keygen": ("ceremony", "keygen"),
    "enrol": ("enrol", "command"),
    "accept": ("accept", "command"),
    "group": ("ceremony", "group"),
    "rotate": ("ceremony", "rotate"),
    "serve": ("serve", "command"),
    "join": ("serve", "join"),
    "up": ("up", "command"),
    "plan": ("plan", "app"),
    "flower-guard": ("flower", "app"),
    "report": ("report", "app"),
}
# Commands that need a click class of their own, by its name in their file.
CLASSES: Mapping[str, str] = {"accept": "QuotedWords"}


def application(only: str | None = None) -> typer.Typer:
    """The command line: with every command, or with one alone, which need not wait for the others to be imported."""
    made = typer.Typer(
        name="croupier",
        no_args_is_help=True,
        add_completion=False,
        # Click, below typer, makes suggestions of its own.
        suggest_commands=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(root)
    for name in COMMANDS if only is None else (only,):
        file, what = COMMANDS[name]
        module = import_module(f"croupier.cli.{file}")
        if what == "app":
            made.add_typer(module.app, name=name)
        else:
            made.command(name, cls=getattr(module, CLASSES[name]) if name in CLASSES else None)(getattr(module, what))
    if only is None:
        import_module("croupier.cli.lab").attach(made)
    groups = [group.typer_instance for group in made.registered_groups]
    inner = [one for group in groups if group for one in group.registered_commands]
    for command in (*made.registered_commands, *inner):
        command.help = _prose(command.help or (command.callback and command.callback.__doc__) or "")
    return made


def __getattr__(name: str) -> Any:
    """`app`, with every command: made when it is first asked for."""
    if name != "app":
        raise AttributeError(f"module 'croupier.cli' has no attribute {name!r}")
    made = globals()["app"] = application()
    return made


def _prose(text: str) -> str:
    """Paragraphs without the line breaks of the source: the terminal has its own width."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"croupier {version('croupier')}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and stop.")
    ] = False,
) -> None:
    """Federated learning whose server gets a sum or a shuffled set, and a plain account of what each party learns."""


def main() -> NoReturn:
    """Run the command line; what is wrong with what it was given is one line and a status; --debug adds a traceback."""
    asked: list[str] = []
    own_process()
    if "_CROUPIER_COMPLETE" in os.environ:
        _complete_by_typer()
    try:
        with at_a_shell():
            command = typer.main.get_command(application(_named()))
            code = _with_debug(command, asked).main(prog_name="croupier", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        at = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "croupier"
        said = " ".join(error.format_message().split()).rstrip(".")
        _end(error, f"{said}; see {at} --help", asked)
    except CroupierError as error:
        _end(error, str(error), asked, own=isinstance(error, OwnError))
    except click.Abort:
        # Ctrl-C or the end of the input at a question.
        print("\ncroupier: stopped; nothing was done", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if not (said := _own_line(error)):
            raise
        _end(error, said, asked, own=True)
    sys.exit(code or 0)


def _named() -> str | None:
    """The command that is asked for, where that can be told at a glance."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    return first if first in COMMANDS and "_CROUPIER_COMPLETE" not in os.environ else None


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
