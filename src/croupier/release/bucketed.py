"""Releases by buckets of like budgets: values shuffled inside each bucket, or nothing but each bucket's sum.

IntraShuffler's release, of presets such as `intra` and `intra-sum`. Buckets follow from public tiers and from who is
present, and so tell nothing new; inside a bucket values are permuted as in `shuffle`, or added. What stands beside a
bucket's rows (its published noise and least budget) is what the server may weigh them by (`aggregate.budget`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from croupier.core import wire
from croupier.core.coins import Node
from croupier.core.tier import Tier
from croupier.core.update import Layout, Modulus
from croupier.errors import IntegrityError, ProtocolError, SpecError
from croupier.release.buckets import Bucket, Gap, Label, form, label
from croupier.release.release import Release, ReleaseContext, Shape, Table, whole
from croupier.release.shuffle import Grain, Shuffle, shuffle_into
from croupier.release.sums import Sum

# One honest member alone is hidden by nobody.
HONEST = 2
# Labels come from logarithms and roots, whose last bits may differ between machines.
_CLOSE = 1e-9
_MANY = (1 << 31) - 1


class Tiered(Release):
    """A release that puts clients of like noise together, by public tiers and by who is present, and by nothing else.

    No bucket has fewer than `smallest` members; `colluders` of them are assumed to tell the server what they sent.
    """

    tiered: ClassVar[bool] = True

    smallest: int = Field(
        8,
        ge=HONEST,
        description="fewest members of a bucket; smaller ones join their nearest neighbour, and with fewer clients "
        "nothing is released",
    )
    colluders: int = Field(
        0,
        ge=0,
        description="so many members are assumed to tell what they sent; `explain` prints the size without them",
    )
    gap: Gap = Field("ratio", description="nearest by `ratio` of epsilons, or by their `difference`")

    @model_validator(mode="after")
    def _hidden(self) -> Self:
        if self.smallest - self.colluders < HONEST:
            raise SpecError(
                f"protocol.release.smallest = {self.smallest} with colluders = {self.colluders}: a bucket must keep "
                f"{HONEST} honest members; set smallest to {self.colluders + HONEST} or more"
            )
        return self

    @property
    def least(self) -> int:  # type: ignore[override]
        """One bucket, at least."""
        return self.smallest

    @property
    def bucket(self) -> tuple[int, int]:
        """As described."""
        return self.smallest, self.colluders

    @property
    def effective(self) -> int:
        """Honest members that a bucket is left with at least."""
        return self.smallest - self.colluders

    def buckets(self, tiers: Sequence[Tier]) -> tuple[Bucket, ...]:
        """The buckets of the clients present. Raises: ProtocolError when they are too few for one."""
        if len(tiers) < self.smallest:
            raise ProtocolError(
                f"{len(tiers)} clients do not fill a bucket of {self.smallest}: nothing is released. Remedy: invite "
                "more clients (federation.cohort), or lower protocol.release.smallest"
            )
        return form([tier.epsilon for tier in tiers], self.smallest, self.gap)

    @abstractmethod
    def labels(self, tiers: Sequence[Tier]) -> tuple[Label, ...]:
        """What is published of the noise of each row that leaves."""

    @abstractmethod
    def within(
        self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node, tiers: Sequence[Tier]
    ) -> Mapping[str, Tensor]:
        """What leaves of one coordinate vector per client, each with its tier."""

    def compute(
        self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node, context: ReleaseContext
    ) -> Mapping[str, Tensor]:
        """By the tiers of the clients present."""
        return self.within(rows, layout, modulus, coins, context.tiers)

    def verify(self, body: Mapping[str, Tensor], tiers: Sequence[Tier]) -> None:
        """Raises: IntegrityError when buckets or labels are not those of the clients named as present."""
        for name, want in self.facts(tiers).items():
            got = body[name]
            if got.shape != want.shape or not torch.allclose(got.double(), want.double(), rtol=_CLOSE, atol=0):
                raise IntegrityError(
                    f"{name} of the release is not what the public tiers of the clients named as present give"
                )

    def __call__(self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node) -> Mapping[str, Tensor]:
        """Raises: ProtocolError, because nothing leaves without everybody's tier: ask `within`."""
        raise ProtocolError(f"release = {self.use!r} puts clients together by their tiers; ask within(..., tiers)")

    def anonymity(self) -> str:
        """Among the honest members of one bucket."""
        return (
            f"a bucket has {self.smallest} members or more, of which {self.colluders} are assumed to collude: an "
            f"effective size of {self.effective} or more (members minus colluders)"
        )

    def _published(self) -> str:
        return (
            "which public tiers each bucket holds, its size, the mean noise of its members (rounded up) and its least "
            "epsilon, which is nobody's guarantee"
        )


