"""The report in a real browser: sorted, filtered, on a phone, in the dark, on paper, and without a script."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from croupier.audit.report.html import brief, render
from tests.reports import bare, hostile, report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
CHECKS = (Path(__file__).parent / "checks.js").read_text("utf-8")
PAGES: dict[str, Callable[[], dict[str, Any]]] = {"usual": report, "hostile": hostile, "bare": bare}
# Phones, the two sides of the place where the layout changes, a laptop, a wide screen.
WIDTHS = (320, 360, 600, 896, 897, 1200, 1600)
Scheme = Literal["light", "dark"]
Show = Callable[..., AbstractContextManager["Page"]]
OPEN = "for (const fold of document.querySelectorAll('details')) fold.open = true"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One headless Chromium for all tests of this file, where there is one."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"not run: no browser here (none of {', '.join(PROGRAMS)})")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("not run: playwright is not installed (pip install -e '.[dev]')")
    # Chromium's sandbox refuses to start for root.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=flags)
        yield started
        started.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Show:
    """Opens a report from disk; what it asks of the network or complains about fails the test."""

    @contextmanager
    def opened(
        name: str = "usual", width: int = 1200, scheme: Scheme = "light", script: bool = True, fold: bool = False
    ) -> Iterator[Page]:
        file = tmp_path / "report.html"
        file.write_text(render(PAGES[name]()), "utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=script
        )
        page = context.new_page()
        asked: list[str] = []
        said: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(f"a script ran: {dialog.message}"))
        page.goto(file.as_uri())
        if script:
            page.evaluate(CHECKS)
            page.evaluate("0" if fold else OPEN)
        yield page
        context.close()
        assert [one for one in asked if not one.startswith("data:image/png")] == [file.as_uri()]
        assert said == []

    return opened


def column(page: Page, at: int) -> list[str | None]:
    """The numbers behind a column of the matrix, from top to bottom, of the rows that are shown."""
    found: list[str | None] = page.evaluate(
        "at => [...document.querySelectorAll('.matrix tbody tr')].filter(e => !e.hidden)"
        ".map(e => e.cells[at].dataset.value ?? null)",
        at,
    )
    return found


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_the_screen(show: Show, name: str) -> None:
    with show(name) as page:
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("checks.wide()") == [], width


@pytest.mark.parametrize("name", PAGES)
def test_all_text_can_be_read(show: Show, name: str) -> None:
    with show(name) as page:
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("checks.small(11)") == [], width
            assert page.evaluate("checks.overlaps()") == [], width


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_marks_stand_out(show: Show, name: str, scheme: Scheme) -> None:
    with show(name, scheme=scheme) as page:
        for width in (360, 1200):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("checks.pale(4.5)") == [], width
            assert page.evaluate("checks.faint(3)") == [], width


def test_the_dark_page_is_dark_and_paper_is_white(show: Show) -> None:
    with show(scheme="dark") as page:
        assert page.evaluate("checks.luminance(document.body)") < 0.05
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("checks.luminance(document.body)") == 1
        assert page.evaluate("checks.dark()") == []


@pytest.mark.parametrize("name", PAGES)
def test_on_paper_nothing_is_cut_and_all_is_open(show: Show, name: str) -> None:
    # A4 without its margins of 14 mm, in CSS pixels.
    with show(name, 687, "dark", fold=True) as page:
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("checks.wide()") == []
        assert page.evaluate("checks.pale(4.5)") == []
        assert page.evaluate("checks.overlaps()") == []
        for control in (".controls", "nav", ".skip"):
            assert not page.locator(control).is_visible()
        shut = page.evaluate("[...document.querySelectorAll('details > :not(summary)')].filter(e => !e.offsetHeight)")
        assert shut == []
        assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
        # Printing opened what was shut, and shut it again.
        assert page.locator("details[open]").count() <= 1


def test_the_matrix_shows_the_reports_own_numbers(show: Show) -> None:
    found = report()
    with show() as page:
        for at, key in enumerate(found["questions"], 1):
            gains = [row["questions"][key]["gain"] for row in found["rows"]]
            assert [None if one is None else float(one) for one in column(page, at)] == [
                gain and gain["rate"] for gain in gains
            ]
            factor = 100 if found["questions"][key]["unit"] == "share" else 1
            shown = page.locator(f".matrix tbody td:nth-child({at + 1})").all_inner_texts()
            for gain, said in zip(gains, shown, strict=True):
                assert gain is None or float(said.split()[0]) == pytest.approx(factor * gain["rate"], abs=0.05)


@pytest.mark.parametrize("width", [360, 1200])
def test_the_matrix_sorts(show: Show, width: int) -> None:
    with show(width=width) as page:
        head = page.get_by_role("columnheader", name="Whose record is it?")
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert column(page, 1) == ["0.44", "0.02", "0.012"]
        head.get_by_role("button").press("Enter")
        assert head.get_attribute("aria-sort") == "ascending"
        assert column(page, 1) == ["0.012", "0.02", "0.44"]
        # What has no number comes last either way, and one column is sorted by at a time.
        for _ in range(2):
            page.get_by_role("columnheader", name="Are two updates").get_by_role("button").click()
            assert column(page, 4)[-1] is None
        assert page.locator("[aria-sort]").count() == 1
        page.get_by_role("columnheader", name="Defence").get_by_role("button").click()
        assert page.locator(".matrix tbody th b").all_inner_texts()[0] == "No defence"


def test_the_matrix_filters(show: Show) -> None:
    with show() as page:
        page.get_by_label("Find a defence").fill("SHUFFLE")
        assert page.locator(".matrix tbody tr:visible").count() == 1
        assert page.get_by_role("status").inner_text() == "1 of 3 defences shown"
        page.get_by_label("Find a defence").fill("")
        page.evaluate(
            "document.querySelector('.matrix tbody tr').querySelectorAll('td .leak').forEach(e => e.remove())"
        )
        page.get_by_label("only what leaks").check()
        assert page.get_by_role("status").inner_text() == "2 of 3 defences shown"


def test_a_cell_leads_to_its_details(show: Show) -> None:
    with show(fold=True) as page:
        aim = page.locator("#d1-3")
        assert not aim.is_visible()
        page.locator(".matrix tbody tr:nth-child(2) td:nth-child(5) a").click()
        assert aim.is_visible()
        assert 0 <= aim.evaluate("e => e.getBoundingClientRect().top") < 400


def test_all_is_there_without_a_script(show: Show) -> None:
    with show(script=False, fold=True) as page:
        assert page.locator("button, .controls:visible").count() == 0
        assert page.locator(".matrix tbody tr:visible").count() == 3
        page.locator("summary", has_text="No defence").or_(page.locator("summary", has_text="no defence")).first.click()
        assert page.locator("#d1-0").is_visible()


def test_the_keyboard_finds_its_way(show: Show) -> None:
    with show() as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("name", PAGES)
def test_headings_and_landmarks(show: Show, name: str) -> None:
    with show(name) as page:
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(e => +e.tagName[1])")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        for place in ("body > header", "body > nav", "body > main", "body > footer"):
            assert page.locator(place).count() == 1
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.title()
        assert page.locator("th:not([scope])").count() == 0
        assert page.locator("table:not(:has(caption))").count() == 0


@pytest.mark.parametrize("width", [360, 1200])
def test_tables_stay_tables(show: Show, width: int) -> None:
    """Stacked on a phone, a table keeps its heads for those who listen, and shows them beside each value."""
    with show(width=width) as page:
        matrix = page.locator(".matrix")
        assert matrix.get_by_role("columnheader").count() == 1 + 5 + 2
        assert matrix.get_by_role("rowheader").count() == 3
        shown = page.evaluate("getComputedStyle(document.querySelector('td'), '::before').content")
        assert shown == ('"Whose record is it? (points)"' if width == 360 else "none")


def test_a_light_is_a_word_and_a_shape(show: Show) -> None:
    with show() as page:
        assert page.locator(".light").inner_text() == "● Leaks"
        found = set(page.locator(".mark").all_inner_texts())
        silent = {"○ not asked", "○ does not apply", "○ could not be judged", "○ not tested", "▲ cannot tell"}
        leaks = {"● broken", "● Leaks", "▲ Caution", "● leak", "● leak in the worst case"}
        assert found == leaks | {"■ No leak found", "■ none found", "◆ proved"} | silent


def test_what_is_forbidden_is_seen_to_be_hollow(show: Show) -> None:
    with show() as page:
        fills = page.evaluate("[...document.querySelectorAll('.dot.hollow')].map(e => getComputedStyle(e).fill)")
        assert fills
        assert set(fills) == {"rgb(255, 255, 255)"}


def test_a_notebook_is_left_as_it_is(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content(f"<h2 id=mine>mine</h2>{brief(report())}")
    assert page.evaluate("getComputedStyle(document.getElementById('mine')).fontSize") == "24px"
    assert page.locator(".card").evaluate("e => getComputedStyle(e).borderLeftWidth") == "8px"
    page.close()


def test_the_checks_catch_what_they_look_for(show: Show) -> None:
    """Planted faults: pale, small, wide and overlapping text, a faint mark."""
    with show(width=360) as page:
        page.evaluate("""() => {
            const add = html => document.body.insertAdjacentHTML('beforeend', html);
            const style = (element, values) => Object.assign(element.style, values);
            add('<p class=p1>pale</p><p class=p2>small</p><p class=p3>wide</p>');
            add('<svg width=9 height=9><text y=20>one</text><text y=22>two</text><path class=dot d="M0 0h9"/></svg>');
            style(document.querySelector('.p1'), {color: '#999'});
            style(document.querySelector('.p2'), {fontSize: '9px'});
            style(document.querySelector('.p3'), {width: '500px', maxWidth: 'none', textAlign: 'right'});
            style(document.querySelector('body > svg .dot'), {stroke: '#eee', fill: 'none'});
        }""")
        assert [said.split(":")[0] for said in page.evaluate("checks.pale(4.5)")] == ["pale"]
        assert [said.split(":")[0] for said in page.evaluate("checks.small(11)")] == ["small"]
        assert "wide" in {said.split(":")[0] for said in page.evaluate("checks.wide()")}
        assert page.evaluate("checks.overlaps()") == ["one / two"]
        assert len(page.evaluate("checks.faint(3)")) == 1
