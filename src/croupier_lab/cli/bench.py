"""`croupier bench`: measurements that any machine can repeat, as a table of modules from which the commands are made.

A bench is a module with `measure(size, seed, watch)` and `show(found)`; its options are the described fields of the
size. Some have more, by name: `SWEEP` (options of its own), `sweep` and `show_sweep` (other sizes), `draw_sweep` (a
picture of them), and `describe` (what `--print-config` prints in place of the size). Modules are imported when a
command is run or asked for help, so that `croupier --help` waits for none of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, get_args, get_origin, get_type_hints

import click
import typer
from typer.core import TyperCommand
from typer.main import get_command_from_info
from typer.models import CommandInfo

from croupier.cli import options
from croupier.cli.progress import progress

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from croupier_lab.bench.size import BenchSize

app = typer.Typer(
    help="Measure, each time against a named rival in the same run.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
# Command: its module below `croupier_lab.bench`, and what it measures.
BENCHES: dict[str, tuple[str, str]] = {
    "simulate": (
        "speed.simulation",
        "Batched simulation of small clients against training them one by one, memory over rounds, and start-up time.",
    ),
    "start": (
        "speed.start_up",
        "What commands pay before they do anything: help, a tiny job, a client, a first run; against `import torch`.",
    ),
    "clients": (
        "speed.client_counts",
        "Whole rounds of a tiny model with 100 to 10,000 clients, plain and behind sum servers: seconds and memory.",
    ),
    "scale": (
        "speed.scale",
        "Thousands of simulated digit clients: ours in one process, ours on Ray's actors, and Flower on Ray.",
    ),
    "attack": (
        "speed.unshuffling",
        "The un-shuffling attack on single parameters: cached activations against whole forward passes.",
    ),
    "rns": (
        "speed.rns_encoding",
        "Residues in unary: encode, shuffle bit by bit or count, and decode, against a copy and the paper's plain "
        "form.",
    ),
    "intra": (
        "speed.coordinate_shuffle",
        "Each coordinate shuffled among the clients by its own permutation from a cipher, against argsort in NumPy.",
    ),
    "reveal": (
        "leakage.residue_sums",
        "What integer residue sums (releases 'bits' and 'counts') tell beyond the sum: bits, candidates, sources.",
    ),
    "coverage": (
        "leakage.interval_coverage",
        "How often the audit's 95 % interval holds the true mean, by law of gains and runs, against Student's.",
    ),
    "accuse": (
        "leakage.false_alarms",
        "How often an audit accuses defences that leak nothing: real small audits of updates drowned in noise.",
    ),
    "opened": (
        "leakage.opened_sign_sums",
        "What an opened weighted sum of sign rows tells of single rows, by levels of weights, against distinct "
        "weights.",
    ),
    "disaggregate": (
        "leakage.disaggregation",
        "Single updates out of sums over several rounds with changing cohorts or colluding clients, against the mean.",
    ),
    "clusters": (
        "leakage.cluster_baselines",
        "Clusters of a description's server under attack, on clear updates, against the usual robust rules.",
    ),
    "permutation": (
        "leakage.permuted_pictures",
        "Records of single steps under a permutation, laid out by public pictures, and clients that break the rule.",
    ),
    "sum": (
        "speed.secure_sum",
        "One secure sum from updates to the decoded total, against SecAgg+ (flwr) and CKKS (tenseal) where installed.",
    ),
    "flower": (
        "flower.rounds",
        "A round inside Flower, plain and protected, against SecAgg+; with --nodes, on a real SuperLink too.",
    ),
    "large": (
        "speed.large_models",
        "Updates of a thousand million parameters, one a client, through sum servers and through buckets, streamed, "
        "against copying them.",
    ),
    "shuffles": (
        "speed.shared_row_shuffles",
        "Shuffles of rows that two servers share: with a dealer, by oblivious transfer, in boxes; and bits to numbers.",
    ),
    "mix": (
        "speed.mix_chain",
        "All bits of a model through a chain of mix servers, form by form, against a copy of the same bits.",
    ),
    "gates": (
        "speed.two_server_gates",
        "Two servers with a dealer: only signs opened, or the whole of RAIN's rule secret, against opened sums.",
    ),
    "agree": (
        "agreement.faults_and_cost",
        "Agreement on a rule through a relay, jointly and by PBFT: random faults, and messages, bytes and seconds.\n\n"
        "It takes about three minutes as it is, most of them for the schedules: `--schedules 50 --rounds 10` takes "
        "one.",
    ),
    "rain": (
        "speed.rain_round",
        "One RAIN round on two servers, each in its own process, beside the same rule in the clear and a plain mean.",
    ),
    "tazza": (
        "speed.model_permutation",
        "Permuting a model along its symmetries, beside a copy, an epoch of training, gradient pruning and DP-SGD.",
    ),
    "tamper": (
        "tamper.systems",
        "Cheat in every place that there is, and count the wrong sums that were taken for right.\n\n"
        "With rain, one of its two servers cheats; also counted: what was opened before its check, and whether aborts "
        "depend on the order of the rows.",
    ),
    "faults": (
        "services.faults",
        "Kill, cut, fill, restore and mislead the services at every step; count what came out lost, wrong, hung or "
        "reused.\n\nIt takes about ten minutes as it is: `--faults 100 --processes 0` takes one.",
    ),
    "fuzz": (
        "services.fuzz",
        "Altered and random bytes into every decoder and every call of a running host; count crashes and hangs.",
    ),
    "serve": (
        "services.load",
        "Letters of many clients into real hosts: seconds, memory, and bytes a second against a bare copy over "
        "loopback.",
    ),
}
COMMON = {
    "seed": (options.Seed, None),
    "out": (options.OutFile, None),
    "print_config": (options.PrintConfig, False),
    "json": (options.Json, False),
}
Plot = Annotated[Optional[Path], typer.Option(help="Draw the sweep into this SVG file.")]  # noqa: UP045


@dataclass(frozen=True)
class SizeOption:
    """A described field of a size, as an option of the command line."""

    field: str
    flag: str
    annotation: Any
    default: Any


def options_of(size: type[BenchSize]) -> Iterator[SizeOption]:
    """An option for every field of a size that has a description: its type, default and bounds are the field's."""
    for name, field in size.model_fields.items():
        if field.description:
            extra = field.json_schema_extra
            flag = str(extra["flag"]) if isinstance(extra, dict) else name
            yield SizeOption(name, flag, *_annotated(flag, field))


