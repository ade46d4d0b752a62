"""A federated loop without Croupier or any engine: it writes down each round's model, and every client's update."""

import copy
from pathlib import Path

import torch
from mine import CLIENTS, net, trained
from safetensors.torch import save_file
from torch import nn

HERE = Path(__file__).parent


def learn(model, x, y):
    """What a client does: some epochs on its own records."""
    own, stream = copy.deepcopy(model), torch.Generator().manual_seed(0)
    steps = torch.optim.SGD(own.parameters(), lr=0.1)
    for _ in range(40):
        for part in torch.randperm(len(y), generator=stream).split(16):
            steps.zero_grad()
            nn.functional.cross_entropy(own(x[part]), y[part]).backward()
            steps.step()
    return own.state_dict()


def rounds(count=2):
    """Of every round its number, the model that is handed out, what clients make of it, and the next model."""
    torch.manual_seed(0)
    model = net((64,), 10)
    for number in range(1, count + 1):
        start = copy.deepcopy(model.state_dict())
        learnt = {client: learn(model, *trained(client)) for client in CLIENTS}
        mean = {name: torch.stack([one[name] for one in learnt.values()]).mean(0) for name in start}
        model.load_state_dict(mean)
        yield number, start, learnt, mean


def main():
    for number, start, learnt, _ in rounds():
        (HERE / "rounds" / str(number)).mkdir(parents=True, exist_ok=True)
        (HERE / "models").mkdir(exist_ok=True)
        save_file(start, HERE / "models" / f"{number}.safetensors")
        for client, update in learnt.items():
            save_file(update, HERE / "rounds" / str(number) / f"{client}.safetensors")


if __name__ == "__main__":
    main()
