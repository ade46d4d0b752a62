"""What a permutation that clients agree on leaves open: records, pictures laid out again, clients that break the rule.

The audit's question `permutation` asks whether the server puts hidden coordinates in order. This bench shows what that
order is worth, in three measurements. First, the server reads records off single training steps: how like the true
records are they? Second, where only the clients know the first model's order, all records come out with their pixels in
one unknown order: how many pixels do public pictures put back in place? Third, one client uploads in another order than
was agreed: does that spoil the others' model, and is it noticed?

`croupier bench permutation` runs it on `attacks.permuted_records`, `attacks.pixel_layout` and `attacks.broken_rule`. A
rule is here the secret order, as in `encode.symmetry`; only the field `rule` of results is an aggregation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from statistics import fmean
from typing import Any

import torch
from pydantic import Field

from croupier.audit.attacked_training import SeededTask
from croupier.audit.permuted_run import PermutedRun
from croupier.audit.questions.permutation import onlooker, with_control
from croupier.audit.report.words import interval, rate_of
from croupier.audit.setting import Depth, setting_of
from croupier.core.intervals import over_runs
from croupier.encode.symmetry import Symmetry
from croupier.engine.local import Local
from croupier.errors import SpecError
from croupier.learn.likeness import like, pictured
from croupier.learn.single import stepped
from croupier.spec import load
from croupier_lab.attacks.broken_rule import LIES, broken_rounds
from croupier_lab.attacks.permuted_records import KNOWN, PermutedReader, over_all_runs
from croupier_lab.attacks.pixel_layout import by_example, chance_neighbours, kept_neighbours, laid_out
from croupier_lab.bench.size import BenchSize, Watch, ignore

# Test records that serve as public pictures, at most.
PUBLIC = 5000
FIRST_MODEL = {"open": "known to the server", "clients": "drawn by the clients"}


class PermutationSize(BenchSize):
    """Whose permutation, how many rounds go before, how many pictures are laid out, and how many runs there are."""

    description: str = Field("tazza", description="A preset or TOML file whose clients permute what they send.")
    rounds: int = Field(5, ge=1, description="Rounds before a client breaks the rule.")
    pictures: int = Field(1000, ge=2, description="Records of single steps to lay out.")
    seeds: int = Field(4, ge=2, description="Independent runs.")


def measure(size: PermutationSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """All three measurements, over runs. Raises: SpecError where the description permutes nothing."""
    spec = load(size.description)
    if not spec.protocol.encode.agrees:
        raise SpecError(f"--description = {size.description!r}: nothing is permuted; use 'tazza'")
    setting = replace(setting_of(spec), depth=Depth(rounds=size.rounds))
    laid, broken, read = list[dict[str, Any]](), list[list[dict[str, Any]]](), dict[str, list[list[dict[str, Any]]]]()
    for one in range(seed, seed + size.seeds):
        runs = [PermutedRun(SeededTask(setting, one), each, Local()) for each in with_control(spec.protocol)]
        watch(f"seed {one}: a client breaks the rule")
        state = runs[0].played(size.rounds)[-1].state
        broken.append(list(broken_rounds(runs[0], state, onlooker(runs[0]).child("tamper"))))
        for run in runs:
            reader = PermutedReader(run, setting.depth, onlooker(run))
            # The first run is the description's own. The second, if there is one, is its control: the same with the
            # first model from elsewhere. Where one rule holds for all rounds, its records come out as the first run's.
            if run is runs[0] or not run.pipeline.encode.keeps_rule:
                watch(f"seed {one}: records of single steps")
                read.setdefault(run.first, []).append(reader.lines())
            if run.first == "clients":
                watch(f"seed {one}: pictures laid out")
                found = layout(reader, size.pictures)
                laid += [found] if found else []
    return {
        "description": size.description, "runs": size.seeds, "layout": _laid(laid) if len(laid) > 1 else None,
        "broken": [_broken(lines) for lines in zip(*broken, strict=True)],
        "records": {first: over_all_runs(lines) for first, lines in read.items()},
    }  # fmt: skip


def layout(reader: PermutedReader, pictures: int) -> dict[str, Any] | None:
    """Pictures of single steps from the first model, in its unknown order, laid out by public ones.

    None where records are no pictures, where inputs are no group of their own, or where reading them takes a search.
    """
    run, coins = reader.run, reader.coins
    made, group = run.ground.made, input_group(run.symmetry)
    shape = pictured(made.dataset)
    if shape is None or group is None or reader.search is not None:
        return None
    (seen,) = run.seen(run.played(1))
    model, rule = seen.uploads[0].model, run.truth(seen.frame)
    # Single steps on training records, one record a step, and each step from the first model.
    moves = run.symmetry.under(rule)
    start, count = moves.invert(model), min(pictures, len(made.dataset.train))
    drawn = coins.child("pictures").sampler().permutation(len(made.dataset.train))[:count]
    x, y = made.dataset.train.batch(torch.from_numpy(drawn))
    # The first model and what comes back are in one frame, so that there is nothing to match.
    sent = [
        moves.apply(stepped(made.module, made.task.layout, start, x[n : n + 1], y[n : n + 1])) for n in range(count)
    ]
    # (None, None): the server takes model and upload as they lie.
    read = [reader.record(model, one, (None, None), coins.child("still")) for one in sent]
    samples = torch.cat(read).clamp(0, 1).flatten(1)
    public = made.dataset.test.batch(torch.arange(min(PUBLIC, len(made.dataset.test))))[0].flatten(1)
    places, true = by_example(samples, public, coins.child("layout")), rule.of[group]
    out = laid_out(samples, places).reshape(x.shape)
    likes = [like(out[n : n + 1], x[n : n + 1], shape) for n in range(min(100, len(x)))]
    height, width = shape[-2:]
    return {
        "pictures": count, "places": float((places == true).mean()), "chance": 1 / len(true),
        "neighbours": kept_neighbours(places, true, height, width),
        "chance_neighbours": chance_neighbours(height, width),
        **{name: fmean(one[name] for one in likes) for name in ("psnr", "ssim")},
    }  # fmt: skip


def input_group(symmetry: Symmetry) -> str | None:
    """The one group that all places of an input belong to, where there is one."""
    groups = {factor.group for axis in symmetry.inputs for block in axis.blocks for factor in block if factor.group}
    size = prod(axis.size for axis in symmetry.inputs)
    return next((group for group in groups if symmetry.groups[group] == size), None)


def _laid(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The layouts of all runs, joined."""
    told = {key: lines[0][key] for key in ("pictures", "chance", "chance_neighbours")}
    shares = {key: rate_of([line[key] for line in lines]) for key in ("places", "neighbours")}
    return told | shares | {key: rate_of([line[key] for line in lines], over_runs) for key in ("psnr", "ssim")}