def _annotated(flag: str, field: FieldInfo) -> tuple[Any, Any]:
    """A field's type as typer reads it, and the default. Fields of many values are left out unless given."""
    kind: Any = field.annotation
    bounds = _bounds(field.metadata)
    words = [f"--{flag}"] if kind is bool else []
    if get_origin(kind) is tuple:
        item, *limits = get_args(get_args(kind)[0]) or (get_args(kind)[0],)
        bounds = _bounds([one for limit in limits for one in limit.metadata])
        many = Optional[list[item]]  # type: ignore[valid-type]  # noqa: UP045
        return Annotated[many, typer.Option(help=field.description, **bounds)], None
    if get_origin(kind) is Literal:
        choices = StrEnum(flag, {value: value for value in get_args(kind)})  # type: ignore[misc]
        return Annotated[choices, typer.Option(help=field.description)], choices(field.default)
    return Annotated[kind, typer.Option(*words, help=field.description, **bounds)], field.default


def _bounds(limits: list[Any]) -> dict[str, Any]:
    names = {"ge": "min", "le": "max"}
    return {names[key]: getattr(one, key) for one in limits for key in names if hasattr(one, key)}


def _parsed(size: type[BenchSize], given: dict[str, Any]) -> BenchSize:
    values = {one.field: given[one.flag] for one in options_of(size)}
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return size.parse({key: str(v) if isinstance(v, StrEnum) else v for key, v in plain.items() if v is not None})


def parts_of(module: ModuleType) -> list[type[BenchSize]]:
    """The type of a bench's size and, where it has a sweep, the type of that sweep's options."""
    found = [get_type_hints(module.measure)["size"]]
    return [*found, *([module.SWEEP] if hasattr(module, "SWEEP") else [])]


class BenchCommand(TyperCommand):
    """A command whose options come from its module, which is imported when they are asked for."""

    @cached_property
    def _made(self) -> click.Command:
        info = CommandInfo(name=self.name, callback=_callback(str(self.name)))
        return get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode="rich")

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The options of the size, those of every bench, and those that every command has."""
        return [*self._made.params, *super().get_params(ctx)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the bench."""
        return self._made.invoke(ctx)


def _callback(name: str) -> Any:
    """A function with the signature that typer makes the options from."""
    if BENCHES[name][0].startswith("services."):
        options.need("grpc", "serve")
    module = import_module(f"croupier_lab.bench.{BENCHES[name][0]}")
    own = {one.flag: (one.annotation, one.default) for part in parts_of(module) for one in options_of(part)}
    own |= {"plot": (Plot, None)} if hasattr(module, "draw_sweep") else {}
    every = own | COMMON

    def call(**given: Any) -> None:
        run(name, module, given)

    call.__annotations__ = {flag: kind for flag, (kind, _) in every.items()}
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(flag, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for flag, (kind, default) in every.items()
        ]
    )
    return call


def run(name: str, module: ModuleType, given: dict[str, Any]) -> None:
    """Measure, show, and write what was asked for. Raises: SpecError where a picture of nothing is asked for."""
    from croupier.errors import SpecError

    size, *more = (_parsed(part, given) for part in parts_of(module))
    if given["print_config"]:
        options.show_config(module.describe(size) if hasattr(module, "describe") else size, given["json"])
        return
    swept = more[0].plain() if more else {"sweep": False}
    plot: Path | None = given.get("plot")
    if plot is not None:
        if not swept["sweep"]:
            raise SpecError(f"--plot = {str(plot)!r}: only a sweep is drawn; add --sweep")
        options.check_room(plot, "--plot")
    with progress(f"bench {name}") as told:
        seed = given["seed"] or 0
        found = module.measure(size, seed, told.say)
        if swept.pop("sweep"):
            found["sweep"] = module.sweep(size, seed, told.say, **swept)
    options.give(found, given["json"], given["out"], lambda: _show(module, found))
    if plot is not None:
        options.write(plot, module.draw_sweep(found["sweep"]), "--plot")


def _show(module: ModuleType, found: dict[str, Any]) -> None:
    """Show a measurement, and the sweep where one was asked for."""
    module.show(found)
    if "sweep" in found:
        module.show_sweep(found["sweep"])


for _name, (_, _does) in BENCHES.items():
    app.command(_name, cls=BenchCommand, help=_does)(lambda: None)
