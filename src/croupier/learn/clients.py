"""How good a model is for each client, on records of the client's own that nobody trained on.

One model for all may serve some clients badly. Where a dataset says whose each test record is, and its owners are the
clients, a run ends with the model's metrics on every client's own ones (`engine.job.job` puts them into `summary.json`,
`cli.tables` prints them). The metrics over all test records are `learn.evaluate`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from croupier.core.update import Model
from croupier.learn.assemble import Assembled

NO_PART = (
    "clients have no test records of their own in this data; your own data() can give some, as owner_test or as a "
    "table of clients"
)
NO_OWNERS = "clients are not the owners of records in this split; with task.split = 'natural' they are"


def clients_of(made: Assembled, model: Callable[[str], Model]) -> dict[str, Any]:
    """`results` by client: how many records it trains and is tested on, its metrics, and why some have no value.

    `model` gives the one that is meant for a client. Where clients have no test part there is only `why`.
    """
    if not made.tests:
        return {"why": NO_PART if made.dataset.test_owner is None else NO_OWNERS}
    return {"results": {who: _one(made, who, model(who)) for who in sorted(made.tests)}}


def _one(made: Assembled, who: str, model: Model) -> dict[str, Any]:
    test = made.tests[who]
    counts = {"train_records": made.sizes[who], "test_records": len(test)}
    if not len(test):
        return {**counts, "metrics": {}, "undefined": {"all": "no test records"}}
    found, lacking = made.evaluate.on(model, test)
    return {**counts, "metrics": found, "undefined": lacking}
