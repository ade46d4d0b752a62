"""What two messages under one secret give away: seen where the journal is blind, and gone where it is not.

Each case kills a run when a round's messages have left, changes what training gives, and resumes: first with a journal
that lets everything pass, as if there were none, and the attack works; then with the real one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import croupier.engine.job.job
import croupier.engine.job.resume
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Given, roster_digest
from croupier.core.update import Update
from croupier.encode.fixed import FixedPoint
from croupier.engine.job.run import resume, run
from croupier.engine.journal import Journal
from croupier.engine.state import run_id
from croupier.engine.store import RunDir
from croupier.errors import Replayed, StoreError
from croupier.kernels import packed
from croupier.learn.assemble import Assembled, assemble
from croupier.mpc.shares import unpacked
from croupier.pipeline import Pipeline
from croupier.place.servers import SumServers
from tests.laws.pipelines import PIPELINES
from tests.laws.rerun import Killed, Run, Trace, nudged
from tests.laws.test_once import Forgetful
from tests.laws.toy import CLIENTS, SEED, fit, layout_for

Messages = dict[tuple[str, ...], Mapping[str, torch.Tensor]]


def far(jobs: Sequence[tuple[Any, ...]]) -> list[Update]:
    """Training that gives something else altogether, so that signs differ."""
    return [replace(one, vector=-one.vector if at % 2 else one.vector.flip(0)) for at, one in enumerate(fit(jobs))]


def given(pipeline: Pipeline, attempt: int) -> Given:
    """What the first client is told."""
    return Given("c0", run_id(Coins.from_seed(SEED)), 0, attempt, CLIENTS, 2, layout_for(pipeline))


def twice(pipeline: Pipeline, folder: Path, kind: type[Journal], fits: Any) -> list[Messages]:
    """The messages of a round that was killed at its end, and those of the one in its place."""
    (folder / "whole").mkdir(parents=True)
    (folder / "run").mkdir()
    _, tap = Run(pipeline, folder / "whole", 1).sit(Trace())
    one, first, second = Run(pipeline, folder / "run", 1, kind), Trace(), Trace()
    with pytest.raises(Killed):
        one.sit(first, die_at=tap.steps - 1)
    if kind is Journal:
        with pytest.raises(Replayed, match="one secret would cover two messages"):
            one.sit(Trace(), fits=fits)
    one.sit(second, fits=fits, anew=kind is Journal)
    schemas = pipeline.schemas(given(pipeline, 0))
    return [{slot[3:]: schemas[slot[5]].unpack(body) for slot, body in trace.left} for trace in (first, second)]


@pytest.mark.parametrize("kind", [Forgetful, Journal])
def test_masks_a_server_reads_no_difference_of_a_clients_updates(kind: type[Journal], tmp_path: Path) -> None:
    pipeline = PIPELINES["masks"]
    encode = pipeline.encode
    assert isinstance(encode, FixedPoint)
    left = twice(pipeline, tmp_path, kind, nudged)
    slots = encode.slots(layout_for(pipeline))
    was, now = (unpacked(one["c0", "server", "up"]["vector"], slots, encode.bits).double() for one in left)
    full = 2.0**encode.bits
    apart = (was - now + full / 2).remainder(full) - full / 2
    # Updates differ by a few hundredths; two fresh masks differ by anything.
    read = bool((apart.abs() < full / 64).all())
    assert read == (kind is Forgetful)


@pytest.mark.parametrize("kind", [Forgetful, Journal])
def test_sum_servers_no_mixture_of_two_sums_passes_the_tags(kind: type[Journal], tmp_path: Path) -> None:
    pipeline = PIPELINES["sum servers"]
    place, encode = pipeline.place, pipeline.encode
    assert isinstance(place, SumServers)
    assert isinstance(encode, FixedPoint)
    was, now = (one["server", "c0", "published"] for one in twice(pipeline, tmp_path, kind, nudged))
    # S2 + c (S1 - S2) for c = 2, as residues again.
    slots = encode.slots(layout_for(pipeline))
    sums = [encode.signed(unpacked(body["vector"], slots, encode.bits)) for body in (was, now)]
    assert not torch.equal(*sums)
    forged, tag = (2 * sums[0] - sums[1]) % encode.modulus, 2 * int(was["tag"][0]) - int(now["tag"][0])
    keys = place.enrol(CLIENTS, Coins.from_seed(SEED).child("enrol", roster_digest(CLIENTS)))["c0"]
    passes = []
    for attempt in (0, 1):
        tagger = place._tagger(given(pipeline, attempt), keys, encode.bits)
        form = packed.form_plain(tagger.key(slots), forged.numpy(), encode.bits)
        passes.append(tagger.fits(form, tag, np.arange(len(CLIENTS))))
    assert any(passes) == (kind is Forgetful)


@pytest.mark.parametrize("kind", [Forgetful, Journal])
def test_rain_no_server_recovers_the_others_permutation(kind: type[Journal], tmp_path: Path) -> None:
    was, now = twice(PIPELINES["two servers"], tmp_path, kind, far)
    # Both servers hold every hidden row; the first hands them on permuted and hidden again.
    rows = torch.stack([was[who, "second", "up"]["row"] ^ now[who, "second", "up"]["row"] for who in CLIENTS])
    moved = was["server", "second", "w"]["rows"] ^ now["server", "second", "w"]["rows"]
    found = [[at for at, row in enumerate(rows) if torch.equal(row, one)] for one in moved]
    recovered = sorted(places[0] for places in found if len(places) == 1) == [0, 1, 2, 3]
    assert recovered == (kind is Forgetful)


def change(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on training gives other last bits."""

    def other(*args: Any, **more: Any) -> Assembled:
        made = assemble(*args, **more)
        honest = made.task.fit

        def fits(jobs: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
            done = [one for one in honest(jobs) if isinstance(one, Update)]
            return [replace(one, vector=one.vector * (1 + 2**-20)) for one in done]

        return replace(made, task=replace(made.task, fit=fits))

    monkeypatch.setattr(croupier.engine.job.job, "assemble", other)


def kill(monkeypatch: pytest.MonkeyPatch, preset: str, sets: Sequence[str], path: Path) -> None:
    """A run whose messages all left, and that died before its checkpoint."""

    def dies(self: RunDir, number: int, state: Mapping[str, Any]) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "checkpoint", dies)
        with pytest.raises(Killed):
            run(preset, sets=sets, out=path, seed=3)


