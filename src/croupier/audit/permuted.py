"""What a server that gets permuted uploads can invert: without the rule, with a rule it matched, with one it was told.

The server knows the model it handed out. An upload of one step is that model less a gradient, in another order; a
gradient can be read off only where the two are in one order.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from croupier.audit.invert import Attack, Target, gradient_from
from croupier.audit.match import match, shares
from croupier.audit.score import smooth
from croupier.core.coins import Coins
from croupier.core.update import Layout
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import SpecError, Unsuited
from croupier.learn.ends import Entrance, find_entrance, last_gradient
from croupier.learn.flat import layout_of

Knows = Literal["order", "nothing", "matched", "told", "relative"]
KNOWS: Mapping[Knows, str] = {
    "order": "uploads come in plain order",
    "nothing": "uploads are permuted, and are read as if they were not",
    "matched": "uploads are permuted; the rule is recovered by weight matching",
    "told": "uploads are permuted; a client told the server the rule",
    "relative": "the clients drew the first model, so that the server never saw plain order; matching is relative",
}


@dataclass(frozen=True)
class Glance:
    """A gradient as the server reads it, the network it belongs to, and the rule that was taken for true."""

    gradient: Tensor
    network: nn.Module
    rule: Rule | None


def glance(
    knows: Knows, module: nn.Module, handed: Tensor, upload: Tensor, symmetry: Symmetry, lr: float, coins: Coins,
    told: Rule | None = None,
) -> Glance:  # fmt: skip
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
    return Glance(gradient_from(read[:size], handed[:size], lr), holding(module, handed, symmetry.layout), rule)


def holding(module: nn.Module, vector: Tensor, layout: Layout) -> nn.Module:
    """A copy of a network with the weights and statistics of a vector."""
    network = copy.deepcopy(module)
    held = dict(network.named_parameters()) | dict(network.named_buffers())
    with torch.no_grad():
        for part, start, stop in layout.spans():
            held[part.name].copy_(vector[start:stop].view(part.shape))
    return network


def at_entrance(gradient: Tensor, module: nn.Module, first: Entrance) -> tuple[Tensor, Tensor]:
    """A gradient's part in a linear layer that reads whole records: weights, one row a unit, and biases."""
    parts = {part.name: gradient[start:stop].view(part.shape) for part, start, stop in layout_of(module).spans()
             if part.role == "weight"}  # fmt: skip
    weight = parts[first.weight]
    return weight.T if first.flipped else weight, parts[first.bias]


def off_layer(weight: Tensor, bias: Tensor) -> Tensor:
    """The one record behind a linear layer's gradient: exact, no search.

    Each row of the weights' gradient is the record times the same row of the biases' gradient; all rows count, by
    least squares.
    """
    return (bias @ weight) / bias.square().sum().clamp(min=1e-30)


def linear_input(gradient: Tensor, module: nn.Module, shape: Sequence[int]) -> Tensor:
    """The one record behind the gradient of a network whose first layer is linear with biases.

    Raises: Unsuited for another first layer.
    """
    first = find_entrance(module, shape)
    if first is None:
        raise Unsuited("the first layer is not linear with biases: search for the record instead (audit.invert)")
    return off_layer(*at_entrance(gradient, module, first)).reshape(1, *shape)


def inverted(seen: Glance, shape: Sequence[int], classes: int, coins: Coins, attack: Attack | None = None) -> Tensor:
    """One record from a glance: by the given search, or, without one, read off the first layer. Raises: Unsuited."""
    if attack is None:
        return linear_input(seen.gradient, seen.network, shape)
    label = label_of(seen.gradient, seen.network, shape)
    return searched(attack, seen.network, Target(seen.gradient, 1, tuple(shape), classes, label), coins)


def searched(attack: Attack, network: nn.Module, target: Target, coins: Coins) -> Tensor:
    """Records that a search finds. Raises: Unsuited where the network's gradient cannot be differentiated."""
    try:
        return attack(network, target, coins).pictures
    except RuntimeError as error:
        # torch has no second derivative for some layers, and says so only when it is asked for.
        if "derivative" not in str(error):
            raise
        why = str(error).partition("\n")[0]
        raise Unsuited(f"a search differentiates the network's gradient, which cannot be done here ({why})") from error


def label_of(gradient: Tensor, module: nn.Module, shape: Sequence[int]) -> Tensor:
    """The class of a single record: only its bias of the last layer has a negative gradient.

    Without biases: only its row of the weights' gradient points against all others. Of two rows each does. Raises:
    Unsuited where there are only two, or where the last layer is not linear.
    """
    weight, bias = last_gradient(module, gradient, shape)
    if bias is not None:
        return bias.argmin().reshape(1)
    if len(weight) < 3:
        raise Unsuited("the last layer has no biases, and two classes' weights do not tell which one a record is of")
    alike = weight @ weight.T
    return (alike.sum(1) - alike.diagonal()).argmin().reshape(1)


def recovered(
    handed: Tensor, uploads: Sequence[Tensor], symmetry: Symmetry, true: Rule, coins: Coins
) -> list[dict[str, Any]]:
    """The share of each group that matching recovers from each of at least two uploads, scored against the truth."""
    found = [shares(match(handed, one, symmetry, coins.child(at)).rule, true) for at, one in enumerate(uploads)]
    out = []
    for group, size in symmetry.groups.items():
        rate = smooth([one[group] for one in found])
        out.append({"group": group, "size": size, "recovered": rate.rate, "low": rate.low, "high": rate.high,
                    "uploads": len(found), "chance": 1 / size})  # fmt: skip
    return out


def survives(groups: Sequence[Mapping[str, Any]], exposure: Mapping[Knows, float], prior: float) -> dict[str, Any]:
    """What a permutation of weights is worth, in plain sentences.

    `groups` as `recovered` gives them; `exposure` is the mean PSNR in dB of inverted records by what the server knows,
    and `prior` that of the mean public picture, which needs no view.
    """
    whole = [group for group in groups if group["low"] >= 0.99]
    places = sum(group["size"] for group in groups)
    share = sum(group["recovered"] * group["size"] for group in groups) / places
    said = [
        f"Weight matching recovers {share:.1%} of the {places} permuted places, at least 99 % in {len(whole)} of "
        f"{len(groups)} groups; a random order recovers {sum(1 for _ in groups) / places:.1%}."
    ]
    said += [
        f"Inversion when {KNOWS[knows]}: {value:.1f} dB, {value - prior:+.1f} dB against the mean public picture."
        for knows, value in exposure.items()
    ]
    if len(whole) == len(groups):
        said.append("Weight permutation is obfuscation, not encryption: nothing that depends on the rule survives.")
    elif whole:
        kept = ", ".join(group["group"] for group in groups if group not in whole)
        said.append(f"Weight permutation is obfuscation, not encryption: only {kept} withstood this attack so far.")
    else:
        said.append("This attack did not recover the rule; that it failed here is no proof that none can.")
    said.append("For confidentiality from the server use sum servers, which make the permutation unnecessary.")
    return {"groups": list(groups), "psnr": dict(exposure), "prior_psnr": prior, "recovered": share, "says": said}
