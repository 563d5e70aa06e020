"""Text out: what a model writes grows on the page, and stands there whole at the end; it fits where it is narrow."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Locator, Page, expect

Told = dict[str, Any]
PARTS = [" lost its", " way — and", " found it."]


def _answer(page: Page) -> Locator:
    return page.get_by_role("region", name="Answer")


def _events(body: Told, *, whole: bool = True) -> str:
    events = [f"data: {json.dumps({'index': 0, 'text': part})}\n\n" for part in PARTS]
    generation = {"text": "".join(PARTS), "pieces": 7, "log_probability": -9.5, "ended": "most", "truncated": 0}
    done = {"model": body["model"], "generations": [generation], "pieces": [[["[CLS]", "it"]]]}
    error = {"error": {"message": "The time is over.", "field": "most"}}
    last = f"event: done\ndata: {json.dumps(done)}\n\n" if whole else f"event: error\ndata: {json.dumps(error)}\n\n"
    return "".join(events) + last


def test_a_text_is_gone_on_with_and_written_for(open_page: Any, pick: Any) -> None:
    page, server = open_page("writer", "generate", "source_writer", answers={"v1/generate": _events})
    page.get_by_label("Text", exact=True).fill("The film")
    page.get_by_role("button", name="Go on").click()
    expect(_answer(page).get_by_role("status")).to_have_text("7 pieces written")
    expect(_answer(page).get_by_text("may be unfinished")).to_be_visible()
    expect(_answer(page).locator(".written")).to_have_text("The film lost its way — and found it.")
    expect(_answer(page).locator("mark")).to_have_text("lost its way — and found it.")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    body = {"texts": ["The film"], "model": "my writer", "pieces": True, "stream": True}
    assert server.asked == [("v1/generate", body)]

    pick(page, "my generate")
    page.get_by_label("Answer", exact=True).and_(page.locator("textarea")).fill("Paris")
    page.get_by_label("Context").fill("Paris is in France.")
    page.get_by_role("button", name="Write").click()
    expect(_answer(page).locator(".written")).to_have_text("lost its way — and found it.")
    assert server.asked[1][1]["texts"] == [["Paris", "Paris is in France."]]

    pick(page, "my source_writer")
    page.get_by_label("Text", exact=True).fill("The film")
    page.get_by_role("button", name="Write").click()
    expect(_answer(page).locator(".written")).to_have_text("lost its way — and found it.")


def test_a_model_that_fills_masks_and_writes_is_listed_as_both(open_page: Any, pick: Any) -> None:
    page, server = open_page("unified", answers={"v1/generate": _events})
    expect(page.get_by_role("button", name="Fill the masks")).to_be_visible()
    pick(page, "my unified – writing")
    page.get_by_label("Text", exact=True).fill("The film")
    page.get_by_role("button", name="Write").click()
    expect(_answer(page).locator(".written")).to_have_text("lost its way — and found it.")
    assert server.asked[0][1]["model"] == "my unified"
    link = page.url.partition("#")[0] + str(_answer(page).get_by_role("link").get_attribute("href"))
    page.goto("about:blank")  # a link opened anew: within the page, the old answer stands until the new one comes
    page.goto(link)
    expect(_answer(page).locator(".written")).to_be_visible()
    assert len(server.asked) == 2


def test_what_ends_a_stream_is_said(open_page: Any) -> None:
    page, _ = open_page("writer", answers={"v1/generate": lambda body: _events(body, whole=False)})
    page.get_by_label("Text", exact=True).fill("The film")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert").filter(has_text="The time is over.")).to_be_visible()


def test_it_fits_where_it_is_narrow(open_page: Any) -> None:
    page, _ = open_page("writer", answers={"v1/generate": _events})
    page.set_viewport_size({"width": 400, "height": 800})
    page.get_by_label("Text", exact=True).fill("The film " * 30 + "x" * 90)
    page.get_by_role("button", name="Go on").click()
    expect(_answer(page).locator(".written")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_table_of_a_file_shows_what_was_written(open_page: Any) -> None:
    one = {"text": " lost its way", "pieces": 3, "log_probability": -2.5, "ended": "most", "truncated": 0}
    page, _ = open_page("writer", at="#file", answers={"v1/generate": lambda body: {"generations": [one]}})
    chooser = page.get_by_label("File", exact=True)
    expect(chooser).to_be_visible()
    chooser.set_input_files({"name": "rows.csv", "mimeType": "text/csv", "buffer": b"text\nThe film\n"})
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("table").locator("td").last).to_have_text("lost its way")
