"""Tazza's integrity check: uploads are compared by what they answer to probes, grouped, and averaged group by group.

The server cannot read permuted weights, but it can run a network: models in one frame that answer noise alike are
alike. Random probes look the same under every permutation, and so tell nothing about it. Each cluster gets its own
model in the next round. A cluster is known by a number, the label of its clients; labels last over rounds, also for a
client that is away. Presets `tazza` and `tazza-mnist` use it, and `croupier bench clusters` compares it with other
rules under attack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from croupier.aggregate.aggregator import Aggregator, Desk
from croupier.aggregate.geometry import trimmed_mean
from croupier.aggregate.rows import alike, chosen, combine, cosines, middle
from croupier.core.flow import Memory
from croupier.core.update import Form, Gathered, Model
from croupier.errors import ProtocolError, SpecError

Merge = Literal["dominant", "new"]
Split = Literal["part", "join"]
Starts = Literal["uploads", "dominant"]
Within = Literal["mean", "median", "trimmed"]
# Of every coordinate this share is left out at either end by `within = "trimmed"`.
_TRIM = 0.2
# Farther apart than any two uploads' answers can be: 1 minus a cosine is 2 at most.
_FAR = 3.0


def likeness(answers: Tensor, *, centred: bool = True) -> Tensor:
    """The cosine of every two models' answers, (models, probes, outputs).

    Centred, each model's mean answer and each answer's mean are taken out first: which classes a client has most of
    moves all of its answers alike, and says nothing about what it was taught to take them for.
    """
    if centred:
        answers = answers - answers.mean(1, keepdim=True)
        if answers.shape[2] > 1:
            answers = answers - answers.mean(2, keepdim=True)
    return cosines(answers.flatten(1))


def radius(apart: Tensor, reach: float, least: float, most: float) -> float:
    """How far a neighbour may lie: `reach` times the median distance to the nearest other, from `least` to `most`.

    Updates of the first rounds agree far less than later ones do; no fixed distance fits both.
    """
    nearest = apart.clone().fill_diagonal_(torch.inf).min(dim=1).values
    return max(least, min(most, reach * float(nearest.median())))


def grouped(apart: Tensor, within: float, neighbours: int) -> list[list[int]]:
    """The clusters of DBSCAN, in the order of their first members; each point that it calls noise is one by itself."""
    from sklearn.cluster import DBSCAN

    if len(apart) < 2:
        return [[at] for at in range(len(apart))]
    # Zero is no radius there: identical models are as near as anything can be.
    near = max(within, 1e-12)
    found = DBSCAN(eps=near, min_samples=neighbours, metric="precomputed").fit(apart.clamp(min=0).cpu().numpy())
    groups: dict[Any, list[int]] = {}
    for at, label in enumerate(found.labels_.tolist()):
        groups.setdefault(label if label >= 0 else ("alone", at), []).append(at)
    return list(groups.values())


@dataclass(frozen=True)
class Labels:
    """Which cluster each client was last in, and the first number that none has had."""

    of: Mapping[str, int]
    unused: int = 0

    def after(self, groups: Sequence[Sequence[str]], merge: Merge, split: Split = "join") -> Labels:
        """The labels after a round.

        A group of clients without labels gets a new one; else it takes the label that most of its labelled members
        have, the older one where two are as frequent. Where its members had several, `new` gives the group (and none
        of the absent) one that nobody had: of Tazza's Algorithm 1 line 11 does the one and line 13 the other. It does
        not say what becomes of several groups of one round with one label: `join` lets all of them keep it, `part` the
        one with most who had it (of these the largest, of these the first); the others get new labels.
        """
        of, unused = dict(self.of), self.unused
        known = [Counter(self.of[name] for name in group if name in self.of) for group in groups]
        wishes = [min(had, key=lambda one: (-had[one], one)) if had else None for had in known]
        for at, group in enumerate(groups):
            label = wishes[at]
            if label is not None and split == "part":
                size = [(had[label], len(groups[other]), -other) for other, had in enumerate(known)]
                rivals = [other for other, wish in enumerate(wishes) if wish == label]
                label = label if at == max(rivals, key=size.__getitem__) else None
            if label is None or (len(known[at]) > 1 and merge == "new"):
                label, unused = unused, unused + 1
            of |= dict.fromkeys(group, label)
        return Labels(of, unused)

    def members(self) -> dict[int, tuple[str, ...]]:
        """The clients of each cluster that has any."""
        found: dict[int, list[str]] = {}
        for name in sorted(self.of):
            found.setdefault(self.of[name], []).append(name)
        return {label: tuple(names) for label, names in sorted(found.items())}


class Clusters(Aggregator, use="clusters"):
    """Uploads that answer random probes alike are averaged together, and a client gets its own cluster's model.

    The server draws `probes` inputs of independent, identically distributed noise, anew each round: such an input is
    as likely in any order, so that it fits models under every permutation and tells nothing about it. Two uploads are
    as far apart as 1 minus the cosine of their answers (`centred`: see `likeness`); DBSCAN with `neighbours` (the point
    itself counts) groups them within `radius`, or, where that is not set, within `reach` times the median distance to
    the nearest other, `least` at least and `most` at most. Uploads whose weights have a smaller cosine than `kin` are
    no neighbours, whatever they answer: one with its hidden units in another order answers like any other, and no mean
    can be taken of the two. Clients keep their label over rounds; `merge` is what becomes of a group whose members had
    several, `split` of several groups whose members had one. `starts` says whose uploads are a group's next model: all
    of its members', or only those of members who had its label or none. A cluster of which nobody is present keeps its
    model. Who has no label gets the largest cluster's model. With `probes_from = "samples"` the inputs are records of
    the clients' own instead, one that came with each upload.
    Tazza's section 5.4 names no parameters of DBSCAN, and sends the server permuted records of the clients.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"rows", "intact", "ids", "answers"})
    forms: ClassVar[frozenset[Form]] = frozenset({"weights"})

    probes: int = Field(256, ge=2, le=1 << 16, description="how many inputs the uploads are asked about")
    probes_from: Literal["noise", "samples"] = Field(
        "noise",
        description="`noise`: inputs that the server draws; `samples`: one record of each client (`encode.samples`), "
        "as the paper has it",
    )
    centred: bool = Field(True, description="compare answers without their means")
    radius: float | None = Field(
        None, gt=0, le=2, description="distance within which answers count as alike; from `reach` unless set"
    )
    reach: float = Field(
        1.5, gt=0, description="that distance as a multiple of the median distance to the nearest other"
    )
    least: float = Field(0.1, gt=0, le=2, description="the distance is at least this")
    most: float = Field(0.85, gt=0, le=2, description="the distance is at most this")
    neighbours: int = Field(2, ge=1, description="how many neighbours DBSCAN asks of a core point")
    kin: float = Field(
        0.5, ge=-1, le=1, description="uploads whose weights have a cosine below this are never put together"
    )
    merge: Merge = Field(
        "dominant", description="a group whose members had several labels takes the `dominant` one or a `new` one"
    )
    split: Split = Field(
        "part",
        description="of several groups with one label all keep it (`join`), or the one with most who had it (`part`)",
    )
    starts: Starts = Field(
        "uploads",
        description="a group's next model is made of all its `uploads`, or of those who had its `dominant` label or "
        "none",
    )
    within: Within = Field("mean", description="how a group's uploads are joined: `mean`, `median` or `trimmed`")

    @property
    def asks(self) -> frozenset[str]:
        """Records of clients too, where it asks models about these."""
        return self.needs | ({"samples"} if self.probes_from == "samples" else set())

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.least > self.most:
            raise SpecError(
                f"protocol.aggregate.least = {self.least}, most = {self.most}: the radius lies between them; lower the "
                "one or raise the other, or set radius"
            )
        return self

    @property
    def anew(self) -> bool:
        """True: clusters are remembered by clients' names, and one of which nobody came keeps its model and frame."""
        return True

    def __call__(self, gathered: Gathered, desk: Desk, memory: Memory) -> tuple[tuple[Model, ...], Memory]:
        """One model a cluster. Raises: ProtocolError without names, or without the network to ask."""
        rows = alike(gathered, self.use)
        if gathered.ids is None or desk.answers is None:
            raise ProtocolError(f"aggregate = {self.use!r} needs whole updates with their names, and the network")
        inputs = self._drawn(desk) if self.probes_from == "noise" else gathered.samples
        if inputs is None:
            raise ProtocolError(f"aggregate = {self.use!r} asks about records that came with the uploads; none did")
        apart = 1 - likeness(torch.stack([desk.answers(row, inputs) for row in rows]).double(), centred=self.centred)
        near = self.radius or radius(apart, self.reach, self.least, self.most)
        groups = grouped(apart.where(cosines(rows) >= self.kin, _FAR).fill_diagonal_(0), near, self.neighbours)
        named = [[gathered.ids[at] for at in group] for group in groups]
        before = Labels(dict(memory.get("labels", {})), int(memory.get("unused", 0)))
        labels = before.after(named, self.merge, self.split)
        fresh = {
            labels.of[names[0]]: Model(self._joined(rows[self._counted(names, places, before, labels)]), gathered.frame)
            for names, places in self._together(named, groups, labels)
        }
        models = tuple(self._models(labels, fresh, desk.models, before))
        return models, {"labels": dict(labels.of), "unused": labels.unused, "groups": tuple(map(tuple, named))}

    def tolerates(self) -> str:
        """What grouping gives, and what it does not."""
        asked = "random inputs" if self.probes_from == "noise" else "one record of each, which it may choose,"
        return (
            f"clients whose models answer {asked} unlike the others' train apart from them; one whose answers "
            "stay near enough is averaged in, and nothing bounds what it does there: a backdoor that these inputs do "
            "not show, or an upload of which a few hidden units lie in another order, which answers alike and spoils "
            "the mean (with most of them in another order its weights give it away). Nothing is proved, and clusters "
            "of malicious clients get models too"
        )

    def _drawn(self, desk: Desk) -> Tensor:
        count = self.probes * int(torch.tensor(desk.inputs).prod())
        noise = desk.coins.child("probes").secure().normal(count)
        return torch.from_numpy(noise).float().reshape(self.probes, *desk.inputs)

    def _together(
        self, named: Sequence[Sequence[str]], groups: Sequence[Sequence[int]], labels: Labels
    ) -> Iterator[tuple[list[str], list[int]]]:
        """Groups of one round that ended under one label are one cluster."""
        joined: dict[int, tuple[list[str], list[int]]] = {}
        for names, places in zip(named, groups, strict=True):
            held = joined.setdefault(labels.of[names[0]], ([], []))
            held[0].extend(names)
            held[1].extend(places)
        yield from joined.values()

    def _counted(self, names: Sequence[str], places: Sequence[int], before: Labels, labels: Labels) -> list[int]:
        """The rows that make a cluster's model; where nobody had its label, all of them."""
        label = labels.of[names[0]]
        if self.starts == "uploads" or label not in before.of.values():
            return list(places)
        return [at for name, at in zip(names, places, strict=True) if before.of.get(name, label) == label]

    def _joined(self, rows: Tensor) -> Tensor:
        """A cluster's model out of its members' uploads."""
        if self.within == "median":
            return middle(rows).float()
        if self.within == "trimmed":
            return trimmed_mean(rows, int(_TRIM * len(rows))).float()
        return combine(rows, chosen(torch.arange(len(rows)), len(rows))).float()

    def _models(
        self, labels: Labels, fresh: Mapping[int, Model], last: Sequence[Model], before: Labels
    ) -> Iterator[Model]:
        """The clusters' models, each with its clients; one of which nobody came keeps its own."""
        kept = {before.of[model.recipients[0]]: model for model in last if model.recipients}
        for label, names in labels.members().items():
            model = fresh.get(label) or kept[label]
            yield Model(model.vector, model.frame, names)
