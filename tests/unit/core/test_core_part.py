"""Parts by name: how tables become parts and back, and what is said of an unknown name or key."""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError
from tests.tiers import examples

from croupier.aggregate.mean import Mean, Scaled
from croupier.core.part import Part
from croupier.encode.encoder import Encoder
from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.errors import SpecError
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.place.placement import Placement
from croupier.place.relay import Relay
from croupier.privacy.local import LocalPrivacy, NoNoise
from croupier.release.release import Release
from croupier.release.rows import Rows
from croupier.release.shuffle import Shuffle
from croupier.release.sums import Sum

PARTS: list[Part] = [
    NoNoise(), Floats(), Floats(weights="slot", cap=3, form="delta"), FixedPoint(clients=5),
    FixedPoint(clients=5, digits=7, scale=0.5, weights="open"), Rows(), Shuffle(), Shuffle(grain="layer"), Sum(),
    Mean(), Scaled(), Scaled(room=2, floor=0.25), Direct(), Relay(), Pipeline(),
    Pipeline(encode=FixedPoint(clients=3), release=Sum(), aggregate=Scaled(), place=Relay()),
]  # fmt: skip


class Leaf(Part):
    size: int = Field(3, ge=1)
    sides: tuple[int, ...] = ()
    label: str | None = None


class Branch(Part):
    leaf: Leaf = Leaf()
    encode: Encoder = Floats()


class Tree(Part):
    branch: Branch = Branch()
    rate: float = 0.5


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_plain_data_reads_back_to_the_same_value(part: Part) -> None:
    again = type(part).parse(part.plain())
    assert again == part
    assert type(again) is type(part)
    assert again.digest() == part.digest()
    # Through text, as a file would.
    assert type(part).parse(json.loads(json.dumps(part.plain()))) == part


@pytest.mark.parametrize("part", [part for part in PARTS if part.use], ids=repr)
def test_a_slot_finds_each_part_by_its_name(part: Part) -> None:
    slots: list[type[Part]] = [LocalPrivacy, Encoder, Release, Mean, Placement]
    (slot,) = [slot for slot in slots if slot.verb == part.verb]
    assert slot.parse(part.plain(), "here") == part
    assert part.use in slot.choices()
    assert slot.parse(part) is part


def test_a_bare_name_stands_for_a_part_with_defaults() -> None:
    assert Release.parse("shuffle") == Shuffle()
    assert Pipeline.parse({"release": "shuffle", "place": "relay"}).release == Shuffle()


def test_a_table_without_a_name_changes_the_default_part_and_no_other() -> None:
    assert Tree.parse({"branch": {"encode": {"weights": "open"}}}).branch.encode == Floats(weights="open")
    assert Tree.parse({"branch": {"encode": {}}}).branch.encode == Floats()
    with pytest.raises(SpecError, match="encode = None: no encode has that name"):
        Encoder.parse({})


