"""A client's own training, and what is changed of a description on one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.enrolled import roster
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice, Update
from croupier.errors import OwnError, SpecError
from croupier.learn.own_names import FunctionName
from croupier.service.training import OwnFit, assembled, at_home, check_layout, load_training, shard_of, task_at_hand
from croupier.spec import load

LAYOUT = Layout((Slice("a.weight", (2, 3)), Slice("a.bias", (2,)), Slice("a.count", (), "counter")))
START = torch.arange(8.0)
Weights = Mapping[str, Tensor]


def fitted(train: Callable[..., Any], number: int = 7) -> Any:
    (found,) = OwnFit(FunctionName("mine:train", function=train), LAYOUT, lambda: number)([(START, "", None)])
    return found


def test_named_tensors_and_the_round_go_in_and_an_update_comes_out() -> None:
    seen: dict[str, Any] = {}

    def train(weights: dict[str, Tensor], round: int) -> tuple[Weights, int]:
        seen.update({name: value.clone() for name, value in weights.items()}, round=round)
        # In place, too: the model that was handed out must not change with it.
        weights["a.bias"] += 1
        return weights, 12

    found = fitted(train)
    assert isinstance(found, Update)
    assert (seen["round"], set(seen)) == (7, {"a.weight", "a.bias", "round"})
    assert torch.equal(seen["a.weight"], torch.arange(6.0).reshape(2, 3))
    assert found.vector.tolist() == [0, 1, 2, 3, 4, 5, 7, 8]
    assert found.luggage["weight"].tolist() == [12.0]
    assert torch.equal(START, torch.arange(8.0))


def good(weights: Weights) -> dict[str, Tensor]:
    return dict(weights)


WRONG: dict[str, tuple[Callable[[Weights], Any], str]] = {
    "nothing": (lambda weights: None, "it gave NoneType; give the new weights by name"),
    "no count": (lambda weights: good(weights), "it gave dict; give the new weights by name"),
    "no examples": (lambda weights: (good(weights), 0), "examples = 0: give a whole number of 1 or more"),
    "a truth": (lambda weights: (good(weights), True), "examples = True"),
    "missing": (lambda weights: ({"a.weight": weights["a.weight"]}, 1), "a.bias is missing; give all of 2 tensors"),
    "more": (lambda weights: ({**weights, "b": START}, 1), "'b' is none of the tensors that it was given"),
    "a list": (lambda weights: ({**weights, "a.bias": [1.0, 2.0]}, 1), "a.bias is list of 2; give a torch tensor"),
    "shape": (lambda weights: ({**weights, "a.bias": torch.ones(3)}, 1), r"a.bias has shape \(3,\), not \(2,\)"),
    "dtype": (
        lambda weights: ({**weights, "a.bias": torch.ones(2).double()}, 1), "a.bias has dtype float64, not float32",
    ),
    "nan": (
        lambda weights: ({**weights, "a.bias": torch.tensor([1.0, torch.nan])}, 1),
        "a.bias has 1 of 2 values that are NaN or infinite",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_it_gives_is_checked_and_told_by_file_and_line(case: str) -> None:
    made, says = WRONG[case]

    def train(weights: Weights, round: int) -> Any:
        return made(weights)

    found = fitted(train)
    assert isinstance(found, OwnError)
    line = train.__code__.co_firstlineno
    with pytest.raises(OwnError, match=rf"--fit = 'mine:train': .*test_service_training.py line {line}: {says}"):
        raise found


def test_what_it_raises_is_told_by_its_line() -> None:
    def train(weights: Weights, round: int) -> Any:
        raise KeyError("age")

    said = str(fitted(train))
    assert f"line {train.__code__.co_firstlineno + 1}, in train: KeyError: 'age'" in said


def test_what_takes_other_arguments_is_told_how_to_write_it() -> None:
    assert "write def train(weights, round)" in str(fitted(_takes_one))


def _takes_one(weights: Weights) -> Any:
    raise AssertionError


_takes_one.__name__ = "train"


def test_a_function_is_found_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_training_here.py").write_text("def train(weights, round):\n    return weights, 1\n")
    found = load_training("own_training_here:train")
    assert (str(found), found.function is not None) == ("own_training_here:train", True)
    for name, says in {
        "own_training_here": "write module:function", "own_training_here:none": "has no function 'none'",
        "absent_here:train": "there is no absent_here.py", "os:system": "a module of Python itself",
    }.items():  # fmt: skip
        with pytest.raises(SpecError, match=says) as told:
            load_training(name)
        assert str(told.value).startswith(f"--fit = {name!r}: ")


def test_only_the_task_and_the_machine_are_ones_own() -> None:
    assert at_home(roster(), []) is None
    changed = at_home(roster(), ["task.split.clients=1", "run.workers=1"])
    assert changed is not None
    assert changed.task.split.plain()["clients"] == 1
    assert changed.protocol == roster().spec.protocol
    for one in ("federation.rounds=9", "protocol.place.servers=2", "name=x"):
        with pytest.raises(SpecError, match="everybody accepted the rest of the description"):
            at_home(roster(), [one])


def test_shapes_and_shards() -> None:
    spec, coins = load("rns-servers", {"task.split.clients": 2}), Coins.from_seed(1)
    made, task = task_at_hand(spec, coins), assembled(spec, coins).task
    assert (made.layout, made.inputs) == (task.layout, (64,))
    check_layout(task.layout, made.layout)
    first = min(task.shards)
    assert shard_of(task, first) == task.shards[first]
    with pytest.raises(SpecError, match="none is called 'ann'; with records of your own"):
        shard_of(task, "ann")
    with pytest.raises(SpecError, match=r"a.weight of shape \(2, 3\), and the roster's has not"):
        check_layout(LAYOUT, made.layout)
    with pytest.raises(SpecError, match="make it anew"):
        check_layout(LAYOUT, Layout(()))
