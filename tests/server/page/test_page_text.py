"""One text: every kind of model gives its answer as bars, marks and pieces; what is refused is said; nothing is run."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from osbert.text.tokenizer import SPECIALS

Told = dict[str, Any]


def answer(page: Page) -> Locator:
    return page.get_by_role("region", name="Answer")


def shown_bars(page: Page) -> list[list[str | None]]:
    """Return the texts of the rows of bars, and the drawn widths as percentages."""
    found = []
    for row in answer(page).locator("table.bars tr").all():
        width = row.locator(".share").get_attribute("width")
        found.append([row.locator("th").inner_text(), row.locator("td.number").inner_text(), width])
    return found


def test_probabilities_are_bars_with_their_values_and_the_pieces_are_listed(open_page: Any, pick: Any) -> None:
    def predict(body: Told) -> Told:
        prediction = {"label": "positive", "probabilities": {"negative": 0.0268, "positive": 0.9732}}
        return {"predictions": [prediction], "pieces": [[["[CLS]", "charm", "##ing", "[SEP]"]]]}

    page, server = open_page("classify", "pairs", answers={"v1/predict": predict})
    page.get_by_label("Text", exact=True).fill("Charming")
    page.get_by_role("button", name="Classify").click()
    expect(answer(page).get_by_role("status")).to_have_text("positive, 97.3%")
    assert shown_bars(page) == [["positive", "97.3%", "97.32"], ["negative", "2.7%", "2.68"]]
    expect(answer(page).get_by_text("The 4 pieces that were read")).to_be_visible()
    assert answer(page).get_by_role("listitem").all_inner_texts() == ["[CLS]", "charm", "##ing", "[SEP]"]
    assert server.asked == [("v1/predict", {"texts": ["Charming"], "model": "my classify", "pieces": True})]

    pick(page, "my pairs")
    expect(answer(page).get_by_role("status")).to_be_empty()
    expect(page.get_by_label("First text")).to_have_value("Charming")
    page.get_by_label("Second text").fill("Nice")
    page.keyboard.press("Control+Enter")
    expect(answer(page).get_by_role("status")).to_have_text("positive, 97.3%")
    assert server.asked[1] == ("v1/predict", {"texts": [["Charming", "Nice"]], "model": "my pairs", "pieces": True})


def test_all_labels_that_are_given_stand_out(open_page: Any) -> None:
    def predict(body: Told) -> Told:
        shares = {"art": 0.25, "long": 0.0625, "war": 0.75}
        labels = [] if body["texts"] == ["plain"] else ["art", "war"]
        return {"predictions": [{"labels": labels, "probabilities": shares}], "pieces": [[["[CLS]", "[SEP]"]]]}

    page, _ = open_page("multilabel", answers={"v1/predict": predict})
    page.get_by_label("Text", exact=True).fill("a painting of a siege")
    page.get_by_role("button", name="Label").click()
    expect(answer(page).get_by_role("status")).to_have_text("war, 75.0%; art, 25.0%")
    assert [row[0] for row in shown_bars(page)] == ["war", "art", "long"]
    assert answer(page).locator("table.bars tr.chosen th").all_inner_texts() == ["war", "art"]
    page.get_by_label("Text", exact=True).fill("plain")
    page.get_by_role("button", name="Label").click()
    expect(answer(page).get_by_role("status")).to_have_text("No label")
    assert not answer(page).locator("table.bars tr.chosen").count()


def test_a_kind_with_a_call_of_its_own_is_shown_by_the_fields_that_it_declares(open_page: Any) -> None:
    said = {"longer": "first", "margin": 0.25, "chances": {"first": 0.75, "second": 0.25}}
    page, server = open_page("longer", answers={"v1/compare-lengths": lambda body: {**said, "pieces": [[["[CLS]"]]]}})
    page.get_by_label("First").fill("a good film")
    page.get_by_label("Second").fill("bad")
    page.get_by_role("button", name="Compare").click()
    expect(answer(page).get_by_role("status")).to_have_text("first")
    expect(answer(page)).to_contain_text("Margin: 0.25")
    assert shown_bars(page) == [["first", "75.0%", "75.00"], ["second", "25.0%", "25.00"]]
    body = {"first": "a good film", "second": "bad", "model": "my longer", "pieces": True}
    assert server.asked == [("v1/compare-lengths", body)]


def test_a_ranking_is_shown_with_the_texts_that_it_ranks(open_page: Any) -> None:
    ranking = [
        {"rank": 1, "index": 1, "score": 1.5, "probability": 0.8176},
        {"rank": 2, "index": 0, "score": -2.0, "probability": 0.1192},
    ]
    page, server = open_page("rerank", answers={"v1/rerank": lambda body: {"ranking": ranking, "truncated": 0}})
    page.get_by_label("Query", exact=True).fill("film")
    documents = page.get_by_role("textbox", name="Document")
    for place, text in enumerate(("bad", "good")):
        documents.nth(place).fill(text)
    page.get_by_role("button", name="Rank").click()
    expect(answer(page).get_by_role("status")).to_have_text("good")
    assert shown_bars(page) == [["good", "1.5", "81.76"], ["bad", "-2", "11.92"]]
    assert server.asked[0][1]["documents"] == ["bad", "good"]


def test_a_number_is_told(open_page: Any) -> None:
    page, _ = open_page(
        "regress",
        answers={
            "v1/predict": lambda body: {
                "predictions": [{"value": 3.81239, "windows": 3}],
                "pieces": [[["<s>", "a", "</s>"], ["<s>", "b", "</s>"], ["<s>", "[", "</s>"]]],
            }
        },
    )
    page.get_by_label("First text").fill("a")
    page.get_by_label("Second text").fill("b")
    page.get_by_role("button", name="Score").click()
    expect(answer(page).get_by_role("status")).to_have_text("3.8124")
    expect(answer(page).get_by_role("figure")).to_contain_text("The numbers of the training rows go from 1 to 5.")
    assert answer(page).locator(".scale .share").get_attribute("x") == "69.61"  # 100 (3.81239 - 1) / (5 - 1) - 0.7
    expect(answer(page)).to_contain_text("read in 3 overlapping windows")
    expect(answer(page).get_by_text("The 9 pieces that were read in 3 sequences")).to_be_visible()
    expect(answer(page).locator("ol.chips")).to_have_count(3)
    expect(answer(page).locator(".chips .special")).to_have_count(6)


def test_entities_are_marked_where_they_are_behind_emoji_too(open_page: Any) -> None:
    text = "😀 Ana\nmet 👩‍👩‍👧 in São Paulo"
    spans = [("PER", "Ana", 0.98), ("LOC", "São Paulo", 0.5)]
    entities = [
        {
            "type": type_,
            "start": text.index(name),
            "end": text.index(name) + len(name),
            "text": name,
            "probability": share,
        }
        for type_, name, share in spans
    ]
    page, server = open_page("tag", answers={"v1/tag": lambda body: {"entities": [entities]}})
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Find entities").click()
    expect(answer(page).get_by_role("status")).to_have_text("2 entities")
    assert answer(page).locator("mark").all_inner_texts() == ["Ana\u00a0PER", "São Paulo\u00a0LOC"]
    assert answer(page).locator(".text").evaluate("node => [...node.childNodes].map(n => n.textContent)") == [
        "😀 ", "Ana\u00a0PER", "\nmet 👩‍👩‍👧 in ", "São Paulo\u00a0LOC"
    ]  # fmt: skip
    rows = answer(page).locator("table.list tbody tr").all_inner_texts()
    assert [row.split("\t") for row in rows] == [["Ana", "PER", "2–5", "98.0%"], ["São Paulo", "LOC", "19–28", "50.0%"]]
    entities.clear()
    page.get_by_role("button", name="Find entities").click()
    expect(answer(page).get_by_role("status")).to_have_text("No entities found")
    assert server.asked[0][1]["texts"] == [text]


def test_a_type_stays_with_its_entity_and_a_mark_fades_with_its_probability(open_page: Any) -> None:
    text = "Ada Lovelace met Ada Lovelace and Ada Lovelace and then Ada Lovelace , Ada Lovelace"
    starts = [place for place in range(len(text)) if text.startswith("Ada", place)]
    entities = [
        {"type": "PER", "start": start, "end": start + 12, "text": "Ada Lovelace", "probability": 0.95 - 0.2 * number}
        for number, start in enumerate(starts)
    ]
    page, _ = open_page("tag", answers={"v1/tag": lambda body: {"entities": [entities]}})
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Find entities").click()
    expect(page.locator("mark")).to_have_count(5)
    for width in range(320, 420, 9):
        page.set_viewport_size({"width": width, "height": 700})
        apart = """all => all.filter(mark => {
            const word = document.createRange();
            word.setStart(mark.firstChild, 4), word.setEnd(mark.firstChild, 12);
            const [type] = mark.querySelector(".type").getClientRects();
            return type.left < word.getBoundingClientRect().right - 1;
        }).length"""
        assert page.locator("mark").evaluate_all(apart) == 0
    shown = page.locator("mark").evaluate_all(
        "all => all.map(m => Math.min(...getComputedStyle(m).backgroundColor.match(/[\\d.]+/g)))"
    )
    assert shown == sorted(shown) and len({*shown}) == 5  # the paler, the lighter


def test_pairs_questions_and_choices_have_headings_and_fields_of_their_own(open_page: Any, pick: Any) -> None:
    page, server = open_page("pairs", "span", "choose", "rerank", "classify")
    server.models += [
        {
            **server.models[0],
            "name": "entails",
            "labels": ["entailment", "neutral"],
            "columns": ["sentence1", "sentence2"],
        },
        {**server.models[0], "name": "own", "columns": ["claim", "source_text"]},
    ]
    page.reload()
    for model, heading, fields in (
        ("my pairs", "One pair of texts", ["First text", "Second text"]),
        ("entails", "One pair of texts", ["Premise", "Hypothesis"]),
        ("own", "One pair of texts", ["Claim", "Source text"]),
        ("my span", "One question", ["Question", "Paragraph"]),
        ("my choose", "One choice", ["Context", "Choice 1", "Choice 2"]),
        ("my rerank", "One query", ["Query", "Document 1", "Document 2"]),
        ("my classify", "One text", ["Text"]),
    ):
        pick(page, model)
        expect(page.get_by_role("heading", level=2)).to_have_text(heading)
        expect(page.get_by_role("link", name=heading)).to_be_visible()
        assert page.locator("#text label").all_inner_texts() == fields


def test_a_link_opens_the_model_with_its_text_which_no_server_sees(open_page: Any) -> None:
    def choose(body: Told) -> Told:
        return {"predictions": [{"choice": 1, "probabilities": [0.25, 0.75]}]}

    at = "#text?model=my+choose&context=It+rains+%26+snows&choices=hat&choices=umbrella"
    page, server = open_page("classify", "choose", at=at, answers={"v1/predict": choose})
    expect(answer(page).get_by_role("status")).to_have_text("umbrella, 75.0%")
    expect(page.get_by_label("Context", exact=True)).to_have_value("It rains & snows")
    page.get_by_label("Choice 2").fill("boots")
    page.get_by_role("button", name="Choose").click()
    expect(answer(page).get_by_role("status")).to_have_text("boots, 75.0%")
    asked = [body["records"][0]["choices"] for _, body in server.asked]
    assert asked == [["hat", "umbrella"], ["hat", "boots"]]
    page.get_by_role("link", name="Link to this").click()
    assert page.evaluate("location.hash") == at.replace("umbrella", "boots")
    page.evaluate("location.hash = '#text?model=my+gone&text=a'")
    expect(page.locator("#trouble")).to_contain_text("my gone")
    assert len(server.asked) == 2


def test_an_answer_is_marked_in_its_paragraph_or_there_is_none(open_page: Any) -> None:
    paragraph = "In 1066 🏰 William took England."
    found = {"text": "William", "start": 10, "end": 17, "probability": 0.8}
    nothing = {"text": "", "start": -1, "end": -1, "probability": 0.2}
    replies = iter([{"answer": found, "n_best": [found, nothing]}, {"answer": None, "n_best": [nothing, found]}])
    page, server = open_page("span", answers={"v1/answer": lambda body: next(replies)})
    page.get_by_label("Question", exact=True).fill("Who took England?")
    page.get_by_label("Paragraph").fill(paragraph)
    page.get_by_role("button", name="Answer").click()
    expect(answer(page).get_by_role("status")).to_have_text("William, 80.0%")
    assert answer(page).locator("mark").all_inner_texts() == ["William"]
    assert shown_bars(page) == [["William", "80.0%", "80.00"], ["(no answer)", "20.0%", "20.00"]]
    assert answer(page).locator("tr.chosen th").all_inner_texts() == ["William"]
    page.get_by_role("button", name="Answer").click()
    expect(answer(page).get_by_role("status")).to_have_text("The paragraph does not answer the question")
    expect(answer(page).locator("mark")).to_have_count(0)
    assert answer(page).locator("tr.chosen th").all_inner_texts() == ["(no answer)"]
    asked = {"question": "Who took England?", "paragraph": paragraph, "n_best": 5, "model": "my span", "pieces": True}
    assert server.asked == [("v1/answer", asked)] * 2


def test_choices_are_added_and_removed(open_page: Any) -> None:
    reply = {"predictions": [{"choice": 1, "probabilities": [0.1, 0.9]}], "pieces": [[["[CLS]", "rain", "[SEP]"]]]}
    page, server = open_page("choose", answers={"v1/predict": lambda body: reply})
    expect(page.get_by_role("button", name="Remove")).to_have_count(0)
    page.get_by_label("Context", exact=True).fill("It rains")
    page.get_by_label("Choice 1").fill("hat")
    page.get_by_label("Choice 2", exact=True).fill("dropped")
    page.get_by_role("button", name="Add a choice").click()
    expect(page.get_by_label("Choice 3", exact=True)).to_be_focused()
    page.keyboard.type("umbrella")
    page.get_by_role("button", name="Remove choice 2").click()
    expect(page.get_by_label("Choice 2", exact=True)).to_be_focused()
    page.get_by_role("button", name="Choose").click()
    expect(answer(page).get_by_role("status")).to_have_text("umbrella, 90.0%")
    assert shown_bars(page) == [["hat", "10.0%", "10.00"], ["umbrella", "90.0%", "90.00"]]
    assert server.asked[0][1]["records"] == [{"context": "It rains", "choices": ["hat", "umbrella"]}]


def test_masks_are_filled(open_page: Any) -> None:
    def fill(body: Told) -> Told:
        first = [{"piece": "sing", "probability": 0.6}, {"piece": "talk", "probability": 0.3}]
        return {"fills": [[first, [{"piece": "##s", "probability": 0.5}]]]}

    page, server = open_page("pretraining", answers={"v1/fill-mask": fill})
    page.get_by_label("Text", exact=True).fill("They ")
    insert = page.get_by_role("button", name="Insert [MASK]")
    insert.click()
    page.keyboard.type(" song ")
    insert.click()
    page.keyboard.type("!")
    page.get_by_role("button", name="Fill the masks").click()
    expect(answer(page).get_by_role("status")).to_have_text("sing, 60.0%; ##s, 50.0%")
    assert answer(page).locator(".text").inner_text() == "They sing songs!"
    assert shown_bars(page)[:2] == [["sing", "60.0%", "60.00"], ["talk", "30.0%", "30.00"]]
    mask = SPECIALS[-1]
    assert server.asked[0][1]["texts"] == [f"They {mask} song {mask}!"]


def test_what_users_and_models_say_is_text_and_never_run(open_page: Any) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(1)</script>"
    entity = {"type": evil, "start": 0, "end": len(evil), "text": evil, "probability": 1.0}
    page, server = open_page("tag", answers={"v1/tag": lambda body: {"entities": [[entity]], "pieces": [[[evil]]]}})
    page.on("dialog", lambda dialog: pytest.fail("a script from a text was run"))
    server.models[0] |= {"name": evil, "labels": [evil]}
    page.reload()
    page.get_by_label("Text", exact=True).fill(evil)
    page.get_by_role("button", name="Find entities").click()
    expect(answer(page).get_by_role("status")).to_have_text("1 entity")
    assert answer(page).locator("mark").inner_text() == f"{evil}\u00a0{evil}"
    assert page.locator("main img, main script").count() == 0
    assert server.asked[0][1]["model"] == evil


def test_what_is_refused_is_said_and_the_answer_before_goes(open_page: Any, refused: Any) -> None:
    reply = {"predictions": [{"label": "positive", "probabilities": {"positive": 1.0}}]}
    replies = iter([reply, refused(422, "300 pieces more than fit"), refused(503, "The server is about to stop")])

    def predict(body: Told) -> Told:
        if isinstance(told := next(replies), Exception):
            raise told
        return told

    page, server = open_page("classify", answers={"v1/predict": predict})
    alert = page.locator("#text").get_by_role("alert")
    button = page.get_by_role("button", name="Classify")
    button.click()
    expect(alert).to_have_text("Nothing can be said of an empty text: fill in every field.")
    expect(page.get_by_label("Text", exact=True)).to_be_focused()
    assert not server.asked
    page.get_by_label("Text", exact=True).fill("long")
    button.click()
    expect(answer(page).get_by_role("status")).to_have_text("positive, 100.0%")
    expect(alert).to_be_empty()
    for message in ("300 pieces more than fit", "The server is about to stop"):
        button.click()
        expect(alert).to_have_text(message)
        expect(answer(page).locator("table")).to_have_count(0)
    page.context.set_offline(True)
    page.context.unroute_all()
    button.click()
    expect(alert).to_contain_text("The server was not reached")


def test_a_key_is_asked_for_and_sent(open_page: Any, refused: Any) -> None:
    def models(body: Told) -> Told:
        if server.keys[-1] != "Bearer my secret":
            raise refused(401, "Give an API key.")
        return {"models": server.models}

    page, server = open_page("classify")
    server.answers["v1/models"] = models
    page.reload()
    expect(page.locator("#trouble")).to_have_text("Give an API key.")
    expect(page.get_by_label("Key for this server")).to_be_focused()
    page.keyboard.type("my secret")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Model")).to_have_value("my classify")
    expect(page.locator("#trouble")).to_be_empty()
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]


def test_an_encoder_leads_to_the_nearest_texts(open_page: Any) -> None:
    page, _ = open_page("encoder")
    expect(page.get_by_role("heading", name="Nearest texts")).to_be_visible()
    assert page.title() == "Nearest texts – osbert"
    page.get_by_role("link", name="One text").click()
    expect(page.get_by_text("nothing to say of a text")).to_be_visible()
    expect(page.get_by_role("heading", name="One text")).to_be_focused()
