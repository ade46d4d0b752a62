"""The task of the app of `bench flower`: a small network learns handwritten digits; nothing is downloaded.

Its two programs, `client_app` and `server_app`, use it. The SecAgg+ twin has no copy of its own:
`superlink.secagg_copy` lays its two programs over this app.
"""

from __future__ import annotations

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

TEST = 397
Records = tuple[Tensor, Tensor]


class Net(nn.Module):
    """A multilayer perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Ten scores a picture."""
        out: Tensor = self.layers(x)
        return out


@cache
def digits() -> Records:
    """All records, in one fixed order."""
    found = load_digits()
    pictures, labels = torch.tensor(found.data, dtype=torch.float32) / 16, torch.tensor(found.target)
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0))
    return pictures[order], labels[order]


def load_data(partition: int, partitions: int) -> tuple[Records, Records]:
    """One node's records for training, and all nodes' for testing."""
    pictures, labels = digits()
    mine = torch.arange(TEST + partition, len(pictures), partitions)
    return (pictures[mine], labels[mine]), (pictures[:TEST], labels[:TEST])


def train(net: nn.Module, records: Records, epochs: int, lr: float, seed: int) -> float:
    """Train, and give the mean loss of the last epoch."""
    pictures, labels = records
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    shuffle = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(pictures), generator=shuffle).split(32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(pictures[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
    return total / len(pictures)


def test(net: nn.Module, records: Records) -> tuple[float, float]:
    """Loss and accuracy."""
    with torch.no_grad():
        scores = net(records[0])
    loss = nn.functional.cross_entropy(scores, records[1])
    return loss.item(), (scores.argmax(1) == records[1]).float().mean().item()
