"""How well single updates are found in sums: of changing cohorts, of one that never changes, with colluding clients."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from croupier.audit.disaggregate import disaggregation
from croupier.audit.experiment import Watch
from croupier.bench.reveal import setting
from croupier.core.part import Part
from croupier.errors import SpecError
from croupier.runtime.local import Local
from croupier.systems import total


class Size(Part):
    """Who is enrolled, how many are invited to a round, how many rounds are kept, and how many runs there are."""

    clients: int = Field(6, ge=2)
    cohorts: tuple[int, ...] = ()
    rounds: int = Field(40, ge=1)
    colluders: int = Field(0, ge=0)
    alpha: float = Field(0.1, gt=0)
    seeds: int = Field(8, ge=2)

    @model_validator(mode="after")
    def _somebody_is_left(self) -> Self:
        if self.clients - self.colluders < 2:
            raise SpecError(f"--colluders = {self.colluders}: of {self.clients} clients two must be left to tell apart")
        if wrong := [size for size in self.chosen if not 2 <= size <= self.clients]:
            raise SpecError(f"--cohort = {wrong[0]}: of {self.clients} clients, 2 to {self.clients} can be invited")
        return self

    @property
    def chosen(self) -> tuple[int, ...]:
        """Cohorts as asked for, or half of the clients, all but one, and all."""
        usual = {max(2, self.clients // 2), max(2, self.clients - 1), self.clients}
        return self.cohorts or tuple(sorted(usual))


def measure(size: Size, seed: int, watch: Watch = lambda _: None) -> dict[str, Any]:
    """Digits with a perceptron, nothing but sums let out."""
    one = setting(size.clients, size.alpha, size.rounds)
    seeds = range(seed, seed + size.seeds)
    found = disaggregation(one, total, size.chosen, seeds, Local(), size.colluders, watch)
    return {"clients": size.clients, "alpha": size.alpha, **found}


def show(found: dict[str, Any]) -> None:
    """The same numbers for people."""

    def ends(rate: dict[str, Any], scale: float = 1.0) -> str:
        low, high = scale * rate["low"], scale * rate["high"]
        return f"{scale * rate['rate']:.2f} ({low:.2f} to {high:.2f})" if scale == 1 else (
            f"{scale * rate['rate']:.1f} ({low:.1f} to {high:.1f})"
        )  # fmt: skip

    print(
        f"{found['clients']} clients, alpha = {found['alpha']:g}, {found['rounds']} rounds of sums, "
        f"{found['colluders']} colluders, {found['runs']} runs"
    )
    for row in found["rows"]:
        fixed = " (always the same: nothing to solve)" if row["cohort"] == found["clients"] else ""
        print(f"cohorts of {row['cohort']}{fixed}: rank {', '.join(map(str, row['rank']))}")
        print(f"  cosine to the true update   {ends(row['cosine'])}, the aggregate's {ends(row['baseline'])}")
        print(f"  source inference, percent   prior {ends(row['prior'], 100)}")
        for name, rate in row["success"].items():
            leak, true = ends(rate["leak"], 100), ends(row["control"][name], 100)
            print(f"    {name:12s} {ends(rate, 100)}, against the prior {leak}; on true models {true}")
