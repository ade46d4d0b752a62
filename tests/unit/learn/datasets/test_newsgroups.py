"""Texts as numbers of words: what is left of a message, which number a word has, and the network that reads them."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.update import Model
from croupier.errors import DataError, SpecError
from croupier.learn.assemble import Hardware, TaskOptions, assemble
from croupier.learn.augment import InstaHide
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.datasets import Newsgroups
from croupier.learn.datasets.newsgroups import _messages, body, bucket, words
from croupier.learn.fit import Adam
from croupier.learn.models import Mlp, Reader, TextTransformer
from croupier.learn.models.transformer import Block
from croupier.learn.split import Dirichlet, Iid, Natural
from croupier.learn.train import Learner

MESSAGE = """From: someone@example.org (Some One)
Subject: Re: motherboards
Organization: comp.sys.example

Newsgroups: comp.sys.example
X-Gateway: a second header

In article <123@example.org> other@example.org (O. Ther) writes:
>It's a quoted line
> > and one quoted twice
ot> with initials
| with a bar
Other (Mr.) wrote:

I don't quite agree: a > b, and 2 of 3 say no.
--
Some One, someone@example.org
Example Inc.
"""


def test_a_body_is_what_its_sender_wrote() -> None:
    assert body(MESSAGE).strip() == "I don't quite agree: a > b, and 2 of 3 say no."
    assert body(MESSAGE.replace("--\n", "-- \n")) == body(MESSAGE)
    assert list(words(body(MESSAGE))) == ["i", "don't", "quite", "agree", "a", "b", "and", "2", "of", "3", "say", "no"]


def test_a_ruled_line_far_from_the_end_sets_off_no_signature() -> None:
    text = "Subject: x\n\nabove\n-----\n" + "\n".join(f"line{n}" for n in range(30)) + "\n____\nme\n\n\n"
    left = body(text)
    assert "above" in left
    assert left.rstrip().endswith("line29")
    assert body("Subject: x\n\n") == body("Subject: only a header") == ""


def test_words_are_lower_case_runs_of_letters_and_digits() -> None:
    said = "Don't PANIC -- x_y, 'quoted' 3.5 Größe rock'n'roll"
    assert list(words(said)) == ["don't", "panic", "x", "y", "quoted", "3", "5", "größe", "rock'n'roll"]


# printf WORD | b2sum -l 64, read as a little-endian number: 1 more than its rest modulo 8191.
VECTOR = {"the": 7147, "hockey": 6503, "größe": 7513, "don't": 83}


def test_a_words_number_is_the_same_everywhere() -> None:
    assert {word: bucket(word, 8192) for word in VECTOR} == VECTOR
    program = f"from croupier.learn.datasets.newsgroups import bucket\nprint([bucket(w, 8192) for w in {list(VECTOR)}])"
    env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout) == list(VECTOR.values())


def test_numbers_start_at_one_and_reach_the_last() -> None:
    found = {bucket(f"word{n}", 9) for n in range(500)}
    assert found == set(range(1, 9))
    assert bucket("any", 2) == 1


def write(folder: Path, lines: Sequence[str]) -> Path:
    with lzma.open(folder / "20news_bydate.jsonl.xz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines))
    return folder


def message(split: str, label: Any, text: Any) -> str:
    return json.dumps({"split": split, "label": label, "group": "g", "id": "1", "text": text})


def few(folder: Path) -> Path:
    texts = [
        ("train", 3, MESSAGE),
        ("test", 19, "Subject: x\n\none two\x85three"),
        ("train", 0, "Subject: y\n\n> none"),
    ]
    return write(folder, [message(*each) for each in texts])


def inputs(dataset: Dataset) -> tuple[Tensor, Tensor]:
    assert isinstance(dataset.train, TensorRecords)
    assert isinstance(dataset.test, TensorRecords)
    return dataset.train.x, dataset.test.x


def test_texts_are_read_as_numbers_and_what_is_cut_or_empty_is_counted(tmp_path: Path) -> None:
    data = Newsgroups(length=4, vocabulary=50).load(few(tmp_path))
    train, test = inputs(data)
    assert train.tolist() == [[bucket(word, 50) for word in ("i", "don't", "quite", "agree")], [0, 0, 0, 0]]
    assert test.tolist() == [[bucket(word, 50) for word in ("one", "two", "three")] + [0]]
    assert (train.dtype, data.shape, data.classes, data.tokens) == (torch.int64, (4,), 20, 50)
    assert data.labels is not None
    assert data.labels.tolist() == [3, 0]
    assert data.notes == {"empty_train": 1, "empty_test": 0, "cut_train": 1, "cut_test": 0}
    assert data.digest == Newsgroups(length=4, vocabulary=50).load(tmp_path).digest
    others = (Newsgroups(length=4, vocabulary=51), Newsgroups(length=5, vocabulary=50))
    assert all(other.load(tmp_path).digest != data.digest for other in others)


def test_unstripped_texts_begin_with_their_header(tmp_path: Path) -> None:
    train, _ = inputs(Newsgroups(strip=False, length=3).load(few(tmp_path)))
    assert train[0].tolist() == [bucket(word, 8192) for word in ("from", "someone", "example")]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["[1]"], "line 1 is no message"),
        (["{"], "Expecting property name"),
        ([message("train", 0, "a"), message("dev", 0, "a")], r"line 2 lacks a split \(train or test\) or a text"),
        ([message("train", 0, None)], "line 1 lacks"),
        ([message("train", 20, "a")], "line 1 has the label 20 where 0 to 19 are known"),
        ([message("train", -1, "a")], "line 1 has the label -1"),
        ([message("train", True, "a")], "line 1 has the label True"),
        ([message("train", 0, "a")], "it has no message to train or to test on"),
        ([], "it has no message"),
    ],
)
def test_corrupt_messages_are_named(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(DataError, match=rf"20news_bydate\.jsonl\.xz is corrupt: {said}.*; fetch it again"):
        Newsgroups().load(write(tmp_path, lines))


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = few(tmp_path) / Newsgroups.files[0]
    whole = path.read_bytes()
    for content in (b"no archive", whole[:-20], whole[:40] + b"\xff" * 9 + whole[49:], lzma.compress(b"\xff\n")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"20news_bydate\.jsonl\.xz is corrupt: .*; fetch it again"):
            Newsgroups().load(tmp_path)


@pytest.mark.parametrize("fields", [{"vocabulary": 1}, {"length": 0}])
def test_settings_out_of_bounds_are_named(fields: dict[str, int]) -> None:
    with pytest.raises(SpecError, match=next(iter(fields))):
        Newsgroups.parse({"use": "newsgroups", **fields})


def texts(count: int = 12, length: int = 6, classes: int = 3) -> Dataset:
    x = torch.randint(1, 30, (count, length), generator=torch.Generator().manual_seed(0))
    rows = TensorRecords(x, torch.arange(count) % classes)
    return Dataset("texts", "classify", classes, rows, rows, "none", "made up", labels=rows.y, tokens=30)


def reader(layers: int = 1) -> Reader:
    with Coins.from_seed(1).ambient():
        return TextTransformer(vocabulary=30, layers=layers).build(texts())


@pytest.mark.parametrize("layers", [1, 2])
def test_padding_tells_nothing(layers: int) -> None:
    """A text reads alike however much room is left behind it; one without a word gives the last biases."""
    model = reader(layers=layers).eval()
    x = torch.randint(1, 30, (4, 6))
    x[:, 4:] = 0
    kept = model(x)
    model.words.weight.data[0] = 7.0
    model.places.weight.data[4:] = 9.0
    assert torch.allclose(model(x), kept, atol=1e-6)
    assert not torch.allclose(model(x.roll(1, 1)), kept, atol=1e-3)
    none = model(torch.zeros(2, 6, dtype=torch.int64))
    assert torch.equal(none, model.fc.bias.expand(2, 3))


def test_words_and_their_places_both_count() -> None:
    model = reader().eval()
    x = torch.tensor([[3, 4, 5, 6, 7, 8]])
    assert not torch.allclose(model(x), model(x.flip(1)), atol=1e-7)
    assert not torch.allclose(model(x), model(x + 1), atol=1e-4)


def test_attention_is_torchs_own() -> None:
    """The same weights in torch's own layer give the same; it is not used, because its dropout is not ours."""
    model = reader(layers=1).eval()
    block = model.blocks[0]
    assert isinstance(block, Block)
    theirs = nn.TransformerEncoderLayer(64, 2, 128, 0.0, batch_first=True, norm_first=True).eval()
    ask = block.attention
    state = {
        "self_attn.in_proj_weight": torch.cat([part.weight for part in (ask.query, ask.key, ask.value)]),
        "self_attn.in_proj_bias": torch.cat([part.bias for part in (ask.query, ask.key, ask.value)]),
        "self_attn.out_proj.weight": ask.out.weight,
        "self_attn.out_proj.bias": ask.out.bias,
    }
    for ours, name in ((block.fc1, "linear1"), (block.fc2, "linear2"), (block.norm1, "norm1"), (block.norm2, "norm2")):
        state |= {f"{name}.weight": ours.weight, f"{name}.bias": ours.bias}
    theirs.load_state_dict(state)
    x, empty = torch.randn(3, 6, 64), torch.zeros(3, 6, dtype=torch.bool)
    empty[1, 3:] = True
    got, want = block(x, empty), theirs(x, src_key_padding_mask=empty)
    assert torch.allclose(got[~empty], want[~empty], atol=1e-5)


