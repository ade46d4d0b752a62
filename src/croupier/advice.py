"""Recommend a preset: fixed rules lead from a worry, and from the hosts and clients at hand, to a preset and its cost.

`croupier recommend` calls `recommend` and prints the `Advice`. The rules are a table (`RULES`) that can be read and
argued with; nothing is fitted or guessed. Who learns what, and on what that rests, is computed by `statement` for the
very protocol, and bytes are counted by playing a round of it on a stand-in for the model, or on two smaller ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from croupier import systems
from croupier.core.coins import Coins
from croupier.core.update import Layout, Model, Slice, Update
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.task import Task
from croupier.errors import SpecError
from croupier.pipeline import Pipeline
from croupier.place.masks import Masks
from croupier.privacy.gdp import epsilon_of, mu_for
from croupier.statement import Statement, explain

Worry = Literal["updates", "poisoning", "budgets", "model"]
WORRIES: dict[Worry, str] = {
    "updates": "the server, or who breaks into it, must not see any single update",
    "poisoning": "some clients may lie, and nobody may see single updates",
    "budgets": "every client must have an epsilon of its own that is proved",
    "model": "the server must not be able to use the model that it trains",
}
# A sum of fewer clients than this tells each of them too much of the others, whatever the protocol.
FEW = 5
# Stand-ins for the model: of a larger one bytes follow from these two sizes, since lengths are linear.
_SIZES = (8_000, 16_000)
_PLAYED = 20
# What audits compare with as no defence: all clients count alike.
_PLAIN = systems.plain("uniform")
# The delta of tiers.
_DELTA = 1e-5


@dataclass(frozen=True)
class Needs:
    """What is asked. `hosts`: organisations besides the server that would run a host and not all collude.

    `epsilon`: the budget of one client for the whole run of `rounds`, where it wants one.
    """

    worry: Worry
    clients: int
    parameters: int
    hosts: int = 0
    rounds: int = 10
    epsilon: float | None = None

    def __post_init__(self) -> None:
        """Raises: SpecError."""
        for name, least in (("clients", 2), ("parameters", 1), ("hosts", 0), ("rounds", 1)):
            if getattr(self, name) < least:
                raise SpecError(f"{name} = {getattr(self, name)}: give {least} or more")
        if self.epsilon is not None and not self.epsilon > 0:
            raise SpecError(f"epsilon = {self.epsilon:g}: give a number above 0")
        if self.epsilon is not None and self.worry != "budgets":
            raise SpecError(f"epsilon with worry = {self.worry!r}: only 'budgets' has one; leave it out")


@dataclass(frozen=True)
class AdviceRule:
    """When at least so many hosts and clients are there, this preset answers this worry."""

    worry: Worry
    hosts: int
    clients: int
    preset: str
    make: Callable[[Needs], Pipeline]
    why: str
    remains: str


def _each_time(needs: Needs) -> tuple[float, ...]:
    """The epsilon of one participation of which so many rounds together spend the budget, as the ledger counts them."""
    if needs.epsilon is None:
        return systems.TIERS
    return (epsilon_of(mu_for(needs.epsilon, _DELTA) / needs.rounds**0.5, _DELTA),)


# The first rule that fits is taken: the strongest come first.
RULES = (
    AdviceRule("updates", 2, 3, "rns-servers",
         lambda needs: systems.sum_servers(needs.clients, servers=min(3, needs.hosts)),
         "sum servers of which one honest one suffices; every client checks the sum",
         "the sum itself: with few clients, or cohorts that change by one, it tells about single updates"),
    AdviceRule("updates", 1, 3, "rns", lambda needs: systems.rns(needs.clients),
         "one relay that adds up and lets out nothing but the sum",
         "the relay sees every update and could change it; a second host would make both impossible for one party"),
    AdviceRule("updates", 0, 3, "rns-masks",
         lambda needs: systems.total(needs.clients).model_copy(update={"place": Masks()}),
         "clients mask their updates for each other, so no further host is needed",
         "one missing client costs the round, and nobody checks the sum"),
    AdviceRule("poisoning", 2, systems.LEAST["rain"], "rain", lambda needs: systems.rain(),
         "two servers and a dealer score hidden, shuffled rows of signs and sum what lies near a trusted direction",
         "clients who copy the trusted direction pass; the server needs honest records of its own; accuracy drops"),
    AdviceRule("budgets", 2, systems.LEAST["intra"], "intra-sum",
         lambda needs: systems.intra_sum(needs.clients, tiers=_each_time(needs), servers=min(3, needs.hosts)),
         "each client adds its own noise, and only sums of eight or more clients come out of sum servers",
         "at a small epsilon and few clients the model learns little: run it without noise first and compare"),
    AdviceRule("budgets", 1, systems.LEAST["intra"], "intra", lambda needs: systems.intra(tiers=_each_time(needs)),
         "each client adds its own noise, and a relay shuffles parameters inside buckets of eight or more",
         "what is proved is each client's own noise; the shuffle adds nothing proved; the relay sees noised updates"),
    AdviceRule("model", 0, 3, "tazza", lambda needs: systems.tazza(),
         "clients permute the weights by a secret of theirs, and the server averages what it cannot read off",
         "it is obfuscation, not encryption: the server follows the permutation from round to round, and public data "
         "of the same kind undo most of it"),
)  # fmt: skip


@dataclass(frozen=True)
class Advice:
    """A preset, the protocol for these very numbers, why, its cost, and what remains.

    `up` is what one client sends in a round, `plain` what it would without protection; in bytes.
    """

    needs: Needs
    preset: str
    protocol: Pipeline
    why: str
    remains: tuple[str, ...]
    up: int
    plain: int
    statement: Statement

    def plain_data(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "preset": self.preset, "why": self.why, "remains": list(self.remains), "up": self.up,
            "plain_up": self.plain, "worry": self.needs.worry, "clients": self.needs.clients,
            "parameters": self.needs.parameters, "hosts": self.needs.hosts, "epsilon": self.needs.epsilon,
            "protocol": self.protocol.plain(), "statement": self.statement.plain(),
        }  # fmt: skip


def recommend(needs: Needs) -> Advice:
    """The strongest preset that fits. Raises: SpecError that says what is missing where none does."""
    fitting = [rule for rule in RULES if rule.worry == needs.worry]
    for rule in fitting:
        if needs.hosts >= rule.hosts and needs.clients >= rule.clients:
            return _advice(rule, needs)
    least = fitting[-1]
    raise SpecError(
        f"worry = {needs.worry!r} with {needs.clients} clients and {needs.hosts} hosts: {least.preset} needs "
        f"{least.clients} clients and {least.hosts} hosts at least; find more, or choose another worry"
    )


def _advice(rule: AdviceRule, needs: Needs) -> Advice:
    protocol = rule.make(needs)
    few = () if needs.clients >= FEW else (f"with {needs.clients} clients a sum tells each of them much of the others",)
    return Advice(
        needs, rule.preset, protocol, rule.why, (rule.remains, *few), _bytes_up(protocol, needs),
        _bytes_up(_PLAIN, needs), explain(protocol, rounds=needs.rounds),
    )  # fmt: skip


def _bytes_up(protocol: Pipeline, needs: Needs) -> int:
    """What a client sends in a round, from a round on a stand-in of this size, or on two smaller ones."""
    # Hidden coordinates travel as the floats they are: a stand-in has no network whose symmetries could be found.
    if protocol.encode.rules is not None:
        protocol = _PLAIN
    if needs.parameters <= max(_SIZES):
        return round(_played(protocol, needs, needs.parameters))
    less, more = (_played(protocol, needs, size) for size in _SIZES)
    slope = (more - less) / (_SIZES[1] - _SIZES[0])
    return round(less + slope * (needs.parameters - _SIZES[0]))


def _played(protocol: Pipeline, needs: Needs, size: int) -> float:
    """Bytes up of the mean client in one round of so many parameters; nothing is trained."""
    names = [f"c{number}" for number in range(min(needs.clients, _PLAYED))]
    layout = Layout((Slice("w", (size,)),))
    first = Model(torch.zeros(size))

    def fit(jobs: Sequence[tuple[Any, ...]]) -> list[Update]:
        one = {"weight": torch.ones(1, dtype=torch.float64)}
        return [Update(job[0] + 1e-3 * torch.randn(size, generator=job[2].fast()), layout, one) for job in jobs]

    task = Task(
        {name: name for name in names}, layout, first, fit, lambda model: {},
        root=lambda start, coins: torch.full((size,), 1e-3), features=lambda model: torch.zeros(1),
    )  # fmt: skip
    done = next(rounds(protocol, task, Federation(rounds=1), Coins.from_os(), Local()))
    return sum(done.traffic.sent[name] for name in names) / len(names)
