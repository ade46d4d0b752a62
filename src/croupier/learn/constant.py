"""What a model would score that always gives the same answer: the least that a trained one must beat.

Without it an accuracy says little where one class is much commoner than the others. `engine.job.job` writes `always`
into summary.json; `cautions` looks at the test records' `targets`. Both are computed from the simulation's test labels,
and so are for the experimenter: no party is told.
"""

from __future__ import annotations

import torch
from torch import Tensor

from croupier.learn.data import Dataset, Records, TensorRecords

# So many records are looked at together.
BATCH = 1024


def targets(records: Records) -> Tensor:
    """What is to be learnt about records, on the CPU."""
    if isinstance(records, TensorRecords):
        return records.y.cpu()
    starts = range(0, len(records), BATCH)
    parts = [records.batch(torch.arange(at, min(at + BATCH, len(records))))[1].cpu() for at in starts]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)


def always(dataset: Dataset) -> dict[str, float | str] | None:
    """The commonest class of the test records, its name where it has one, and how often answering it is right.

    None where quantities are learnt.
    """
    if dataset.goal != "classify":
        return None
    counts = torch.bincount(targets(dataset.test))
    most = int(counts.argmax())
    name = dataset.named[most] if dataset.named else f"class {most}"
    return {"class": most, "name": name, "accuracy": int(counts[most]) / int(counts.sum())}
