"""20 Newsgroups: which of twenty groups a message was posted to, from the words of its body.

Headers, quotes and signatures name people and groups outright, so they are taken out first unless `strip` is off: what
is left must be told from what was written. Words are hashed to numbers, and not numbered as they come, so that clients
need not agree on a dictionary. Used by the preset `newsgroups` and by figures of RNS.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field, PositiveInt

from croupier.errors import DataError
from croupier.learn.data import Data, Dataset, TensorRecords, locate

SOURCE = "20 Newsgroups (Lang 1995), the split by date"
CLASSES = 20
PADDING = 0
WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
# Gateways and forwarders left whole headers in the body.
HEADER = re.compile(
    r"[ \t]*(?:From|To|Cc|Sender|Reply-To|Subject|Newsgroups|Followup-To|Organi[sz]ation|Date|Message-ID|References|"
    r"In-Reply-To|Path|Archive-Name|Lines|Keywords|Summary|Distribution|Nntp-Posting-Host|X-[\w-]+)[ \t]*:",
    re.IGNORECASE,
)
# A quoted line starts with > or |, perhaps after blanks and the initials of whom it quotes.
QUOTED = re.compile(r"[ \t]*[A-Za-z]{0,3}[>|]")
# The line that says whom the next ones quote: a name, an address, the number of a message.
QUOTING = re.compile(r"^[ \t]*In (?:article|message) |(?:writes|wrote|says|said)[ \t]*:?[ \t.]*$", re.IGNORECASE)
RULER = re.compile(r"[ \t]*(?:-{2,}|_{2,}|={2,}|\*{2,}|~{2,})[ \t]*")
# By custom a signature has four lines at most; many had more, none was an essay.
SIGNATURE = 12


class Newsgroups(Data, use="newsgroups"):
    """18,846 messages of 20 groups, each as the numbers of its first `length` words.

    A word's number is a hash of it, from 1 to `vocabulary` - 1, and 0 fills up short messages: no list of words is made
    from anybody's messages, so which number a word has tells nothing about them; some words share one. `strip` leaves
    out headers, quoted lines and signatures, which give the group away; a signature that no ruled line sets off stays.
    """

    licence: ClassVar[str] = "not stated by its source"
    files: ClassVar[tuple[str, ...]] = ("20news_bydate.jsonl.xz",)

    strip: bool = Field(True, description="leave out headers, quotes and signatures")
    vocabulary: int = Field(8192, ge=2, le=1 << 31, description="how many numbers words can have")
    length: PositiveInt = Field(128, description="how many words of a message are read")

    def load(self, folder: Path | None) -> Dataset:
        """Read the dataset. Raises: DataError."""
        path = locate(folder, self.files[0])
        held: dict[str, list[tuple[list[int], int]]] = {"train": [], "test": []}
        notes = dict.fromkeys(("empty_train", "empty_test", "cut_train", "cut_test"), 0)
        for split, label, text in _messages(path):
            numbers = self._numbers(text)
            notes[f"empty_{split}"] += not numbers
            notes[f"cut_{split}"] += len(numbers) > self.length
            held[split].append((numbers[: self.length], label))
        if not all(held.values()):
            raise DataError(f"{path} is corrupt: it has no message to train or to test on; fetch it again")
        train, test = (self._rows(part) for part in held.values())
        return Dataset(
            name="newsgroups",
            goal="classify",
            classes=CLASSES,
            train=train,
            test=test,
            licence=self.licence,
            source=SOURCE,
            labels=train.y,
            notes=notes,
            tokens=self.vocabulary,
        )

    def _numbers(self, text: str) -> list[int]:
        """The numbers of the first words, and of one more where there is one, so that it shows what is cut."""
        found = islice(words(body(text) if self.strip else text), self.length + 1)
        return [bucket(word, self.vocabulary) for word in found]

    def _rows(self, held: list[tuple[list[int], int]]) -> TensorRecords:
        x = np.full((len(held), self.length), PADDING, np.int64)
        for row, (numbers, _) in zip(x, held, strict=True):
            row[: len(numbers)] = numbers
        return TensorRecords(torch.from_numpy(x), torch.tensor([label for _, label in held]))


def body(text: str) -> str:
    """What the sender wrote: no line of a header, no quoted line nor the one that announces it, no signature."""
    lines = text.partition("\n\n")[2].rstrip().split("\n")
    rulers = [at for at, line in enumerate(lines) if RULER.fullmatch(line) and len(lines) - at <= SIGNATURE + 1]
    own = lines[: rulers[0]] if rulers else lines
    return "\n".join(line for line in own if not _foreign(line))


def _foreign(line: str) -> bool:
    """Whether a line of a body is a header's, a quoted one, or the one that announces it."""
    return bool(HEADER.match(line) or QUOTED.match(line) or QUOTING.search(line))


def words(text: str) -> Iterator[str]:
    """Lower-cased runs of letters and digits, one after the other; an apostrophe may stand inside."""
    return (found.group() for found in WORD.finditer(text.lower()))


@lru_cache(maxsize=1 << 18)
def bucket(word: str, vocabulary: int) -> int:
    """A word's number, from 1 on: the same on every machine and in every process."""
    drawn = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return 1 + int.from_bytes(drawn, "little") % (vocabulary - 1)


def _messages(path: Path) -> Iterator[tuple[str, int, str]]:
    """Split, label and text of each message."""
    try:
        with lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                yield _message(line, f"{path} is corrupt: line {number}")
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise DataError(f"{path} is corrupt: {error}; fetch it again") from error


def _message(line: str, where: str) -> tuple[str, int, str]:
    found: Any = json.loads(line)
    if not isinstance(found, dict):
        raise DataError(f"{where} is no message; fetch it again")
    split, label, text = (found.get(key) for key in ("split", "label", "text"))
    if split not in ("train", "test") or not isinstance(text, str):
        raise DataError(f"{where} lacks a split (train or test) or a text; fetch it again")
    if type(label) is not int or not 0 <= label < CLASSES:
        raise DataError(f"{where} has the label {label!r} where 0 to {CLASSES - 1} are known; fetch it again")
    return split, label, text
