"""All figures and tables by name, for `croupier reproduce`: every module named here exports a tuple `FIGURES`."""

from __future__ import annotations

from importlib import import_module

from croupier_lab.papers.shared.figure import Figure

# In the order in which they are listed.
MODULES = (
    "rns.source_inference", "rns.cost", "rns.mixnets", "rain.cost", "intra.cost", "rns.accuracy", "rns.dp_sgd",
    "rns.inversion", "rain.robustness", "rain.malicious_shares", "rain.server_rate",
    "intra.utility", "intra.recombination", "intra.attack_tables", "intra.attack_figures",
    "tazza.integrity", "tazza.cluster_sweep", "tazza.inversion", "tazza.parameter_search", "tazza.patch_search",
    "tazza.picture_distance", "tazza.permuted_training", "tazza.augmentation", "tazza.cost",
)  # fmt: skip
FIGURES: dict[str, Figure] = {
    figure.name: figure for module in MODULES for figure in import_module(f"croupier_lab.papers.{module}").FIGURES
}
