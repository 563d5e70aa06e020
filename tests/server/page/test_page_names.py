"""Labels by name: a person types names and a text, and sees the classes or the entities that the model finds."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

NAMES = ["refund, late", "other"]


def _answer(page: Page) -> Locator:
    return page.get_by_role("region", name="Answer")


def _predict(body: dict[str, Any]) -> dict[str, Any]:
    shares = {name: 1 / (2 + index) for index, name in enumerate(body["labels"])}
    return {"predictions": [{"label": body["labels"][0], "probabilities": shares}], "pieces": [[["[CLS]", "it"]]]}


def _tag(body: dict[str, Any]) -> dict[str, Any]:
    return {"entities": [[{"type": body["labels"][0], "start": 0, "end": 3, "text": "Ada", "probability": 0.9}]]}


@pytest.mark.parametrize("typed", ["\n".join(NAMES), " refund, late \n\nother\n"])
def test_a_text_is_asked_for_the_classes_that_are_typed(open_page: Any, pick: Any, typed: str) -> None:
    page, server = open_page("entailment", answers={"v1/predict": _predict})
    expect(page.get_by_label("Second text", exact=False)).to_have_count(0)  # it is a hypothesis, read with a premise
    expect(page.get_by_label("Hypothesis")).to_be_visible()
    pick(page, "my entailment – classes by name")
    page.get_by_label("Text", exact=True).fill("I want my money back.")
    page.get_by_label("Names").fill(typed)
    page.get_by_role("button", name="Classify").click()
    expect(_answer(page).get_by_role("status")).to_have_text("refund, late, 50.0%")
    body = {"texts": ["I want my money back."], "labels": NAMES, "model": "my entailment", "pieces": True}
    assert server.asked == [("v1/predict", body)]
    expect(_answer(page).get_by_role("button", name="Why?")).to_have_count(0)
    link = page.url.partition("#")[0] + str(_answer(page).get_by_role("link").get_attribute("href"))
    page.goto("about:blank")
    page.goto(link)
    expect(_answer(page).get_by_role("status")).to_have_text("refund, late, 50.0%")
    assert server.asked[1] == server.asked[0]


def test_names_on_one_line_have_commas_between_them(open_page: Any, pick: Any) -> None:
    page, server = open_page("entailment", answers={"v1/predict": _predict})
    pick(page, "my entailment – classes by name")
    page.get_by_label("Names").fill("billing, refund,other")
    page.get_by_label("Text", exact=True).fill("Late again")
    page.keyboard.press("Control+Enter")
    expect(_answer(page).get_by_role("status")).to_have_text("billing, 50.0%")
    assert server.asked[0][1]["labels"] == ["billing", "refund", "other"]


def test_an_encoder_opens_with_nearest_texts_and_its_classes_with_one_text(open_page: Any, pick: Any) -> None:
    page, _ = open_page("sentences")
    expect(page.get_by_role("heading", name="Nearest texts")).to_be_visible()
    pick(page, "my sentences – classes by name")
    expect(page.get_by_label("Names")).to_be_visible()


def test_entities_of_types_that_are_typed_are_marked(open_page: Any, pick: Any) -> None:
    page, server = open_page("types", answers={"v1/tag": _tag})
    pick(page, "my types – types by name")
    page.get_by_label("Names").fill("person")
    page.get_by_label("Text", exact=True).fill("Ada met Charles.")
    page.get_by_role("button", name="Find entities").click()
    expect(_answer(page).locator("mark")).to_contain_text("Ada")
    assert server.asked[0][1]["labels"] == ["person"]


def test_rows_of_a_file_bring_their_names(open_page: Any, pick: Any) -> None:
    page, server = open_page("entailment", at="#file", answers={"v1/predict": _predict})
    pick(page, "my entailment – classes by name")
    rows = b'labels,text\n"billing,other",Late again\n"a,b,c",Never\n'
    page.get_by_label("File", exact=True).set_input_files({"name": "rows.csv", "mimeType": "text/csv", "buffer": rows})
    page.get_by_role("button", name="Classify").click()
    expect(page.get_by_role("cell", name="billing, 50.0%")).to_be_visible()
    assert sorted(len(body["labels"]) for _, body in server.asked) == [2, 3]


@pytest.mark.parametrize("width", [400, 1200])
def test_it_fits(open_page: Any, pick: Any, width: int) -> None:
    page, _ = open_page("entailment", answers={"v1/predict": _predict})
    page.set_viewport_size({"width": width, "height": 900})
    pick(page, "my entailment – classes by name")
    page.get_by_label("Names").fill("x" * 90 + ", other")
    page.get_by_label("Text", exact=True).fill("Late " * 60)
    page.get_by_role("button", name="Classify").click()
    expect(_answer(page).get_by_role("status")).to_contain_text("50.0%")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
