"""The synthetic set: its size, its variances, and labels that a linear model gives."""

from __future__ import annotations

import pytest
import torch

from croupier.errors import SpecError
from croupier.learn.data import TensorRecords
from croupier.learn.datasets import Synthetic
from croupier.learn.models import Mlp


def both(data: Synthetic) -> TensorRecords:
    made = data.load(None)
    assert isinstance(made.train, TensorRecords)
    assert isinstance(made.test, TensorRecords)
    return TensorRecords(torch.cat([made.train.x, made.test.x]), torch.cat([made.train.y, made.test.y]))


def test_it_is_large_and_four_fifths_train() -> None:
    data = Synthetic().load(None)
    assert (len(data.train), len(data.test), data.shape, data.classes) == (80_000, 20_000, (60,), 10)
    assert [len(part) for part in (Synthetic(records=7).load(None).train, Synthetic(records=7).load(None).test)] == [
        5,
        2,
    ]


def test_the_inputs_have_their_variances() -> None:
    x = both(Synthetic(records=20_000)).x
    wanted = torch.arange(1, 61) ** -1.2
    assert x.dtype == torch.float32
    assert float((x.var(0) / wanted - 1).abs().max()) < 0.06
    # Means of 20,000 values lie within five of their own deviations.
    assert float((x.mean(0) / wanted.sqrt()).abs().max()) < 5 / 20_000**0.5
    correlations = torch.corrcoef(x.t()) - torch.eye(60)
    assert float(correlations.abs().max()) < 0.05


def test_the_labels_are_a_linear_models() -> None:
    from sklearn.linear_model import LogisticRegression

    rows = both(Synthetic(records=3000))
    fitted = LogisticRegression(C=1e4, max_iter=300).fit(rows.x[:2500].numpy(), rows.y[:2500].numpy())
    assert fitted.score(rows.x[2500:].numpy(), rows.y[2500:].numpy()) > 0.9
    assert rows.y.max() <= 9


def test_it_is_a_function_of_the_draw() -> None:
    found = [Synthetic(records=50, draw=draw).load(None).digest for draw in (0, 0, 1)]
    assert found[0] == found[1]
    assert found[0] != found[2]
    assert Synthetic(records=50).load(None).digest == found[0]


def test_the_papers_perceptron_fits_it() -> None:
    model = Mlp(hidden=(200,)).build(Synthetic(records=5).load(None))
    assert [tuple(part.shape) for part in model.parameters()] == [(200, 60), (200,), (10, 200), (10,)]


def test_too_few_records_are_refused() -> None:
    with pytest.raises(SpecError, match=r"^Synthetic\(records=4\): .*greater than or equal to 5"):
        Synthetic(records=4)
