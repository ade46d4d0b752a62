"""Croupier inside Flower: two lines and their imports in an app, and no update passes the SuperLink, Flower's server.

    app = ClientApp(mods=[croupier.flower.shield])
    strategy = croupier.flower.protect(FedAvg())

That takes a roster that all parties accepted, and keys of their own. Without, in Flower's simulation, it is a rehearsal
that protects nobody (`flower.rehearse`).

Flower keeps what it is good at: it finds nodes, ships the app, hands out the model and counts rounds. What a node
learned leaves it as in any other deployment (`service`): straight to the hosts of the roster that the node accepted.
The server's strategy is handed one reply that holds the mean. `mod` is the nodes' side (Flower calls a mod with every
message for a ClientApp), `strategy` the server's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from croupier.errors import SpecError

if TYPE_CHECKING:
    from croupier.flower.mod import shield as shield
    from croupier.flower.strategy import protect as protect

# Loaded when first asked for: a Flower message may start a process, and a node needs nothing of the server's.
_HOMES = {"protect": "strategy", "shield": "mod"}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"croupier.flower.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("flwr", "grpc"):
            raise
        raise SpecError(f"{error.name} is not installed: pip install 'croupier[flower]'") from None
