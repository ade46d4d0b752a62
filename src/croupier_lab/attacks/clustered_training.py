"""A training under attack with a record of its clusters: who was grouped with whom, and what each cluster is worth.

An audit measures what honest clients receive and looks at no clusters (`croupier.audit.attacked_training`). Tazza's
figures and `croupier bench clusters` need the groups of every round and the mean over clusters; `ClusterTask` has them.
`attacks.rules_under_attack` and `bench.leakage.cluster_baselines` train with it, and `attacks.cluster_purity` reads its
outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from statistics import fmean

from croupier.audit.attacked_training import SeededTask, TrainingOutcome, served_models
from croupier.audit.poison import Scaling
from croupier.engine.state import Round, State


@dataclass(frozen=True)
class ClusterRound:
    """The clusters of one round: which participants were grouped, and the labels that clients have after it."""

    number: int
    groups: tuple[tuple[str, ...], ...]
    labels: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class ClusterOutcome(TrainingOutcome):
    """How a training went, with its clusters. One model for all counts as one cluster.

    `weighted` is like `received`, but over those honest clients only that have a cluster. `clusters` is the mean over
    the clusters that have an honest client, each cluster counting once, as Tazza's paper counts.
    """

    weighted: float
    clusters: float
    by_round: tuple[ClusterRound, ...] = ()


@dataclass(frozen=True)
class ClusterTask(SeededTask):
    """The task of one seed, whose outcomes tell of clusters too."""

    def measure(self, played: Iterable[Round], state: State, trigger: Scaling | None) -> ClusterOutcome:
        """Play rounds to the end or until no model is left, and look at what honest clients would get then."""
        by_round, last = list[ClusterRound](), [state]

        def watched() -> Iterator[Round]:
            for done in played:
                last.append(done.state)
                memory = done.state.memories["server"].get("rule", {})
                if "groups" in memory:
                    by_round.append(ClusterRound(done.number, memory["groups"], dict(memory["labels"])))
                yield done

        plain = super().measure(watched(), state, trigger)
        told = {field.name: getattr(plain, field.name) for field in fields(plain)}
        weighted, clusters = self._by_cluster(last[-1])
        return ClusterOutcome(**told, weighted=weighted, clusters=clusters, by_round=tuple(by_round))

    def _by_cluster(self, state: State) -> tuple[float, float]:
        """The mean accuracy over honest clients that have a cluster, and over clusters that have an honest client."""
        models, honest = self.plain_models(state), self.honest
        places = sorted(set(served_models(models, honest).values()))
        known = {at: dict(self.made.task.evaluate(models[at]))["accuracy"] for at in places}
        own = {at: sum(name in (models[at].recipients or honest) for name in honest) for at in known}
        kept = {at: count for at, count in own.items() if count} or own
        return fmean(known[at] for at, count in kept.items() for _ in range(count)), fmean(known[at] for at in kept)
