"""Values out of carries: how far clients lie apart is found where carries tell it, and who holds which is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.scenes import CLIENTS, knowledge, rows, scene
from torch import Tensor

from croupier.audit.attacks.carries import candidates
from croupier.audit.attacks.source import ATTACKS
from croupier.audit.context import AttackContext
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.encode.moduli import moduli
from croupier.encode.residues import Counted
from croupier.errors import SpecError
from croupier_lab.attacks.residue_sums import counts_of as shown

UNIT = 1e-4


def counts_of(held: Tensor, digits: int = 4) -> Counted:
    """What a server counts of clients' values (rows)."""
    many = moduli(len(held), digits).values
    ones = shown(np.rint(held.double().numpy() / UNIT).astype(np.int64), many)
    return Counted(torch.from_numpy(ones), many, torch.full((held.shape[1],), UNIT).double(), len(held), 10**digits - 1)


def drawn(clients: int, spread: float, count: int = 300) -> Tensor:
    """Clients around means that differ far more than they do."""
    draw = Coins.from_seed(8).child(clients, str(spread)).fast()
    return torch.randn(count, generator=draw) * 0.1 + spread * torch.randn(clients, count, generator=draw)


def guess(held: Tensor) -> Tensor:
    counts = counts_of(held)
    return candidates(counts, torch.arange(held.shape[1]), Coins.from_seed(1).fast())


@pytest.mark.parametrize("clients", [2, 3, 5])
@pytest.mark.parametrize(("spread", "least"), [(0.0003, 0.7), (0.001, 0.1)])
def test_how_far_clients_lie_apart_is_found(clients: int, spread: float, least: float) -> None:
    held = drawn(clients, spread, 600)
    found = guess(held)
    assert torch.allclose(found.sum(0), held.sum(0), atol=2 * clients * UNIT)
    assert bool((found.diff(dim=0) >= 0).all())
    # The spread of all parameters is learnt from the view.
    assert float(found.std(0).mean()) == pytest.approx(float(held.std(0).mean()), rel=0.25)
    # And that of each one, better than by the same spread for all.
    apart, true = found.std(0), held.std(0)
    assert float(torch.corrcoef(torch.stack([apart, true]))[0, 1]) > least


@pytest.mark.parametrize("clients", [3, 5])
def test_of_clients_far_beyond_the_moduli_no_spread_is_found(clients: int) -> None:
    """A hundred units apart, moduli up to 13: carries are then no more than a hash of the values."""
    held = drawn(clients, 0.01, 600)
    both = torch.stack([guess(held).std(0), held.std(0)])
    assert abs(float(torch.corrcoef(both)[0, 1])) < 0.15


def test_pairs_close_together_are_found_exactly() -> None:
    """Two clients a few units apart: the carries leave few pairs."""
    held = drawn(2, 0.0003, 600)
    near = (guess(held) - held.sort(0).values).abs().amax(0)
    alone = (held.mean(0) - held).abs().amax(0)
    assert float(near.median()) < 0.5 * float(alone.median())


def test_the_order_of_clients_changes_nothing() -> None:
    held = drawn(3, 0.01, 50)
    assert torch.equal(guess(held), guess(held.flip(0)))


def facing(held: Tensor, counts: Counted | None) -> AttackContext:
    known = knowledge()
    seen = Gathered(CLIENTS, sums=held.sum(0), weights=torch.tensor(4.0))
    return scene(known, None).with_view(seen, counts)


def test_the_attack_reads_the_counts_and_nothing_but_them() -> None:
    held = 0.3 * rows(knowledge())
    where = facing(held, counts_of(held))
    scores = ATTACKS["carries"](where, Coins.from_seed(2))
    assert scores.shape == (4, 40)
    assert torch.equal(scores, ATTACKS["carries"](facing(held, counts_of(held.flip(0))), Coins.from_seed(2)))
    other = held.clone()
    other[0] += 0.2
    other[1] -= 0.2
    assert not torch.equal(scores, ATTACKS["carries"](facing(held, counts_of(other)), Coins.from_seed(2)))
    with pytest.raises(SpecError, match="needs the counts"):
        ATTACKS["carries+prior"](facing(held, None), Coins.from_seed(2))
