"""Memory: the resident high-water mark does not grow with the rounds."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json
from croupier_lab.bench.speed.simulation import SimulationSize, _marks, describe
from croupier.core.coins import Coins
print(json.dumps(_marks(describe(SimulationSize()), Coins.from_seed(0), 50)))
"""


def test_a_hundred_clients_take_no_more_after_fifty_rounds() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    first, last = json.loads(done.stdout)
    assert last <= 1.05 * first
