"""Test agreement on a secret rule under random faults, and measure what it costs by the number of clients.

Tazza's clients agree on a secret, from which follows in which order hidden units lie (the rule), jointly or by PBFT,
through a relay. `croupier bench agree` plays schedules of faults and counts failures, each of which must be 0.
`splits`: two honest clients hold different secrets of one agreement, or different rules of one round. `unnamed`: an
honest client ended without the rule and without a reason. `late`: one ended after the last turn. `stuck`: an attempt
without a fault did not end in agreement. `lost`, counted under PBFT with a sound relay and at most f faulty clients: an
honest client ended without the rule. `leaks`: a secret, or a round's seed made of it, stands as it is, in hex or
reversed in what the relay received. Then it times agreements without faults, and counts rounds that nobody can open
because no client of the cohort knows the last rule (`lost_rules`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from croupier.agree.agreement import AgreementCall, AgreementForm
from croupier.agree.board import SERVER, enrol
from croupier.agree.commit_reveal import JOINT, TURNS
from croupier.agree.pbft.agreement import pbft
from croupier.agree.pbft.views import NONE, heads
from croupier.agree.standing import Standing
from croupier.core.coins import Coins
from croupier.core.epoch import disjoint_cohort_chance
from croupier.core.view import View, facts
from croupier.engine.local import Local
from croupier.errors import CroupierError, ProtocolError
from croupier.mpc.joint import rule_seed
from croupier_lab.bench.agreement.fault_schedules import Schedule, draw
from croupier_lab.bench.agreement.faulty_parties import Mischief
from croupier_lab.bench.agreement.lost_rules import played
from croupier_lab.bench.agreement.table import AgreementAttempt, AgreementTable, settle, tries
from croupier_lab.bench.size import BenchSize, Watch, ignore

FormName = Literal["joint", "pbft"]
RUN = bytes(range(16))
# Rounds whose rules are compared, and whose seeds are looked for in what the relay received.
ROUNDS = 4
# Clients of a schedule, drawn from these; 4, the least with which PBFT bears a faulty client, twice as often.
SMALL = (4, 4, 5, 7)
FAILURES = ("splits", "unnamed", "late", "stuck", "lost", "leaks")


class AgreementSize(BenchSize):
    """How much is tried: schedules of each form, attempts of each, the numbers of clients that are timed, repeats.

    `rounds`: in so many rounds, 10 of 100 clients agree anew each, to count the rounds that nobody can open.
    """

    schedules: int = Field(1000, ge=0, description="Random schedules of faults for each form.")
    attempts: int = Field(3, ge=3)
    clients: tuple[Annotated[int, Field(ge=4)], ...] = Field(
        (4, 10, 25, 50, 100),
        description="Clients of the timed agreements; may be repeated. By default 4 to 100.",
    )
    repeats: int = Field(1, ge=1, description="Timed repeats; the best counts.")
    rounds: int = Field(
        100, ge=0, description="Rounds in which 10 of 100 agree anew, to count those that nobody can open."
    )


@dataclass(frozen=True)
class ScheduleVerdict:
    """What became of one schedule, over its attempts.

    `agreed` and `aborted` count how often an honest client got the rule, and how often it ended without it.
    """

    schedule: Schedule
    agreed: int
    aborted: int
    failures: Mapping[str, int]


def judge(name: FormName, form: AgreementForm, coins: Coins, attempts: int) -> ScheduleVerdict:
    """Play one random schedule; with three attempts or more, as every size has, the last one is without a fault."""
    chance = coins.child("schedule").secure()
    clients = SMALL[int(chance.below(len(SMALL))[0])]
    names = tuple(f"c{number}" for number in range(clients))
    call = call_of(name, names)
    most = call.faulty if name == "pbft" else clients - 2
    head = heads(names, call.number, NONE)[0] if name == "pbft" else ""
    schedule = draw(name, clients, chance, most, head)
    keys = enrol(names, coins.child("keys"))
    mischief = Mischief(name, schedule, coins.child("mischief").secure(), keys)
    table = AgreementTable(keys, coins.child("table"), Local(), tamper=mischief, keep="keep")
    done = list(tries(form, call, table, attempts))
    return _verdict(name, schedule, done)


def _verdict(name: FormName, schedule: Schedule, done: Sequence[AgreementAttempt]) -> ScheduleVerdict:
    honest = schedule.honest
    found: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    secrets_by_number: dict[int, set[bytes]] = {}
    for number, tried in enumerate(done):
        got = {who: tried.held[who] for who in honest if who in tried.held}
        secrets_by_number.setdefault(tried.call.number, set()).update(standing.secret for standing in got.values())
        ends.update(agreed=len(got), aborted=len(honest) - len(got))
        found["unnamed"] += sum(who not in got and not tried.aborts.get(who) for who in honest)
        found["late"] += sum(len(tried.result.views[who].inputs) > deadline(name, tried.call) for who in honest)
        found["stuck"] += number >= schedule.until and len(tried.held) < len(schedule.clients)
        if name == "pbft" and not schedule.relay:
            found["lost"] += len(honest) - len(got)
    found["splits"] = sum(len(secrets) > 1 for secrets in secrets_by_number.values()) + _rules(honest, done)
    secrets = {s.secret for tried in done for s in tried.held.values()}
    found["leaks"] = leaks(secrets, [tried.result.views[SERVER] for tried in done])
    return ScheduleVerdict(schedule, ends["agreed"], ends["aborted"], {what: found[what] for what in FAILURES})


def _rules(honest: tuple[str, ...], done: Sequence[AgreementAttempt]) -> int:
    """How many rounds honest clients would train under different rules, counted anew after each attempt."""
    now: dict[str, Standing] = {}
    splits = 0
    for tried in done:
        now |= {who: tried.standings[who] for who in honest if who in tried.standings}
        for number in range(ROUNDS):
            splits += len({_rule(standing, number) for standing in now.values()} - {b""}) > 1
    return splits


def _rule(standing: Standing, number: int) -> bytes:
    try:
        return standing.rule(RUN, number)[0]
    except ProtocolError:
        return b""


def deadline(name: FormName, call: AgreementCall) -> int:
    """The most turns that a client waits in."""
    return len(TURNS) if name == "joint" else 1 + 7 * (call.faulty + 2)


def leaks(secrets: set[bytes], views: Sequence[View]) -> int:
    """How many forms of secrets, and of rounds' seeds derived from them, stand in what somebody received."""
    text = b"\0".join(_bytes(facts(view)["inputs"]) for view in views)
    wanted = {form for secret in secrets for form in _forms(secret)}
    return sum(form in text for form in wanted)


