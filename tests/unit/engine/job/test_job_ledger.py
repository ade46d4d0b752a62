"""A run with local privacy writes down what each client spent, and goes on from there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.shell import Shell

from croupier.core import canon
from croupier.engine.job.result import Result
from croupier.engine.job.run import resume, run
from croupier.errors import StoreError

SETS = (
    "federation.rounds=3", "task.fit.epochs=1", "run.workers=1",
    'protocol.encode={use="floats",form="delta",weights="uniform"}',
    'protocol.privacy={use="tiers",clip=1.0,budgets=[1.0,2.0,3.0,30.0,40.0],totals={c0=5.0}}',
)  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run("digits", sets=SETS, out=tmp_path_factory.mktemp("job") / "run", seed=3)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "ledger.jsonl").read_text().splitlines()]


def test_every_round_has_its_line(done: Result) -> None:
    found = lines(done.path)
    assert [line["round"] for line in found] == [1, 2, 3]
    for line in found:
        assert (line["unit"], line["delta"]) == ("client", 1e-5)
        assert line["adjacency"] == "its update of a round is replaced by any other"
        assert sorted(line["clients"]) == [f"c{number}" for number in range(10)]
    privacy = done.spec.protocol.privacy
    for name, one in found[-1]["clients"].items():
        limit = privacy.limit(name)
        assert limit is not None
        assert 0 < one["epsilon"] <= limit * (1 + 1e-9)
        assert (name in found[-1]["refused"]) == (one["participations"] < 3)
    assert "c0" in found[1]["refused"], "its own total is smaller than its tier's"
    assert "raise protocol.privacy.totals.c0" in found[1]["refused"]["c0"]


def test_metrics_and_summary_say_it_by_tier(done: Result) -> None:
    first, *_, last = done.metrics
    assert first["overspent"] == []
    assert last["overspent"] == sorted(lines(done.path)[-1]["refused"]) == last["refused"]
    assert {tier: one["epsilon"] for tier, one in first["spent"].items()} == pytest.approx(
        {tier: float(tier) for tier in first["spent"]}
    )
    ledger = done.summary["ledger"]
    assert sum(row["clients"] for row in ledger["tiers"]) == 10
    by_tier = {f"{row['tier']:g}": row["epsilon"] for row in ledger["tiers"]}
    assert by_tier == {tier: one["epsilon"] for tier, one in last["spent"].items()}
    refused = {name for line in lines(done.path) for name in line["refused"]}
    assert sum(row["refused"] for row in ledger["tiers"]) == len(refused)
    assert "tier 0.5: sigma = 14.06" in done.summary["statement"]["differential_privacy"]


def test_a_resumed_run_has_the_same_ledger(done: Result, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(done.path, tmp_path / "copy"))
    (copy / "checkpoints" / "000003.state").unlink()
    (copy / "summary.json").unlink()
    again = resume(copy)
    for name in ("ledger.jsonl", "metrics.jsonl", "checkpoints/000003.state"):
        assert (copy / name).read_bytes() == (done.path / name).read_bytes()
    assert again.summary["ledger"] == done.summary["ledger"]


def test_a_ledger_that_lost_lines_is_not_gone_on_with(done: Result, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(done.path, tmp_path / "copy"))
    (copy / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(copy)[1:]))
    with pytest.raises(StoreError, match=r"ledger\.jsonl lost rounds"):
        resume(copy)


def test_without_local_privacy_there_is_no_ledger(tmp_path: Path) -> None:
    plain = run("digits", sets=SETS[:3], out=tmp_path / "run", seed=3)
    assert not (plain.path / "ledger.jsonl").exists()
    assert "spent" not in plain.final
    assert "ledger" not in plain.summary


def test_people_see_who_spent_what(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word for pair in SETS for word in ("--set", pair)]
    code, out, said = Shell(monkeypatch, capsys)("run", "digits", *words, "--seed", "3", "--out", "here")
    assert code == 0
    assert "spent epsilon, by tier" in out
    assert "0.5 / 1 / 2 / 4 / 8" in out
    for head in ("tier", "most participations", "largest spent epsilon", "budget", "refused", "5 to 30"):
        assert head in out
    assert "unit client; its update of a round is replaced by any other" in out
    assert "digits: round 2: c0 (tier 4) takes no part: one participation cost it epsilon 4 so far" in said
    assert said.count("c0 (tier 4) takes no part") == 1, "once is enough"


def test_other_updates_carry_other_noise(tmp_path: Path) -> None:
    views = ("run.views=['server']", "federation.rounds=1")
    sent = []
    for rate in (0.1, 0.05):
        made = run("digits", sets=(*SETS, *views, f"task.fit.lr={rate}"), out=tmp_path / str(rate), seed=3)
        view = canon.load((made.path / "views" / "000001-server.view").read_bytes())
        sent.append(next(entry for entry in view["inputs"] if entry and "kind" in entry[0])[0]["body"]["vector"])
    # From one seed and one model: without fresh noise the difference would be the clean one, far shorter.
    assert float((sent[0] - sent[1]).norm()) > float(sent[0].norm())
