"""The nodes' side of the app of `bench flower`: trains digits under the mod `shield`.

`superlink.plain_copy` makes the unprotected twin by deleting the import line and the list of mods as text: keep both as
they stand. A test demands that the package's name is nowhere in the twin, so that these lines avoid it. `app_secagg`
replaces this file for SecAgg+.
"""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import croupier.flower
from roundapp.task import Net, load_data
from roundapp.task import test as test_fn
from roundapp.task import train as train_fn

app = ClientApp(mods=[croupier.flower.shield])


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local records."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    partition = int(context.node_config["partition-id"])
    records, _ = load_data(partition, int(context.node_config["num-partitions"]))
    run = context.run_config
    seed = 1000 * int(msg.content["config"]["server-round"]) + partition
    loss = train_fn(model, records, int(run["local-epochs"]), float(run["lr"]), seed)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(records[0])})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    _, records = load_data(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    loss, accuracy = test_fn(model, records)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(records[0])})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
