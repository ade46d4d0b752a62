"""What others have built for the same sum, driven in this process: SecAgg+ of Flower, CKKS of TenSEAL.

Neither is needed to use Croupier, and each is measured where it is installed. `secure_sum` (`croupier bench sum`) runs
both on its updates, and `bench.flower.rounds` (`croupier bench flower`) runs SecAgg+.
"""

from __future__ import annotations

import copy
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Literal

import numpy as np
import torch

from croupier.core.update import Update

Name = Literal["secaggplus", "ckks"]
# Seconds of the best repeat, bytes that a client sends up, and the sum.
Rival = Callable[[Mapping[str, Update], int], tuple[float, int, torch.Tensor]]
# The package that each comes with.
PACKAGES: dict[Name, str] = {"secaggplus": "flwr", "ckks": "tenseal"}


def secaggplus(updates: Mapping[str, Update], repeats: int) -> tuple[float, int, torch.Tensor]:
    """Flower's SecAgg+ workflow and its client mod: all clients are neighbours, and no message goes over a socket."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    import_module("flwr.common")
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    vectors = [update.vector.numpy() for update in updates.values()]
    best, sent, total = float("inf"), 0, np.zeros(0)
    for _ in range(repeats):
        start = time.perf_counter()
        sent, total = _secagg_round(vectors)
        best = min(best, time.perf_counter() - start)
    return best, sent, torch.from_numpy(total)


def _secagg_round(vectors: list[Any]) -> tuple[int, Any]:
    app, common = import_module("flwr.app"), import_module("flwr.common")
    compat = import_module("flwr.compat.common.recorddict_compat")
    constant = import_module("flwr.server.workflow.constant")
    mod = import_module("flwr.client.mod").secaggplus_mod
    workflow = import_module("flwr.server.workflow").SecAggPlusWorkflow
    legacy = import_module("flwr.server.compat.legacy_context").LegacyContext
    grid = import_module("flwr.serverapp").Grid
    # The identity that its own processes would have.
    task = import_module("flwr.supercore.task_identity").TaskIdentity
    task.run_id, task.node_id, task.task_id = 1, 1 << 20, 1
    nothing = common.ndarrays_to_parameters([])
    ok = common.Status(common.Code.OK, "")

    def context(node: int) -> Any:
        return app.Context(run_id=1, node_id=node, node_config={}, state=app.RecordDict(), run_config={})

    contexts = {number + 1: context(number + 1) for number in range(len(vectors))}
    up = dict.fromkeys(contexts, 0)

    def answer(message: Any) -> Any:
        node = message.metadata.dst_node_id

        def fit(_message: Any, _context: Any) -> Any:
            trained = common.ndarrays_to_parameters([vectors[node - 1]])
            content = compat.fitres_to_recorddict(common.FitRes(ok, trained, 1, {}), False)
            return app.Message(content, reply_to=message)

        reply = mod(message, contexts[node], fit)
        up[node] += sum(_length(value) for record in reply.content.config_records.values() for value in record.values())
        return reply

    plan = _MeanOnly(common, tuple(contexts))
    main = legacy(context(0), strategy=plan)
    main.state.config_records[constant.MAIN_CONFIGS_RECORD] = app.ConfigRecord({constant.Key.CURRENT_ROUND: 1})
    main.state.array_records[constant.MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(nothing, True)
    count = len(vectors)
    rule = workflow(count, max(2, count // 2 + 1), max_weight=1.0, clipping_range=1.0)
    rule(_table(grid, tuple(contexts), answer), main)
    if plan.mean is None:
        raise RuntimeError("SecAgg+ gave no sum")
    return max(up.values()), plan.mean.astype(np.float64) * count


def _table(grid: Any, nodes: tuple[int, ...], answer: Callable[[Any], Any]) -> Any:
    """What the workflow sends its messages through: all clients, in this process."""

    class Table(grid):  # type: ignore[misc]
        """Every client in this process; contents are copied, because all of them get one object."""

        run = None

        def set_run(self, run: Any) -> None:
            """There is one run."""

        def create_message(self, *args: Any, **more: Any) -> Any:
            """Not used any more."""
            raise NotImplementedError("the workflow sends and receives in one call")

        def get_node_ids(self) -> Iterable[int]:
            """Everybody."""
            return nodes

        def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
            """Not used by the workflow."""
            raise NotImplementedError("the workflow sends and receives in one call")

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
            """Not used by the workflow."""
            raise NotImplementedError("the workflow sends and receives in one call")

        def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> Iterable[Any]:
            """Answer at once."""
            return [answer(copy.deepcopy(message)) for message in messages]

    return Table()


class _MeanOnly:
    """As little of a strategy as the workflow asks for: nothing goes down, and the mean is taken as it is."""

    def __init__(self, common: Any, nodes: tuple[int, ...]) -> None:
        self.common, self.nodes = common, nodes
        self.mean: Any = None

    def configure_fit(self, _round: int, parameters: Any, _clients: Any) -> list[Any]:
        """Invite everybody."""
        return [(_Proxy(node), self.common.FitIns(parameters, {})) for node in self.nodes]

    def aggregate_fit(self, _round: int, results: list[Any], failures: list[Any]) -> tuple[Any, Any]:
        """All results hold the mean."""
        if failures or len(results) != len(self.nodes):
            raise RuntimeError(f"SecAgg+ failed: {failures[:1]}")
        (self.mean,) = self.common.parameters_to_ndarrays(results[0][1].parameters)
        return None, {}


class _Proxy:
    """A client as the workflow names it."""

    def __init__(self, node: int) -> None:
        self.node_id = node


def _length(value: Any) -> int:
    """Bytes of a value of a record: numbers as eight each."""
    if isinstance(value, list):
        return sum(_length(one) for one in value)
    return len(value) if isinstance(value, bytes | str) else 8


def ckks(updates: Mapping[str, Update], repeats: int) -> tuple[float, int, torch.Tensor]:
    """Encrypt at the clients, serialise, add at the server, decrypt: N = 8192, moduli of 60, 40 and 60 bits."""
    ts = import_module("tenseal")
    secret = ts.context(ts.SCHEME_TYPE.CKKS, poly_modulus_degree=8192, coeff_mod_bit_sizes=[60, 40, 60])
    secret.global_scale = 2**40
    public = secret.copy()
    public.make_context_public()
    vectors = [update.vector.double().numpy() for update in updates.values()]
    best, sent, total = float("inf"), 0, np.zeros(0)
    for _ in range(repeats):
        start = time.perf_counter()
        sums: list[Any] = []
        for vector in vectors:
            pieces = [vector[at : at + 4096] for at in range(0, len(vector), 4096)]
            wire = [ts.ckks_vector(public, piece).serialize() for piece in pieces]
            sent = sum(map(len, wire))
            got = [ts.ckks_vector_from(public, data) for data in wire]
            sums = [one + other for one, other in zip(sums, got, strict=True)] if sums else got
        down = [ts.ckks_vector_from(secret, one.serialize()).decrypt() for one in sums]
        total = np.concatenate([np.array(piece) for piece in down])
        best = min(best, time.perf_counter() - start)
    return best, sent, torch.from_numpy(total)


RIVALS: dict[Name, Rival] = {"secaggplus": secaggplus, "ckks": ckks}
