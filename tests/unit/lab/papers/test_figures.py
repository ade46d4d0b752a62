"""What papers print: every entry is whole at every scale, says what it puts in place of what, and can be run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from tests.scenes import Here

from croupier.audit.attacks import source
from croupier.encode.moduli import moduli
from croupier.engine.federation import Federation, check
from croupier.errors import SpecError
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.datasets import Synthetic
from croupier.learn.distort import CLEAN
from croupier.learn.models import Mlp
from croupier_lab.papers.catalogue import FIGURES as REGISTRY
from croupier_lab.papers.rns import cost
from croupier_lab.papers.rns.source_inference_settings import ALWAYS, HUNDRED
from croupier_lab.papers.shared.comparison import says
from croupier_lab.papers.shared.figure import SCALES, Experiment, Figure, Means, Scale
from croupier_lab.papers.shared.reproduce import reproduce
from croupier_lab.source_inference import experiment

ENTRIES = {name: figure for name, figure in REGISTRY.items() if figure.experiments}
LEDGERS = {name: figure for name, figure in REGISTRY.items() if figure.rows and not figure.seeds}
TRIALS = {name: figure for name, figure in REGISTRY.items() if name not in ENTRIES and name not in LEDGERS}
EVERY = pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
ALL: tuple[Scale, ...] = get_args(Scale)
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "synthetic": (60,), "activity": (6, 128), "newsgroups": (64,)}
WHOLE = {"mnist": 60_000, "cifar10": 50_000, "activity": 7_415, "newsgroups": 11_314}
# Small datasets are taken whole at every scale.
SMALL = {"activity", "newsgroups"}


def cases_of(figure: Figure, scale: Scale) -> Sequence[Experiment]:
    assert figure.experiments is not None
    return figure.experiments(scale)


def test_the_scales_are_these() -> None:
    assert ALL == tuple(SCALES) == ("smoke", "small", "paper")
    assert (len(ENTRIES), len(LEDGERS), len(TRIALS), len(REGISTRY)) == (13, 13, 42, 68)
    assert all(name == entry.name for name, entry in REGISTRY.items())


# They play rounds between real processes, or shuffles of growing sizes: seconds each, of the same code.
TIMED = ("rain/table2", "rain/table3", "rain/figure7", "intra/table7")


@pytest.mark.parametrize("name", [name for name in LEDGERS if name not in TIMED])
def test_every_ledger_is_whole(name: str) -> None:
    check_whole(name)


@pytest.mark.parametrize("name", TIMED)
def test_every_timed_ledger_is_whole(name: str) -> None:
    check_whole(name)


def check_whole(name: str) -> None:
    found = reproduce(LEDGERS[name], "smoke", Means(), watch=lambda _: None)
    assert json.loads(json.dumps(found)) == found
    assert (found["kind"], found["entry"], found["scale"]) == ("croupier ledger", name, "smoke")
    rows = found["rows"]
    assert rows
    assert all(list(row) == list(rows[0]) for row in rows)
    assert all(any(key.startswith("paper") for key in row) for row in rows)


def test_bits_on_the_wire_are_the_moduli() -> None:
    for clients, digits in ((10, 5), (1000, 8), (10_000, 12), (1000, 16)):
        found, ours = cost.cost(clients, digits, "smoke"), moduli(clients, digits)
        assert found["unary"] == ours.bits
        assert found["paper_form"] == moduli(clients, digits, "sum").literal_bits
        assert found["binary_residues"] == ours.packed_bits
        assert found["floats"] == 32
        assert found["one_modulus"] == math.ceil(math.log2(2 * clients * (10**digits - 1) + 1))


def test_the_rivals_bytes_are_real_for_few_and_labelled_for_many() -> None:
    few, many = cost.shared(5, 4, "smoke"), cost.shared(50, 4, "smoke")
    assert (few["sharing_is"], many["sharing_is"]) == ("run", "by formula")
    assert few["sharing_61_bits"] == 4 * 61
    assert many["sharing_61_bits"] == 49 * 61
    assert few["sharing_least_c"] == 4 * 17
    beyond = cost.shared(10, 18, "smoke")
    assert (beyond["sharing_is"], beyond["sharing_61_bits"]) == ("sums do not fit", None)


def test_the_papers_rival_is_rebuilt_from_its_numbers() -> None:
    """Its Table 9 charges C (n - 2), where the text says C (n - 1)."""
    rows = reproduce(LEDGERS["rns/table9"], "smoke", Means(), watch=lambda _: None)["rows"]
    assert [row["sa_rebuilt"] for row in rows] == [row["paper_sa"] for row in rows]


def test_seconds_name_the_machine() -> None:
    rows = reproduce(LEDGERS["rns/table10"], "smoke", Means(), watch=lambda _: None)["rows"]
    assert [row["parameters"] for row in rows] == [643_850, 940_362]
    assert all(row["encode_s"] > 0 and row["decode_s"] > 0 and "cores" in row["machine"] for row in rows)


@EVERY
@pytest.mark.parametrize("scale", ALL)
def test_every_case_is_whole(entry: Figure, scale: Scale) -> None:
    cases = cases_of(entry, scale)
    assert cases
    assert len({case.label for case in cases}) == len(cases)
    assert entry.seeds[scale] >= 2
    for case in cases:
        clients = case.setting.split.clients  # type: ignore[attr-defined]
        assert case.defences[0].name == "none"
        assert not case.defences[0].changes
        assert len({defence.name for defence in case.defences}) == len(case.defences)
        for defence in case.defences:
            check(defence.pipeline, clients, case.setting.plan)
            assert set(defence.attacks) <= set(source.ATTACKS)
            assert defence.attacks[-1].endswith("+prior")
            applied = defence.arm.applied(case.setting)
            assert hash(applied) == hash(defence.arm.applied(case.setting))
            assert (applied != case.setting) == bool(defence.changes)
            assert case.setting.data.use in SHAPES


@EVERY
@pytest.mark.parametrize("scale", ALL)
def test_every_printed_number_has_its_place_and_its_defence(entry: Figure, scale: Scale) -> None:
    for case in cases_of(entry, scale):
        assert set(case.printed) <= {defence.name for defence in case.defences}, case.label
        for printed in case.printed.values():
            assert 0 < printed.rate < 1
            assert any(word in printed.where for word in ("Table", "Appendix", "Section", "text"))


@EVERY
def test_some_number_is_printed_or_the_paper_has_none(entry: Figure) -> None:
    """Figures 7 and 9 are pictures only."""
    some = any(case.printed for case in cases_of(entry, "paper"))
    assert some != (entry.name in ("rns/figure7", "rns/figure9"))


@EVERY
@pytest.mark.parametrize("scale", ALL)
def test_another_dataset_is_said(entry: Figure, scale: Scale) -> None:
    for case in cases_of(entry, scale):
        assert set(ALWAYS) <= set(case.substitutions)
        assert (HUNDRED in case.substitutions) == (case.setting.model.use == "resnet18"), case.label
        if case.setting.model.use == "resnet18":
            assert case.setting.data.use == "cifar10"
            assert all("CIFAR-100" in printed.where for printed in case.printed.values())


def test_some_case_has_another_dataset() -> None:
    cases = [case for entry in ENTRIES.values() for case in cases_of(entry, "paper")]
    assert any(HUNDRED in case.substitutions for case in cases)


def records(case: Experiment) -> int:
    data: Any = case.setting.data
    return int(data.records if isinstance(data, Synthetic) else getattr(data, "train", None) or WHOLE[data.use])


def work(cases: list[Experiment]) -> int:
    """About how many records are trained on in all."""
    return sum(
        case.setting.plan.rounds * case.setting.fit.epochs * records(case) * len(case.defences) for case in cases
    )


@EVERY
def test_smoke_is_less_than_small_is_less_than_paper(entry: Figure) -> None:
    smoke, small, paper = (list(cases_of(entry, scale)) for scale in ALL)
    assert len(smoke) <= len(small) <= len(paper)
    assert {case.label for case in small} <= {case.label for case in paper}
    cut = [[records(case) for case in cases if case.setting.data.use not in SMALL] for cases in (smoke, small, paper)]
    assert max(cut[0]) < min(cut[1])
    assert max(cut[1]) < min(cut[2])
    for less, more in ((smoke, small), (small, paper)):
        assert max(case.setting.plan.rounds for case in less) <= min(case.setting.plan.rounds for case in more)
        assert max(case.setting.records for case in less) <= min(case.setting.records for case in more)
        assert 2 * work(less) < work(more)


def test_every_network_can_be_built_and_attacked_at_its_end() -> None:
    """Each distinct model, on a picture of its dataset's shape; attacks need a final fully connected layer."""
    built = set()
    for entry in ENTRIES.values():
        for case in cases_of(entry, "smoke"):
            for defence in case.defences:
                setting = defence.arm.applied(case.setting)
                key = setting.data.use, setting.model
                if key not in built:
                    rows = TensorRecords(torch.zeros(2, *SHAPES[setting.data.use]), torch.zeros(2, dtype=torch.int64))
                    module = setting.model.build(Dataset("shape", "classify", 10, rows, rows, "", ""))
                    layers = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
                    assert layers[-1].out_features == 10
                    built.add(key)
    assert len(built) > 3


