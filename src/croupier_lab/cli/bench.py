"""`croupier bench`: measurements that any machine can repeat."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Optional

import typer

from croupier.cli import options
from croupier.cli.progress import progress

app = typer.Typer(
    help="Measure, each time against a named rival in the same run.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.callback()
def group() -> None:
    """Keep `bench` a group: more measurements join it."""


def _swept(bench: ModuleType, found: dict[str, Any]) -> None:
    """A measurement, and other sizes of it where they were asked for."""
    bench.show(found)
    if "sweep" in found:
        bench.show_sweep(found["sweep"])


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
    from croupier_lab.bench.simulate import describe, measure, show

    if print_config:
        options.show_config(describe(clients), json)
        return
    found = measure(clients, rounds, repeats, seed or 0)
    options.give(found, json, out, lambda: show(found))


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
    from croupier_lab.bench.attack import Size, measure, show

    size = Size(clients=clients, shadow=shadow, parameters=parameters)
    if print_config:
        options.show_config(size, json)
        return
    found = measure(size, seed or 0)
    options.give(found, json, out, lambda: show(found))


@app.command("rns")
def rns(
    params: Annotated[int, typer.Option(help="Parameters of the model.", min=1)] = 11_237_432,
    clients: Annotated[int, typer.Option(help="Clients whose updates are added.", min=2)] = 10,
    digits: Annotated[int, typer.Option(help="Decimal digits that are kept.", min=1, max=9)] = 5,
    repeats: Annotated[int, typer.Option(help="Timed repeats of what is short; the best counts.", min=1)] = 5,
    sweep: Annotated[bool, typer.Option("--sweep", help="Also time and memory from 10^5 parameters upwards.")] = False,
    largest: Annotated[int, typer.Option(help="Where the sweep ends.", min=1)] = 10**8,
    plot: Annotated[Optional[Path], typer.Option(help="Draw the sweep into this SVG file.")] = None,  # noqa: UP045
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Residues in unary: encode, shuffle bit by bit or count, and decode, against a copy and the paper's plain form."""
    from croupier.errors import SpecError
    from croupier_lab.bench import rns as bench
    from croupier_lab.bench.plot import svg

    size = bench.Size(params=params, clients=clients, digits=digits, repeats=repeats)
    if print_config:
        options.show_config(size, json)
        return
    if plot is not None:
        if not sweep:
            raise SpecError(f"--plot = {str(plot)!r}: only a sweep is drawn; add --sweep")
        options.check_room(plot, "--plot")
    found = bench.measure(size, seed or 0)
    if sweep:
        found["sweep"] = bench.sweep(size, seed or 0, largest)
    options.give(found, json, out, lambda: _swept(bench, found))
    if plot is not None:
        options.write(plot, svg(found["sweep"]), "--plot")


