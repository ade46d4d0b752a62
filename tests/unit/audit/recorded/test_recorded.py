"""Recorded updates: the examples are audited, and files that do not fit are refused in one line each."""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.scenes import Here, hasten

from croupier.audit.recorded import audited as auditing
from croupier.audit.recorded.audited import protocol, recorded
from croupier.audit.recorded.files import Recording, read
from croupier.errors import CroupierError, DataError, SpecError
from croupier.learn.datasets import Digits
from croupier.learn.models import Mlp

EXAMPLES = Path(__file__).parents[4] / "examples" / "recorded"
CLIENTS, FEATURES, CLASSES, HIDDEN = ("a", "b", "c", "d"), 3, 2, 4
MANIFEST = """
model = {{ use = "mlp", hidden = [{hidden}] }}
files = "{files}"
shadow = {{ use = "own", make = "held:shadow" }}
{more}
"""
SHADOW = """
import torch

def shadow(folder, clients):
    clients = clients or ("a", "b", "c", "d")
    def some(count, salt):
        draw = torch.Generator().manual_seed(salt)
        return torch.randn(count, 3, generator=draw), torch.arange(count) % 2
    return {
        "shadows": {who: some(8, 10 * at) for at, who in enumerate(clients)},
        "asked": {who: some(6, 10 * at + 1) for at, who in enumerate(clients)},
    }
"""


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Quick attacks in this process, and functions of the user's own from a folder of the test's own."""
    hasten(monkeypatch)
    monkeypatch.setattr(auditing, "Panel", Here)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def tensors(salt: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(salt)
    shapes = {"0.weight": (HIDDEN, FEATURES), "0.bias": (HIDDEN,), "2.weight": (CLASSES, HIDDEN), "2.bias": (CLASSES,)}
    return {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}


@cache
def names() -> list[str]:
    """As the network calls its tensors."""
    return list(Mlp(hidden=(HIDDEN,)).build(Digits().load(None)).state_dict())


def folder(at: Path, files: str = "{round}/{client}.safetensors", more: str = "", shadow: str = SHADOW) -> Path:
    """Two rounds of four clients."""
    at.mkdir(exist_ok=True)
    (at / "updates.toml").write_text(MANIFEST.format(files=files, more=more, hidden=HIDDEN))
    (at / "held.py").write_text(shadow)
    keys = names()
    for number in (1, 2):
        (at / str(number)).mkdir(exist_ok=True)
        for place, who in enumerate(CLIENTS):
            save_file(
                dict(zip(keys, tensors(10 * number + place).values(), strict=True)), at / f"{number}/{who}.safetensors"
            )
    return at


def refused(at: Path, kind: type[CroupierError] = DataError) -> str:
    with pytest.raises(kind) as error:
        read(at)
    said = str(error.value)
    assert "\n" not in said
    return said


def test_a_folder_is_read(tmp_path: Path) -> None:
    found = read(folder(tmp_path / "one"))
    assert found.clients == CLIENTS
    assert [one.number for one in found.rounds] == [1, 2]
    assert found.layout.size == sum(value.numel() for value in tensors(0).values())
    assert torch.equal(found.rounds[0].models["b"], torch.cat([value.flatten() for value in tensors(11).values()]))


def same(one: Recording, two: Recording) -> bool:
    return all(
        torch.allclose(a.models[who], b.models[who], atol=1e-6)
        for a, b in zip(one.rounds, two.rounds, strict=True)
        for who in CLIENTS
    )


def _as_npz(path: Path, found: dict[str, Any]) -> None:
    np.savez(path.with_suffix(".npz"), **{name: value.numpy() for name, value in found.items()})


def _as_list(path: Path, found: dict[str, Any]) -> None:
    np.savez(path.with_suffix(".npz"), *[value.double().numpy() for value in found.values()])


def _as_torch(path: Path, found: dict[str, Any]) -> None:
    torch.save(found, path.with_suffix(".pt"))


@pytest.mark.parametrize(("suffix", "write"), [("npz", _as_npz), ("npz", _as_list), ("pt", _as_torch)])
def test_every_format_gives_the_same(tmp_path: Path, suffix: str, write: Callable[..., None]) -> None:
    first = read(folder(tmp_path / "one"))
    second = folder(tmp_path / "two", "{round}/{client}." + suffix)
    for path in second.glob("*/*.safetensors"):
        found = load_file(path)
        write(path, {name: found[name] for name in names()})
        path.unlink()
    assert same(first, read(second))


def test_differences_are_added_to_the_model_of_their_round(tmp_path: Path) -> None:
    at = folder(tmp_path / "one", more='form = "delta"\nstart = "start-{round}.safetensors"')
    assert "has no file of round 1" in refused(at) or "fits no file" in refused(at)
    start = dict(zip(names(), tensors(99).values(), strict=True))
    for number in (1, 2):
        save_file(start, at / f"start-{number}.safetensors")
    found = read(at).rounds[0]
    whole = torch.cat([value.flatten() for value in tensors(99).values()])
    assert torch.allclose(found.models["a"], whole + torch.cat([value.flatten() for value in tensors(10).values()]))
    (at / "start-2.safetensors").unlink()
    assert "round 2" in refused(at)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch hacked",)


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    at = folder(tmp_path / "one")
    path, keys = at / "1/b.safetensors", names()
    good = dict(zip(keys, tensors(11).values(), strict=True))
    cases: list[tuple[dict[str, torch.Tensor], str]] = [
        ({**good, keys[0]: torch.zeros(2, 2)}, r"has shape (2, 2), not"),
        ({key: value for key, value in good.items() if key != keys[1]}, f"{keys[1]} is missing"),
        ({**good, "more": torch.zeros(1)}, "more is nothing of the network's"),
        ({**good, keys[0]: torch.full((HIDDEN, FEATURES), torch.nan)}, "NaN or infinite"),
        ({**good, keys[0]: torch.ones(HIDDEN, FEATURES, dtype=torch.bool)}, "holds bool"),
        ({**good, "big": torch.zeros(1 << 20)}, "far more than the network"),
    ]
    for tensors_in, said in cases:
        save_file(tensors_in, path)
        assert said in (found := refused(at))
        assert str(path) in found
    path.write_bytes(b"nothing of the kind")
    assert "cannot be read as .safetensors" in refused(at)


def test_pickles_are_refused_and_not_run(tmp_path: Path) -> None:
    for suffix in ("pt", "npz", "pkl"):
        at = folder(tmp_path / suffix, "{round}/{client}." + suffix)
        for path in at.glob("*/*.safetensors"):
            other = path.with_suffix(f".{suffix}")
            if suffix == "npz":
                np.savez(other, evil=np.array([Evil()], dtype=object))
            else:
                other.write_bytes(pickle.dumps({"a": Evil()}))
            path.unlink()
        said = refused(at)
        assert "safetensors" in said
        assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ("../{round}/{client}.safetensors", "leads out of the folder"),
        ("/{round}/{client}.safetensors", "leads out of the folder"),
        ("{round}/{whom}.safetensors", "{whom}"),
        ("{client}.safetensors", "{round}"),
        ("{round}/{client}/{client}.safetensors", "{client}"),
        ("{round}.safetensors", "set seen = 'sum'"),
    ],
)
def test_patterns_that_cannot_be(tmp_path: Path, files: str, said: str) -> None:
    assert said in refused(folder(tmp_path / "one", files), SpecError)


def test_links_and_what_is_missing(tmp_path: Path) -> None:
    at = folder(tmp_path / "one")
    outside = tmp_path / "outside.safetensors"
    (at / "1/b.safetensors").rename(outside)
    (at / "1/b.safetensors").symlink_to(outside)
    assert "link out of" in refused(at)
    (at / "1/b.safetensors").unlink()
    assert [len(one.models) for one in read(at).rounds] == [3, 4]
    for who in ("a", "c"):
        (at / f"1/{who}.safetensors").unlink()
    assert "is all there is of round 1" in refused(at)
    assert "fits no file" in refused(folder(tmp_path / "none", "no-{round}-{client}.npz"))
    assert "cannot be read" in refused(tmp_path / "nowhere", SpecError)
    (at / "updates.toml").write_text("files = [")
    assert "not valid TOML" in refused(at, SpecError)
    (at / "updates.toml").write_text('files = "x"')
    assert "model is not set" in refused(at, SpecError)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 3", "it gave int"),
        ("return {'shadows': {}, 'asked': {}}", "has nothing of 'a'"),
        ("return {'shadows': {'a': 1}, 'asked': {}}", "is no pair"),
        ("return {'shadows': {'a': ([[1.0]], [0, 1])}, 'asked': {}}", "give one for each"),
        ("return {'shadows': {'a': ([[float('nan')]], [0])}, 'asked': {}}", "NaN"),
        ("return {'shadows': {'a': ([[1.0]], [-1])}, 'asked': {}}", "count them from 0"),
        ("return {'shadows': {'a': (['x'], [0])}, 'asked': {}}", "no numbers"),
        ("one = {w: ([[1.0]], [0]) for w in clients}; two = {w: ([[1.0, 2.0]], [0]) for w in clients}; "
         "return {'shadows': one, 'asked': two}", "give all alike"),
        ("one = {w: ([[1.0]], [0]) for w in clients}; return {'shadows': one, 'asked': one, 'members': one}", "both"),
    ],
)  # fmt: skip
def test_what_a_shadow_function_may_not_give(tmp_path: Path, body: str, said: str) -> None:
    at = folder(tmp_path / "one", shadow=f"def shadow(folder, clients):\n    {body}\n")
    assert said in refused(at)


def test_too_few_clients_are_not_judged(tmp_path: Path) -> None:
    at = folder(tmp_path / "one")
    for number in (1, 2):
        (at / f"{number}/d.safetensors").unlink()
    cell = recorded(at).plain["rows"][0]["questions"]["source"]
    assert cell["status"] == "not-run"
    assert cell["why"] == "3 clients are too few to judge by: intervals are over clients; record 4 or more"


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's folder, with what its scripts write; what both train is trained once."""
    at = tmp_path_factory.mktemp("examples") / "recorded"
    shutil.copytree(EXAMPLES, at, ignore=shutil.ignore_patterns("rounds", "models", "*.npz"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(at)
        loop: Any = importlib.import_module("loop")
        trained = list(loop.rounds())
        patch.setattr(loop, "rounds", lambda: trained)
        loop.main()
        importlib.import_module("flower").main()
    for name in ("loop", "flower", "mine"):
        del sys.modules[name]
    return at


def test_the_example_leaks_by_name_and_not_in_the_mean(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(examples)
    found = recorded(".").plain
    (row,) = found["rows"]
    source = row["questions"]["source"]
    assert (found["kind"], found["schema"], found["clients"], found["rounds"]) == ("croupier audit", 3, 8, 2)
    assert (source["status"], source["attack"]) == ("leak", "named+prior")
    assert source["gain"]["rate"] > 0.1
    assert row["questions"]["separation"]["value"] == pytest.approx(1, abs=1e-5)
    assert list(row["questions"]["membership"]["adversaries"]["server"]["attacks"]) == [
        "loss", "rows", "lira", "gradients", "row-gradients", "spans",
    ]  # fmt: skip
    assert found["verdict"]["light"] == "red"
    assert any("over its 8 clients" in note for note in found["notes"])
    mean = recorded("flower").plain["rows"][0]["questions"]
    assert mean["source"]["status"] != "leak"
    assert "no single update" in mean["separation"]["why"]


@pytest.mark.parametrize("seen", ["shuffle-model", "shuffle-parameter", "sum"])
def test_the_example_as_other_servers_see_it(examples: Path, tmp_path: Path, seen: str) -> None:
    at = tmp_path / seen
    shutil.copytree(examples, at)
    manifest = (at / "updates.toml").read_text()
    (at / "updates.toml").write_text(manifest.replace('"named"', f'"{seen}"'))
    (row,) = recorded(at).plain["rows"]
    assert row["questions"]["source"]["status"] != "leak"
    attacks = row["questions"]["source"]["adversaries"]["server"]["attacks"]
    assert all("value" in one for one in attacks.values())
    assert "same clients" in row["questions"]["separation"]["why"]


def test_a_page_is_written(tmp_path: Path) -> None:
    page = recorded(folder(tmp_path / "one")).save(tmp_path / "page.html")
    assert "recorded" in page.read_text()


def test_sums_of_changing_clients_are_taken_apart(tmp_path: Path) -> None:
    """Clients whose updates never change, and one of whom is missing in each round."""
    at = folder(tmp_path / "one", more='form = "delta"\nstart = "s-{round}.safetensors"\nseen = "sum"')
    keys = names()
    for number in range(1, 9):
        (at / str(number)).mkdir(exist_ok=True)
        save_file(dict(zip(keys, tensors(99).values(), strict=True)), at / f"s-{number}.safetensors")
        for place, who in enumerate(CLIENTS):
            path = at / f"{number}/{who}.safetensors"
            if place == number % 4:
                path.unlink(missing_ok=True)
            else:
                save_file(dict(zip(keys, tensors(place).values(), strict=True)), path)
    cell = recorded(at).plain["rows"][0]["questions"]["separation"]
    assert cell["value"] > 0.99 > cell["prior"]
    assert cell["status"] == "leak"
    assert protocol(read(at)).release.use == "sum"
