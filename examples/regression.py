from pathlib import Path

import numpy as np
from torch import nn


def data(folder):
    table = np.genfromtxt(Path(__file__).with_name("hospitals.csv"), delimiter=",", names=True, dtype=None)
    x = np.stack([table[name] for name in ("age", "bmi", "pressure", "glucose", "smoker")], 1)
    x = (x - [60, 27, 138, 6, 0]) / [15, 5, 20, 1.5, 1]
    y, owner, test = table["days"] - 5, table["hospital"], np.arange(len(x)) % 4 == 0  # days beyond five
    parts = {name: (owner == name) & ~test for name in np.unique(owner).tolist()}
    return {name: (x[at], y[at], x[test & (owner == name)], y[test & (owner == name)]) for name, at in parts.items()}


def net(shape, outputs):
    return nn.Linear(shape[0], outputs)