def test_heads_divide_the_width() -> None:
    with pytest.raises(SpecError, match=r"heads = 3: does not divide task\.model\.width = 64"):
        TextTransformer(heads=3)


def test_words_are_no_quantities() -> None:
    with pytest.raises(SpecError, match=r"'mlp': needs inputs that are quantities.* model = \"text-transformer\""):
        Mlp().build(texts())
    plain = TensorRecords(torch.rand(3, 6), torch.tensor([0, 1, 2]))
    pictures = Dataset("pictures", "classify", 3, plain, plain, "none", "made up", labels=plain.y)
    with pytest.raises(SpecError, match=r"'text-transformer': needs texts .* use data = \"newsgroups\""):
        TextTransformer().build(pictures)
    with pytest.raises(SpecError, match=r"vocabulary = 29: 'texts' has numbers of words below 30; use at least that"):
        TextTransformer(vocabulary=29).build(texts())
    unnamed = replace(texts(), tokens=0)
    assert TextTransformer(vocabulary=30).build(unnamed).words.num_embeddings == 30, "as an attacker rebuilds it"
    with pytest.raises(SpecError, match="'texts' has no pictures"):
        InstaHide(k=1).prepare(texts(), None, Coins.from_seed(0))


def test_clients_train_one_by_one_and_alike_with_any_workers(tmp_path: Path) -> None:
    lines = [message("train", n % 4, f"Subject: x\n\nword{n % 4} and word{n}") for n in range(24)]
    write(tmp_path, [*lines, message("test", 0, "Subject: x\n\nword0")])
    found = []
    for workers, together in ((1, 1), (2, 64)):
        coins = Coins.from_seed(4)
        data, network = Newsgroups(length=5, vocabulary=40), TextTransformer(width=8, hidden=8, dropout=0.1)
        made = assemble(
            data,
            Iid(clients=3),
            network,
            Adam(batch=4),
            coins,
            options=TaskOptions(together=together),
            folder=tmp_path,
            machine=Hardware(workers=workers),
        )
        assert isinstance(made.task.fit, Learner)
        assert made.task.fit.group == 1
        jobs = [(made.task.first.vector, shard, coins.child(who)) for who, shard in made.task.shards.items()]
        found.append([update.vector for update in made.task.fit(jobs)])  # type: ignore[union-attr]
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    with pytest.raises(SpecError, match="'newsgroups' does not say who owns a record"):
        Natural()(data.load(tmp_path), coins)