def test_only_looks_for_a_label() -> None:
    entry = ENTRIES["rns/figure1"]
    said = r"--only = 'alpha = 7': no case of rns/figure1 holds that; known: MNIST/CNN, .*"
    with pytest.raises(SpecError, match=said):
        reproduce(entry, "smoke", Means(only="alpha = 7"), watch=lambda _: None)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Figure:
    """Table 7 with a small network and few records: two cases, the second with other clients."""
    monkeypatch.setattr(experiment, "Panel", Here)
    (case,) = cases_of(ENTRIES["rns/table7"], "smoke")
    setting = replace(case.setting, data=Synthetic(records=800), model=Mlp(hidden=(8,)), plan=Federation(rounds=1))
    cases = [replace(case, label=label, setting=setting, defences=case.defences[:2]) for label in ("one", "two")]
    return replace(ENTRIES["rns/table7"], experiments=lambda _: cases)


def test_a_result_carries_all_that_is_needed_to_read_it(tiny: Figure) -> None:
    heard: list[str] = []
    got = reproduce(tiny, "smoke", Means(only="two"), seeds=3, seed=4, watch=heard.append)
    assert (got["kind"], got["entry"], got["scale"]) == ("croupier reproduction", "rns/table7", "smoke")
    assert (got["seeds"], got["scale_means"], got["device"]) == ([4, 5, 6], SCALES["smoke"], "cpu")
    assert "Table 7" in got["source"]
    (case,) = got["cases"]
    assert case["label"] == "two"
    assert set(ALWAYS) < set(case["substitutions"])
    assert case["setting"]["data"] == {"use": "synthetic", "records": 800, "draw": 0}
    assert case["setting"]["noise"] == CLEAN.plain()
    printed = {row["defence"]: row["printed"] for row in case["rows"]}
    assert printed["none"] == {"rate": 0.462, "where": "Table 7"}
    assert printed["model shuffle"] == {"rate": 0.393, "where": "Table 7"}
    assert heard
    assert all(said.startswith("two: ") for said in heard)


