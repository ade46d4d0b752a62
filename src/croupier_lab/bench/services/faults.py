"""A campaign of faults against the services: whatever is killed, cut, full or restored, no round may come out wrong.

Every run is a whole federation that is struck several times: most of them in one process (`deployment`), some with real
processes (`killed_processes`). Its models are compared with those of a simulation of the same seed with the same
clients present. Four counts must be 0: `lost` (a round, a letter that was said to be durable, an ending without a named
error), `wrong` (another model, or an alarm without a cause), `hung` (a party past the last deadline) and `reused` (two
different letters where one was due). A round that ends with a named error is no failure. Real processes hide more:
`lost` leaves letters out there, `wrong` alarms, `hung` counts runs, and `reused` nothing. `croupier bench faults` runs
it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pydantic import Field

from croupier.core import canon
from croupier.core.coins import Coins, Stream
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import AT_THE_START, rounds
from croupier.engine.state import State, Threat
from croupier.errors import CroupierError, IntegrityError
from croupier_lab.bench.services.deployment import Deployment, PlayedServices, ServiceFault, clocks
from croupier_lab.bench.services.killed_processes import play_processes
from croupier_lab.bench.services.toy import CLIENTS, PIPELINES, toy_task
from croupier_lab.bench.size import BenchSize, Watch, ignore

ROUNDS = 2
FAILURES = ("lost", "wrong", "hung", "reused")
TROUBLES = ("request cut", "answer cut", "delayed", "repeated")
# Every run has kills and broken connections, and one of these besides.
SPECIALS = ("stopped", "disk", "clock ahead", "clock behind", "restored", "gone", "disk", "stopped")
PLAN = Federation(rounds=ROUNDS)


class FaultsSize(BenchSize):
    """How many faults in all and in each run, how many runs at a time, and how many runs have real processes."""

    faults: int = Field(1000, ge=1, description="Faults to inject, in one process and in many.")
    kills: int = Field(3, ge=0, description="Kills of each run.")
    cuts: int = Field(3, ge=0, description="Connections cut, slowed or repeated in each run.")
    processes: int = Field(12, ge=0, description="Runs whose parties are processes of their own, killed by SIGKILL.")
    together: int = Field(3, ge=1, description="Runs at a time.")
    pipelines: tuple[str, ...] = tuple(PIPELINES)


@dataclass(frozen=True)
class Moments:
    """When a pipeline's parties can be struck: the steps of a run without faults, and how many calls each made."""

    steps: tuple[tuple[str, str, int], ...]
    calls: Mapping[str, int]