def _broken(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One lie under one aggregation, joined over runs."""
    told = {"lie": lines[0]["lie"], "says": LIES[lines[0]["lie"]], "rule": lines[0]["rule"], "runs": len(lines)}
    counts = {
        key: None if lines[0][key] is None else sum(line[key] for line in lines)
        for key in ("left_out", "alone", "honest_alone")
    }
    shares = {key: rate_of([line[key] for line in lines]) for key in ("honest", "accuracy")}
    lost = rate_of([line["honest"] - line["accuracy"] for line in lines], over_runs)
    return told | counts | shares | {"lost": lost}


def noticed(line: Mapping[str, Any]) -> str:
    """Whether and how a tampered upload was kept from the others: by leaving it out, or in a cluster of its own."""
    runs = line["runs"]
    if line["left_out"]:
        return f"left out in {line['left_out']} of {runs}"
    if line["alone"] is None:
        return "no"
    return f"a cluster of its own in {line['alone']} of {runs} (when honest: in {line['honest_alone']})"


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"{found['description']}, {found['runs']} runs")
    if laid := found["layout"]:
        print(
            f"{laid['pictures']} records of single steps in one unknown order, laid out by public pictures: "
            f"{interval(laid['places'], 100)} % of places (by chance {laid['chance']:.1%}), "
            f"{interval(laid['neighbours'], 100)} % of neighbours (by chance {laid['chance_neighbours']:.1%}), "
            f"{interval(laid['psnr'])} dB"
        )
    for first, lines in found["records"].items():
        print(f"records of single steps, PSNR in dB, where the first model is {FIRST_MODEL[first]}")
        for one in lines:
            how = f", compared {one['read']}" if one["knows"] == "relative" else ""
            print(f"  {one['moment']}: the server knows {KNOWN[one['knows']]}{how}: {interval(one['psnr'])}")
    print("one client breaks the rule; accuracy of what the others are handed next, percent")
    for one in found["broken"]:
        honest, with_it = interval(one["honest"], 100), interval(one["accuracy"], 100)
        print(f"  {one['rule']}: {one['says']}: {with_it}, without {honest}; noticed: {noticed(one)}")