def test_seeds_are_the_entrys_own_unless_said(tiny: Figure) -> None:
    got = reproduce(tiny, "smoke", Means(only="one"), watch=lambda _: None)
    assert got["seeds"] == list(range(tiny.seeds["smoke"]))


def cell(theirs: tuple[float, float], ours: float, scored: bool = True, defence: str = "none") -> Mapping[str, Any]:
    """A row: the lower ends of the paper's attack, of its leak, and of the leak of ours."""

    def attack(low: float, leak: float) -> dict[str, Any]:
        leaks = {"rate": leak + 0.02, "low": leak, "high": leak + 0.05}
        return {"low": low, "leak": leaks, "leak_together": leaks, "scored": scored}

    named = {"named": attack(*theirs), "named+prior": attack(0.0, ours)}
    return {"defence": defence, "attacks": {"prior": attack(0.0, 0.0), **named}}


def test_what_is_said_is_counted() -> None:
    """Above 1/n: above the prior, below it, not to be told; at 1/n; failed its control. Ours is above once."""
    rows = [cell((0.3, 0.1), 0.1), cell((0.3, -0.1), 0.0), cell((0.2, -0.01), -0.1), cell((0.1, 0.1), -0.2)]
    failed = cell((0.3, 0.1), 0.1, scored=False)
    first, second, third = says([{"chance": 0.1, "rows": rows[:2]}, {"chance": 0.1, "rows": [*rows[2:], failed]}])
    assert first.startswith("The paper's attack passed its control in 4 of 5 cells, and is above 1/n in 3.")
    assert first.endswith("above in 1 of these, below in 1, and not to be told from it in 1.")
    assert second.startswith("Where it is below the prior")
    assert third.startswith("The attack that joins prior and view is above the prior in 1 of 5 cells")
    assert len(says([{"chance": 0.1, "rows": [rows[0]]}])) == 2


def test_attacks_on_sums_are_counted_apart() -> None:
    seen = [cell((0.3, 0.1), 0.1), cell((0.3, 0.01), -0.1, defence="RNS")]
    *_, ours, last = says([{"chance": 0.1, "rows": seen}])
    assert ours.startswith("The attack that joins prior and view is above the prior in 1 of 1 cells")
    assert "2 attacks were tried; against the prior 1 gain, the best by +3.0 points" in last
    assert "reach 2.5 points to either side" in last
