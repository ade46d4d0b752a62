"""Load on real hosts: a small one is carried whole."""

from __future__ import annotations

from croupier_lab.bench.services.load import LoadSize, federation, measure, show


def test_a_small_load_is_carried() -> None:
    found = measure(LoadSize(clients=6, params=1000, crowd=7, crowd_params=100), 0)
    for row, (clients, params) in {"large": (6, 1000), "crowd": (7, 100)}.items():
        assert (found[row]["clients"], found[row]["params"]) == (clients, params)
        assert 0 < found[row]["submit_s"] <= found[row]["added_s"]
        assert found[row]["refused"] == 0
        # Every client sends a long share, and seeds.
        assert found[row]["bytes"] > clients * params * 2
    show(found)


def test_clients_send_one_long_share_and_seeds() -> None:
    batch = federation(4, 1000)
    sizes = [sorted(len(body) for _, _, body in batch.letters(name)) for name in batch.notice.cohort]
    assert all(one[:2] == [32, 32] and one[2] > 2000 for one in sizes)
    assert len({max(batch.letters(name), key=lambda one: len(one[2]))[0] for name in batch.notice.cohort}) == 3
