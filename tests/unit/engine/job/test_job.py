"""A run from its description to its files, and from its files to its end."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.claims.tools import SMALL

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.encode.encoder import Released
from croupier.engine.job.result import Result
from croupier.engine.job.run import resume, run
from croupier.errors import CroupierError, DataError, ProtocolError, SpecError, StoreError
from croupier.learn.assemble import assemble
from croupier.learn.data import TensorRecords
from croupier.learn.datasets import Digits
from croupier.place.placement import Placement
from croupier.spec import load
from croupier.toml_text import to_toml

SETS = ("federation.rounds=3", "task.fit.epochs=1", "run.workers=1")


def _run(path: Path, *sets: str) -> Result:
    return run("digits-sum", sets=[*SETS, *sets], out=path, seed=8)


def _fixed(path: Path) -> dict[str, bytes]:
    names = ("metrics.jsonl", "checkpoints/000003.state", "model.safetensors")
    return {name: (path / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return _run(tmp_path_factory.mktemp("job") / "run")


@pytest.fixture
def copy(done: Result, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done.path, tmp_path / "copy"))


def test_a_run_directory_holds_what_it_says(done: Result) -> None:
    files = sorted(str(file.relative_to(done.path)) for file in done.path.rglob("*") if file.is_file())
    assert files == [
        "checkpoints/000002.state", "checkpoints/000003.state", "lock", "manifest.json", "metrics.jsonl",
        "model.safetensors", "noted.jsonl", "releases.jsonl", "sent.jsonl", "spec.toml", "summary.json", "timing.jsonl",
    ]  # fmt: skip


def test_the_manifest_says_what_ran(done: Result) -> None:
    manifest = json.loads((done.path / "manifest.json").read_text())
    assert manifest["seed"] == 8
    assert manifest["coins"] == Coins.from_seed(8).export().hex()
    assert manifest["workers"] == 1
    assert manifest["threads_per_worker"] == 1
    assert manifest["device"] == "cpu"
    assert manifest["croupier"] == version("croupier")
    assert manifest["python"] == platform.python_version()
    assert manifest["packages"] == {name: version(name) for name in ("torch", "numpy", "cryptography", "numba")}
    assert manifest["protocol"] == done.spec.protocol.digest().hex()
    data = Digits().load(None)
    assert manifest["data"] == {"name": "digits", "digest": data.digest, "licence": data.licence, "notes": {}}
    first = assemble(Digits(), done.spec.task.split, done.spec.task.model, done.spec.task.fit, Coins.from_seed(8)).task
    assert manifest["first"] == canon.digest(first.first.vector).hex()
    assert manifest["shards"] == first.shards
    assert sorted(manifest["shards"]) == [f"c{number}" for number in range(10)]
    assert len(set(manifest["shards"].values())) == 10
    assert all(shard.startswith(f"{who}:") and len(shard) == len(who) + 65 for who, shard in manifest["shards"].items())


def test_the_description_is_kept_whole(done: Result) -> None:
    assert load(done.path / "spec.toml") == done.spec == load("digits-sum", SETS)
    assert (done.path / "spec.toml").read_text() == to_toml(done.spec)


def test_the_metrics_say_nothing_of_time_or_machine(done: Result) -> None:
    lines = [json.loads(line) for line in (done.path / "metrics.jsonl").read_text().splitlines()]
    assert lines == list(done.metrics)
    assert [line["round"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert sorted(line) == [
            "accuracy", "attempt", "bytes", "bytes_down_per_client", "bytes_up_per_client", "invited", "loss",
            "messages", "model", "present", "refused", "round",
        ]  # fmt: skip
        assert (line["invited"], line["present"], line["attempt"], line["refused"]) == (10, 10, 0, [])
        # Ten models down, ten updates up, one release.
        assert line["messages"] == 21
        assert sorted(line["bytes"]) == [*(f"c{number}" for number in range(10)), "relay", "server"]
        sent, got = (sum(pair[side] for pair in line["bytes"].values()) for side in (0, 1))
        assert sent == got
        assert line["bytes_up_per_client"] == line["bytes"]["c0"][0]
    assert done.final is done.metrics[-1]


def test_clients_own_counts_are_in_no_file_that_others_may_read(done: Result) -> None:
    lines = [json.loads(line) for line in (done.path / "noted.jsonl").read_text().splitlines()]
    assert lines == list(done.noted)
    assert [line["round"] for line in lines] == [1, 2, 3]
    counts = [note for line in lines for note in line["clients"].values()]
    assert len(counts) == 30
    assert all(sorted(note) == ["capped_weights", "clamped"] for note in counts)
    for file in done.path.rglob("*"):
        if file.is_file() and file.stat().st_mode & 0o077:
            assert not any(key in file.read_bytes() for key in (b'"clamped"', b'"capped_weights"')), file


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_what_a_run_keeps_secret_only_its_owner_reads(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        sets = [*SETS, "federation.rounds=1", 'run.views=["server", "c0"]']
        path = run("digits-sum", sets=sets, out=tmp_path / "run", seed=8).path
    finally:
        os.umask(before)
    secret = [*path.glob("views/*"), *path.glob("checkpoints/*"), path / "manifest.json", path / "noted.jsonl"]
    assert len(secret) == 5
    assert {file.stat().st_mode & 0o777 for file in secret} == {0o600}
    assert {(path / folder).stat().st_mode & 0o777 for folder in ("views", "checkpoints")} == {0o700}


def test_the_last_line_names_the_exported_model(done: Result) -> None:
    tensors = load_file(done.path / "model.safetensors")
    layout = [(name, tuple(tensor.shape)) for name, tensor in done.model.state_dict().items()]
    assert [(name, tuple(tensors[name].shape)) for name, _ in layout] == layout
    flat = torch.cat([tensors[name].reshape(-1) for name, _ in layout])
    assert canon.digest(flat).hex() == done.final["model"]


def test_timing_and_summary(done: Result) -> None:
    timing = [json.loads(line) for line in (done.path / "timing.jsonl").read_text().splitlines()]
    assert [line["round"] for line in timing] == [1, 2, 3]
    assert all(line["seconds"] > 0 and line["peak_bytes"] > 1e7 for line in timing)
    summary = json.loads((done.path / "summary.json").read_text())
    assert summary == json.loads(json.dumps(done.summary))
    assert (summary["name"], summary["path"], summary["final"]) == ("digits-sum", str(done.path), done.final)
    assert summary["statement"]["learns"]["server"].startswith("the sum of the encoded updates")


def test_the_summary_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from croupier.engine.store import RunDir

    real, before = RunDir.write_json, list[str]()

    def write_json(self: RunDir, name: str, value: Mapping[str, Any], **more: bool) -> None:
        if name == "summary.json":
            before.extend(str(file.relative_to(self.path)) for file in self.path.rglob("*") if file.is_file())
        real(self, name, value, **more)

    monkeypatch.setattr(RunDir, "write_json", write_json)
    result = _run(tmp_path / "run", "run.views=['server']")
    after = {str(file.relative_to(result.path)) for file in result.path.rglob("*") if file.is_file()}
    assert after - set(before) == {"summary.json"}


def test_the_watch_hears_of_everything(tmp_path: Path) -> None:
    heard: list[tuple[str, Mapping[str, Any]]] = []
    run("digits", sets=SETS, out=tmp_path / "run", seed=1, watch=lambda event, facts: heard.append((event, facts)))
    assert heard[:2] == [
        ("opened", {"path": str(tmp_path / "run")}),
        ("started", {"rounds": 3, "cohort": 10, "done": 0}),
    ]
    assert {event for event, _ in heard[2:]} == {"trained", "round"}
    assert [facts["round"] for event, facts in heard if event == "round"] == [1, 2, 3]
    assert sum(facts["clients"] for event, facts in heard if event == "trained") == 30


def test_the_watch_of_a_resumed_run_hears_where_and_how_far_it_is(copy: Path) -> None:
    (copy / "checkpoints" / "000003.state").unlink()
    heard: list[tuple[str, Mapping[str, Any]]] = []
    resume(copy, watch=lambda event, facts: heard.append((event, facts)))
    assert heard[:2] == [
        ("opened", {"path": str(copy)}),
        ("started", {"rounds": 3, "cohort": 10, "done": 2}),
    ]
    assert {event for event, _ in heard[2:]} == {"trained", "round"}
    assert [facts["round"] for event, facts in heard if event == "round"] == [3]


def test_a_run_without_a_place_gets_a_fresh_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = {run("digits", sets=[*SETS, "federation.rounds=1"]).path for _ in range(2)}
    assert len(paths) == 2
    assert all(path.parent == Path("runs") and path.name.startswith("digits-") for path in paths)


def test_an_existing_run_is_not_written_over(copy: Path) -> None:
    before = _fixed(copy)
    with pytest.raises(StoreError, match=r"holds a run already; .* croupier.resume\(\), or choose another out"):
        _run(copy)
    assert _fixed(copy) == before


def test_a_refused_start_does_not_hold_the_directory(copy: Path) -> None:
    with pytest.raises(StoreError, match="holds a run already") as kept:
        _run(copy)
    assert resume(copy).final["round"] == 3, kept


def test_resuming_a_whole_run_changes_nothing(done: Result, copy: Path) -> None:
    again = resume(copy)
    assert _fixed(copy) == _fixed(done.path)
    assert again.metrics == done.metrics
    assert again.timing == done.timing
    kept = ("name", "final", "seconds", "peak_bytes", "statement")
    assert {key: again.summary[key] for key in kept} == {key: done.summary[key] for key in kept}


@pytest.mark.parametrize(
    "damaged", [["000003"], ["000002"], ["000002", "000003"]], ids=["the last", "the one before", "both"]
)
def test_a_damaged_checkpoint_costs_rounds_and_nothing_else(done: Result, copy: Path, damaged: list[str]) -> None:
    for name in damaged:
        path = copy / "checkpoints" / f"{name}.state"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 16
        path.write_bytes(data)
    (copy / "summary.json").unlink()
    heard: list[int] = []
    resume(copy, watch=lambda event, facts: heard.append(facts["round"]) if event == "round" else None)
    assert heard == {1: [3], 2: [1, 2, 3]}[len(damaged)] if "000003" in damaged else heard == []
    assert _fixed(copy) == _fixed(done.path)
    assert (copy / "summary.json").exists()


def test_a_checkpoint_now_and_then_is_enough(tmp_path: Path) -> None:
    one = _run(tmp_path / "one", "federation.rounds=5", "run.checkpoint_every=2")
    names = sorted(file.name for file in (one.path / "checkpoints").iterdir())
    assert names == ["000004.state", "000005.state"]
    whole = (one.path / "metrics.jsonl").read_bytes()
    (one.path / "checkpoints" / "000005.state").unlink()
    assert resume(one.path).final == one.final
    assert (one.path / "metrics.jsonl").read_bytes() == whole


def test_lines_after_the_checkpoint_are_run_again(done: Result, copy: Path) -> None:
    (copy / "checkpoints" / "000003.state").unlink()
    with (copy / "metrics.jsonl").open("ab") as log:
        log.write(b'{"round": 4, "acc')
    resume(copy)
    assert _fixed(copy) == _fixed(done.path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
@pytest.mark.parametrize("left", [b"", b"junk\n", None], ids=["nothing", "junk", "one line"])
def test_a_log_that_lost_lines_is_no_run(copy: Path, name: str, left: bytes | None) -> None:
    whole = (copy / name).read_bytes().splitlines(keepends=True)
    (copy / name).write_bytes(whole[0] if left is None else left)
    with pytest.raises(StoreError) as error:
        resume(copy)
    assert str(error.value) == f"{copy}/{name} lost rounds that the checkpoint has; start a new run"


def test_a_log_that_is_gone_is_no_run(copy: Path) -> None:
    (copy / "metrics.jsonl").unlink()
    with pytest.raises(StoreError, match="lost rounds that the checkpoint has; start a new run"):
        resume(copy)


def test_a_seedless_run_resumes_with_its_own_coins(tmp_path: Path) -> None:
    one = run("digits", sets=SETS, out=tmp_path / "one")
    before = (one.path / "metrics.jsonl").read_bytes()
    (one.path / "checkpoints" / "000003.state").unlink()
    resume(one.path)
    assert (one.path / "metrics.jsonl").read_bytes() == before


def test_a_sealed_run_resumes_sealed(done: Result, tmp_path: Path) -> None:
    sealed = _run(tmp_path / "sealed", "run.through_bytes=true")
    (sealed.path / "checkpoints" / "000003.state").unlink()
    resume(sealed.path)
    assert _fixed(sealed.path) == _fixed(done.path)


@pytest.mark.parametrize("missing", ["spec.toml", "manifest.json"])
def test_without_description_or_manifest_there_is_nothing_to_resume(copy: Path, missing: str) -> None:
    (copy / missing).unlink()
    with pytest.raises(StoreError, match=r"no run to resume here; start one with croupier\.run\(\.\.\., out="):
        resume(copy)


@pytest.mark.parametrize("body", ["{", "", "nothing"])
def test_a_broken_manifest_is_said(copy: Path, body: str) -> None:
    (copy / "manifest.json").write_text(body)
    with pytest.raises(StoreError, match=r"manifest\.json is missing or damaged: this is no run that can be resumed"):
        resume(copy)


@pytest.mark.parametrize(
    "change",
    [
        {"coins": None}, {"coins": "no hex"}, {"coins": "ab"}, {"coins": 7}, {"data": None}, {"data": {}},
        {"data": "digits"}, {"first": None}, {"packages": None}, {"packages": "torch"}, {"packages": 3},
    ],
    ids=str,
)  # fmt: skip
def test_a_manifest_without_what_it_needs_is_said(copy: Path, change: dict[str, Any]) -> None:
    manifest = json.loads((copy / "manifest.json").read_text()) | change
    for key, value in change.items():
        if value is None:
            del manifest[key]
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError) as error:
        resume(copy)
    assert str(error.value) == f"{copy}/manifest.json is damaged: this is no run that can be resumed"


@pytest.mark.parametrize("body", ["{}", "[]", "3", "null"])
def test_a_manifest_that_is_none_is_said(copy: Path, body: str) -> None:
    (copy / "manifest.json").write_text(body)
    with pytest.raises(StoreError, match=r"manifest\.json is damaged: this is no run that can be resumed"):
        resume(copy)


def test_other_packages_are_noted_and_resumed_with(copy: Path) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["packages"]["numpy"] = "0.9"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    notes: list[Mapping[str, Any]] = []
    resume(copy, watch=lambda event, facts: notes.append(facts) if event == "note" else None)
    assert notes == [{"text": f"begun with numpy 0.9, resumed with {version('numpy')}: last bits may differ"}]


def test_other_data_are_not_resumed_with(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from croupier.learn.datasets import digits

    real = digits._read

    def changed(path: Path) -> TensorRecords:
        rows = real(path)
        rows.x[0, 0] += 1
        return rows

    monkeypatch.setattr(digits, "_read", changed)
    with pytest.raises(StoreError, match=r"copy: the data differ from those this run began with; restore them$"):
        resume(copy)


def _warm(done: Result, folder: Path) -> tuple[Result, Path]:
    """A run that began from a file of weights."""
    weights = Path(shutil.copy(done.path / "model.safetensors", folder / "warm.safetensors"))
    return _run(folder / "run", f"task.warm={weights}"), weights


def test_a_run_goes_on_without_the_file_it_was_warmed_from(done: Result, tmp_path: Path) -> None:
    warm, weights = _warm(done, tmp_path)
    before = _fixed(warm.path)
    (warm.path / "checkpoints" / "000003.state").unlink()
    weights.unlink()
    resume(warm.path)
    assert _fixed(warm.path) == before


def test_a_run_without_a_checkpoint_begins_from_the_same_first_model(done: Result, tmp_path: Path) -> None:
    warm, weights = _warm(done, tmp_path)
    before, kept = _fixed(warm.path), weights.read_bytes()
    for file in (warm.path / "checkpoints").iterdir():
        file.unlink()
    tensors = load_file(weights)
    tensors["layers.0.bias"][0] += 1
    save_file(tensors, weights)
    with pytest.raises(StoreError, match=r"run: the first model differs from the one this run began with; restore it$"):
        resume(warm.path)
    weights.write_bytes(kept)
    resume(warm.path)
    assert _fixed(warm.path) == before


def test_a_run_that_cannot_begin_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROUPIER_DATA", raising=False)
    with pytest.raises(DataError, match="pass data FOLDER or set CROUPIER_DATA"):
        run("mnist", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("bad", ["run.views=['nobody']", "federation.cohort=11", "task.split.clients=5000"])
def test_a_description_that_cannot_run_leaves_no_directory(bad: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        run("digits", sets=[*SETS, bad], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_view_of_nobody_names_those_who_can_be_seen(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        _run(tmp_path / "run", "run.views=['server', 'nobody', 'c10']")
    known = ", ".join([*(f"c{number}" for number in range(10)), "relay", "server"])
    assert str(error.value) == f"run.views = ['nobody', 'c10']: no such party; there are {known}"


def test_a_model_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "run" / "model.safetensors.part").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"model\.safetensors: cannot be written \(Is a directory\); free space or"):
        _run(tmp_path / "run")
    assert not (tmp_path / "run" / "summary.json").exists()
    (tmp_path / "run" / "model.safetensors.part").rmdir()
    assert resume(tmp_path / "run").final["round"] == 3


def test_the_digests_of_views_are_kept_where_asked(tmp_path: Path) -> None:
    result = _run(tmp_path / "run", "run.record=digest")
    text = (result.path / "digests.jsonl").read_bytes()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    everybody = [*(f"c{number}" for number in range(10)), "relay", "server"]
    assert all(sorted(line) == ["round", "views"] and sorted(line["views"]) == everybody for line in lines)
    found = [digest for line in lines for digest in line["views"].values()]
    assert len(set(found)) == 36
    assert all(len(bytes.fromhex(digest)) == 32 for digest in found)
    assert not (result.path / "views").exists()
    (result.path / "checkpoints" / "000003.state").unlink()
    resume(result.path)
    assert (result.path / "digests.jsonl").read_bytes() == text, "a round run again is not written twice"


def test_views_are_kept_where_asked(tmp_path: Path) -> None:
    result = run("digits-sum", sets=[*SETS, "run.views=['relay']"], out=tmp_path / "run", seed=8)
    files = sorted((result.path / "views").iterdir())
    assert [file.name for file in files] == [f"{number:06d}-relay.view" for number in (1, 2, 3)]
    view = canon.load(files[1].read_bytes())
    assert (view["party"], view["given"]["me"], view["given"]["round"]) == ("relay", "relay", 1)
    (inbox, *_) = view["inputs"]
    assert [letter["source"] for letter in inbox] == [f"c{number}" for number in range(10)]


def _files(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


def test_resuming_adds_no_file(tmp_path: Path) -> None:
    run("digits", sets=SMALL, out=tmp_path / "run", seed=1)
    before = _files(tmp_path / "run")
    resume(tmp_path / "run")
    assert _files(tmp_path / "run") == before


def test_a_package_that_is_not_here_is_said(tmp_path: Path) -> None:
    run("digits", sets=SMALL, out=tmp_path / "run", seed=1)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    manifest["packages"]["gone-by-now"] = "1.0"
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    assert resume(tmp_path / "run").final["round"] == 2


@pytest.mark.parametrize("change", [("alpha = 0.5", "alpha = 5.0"), ('use = "direct"', 'use = "relay"')])
def test_another_description_is_not_resumed_with(change: tuple[str, str], tmp_path: Path) -> None:
    run("digits", sets=SMALL, out=tmp_path / "run", seed=1)
    (tmp_path / "run" / "checkpoints" / "000002.state").unlink()
    text = (tmp_path / "run" / "spec.toml").read_text()
    assert change[0] in text
    (tmp_path / "run" / "spec.toml").write_text(text.replace(*change))
    with pytest.raises(StoreError):
        resume(tmp_path / "run")


def test_lost_digests_are_said(tmp_path: Path) -> None:
    run("digits", sets=[*SMALL, "run.record=digest"], out=tmp_path / "run", seed=1)
    (tmp_path / "run" / "digests.jsonl").write_bytes(b"")
    with pytest.raises(StoreError):
        resume(tmp_path / "run")


def test_a_log_with_a_round_twice_is_no_run(tmp_path: Path) -> None:
    run("digits", sets=SMALL, out=tmp_path / "run", seed=1)
    log = tmp_path / "run" / "metrics.jsonl"
    first = log.read_bytes().splitlines(keepends=True)[0]
    log.write_bytes(first + first)
    with pytest.raises(StoreError):
        resume(tmp_path / "run")


@pytest.mark.parametrize("place", ["sum-servers", "masks"])
def test_a_round_that_failed_with_keys_of_one_use_is_not_run_again(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same updates summed once more, with others, would give single ones away."""
    folder = tmp_path / "run"
    preset = {"sum-servers": "rns-servers", "masks": "rns-masks"}[place]

    def broken(*_: object) -> Released:
        raise ProtocolError("the network is down")

    with monkeypatch.context() as patch:
        patch.setattr(Placement.known_as(place), {"sum-servers": "_totals", "masks": "opened"}[place], broken)
        with pytest.raises(CroupierError, match="the network is down"):
            run(preset, seed=3, out=folder, sets=["federation.rounds=2"])
    with pytest.raises(StoreError, match="start a new run"):
        resume(folder)


def test_training_with_noise_says_what_a_record_has_spent_after_every_round(tmp_path: Path) -> None:
    sets = [
        "federation.rounds=3",
        "task.fit.use=dp-sgd",
        "task.fit.noise=1.0",
        "task.fit.batch=16",
        "task.fit.epochs=1",
    ]
    found = run("digits", sets=sets, out=tmp_path / "run", seed=3)
    spent = [line["record"] for line in found.metrics]
    assert [one["participations"] for one in spent] == [1, 2, 3]
    assert 0 < spent[0]["epsilon"] < spent[1]["epsilon"] < spent[2]["epsilon"]
    assert found.summary["record"]["epsilon"] == spent[-1]["epsilon"]
    assert found.summary["record"]["adjacency"].startswith("one record of one client is left out of all its sums")
    again = [json.loads(line) for line in (found.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["record"] for line in again] == spent
    quiet = run("digits", sets=[*sets, "task.fit.noise=0"], out=tmp_path / "quiet", seed=3)
    assert "record" not in quiet.final
