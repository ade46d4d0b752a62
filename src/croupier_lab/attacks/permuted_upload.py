"""What a server makes of a permuted upload of one step, by what it knows of the rule, which is the secret order.

The server knows the model it handed out. An upload of one step is that model less a gradient times the learning rate,
in another order. So a gradient can be read off only where the two are in one order. `read_upload` makes that gradient
and `record_of` the record behind it, for Tazza's tables and figures (`papers.tazza.inversion_targets` and
`papers.tazza.parameter_search`; `papers.tazza.confidentiality_defences` takes `Knows`). `attacks.permuted_records` uses
`record_behind`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import SpecError, Unsuited
from croupier.learn.axes.matching import match
from croupier.learn.ends import find_entrance
from croupier.learn.gradient_search import SearchRecipe, Target, search_records
from croupier.learn.gradients import gradient_from, holding
from croupier.learn.layer_gradients import at_entrance, label_of, off_layer
from croupier_lab.attacks.gradient_search import Attack

# What the server knows. "order": everything is in plain order. "nothing": it takes the upload to be in plain order, and
# it is not; both are read alike, as they lie. "matched": the rule, by weight matching with the first model, which lies
# in plain order. "told": the rule, from a client. "relative": the first model lies in an order of its own, which the
# clients drew, and matching finds how the upload's order differs from that one.
Knows = Literal["order", "nothing", "matched", "told", "relative"]


@dataclass(frozen=True)
class ReadUpload:
    """A gradient as the server reads it, the network it belongs to, and the rule that was taken for true."""

    gradient: Tensor
    network: nn.Module
    rule: Rule | None


def read_upload(
    knows: Knows, module: nn.Module, handed: Tensor, upload: Tensor, symmetry: Symmetry, lr: float, coins: Coins,
    told: Rule | None = None,
) -> ReadUpload:  # fmt: skip
    """What the server makes of an upload of one step of plain SGD from the model it handed out.

    Under "relative" the handed model is itself in an unknown order: what is then inverted are records in that order.
    Raises: SpecError for "told" without a rule.
    """
    rule = None
    if knows in ("matched", "relative"):
        rule = match(handed, upload, symmetry, coins).rule
    elif knows == "told":
        if told is None:
            raise SpecError("knows = 'told': give the rule that a client told the server")
        rule = told
    read = upload if rule is None else symmetry.invert(upload, rule)
    size = sum(part.numel() for part in module.parameters() if part.requires_grad)
    return ReadUpload(gradient_from(read[:size], handed[:size], lr), holding(module, handed, symmetry.layout), rule)


def record_of(
    seen: ReadUpload, shape: Sequence[int], classes: int, coins: Coins, attack: Attack | None = None
) -> Tensor:
    """The one record behind an upload: searched for by `attack`, or, without one, read off the first layer.

    An `Attack` is a search of the laboratory's, as papers have them; `record_behind` takes a recipe of the product's
    own search. Raises: Unsuited.
    """
    if attack is None:
        return record_behind(seen.gradient, seen.network, shape, classes, coins)
    label = label_of(seen.gradient, seen.network, shape)
    return attack(seen.network, Target(seen.gradient, 1, tuple(shape), classes, label), coins).pictures


def record_behind(
    gradient: Tensor, network: nn.Module, shape: Sequence[int], classes: int, coins: Coins,
    search: SearchRecipe | None = None,
) -> Tensor:  # fmt: skip
    """The one record behind a network's gradient: searched for by a recipe, or, without one, read off its first layer.

    Raises: Unsuited for a first layer that is not linear with biases, or a label or gradient that cannot be read.
    """
    if search is not None:
        target = Target(gradient, 1, tuple(shape), classes, label_of(gradient, network, shape))
        return search_records(search, network, target, coins.child(0))[0]
    first = find_entrance(network, shape)
    if first is None:
        raise Unsuited("the first layer is not linear with biases: search for it (learn.gradient_search)")
    return off_layer(*at_entrance(gradient, network, first)).reshape(1, *shape)