class Buckets(Tiered, use="buckets"):
    """Rows leave bucket by bucket, each piece permuted among the members by its own uniform permutation.

    With grain parameter it is IntraShuffler's, with grain model the shuffle that it calls Shuffle-DP, inside buckets.
    """

    shape: ClassVar[Shape] = "rows"
    hides: ClassVar[frozenset[str]] = frozenset({"ids"})

    grain: Grain = Field(
        "parameter",
        description="what is shuffled inside a bucket: each `parameter` by itself, each `layer`, or whole rows "
        "(`model`)",
    )

    @property
    def pieces(self) -> Grain:
        """As described."""
        return self.grain

    @property
    def coarse(self) -> bool:
        """Whole models and layers are such pieces."""
        return self.grain != "parameter"

    @property
    def intact(self) -> bool:
        """Only whole models stay together."""
        return self.grain == "model"

    def fields(self, dtype: str, modulus: Modulus, slots: int) -> tuple[wire.Field, ...]:
        """Of each row its bucket, the bucket's label, and values."""
        return (
            wire.Field("bucket", "<i4", ("present",), _MANY),
            wire.Field("noise", "<f8", ("present",), positive=True),
            wire.Field("epsilon", "<f8", ("present",), positive=True),
            wire.Field("rows", dtype, ("present", slots), **whole(modulus)),
        )

    def within(
        self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node, tiers: Sequence[Tier]
    ) -> Mapping[str, Tensor]:
        """The permuted rows, bucket by bucket."""
        out = np.empty((len(rows), len(rows[0])), rows[0].numpy().dtype)
        at = 0
        for number, bucket in enumerate(self.buckets(tiers)):
            members = [rows[i] for i in bucket.members]
            shuffle_into(out[at : at + bucket.size], members, self.grain, layout, coins.child("bucket", number))
            at += bucket.size
        return {**self.facts(tiers), "rows": torch.from_numpy(out)}

    def mixed_together(self, clients: int, tiers: Sequence[Tier]) -> tuple[tuple[int, ...], ...]:
        """Those of each bucket."""
        return tuple(bucket.members for bucket in self.buckets(tiers))

    def moved(self, rows: Table, layout: Layout, modulus: Modulus, coins: Node) -> Table:
        """One bucket's rows, by the very permutations of the release."""
        return Shuffle(grain=self.grain).moved(rows, layout, modulus, coins)

    def facts(self, tiers: Sequence[Tier]) -> dict[str, Tensor]:
        """Each row's bucket and label."""
        numbers = [number for number, bucket in enumerate(self.buckets(tiers)) for _ in bucket.members]
        return {"bucket": torch.tensor(numbers, dtype=torch.int32), **_columns(self.labels(tiers))}

    def labels(self, tiers: Sequence[Tier]) -> tuple[Label, ...]:
        """One a row."""
        return tuple(label(bucket, tiers) for bucket in self.buckets(tiers) for _ in bucket.members)

    def reveals(self) -> str:
        """What is left of the rows."""
        left = {
            "model": "every member's whole noised update, as a row without a name",
            "layer": "the noised values of every layer, as rows without names that differ in order from layer to layer",
            "parameter": "the exact noised values of every parameter, as a set, and so their sum, their extremes, how "
            "they are spread, and which of them are noise alone",
        }[self.grain]
        return (
            f"of every bucket {left}; {self._published()}. In a bucket of several tiers a large value is one of a "
            "noisy tier's. No amplification is claimed"
        )

    def anonymity(self) -> str:
        """The same, whatever the number of parameters."""
        return (
            f"{super().anonymity()}. It is the size that counts; size^parameters, the number of ways to put rows "
            "together again, is no measure of security: values are matched one parameter at a time"
        )

    def over_rounds(self) -> str:
        """Sizes and values."""
        return (
            "nothing is claimed: values of several rounds can be linked by what they are, and who joins or leaves a "
            "bucket shows in its size and in the difference of two rounds"
        )


