"""The pictures of attention, on the page and in a file: what they say is what was computed, and they need nobody."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from osbert.analysis.attention import TextAttention
from osbert.inference.engine import load
from tiny_runs import write_run

TEXTS = ("the </script><b>good</b> films", "a bad play")


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> TextAttention:
    """Give what two layers attend to in a pair, one text of which would like to be code."""
    folder = write_run(tmp_path_factory.mktemp("page") / "encoder", None, layers=2, deviation=0.5)
    return load(folder, device="cpu").attention(*TEXTS)


@pytest.fixture
def opened(attention: TextAttention, browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """Give the file in a browser without a network; in the end it has asked for nothing, and nothing was wrong."""
    path = attention.save(tmp_path / "attention.html")
    context = browser.new_context(offline=True, accept_downloads=True, viewport={"width": 375, "height": 800})
    page, asked, wrong = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda told: wrong.append(told.text) if told.type in ("error", "warning") else None)
    page.goto(path.as_uri())
    expect(page.locator(".attention tbody tr")).to_have_count(10)
    yield page
    assert asked == [path.as_uri()] and not wrong
    context.close()


def show(page: Page, view: str) -> None:
    page.locator(f"input[value={view}]").check(force=True)


def drawn(page: Page) -> Page:
    """Wait until the picture of the last choice stands: its numbers are computed beside the page."""
    expect(page.locator(".attention")).to_have_attribute("aria-busy", "false")
    return page


def says(page: Page) -> str:
    return drawn(page).locator(".at-readout").inner_text()


def strongest(page: Page) -> list[str]:
    return drawn(page).locator(".attention tbody tr").all_inner_texts()


def figure(text: str) -> tuple[float, float]:
    """Return a share and its error as they are stated: "12.3% ± 0.2", or "under 0.3%"."""
    if under := re.search(r"under ([\d.]+)%", text):
        return 0.0, float(under[1]) / 100
    found = re.search(r"([\d.]+)% ± ([\d.]+)", text)
    assert found, text
    return float(found[1]) / 100, float(found[2]) / 100


def test_the_file_says_what_was_computed(opened: Page, attention: TextAttention) -> None:
    words = attention.by_word(attention.weights)
    show(opened, "map")
    drawn(opened).locator("canvas").press("ArrowDown")
    for row, key in ((0, 0), (0, 1), (0, 2)):
        assert says(opened).startswith(f"From “{attention.words[row]}” to “{attention.words[key]}”")
        value, error = figure(says(opened))
        assert abs(value - words[0, 0, row, key]) <= error + 1e-6
        opened.locator("canvas").press("ArrowRight")
    opened.get_by_label("Head 2").click()
    mean = words[0].mean(axis=0)
    drawn(opened).locator("canvas").press("ArrowDown")
    value, error = figure(says(opened))
    assert abs(value - mean[1, 3]) <= error + 1e-6
    opened.get_by_label("Between").select_option("From A to B")
    rows = strongest(opened)
    text_of = attention.placed.text_of[np.unique(attention.placed.word_of, return_index=True)[1]]
    value, error = figure(rows[0])
    assert abs(value - mean[text_of == 0][:, text_of == 1].max()) <= error + 1e-6


@pytest.mark.parametrize("view", ["lines", "map", "grid", "neurons"])
def test_every_picture_fits_a_phone_and_is_saved(opened: Page, view: str) -> None:
    show(opened, view)
    drawn(opened).locator("canvas").press("ArrowDown")
    expect(opened.locator(".at-readout")).to_have_text(re.compile(r"%"))
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for ending, begins in (("SVG", b"<svg xmlns"), ("PNG", b"\x89PNG")):
        with opened.expect_download() as saved:
            opened.get_by_role("button", name=f"Save as {ending}").click()
        assert Path(saved.value.path()).read_bytes().startswith(begins)
        assert saved.value.suggested_filename == f"attention-{view}.{ending.lower()}"


def test_any_number_of_words_is_chosen_by_keyboard(opened: Page, attention: TextAttention) -> None:
    options = opened.locator(".at-words [role=option]")
    first = options.first
    first.press("Space")
    first.press("ArrowRight")
    opened.locator("[role=option]:focus").press("Space")
    expect(opened.locator(".at-words [aria-selected=true]")).to_have_count(2)
    expect(opened.locator(".attention tbody tr")).to_have_count(10)
    names = {row.split()[0] for row in strongest(opened)}
    assert names == {*attention.words[:2]}
    opened.get_by_label("Show", exact=True).select_option("Weight × value norm")
    opened.get_by_label("By", exact=True).select_option("Pieces")
    expect(options).to_have_count(len(attention.pieces))
    opened.get_by_label("Show", exact=True).select_option("Rolled out over the layers")
    opened.get_by_label("Layer", exact=True).select_option("Layer 2")
    value, error = figure(strongest(opened)[0])
    assert abs(value - attention.rollout()[1].max()) <= error + 1e-6


def test_the_page_asks_and_draws(open_page: Callable[..., Any], attention: TextAttention) -> None:
    page, server = open_page(
        "pairs", at="#attention", answers={"v1/attention": lambda body: {"attention": attention.record()}}
    )
    page.get_by_label("What the heads read").fill(TEXTS[0])
    page.get_by_label("What they read with it").fill(TEXTS[1])
    page.get_by_role("button", name="Show the attention").click()
    expect(page.locator(".attention tbody tr")).to_have_count(10)
    assert server.asked == [("v1/attention", {"text": TEXTS[0], "pair": TEXTS[1], "model": "my pairs"})]
