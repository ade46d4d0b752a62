"""A rushing coalition: its members send last, after seeing what honest parties sent them, and decide together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch

from croupier.core.flow import Coalition, Letter
from croupier.core.view import View
from croupier.engine.state import Threat
from croupier.errors import ProtocolError
from tests.laws.pipelines import PIPELINES
from tests.laws.toy import absent, play, through_bytes

Letters = Mapping[str, tuple[Letter, ...]]


def copying(held: Letters, views: Mapping[str, View]) -> Letters:
    """Both members send what the first of them would have sent."""
    first = held[min(held)]
    return {
        name: tuple(replace(letter, body=first[i].body) for i, letter in enumerate(sent)) for name, sent in held.items()
    }


@pytest.mark.parametrize("drive", ["reference", "bytes"])
def test_members_decide_together(drive: str) -> None:
    threat = Threat(coalition=Coalition(frozenset({"c1", "c2"}), copying))
    local = through_bytes() if drive == "bytes" else None
    (done,) = play(PIPELINES["plain, uniform"], count=1, threat=threat, drive=local)
    rows = {letter.source: letter.body["vector"] for letter in done.views["server"].inputs[1]}
    assert torch.equal(rows["c1"], rows["c2"])
    assert not torch.equal(rows["c0"], rows["c3"])


def test_a_coalition_sees_its_members_views_before_it_sends() -> None:
    saw: dict[str, int] = {}

    def watch(held: Letters, views: Mapping[str, View]) -> Letters:
        saw.update({name: len(view.inputs) for name, view in views.items()})
        return held

    threat = Threat(coalition=Coalition(frozenset({"relay"}), watch))
    play(PIPELINES["sum"], count=1, threat=threat)
    # The relay decides after every client's payload has reached it.
    assert saw == {"relay": 1}


def test_a_coalition_reads_what_was_sent_to_it_in_the_very_step_before_it_sends() -> None:
    heard: list[set[tuple[str, str]]] = []

    def watch(held: Letters, views: Mapping[str, View]) -> Letters:
        if any(letter.kind == "v1-c" for letter in held["second"]):
            heard.append({(letter.source, letter.kind) for letter in views["second"].inputs[-1]})
        return held

    threat = Threat(coalition=Coalition(frozenset({"second"}), watch))
    play(PIPELINES["two servers, one malicious"], count=1, threat=threat)
    assert heard == [{("server", "v1-c")}]


def test_a_coalition_that_stays_silent_counts_as_missing() -> None:
    threat = Threat(coalition=Coalition(frozenset({"c1"}), lambda held, views: dict.fromkeys(held, ())))
    (done,) = play(PIPELINES["sum"], count=1, threat=threat)
    honest = play(PIPELINES["sum"], count=1, threat=absent("c1"))[0]
    assert done.present == ("c0", "c2", "c3")
    assert torch.equal(done.state.model.vector, honest.state.model.vector)


def test_below_the_quorum_the_round_ends_with_an_error_that_names_the_missing() -> None:
    with pytest.raises(ProtocolError, match=r"missing c1, c2, c3.*Remedy"):
        play(PIPELINES["sum"], count=1, threat=absent("c1", "c2", "c3"))
