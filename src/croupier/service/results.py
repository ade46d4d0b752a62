"""What the server leaves for people: metrics.jsonl and model.safetensors after every round, summary.json at the end.

There is no model.safetensors where clients hide the model's coordinates from the server (`encode.hidden`).
All of it is written anew from the server's store, whole or not at all, so that a crash between a round and its files
leaves nothing behind that the next start does not mend. `service.start` has it written for `croupier serve server`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from croupier.core.files import write_whole
from croupier.learn.assemble import model_bytes
from croupier.service.lead import Lead

_REMEDY = "free space, or choose another --out; the next round writes it again"


@dataclass(frozen=True)
class Results:
    """A folder for the results of one run."""

    folder: Path
    export: Callable[[Tensor], nn.Module]

    def after_round(self, lead: Lead) -> None:
        """Write what the rounds so far gave. Raises: StoreError."""
        lines = lead.lines()
        text = "".join(json.dumps(line, sort_keys=True, allow_nan=False) + "\n" for line in lines)
        write_whole(self.folder / "metrics.jsonl", text.encode(), _REMEDY)
        # In coordinates that only the clients know it would be of use to nobody.
        if lines and not lead.member.pipeline.encode.agrees and (model := lead.model()) is not None:
            about = {"name": lead.member.roster.spec.name, "run": lead.member.roster.run.hex()}
            module = self.export(model.vector)
            data = model_bytes(module, {**about, "rounds": str(lines[-1]["round"])})
            write_whole(self.folder / "model.safetensors", data, _REMEDY)

    def at_the_end(self, lead: Lead) -> None:
        """Write all of it, and the summary last: a run without one is not over. Raises: StoreError."""
        self.after_round(lead)
        roster, lines = lead.member.roster, lead.lines()
        summary = {
            "name": roster.spec.name, "run": roster.run.hex(), "roster": roster.digest.hex(),
            "version": roster.version, "rounds": len(lines), "final": lines[-1] if lines else {},
            "clients": len(roster.clients), "hosts": list(roster.hosts),
        }  # fmt: skip
        text = json.dumps(summary, indent=2, sort_keys=True, allow_nan=False) + "\n"
        write_whole(self.folder / "summary.json", text.encode(), _REMEDY)
