"""False accusations are counted as an audit would make them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from croupier.audit.outcome import Run
from croupier.audit.whose import controlled
from croupier_lab.bench import accuse

RUNS = 4


def run(hits: Mapping[str, float]) -> Run:
    """One run of one round."""
    return Run(0.25, 25, {1: 0.5}, 1.0, {name: {1: rate} for name, rate in hits.items()}, {}, {})


def played(attack: float) -> list[list[Run]]:
    """Audits whose prior names half, whose attacks name this many, and whose control always works."""
    compared = controlled(accuse.defences())
    control = dict.fromkeys((*compared[0].attacks, *compared[0].control), 0.9) | {"prior": 0.5}
    rest = [dict.fromkeys(defence.attacks, attack) | {"prior": 0.5} for defence in compared[1:]]
    return [[run(control), *(run(one) for one in rest)] for _ in range(RUNS)]


@pytest.mark.parametrize(("attack", "said"), [(0.5, "unclear"), (0.25, "unclear"), (0.99, "yes")])
def test_verdicts_are_those_of_an_audit(attack: float, said: str) -> None:
    found = accuse._verdicts(accuse.defences(), played(attack))
    assert set(found) == {"named, drowned", "model shuffle", "layer shuffle", "parameter shuffle"}
    assert set(found.values()) == {said}


def test_everything_but_the_control_is_drowned() -> None:
    control, *others = accuse.defences()
    assert control.pipeline.privacy.use == "none"
    assert all(defence.pipeline.privacy == accuse.DROWNED for defence in others)
