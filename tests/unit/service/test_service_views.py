"""Views that a party keeps: sealed to its own key, opened by it alone, and audited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.enrolled import home_of, roster
from tests.laws.pipelines import PIPELINES
from tests.laws.toy import LAYOUT, play
from tests.shell import Shell

from croupier.audit.recorded.viewed import PartyViews, rounds_in
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.view import View, facts
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.errors import IntegrityError, SpecError, StoreError
from croupier.service.home import Home
from croupier.service.notice import ROUND, Notice
from croupier.service.training import assembled
from croupier.service.versions import Shapes, make_roster
from croupier.service.views import ViewKeeper, open_views
from croupier.spec import load

RUN = bytes(16)


def keep(home: Home, folder: Path, views: dict[int, View], digest: bytes = bytes(32)) -> None:
    told: list[Any] = []
    keeper = ViewKeeper(folder, lambda number: home.keys, lambda event, **more: told.append((event, more)))
    for number, view in views.items():
        keeper(Notice(number, ROUND, digest, RUN, number - 1, 0, view.given.roster), view)
    assert told == []


def seen(name: str, party: str, count: int = 2) -> dict[int, View]:
    return {one.number + 1: one.views[party] for one in play(PIPELINES[name], count=count)}


def test_views_are_sealed_and_open_as_they_were(tmp_path: Path) -> None:
    home, views = home_of("ann", tmp_path), seen("sum servers", "c0")
    keep(home, tmp_path / "views", views)
    files = sorted((tmp_path / "views").iterdir())
    assert [path.name for path in files] == ["000001-1.view", "000002-1.view"]
    model = next(one["body"]["model"] for one in facts(views[1])["inputs"][0] if one["kind"] == "model")
    assert model.numpy().tobytes() not in files[0].read_bytes()
    found = open_views(tmp_path / "views", home)
    assert [one.round for one in found] == [1, 2]
    for one in found:
        assert canon.dump(one.facts) == canon.dump(facts(views[one.round]))
        assert "coins" not in one.facts


def test_an_agreement_before_a_round_leaves_its_view_alone(tmp_path: Path) -> None:
    home, (view,) = home_of("ann", tmp_path), seen("plain", "c0", 1).values()
    keep(home, tmp_path / "views", {1: view})
    before = (tmp_path / "views" / "000001-1.view").read_bytes()
    keeper = ViewKeeper(tmp_path / "views", lambda number: home.keys, lambda event, **more: None)
    keeper(Notice(2, "agree", bytes(32), RUN, 0, 0, view.given.roster), view)
    keeper(Notice(3, "agree", bytes(32), RUN, 0, 1, view.given.roster), view)
    assert {path.name: path.read_bytes() for path in (tmp_path / "views").iterdir()} == {"000001-1.view": before}


def test_nobody_else_opens_them_and_nothing_can_be_changed(tmp_path: Path) -> None:
    home = home_of("ann", tmp_path)
    keep(home, tmp_path / "views", seen("plain", "c0", 1))
    with pytest.raises(IntegrityError, match="none of your keys opens it"):
        open_views(tmp_path / "views", home_of("bob", tmp_path))
    path = tmp_path / "views" / "000001-1.view"
    table = canon.load(path.read_bytes())
    path.write_bytes(canon.dump({**table, "round": 2}))
    with pytest.raises(IntegrityError, match="or it was altered"):
        open_views(tmp_path / "views", home)
    path.write_bytes(b"something else")
    with pytest.raises(StoreError, match="is no kept view"):
        open_views(tmp_path / "views", home)
    with pytest.raises(StoreError, match="holds no kept views"):
        open_views(tmp_path / "nowhere", home)


def test_a_view_that_cannot_be_kept_stops_nobody(tmp_path: Path) -> None:
    told: list[Any] = []
    (tmp_path / "views").write_text("a file")
    home = home_of("ann", tmp_path)
    keeper = ViewKeeper(tmp_path / "views", lambda number: home.keys, lambda event, **more: told.append((event, more)))
    (view,) = seen("plain", "c0", 1).values()
    keeper(Notice(0, ROUND, bytes(32), RUN, 0, 0, view.given.roster), view)
    ((event, more),) = told
    assert (event, more["round"]) == ("view not kept", 1)


def viewed(name: str, party: str) -> PartyViews:
    views = {number: facts(view) for number, view in seen(name, party).items()}
    return PartyViews(party, views, PIPELINES[name], LAYOUT)


def test_what_the_server_sees_by_name_is_read_by_name() -> None:
    done = play(PIPELINES["plain"])
    found = rounds_in(viewed("plain", "server"))
    assert found.seen == "named"
    for one, round_ in zip(found.rounds, done, strict=True):
        assert sorted(one.models) == ["c0", "c1", "c2", "c3"]
        mean = torch.stack([row.double() for row in one.models.values()])
        weights = torch.tensor([float(10 + len(f"shard of {who}") + ord(who[-1]) % 7) for who in one.models]).double()
        expected = (weights[:, None] * mean).sum(0) / weights.sum()
        assert torch.allclose(expected.float(), round_.state.model.vector, atol=1e-6)


def test_a_client_of_sum_servers_sees_the_mean() -> None:
    done = play(PIPELINES["sum servers"])
    found = rounds_in(viewed("sum servers", "c0"))
    assert (found.seen, [one.number for one in found.rounds], found.failed) == ("sum", [1, 2], ())
    for one, round_ in zip(found.rounds, done, strict=True):
        assert one.joint is not None
        assert torch.allclose(one.joint, round_.state.model.vector, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "party", "why"),
    [
        ("sum servers", "sum1", "uniform numbers that depend on nobody's update"),
        ("shuffle", "server", "rows without names"),
    ],
)
def test_where_nothing_can_be_asked_the_reason_is_told(name: str, party: str, why: str) -> None:
    known = name if name in PIPELINES else next(one for one in PIPELINES if "shuffle" in one)
    with pytest.raises(SpecError, match=f"nothing can be asked of them: .*{why}"):
        rounds_in(viewed(known, party))


def test_attempts_without_a_release_are_left_out_and_said() -> None:
    kept = viewed("plain", "server")
    kept.views[1]["inputs"] = ()  # type: ignore[index]
    found = rounds_in(kept)
    assert [one.number for one in found.rounds] == [2]
    assert found.failed == ("round 1: the attempt ended before anything was released",)


SHADOW = """
import torch
from pathlib import Path


