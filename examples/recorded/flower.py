"""The files that Flower's strategies commonly save: each round's aggregate, a list of arrays in the order of weights.

In a strategy of your own, behind `parameters = super().aggregate_fit(...)`, that is
`np.savez(f"round-{server_round}-weights.npz", *parameters_to_ndarrays(parameters))`.
"""

from pathlib import Path

import numpy as np
from loop import rounds

HERE = Path(__file__).parent / "flower"


def main():
    for number, _, _, mean in rounds():
        np.savez(HERE / f"round-{number}-weights.npz", *[value.numpy() for value in mean.values()])


if __name__ == "__main__":
    main()
