"""What a run leaves behind: its result as a value, and the lines of its logs.

`engine.job.job` writes a line of metrics.jsonl and noted.jsonl as each round ends, and makes the `Result` at the end.
Programs get it from `croupier.run` and `croupier.resume`; `cli.run` prints it through `cli.tables`.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from croupier.core import canon
from croupier.core.html import html_table
from croupier.engine.state import Round, State
from croupier.lines import as_csv, numbers
from croupier.spec import Spec


@dataclass(frozen=True)
class Result:
    """A finished run.

    path: its directory.
    spec: its whole description.
    metrics, timing: a dict for each round, as metrics.jsonl and timing.jsonl hold them.
    summary: what summary.json holds.
    model: the trained network, a plain torch module.
    noted: a line a round, what clients counted for themselves: for the experimenter alone.
    """

    path: Path
    spec: Spec
    metrics: tuple[dict[str, Any], ...]
    timing: tuple[dict[str, Any], ...]
    summary: dict[str, Any]
    model: nn.Module
    noted: tuple[dict[str, Any], ...] = ()

    @property
    def final(self) -> dict[str, Any]:
        """The last round's metrics."""
        return self.metrics[-1]

    def csv(self) -> str:
        """The numbers of every round, a line each, for a spreadsheet."""
        return as_csv({self.path.name: self.metrics})

    def _repr_html_(self) -> str:
        rows = [{"round": str(line["round"]), **_cells(line)} for line in self.metrics]
        heads = list(dict.fromkeys(head for row in rows for head in row))
        return html_table(f"{self.spec.name}: round by round", heads, [[r.get(h, "") for h in heads] for r in rows])

    def __repr__(self) -> str:
        scores = [f"{key} {self.final[key]:.4g}" for key in ("accuracy", "rmse", "loss") if key in self.final]
        return f"Result({self.spec.name}: {len(self.metrics)} rounds, {', '.join(scores)}, in {str(self.path)!r})"


def _cells(line: dict[str, Any]) -> dict[str, str]:
    return {name: f"{value:.4g}" for name, value in numbers(line).items()}


def peak_bytes() -> int:
    """The most memory that this process has held so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _clusters(state: State) -> dict[str, int]:
    """How many models there are, and how many clients get the largest cluster's, which is the one that is measured."""
    sizes = [len(model["recipients"]) for model in state.memories["server"]["models"] if model.get("recipients")]
    return {"clusters": len(sizes), "largest": max(sizes)} if sizes else {}


def notes_of(done: Round) -> dict[str, Any]:
    """The line of a round in noted.jsonl: each client's own counts, which depend on its data and go to nobody else."""
    return {"round": done.number + 1, "clients": {name: dict(note) for name, note in sorted(done.noted.items())}}


def metrics_of(done: Round) -> dict[str, Any]:
    """The line of a round in metrics.jsonl: nothing in it depends on time or machine, or is known to a client only."""
    traffic = done.traffic
    clients = done.present or done.cohort
    return {
        "round": done.number + 1,
        "attempt": done.attempt,
        "invited": len(done.cohort),
        "present": len(done.present),
        "refused": sorted({refusal.source for refusal in done.refusals}),
        **done.metrics,
        "bytes_up_per_client": sum(traffic.sent[c] for c in clients) / len(clients),
        "bytes_down_per_client": sum(traffic.got[c] for c in clients) / len(clients),
        "bytes": {name: [traffic.sent[name], traffic.got[name]] for name in sorted({*traffic.sent, *traffic.got})},
        "messages": traffic.messages,
        **_clusters(done.state),
        **({} if done.without_rule is None else {"strangers": len(done.without_rule), "lost": done.lost}),
        "model": canon.digest(done.state.model.vector).hex(),
    }
