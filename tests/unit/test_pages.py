"""Pages that can be followed: links lead somewhere, commands and descriptions are real, code compiles, or runs."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
import typer
from tools import reference

import croupier
from croupier.cli import app
from croupier.core.envelope import VERSION

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("examples/**/README.md")])
# The changelog also names what is gone.
PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
EACH = pytest.mark.parametrize("page", PRESENT, ids=[page.relative_to(REPOSITORY).as_posix() for page in PRESENT])
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def blocks(text: str, *kinds: str) -> list[str]:
    return [code for kind, code in FENCE.findall(text) if kind in kinds]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as the site makes them."""
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    kept = ("".join(letter for letter in head.lower() if letter.isalnum() or letter in " -_") for head in heads)
    return {"-".join(words.split()) for words in kept}


def broken(page: Path, text: str) -> list[str]:
    """Links within the repository that lead nowhere."""
    found = []
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        to = (page.parent / name).resolve() if name else page
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to.read_text("utf-8"))):
            found.append(link)
    return found


@EACH
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text("utf-8")) == []


def test_a_broken_link_is_seen() -> None:
    text = "[a](nowhere.md) [b](docs/tour.md#no-such-place) [c](https://example.org) [d](docs/tour.md) [e](#here)"
    assert broken(REPOSITORY / "README.md", text) == ["nowhere.md", "docs/tour.md#no-such-place", "#here"]


def commands(text: str) -> list[list[str]]:
    """Every call of `croupier` in blocks of a shell's lines, up to a comment."""
    lines = "\n".join(blocks(text, "", "sh", "bash", "console")).replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        if match := re.search(r"(?:^|&& |bin/|\$ )croupier ([^#|>]*)", line.strip()):
            try:
                found.append(shlex.split(match[1]))
            except ValueError:
                found.append(match[1].split())
    return found


def unknown(words: list[str]) -> list[str]:
    """What of a call the command line does not know."""
    command: click.Command = typer.main.get_command(app)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if words[0] not in command.commands:
            # `plan SPEC` stands for the group's own first command.
            return [] if command.name == "plan" else [words[0]]
        command, words = command.commands[words[0]], words[1:]
    known = {name for one in command.get_params(click.Context(command)) for name in (*one.opts, *one.secondary_opts)}
    asked = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return [word for word in asked if word not in known | {"--help", "-h", "--debug", "--version"}]


@EACH
def test_commands_that_a_page_shows_exist(page: Path) -> None:
    assert [(words, bad) for words in commands(page.read_text("utf-8")) if (bad := unknown(words))] == []


def test_a_command_that_is_gone_is_seen() -> None:
    text = "```\ncroupier run digits --sed 7   # x\ncd x && .venv/bin/croupier profile digits\n```"
    assert [unknown(words) for words in commands(text)] == [["--sed"], ["profile"]]


@EACH
def test_code_that_a_page_shows_can_be_read(page: Path) -> None:
    text = page.read_text("utf-8")
    for code in blocks(text, "toml"):
        tomllib.loads(code)
    # CONTRIBUTING shows single lines of other files; a law puts them there and runs them.
    for code in () if page.name == "CONTRIBUTING.md" else blocks(text, "python"):
        ast.parse(code)


def test_the_page_of_own_data_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (REPOSITORY / "docs" / "own-data.md").read_text("utf-8")
    (code,), (described,) = blocks(text, "python"), blocks(text, "toml")
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "task.toml").write_text(described)
    monkeypatch.chdir(tmp_path)
    result = croupier.run("task.toml", seed=1, out="run")
    assert result.final["round"] == 2
    assert result.final["accuracy"] > 0.5


def test_the_reference_is_what_the_code_says() -> None:
    assert reference.PAGE.read_text("utf-8") == reference.written(), "run `make docs`"
    assert all(f"`croupier.{name}`" in reference.written() for name in croupier.__all__)


def test_the_upgrade_page_names_the_version_of_messages() -> None:
    assert f"the version in each header; now {VERSION} |" in (REPOSITORY / "docs" / "upgrade.md").read_text("utf-8")


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_a_shells_completion_asks_as_it_is_answered(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script names the very words by which the program answers."""
    from croupier.cli import main

    monkeypatch.setenv("_CROUPIER_COMPLETE", f"source_{kind}")
    with pytest.raises(SystemExit):
        main()
    assert f"_CROUPIER_COMPLETE=complete_{kind}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("run rns-s", ["rns-servers"]),
        ("run digits mi", ["mine.toml"]),
        ("explain taz", ["tazza", "tazza-mnist"]),
        ("explain ../her", ["../here.toml"]),
        ("plan run rns-s", ["rns-servers"]),
        ("plan tazza-", ["tazza-mnist"]),
        ("doctor rns-s", ["rns-servers"]),
        ("recommend --worry ", ["updates", "poisoning", "budgets", "model"]),
        ("init --kind s", ["series"]),
    ],
)
def test_names_and_values_are_completed(
    typed: str, offered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from croupier.cli import main

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mine.toml").touch()
    (tmp_path / "here.toml").touch()
    monkeypatch.chdir(tmp_path / "in")
    monkeypatch.setenv("_CROUPIER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"croupier {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" "))))
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.split() == offered
