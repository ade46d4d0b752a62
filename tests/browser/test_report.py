"""The report in a real browser: on a phone, in the dark, on paper, without a network, and read aloud."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from croupier.audit.report.page import render
from tests.browser.findings import bare, hostile, usual

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
CHECKS = (Path(__file__).parent / "checks.js").read_text("utf-8")
PAGES: dict[str, Callable[[], dict[str, Any]]] = {"usual": usual, "hostile": hostile, "bare": lambda: bare()[2]}
PLOTS = (
    "How often is the right client named?",
    "How much does looking add?",
    "Round by round",
    "What does the model lose?",
    "What does it cost to send?",
)
# Phones, the two sides of the place where the layout changes, a tablet, a laptop.
WIDTHS = (320, 360, 600, 736, 737, 820, 1280)
Scheme = Literal["light", "dark"]
Show = Callable[..., AbstractContextManager["Page"]]


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
    def opened(name: str = "usual", width: int = 1280, scheme: Scheme = "light") -> Iterator[Page]:
        file = tmp_path / "report.html"
        file.write_text(render(PAGES[name]()), "utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page = context.new_page()
        asked: list[str] = []
        said: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(file.as_uri())
        page.evaluate(CHECKS)
        yield page
        context.close()
        assert asked == [file.as_uri()]
        assert said == []

    return opened


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
        for width in (360, 1280):
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
def test_on_paper_nothing_is_cut(show: Show, name: str) -> None:
    # A4 without its margins of 15 mm, in CSS pixels.
    with show(name, 680, "dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("checks.wide()") == []
        assert page.evaluate("checks.pale(4.5)") == []
        assert page.evaluate("checks.overlaps()") == []
        heads = page.evaluate("[...document.querySelectorAll('thead')].map(e => getComputedStyle(e).display)")
        assert set(heads) <= {"table-header-group"}
        rows = page.evaluate("[...document.querySelectorAll('tr')].map(e => getComputedStyle(e).breakInside)")
        assert set(rows) <= {"avoid"}
        assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")


@pytest.mark.parametrize("width", [360, 1280])
def test_every_plot_says_what_it_shows(show: Show, width: int) -> None:
    with show(width=width) as page:
        assert page.get_by_role("img").count() == len(PLOTS)
        for title in PLOTS:
            # The browser's own reckoning of the name: the heading, then the gist in numbers.
            plot = page.get_by_role("img", name=title)
            assert plot.count() == 1
            gist = page.locator(f"[id='{(plot.get_attribute('aria-labelledby') or '').split()[1]}']")
            assert any(letter.isdigit() for letter in gist.inner_text())
            assert plot.locator(".label").first.is_visible()
        axes = ["Records whose client is named correctly (%)", "Success minus prior (percentage points)"]
        axes += ["Success (%)", "Accuracy (%)", "Round", "Sent by each client in a round (kB)"]
        for axis in axes:
            assert page.get_by_text(axis, exact=True).first.is_visible()


@pytest.mark.parametrize("name", PAGES)
def test_headings_and_landmarks(show: Show, name: str) -> None:
    with show(name) as page:
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(e => +e.tagName[1])")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        for place in ("body > header", "body > main", "body > footer"):
            assert page.locator(place).count() == 1
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.title()
        assert "width=device-width" in (page.locator("meta[name=viewport]").get_attribute("content") or "")
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        named = page.evaluate("[...document.querySelectorAll('[aria-labelledby]')].flatMap(e => "
                              "e.getAttribute('aria-labelledby').split(' '))")  # fmt: skip
        assert set(named) <= set(ids)


@pytest.mark.parametrize("width", [360, 1280])
def test_tables_stay_tables(show: Show, width: int) -> None:
    """Stacked on a phone, a table keeps its heads for those who listen, and shows them beside each value."""
    with show(width=width) as page:
        assert page.get_by_role("table").count() == 2
        assert page.get_by_role("columnheader").count() == 7 + 5
        assert page.locator("th:not([scope])").count() == 0
        shown = page.evaluate("getComputedStyle(document.querySelector('td'), '::before').content")
        assert shown == ('"Success"' if width == 360 else "none")


def test_a_verdict_is_a_word_and_a_shape(show: Show) -> None:
    with show() as page:
        words = page.locator(".verdict").all_inner_texts()
        assert [word.strip() for word in words] == ["Leaks: yes", "Leaks: yes", "Leaks: no", "Leaks: unclear"]
        shapes = {page.locator(".verdict svg").nth(place).inner_html() for place in (0, 2, 3)}
        assert len(shapes) == 3


def test_what_failed_its_control_is_seen_to_be_hollow(show: Show) -> None:
    with show() as page:
        assert page.get_by_text("failed its control, scores nothing").first.is_visible()
        fills = page.evaluate(
            "[...document.querySelectorAll('.line.hollow circle')].map(e => getComputedStyle(e).fill)"
        )
        assert set(fills) == {"rgb(255, 255, 255)"}


def test_nothing_wicked_runs(show: Show) -> None:
    with show("hostile") as page:
        page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
        assert page.evaluate("document.scripts.length + document.images.length") == 0
        assert page.get_by_role("heading", name="<script>alert(1)</script>").count() == 1


def test_the_checks_catch_what_they_look_for(show: Show) -> None:
    """Planted faults: pale, small, wide and overlapping text, a faint mark."""
    with show(width=360) as page:
        page.evaluate("""() => {
            const add = html => document.body.insertAdjacentHTML('beforeend', html);
            const style = (element, values) => Object.assign(element.style, values);
            add('<p class=p1>pale</p><p class=p2>small</p><p class=p3>wide</p>');
            add('<svg width=9 height=9><text y=20>one</text><text y=22>two</text><path class=mark d="M0 0h9"/></svg>');
            style(document.querySelector('.p1'), {color: '#999'});
            style(document.querySelector('.p2'), {fontSize: '9px'});
            style(document.querySelector('.p3'), {width: '500px', maxWidth: 'none', textAlign: 'right'});
            style(document.querySelector('body > svg .mark'), {stroke: '#eee', fill: 'none'});
        }""")
        assert [said.split(":")[0] for said in page.evaluate("checks.pale(4.5)")] == ["pale"]
        assert [said.split(":")[0] for said in page.evaluate("checks.small(11)")] == ["small"]
        assert "wide" in {said.split(":")[0] for said in page.evaluate("checks.wide()")}
        assert page.evaluate("checks.overlaps()") == ["one / two"]
        assert len(page.evaluate("checks.faint(3)")) == 1
