"""What is said of a run before it, and that it comes true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import croupier
from croupier.engine.job import trial
from croupier.errors import SpecError
from croupier.learn.train import Learner
from croupier.outlook import CLIENT, explain, plan
from croupier.spec import load

SMALL = {"federation.rounds": 3, "task.model.hidden": (4,), "task.fit.epochs": 1, "run.workers": 1}
# Every placement, and what agrees before the first round only.
PLAYED = {
    "digits": {}, "digits-shuffled": {}, "rns": {}, "rns-servers": {}, "rns-masks": {}, "intra": {}, "intra-sum": {},
    "rain-honest": {}, "tazza": {"task.split.clients": 6, "federation.cohort": 4},
    "digits-sum": {"federation.cohort": 3},
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYED)
def test_the_bytes_of_a_plan_are_the_bytes_of_the_run(name: str, tmp_path: Path) -> None:
    spec = load(name, {**SMALL, **PLAYED[name]})
    found = plan(spec, seed=1)
    done = croupier.run(spec, out=tmp_path / "run", seed=2)
    assert found.exact, found.why_not
    metered: dict[str, list[int]] = {}
    for line in done.metrics:
        for party, (sent, got) in line["bytes"].items():
            ours = metered.setdefault(CLIENT if _client(party) else party, [0, 0])
            ours[0] += sent
            ours[1] += got
    many = found.clients
    assert set(found.sent) == set(found.got) == set(metered)
    for party, (sent, got) in metered.items():
        times = many if party == CLIENT else 1
        assert (found.sent[party] * times, found.got[party] * times) == pytest.approx((sent, got), abs=1e-6)
    assert found.total == sum(sent for sent, _ in metered.values())
    ups = [line["bytes_up_per_client"] for line in done.metrics]
    assert found.up == pytest.approx(sum(ups) / len(ups))


def _client(party: str) -> bool:
    return party.startswith("c") and party[1:].isdigit()


def test_what_depends_on_who_is_invited_is_called_an_estimate() -> None:
    tiers = plan("intra", sets={**SMALL, "federation.cohort": 10}, seed=1)
    assert not tiers.exact
    assert "buckets differ with who is invited" in tiers.why_not
    late = plan("digits", sets={**SMALL, "federation.joins": {"c3": 2}}, seed=1)
    assert "federation.joins" in late.why_not
    spent = plan("intra", sets={**SMALL, "protocol.privacy.budgets": [9.0]}, seed=1)
    assert "past their budgets" in spent.why_not


def test_epsilon_is_what_the_run_spends(tmp_path: Path) -> None:
    spec = load("intra", SMALL)
    found, done = plan(spec, seed=1), croupier.run(spec, out=tmp_path / "run", seed=2)
    told = {one["one"]: (one["clients"], one["epsilon"]) for one in found.epsilon}
    rows = done.summary["ledger"]["tiers"]
    assert told == {row["tier"]: (row["clients"], pytest.approx(row["epsilon"])) for row in rows}
    assert all(one["unit"] == "client" for one in found.epsilon)
    limited = plan(spec, sets={"protocol.privacy.budgets": [9.0]}, seed=1)
    assert max(one["epsilon"] for one in limited.epsilon) == 9.0
    assert plan("digits", sets=SMALL, seed=1).epsilon == ()


def test_epsilon_of_records_is_the_worst_clients() -> None:
    pytest.importorskip("dp_accounting")
    from croupier.learn.budget import epsilon
    from croupier.learn.dp_fit import DpSgd

    fit = DpSgd(noise=2.0, batch=32)
    (found,) = plan("digits", sets={**SMALL, "task.fit": fit}, seed=1).epsilon
    assert found["unit"] == "record"
    assert found["epsilon"] == epsilon(2.0, fit.rate(found["records"]), 3 * fit.steps(found["records"]))
    assert found["epsilon"] > found["one"] > 0


def test_seconds_add_up_and_slow_training_is_measured_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan("digits", sets=SMALL, seed=1)
    assert found.seconds == pytest.approx(found.training + found.messages + found.testing)
    assert min(found.training, found.messages, found.testing) > 0
    assert found.peak_bytes > 10**7
    assert "a round's 10 clients were trained once" in found.notes[0]
    seen: list[int] = []
    train = Learner.__call__

    def counted(self: Learner, jobs: Any) -> Any:
        seen.append(sum(len(self.shards[job[1]]) for job in jobs))
        return train(self, jobs)

    monkeypatch.setattr(Learner, "__call__", counted)
    monkeypatch.setattr(trial, "LOOK", 16)
    monkeypatch.setattr(trial, "PATIENCE", 0.0)
    monkeypatch.setattr(trial, "SHORT", 0.0)
    part = plan("digits", sets=SMALL, seed=1)
    assert seen == [16, 1]
    assert "parts of 1 of a round's 10 clients" in part.notes[0]
    assert part.total == found.total, "bytes do not depend on what was trained"


def test_nothing_is_written_and_own_code_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planned.py").write_text(
        "import numpy as np\n"
        "def data(folder):\n"
        "    x = np.arange(400, dtype=np.float32).reshape(100, 4) % 7\n"
        "    return x, np.arange(100) % 2, x, np.arange(100) % 2\n"
    )
    table = {"task": {"data": {"use": "own", "make": "planned:data"}, "split": {"clients": 3}}}
    before = sorted(path.name for path in tmp_path.iterdir())
    found = plan(table, sets=SMALL, seed=1)
    assert found.clients == 3
    assert found.notes[-1] == "your own code was called: task.data.make = 'planned:data'"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == before


def test_a_plan_fails_where_the_run_would() -> None:
    with pytest.raises(SpecError, match=r"federation\.cohort = 11: only 10 clients are enrolled; invite fewer"):
        plan("digits", sets={"federation.cohort": 11})
    with pytest.raises(SpecError, match=r"'digit' is neither a file nor a preset; did you mean 'digits'\?"):
        plan("digit")


def test_a_forecast_is_short() -> None:
    found = plan("digits", sets=SMALL, seed=1)
    assert repr(found).startswith(f"Forecast(digits: 3 rounds, {found.total} bytes, about ")
    assert len(repr(found)) < 120


def test_explain_takes_what_run_takes(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('protocol = "rns-servers"\n')
    said = explain("rns-servers").learns["server"]
    for source in (load("rns-servers"), load("rns-servers").plain(), tmp_path / "mine.toml", croupier.sum_servers(10)):
        assert explain(source).learns["server"] == said
    assert explain("digits", sets={"protocol": "rns-servers"}).learns["server"] == said
    assert "10 participations" in explain("rain", sets={"federation.rounds": 10}).differential_privacy
    assert "4 participations" in explain(croupier.rain(), rounds=4).differential_privacy
    with pytest.raises(SpecError, match="a protocol by itself has no keys"):
        explain(croupier.plain(), sets=["federation.rounds=3"])
    with pytest.raises(SpecError, match="a description has its own"):
        explain("digits", rounds=3)


def test_public_values_are_short(tmp_path: Path) -> None:
    done = croupier.run("digits", sets=SMALL, out=tmp_path / "run", seed=1)
    assert repr(done).startswith("Result(digits: 3 rounds, accuracy 0.")
    found = croupier.Report({"name": "digits", "rows": [1] * 1000})
    assert repr(found).startswith("Report(digits: 1000 defences; .verdict says it")
    assert repr(explain("digits")).startswith('Statement(server learns "every client')
    assert repr(load("digits")).startswith("Spec(name='digits', federation=Federation(rounds=10)")
    for value in (done, explain("rain"), load("rain"), croupier.rain(), croupier.moduli(10, 5)):
        assert len(repr(value)) < 500
        assert "tensor" not in repr(value)


NATURAL = {"task": {"data": "ecg", "split": "natural"}, "protocol": "rns-servers"}


def test_owners_that_only_the_data_know_are_supposed_by_who_may_not_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.shell import Shell

    monkeypatch.delenv("CROUPIER_DATA", raising=False)
    said = explain(NATURAL)
    assert said.learns == explain("rns-servers").learns
    assert "bits are for 100 clients in a sum, and a run takes as many as it finds" in said.encoding[-1]
    assert "only the data know" not in " ".join(explain("rns-servers").encoding)
    (tmp_path / "mine.toml").write_text('protocol = "rns-servers"\n[task]\ndata = "ecg"\nsplit = "natural"\n')
    shell = Shell(monkeypatch, capsys)
    assert shell("explain", tmp_path / "mine.toml")[0] == 0
    for command in ("run", "explain", "doctor", "plan", "audit"):
        code, out, _ = shell(command, tmp_path / "mine.toml", "--print-config")
        assert (code, "# clients is not set" in out) == (0, True)
        (tmp_path / "again.toml").write_text(out)
        found = shell.json(command, tmp_path / "again.toml", "--print-config")
        assert load(found, count=lambda task: 7) == load(NATURAL, {"name": "mine"}, count=lambda task: 7)