def _forms(secret: bytes) -> list[bytes]:
    seeds = [secret, *(rule_seed(RUN, secret, number) for number in range(ROUNDS))]
    return [form for seed in seeds for form in (seed, seed.hex().encode(), seed[::-1])]


def _bytes(value: Any) -> bytes:
    if isinstance(value, Tensor):
        return value.numpy().tobytes()
    if isinstance(value, Mapping):
        return b"\0".join(_bytes(item) for item in value.values())
    if isinstance(value, tuple | list):
        return b"\0".join(_bytes(item) for item in value)
    return value if isinstance(value, bytes) else str(value).encode()


def call_of(name: FormName, names: tuple[str, ...]) -> AgreementCall:
    """The agreement that is called for: of an epoch for joint secrets, of a round for PBFT."""
    return AgreementCall(RUN, 0, 0, names) if name == "joint" else AgreementCall.single(RUN, 0, names)


def form_of(name: FormName) -> AgreementForm:
    """The form of agreement with this name."""
    return JOINT if name == "joint" else pbft()


def trials(name: FormName, form: AgreementForm, size: AgreementSize, coins: Coins, watch: Watch) -> dict[str, Any]:
    """All schedules of one form, added up."""
    total: Counter[str] = Counter()
    for number in range(size.schedules):
        verdict = judge(name, form, coins.child(name, number), size.attempts)
        plan = verdict.schedule
        total.update(verdict.failures)
        total.update(
            agreed=verdict.agreed, aborted=verdict.aborted, faulty_clients=len(plan.faulty), faulty_relays=plan.relay,
            twins=plan.twins,
        )  # fmt: skip
        if number % 20 == 19:
            watch(f"{name}: {number + 1} of {size.schedules}")
    return {"schedules": size.schedules, "attempts": size.schedules * size.attempts, **total}


