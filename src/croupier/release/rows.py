"""The release that hides nothing.

Plain federated averaging: the server gets each client's row with its name. It is the default of `protocol.release`, and
the baseline that audits compare with (`audit.arms`): attacks must show on it that they work. Rules that must know whose
row is whose (`aggregate.clusters`, `aggregate.reputation`) take no other release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from croupier.core.coins import Node
from croupier.core.update import Layout, Modulus
from croupier.core.wire import Field
from croupier.kernels.rows import table
from croupier.release.release import Release, Shape, whole


class Rows(Release, use="rows"):
    """Every client's coordinates, in the order of the clients."""

    shape: ClassVar[Shape] = "rows"

    def fields(self, dtype: str, modulus: Modulus, slots: int) -> tuple[Field, ...]:
        """One row a client."""
        return (Field("rows", dtype, ("present", slots), **whole(modulus)),)

    def __call__(
        self,
        rows: Sequence[Tensor],
        layout: Layout,
        modulus: Modulus,
        coins: Node,
    ) -> Mapping[str, Tensor]:
        """The rows as they are."""
        return {"rows": torch.from_numpy(table([row.numpy() for row in rows]))}

    def reveals(self) -> str:
        """Everything."""
        return "every client's whole update, and whose it is"
