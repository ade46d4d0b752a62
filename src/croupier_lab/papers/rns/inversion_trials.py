"""Which attacks are tried on which networks, and at which scale, for RNS's figure of gradient inversion.

`papers/rns/inversion` (`croupier reproduce rns/figure8`) mounts them and copies the substitutions into its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from croupier.learn.models import CifarCnn, DlgLeNet, Network
from croupier.learn.png import png as png
from croupier_lab.attacks.gradient_search import (
    DEFENCES,
    Attack,
    Defence,
    Dlg,
    Inverting,
    dlg,
    inverting,
)
from croupier_lab.papers.shared.figure import Scale

PRINTED = {
    "none": {"loss": 3e-4, "where": "Appendix F.3, the original attack"},
    "sum": {"loss": 0.98, "where": "Appendix F.3, under Algorithm 1, even with as few as five clients"},
}


@dataclass(frozen=True)
class InversionTrial:
    """One attack on one network: how many FedSGD steps are tried, with how many clients of `batch` records each."""

    label: str
    network: Network
    recipe: Dlg | Inverting
    targets: int
    clients: int
    side: int
    defences: tuple[Defence, ...] = DEFENCES
    batch: int = 1

    @property
    def attack(self) -> Attack:
        """The attack, ready to be mounted."""
        return dlg(self.recipe) if isinstance(self.recipe, Dlg) else inverting(self.recipe)


# The defences without the layer shuffle, whose attack takes one search for each layer.
UNLINKED: tuple[Defence, ...] = ("none", "model shuffle", "parameter shuffle", "sum")
LENET, CNN = DlgLeNet(), CifarCnn(standardise=True)
# Weight of total variation, a published choice for one CIFAR picture and an untrained network.
FAINT = 1e-6
_SMOKE = Dlg(steps=30, restarts=2, enough=1e-4)
_SMALL = Dlg(steps=120, restarts=4, enough=3e-5)
_PAPER = Dlg(steps=300, restarts=4, enough=1e-6)
_INVERTING = "Inverting Gradients on cifar-cnn"
ATTEMPTS: Mapping[Scale, tuple[InversionTrial, ...]] = {
    "smoke": (
        InversionTrial("DLG, 5 clients", LENET, _SMOKE, 2, 5, 16),
        InversionTrial(f"{_INVERTING}, 5 clients", CNN, Inverting(steps=30, variation=FAINT), 2, 5, 32, UNLINKED),
    ),
    "small": (
        InversionTrial("DLG, 5 clients", LENET, _SMALL, 6, 5, 16),
        InversionTrial("DLG, 10 clients", LENET, _SMALL, 6, 10, 16, UNLINKED),
        InversionTrial(f"{_INVERTING}, 5 clients", CNN, Inverting(steps=300, variation=FAINT), 4, 5, 32, UNLINKED),
    ),
    "paper": (
        InversionTrial("DLG, 5 clients", LENET, _PAPER, 20, 5, 32),
        InversionTrial("DLG, 10 clients", LENET, _PAPER, 20, 10, 32),
        InversionTrial(f"{_INVERTING}, 5 clients", CNN, Inverting(steps=4000, variation=FAINT), 10, 5, 32),
        InversionTrial(f"{_INVERTING}, 10 clients", CNN, Inverting(steps=4000, variation=FAINT), 10, 10, 32, UNLINKED),
    ),
}
# Public pictures, and draws of them for the prior.
PUBLIC = 1000
DRAWS = 16
SUBSTITUTIONS = (
    "the paper names neither the network nor the weights: the network of the attack's own publication, untrained, with "
    "weights uniform within -0.5 and 0.5, and the CIFAR-10 network of this paper for the second attack",
    "the paper's loss is not said to be of pictures or of gradients: both are here, pictures raw and cut to 0 to 1",
    "the paper shows single pictures: here every target is a step of its own, with fresh weights and fresh records",
    "Algorithm 1 lets out the sum exactly, so it is attacked as the exact mean; rounding to its precision is left out",
    "the attack knows how many records are behind a gradient and looks for as many; what comes of looking for one, as "
    "the original program does, stands beside it",
    "restarts are chosen by the attack's own loss; the original attack starts once",
    "the second attack's publication has another ConvNet, with eight convolutions and batch normalisation",
)
READING = (
    "Compare each likeness with the priors, which see nothing: the mean of public pictures, and as many public "
    "pictures as the attack found, paired with the truth in the same way. A shuffle of whole models changes no "
    "picture: it only takes the name from it. A shuffle of parameters lets out the mean, and more that is not used "
    "here. Where the numbers seen outnumber the pixels sought, a mean hides pictures only as long as the search is "
    "short: that an attack fails on it is then no sign of safety."
)