def cost(name: FormName, clients: int, coins: Coins, repeats: int) -> dict[str, Any]:
    """One agreement without faults, everybody in one process; seconds are those of everybody together."""
    names = tuple(f"c{number:03}" for number in range(clients))
    keys, seconds = enrol(names, coins.child("keys")), []
    for repeat in range(repeats):
        table = AgreementTable(keys, coins.child("table", repeat), Local(coins.child("links", repeat)))
        start = time.perf_counter()
        agreed = settle(form_of(name), call_of(name, names), table, attempts=1)
        seconds.append(time.perf_counter() - start)
        if len(set(agreed.secrets.values())) != 1:
            raise CroupierError(f"{name}: {clients} clients ended with different secrets")
    traffic = agreed.traffic[0]
    ups = sum(traffic.sent[who] for who in names) / clients
    return {
        "form": name, "clients": clients, "messages": traffic.messages, "bytes": sum(traffic.sent.values()),
        "client_up_bytes": round(ups), "client_down_bytes": round(sum(traffic.got[w] for w in names) / clients),
        "seconds": min(seconds), "client_s": min(seconds) / clients,
    }  # fmt: skip


def measure(size: AgreementSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Count faults, time agreements, and count rounds in which nobody of 10 clients out of 100 knows the last rule."""
    coins = Coins.from_seed(seed)
    forms: tuple[FormName, ...] = ("joint", "pbft")
    faults = {name: trials(name, form_of(name), size, coins.child("faults"), watch) for name in forms}
    costs = []
    for name in forms:
        for clients in size.clients:
            watch(f"{name}: timed among {clients} clients")
            costs.append(cost(name, clients, coins.child("cost", name, clients), size.repeats))
    if size.rounds:
        watch(f"{size.rounds} rounds that agree anew")
    return {
        "faults": faults,
        "cost": costs,
        "strangers": played(100, 10, size.rounds, coins.child("strangers"))
        if size.rounds
        else {"enrolled": 100, "cohort": 10, "share": disjoint_cohort_chance(100, 10)},
    }


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    for name, total in found["faults"].items():
        if total["schedules"]:
            print(
                f"{name}: {total['schedules']} schedules of faults, {total['attempts']} attempts: an honest client got "
                f"the rule {total['agreed']} times, and stopped with a reason {total['aborted']} times"
            )
            print("  " + ", ".join(f"{what} {total[what]}" for what in FAILURES) + " (all must be 0)")
    print(f"{'':<8}{'clients':>8}{'messages':>10}{'bytes':>12}{'up a client':>13}{'seconds':>9}{'a client':>10}")
    for row in found["cost"]:
        print(
            f"{row['form']:<8}{row['clients']:>8}{row['messages']:>10}{row['bytes']:>12}{row['client_up_bytes']:>13}"
            f"{row['seconds']:>9.2f}{row['client_s']:>10.4f}"
        )
    share = found["strangers"]
    print(
        f"agreed anew each round by {share['cohort']} of {share['enrolled']}: {share['share']:.1%} of the rounds hold "
        "nobody who knows the last rule"
    )
    if "lost" in share:
        print(
            f"  held here: {share['lost']} of {share['rounds']} rounds were lost, {share['measured']:.1%} "
            f"({share['low']:.1%} to {share['high']:.1%})"
        )
