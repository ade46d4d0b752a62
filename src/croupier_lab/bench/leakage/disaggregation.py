"""How well single updates are found from sums over rounds, with changing or fixed cohorts and with colluding clients.

The audit's question `separation` asks the same of one description. Here cohorts of several sizes are played, with the
sum's own mean as the guess to beat. It is also measured how often recovered updates tell whose record it is.
`croupier bench disaggregate` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from torch import Tensor

from croupier.audit.bench import Bench
from croupier.audit.blind import Panel
from croupier.audit.question import Adversary, Arm
from croupier.audit.questions.separation import NAMED, look, named_view
from croupier.audit.questions.source import SourceAttacks
from croupier.audit.setting import Setting
from croupier.core.coins import Coins
from croupier.core.intervals import gain, over_runs, share
from croupier.engine.local import Local
from croupier.errors import SpecError
from croupier.systems import total
from croupier_lab.bench.leakage.residue_sums import setting
from croupier_lab.bench.size import BenchSize, Watch, ignore

ATTACKS = ("named", "named+prior")


class DisaggregationSize(BenchSize):
    """Who is enrolled, how many are invited to a round, how many rounds are kept, and how many runs there are."""

    clients: int = Field(6, ge=2, description="Enrolled clients.")
    cohorts: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (),
        description="Clients a round; may be repeated. By default half, all but one, and all.",
        json_schema_extra={"flag": "cohort"},
    )
    rounds: int = Field(40, ge=1, description="Rounds that the server keeps.")
    colluders: int = Field(0, ge=0, description="Clients that share their own updates with it.")
    alpha: float = Field(0.1, ge=0.001, description="How alike clients are.")
    seeds: int = Field(8, ge=2, description="Independent runs.")

    @model_validator(mode="after")
    def _somebody_is_left(self) -> Self:
        if self.clients - self.colluders < 2:
            raise SpecError(f"--colluders = {self.colluders}: of {self.clients} clients two must be left to tell apart")
        if wrong := [size for size in self.chosen if not 2 <= size <= self.clients]:
            raise SpecError(f"--cohort = {wrong[0]}: of {self.clients} clients, 2 to {self.clients} can be invited")
        return self

    @property
    def chosen(self) -> tuple[int, ...]:
        """The cohorts that were asked for, or half of the clients, all but one, and all."""
        usual = {max(2, self.clients // 2), max(2, self.clients - 1), self.clients}
        return self.cohorts or tuple(sorted(usual))


def measure(size: DisaggregationSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Measure it on digits with a perceptron, where nothing but sums is released."""
    one = setting(size.clients, size.alpha, size.rounds)
    seeds = range(seed, seed + size.seeds)
    found = disaggregation(one, size.chosen, seeds, size.colluders, watch)
    return {"clients": size.clients, "alpha": size.alpha, **found}


def disaggregation(
    setting: Setting, cohorts: Sequence[int], seeds: Sequence[int], colluders: int = 0, watch: Watch = ignore
) -> dict[str, Any]:
    """Recover every client from several rounds' sums, for cohorts of each size, and infer whose records they hold.

    The first `colluders` clients share their views with the server. Rates are over seeds. They are cosines of the
    recovered with the true update, beside the cosine of that round's aggregate as a guess, and source inference on the
    recovered models, beside the prior and beside the true models.
    """
    found: dict[int, list[dict[str, Any]]] = {cohort: [] for cohort in cohorts}
    with Panel(1, setting.device) as panel:
        for seed in seeds:
            for cohort in cohorts:
                watch(f"seed {seed}: cohorts of {cohort}")
                plan = setting.plan.model_copy(update={"cohort": cohort})
                bench = Bench(replace(setting, plan=plan), seed, panel, Local())
                found[cohort].append(_played(bench, cohort, colluders))
    return {
        "rounds": setting.plan.rounds,
        "colluders": colluders,
        "runs": len(seeds),
        "rows": [{"cohort": cohort, **_together(runs)} for cohort, runs in found.items()],
    }


def _played(bench: Bench, cohort: int, colluders: int) -> dict[str, Any]:
    """One run: what the adversary makes of its views, how near that is, and whose records it remembers."""
    arm = Arm("sum", "the sum only", total(cohort))
    stage, played = bench.stage(arm), bench.played(arm)
    team = stage.task.enrolled[:colluders]
    seen = look(bench, arm, Adversary(("server", *team)), "sums")
    came = {who for done in played.rounds for who in done.present} - set(team)
    targets = tuple(who for who in stage.task.enrolled if who in came)
    if seen is None or len(targets) < 2:
        raise SpecError(f"{len(targets)} client is left beside {colluders} colluders; source inference needs two")
    got = seen.answer.result()["sums"]
    order = [got["clients"].index(who) for who in targets]
    found, true = {}, {}
    for who, at in zip(targets, order, strict=True):
        start, moved = played.starts[got["when"][at]].double(), seen.truth[who, got["when"][at]]
        found[who], true[who] = (start + got["updates"][at]).float(), (start + moved).float()
    hit = {"success": _hits(bench, found, "recovered"), "control": _hits(bench, true, "true")}
    near = seen.scores("sums").values()
    return {
        "clients": len(targets), "rank": got["rank"], "alone": len(got["alone"]), "exact": len(got["exact"]),
        "stays": got["stays"], "accuracy": played.rounds[-1].metrics["accuracy"], "chance": 1 / len(targets),
        "cosine": sum(one.value for one in near) / len(near), "baseline": sum(one.prior for one in near) / len(near),
        "prior": _asked(bench, targets, {}, ("prior",), stage.coins.child("prior", *targets))["prior"], **hit,
    }  # fmt: skip


def _hits(bench: Bench, models: Mapping[str, Tensor], what: str) -> dict[str, float]:
    """Source inference on models as if their owners had sent them by name."""
    node = bench.coins.child("disaggregation", what, bench.setting.plan.cohort or 0)
    return _asked(bench, tuple(models), {"server": (named_view(models),)}, ATTACKS, node)


def _asked(
    bench: Bench, clients: tuple[str, ...], views: Mapping[str, Any], attacks: Sequence[str], coins: Coins
) -> dict[str, float]:
    """How often each attack names the right client; attacks run in another process."""
    stage = bench.stage(Arm("sum", "the sum only", NAMED))
    knowledge, truth = stage.about(clients, stage.setting.noise)
    view = {"views": views, "start": None, "protocol": NAMED.plain() if views else {}}
    mounted = SourceAttacks(bench.panel, knowledge, stage.coins, clients).on_view(view, attacks, (), coins)
    guesses = mounted.result()["guesses"]
    return {name: float((guess == truth.owners).double().mean()) for name, guess in guesses.items()}


def _together(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All runs of one size of cohorts, joined."""
    plain = {key: asdict(over_runs([float(run[key]) for run in runs])) for key in ("cosine", "baseline")}
    plain["prior"] = asdict(share([float(run["prior"]) for run in runs]))
    gained = over_runs([run["cosine"] - run["baseline"] for run in runs])
    sources = {
        key: {
            name: {
                **asdict(share([run[key][name] for run in runs])),
                "leak": asdict(gain([run[key][name] - run["prior"] for run in runs])),
            }
            for name in ATTACKS
        }
        for key in ("success", "control")
    }
    spans = {key: sorted({run[key] for run in runs}) for key in ("clients", "rank", "alone", "exact", "stays")}
    mean = {key: sum(run[key] for run in runs) / len(runs) for key in ("accuracy", "chance")}
    return {**spans, **mean, **plain, "gained": asdict(gained), **sources}


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""

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
