"""Tazza, models whose units are permuted by a secret order, run again.

Confidentiality is `inversion`, `inversion_targets`, `confidentiality_defences`, `parameter_search`, `patch_search`,
`picture_distance` and `augmentation`; integrity is `integrity`, `integrity_settings` and `cluster_sweep`; both together
are `combined_defences`, with `tradeoff_findings`. `permuted_training` shows what a permutation does not change, and
`cost` what it takes.
"""
