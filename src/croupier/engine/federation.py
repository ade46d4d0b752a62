"""How rounds are planned: how many, who is invited and how few are enough; and what cannot run together.

`Federation` is the table `federation` of a description. `check` is where all parts meet before anything is trained:
that a release has enough clients to hide among, an encoder room for their sum, and a rule the rows and the server's
records that it needs; `check_names` sees that clients who are named exist. Runs (`engine.job.job`), plans
(`engine.job.trial`, `outlook`), `audit.arms` and rosters (`service.roster`) call them first. `engine.loop` and
`service.lead` draw each round's cohort here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import Field, model_validator

from croupier.core.coins import Coins
from croupier.core.part import Part
from croupier.errors import SpecError, nearest
from croupier.pipeline import Pipeline


class Federation(Part):
    """How many rounds, who is invited, how few are enough, and whether a round with fewer is only passed over.

    With `carry`, a round in which too few came releases nothing, the model stays, and the next one invites anew.
    `joins` names clients that are enrolled later, and the first round that they may be invited to.
    """

    rounds: int = Field(5, ge=1, description="how many rounds")
    cohort: int | None = Field(
        None, ge=1, description="how many clients are invited to a round, drawn anew each time; all unless set"
    )
    quorum: float = Field(0.5, gt=0, le=1, description="the share of the invited that a round needs")
    attempts: int = Field(
        3, ge=1, le=1000, description="how often a round may start, where the placement can start again"
    )
    carry: bool = Field(
        False,
        description="a round in which too few came releases nothing, and the next one invites anew; else the run ends "
        "with an error",
    )
    joins: Mapping[str, int] = Field(
        default_factory=dict,
        description="clients that are enrolled later, each with its first round: `joins = { c07 = 3 }`",
    )

    def __hash__(self) -> int:
        return hash(self.digest())

    @model_validator(mode="after")
    def _joined(self) -> Self:
        for name, first in self.joins.items():
            if not 1 <= first <= self.rounds:
                raise SpecError(
                    f"federation.joins.{name} = {first}: the first round that the client may be invited to; name one "
                    f"from 1 to {self.rounds}"
                )
        return self

    def there(self, enrolled: tuple[str, ...], number: int) -> tuple[str, ...]:
        """Those who are enrolled by a round, of which the first is 0."""
        return tuple(who for who in enrolled if self.joins.get(who, 1) <= number + 1)


def check(pipeline: Pipeline, enrolled: int, plan: Federation, offers: frozenset[str] = frozenset()) -> None:
    """Raises: SpecError when a pipeline, that many clients, a plan and what the task offers cannot run together."""
    enrolled -= sum(first > 1 for first in plan.joins.values())
    cohort = plan.cohort or enrolled
    if cohort > enrolled:
        late = " from the start" if plan.joins else ""
        raise SpecError(f"federation.cohort = {cohort}: only {enrolled} clients are enrolled{late}; invite fewer")
    if cohort < pipeline.release.least:
        raise SpecError(
            f"federation.cohort = {cohort}: release = {pipeline.release.use!r} hides a client among others and needs "
            f"at least {pipeline.release.least} of them; invite more, enrol more clients"
            f"{', or lower protocol.release.smallest' if pipeline.release.tiered else ''}"
        )
    if pipeline.encode.agrees and "symmetry" not in offers:
        raise SpecError(
            f"protocol.encode = {pipeline.encode.use!r}: this task's training does not show its network, so that "
            "nobody knows what may be permuted; use encode = 'floats'"
        )
    pipeline.encode.check_plan(enrolled, cohort, bool(plan.joins), pipeline.aggregate)
    # Who joins later counts among the enrolled here, so that it is refused where everybody must be there.
    pipeline.place.check_plan(enrolled + sum(first > 1 for first in plan.joins.values()), cohort)
    if {"answers", "samples"} & pipeline.aggregate.asks - offers:
        raise SpecError(
            f"protocol.aggregate = {pipeline.aggregate.use!r}: it asks models about inputs of numbers, and records of "
            "words are none; use data of numbers"
        )
    if lacking := sorted({"root", "forward"} & pipeline.aggregate.asks - offers):
        what = {"root": "trains on", "forward": "looks at models through"}[lacking[0]]
        raise SpecError(
            f"protocol.aggregate = {pipeline.aggregate.use!r}: it {what} records of the server's own, and there are "
            "none; set task.root.records=100"
        )
    pipeline.aggregate.check(cohort)
    most = getattr(pipeline.encode, "clients", None)
    if most is not None and cohort > most:
        raise SpecError(
            f"protocol.encode.clients = {most}: sums of {cohort} invited clients could overflow; set it to {cohort}"
        )


def check_names(pipeline: Pipeline, enrolled: Sequence[str], plan: Federation) -> None:
    """Raises: SpecError when the description speaks of a client that is not enrolled: what it wishes would be lost."""
    known = set(enrolled)
    joins = {name: f"federation.joins.{name}" for name in plan.joins}
    for name, key in {**joins, **pipeline.privacy.mentions()}.items():
        if name not in known:
            span = f"they are called {min(enrolled)} to {max(enrolled)}"
            raise SpecError(f"{key}: no client is called {name!r}; {nearest(name, enrolled)} ({span})")


def least(plan: Federation, invited: int) -> int:
    """With how few of the invited clients a round ends well."""
    return max(1, math.ceil(plan.quorum * invited))


def cohort_of(plan: Federation, enrolled: tuple[str, ...], number: int, coins: Coins) -> tuple[str, ...]:
    """Who is invited to a round, of which the first is 0: everybody enrolled by then, or so many drawn from them."""
    everyone = plan.there(enrolled, number)
    if plan.cohort is None or plan.cohort == len(everyone):
        return everyone
    sampler = coins.child("cohort", number).sampler()
    return tuple(everyone[at] for at in sorted(sampler.choice(len(everyone), plan.cohort, replace=False)))
