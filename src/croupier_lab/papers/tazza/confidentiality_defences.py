"""Confidentiality defences of Tazza's paper, each defined once: on one gradient that is inverted, and in training.

Pruning and noise must mean the same where a record is inverted and where a model is trained, or a trade-off between the
two means nothing. `inversion_targets` (Table 2, Figure 11) uses `Shield.done`, and `combined_defences` (Figures 10 and
12) `Shield.fit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.learn.dp_fit import DpAdam
from croupier.learn.fit import Adam, Fit, prune
from croupier_lab.attacks.permuted_upload import Knows

# DP-SGD as in Abadi et al. 2016, whom the paper cites: gradients clipped to 4, multipliers 2, 4 and 8; the noise a
# coordinate is what a batch of 64 has.
CLIP, BATCH = 4.0, 64
Kind = Literal["none", "pruning", "noise", "permuted"]


@dataclass(frozen=True)
class Shield:
    """A defence: what pruning takes away, how much noise, or what the server knows of a permutation.

    `amount` is the share that pruning takes away, or the multiplier of the noise.
    """

    label: str
    kind: Kind
    amount: float = 0.0
    knows: Knows = "order"

    def done(self, gradient: Tensor, coins: Coins) -> Tensor:
        """One record's gradient as it is sent; a permutation is applied after this."""
        if self.kind == "pruning":
            return prune(gradient, 1 - self.amount)
        if self.kind == "noise":
            drawn = torch.from_numpy(coins.secure().normal(len(gradient))).to(gradient)
            kept = gradient * min(1.0, CLIP / max(float(gradient.norm()), 1e-12))
            return kept + self.amount * CLIP / BATCH * drawn
        return gradient

    def fit(self, plain: Adam) -> Fit:
        """A client's training under it: every step's gradient pruned, or records' gradients clipped and noised."""
        if self.kind == "pruning":
            return plain.model_copy(update={"keep": 1 - self.amount})
        if self.kind == "noise":
            return DpAdam(**dict(plain), clip=CLIP, noise=self.amount)
        return plain


NONE = Shield("FedAvg", "none")
PRUNING = tuple(Shield(f"pruning {share:.0%}", "pruning", share) for share in (0.7, 0.9, 0.99))
NOISE = tuple(Shield(f"DP-SGD {size}", "noise", amount) for size, amount in (("S", 2.0), ("M", 4.0), ("L", 8.0)))
UNKNOWN = Shield("Tazza, rule unknown", "permuted", knows="nothing")
MATCHED = Shield("Tazza, rule matched", "permuted", knows="matched")
LEAKED = Shield("Tazza, rule leaked", "permuted", knows="told")
SHIELDS = (NONE, *PRUNING, *NOISE, UNKNOWN, MATCHED, LEAKED)
# What the paper takes for its tables: pruning at 90 %, and the medium noise.
MEDIUM = NOISE[1]
MIDDLE = (PRUNING[1], MEDIUM)
# Average LPIPS that Table 2 prints; the ViT's is of STL-10, for which CIFAR-10 stands in here.
LPIPS: Mapping[tuple[str, str], float] = {
    ("MNIST / MLP", NONE.label): 0.04, ("MNIST / MLP", PRUNING[1].label): 0.69,
    ("MNIST / MLP", NOISE[1].label): 0.52, ("MNIST / MLP", UNKNOWN.label): 0.75,
    ("CIFAR-10 / Mixer", NONE.label): 0.36, ("CIFAR-10 / Mixer", PRUNING[1].label): 0.61,
    ("CIFAR-10 / Mixer", NOISE[1].label): 0.51, ("CIFAR-10 / Mixer", UNKNOWN.label): 0.62,
    ("CIFAR-10 / ViT", NONE.label): 0.63, ("CIFAR-10 / ViT", PRUNING[1].label): 0.73,
    ("CIFAR-10 / ViT", NOISE[1].label): 0.68, ("CIFAR-10 / ViT", UNKNOWN.label): 0.75,
}  # fmt: skip
