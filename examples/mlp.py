from pathlib import Path

import numpy as np
from torch import nn


def data(folder):
    table = np.genfromtxt(Path(__file__).with_name("hospitals.csv"), delimiter=",", names=True, dtype=None)
    x = np.stack([table[name] for name in ("age", "bmi", "pressure", "glucose", "smoker")], 1)
    x = (x - [60, 27, 138, 6, 0]) / [15, 5, 20, 1.5, 1]  # public numbers: all columns on one scale
    y, owner, test = table["readmitted"], table["hospital"], np.arange(len(x)) % 4 == 0
    return x[~test], y[~test], x[test], y[test], owner[~test], owner[test]


def net(shape, classes):
    return nn.Sequential(nn.Linear(shape[0], 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, classes))
