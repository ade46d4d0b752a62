"""What an audit compares with, and how it says what a protocol is beside the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier import systems
from croupier.audit.arms import arms_of
from croupier.audit.question import Arm
from croupier.audit.setting import setting_of
from croupier.core.coins import Coins
from croupier.learn.assemble import assemble
from croupier.spec import Spec, load
from croupier.toml_read import called


def arms(spec: Spec, against: list[str] | None, name: str = "") -> tuple[list[Arm], dict[str, str]]:
    task = spec.task
    made = assemble(task.data, task.split, task.model, task.fit, Coins.from_seed(0))
    return arms_of(spec, setting_of(spec), against, made, None, called=name)


def of(clients: int, *more: str) -> Spec:
    return load("rns-servers", [f"task.split.clients={clients}", *more])


@pytest.mark.parametrize(("clients", "left"), [(6, ["intra", "rain"]), (9, ["rain"]), (10, [])])
def test_with_too_few_clients_a_system_is_left_out_with_the_reason(clients: int, left: list[str]) -> None:
    found, out = arms(of(clients), None)
    few = {name: f"it needs {systems.LEAST[name]} clients in a round, and here are {clients}" for name in left}
    assert out == few
    assert {"intra", "rain"} - {arm.key for arm in found} == set(left)


def test_who_names_a_system_has_it_compared_with_any_number() -> None:
    found, out = arms(of(6), ["intra"])
    assert [arm.key for arm in found[1:]] == ["none", "intra"]
    assert out == {}


def test_a_protocol_is_told_by_what_it_is_nearest_to() -> None:
    title = "the sum only, by servers of which one must be honest (RNS)"
    (own, *_), _ = arms(of(10, "protocol.aggregate.floor=3"), None, "ward")
    assert own.about == f"ward is as rns-servers ({title}), but aggregate.floor is 3, not 1."
    (same, *_), _ = arms(of(10, "protocol.aggregate.floor=1"), None, "ward")
    assert same.about == f"ward: {title}."
    (far, *_), _ = arms(of(10), ["tazza"])
    assert far.about == ""


def test_a_mere_task_goes_by_its_folder_and_tosses_the_same_coins(tmp_path: Path) -> None:
    file = tmp_path / "ward" / "task.toml"
    assert called("task", file) == called("task", str(file)) == "ward"
    assert called("night", file) == "night"
    assert called("task", file.with_name("other.toml")) == "task"
    assert called("task", tmp_path / "two words" / "task.toml") == "task"
    assert called("task", {}) == "task"
    (own, *_), _ = arms(of(10, "protocol.aggregate.floor=3").model_copy(update={"name": "task"}), None, "ward")
    assert (own.key, own.title, own.node) == ("ward", "your protocol: ward", "task")
