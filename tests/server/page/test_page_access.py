"""The page for everybody: by keyboard alone, told to screen readers, readable in light and dark, narrow and wide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from osbert.server import page as package

FOLDER = Path(package.__file__).parent
FILES = [path for path in sorted(FOLDER.rglob("*")) if path.suffix in (".html", ".js", ".css", ".svg")]
TEXT = "Ana met Bo in Rome and Cy of Dent on Friday"
TYPES = {"Ana": "PER", "Bo": "PET", "Rome": "LOC", "Cy": "NAME", "Dent": "ORG", "Friday": "DAY"}
CONTRAST = """() => {
    const numbers = (color) => {
        const found = color.match(/[\\d.]+/g).map(Number);
        return color.startsWith("color(srgb") ? found.map((v, n) => (n < 3 ? v * 255 : v)) : found;
    };
    const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
        .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
    const back = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const found = numbers(getComputedStyle(at).backgroundColor);
            if (found.length === 3 || found[3] > 0) return found;
        }
        return [255, 255, 255];
    };
    const found = {};
    for (const node of document.querySelectorAll("body *")) {
        const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
        if (!(own || node.matches("input, select, textarea")) || !node.checkVisibility()) continue;
        const [one, other] = [light(numbers(getComputedStyle(node).color)), light(back(node))];
        const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (ratio < 4.5) found[`${node.tagName}.${node.className} ${node.textContent.slice(0, 20)}`] = ratio;
    }
    return found;
}"""


def tag(body: dict[str, Any]) -> dict[str, Any]:
    entities = [
        {"type": kind, "start": TEXT.index(name), "end": TEXT.index(name) + len(name), "text": name, "probability": 0.9}
        for name, kind in TYPES.items()
    ]
    return {"entities": [entities], "pieces": [[["[CLS]", "ana", "##s", "[SEP]"]]]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_enough(open_page: Any, refused: Any, scheme: str) -> None:
    page, server = open_page("tag", answers={"v1/tag": tag}, color_scheme=scheme)
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_role("button", name="Find entities").click()
    expect(page.locator("mark")).to_have_count(6)
    assert (
        page.locator("mark").evaluate_all("all => new Set(all.map(m => getComputedStyle(m).backgroundColor)).size") == 6
    )
    assert page.evaluate(CONTRAST) == {}

    def refuse(body: Any) -> None:
        raise refused(401, "wrong")

    expect(page.get_by_text("API key")).to_be_hidden()
    server.answers["v1/tag"] = refuse
    page.get_by_role("button", name="Find entities").click()
    expect(page.locator("#text").get_by_role("alert")).to_have_text("wrong")
    expect(page.get_by_label("Key for this server")).to_be_focused()
    page.mouse.move(0, 0)
    assert page.evaluate(CONTRAST) == {}
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 26)"
    assert dark == (scheme == "dark")


@pytest.mark.parametrize("width", [320, 360, 820, 1400])
def test_nothing_runs_over_the_edge(open_page: Any, width: int) -> None:
    page, _ = open_page("tag", answers={"v1/tag": tag}, viewport={"width": width, "height": 700})
    page.get_by_label("Text", exact=True).fill(TEXT + " " + "x" * 300)
    page.get_by_role("button", name="Find entities").click()
    expect(page.locator("mark")).to_have_count(6)
    for name in ("A file", "Nearest texts", "One text"):
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.get_by_role("heading", name=name)).to_be_focused()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    side_by_side = page.locator(".columns:visible").evaluate(
        "node => getComputedStyle(node).gridTemplateColumns.split(' ').length"
    )
    assert side_by_side == (2 if width > 820 else 1)


def test_the_page_is_told_as_one_heading_landmarks_and_named_controls(open_page: Any) -> None:
    page, _ = open_page("choose", "span", "tag")
    for name in ("A file", "Nearest texts", "One choice"):
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.get_by_role("heading", name=name)).to_be_focused()
        expect(page.get_by_role("link", name=name, exact=True)).to_have_attribute("aria-current", "page")
        tree = page.locator("body").aria_snapshot()
        for landmark in ("banner:", 'navigation "Ways to ask":', "main:", f'region "{name}":'):
            assert landmark in tree
        assert tree.count("[level=1]") == 1 and tree.count("[level=2]") == 1
        assert not re.search(
            r"- (textbox|button|combobox|link|checkbox|spinbutton|table|region|progressbar)( \[|:|$)", tree, re.M
        )
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.evaluate(
        "(all => new Set(all.map(node => node.id)).size === all.length)([...document.querySelectorAll('[id]')])"
    )


def test_everything_is_done_by_keyboard_and_focus_is_seen(open_page: Any) -> None:
    page, _ = open_page("tag", "encoder", answers={"v1/tag": tag})
    expect(page.get_by_role("button", name="Find entities")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the form")).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Text", exact=True)).to_be_focused()
    page.keyboard.type(TEXT)
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outline")
    assert "3px" in outline and "solid" in outline
    page.keyboard.press("Space")
    expect(page.locator("mark")).to_have_count(6)
    expect(page.get_by_role("button", name="Find entities")).to_be_focused()
    reached = []
    for _ in range(3):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent"))
    assert reached == ["Entities", "Why?", "The 4 pieces that were read"]
    for _ in range(9):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.id") == "model":
            break
    page.keyboard.press("ArrowDown")
    expect(page.get_by_text("nothing to say of a text")).to_be_visible()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_run_and_fetch_nothing_from_elsewhere(path: Path) -> None:
    content = path.read_text(encoding="utf-8")
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", content)
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", content)
    if path.suffix == ".html":
        assert not re.findall(r"<style|<script(?![^>]* src=)|\sstyle=|\son\w+=", content)
