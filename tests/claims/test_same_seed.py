"""The same seed gives the same bytes, however many workers train and however messages travel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from croupier.engine.job.run import run
from tests.claims.tools import SMALL, contents

PRESETS = ("digits", "digits-shuffled", "digits-sum", "digits-layer")


def _files(path: Path, preset: str, *sets: str, seed: int = 11) -> dict[str, bytes]:
    run(preset, sets=[*SMALL, *sets], out=path, seed=seed)
    return contents(path)


@pytest.mark.parametrize("preset", PRESETS)
def test_workers_and_bytes_change_nothing(preset: str, tmp_path: Path) -> None:
    one = _files(tmp_path / "one", preset)
    assert json.loads(one["metrics.jsonl"].splitlines()[-1])["round"] == 2
    assert _files(tmp_path / "two", preset, "run.workers=2") == one
    assert _files(tmp_path / "sealed", preset, "run.through_bytes=true") == one
    assert _files(tmp_path / "both", preset, "run.through_bytes=true", "run.workers=2") == one
    assert json.loads((tmp_path / "two" / "manifest.json").read_text())["workers"] == 2


@pytest.mark.parametrize("preset", PRESETS)
def test_workers_change_nothing_when_clients_train_alone(preset: str, tmp_path: Path) -> None:
    one = _files(tmp_path / "one", preset, "task.together=1")
    assert _files(tmp_path / "two", preset, "task.together=1", "run.workers=2") == one
    assert _files(tmp_path / "three", preset, "task.together=1", "run.workers=3") == one


@pytest.mark.parametrize("together", [2, 3])
def test_workers_change_nothing_when_there_are_several_stacks(together: int, tmp_path: Path) -> None:
    sets = (f"task.together={together}", "federation.cohort=7", "task.fit=adam")
    one = _files(tmp_path / "one", "digits-shuffled", *sets)
    assert _files(tmp_path / "two", "digits-shuffled", *sets, "run.workers=2") == one


def test_the_exported_model_is_the_same_bytes(tmp_path: Path) -> None:
    """Written many times: an order that depends on a hash would show."""
    files = set()
    for number in range(12):
        run("digits", sets=[*SMALL, "federation.rounds=1"], out=tmp_path / str(number), seed=1)
        files.add((tmp_path / str(number) / "model.safetensors").read_bytes())
    assert len(files) == 1


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    first, second = _files(tmp_path / "a", "digits"), _files(tmp_path / "b", "digits", seed=12)
    assert first["metrics.jsonl"] != second["metrics.jsonl"]
    assert first["model.safetensors"] != second["model.safetensors"]


def test_a_run_without_a_seed_is_not_repeated(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run("digits", sets=[*SMALL, "federation.rounds=1"], out=tmp_path / name)
    a, b = (contents(tmp_path / name)["metrics.jsonl"] for name in ("a", "b"))
    assert a != b
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["seed"] is None


def test_how_views_are_kept_changes_nothing(tmp_path: Path) -> None:
    plain = _files(tmp_path / "plain", "digits-shuffled")
    kept = _files(tmp_path / "kept", "digits-shuffled", "run.views=['server', 'relay', 'c3']", "run.record=digest")
    assert kept == plain
    assert sorted(file.name for file in (tmp_path / "kept" / "views").iterdir()) == [
        f"{number:06d}-{who}.view" for number in (1, 2) for who in ("c3", "relay", "server")
    ]


def test_the_digests_of_views_are_the_same_bytes_however_it_runs(tmp_path: Path) -> None:
    files = set()
    for name, sets in {
        "one": (),
        "kept": ("run.views=['server', 'relay', 'c3']",),
        "workers": ("run.workers=2",),
        "sealed": ("run.through_bytes=true",),
    }.items():
        _files(tmp_path / name, "digits-shuffled", "run.record=digest", *sets)
        files.add((tmp_path / name / "digests.jsonl").read_bytes())
    assert len(files) == 1
    _files(tmp_path / "other", "digits-shuffled", "run.record=digest", seed=12)
    assert (tmp_path / "other" / "digests.jsonl").read_bytes() not in files


def test_one_seed_gives_every_protocol_the_same_clients_and_the_same_first_round_of_training(tmp_path: Path) -> None:
    """The shuffles only reorder rows that are summed: from one seed they end at nearly the same model."""
    for preset in ("digits-model", "digits-shuffled"):
        run(preset, sets=[*SMALL, "federation.rounds=1"], out=tmp_path / preset, seed=1)
    first, second = (
        load_file(tmp_path / preset / "model.safetensors") for preset in ("digits-model", "digits-shuffled")
    )
    assert max(float((first[name] - second[name]).abs().max()) for name in first) < 1e-6
    shards = [
        json.loads((tmp_path / p / "manifest.json").read_text())["shards"] for p in ("digits-model", "digits-shuffled")
    ]
    assert shards[0] == shards[1]