@app.command("intra")
def intra(
    clients: Annotated[int, typer.Option(help="Clients among whom every coordinate is permuted.", min=2)] = 20,
    params: Annotated[int, typer.Option(help="Parameters, and so coordinates.", min=1)] = 11_237_432,
    repeats: Annotated[int, typer.Option(help="Timed repeats of each side; the best counts.", min=1)] = 3,
    sweep: Annotated[bool, typer.Option("--sweep", help="Also other sizes up to this one: is it linear?")] = False,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Each coordinate shuffled among the clients by its own permutation from a cipher, against argsort in NumPy."""
    from croupier_lab.bench import intra as bench

    size = bench.Size(clients=clients, params=params, repeats=repeats)
    if print_config:
        options.show_config(size, json)
        return
    found = bench.measure(clients, params, repeats=repeats, seed=seed or 0)
    if sweep:
        found["sweep"] = bench.sweep(size, seed or 0)
    options.give(found, json, out, lambda: _swept(bench, found))


@app.command("reveal")
def reveal(
    clients: Annotated[
        Optional[list[int]],  # noqa: UP045 - typer reads this form
        typer.Option(help="Clients of the trained rounds; may be repeated. By default 2, 3, 5 and 10.", min=2),
    ] = None,
    digits: Annotated[int, typer.Option(help="Decimal digits that the trained rounds send.", min=1, max=6)] = 4,
    alpha: Annotated[float, typer.Option(help="How alike clients of the trained rounds are.", min=0.001)] = 0.1,
    seeds: Annotated[int, typer.Option(help="Runs of source inference on the carries; 0 leaves it out.", min=0)] = 0,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """What integer residue sums (releases 'bits' and 'counts') tell beyond the sum: bits, candidates, sources."""
    from croupier_lab.bench.reveal import Size, measure, show

    given = {} if clients is None else {"clients": tuple(clients)}
    size = Size.parse({**given, "digits": digits, "alpha": alpha, "seeds": seeds})
    if print_config:
        options.show_config(size, json)
        return
    found = measure(size, seed or 0)
    options.give(found, json, out, lambda: show(found))


@app.command("coverage")
def coverage(
    trials: Annotated[int, typer.Option(help="Simulated audits for each law and number of runs.", min=100)] = 2000,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """How often the audit's 95 % interval holds the true mean, by law of gains and runs, against Student's."""
    from croupier_lab.bench.coverage import Size, measure, show

    size = Size(trials=trials)
    if print_config:
        options.show_config(size, json)
        return
    found = measure(size, seed or 0)
    options.give(found, json, out, lambda: show(found))


@app.command("accuse")
def accuse(
    audits: Annotated[int, typer.Option(help="Audits of updates that are drowned in noise.", min=1)] = 200,
    runs: Annotated[int, typer.Option(help="Runs of each audit.", min=4)] = 4,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """How often an audit accuses defences that leak nothing: real small audits of updates drowned in noise."""
    from croupier_lab.bench.accuse import Size, measure, show

    size = Size(audits=audits, runs=runs)
    if print_config:
        options.show_config(size, json)
        return
    with progress("bench accuse") as told:
        found = measure(size, seed or 0, told.say)
    options.give(found, json, out, lambda: show(found))


@app.command("opened")
def opened(
    clients: Annotated[int, typer.Option(help="Rows of signs that count.", min=2, max=1000)] = 10,
    levels: Annotated[
        Optional[list[int]],  # noqa: UP045 - typer reads this form
        typer.Option(help="Levels of weights; may be repeated. By default 1, 2 and 4.", min=1),
    ] = None,
    flip: Annotated[float, typer.Option(help="How often a bit differs from the known direction.", min=0, max=1)] = 0.1,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """What an opened weighted sum of sign rows tells of single rows, by levels of weights, against distinct weights."""
    from croupier_lab.bench.opened import Size, measure, show

    given = {} if levels is None else {"levels": tuple(levels)}
    size = Size.parse({**given, "clients": clients, "flip": flip})
    if print_config:
        options.show_config(size, json)
        return
    found = measure(size, seed or 0)
    options.give(found, json, out, lambda: show(found))


@app.command("disaggregate")
def disaggregate(
    clients: Annotated[int, typer.Option(help="Enrolled clients.", min=2)] = 6,
    cohort: Annotated[
        Optional[list[int]],  # noqa: UP045 - typer reads this form
        typer.Option(help="Clients a round; may be repeated. By default half, all but one, and all.", min=2),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds that the server keeps.", min=1)] = 40,
    colluders: Annotated[int, typer.Option(help="Clients that share their own updates with it.", min=0)] = 0,
    alpha: Annotated[float, typer.Option(help="How alike clients are.", min=0.001)] = 0.1,
    seeds: Annotated[int, typer.Option(help="Independent runs.", min=2)] = 8,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Single updates out of sums over several rounds with changing cohorts or colluding clients, against the mean."""
    from croupier_lab.bench.disaggregate import Size, measure, show

    given = {} if cohort is None else {"cohorts": tuple(cohort)}
    many = {"clients": clients, "rounds": rounds, "colluders": colluders, "alpha": alpha, "seeds": seeds}
    size = Size.parse({**given, **many})
    if print_config:
        options.show_config(size, json)
        return
    with progress("bench disaggregate") as told:
        found = measure(size, seed or 0, told.say)
    options.give(found, json, out, lambda: show(found))


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
    from croupier_lab.bench.sum import Size, measure, show

    size = Size(params=params, clients=clients, servers=servers, digits=digits, repeats=repeats)
    if print_config:
        options.show_config(size, json)
        return
    with progress("bench sum") as told:
        found = measure(size, seed or 0, told.say)
    options.give(found, json, out, lambda: show(found))


@app.command("shuffles")
def shuffles(
    clients: Annotated[int, typer.Option(help="Clients, and so rows.", min=2)] = 100,
    params: Annotated[int, typer.Option(help="Parameters, and so bits of a row.", min=1)] = 100_000,
    repeats: Annotated[int, typer.Option(help="Timed repeats of each form; the best counts.", min=1)] = 3,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Shuffles of rows that two servers share: with a dealer, by oblivious transfer, in boxes; and bits to numbers."""
    from croupier_lab.bench.shuffles import Size, measure, show

    size = Size(clients=clients, params=params, repeats=repeats)
    if print_config:
        options.show_config(size, json)
        return
    with progress("bench shuffles") as told:
        found = measure(size, seed or 0, told.say)
    options.give(found, json, out, lambda: show(found))


@app.command("gates")
def gates(
    params: Annotated[int, typer.Option(help="Sums whose signs are opened.", min=1)] = 100_000,
    clients: Annotated[int, typer.Option(help="Clients, each with one vote in a sum.", min=1)] = 20,
    rule_params: Annotated[int, typer.Option(help="Parameters of the secret rule.", min=1)] = 1_000,
    repeats: Annotated[int, typer.Option(help="Timed repeats; the best counts.", min=1)] = 5,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Two servers with a dealer: only signs opened, or the whole of RAIN's rule secret, against opened sums."""
    from croupier_lab.bench.gates import Size, measure, show

    size = Size(params=params, clients=clients, rule_params=rule_params, repeats=repeats)
    if print_config:
        options.show_config(size, json)
        return
    found = measure(size, seed or 0)
    options.give(found, json, out, lambda: show(found))


@app.command("agree")
def agree(
    schedules: Annotated[int, typer.Option(help="Random schedules of faults for each form.", min=0)] = 1000,
    clients: Annotated[
        Optional[list[int]],  # noqa: UP045 - typer reads this form
        typer.Option(help="Clients of the timed agreements; may be repeated. By default 4 to 100.", min=4),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Timed repeats; the best counts.", min=1)] = 1,
    rounds: Annotated[
        int, typer.Option(help="Rounds of 10 of 100 that agree anew each, to count those nobody can open.", min=0)
    ] = 100,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Agreement on a rule through a relay, jointly and by PBFT: random faults, and messages, bytes and seconds.

    It takes about three minutes as it is, most of them for the schedules: `--schedules 50 --rounds 10` takes one.
    """
    from croupier_lab.bench.agree import Size, measure, show

    given = {} if clients is None else {"clients": tuple(clients)}
    size = Size.parse({**given, "schedules": schedules, "repeats": repeats, "rounds": rounds})
    if print_config:
        options.show_config(size, json)
        return
    with progress("bench agree") as told:
        found = measure(size, seed or 0, told.say)
    options.give(found, json, out, lambda: show(found))


class _Mode(StrEnum):
    SEMI_HONEST = "semi-honest"
    MALICIOUS = "malicious"


@app.command("rain")
def rain(
    clients: Annotated[int, typer.Option(help="Clients, and so rows of signs.", min=3)] = 100,
    params: Annotated[int, typer.Option(help="Parameters, and so signs of a row.", min=16)] = 100_000,
    mode: Annotated[_Mode, typer.Option(help="Whether a server may cheat.")] = _Mode.MALICIOUS,
    streamed: Annotated[bool, typer.Option("--streamed", help="Read dealt material from a file, or a seed.")] = False,
    repeats: Annotated[int, typer.Option(help="Timed rounds; the best counts.", min=1)] = 3,
    sweep: Annotated[bool, typer.Option("--sweep", help="Also sizes ten times apart, in both modes.")] = False,
    largest: Annotated[int, typer.Option(help="Most signs of the sweep, clients times parameters.")] = 1_000_000_000,
    plot: Annotated[Optional[Path], typer.Option(help="Draw the sweep into this SVG file.")] = None,  # noqa: UP045
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """One RAIN round on two servers, each in its own process, beside the same rule in the clear and a plain mean."""
    from croupier.errors import SpecError
    from croupier_lab.bench import rain as bench
    from croupier_lab.bench.plot import svg

    size = bench.Size(clients=clients, params=params, mode=mode.value, streamed=streamed, repeats=repeats)
    if print_config:
        options.show_config(size, json)
        return
    if plot is not None:
        if not sweep:
            raise SpecError(f"--plot = {str(plot)!r}: only a sweep is drawn; add --sweep")
        options.check_room(plot, "--plot")
    with progress("bench rain") as told:
        found = bench.measure(size, seed or 0, told.say)
        if sweep:
            found["sweep"] = bench.sweep(size, seed or 0, largest, told.say)
    options.give(found, json, out, lambda: _swept(bench, found))
    if plot is not None:
        options.write(plot, svg(found["sweep"], "a RAIN round", "signs, clients times parameters"), "--plot")


@app.command("tazza")
def tazza(
    model: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads this form
        typer.Option(help="Models to measure; may be repeated. By default all: mlp, rnn, mixer, vit, resnet18."),
    ] = None,
    records: Annotated[int, typer.Option(help="Records of a client, for what an epoch takes.", min=1)] = 500,
    batch: Annotated[int, typer.Option(help="Records of a batch.", min=2)] = 64,
    repeats: Annotated[int, typer.Option(help="Timed repeats; the best counts.", min=1)] = 5,
    threads: Annotated[int, typer.Option(help="Threads that torch may use.", min=1)] = 1,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Permuting a model along its symmetries, beside a copy, an epoch of training, gradient pruning and DP-SGD."""
    from croupier_lab.bench.tazza import Size, measure, show

    given = {} if model is None else {"models": tuple(model)}
    size = Size.parse({**given, "records": records, "batch": batch, "repeats": repeats, "threads": threads})
    if print_config:
        options.show_config(size, json)
        return
    with progress("bench tazza") as told:
        found = measure(size, seed or 0, told.say)
    options.give(found, json, out, lambda: show(found))


class _System(StrEnum):
    SUM_SERVERS = "sum-servers"
    MASKS = "masks"
    RAIN = "rain"


@app.command("tamper")
def tamper(
    system: Annotated[_System, typer.Option(help="Which placement is tampered with.")] = _System.SUM_SERVERS,
    trials: Annotated[int, typer.Option(help="How many times somebody cheats.", min=1)] = 10_000,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Cheat in every place that there is, and count the wrong sums that were taken for right.

    With rain, one of its two servers cheats; also counted: what was opened before its check, and whether aborts depend
    on the order of the rows.
    """
    from croupier_lab.bench import tamper as sums
    from croupier_lab.bench import tamper_rain as rain

    size = rain.Size(trials=trials) if system is _System.RAIN else sums.Size(trials=trials)
    if print_config:
        options.show_config(size, json)
        return
    with progress("bench tamper") as told:
        if isinstance(size, rain.Size):
            found = rain.measure(size, seed or 0, told.say)
        else:
            found = sums.measure("masks" if system is _System.MASKS else "sum-servers", size, seed or 0, told.say)
    options.give(found, json, out, lambda: (rain if system is _System.RAIN else sums).show(found))
