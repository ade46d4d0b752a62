"""Descriptions: presets, files, settings, and what is said when one is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from croupier.encode.fixed import FixedPoint
from croupier.engine.federation import Federation
from croupier.errors import SpecError
from croupier.learn.fit import Adam, Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Dirichlet, Iid
from croupier.release.shuffle import Shuffle
from croupier.spec import Learning, Spec, is_empty, load
from croupier.systems import naive, rns, sum_servers
from croupier.toml_read import about, presets
from croupier.toml_text import to_toml

PRESETS = [
    "activity", "cifar10", "digits", "digits-layer", "digits-model", "digits-shuffled", "digits-small", "digits-sum",
    "digits-uneven", "flower", "households", "intra", "intra-chain", "intra-london", "intra-london-sum", "intra-sum",
    "mnist", "newsgroups", "rain", "rain-honest", "rns", "rns-bits", "rns-chain", "rns-chain-proofs", "rns-masks",
    "rns-servers", "tazza", "tazza-mnist",
]  # fmt: skip


def test_the_presets() -> None:
    assert presets() == PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_reads_back_from_its_own_print(name: str, tmp_path: Path) -> None:
    spec = load(name)
    assert spec.name == name
    (tmp_path / "other.toml").write_text(to_toml(spec))
    again = load(tmp_path / "other.toml")
    assert again == spec
    assert type(again.protocol.release) is type(spec.protocol.release)
    assert again.digest() == spec.digest()
    assert again.protocol.digest() == spec.protocol.digest()
    assert to_toml(again) == to_toml(spec)


def test_what_is_printed_is_whole_and_readable() -> None:
    text = to_toml(load("digits"))
    assert '[task.fit]\nuse = "sgd"\nlr = 0.1\n' in text
    assert "[task.model]" in text
    assert "hidden = [64]" in text
    assert "through_bytes = false" in text
    assert "None" not in text


@pytest.mark.parametrize(
    "odd", ['quo"te', "back\\slash", "tab\tnew\nline", "ü π", "#not a comment", "'single'", "a\x7fb", "\x00\x1f"]
)
def test_odd_text_reads_back(odd: str, tmp_path: Path) -> None:
    spec = load({"task": {"warm": odd}})
    (tmp_path / "odd.toml").write_text(to_toml(spec), encoding="utf-8")
    assert load(tmp_path / "odd.toml").task.warm == odd


@pytest.mark.parametrize(
    "odd", ["St. Mary's", 'quo"te', "a b", "a=b", "[x]", "#1", "ü", "", "new\nline", "plain_1-x", "back\\slash", "\x7f"]
)
def test_odd_names_read_back_as_keys(odd: str, tmp_path: Path) -> None:
    spec = load("intra", ["federation.rounds=4"]).model_copy(
        update={"federation": Federation(rounds=4, joins={odd: 3, "c1": 2})}
    )
    (tmp_path / "odd.toml").write_text(to_toml(spec), encoding="utf-8")
    assert load(tmp_path / "odd.toml").federation.joins == {odd: 3, "c1": 2}
    totals = spec.protocol.privacy.model_copy(update={"totals": {odd: 100.0}})
    other = spec.model_copy(update={"protocol": spec.protocol.model_copy(update={"privacy": totals})})
    (tmp_path / "odd.toml").write_text(to_toml(other), encoding="utf-8")
    assert load(tmp_path / "odd.toml") == other
    assert "c1 = 2" in to_toml(spec)


@pytest.mark.parametrize("lr", [1e-300, 1e-8, 0.1, 1 / 3, 1e22, 12345678.9])
def test_numbers_read_back_exactly(lr: float, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(to_toml(load("digits", [f"task.fit.lr={lr!r}"])))
    fit = load(tmp_path / "spec.toml").task.fit
    assert fit.lr == lr


def test_a_file_is_named_after_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[federation]\nrounds = 3\n")
    spec = load(str(tmp_path / "mine.toml"))
    assert (spec.name, spec.federation.rounds) == ("mine", 3)
    (tmp_path / "mine.toml").write_text('name = "other"\n')
    assert load(tmp_path / "mine.toml").name == "other"


@pytest.mark.parametrize(("file", "name"), [("my run (2)", "my-run-2-"), ("größe", "gr-e"), ("x" * 90, "x" * 64)])
def test_a_file_with_an_odd_name_gives_a_plain_one(file: str, name: str, tmp_path: Path) -> None:
    (tmp_path / f"{file}.toml").write_text("")
    assert load(tmp_path / f"{file}.toml").name == name


def test_a_spec_and_a_table_are_descriptions_too() -> None:
    spec = load("digits-sum")
    assert load(spec) == spec
    assert load(spec.plain()) == spec
    assert load({}) == Spec()
    table: dict[str, Any] = {"task": {"fit": {"use": "sgd", "lr": 0.5}}, "federation": {"rounds": 2}}
    assert load(table, ["task.fit.lr=0.25", "federation.rounds=9"]).task.fit.lr == 0.25
    assert table == {"task": {"fit": {"use": "sgd", "lr": 0.5}}, "federation": {"rounds": 2}}, (
        "a caller's table is theirs"
    )


def test_settings_reach_any_depth() -> None:
    sets = ["federation.rounds=20", "task.fit.lr = 0.5", "task.model.hidden=[8, 9]", "run.through_bytes=true", "name=x"]
    spec = load("digits", sets)
    assert (spec.federation.rounds, spec.task.fit.lr, spec.run.through_bytes, spec.name) == (20, 0.5, True, "x")
    assert spec.task.model == Mlp(hidden=(8, 9))
    assert spec.task.split == load("digits").task.split


def test_a_setting_reaches_into_a_part_given_by_its_bare_name(tmp_path: Path) -> None:
    assert load("mnist", ["task.data.train=600"]).task.data.plain()["train"] == 600
    assert load("digits", ["task.fit=adam", "task.fit.epochs=3"]).task.fit == Adam(epochs=3)
    (tmp_path / "bare.toml").write_text('[protocol]\nrelease = "shuffle"\nplace = "relay"\n')
    assert load(tmp_path / "bare.toml", ["protocol.release.grain=layer"]).protocol.release == Shuffle(grain="layer")


def test_a_setting_reaches_into_a_part_that_is_its_default() -> None:
    assert load({}, ["task.split.clients=4"]).task.split == Dirichlet(clients=4)
    assert load("mnist", ["protocol.encode.form=delta"]).protocol.encode.form == "delta"


def test_a_table_that_names_no_part_changes_the_default_one(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text("[task.fit]\nlr = 0.5\n[task.split]\nalpha = 2.0\n")
    spec = load(tmp_path / "spec.toml")
    assert (spec.task.fit, spec.task.split) == (Sgd(lr=0.5, epochs=5, batch=32), Dirichlet(alpha=2.0))


def test_a_setting_keeps_the_rest_of_a_part_given_as_a_value() -> None:
    assert load({"protocol": naive()}, ["protocol.place=relay"]).protocol == naive()
    assert load({"task": {"fit": Adam(beta1=0.5)}}, ["task.fit.epochs=3"]).task.fit == Adam(beta1=0.5, epochs=3)


def test_a_setting_replaces_a_whole_part() -> None:
    assert load("digits", ["task.split=iid"]).task.split == Iid()
    assert load("digits", ["task.split={use='iid', clients=3}"]).task.split == Iid(clients=3)
    assert load("digits", ["task.fit={use='sgd', lr=2}"]).task.fit == Sgd(lr=2)


def test_another_name_for_a_part_does_not_take_the_fields_of_the_last() -> None:
    with pytest.raises(
        SpecError, match=r"task\.fit\.momentum: unknown key of 'adam' \(sets=\{'task\.fit': 'adam'\} starts it "
    ):
        load("digits", ["task.fit.use=adam"])
    assert load("digits", ["task.fit=adam"]).task.fit == Adam()


def test_later_settings_win() -> None:
    assert load("digits", ["federation.rounds=1", "federation.rounds=2"]).federation.rounds == 2


def test_text_needs_no_quotes() -> None:
    assert load("digits", ["task.warm=a/b c.safetensors"]).task.warm == "a/b c.safetensors"
    assert load("digits", ['task.warm="a=b"']).task.warm == "a=b"
    assert load("digits", ["task.warm=a=b"]).task.warm == "a=b"


@pytest.mark.parametrize("setting", ["federation.rounds", "", "=3", " =3", "rounds 3"])
def test_a_setting_is_a_key_and_a_value(setting: str) -> None:
    with pytest.raises(SpecError, match="write key=value, for example"):
        load("digits", [setting])


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("taks.fit=1", "taks: unknown key; did you mean 'task'?"),
        ("task.modle=mlp", "task.modle: unknown key; did you mean 'model'?"),
        (
            "task.fit.moment=1",
            "task.fit.moment: unknown key of 'sgd' (sets={'task.fit': 'sgd'} starts it afresh); did you mean "
            "'momentum'?",
        ),
        (
            "protocol.encode.weight=open",
            "protocol.encode.weight: unknown key of 'floats' (sets={'protocol.encode': 'floats'} starts it afresh); "
            "did you mean 'weights'?",
        ),
        (
            "protocol.release.grain=layer",
            "protocol.release.grain: unknown key of 'rows' (sets={'protocol.release': 'rows'} starts it afresh); "
            "there are none",
        ),
        ("run.wokers=2", "run.wokers: unknown key; did you mean 'workers'?"),
        ("federation.quorun=1", "federation.quorun: unknown key; did you mean 'quorum'?"),
        ("task.fit=adem", "task.fit = 'adem': no fit has that name; did you mean 'adam'?"),
        ("task.data=mnits", "task.data = 'mnits': no data has that name; did you mean 'mnist'?"),
        ("protocol.place=relya", "protocol.place = 'relya': no place has that name; did you mean 'relay'?"),
        ("federation=3", "federation = 3: expected a table or a name"),
        ("federation.rounds=0", "federation.rounds = 0: input should be greater than or equal to 1"),
        ("federation.rounds=2.5", "federation.rounds = 2.5"),
        ("federation.quorum=0", "federation.quorum = 0: input should be greater than 0"),
        ("federation.quorum=1.5", "federation.quorum = 1.5"),
        ("task.fit.lr=nan", "task.fit.lr = nan: input should be a finite number"),
        ("task.fit.lr=inf", "task.fit.lr = inf: input should be a finite number"),
        ("task.fit.lr=fast", "task.fit.lr = 'fast': input should be a valid number"),
        ("task.model.hidden=[64, 0]", "task.model.hidden.1 = 0"),
        ("run.workers=0", "run.workers = 0"),
        ("name=a/b", "name = 'a/b'"),
        ("protocol=rns-server", "protocol = 'rns-server': no preset has that name; did you mean 'rns-servers'?"),
        ("protocol={use=3}", "protocol = 3: no preset has that name; known: activity"),
        ("protocol={use='rns', plaice='relay'}", "protocol.plaice: unknown key; did you mean 'place'?"),
        ("protocol={use='rns', encode={digit=3}}", "protocol.encode.digit: unknown key of 'residues'"),
    ],
)
def test_what_is_wrong_is_named_where_it_stands(setting: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        load("digits", [setting])
    assert str(error.value).startswith(said) or said in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_key_in_a_file_is_an_error_at_any_depth(tmp_path: Path) -> None:
    for body, said in {
        "[federatio]\nrounds = 1": "federatio: unknown key; did you mean 'federation'?",
        "[task.split]\nuse = 'dirichlet'\nalhpa = 1": (
            "task.split.alhpa: unknown key of 'dirichlet' (sets={'task.split': 'dirichlet'} starts it afresh); "
            "did you mean 'alpha'?"
        ),
        "[protocol]\nrelease = { use = 'shuffle', grian = 'layer' }": (
            "protocol.release.grian: unknown key of 'shuffle' (sets={'protocol.release': 'shuffle'} starts it afresh); "
            "did you mean 'grain'?"
        ),
    }.items():
        (tmp_path / "spec.toml").write_text(body)
        with pytest.raises(SpecError) as error:
            load(tmp_path / "spec.toml")
        assert str(error.value) == said


@pytest.mark.parametrize("body", [b'name = "\xff"', b"\xff\xfen\x00"])
def test_a_file_that_is_not_utf8_is_said(body: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(body)
    with pytest.raises(SpecError, match=r"bad\.toml: cannot be read as UTF-8 text \(.*can't decode"):
        load(tmp_path / "bad.toml")


def test_broken_toml_is_said_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[task]\nfit = {\n")
    with pytest.raises(SpecError, match=r"broken\.toml: not valid TOML: .*line 2"):
        load(tmp_path / "broken.toml")


@pytest.mark.parametrize(("name", "meant"), [("digit", "digits"), ("digits_sum", "digits-sum"), ("minst", "mnist")])
def test_an_unknown_preset_names_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(SpecError, match=f"{name!r} is neither a file nor a preset; did you mean '{meant}'?"):
        load(name)
    with pytest.raises(SpecError, match="known: activity, cifar10, digits, "):
        load("completely-else")


def test_how_a_machine_runs_it_is_no_part_of_the_protocol() -> None:
    assert load("digits", ["run.workers=7", "task.fit.lr=1"]).protocol.digest() == load("digits").protocol.digest()
    assert load("digits").protocol.digest() != load("digits-sum").protocol.digest()


def test_a_presets_name_stands_for_its_protocol(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('protocol = "rns-servers"\n[task.split]\nclients = 4\n')
    spec = load(tmp_path / "mine.toml")
    assert spec.protocol == sum_servers(clients=4)
    assert spec.task == load({"task": {"split": {"clients": 4}}}).task, "nothing else of the preset"
    for name in PRESETS:
        own = load(name)
        assert load({"task": own.task, "federation": own.federation, "protocol": name}).protocol == own.protocol


def test_a_presets_protocol_can_be_changed_in_parts() -> None:
    base = {"protocol": {"use": "rns-servers", "encode": {"digits": 5}, "place": "masks"}}
    changed = load(base, ["task.split.clients=7"]).protocol
    assert changed.encode == FixedPoint(clients=7, digits=5)
    assert (changed.place.use, changed.release.use, changed.aggregate.use) == ("masks", "sum", "scaled")
    assert load("digits", ["protocol=rns", "protocol.encode.digits=5"]).protocol == rns(clients=10, digits=5)
    assert load("digits", {"protocol": "rns", "protocol.release": "bits"}).protocol == rns(clients=10, release="bits")


def test_how_many_clients_are_summed_follows_from_who_is_invited() -> None:
    def room(**table: Any) -> int:
        return int(load({"protocol": "rns-servers", **table}).protocol.plain()["encode"]["clients"])

    assert room() == 10
    assert room(task={"split": {"clients": 30}}) == 30
    assert room(task={"split": {"clients": 30}}, federation={"cohort": 6}) == 6
    assert room(task={"split": "q-skew"}) == 100
    assert room(task={"data": "activity", "split": "natural"}) == 21
    assert room(task={"data": {"use": "households", "households": 9}, "split": "natural"}) == 9
    assert load("rns", ["task.split.clients=20"]).protocol == rns(clients=20)
    assert load("digits", ["protocol.encode={use='fixed'}"]).protocol.encode == FixedPoint(clients=10)


def test_owners_that_only_the_data_know_are_counted_where_that_is_allowed() -> None:
    table = {"task": {"data": "ecg", "split": "natural"}, "protocol": "rns"}
    with pytest.raises(SpecError, match=r"^protocol\.encode\.clients: .*not loaded here; set task\.split\.clients to"):
        load(table)
    assert load(table, count=lambda task: 17).protocol == rns(clients=17)

    def never(task: Learning) -> int:
        raise AssertionError("plain averaging need not know")

    load({"task": {"data": "ecg", "split": "natural"}}, count=never)


def test_settings_in_python_are_values() -> None:
    spec = load("digits", {"federation.rounds": 3, "task.fit": Adam(epochs=2), "task.model.hidden": (8, 9)})
    assert (spec.federation.rounds, spec.task.fit, spec.task.model) == (3, Adam(epochs=2), Mlp(hidden=(8, 9)))
    assert load("digits", "federation.rounds=3").federation.rounds == 3, "one setting is not a list of letters"
    with pytest.raises(SpecError, match=r"^federation\.rounds = 0: "):
        load("digits", {"federation.rounds": 0})


def test_an_empty_description_is_known_as_one(tmp_path: Path) -> None:
    (tmp_path / "no.toml").write_text("# nothing yet\n")
    (tmp_path / "name.toml").write_text('name = "mine"\n')
    (tmp_path / "some.toml").write_text("[federation]\n")
    assert is_empty({})
    assert is_empty(str(tmp_path / "no.toml"))
    assert is_empty(tmp_path / "name.toml")
    assert not is_empty(tmp_path / "some.toml")
    assert not is_empty("digits")
    assert not is_empty(Spec())


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_described_in_a_line(name: str) -> None:
    assert 20 < len(about(name)) <= 60
    assert about(name).endswith(".")
