"""Romoa: every coordinate of every update has a weight of its own, from three likenesses to the median update.

A rule against clients that lie: what is unlike most updates counts for less. It is the one rule here that weighs single
coordinates, so that it has a file of its own. It remembers the factors of each client, of the last round that the
client took part in, and the last direction. A description names it (`protocol.aggregate = "romoa"`), and
`papers.rain.baseline_rules` in the laboratory calls `romoa`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.reputation import RemembersClients
from croupier.aggregate.robust import Move
from croupier.aggregate.rows import middle, share, squared_distances
from croupier.core.flow import Memory
from croupier.core.update import Gathered

Span = tuple[int, int]

# Coordinates that are taken at once; and what keeps a quotient from being one by 0.
_BLOCK = 1 << 16
_SMALL = 1e-5
# Beyond it an exponential is no float64 any more.
_STEEP = 700.0


def romoa(
    rows: Tensor, spans: Sequence[Span], last: Tensor, before: Tensor, beta: float = 0.5
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of the clipped rows, each coordinate times its factor; the mean factor of each row; this round's factors.

    `spans` are where each tensor of weights begins and ends, `last` is the direction of the round before, and `before`
    has each row's factors of its client's last round.
    """
    found = factors(rows, spans, last)
    mixed = (1 - beta) * found + beta * before.to(found)
    # They add up to 1 for each coordinate already, unless other clients took part in the round before.
    mixed = share(mixed, mixed.sum(0))
    low, high = middle(rows.min(1).values), middle(rows.max(1).values)
    blocks = zip(*(table.split(_BLOCK, 1) for table in (rows, mixed)), strict=True)  # type: ignore[no-untyped-call]
    direction = torch.cat([(row.double().clamp(low, high) * part.double()).sum(0) for row, part in blocks])
    return direction, mixed.double().mean(1), found


def factors(rows: Tensor, spans: Sequence[Span], last: Tensor) -> Tensor:
    """The factors of a round, (rows, coordinates): for each coordinate they add up to 1."""
    last = last.to(rows.device)
    centre = torch.cat([middle(block) for block in rows.split(_BLOCK, 1)])  # type: ignore[no-untyped-call]
    picked = large(rows).nonzero()[:, 0]
    # Negating a measure changes neither clusters nor distances to a centre, and scores by no more than `_SMALL` does.
    single = scores(-_pairwise(rows[:, picked], centre[picked], last[picked]))
    by_layer = _layers(rows, spans, centre)
    out = torch.empty_like(rows, dtype=torch.float32)
    place = torch.full((rows.shape[1],), -1, device=rows.device)
    place[picked] = torch.arange(len(picked), device=rows.device)
    for number, (start, stop) in enumerate(spans):
        layer = torch.minimum(*(_steep(scores(one)[:, [number]]) for one in by_layer))
        for at in range(start, stop, _BLOCK):
            here = place[at : min(stop, at + _BLOCK)]
            value = layer.repeat(1, len(here))
            # Coordinates that are large in no update are judged by their layer alone.
            seen = here >= 0
            value[:, seen] = torch.minimum(value[:, seen], _steep(single[:, here[seen]].double()))
            out[:, at : at + len(here)] = torch.softmax(value, 0).float()
    return out


