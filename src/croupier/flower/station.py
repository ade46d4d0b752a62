"""Where a party's keys and store lie, as the machine it runs on says; a run's configuration has no say in it.

Whoever starts a run in Flower may set any key of its configuration. So a node is told where its key file lies by its
own operator (`flower-supernode --node-config 'croupier-key="/srv/ann/ann.key"'`, or CROUPIER_KEY), and a run that tries
to say something about it is refused. In Flower's simulation there are no operators: there the server names a folder of
throw-away keys, which a node takes only from within a worker of the simulation. `flower.mod` looks here for a node's
`Station`, `flower.session` for the server's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from croupier.errors import RosterError, SpecError
from croupier.service.accepted import Accepted
from croupier.service.home import Home
from croupier.service.log import Log
from croupier.service.member import Member
from croupier.service.options import Options
from croupier.service.roster import Roster
from croupier.service.store import Store

KEY, ROSTER = "croupier-key", "croupier-roster"
# What a node's operator may set to let queries pass, whose answers nobody protects.
QUERIES = "croupier-queries"
# No key of a run's configuration may begin so.
_PREFIX = "croupier"
_KEYS = {KEY: "CROUPIER_KEY", ROSTER: "CROUPIER_ROSTER"}
PARTITION = "partition-id"


@dataclass(frozen=True)
class Station:
    """One party at home: who it is, the folder of its store, and how it runs.

    Without `flush` its store need not outlive the machine: its folder is thrown away after a rehearsal.
    """

    member: Member
    folder: Path
    options: Options
    flush: bool = True

    def store(self) -> Store:
        """Its store, opened."""
        return Store(self.folder, self.flush)


@dataclass(frozen=True)
class NodeFacts:
    """What a message comes with: the node's own configuration, the run's, and a folder for rehearsals."""

    node: Mapping[str, Any]
    run: Mapping[str, Any]
    rehearsal: str = ""


Find = Callable[[NodeFacts], Station]


def find_station(facts: NodeFacts) -> Station:
    """A node's home, by its own configuration or environment. Raises: SpecError, RosterError, StoreError."""
    if said := sorted(key for key in facts.run if key.startswith(_PREFIX)):
        raise SpecError(
            f"run_config {said[0]!r}: whoever starts a run has no say in how this node is protected; it is set by the "
            f"node's operator alone (--node-config {KEY}=..., or {_KEYS[KEY]})"
        )
    if key := _said(facts.node, KEY):
        return station_at(Path(key), _said(facts.node, ROSTER))
    if facts.rehearsal and in_simulation():
        return station_at(_rehearsed(Path(facts.rehearsal), facts.node), flush=False)
    raise SpecError(
        f"this node has no key file: name it by flower-supernode --node-config '{KEY}=\"/path/NAME.key\"', or by "
        f"{_KEYS[KEY]}; croupier keygen makes one"
    )


def server_key() -> Path | None:
    """The server's key file, as the environment of its machine says; None where it says nothing."""
    found = os.environ.get(_KEYS[KEY])
    return Path(found) if found else None


def queries_pass(node: Mapping[str, Any]) -> bool:
    """Whether a node's operator lets queries pass. Raises: SpecError for what is neither true nor false."""
    found = node.get(QUERIES, False)
    # A word such as "false" counts as true in Python.
    if not isinstance(found, bool):
        raise SpecError(
            f"node_config {QUERIES} = {found!r:.40}: write true or false, in small letters and without quotes "
            f"(--node-config '{QUERIES}=false')"
        )
    return found


def _said(node: Mapping[str, Any], key: str) -> str:
    """A path, by a node's configuration or else its environment. Raises: SpecError for what is no path."""
    found = node.get(key)
    if found is None:
        return os.environ.get(_KEYS[key]) or ""
    if not isinstance(found, str) or not found:
        raise SpecError(
            f"node_config {key} = {found!r:.40}: give a path in quotes (--node-config '{key}=\"/path/FILE\"'), or "
            f"leave the key out, so that {_KEYS[key]} counts"
        )
    return found


def in_simulation() -> bool:
    """Whether this process is a worker of Flower's simulation, which is an actor of Ray's."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


def _rehearsed(folder: Path, node: Mapping[str, Any]) -> Path:
    """The throw-away key of a simulated node: clients are counted as Flower counts partitions."""
    name = client_name(int(node[PARTITION]))
    return folder / name / f"{name}.key"


def client_name(number: int) -> str:
    """What a simulated node is called."""
    return f"node{number:05d}"


def station_at(key: Path, roster: str = "", flush: bool = True) -> Station:
    """The party whose key file this is, in the run whose roster it accepted. Raises: RosterError, StoreError."""
    home = Home.open(key)
    if roster:
        accepted = Accepted(home, home.pinned_as(Roster.read(Path(roster))).run)
    else:
        runs = home.runs()
        if len(runs) != 1:
            raise RosterError(
                f"{home.keys.name} has accepted rosters of {len(runs)} runs; accept one (croupier accept), or name the "
                f"roster of this one: {ROSTER} in the node's configuration, or {_KEYS[ROSTER]}"
            )
        accepted = Accepted(home, runs[0])
    options = Options(tell=Log(home.keys.name), versions=accepted)
    return Station(accepted.first(), home.run_folder(accepted.run) / "store", options, flush)
