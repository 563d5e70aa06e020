"""Why? under an answer: the words shaded by their weight, with the figures in plain words, by mouse and by keyboard."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

Told = dict[str, Any]


def weighed(text: str, weights: dict[str, float], *, place: int = 0, check: bool = True) -> list[Told]:
    """Return the words of a text with their weights, as the server gives them."""
    found = []
    for word, weight in weights.items():
        start = text.index(word)
        own = {"word": word, "start": start, "end": start + len(word), "weight": weight, "text": place}
        found.append({**own, "occlusion": weight / 2 if check else None})
    return found


def explanation(words: list[Told], **others: Any) -> Told:
    figures = {"score": 2.5, "baseline_score": -0.5, "error": 0.0012, "agreement": 0.83, "points": 32}
    return {"label": "positive", "text": "", "words": words, "baseline": "mask", **figures, **others}


def predict(body: Told) -> Told:
    return {"predictions": [{"label": "positive", "probabilities": {"negative": 0.1, "positive": 0.9}}]}


def why(page: Page) -> Locator:
    return page.get_by_role("region", name="Why")


def ask(page: Page, text: str) -> None:
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Classify").click()
    expect(why(page).get_by_role("button", name="Why?")).to_be_visible()


def test_words_are_shaded_by_weight_and_the_figures_told_in_words(open_page: Any) -> None:
    text = "😀 a charming film, if slow <b>"
    words = weighed(text, {"charming": 2.0, "film": 0.01, "slow": -1.0})
    answers = {"v1/predict": predict, "v1/explain": lambda body: {"explanations": [[explanation(words)]]}}
    for word in words:  # the emoji is one character for the server
        assert text[word["start"] : word["end"]] == word["word"]
    page, server = open_page("classify", answers=answers)
    ask(page, text)
    button = why(page).get_by_role("button")
    expect(button).to_have_attribute("aria-expanded", "false")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_text("Hide why")
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(why(page).locator("[aria-live=polite]")).to_have_text("Most for positive: charming")
    assert server.asked[-1] == ("v1/explain", {"texts": [text], "check": True, "model": "my classify"})
    shaded = why(page).locator(".text mark")
    assert shaded.all_inner_texts() == ["charming", "slow"]
    assert [one.get_attribute("class") for one in shaded.all()] == ["weight for", "weight against"]
    assert why(page).locator(".text").inner_text() == text
    rows = [row.inner_text().split("\t") for row in why(page).locator("table tr").all()]
    assert [(row[0], row[-1]) for row in rows] == [("charming", "+2.00"), ("slow", "−1.00"), ("film", "+0.01")]
    expect(why(page)).to_contain_text("[MASK] in place of every word the score is −0.50, with the words +2.50")
    expect(why(page)).to_contain_text("0.12% (completeness error): they can be read as amounts")
    expect(why(page)).to_contain_text("much the same (rank correlation 0.83)")
    page.keyboard.press("Enter")
    expect(why(page).locator(".text")).to_be_hidden()
    assert len(server.asked) == 2, "a second look asks nobody"
    page.keyboard.press("Enter")
    expect(why(page).locator(".text")).to_be_visible()
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("weights", "verdict"),
    [
        ({"Montag": -1.5, "komme": 0.4}, "Most for positive: komme; most against it: Montag"),
        ({"Montag": -1.5, "komme": -0.4}, "No word speaks for positive; most against it: Montag"),
        ({"Montag": 0.0}, "No word speaks for positive"),
    ],
)
def test_a_word_against_the_answer_is_called_so(open_page: Any, weights: dict[str, float], verdict: str) -> None:
    text = "Am Montag komme ich"
    found = explanation(weighed(text, weights))
    answers = {"v1/predict": predict, "v1/explain": lambda body: {"explanations": [[found]]}}
    page, _ = open_page("classify", answers=answers)
    ask(page, text)
    why(page).get_by_role("button").click()
    expect(why(page).locator("[aria-live=polite]")).to_have_text(verdict)


def test_each_answer_and_each_text_is_explained(open_page: Any) -> None:
    texts = ["Which one?", "a cat", "a dog"]
    words = [*weighed(texts[0], {"one": 0.5}), *weighed(texts[2], {"dog": 1.0}, place=2)]
    found = [explanation(words, label="choice 2", text="a dog"), explanation(words, label="choice 1", agreement=0.1)]
    chosen = {"predictions": [{"choice": 1, "probabilities": [0.25, 0.75]}]}
    answers = {"v1/predict": lambda body: chosen, "v1/explain": lambda body: {"explanations": [found]}}
    page, server = open_page("choose", answers=answers)
    page.get_by_label("Context").fill(texts[0])
    for place in (1, 2):
        page.get_by_label(f"Choice {place}").fill(texts[place])
    page.get_by_role("button", name="Choose").click()
    why(page).get_by_role("button").click()
    expect(why(page).locator("[aria-live=polite]")).to_have_text("2 answers. Most for choice 2: dog")
    assert server.asked[-1][1]["texts"] == [texts]
    parts = why(page).locator("details:has(.trust)")
    assert parts.locator("> summary").all_inner_texts() == ["choice 2: a dog", "choice 1"]
    assert [part.get_attribute("open") for part in parts.all()] == ["", None]
    assert parts.first.locator("p.caption").all_inner_texts() == ["Context", "Choice 1", "Choice 2"]
    assert parts.first.locator(".text mark").all_inner_texts() == ["one", "dog"]
    parts.nth(1).locator("> summary").click()
    expect(parts.nth(1)).to_contain_text("trust that one more")


def test_some_words_of_a_long_text_are_checked_and_a_poor_sum_is_said(open_page: Any) -> None:
    text = "one two three " + "word " * 300
    words = [*weighed(text, {"one": 1.0, "two": -0.5}), *weighed(text, {"three": 0.2}, check=False)]
    found = explanation(words, error=0.256)
    answers = {"v1/predict": predict, "v1/explain": lambda body: {"explanations": [[found]]}}
    page, server = open_page("classify", answers=answers)
    ask(page, text)
    why(page).get_by_role("button").click()
    expect(why(page)).to_contain_text("25.6% (completeness error): they rank the words, and are no amounts")
    expect(why(page)).to_contain_text("(rank correlation 0.83, over 2 of 3 words)")
    assert server.asked[-1][1]["check"] is True


def test_what_is_refused_is_said_and_can_be_asked_again(open_page: Any, refused: Any) -> None:
    replies = iter([refused(504, "It took too long."), {"explanations": [[]]}])

    def explain(body: Told) -> Told:
        reply = next(replies)
        if isinstance(reply, Exception):
            raise reply
        return reply

    page, _ = open_page("classify", answers={"v1/predict": predict, "v1/explain": explain})
    ask(page, "a film")
    for message in ("It took too long.", "There is no answer here"):
        why(page).get_by_role("button", name="Why?").click()
        expect(why(page).locator("[aria-live=assertive]")).to_contain_text(message)


def test_a_model_that_gives_no_reasons_has_no_button(open_page: Any) -> None:
    page, server = open_page("classify", answers={"v1/predict": predict})
    server.models[0]["explains"] = False
    page.reload()
    page.get_by_label("Text", exact=True).fill("a film")
    page.get_by_role("button", name="Classify").click()
    expect(page.get_by_role("table")).to_be_visible()
    expect(why(page)).to_have_count(0)


@pytest.mark.parametrize("width", [375, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_can_be_read(open_page: Any, width: int, scheme: str) -> None:
    text = "An unhurried, charming and at times wonderfully silly film, if slow in the middle. " + "x" * 60
    weights = {"charming": 2.0, "slow": -1.4, "silly": 0.7, "unhurried": -0.3, "x" * 60: 0.2}
    answers = {
        "v1/predict": predict,
        "v1/explain": lambda body: {"explanations": [[explanation(weighed(text, weights))]]},
    }
    look = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    page, _ = open_page("classify", answers=answers, **look)
    ask(page, text)
    why(page).get_by_role("button").click()
    expect(why(page).locator("table")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the screen"
    assert page.evaluate(CONTRASTS) == []


CONTRASTS = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const bright = (colour) => {
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255);
        const [r, g, b] = parts.map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    return [...document.querySelectorAll(".why mark")].map((mark) => {
        const { color, backgroundColor } = getComputedStyle(mark);
        const [low, high] = [bright(color), bright(backgroundColor)].sort((one, other) => one - other);
        return [mark.textContent, (high + 0.05) / (low + 0.05)];
    }).filter(([, ratio]) => ratio < 4.5);
}"""