def large(rows: Tensor) -> Tensor:
    """Which coordinates are large in some row: among the largest 1/n of its values, where there are n rows."""
    count = max(1, rows.shape[1] // len(rows))
    found = torch.zeros(rows.shape[1], dtype=torch.bool, device=rows.device)
    for row in rows:
        found[row.abs().topk(count, sorted=False).indices] = True
    return found


def scores(measures: Tensor) -> Tensor:
    """How near each row's measures are to a centre, 1 where they equal it: the rows are put into two clusters.

    The centre is the mean of the larger cluster, or of all rows where both are of one size.
    """
    labels = two_means(measures)
    sizes = torch.where(labels, labels.sum(), (~labels).sum()).double()
    weights = share(sizes - sizes.min(), sizes.max() - sizes.min())
    # Clusters of one size decide nothing.
    weights = weights if bool(weights.any()) else torch.ones_like(weights)
    centre = ((weights / weights.sum())[:, None] * measures.double()).sum(0)
    found: Tensor = 1 - ((measures.double() - centre) / (centre + _SMALL)).abs()
    return found


def two_means(points: Tensor) -> Tensor:
    """Which of two clusters each point is in, from the two that lie farthest apart; all in one where all are equal."""
    apart = squared_distances(points)
    first = int(apart.argmax())
    far = apart[:, first % len(apart)] < apart[:, first // len(apart)]
    if not float(apart.max()) > 1e-12 * float(points.double().square().sum(1).max()):
        return torch.zeros_like(far)
    for _ in range(100):
        # The distance to a centre by the distances to its points alone.
        to = [apart[:, side].mean(1) - apart[side][:, side].mean() / 2 for side in (far, ~far)]
        now = to[0] < to[1]
        if torch.equal(now, far) or not bool(now.any()) or bool(now.all()):
            break
        far = now
    return far


def _pairwise(rows: Tensor, centre: Tensor, last: Tensor) -> Tensor:
    """For each coordinate the cosine of the vectors (last, centre) and (last, row); 0 where one has no length."""
    found = torch.empty_like(rows, dtype=torch.float32)
    for at in range(0, rows.shape[1], _BLOCK):
        block, one, two = (table[..., at : at + _BLOCK].double() for table in (rows, centre, last))
        lengths = torch.hypot(two, one) * torch.hypot(two.expand_as(block), block)
        found[:, at : at + _BLOCK] = share(two * two + one * block, lengths)
    return found


def _layers(rows: Tensor, spans: Sequence[Span], centre: Tensor) -> tuple[Tensor, Tensor]:
    """The negated cosine with the centre, and the correlation with it, of every row in every tensor's large values."""
    against, together = [], []
    for start, stop in spans:
        picked = large(rows[:, start:stop])
        part, middle_part = rows[:, start:stop][:, picked].double(), centre[start:stop][picked].double()
        against.append(-_cosine(part, middle_part))
        off = part - part.mean(1, keepdim=True), middle_part - middle_part.mean()
        together.append(_cosine(*off, otherwise=-1.0))
    return torch.stack(against, 1), torch.stack(together, 1)


def _cosine(rows: Tensor, one: Tensor, otherwise: float = 0.0) -> Tensor:
    lengths = rows.norm(dim=1) * one.norm()
    return torch.where(lengths > 0, share(rows @ one, lengths), otherwise)


def _steep(score: Tensor) -> Tensor:
    """Scores spread apart exponentially, the more rows there are: a softmax of them then decides."""
    found: Tensor = score.sign() * torch.exp((score.abs() * len(score)).clamp(max=_STEEP))
    return found


class Romoa(RemembersClients, use="romoa"):
    """The sum of clipped updates, every coordinate by a factor from three likenesses to the median update.

    Likenesses are of single coordinates, each as a vector of two with the last step, and of tensors, by cosine and
    correlation, all on the coordinates that are largest in some update. Each is clustered in two, and an update gets
    the less, the farther it lies from the larger cluster's middle. `beta` is what a client's earlier factors count for.
    From: Mao et al. 2021. Two clusters grow from the two updates farthest apart, not from random ones; a coordinate
    that is large in no update is judged by its tensor alone. It remembers one number a weight and client.
    """

    beta: float = Field(0.5, ge=0, lt=1, description="what the factors of the round before count for")

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The weighted sum. Raises: ProtocolError where names are hidden, unless `slots` makes do without."""
        names = self.names(gathered, len(rows))
        known: dict[str, Tensor] = dict(memory.get("factors", {}))
        even = torch.full((rows.shape[1],), 1 / len(rows))
        before = torch.stack([known.get(name, even) for name in names])
        spans = [(start, stop) for part, start, stop in desk.layout.spans() if part.role == "weight" and stop > start]
        step = memory.get("step", torch.zeros(rows.shape[1]))
        direction, weights, found = romoa(rows, spans, step, before, self.beta)
        known.update(zip(names, found, strict=True))
        return Move(direction, weights, {**memory, "factors": known, "step": direction.float()})

    def tolerates(self) -> str:
        """What the clip gives."""
        return (
            "fewer than half of the rows, in this sense only: no weight moves farther than an honest update's largest "
            "value; what is unlike the larger cluster counts for less, and no number of liars is claimed for that"
        )