@dataclass
class Campaign:
    """What is known of each pipeline's steps, and what was counted so far."""

    coins: Coins
    moments: dict[str, Moments] = field(default_factory=dict)
    points: dict[str, list[tuple[str, str, int]]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    aborts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    async def learn(self, name: str) -> None:
        """Play a pipeline once without faults, to learn at which steps its parties can be struck."""
        played = await self._play(name, ())
        if found := judge(name, played, self.coins):
            raise CroupierError(f"{name}: a run without faults gave {dict(found)}: {played.ended}")
        steps = tuple(sorted(set(played.steps)))
        self.moments[name] = Moments(steps, dict(played.network.calls))
        self.points[name] = []

    def draw(self, name: str, special: str, size: FaultsSize, chance: Stream) -> tuple[ServiceFault, ...]:
        """The faults of one run: each kill at a step that was not struck before, while there are such."""
        moments, faults = self.moments[name], list[ServiceFault]()
        for _ in range(size.kills):
            if not self.points[name]:
                self.points[name] = _shuffled(moments.steps, chance)
            faults.append(ServiceFault("killed", *self.points[name].pop()))
        for _ in range(size.cuts):
            party = _one(sorted(moments.calls), chance)
            number = 1 + int(chance.below(moments.calls[party])[0])
            faults.append(ServiceFault(_one(TROUBLES, chance), party, "", number))
        return (*faults, *self._special(name, special, chance))

    def _special(self, name: str, special: str, chance: Stream) -> tuple[ServiceFault, ...]:
        steps = self.moments[name].steps
        of_clients = [step for step in steps if step[0] in CLIENTS]
        if special == "restored":
            # A copy from some step of a round; more rounds are played, or the rest of this one; then it is put back.
            who = _one(CLIENTS, chance)
            own = [step for step in of_clients if step[0] == who]
            order = [at for number in range(ROUNDS) for at in _ordered(own, number)]
            first = int(chance.below(len(order) - 1)[0])
            later = first + 1 + int(chance.below(len(order) - first - 1)[0])
            return ServiceFault("saved", *order[first]), ServiceFault("restored", *order[later])
        if special == "gone":
            # Three in ten clients, rounded up: two of the six.
            lost = _shuffled(CLIENTS, chance)[: len(CLIENTS) * 3 // 10 + 1]
            return tuple(ServiceFault("gone", *_one([at for at in of_clients if at[0] == who], chance)) for who in lost)
        return (ServiceFault(special, *_one(steps, chance)),)

    async def strike(self, name: str, faults: Sequence[ServiceFault]) -> None:
        """Play one run with faults, judge it, and count."""
        played = await self._play(name, faults)
        found = judge(name, played, self.coins)
        self.counts.update(found)
        self.counts["runs"] += 1
        struck = [one.what for one in played.injected if one.what != "saved"] + played.network.met
        self.counts["injected"] += len(struck)
        self.kinds.update(struck)
        if (error := played.ended.get("server")) is not None:
            self.counts["aborted"] += 1
            self.aborts[f"{name}: {str(error)[:100]}"] += 1
        if found:
            self.failures.append(f"{name}: {dict(found)}; {played.injected} {played.network.met}; {_why(played)}")

    async def _play(self, name: str, faults: Sequence[ServiceFault]) -> PlayedServices:
        with tempfile.TemporaryDirectory(prefix="croupier-faults-") as folder:
            deployment = Deployment(PIPELINES[name], toy_task(), PLAN, self.coins, Path(folder), faults=faults)
            return await deployment.clocked()


def judge(name: str, played: PlayedServices, coins: Coins) -> Counter[str]:
    """What went wrong in a run, by kind; nothing when all is well or the run ended with a named error."""
    found: Counter[str] = Counter()
    server = played.ended.get("server")
    found["lost"] += played.lost_letters
    found["lost"] += sum(one is not None and not isinstance(one, CroupierError) for one in played.ended.values())
    if server is None and "server" not in played.stuck and len(played.lines) < ROUNDS:
        found["lost"] += 1
    found["wrong"] += sum(
        isinstance(one, IntegrityError) and name not in played.restored for name, one in played.ended.items()
    )
    found["wrong"] += _differing(name, played, coins)
    found["hung"] += len(played.stuck)
    found["reused"] += len(played.network.reused)
    return +found


def _differing(name: str, played: PlayedServices, coins: Coins) -> int:
    """How many rounds have another model than a simulation with the same clients present."""
    differing, state = 0, None
    for line in played.lines:
        number = int(line["round"]) - 1
        gone = frozenset(CLIENTS) - set(played.present.get(number, ()))
        if state is not None:
            # A client that came too late has spent its participation all the same.
            state = State(state.round, state.memories, played.participations.get(number, {}))
        start = replace(AT_THE_START, state=state)
        threat = Threat(absent=lambda _, gone=gone: gone)  # type: ignore[misc]
        try:
            done = next(rounds(PIPELINES[name], toy_task(), PLAN, coins, Local(), start=start, threat=threat))
        except CroupierError:
            return differing + 1
        if played.restored & set(done.present) and number >= played.restored_in:
            # It came back with coins of its own, before anything of it had left: nothing to compare with.
            return differing
        state = done.state
        differing += canon.digest(state.model.vector).hex() != line["model"]
    return differing


def _why(played: PlayedServices) -> str:
    ends = {name: repr(one)[:160] for name, one in played.ended.items() if one is not None}
    return f"ended {ends}, stuck {played.stuck}, reused {played.network.reused[:2]}"


def _ordered(steps: Sequence[tuple[str, str, int]], number: int) -> list[tuple[str, str, int]]:
    """A client's steps of a round, as they follow each other."""
    order = ("open", "got:seed", "got:model", "work:fit", "work:spend", "leave", "sent", "got", "end")

    def place(at: tuple[str, str, int]) -> int:
        return next(where for where, what in enumerate(order) if at[1] == what or at[1].split(":")[0] == what)

    return sorted((at for at in steps if at[2] == number), key=place)


def _one(choices: Sequence[Any], chance: Stream) -> Any:
    return choices[int(chance.below(len(choices))[0])]


def _shuffled(items: Sequence[Any], chance: Stream) -> list[Any]:
    left, drawn = list(items), []
    while left:
        drawn.append(left.pop(int(chance.below(len(left))[0])))
    return drawn


async def _learn(size: FaultsSize, campaign: Campaign) -> None:
    for name in size.pipelines:
        await asyncio.create_task(campaign.learn(name))


def _processes(size: FaultsSize, campaign: Campaign, watch: Watch) -> None:
    # From a process that has never used the transport, whose threads a fork would not survive.
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        for number in range(size.processes):
            watch(f"processes of their own, run {number + 1} of {size.processes}")
            name = size.pipelines[number % len(size.pipelines)]
            seed = int(campaign.coins.child("process", number).secure().below(1 << 30)[0])
            found, why = fresh.submit(play_processes, name, campaign.moments[name].steps, seed).result()
            campaign.counts.update(found)
            campaign.kinds["killed, a process"] += found["injected"]
            if why:
                campaign.aborts[f"{name}, processes: {why[:100]}"] += 1
            if failed := {what: found[what] for what in FAILURES if found[what]}:
                campaign.failures.append(f"{name}, processes, seed {seed}: {failed}")


async def _campaign(size: FaultsSize, campaign: Campaign, watch: Watch) -> None:
    chance = campaign.coins.child("faults").secure()
    number = 0
    while campaign.counts["injected"] < size.faults:
        batch = []
        for _ in range(size.together):
            name = size.pipelines[number % len(size.pipelines)]
            special = SPECIALS[(number // len(size.pipelines) + number) % len(SPECIALS)]
            batch.append(campaign.strike(name, campaign.draw(name, special, size, chance)))
            number += 1
        await asyncio.gather(*batch)
        watch(f"{campaign.counts['injected']} of {size.faults} faults, {campaign.counts['aborted']} runs aborted")


def measure(size: FaultsSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Run the campaign: first learn the steps, then kill real processes, then strike deployments in this process."""
    start = time.perf_counter()
    campaign = Campaign(Coins.from_seed(seed))
    with clocks():
        asyncio.run(_learn(size, campaign))
        _processes(size, campaign, watch)
        asyncio.run(_campaign(size, campaign, watch))
    counts = campaign.counts
    return {
        **{what: counts[what] for what in ("injected", *FAILURES, "runs", "aborted")}, "processes": size.processes,
        "kinds": dict(sorted(campaign.kinds.items())), "aborts": dict(campaign.aborts.most_common()),
        "failures": campaign.failures, "seconds": time.perf_counter() - start,
    }  # fmt: skip


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(
        f"{found['injected']} faults in {found['runs']} runs; {found['aborted']} runs ended early, with a named error; "
        f"{found['seconds']:.0f} s"
    )
    print("  " + ", ".join(f"{what} {found[what]}" for what in FAILURES) + " (all must be 0)")
    if found["processes"]:
        print(
            f"  of the {found['processes']} runs with real processes `reused` counts nothing, `lost` no letters, "
            "`wrong` no alarms, and `hung` a whole run"
        )
    print("  " + ", ".join(f"{kind} {count}" for kind, count in found["kinds"].items()))
    for line in found["failures"]:
        print(f"  {line}")
