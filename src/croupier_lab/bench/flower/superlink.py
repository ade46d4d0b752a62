"""A SuperLink and SuperNodes on this machine, as the processes that they are, for one run of an app.

Everything lies in a folder of its own (`FLWR_HOME`), every process in a group of its own, and both are gone at the end;
only compiled files stay, for the next run. With keys, each node is told where its own lie, and the SuperLink's
environment names the server's. `deployed` starts runs with it for `croupier bench flower --nodes`, and so do tests.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from croupier.errors import ProtocolError
from croupier.service.rehearsal import free_ports
from croupier_lab.bench.flower.tap import Tap

APP = Path(__file__).parent / "app"
_SECAGG = Path(__file__).parent / "app_secagg"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "OMP_NUM_THREADS": "1", "FLWR_LOG_LEVEL": "INFO",
}  # fmt: skip
# Flower starts a process for each message, so compiled files are kept here, as an installed package has them.
_COMPILED = Path(tempfile.gettempdir()) / f"croupier-bench-compiled-{os.getuid()}"
_READY = 60.0
# How Flower begins to tell of a round, and how the app tells what it found.
_ROUND, _SAID = "[ROUND ", "roundapp: {"


def plain_copy(app: Path, folder: Path) -> Path:
    """A copy of the app without protection: its two lines and their imports are taken out, and all else is as it is."""
    copy = folder / "plain"
    shutil.copytree(app, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path in copy.rglob("*.py"):
        lines = path.read_text("utf-8").splitlines(keepends=True)
        kept = [line for line in lines if "import croupier.flower" not in line and "flower.protect(" not in line]
        text = "".join(kept).replace("mods=[croupier.flower.shield]", "")
        path.write_text(text, "utf-8")
    return copy


def secagg_copy(app: Path, folder: Path) -> Path:
    """A copy of the app under Flower's SecAgg+: the same task, with the two programs as SecAgg+ needs them."""
    copy = folder / "secagg"
    for source in (app, _SECAGG):
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return copy


@dataclass
class SuperLink:
    """A running SuperLink with its nodes; with a `tap`, nodes dial that, and it keeps what is stored and relayed."""

    folder: Path
    port: int
    env: dict[str, str]
    tap: Tap | None = None
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    # Seconds of processors that all processes had used when each round of the last run began, and at its end.
    spent: list[float] = field(default_factory=list)

    def start(self, name: str, command: list[str], env: Mapping[str, str] | None = None) -> None:
        """Start a process that writes NAME.log."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def log(self, name: str) -> str:
        """What a process said so far."""
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def await_text(self, name: str, text: str, seconds: float = _READY) -> None:
        """Wait until a process has said something. Raises: ProtocolError when it does not."""
        end = time.monotonic() + seconds
        while text not in self.log(name):
            if time.monotonic() > end or self.processes[name].poll() is not None:
                raise ProtocolError(f"{name} did not say {text!r} in {seconds:.0f} s: {self.log(name)[-800:]}")
            time.sleep(0.1)

    def kill(self, name: str) -> None:
        """Kill a process with all that it started, at once."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def processor_seconds(self) -> float:
        """Seconds of processors so far, of all processes that were started here and those that these started."""
        told = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                # The name of a process may hold anything, and ends with the last bracket.
                words = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                told[int(entry.name)] = int(words[1]), sum(map(int, words[11:15]))
        ours = {process.pid for process in self.processes.values()} & set(told)
        while more := {pid for pid, (parent, _) in told.items() if parent in ours} - ours:
            ours |= more
        return sum(told[pid][1] for pid in ours) / os.sysconf("SC_CLK_TCK")

    def run(self, app: Path, config: str = "", seconds: float = 900.0) -> str:
        """Run an app to its end, and give what it said. Raises: ProtocolError when it takes too long."""
        more, end = ["--run-config", config] if config else [], time.monotonic() + seconds
        self.start("run", ["flwr", "run", str(app), "here", "--stream", *more])
        self.spent.clear()
        try:
            while self.processes["run"].poll() is None:
                if time.monotonic() > end:
                    raise ProtocolError(f"flwr run did not end in {seconds:.0f} s: {self.log('run')[-800:]}")
                time.sleep(0.2)
                if self.log("run").count(_ROUND) + self.log("run").count(_SAID) > len(self.spent):
                    self.spent.append(self.processor_seconds())
        finally:
            self.kill("run")
        return self.log("run")


@contextmanager
def superlink(env: Mapping[str, str] | None = None, tapped: bool = False) -> Iterator[SuperLink]:
    """A SuperLink without nodes; all that was started is ended. With `tapped` its database lies in a file."""
    folder = Path(tempfile.mkdtemp(prefix="croupier-superlink-"))
    (port,), state = free_ports(1), folder / "state"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    around = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own = {"PATH": path, "FLWR_HOME": str(folder), "PYTHONPYCACHEPREFIX": str(_COMPILED)}
    made = SuperLink(folder, port, {**around, **QUIET, **own, **(env or {})})
    text = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (folder / "config.toml").write_text(text, "utf-8")
    more = list[str]()
    try:
        if tapped:
            state.mkdir()
            more, made.tap = ["--database", str(state / "superlink.db")], Tap(port, state)
        made.start("superlink", ["flower-superlink", "--insecure", "--port", str(port), *more])
        _await_port(port)
        yield made
    finally:
        for name in list(made.processes):
            made.kill(name)
        if made.tap:
            made.tap.close()
        shutil.rmtree(folder, ignore_errors=True)


def _await_port(port: int, seconds: float = 2 * _READY) -> None:
    """Wait until something listens at a port of this machine. Raises: ProtocolError when nothing does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.1)
    raise ProtocolError(f"nothing listens at port {port} after {seconds:.0f} s")


def add_node(link: SuperLink, number: int, count: int, key: Path | None = None, guard: Path | None = None) -> str:
    """Start a SuperNode for one partition; with its operator's key file, and a guard before Flower's command."""
    name, (port,) = f"node{number}", free_ports(1)
    config = f"partition-id={number} num-partitions={count}" + (f' croupier-key="{key}"' if key else "")
    path = {"PATH": f"{guard}{os.pathsep}{link.env['PATH']}"} if guard else {}
    dials = link.tap.port if link.tap else link.port
    command = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{dials}", "--port", str(port)]
    link.start(name, [*command, "--node-config", config], {**path, "CROUPIER_KEY": ""})
    return name


def found_in(said: str) -> dict[str, Any]:
    """What the app printed at its end. Raises: ProtocolError when it did not come so far."""
    for line in said.splitlines():
        if _SAID in line:
            found: dict[str, Any] = json.loads(line.partition("roundapp: ")[2])
            return found
    raise ProtocolError(f"the app did not end: {said[-1500:]}")
