"""What is learnt, from what, and how: data, splits, networks, local training, and the symmetries of networks.

`assemble` puts a task together from a description's parts: `data` and `datasets/` load records, `split` deals them to
clients, `models/` builds the network, and `train` lets a cohort learn, by the optimisers in `fit`. What the round loop
gets of all this is a `Task` (`engine.task`) that trains and measures; the loop itself holds no records.

Beside that stand record-level privacy (`private`, `sampled`, `apart`, `budget`), functions of the user's own (`own`,
`beside`, `given`), and what attacks and permutations need to know of a network (`ends`, `axes/`).
"""