def shadow(folder, clients):
    held = torch.load(Path(__file__).with_name("records.pt"))
    return {
        "shadows": {who: (held[who][0][:4], held[who][1][:4]) for who in clients},
        "asked": {who: (held[who][0][4:], held[who][1][4:]) for who in clients},
    }
"""


def test_the_server_audits_its_own_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell(monkeypatch, capsys)
    spec = load("digits", {"task.split.clients": 12, "federation.rounds": 1, "task.fit.epochs": 30})
    home, coins = home_of("server", tmp_path), Coins.from_seed(1)
    cards = [card for card in roster().cards if card.name in ("server", "ann", "bob", "cleo")]
    task = assembled(spec, coins).task
    accepted = make_roster(cards, spec, coins, 2, shapes=Shapes(task.layout, task.inputs))
    home.pin(accepted, accepted.cards[0].expires.date())
    shards = task.fit.shards  # type: ignore[attr-defined]
    done = list(rounds(spec.protocol, task, spec.federation, coins, Local(), keep={"server": "keep"}))
    views = Path("server") / "views"
    keep(home, views, {one.number + 1: one.views["server"] for one in done}, accepted.digest)
    key = Path("server") / "server.key"
    assert "belong together" in shell.refused("audit", "--views", views)
    assert "updates.toml: cannot be read" in shell.refused("audit", "--views", views, "--key", key)
    torch.save({who: shards[task.shards[who]].batch(torch.arange(24)) for who in task.shards}, views / "records.pt")
    (views / "shadows_of_views.py").write_text(SHADOW)
    (views / "updates.toml").write_text('seen = "sum"\nshadow = { use = "own", make = "shadows_of_views:shadow" }\n')
    assert "seen: the views say it; leave it out" in shell.refused("audit", "--views", views, "--key", key)
    (views / "updates.toml").write_text('shadow = { use = "own", make = "shadows_of_views:shadow" }\n')
    found = shell.json("audit", "--views", views, "--key", key, "--report", "page.html")
    assert (found["name"], found["clients"], found["rounds"]) == ("views-of-server", 12, 1)
    asked = found["rows"][0]["questions"]
    assert asked["source"]["adversaries"]["server"]["status"] in ("leak", "none-found"), asked["source"]
    assert "no members and others" in str(asked["membership"])
    assert Path("page.html").exists()


def test_a_roster_is_needed_to_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    home = home_of("ann", tmp_path)
    keep(home, Path("views"), seen("plain", "c0", 1))
    said = Shell(monkeypatch, capsys).refused("audit", "--views", "views", "--key", "ann/ann.key")
    assert "ann has not accepted it" in said