def test_choices_belong_to_their_slot() -> None:
    assert Encoder.choices() == ["fixed", "floats", "hidden-units", "residues", "signs"]
    assert {"rows", "shuffle", "sum"} <= set(Release.choices())
    assert not set(Release.choices()) & set(Encoder.choices())
    with pytest.raises(SpecError, match="no encode has that name"):
        Encoder.parse("rows")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"brunch": {}}, r"^brunch: unknown key; did you mean 'branch'\?"),
        ({"branch": {"leef": {}}}, r"^branch\.leef: unknown key; did you mean 'leaf'\?"),
        ({"branch": {"leaf": {"sise": 1}}}, r"^branch\.leaf\.sise: unknown key; did you mean 'size'\?"),
        ({"branch": {"leaf": {"zzz": 1}}}, r"^branch\.leaf\.zzz: unknown key; known: label, sides, size"),
        ({"branch": {"encode": {"use": "floats", "weigths": "open"}}}, r"branch\.encode\.weigths.*'weights'"),
        ({"branch": {"encode": "flots"}}, r"branch\.encode = 'flots': no encode .*did you mean 'floats'\?"),
        ({"branch": {"encode": {"use": "zzz"}}}, r"branch\.encode = 'zzz'.*known: fixed, floats"),
        ({"branch": {"encode": {"use": 5}}}, r"branch\.encode = 5"),
        ({"branch": {"encode": {"use": "fixed"}}}, r"branch\.encode\.clients: this key is required"),
        ({"branch": {"leaf": {"size": 0}}}, r"branch\.leaf\.size = 0: input should be greater than or equal to 1"),
        ({"branch": {"leaf": {"size": "many"}}}, r"branch\.leaf\.size = 'many': input should be a valid integer"),
        ({"branch": {"leaf": {"size": 1.5}}}, r"branch\.leaf\.size = 1\.5"),
        ({"branch": {"leaf": {"size": None}}}, r"branch\.leaf\.size = None"),
        ({"branch": {"leaf": {"sides": [1, "x"]}}}, r"branch\.leaf\.sides\.1 = 'x'"),
        ({"branch": {"leaf": [1]}}, r"branch\.leaf = \[1\]: expected a table or a name"),
        ({"branch": 3}, r"branch = 3: expected a table or a name"),
        ({"rate": float("nan")}, r"rate = nan: input should be a finite number"),
        ({"rate": float("inf")}, r"rate = inf"),
        ({"use": "tree"}, r"use: unknown key"),
    ],
)
def test_mistakes_are_named_by_their_key(data: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        Tree.parse(data)


def test_mistakes_are_named_from_where_the_part_lies() -> None:
    with pytest.raises(SpecError, match=r"^task\.tree\.branch\.leaf\.sise"):
        Tree.parse({"branch": {"leaf": {"sise": 1}}}, "task.tree")
    with pytest.raises(SpecError, match=r"^Tree = 7"):
        Tree.parse(7)


def test_parts_do_not_change_and_take_no_strangers() -> None:
    with pytest.raises(ValidationError):
        Leaf().size = 4  # type: ignore[misc]
    with pytest.raises(SpecError, match=r"Leaf\(colour=1\): unknown argument; known: "):
        Leaf(colour=1)  # type: ignore[call-arg]


def test_python_is_answered_in_python() -> None:
    for wrong, said in {
        "size": r"^Leaf\(size=0\): input should be greater than or equal to 1$",
        "sides": r"^Leaf\(sides=0\): a list is wanted, in brackets$",
    }.items():
        with pytest.raises(SpecError, match=said):
            Leaf(**{wrong: 0})
    with pytest.raises(SpecError, match=r"^FixedPoint\(clients=\.\.\.\): this argument is required$"):
        FixedPoint()  # type: ignore[call-arg]


def test_a_repr_shows_what_is_not_the_default() -> None:
    assert repr(Tree()) == "Tree()"
    assert str(Tree(branch=Branch(leaf=Leaf(size=4)))) == "Tree(branch=Branch(leaf=Leaf(size=4)))"
    assert repr(FixedPoint(clients=3)) == "FixedPoint(clients=3)"


def test_reading_leaves_the_table_alone() -> None:
    table = {"branch": {"encode": {"use": "fixed", "clients": 3}}}
    Tree.parse(table)
    assert table == {"branch": {"encode": {"use": "fixed", "clients": 3}}}


def test_the_digest_binds_defaults() -> None:
    assert Tree.parse({}).digest() == Tree.parse({"branch": {"leaf": {"size": 3}}, "rate": 0.5}).digest()
    assert Tree.parse({"branch": {"leaf": {"size": 4}}}).digest() != Tree().digest()

    class Grown(Part):
        branch: Branch = Branch()
        rate: float = 0.75

    assert Grown.parse({}).digest() != Tree.parse({}).digest()


def test_the_digest_is_of_sorted_compact_json() -> None:
    text = (
        '{"branch":{"encode":{"cap":null,"form":"weights","use":"floats","weights":"uniform"},'
        '"leaf":{"label":null,"sides":[1,2],"size":3}},"rate":0.5}'
    )
    part = Tree(branch=Branch(leaf=Leaf(sides=(1, 2))))
    assert part.digest() == hashlib.sha256(text.encode()).digest()


def test_parts_of_one_shape_and_different_names_have_different_digests() -> None:
    digests = [part.digest() for part in (NoNoise(), Rows(), Sum(), Mean(), Direct(), Relay())]
    assert len(set(digests)) == len(digests)


@examples()
@given(st.integers(1, 10**9), st.lists(st.integers(), max_size=4).map(tuple), st.none() | st.text(max_size=5))
def test_any_leaf_reads_back(size: int, sides: tuple[int, ...], label: str | None) -> None:
    leaf = Leaf(size=size, sides=sides, label=label)
    assert Leaf.parse(json.loads(json.dumps(leaf.plain()))) == leaf


def test_a_subclass_without_a_name_is_not_on_offer() -> None:
    before = dict(Part.named)

    class Private(Mean):
        linear: ClassVar[bool] = False

    assert Part.named == before
    assert Private.use == ""
    assert "use" not in Private().plain()