@pytest.mark.data
def test_the_real_messages() -> None:
    folder = Path(os.environ["CROUPIER_DATA"])
    data = Newsgroups().load(folder)
    assert (len(data.train), len(data.test), data.shape) == (11314, 7532, (128,))
    train, test = inputs(data)
    assert int(train.min()) == int(test.min()) == 0
    assert int(train.max()) < 8192
    assert data.labels is not None
    assert int(data.labels.bincount().min()) > 300
    assert len(data.labels.bincount()) == 20
    assert data.notes["empty_train"] == int((train == 0).all(1).sum())
    split = Dirichlet(clients=10)(data, Coins.from_seed(0))
    assert sum(map(len, split.values())) == 11314


@pytest.mark.data
def test_no_header_and_no_quote_is_left_of_the_real_messages() -> None:
    path = Path(os.environ["CROUPIER_DATA"]) / Newsgroups.files[0]
    kept = total = 0
    for number, (_, _, text) in enumerate(_messages(path)):
        if number % 10:
            continue
        left = body(text)
        first = ("From:", "Subject:", "Organization:", "Newsgroups:", ">", "|")
        assert not any(line.lstrip().startswith(first) for line in left.split("\n"))
        kept, total = kept + len(left), total + len(text)
    assert 0.3 < kept / total < 0.8, "stripping takes much away, and leaves what matters"


@pytest.mark.data
def test_training_on_real_messages_improves() -> None:
    torch.set_num_threads(1)
    coins, folder = Coins.from_seed(3), Path(os.environ["CROUPIER_DATA"])
    data = Newsgroups(length=32, vocabulary=2048)
    made = assemble(
        data,
        Iid(clients=4),
        TextTransformer(),
        Adam(lr=0.005, epochs=3),
        coins,
        folder=folder,
        machine=Hardware(workers=1),
    )
    (done,) = made.task.fit([(made.task.first.vector, next(iter(made.task.shards.values())), coins.child("job"))])
    before = made.task.evaluate(made.task.first)["accuracy"]
    after = made.task.evaluate(Model(done.vector))["accuracy"]  # type: ignore[union-attr]
    assert before < 0.1
    assert after > 0.2
