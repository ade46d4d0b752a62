"""The rival really shares: any t shares give the secret, fewer tell nothing, and bytes are counted."""

from __future__ import annotations

from itertools import combinations

import pytest

from croupier.core.coins import Coins
from croupier.errors import RangeError
from croupier_lab.bench.speed.shamir_sum import BITS, PRIME, aggregate, reconstruct, share

SECRETS = [0, 1, -1, 10**12, -(10**12), PRIME // 2, -(PRIME // 2)]


@pytest.mark.parametrize(("clients", "threshold"), [(1, 1), (2, 1), (3, 2), (5, 4), (5, 5)])
def test_any_t_shares_give_the_secrets(clients: int, threshold: int) -> None:
    shares = share(SECRETS, clients, threshold, Coins.from_seed(1))
    for chosen in combinations(range(clients), threshold):
        assert reconstruct([i + 1 for i in chosen], shares[list(chosen)]) == SECRETS


def test_fewer_shares_fit_every_secret() -> None:
    """With t - 1 shares and any guess there is exactly one polynomial: here, a missing share that makes it so."""
    shares = share([5], 3, 3, Coins.from_seed(1))
    assert reconstruct([1, 2], shares[:2]) != [5]
    for guess in (0, 5, 77):
        other = share([guess], 3, 3, Coins.from_seed(2))
        assert reconstruct([1, 2, 3], other) == [guess]
    assert int(share([0], 2, 2, Coins.from_seed(1))[0, 0]) != int(share([0], 2, 2, Coins.from_seed(2))[0, 0])


@pytest.mark.parametrize("clients", [2, 3, 10, 20])
def test_sums_are_right_without_one_client_and_bytes_are_counted(clients: int) -> None:
    updates = [[who, -who, 10**9 * who, 7, 0] for who in range(clients)]
    tally = aggregate(updates, max(1, clients - 1), Coins.from_seed(3))
    assert tally.sums == [sum(column) for column in zip(*updates, strict=True)]
    one = -(-5 * BITS // 8)
    assert (tally.to_clients, tally.to_server) == ((clients - 1) * one, one)


@pytest.mark.parametrize("threshold", [0, 4])
def test_a_threshold_that_cannot_be_is_refused(threshold: int) -> None:
    with pytest.raises(RangeError, match=f"threshold = {threshold}"):
        share([1], 3, threshold, Coins.from_seed(1))