def uploads(path: Path) -> dict[str, torch.Tensor]:
    """What the server got of each client in the first round."""
    view = canon.load((path / "views" / "000001-server.view").read_bytes())
    inbox = next(entry for entry in view["inputs"] if entry and "kind" in entry[0])
    return {letter["source"]: letter["body"]["vector"] for letter in inbox}


DP = (
    "federation.rounds=1", "run.workers=1", "run.views=['server']",
    'task.fit={use="dp-sgd",epochs=1,clip=1.0,noise=1.0,batch=32}',
)  # fmt: skip


@pytest.mark.parametrize("kind", [Forgetful, Journal])
def test_dp_sgd_never_puts_the_same_noise_on_two_updates(
    kind: type[Journal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (croupier.engine.job.job, croupier.engine.job.resume):
        monkeypatch.setattr(module, "Journal", kind)
    kill(monkeypatch, "digits", DP, tmp_path / "run")
    before = uploads(tmp_path / "run")
    change(monkeypatch)
    if kind is Journal:
        with pytest.raises(Replayed, match="would now differ from what left"):
            resume(tmp_path / "run")
    resume(tmp_path / "run", anew=kind is Journal)
    after = uploads(tmp_path / "run")
    for name, was in before.items():
        same = float((was - after[name]).norm()) < 1e-3 * float(was.norm())
        assert same == (kind is Forgetful), name


INTRA = ("federation.rounds=2", "task.fit.epochs=1", "run.workers=1")


def test_intra_counts_a_round_that_is_released_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    kill(monkeypatch, "intra", INTRA, path)
    lines = [json.loads(line) for line in (path / "releases.jsonl").read_text().splitlines()]
    released = {line["client"] for line in lines}
    assert released, "on disk before the run came to anything"
    ledger = (path / "ledger.jsonl").read_bytes()
    change(monkeypatch)
    with pytest.raises(Replayed):
        resume(path)
    done = resume(path, anew=True)
    again = [json.loads(line) for line in (path / "releases.jsonl").read_text().splitlines()]
    assert again[: len(lines)] == lines, "a ledger only grows"
    assert (path / "ledger.jsonl").read_bytes().startswith(ledger)
    first = [line["client"] for line in again if line["round"] == 0]
    assert all(first.count(name) == 2 for name in released)
    accounts = [json.loads(line) for line in (path / "ledger.jsonl").read_text().splitlines()]
    assert [line["round"] for line in accounts] == [1, 1, 2]
    for name in released:
        once, more = (line["clients"][name] for line in accounts[:2])
        assert (once["participations"], more["participations"]) == (1, 2)
        assert more["epsilon"] > once["epsilon"]
    assert max(row["participations"] for row in done.summary["ledger"]["tiers"]) == 3


def test_a_run_that_trains_the_same_counts_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill(monkeypatch, "intra", INTRA, tmp_path / "killed")
    resume(tmp_path / "killed")
    run("intra", sets=INTRA, out=tmp_path / "alone", seed=3)
    for name in ("sent.jsonl", "releases.jsonl", "ledger.jsonl", "metrics.jsonl", "checkpoints/000002.state"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


SUM = ("federation.rounds=2", "task.fit.epochs=1", "run.workers=1")


def test_bare_sums_are_not_played_anew_once_updates_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # If one client's update changed in between, the two sums would differ by it alone.
    path = tmp_path / "run"
    kill(monkeypatch, "digits-sum", SUM, path)
    change(monkeypatch)
    with pytest.raises(Replayed, match=r"start a new run, from task.warm .* would give single ones away"):
        resume(path)
    before = (path / "sent.jsonl").read_bytes()
    with pytest.raises(StoreError, match="so that it is not played anew; resume without --anew"):
        resume(path, anew=True)
    assert (path / "sent.jsonl").read_bytes() == before
    monkeypatch.undo()
    assert resume(path).final["round"] == 2, "with what it began with it goes on"


@pytest.mark.parametrize("name", ["sent.jsonl", "releases.jsonl"])
@pytest.mark.parametrize("lost", ["all", "the first line", "a line in the middle"])
def test_a_journal_that_lost_lines_is_noticed(name: str, lost: str, tmp_path: Path) -> None:
    path = run("intra", sets=INTRA, out=tmp_path / "run", seed=3).path
    lines = (path / name).read_bytes().splitlines(keepends=True)
    kept = {"all": [], "the first line": lines[1:], "a line in the middle": [*lines[:1], *lines[2:]]}[lost]
    (path / name).write_bytes(b"".join(kept))
    with pytest.raises(StoreError, match=r"is damaged: nobody knows|lost what left in round 1: nobody knows"):
        resume(path)
