"""Search on the page: hits in their order, matched words marked, and the rank of each ranking; not without a search."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

LONG = "The film is long. " * 40
HITS = [
    {
        "line": 3,
        "text": "The café's <b>Film</b> is good",
        "score": 0.0325,
        "systems": {
            "a.npy": {"rank": 2, "score": 0.71234},
            "bm25": {"rank": 1, "score": 2.5, "words": {"film": 0.55, "café": 0.42, "the": 0.03}},
        },
    },
    {"line": 1200, "text": LONG, "score": 0.016, "systems": {"a.npy": {"rank": 1, "score": 0.8}}},
]


def reply(body: dict[str, Any]) -> dict[str, Any]:
    return {"model": body["model"], "count": 1400, "results": [{"query": body["query"], "hits": HITS[: body["k"]]}]}


def hits(page: Page) -> Locator:
    return page.get_by_role("region", name="Hits")


def ask(page: Page, query: str) -> None:
    page.get_by_label("What are you looking for?").fill(query)
    page.get_by_role("button", name="Search").click()


def test_hits_are_shown_with_their_reasons(open_page: Any) -> None:
    page, server = open_page("classify", "searcher", answers={"v1/search": reply})
    expect(page.get_by_role("heading", name="Search")).to_be_visible()  # the first view, where there is a search
    ask(page, "the film in a café")
    expect(hits(page).get_by_role("status")).to_have_text("2 texts of 1,400")
    assert server.asked == [("v1/search", {"query": "the film in a café", "k": 10, "model": "my searcher"})]
    first, second = hits(page).locator("ol > li").all()
    assert first.locator("mark").all_inner_texts() == ["café", "Film"]  # what adds little is not marked
    assert "<b>Film</b> is good" in first.inner_text()
    reasons = first.get_by_role("list", name="Why").get_by_role("listitem").all_inner_texts()
    assert reasons == ["a.npy rank 2, 0.7123", "bm25 rank 1, 2.5 (film 55%, café 42%, the 3%)", "line 3"]
    assert not second.locator("mark").count()
    closed = second.bounding_box()
    second.get_by_role("button", name="Show all").click()
    opened = second.bounding_box()
    assert closed and opened and opened["height"] > closed["height"]
    page.get_by_label("Most hits").fill("1")
    ask(page, "film")
    expect(hits(page).get_by_role("status")).to_have_text("1 text of 1,400")
    assert not first.get_by_role("button", name="Show all").count()


def test_pairs_and_a_reranker(open_page: Any) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        systems = {"a.npy": {"rank": 7, "score": 0.5, "words": {"good > great": 0.5, "[MASK]": 0.1}}}
        hit = {"line": 1, "text": "great", "pair": "bad", "score": -3.25, "systems": systems, "rank_before": 7}
        return {"count": 1, "results": [{"query": body["query"], "hits": [hit], "truncated": 2}]}

    page, server = open_page("pair searcher", answers={"v1/search": answer})
    page.get_by_label("And with it").fill("bad")
    ask(page, "good")
    expect(hits(page).get_by_role("status")).to_contain_text("2 pieces of the query were not read")
    assert server.asked[0][1]["query"] == ["good", "bad"]
    assert hits(page).locator("mark").all_inner_texts() == ["great"]
    reasons = hits(page).get_by_role("list", name="Why").get_by_role("listitem").all_inner_texts()
    assert reasons[0] == "reranker -3.25, rank 7 before"


def test_what_is_empty_or_refused_is_said(open_page: Any, refused: Any) -> None:
    def refuse(body: dict[str, Any]) -> None:
        raise refused(413, "Queries times k is at most 10,000.", field="k")

    page, server = open_page("searcher", answers={"v1/search": refuse})
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert").filter(has_text="Type what")).to_be_visible()
    assert not server.asked
    ask(page, "film")
    expect(page.get_by_role("alert").filter(has_text="10,000")).to_be_visible()


def test_without_files_of_vectors_there_is_no_search(open_page: Any) -> None:
    page, _ = open_page("classify", at="#search")
    expect(page.get_by_role("button", name="Classify")).to_be_visible()
    expect(page.get_by_role("link", name="Search", exact=True)).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(open_page: Any, scheme: str) -> None:
    look = {"viewport": {"width": 390, "height": 800}, "color_scheme": scheme}
    page, _ = open_page("searcher", answers={"v1/search": reply}, **look)
    ask(page, "film")
    expect(hits(page).get_by_role("status")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_characters_without_spaces_are_marked_by_pairs(open_page: Any) -> None:
    page, _ = open_page("searcher")
    code = """async () => {
        const { parts } = await import("/search_view.js");
        return parts("他喜欢看电影。", new Set(["喜欢", "影"])).flat().map((part) => part.textContent ?? part);
    }"""
    assert "".join(page.evaluate(code)) == "他喜欢看电影。"
    marked = page.evaluate(code.replace("textContent ?? part", "textContent ?? ''"))
    assert [part for part in marked if part] == ["喜", "欢", "影"]
