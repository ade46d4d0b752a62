"""Eight clients with a few handwritten digits each; their network; and what an auditor tells."""

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn

CLIENTS = [f"client-{number}" for number in range(1, 9)]


def net(shape, classes):
    return nn.Sequential(nn.Linear(shape[0], 32), nn.ReLU(), nn.Linear(32, classes))


@cache
def parts(client):
    """A client's records: those it trains on, some that it never uses, and a few that the server holds of its kind."""
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(7))
    train, fresh, shadow = order[CLIENTS.index(client) :: len(CLIENTS)][:98].split([60, 30, 8])
    return (x[train], y[train]), (x[fresh], y[fresh]), (x[shadow], y[shadow])


def trained(client):
    return parts(client)[0]


def shadow(folder, clients):
    """Who attacks knows the shadow sets and the records asked about; whose these are only the score is told."""
    clients = clients or CLIENTS
    every = {client: parts(client) for client in clients}
    return {
        "shadows": {client: held[2] for client, held in every.items()},
        "asked": {client: (held[0][0][:30], held[0][1][:30]) for client, held in every.items()},
        "members": {client: (held[0][0][30:60], held[0][1][30:60]) for client, held in every.items()},
        "others": {client: held[1] for client, held in every.items()},
    }
