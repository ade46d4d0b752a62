"""Releases: the ideal function of a batch, exactly what the server is to learn.

A release is given all clients' rows. What it draws for single coordinates it draws for blocks of 2^16 of them, so that
memory stays small and the order of work changes nothing. It also says in one sentence what it reveals, which `croupier
explain` prints, and from how many clients on it hides anything (`least`). Placements (`place`) compute it, in the clear
or on shares; `pipeline`, `statement` and the audit ask by its hooks what it hides.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from croupier.core.coins import BLOCK, Node
from croupier.core.part import Part
from croupier.core.tier import Tier
from croupier.core.update import Layout, Modulus
from croupier.core.wire import Field
from croupier.errors import ProtocolError
from croupier.release.buckets import Bucket, Label
from croupier.release.scoring import ScoreRule

# Rows as one array, a row for each client.
Table = npt.NDArray[Any]
# What leaves: rows, one sum, one sum a bucket, or a sum of rows that were scored against a reference.
Shape = Literal["rows", "sums", "bucketed", "scored"]


@dataclass(frozen=True)
class ReleaseContext:
    """What some releases use besides the rows: the clients' public tiers, and what the server shows late.

    Late is what those who compute the release are told once updates are fixed: RAIN's reference (`aggregate.signs`).
    """

    tiers: tuple[Tier, ...] = ()
    late: Mapping[str, Tensor] = field(default_factory=dict, repr=False)


class Release(Part):
    """What leaves of the clients' coordinates, and by its hooks all that others ask of it.

    Hooks have plain defaults: whole rows, nothing hidden, no tiers, no reference, nothing permuted.
    """

    verb: ClassVar[str] = "release"
    lies_in: ClassVar[str] = "croupier.release"
    shape: ClassVar[Shape]
    # What the server no longer learns: "ids" (whose row is whose), "rows" (single updates).
    hides: ClassVar[frozenset[str]] = frozenset()
    # The fewest clients among whom it hides anything.
    least: ClassVar[int] = 1
    # Whether its rows are sums over groups of clients.
    grouped: ClassVar[bool] = False
    # Whether it needs to know every client's public tier.
    tiered: ClassVar[bool] = False
    # Whether it works on residues in unary, bit by bit.
    unary: ClassVar[bool] = False
    # Whether it shows how many ones there are, as an integer and not as a residue.
    counts_ones: ClassVar[bool] = False
    # Whether a row that is a sum counts for as many clients as it is of.
    by_size: ClassVar[bool] = False

    @property
    def signs_only(self) -> bool:
        """Whether of a sum only the signs leave."""
        return False

    @property
    def weighs(self) -> bool:
        """Whether rows that are added up count for more or less, by weights that follow from what leaves."""
        return False

    @property
    def pieces(self) -> Literal["model", "layer", "parameter"] | None:
        """In which pieces rows are shuffled; None where they are not."""
        return None

    def buckets(self, tiers: Sequence[Tier]) -> tuple[Bucket, ...]:
        """Which of the clients present are put together. Raises: ProtocolError where nobody is."""
        raise ProtocolError(f"release = {self.use!r} puts no clients together by their tiers; use 'buckets'")

    @property
    def bucket(self) -> tuple[int, int] | None:
        """The fewest members of a bucket, and how many of them are assumed to collude; None where there are none."""
        return None

    @property
    def coarse(self) -> bool:
        """Whether a row leaves without its name but in pieces of more than one coordinate."""
        return False

    @property
    def intact(self) -> bool:
        """Whether each row that leaves is one sender's (or one group's) from its first coordinate to its last."""
        return True

    @abstractmethod
    def fields(self, dtype: str, modulus: Modulus, slots: int) -> tuple[Field, ...]:
        """The arrays that leave; a side named `present` counts the clients that took part."""

    @abstractmethod
    def __call__(self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node) -> Mapping[str, Tensor]:
        """What leaves of one coordinate vector per client."""

    def compute(
        self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node, context: ReleaseContext
    ) -> Mapping[str, Tensor]:
        """What leaves of one coordinate vector per client, for who knows more than the rows; most need no more."""
        return self(rows, layout, modulus, coins)

    def verify(self, body: Mapping[str, Tensor], tiers: Sequence[Tier]) -> None:
        """Raises: IntegrityError when what left is not what public tiers give, where the release goes by them."""

    def added_together(self, clients: int, tiers: Sequence[Tier]) -> tuple[tuple[int, ...], ...]:
        """Which clients' updates are added up, by their places: everybody's, unless sums are of groups."""
        return (tuple(range(clients)),)

    def labels(self, tiers: Sequence[Tier]) -> tuple[Label, ...] | None:
        """What is published of the noise of each row that leaves; None where a row has its own client's."""
        return None

    @property
    def scoring(self) -> ScoreRule | None:
        """The rule by which rows are scored against a reference; None where they are not."""
        return None

    @property
    def permutes(self) -> bool:
        """Whether it only moves what clients sent, so that those who move it need not be able to read it."""
        return self.pieces is not None

    def moved(self, rows: Table, layout: Layout, modulus: Modulus, coins: Node) -> Table:
        """Rows among which pieces changed places as coins say, whatever the rows hold: shares of rows move alike.

        Raises: ProtocolError where the release does not only move what clients sent.
        """
        raise ProtocolError(f"release = {self.use!r} does not only move what clients sent; use 'shuffle' or 'bits'")

    def moved_back(self, rows: Table, layout: Layout, modulus: Modulus, coins: Node) -> Table:
        """Rows as they were before `moved` with the same coins."""
        return unmoved(rows, self.moved(places_of(rows), layout, modulus, coins))

    def mixed_together(self, clients: int, tiers: Sequence[Tier]) -> tuple[tuple[int, ...], ...]:
        """Groups of clients among whom pieces change hands, by their places, in the order in which their rows leave."""
        return (tuple(range(clients)),)

    def facts(self, tiers: Sequence[Tier]) -> dict[str, Tensor]:
        """What leaves beside the rows, and anybody who knows the tiers can compute."""
        return {}

    def over_rounds(self) -> str:
        """What several rounds tell together, where it does not follow from what is hidden."""
        return ""

    def anonymity(self) -> str:
        """Among whom a client hides, where it does not follow from what is hidden."""
        return ""

    @abstractmethod
    def reveals(self) -> str:
        """What the receiver learns, as a sentence of the statement."""


def places_of(rows: Table) -> Table:
    """A table like `rows` whose every number is the row that it lies in: moved, it tells where numbers came from."""
    return np.repeat(np.arange(len(rows), dtype=np.int64)[:, None], rows.shape[1], 1)


def unmoved(rows: Table, places: Table) -> Table:
    """A table whose every number goes back to the row that `places` says it came from."""
    out = np.empty_like(rows)
    np.put_along_axis(out, places, rows, 0)
    return out


def whole(modulus: Modulus) -> dict[str, Any]:
    """For a `Field` of residues of one modulus: the largest one, and no more bits than they need. Empty for others."""
    if not isinstance(modulus, int):
        return {}
    return {"top": modulus - 1, "widths": ((modulus - 1).bit_length(),)}


def blocks(size: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and stop of each block of coordinates."""
    for number, start in enumerate(range(0, size, BLOCK)):
        yield number, start, min(size, start + BLOCK)