class BucketSums(Tiered, use="bucket-sums"):
    """Of each bucket nothing but its sum leaves: what a mean needs, and all that it needs."""

    shape: ClassVar[Shape] = "bucketed"
    hides: ClassVar[frozenset[str]] = frozenset({"ids", "rows"})
    grouped: ClassVar[bool] = True
    by_size: ClassVar[bool] = True

    @property
    def intact(self) -> bool:
        """A sum is nobody's update."""
        return False

    def added_together(self, clients: int, tiers: Sequence[Tier]) -> tuple[tuple[int, ...], ...]:
        """Those of each bucket."""
        return tuple(bucket.members for bucket in self.buckets(tiers))

    def fields(self, dtype: str, modulus: Modulus, slots: int) -> tuple[wire.Field, ...]:
        """How many buckets there are, and of each its size, its label and its sum."""
        return (
            wire.Field("grouped", "|u1", ("present",), 1),
            wire.Field("sizes", "<i4", ("grouped",), _MANY),
            wire.Field("noise", "<f8", ("grouped",), positive=True),
            wire.Field("epsilon", "<f8", ("grouped",), positive=True),
            wire.Field("rows", dtype, ("grouped", slots), **whole(modulus)),
        )

    def within(
        self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node, tiers: Sequence[Tier]
    ) -> Mapping[str, Tensor]:
        """Add, bucket by bucket. Raises: ProtocolError on floats, whose last bits tell the order."""
        sums = [
            Sum()([rows[i] for i in bucket.members], layout, modulus, coins.child("bucket", number))["sums"]
            for number, bucket in enumerate(self.buckets(tiers))
        ]
        return {**self.facts(tiers), "rows": torch.stack(sums)}

    def facts(self, tiers: Sequence[Tier]) -> dict[str, Tensor]:
        """How many buckets, how large, and their labels."""
        found = self.buckets(tiers)
        return {
            "grouped": torch.tensor([number < len(found) for number in range(len(tiers))], dtype=torch.uint8),
            "sizes": torch.tensor([bucket.size for bucket in found], dtype=torch.int32),
            **_columns(self.labels(tiers)),
        }

    def labels(self, tiers: Sequence[Tier]) -> tuple[Label, ...]:
        """One a bucket."""
        return tuple(label(bucket, tiers) for bucket in self.buckets(tiers))

    def reveals(self) -> str:
        """Sums."""
        return (
            "of every bucket the sum of its members' noised and rounded updates, exact, coordinate by coordinate, and "
            f"no single value; {self._published()}"
        )

    def over_rounds(self) -> str:
        """Sums over changing members."""
        return (
            "sums over changing members can be taken apart again, the better the more slowly clients move; noise is "
            "fresh in every round, so that guarantees of one round compose, and that counts all of it"
        )


def _columns(labels: Sequence[Label]) -> dict[str, Tensor]:
    return {
        "noise": torch.tensor([one.noise for one in labels], dtype=torch.float64),
        "epsilon": torch.tensor([one.epsilon for one in labels], dtype=torch.float64),
    }
