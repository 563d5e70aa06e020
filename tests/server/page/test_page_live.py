"""The page on a real server: what it shows is what the server says, for every kind of model."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from osbert import components
from osbert.server.calls.models import kinds
from osbert.server.http import PAGE_POLICY
from osbert.tasks import Task

TEXT = "the 😀 good plays . a bad film"
CHARACTERS = "😀 good"


@pytest.fixture
def page(browser: Browser, server: Any) -> Iterator[Page]:
    """Give the page of a server that serves every kind of model; it must ask no other."""
    context = browser.new_context(accept_downloads=True)
    context.set_default_timeout(20_000)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto(server.url)
    yield page
    context.close()
    assert not [url for url in asked if not url.startswith((server.url, "blob:"))]


def said(page: Page) -> Any:
    return page.locator("main > section:visible").get_by_role("status")


@pytest.fixture
def choose(page: Page, pick: Any) -> Callable[..., None]:
    """Give what chooses a model and looks whether the page says what it does."""

    def chosen(model: str, does: str = "Chooses one label") -> None:
        pick(page, model)
        expect(page.locator("#model-facts")).to_contain_text(does)

    return chosen


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


@pytest.mark.lab
def test_every_kind_of_model_has_its_file_or_declares_its_fields() -> None:
    folder = Path(__file__).parents[3] / "src" / "osbert" / "server" / "page" / "kinds"
    tasks = [components.find("tasks", name, base=Task) for name in components.names("tasks")]
    declared = {task.edge.kind for task in tasks if task.edge and task.edge.request}
    by_name = {"classes_by_name", "types_by_name"}  # further entries of models of other kinds
    assert {path.stem for path in folder.iterdir()} == set(kinds()) - declared | by_name


def test_what_models_say_is_shown(page: Page, server: Any, choose: Any) -> None:
    choose("classifier")
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.keyboard.press("Control+Enter")
    (told,) = server.post("predict", texts=[TEXT], model="classifier").json()["predictions"]
    expect(said(page)).to_have_text(f"{told['label']}, {percent(told['probabilities'][told['label']])}")
    pieces = page.locator(".chips li").all_inner_texts()
    assert pieces[:5] == ["[CLS]", "the", "[UNK]", "good", "play"] and pieces[-1] == "[SEP]"

    choose("windows")
    page.get_by_label("Text", exact=True).fill("good film . " * 12)
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("region", name="Answer")).to_contain_text("It was read in 2 overlapping windows.")
    expect(page.locator("ol.chips")).to_have_count(2)

    choose("number", "Gives a number · 1 to 5 in training")
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.keyboard.press("Control+Enter")
    (told,) = server.post("predict", texts=[TEXT], model="number").json()["predictions"]
    expect(said(page)).to_have_text(f"{told['value']:.5g}")

    choose("tagger", "Finds entities · PER, WORK · reads up to 24 pieces")
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.keyboard.press("Control+Enter")
    (told,) = server.post("tag", texts=[TEXT], model="tagger").json()["entities"]
    expect(said(page)).to_contain_text("entit")
    assert told
    assert page.locator("mark").all_inner_texts() == [f"{one['text']}\u00a0{one['type']}" for one in told]

    choose("pretrained", "Fills in what is missing")
    page.get_by_label("Text", exact=True).fill("the [MASK] film")
    page.keyboard.press("Control+Enter")
    (((best, *_),),) = server.post("fill-mask", texts=["the [MASK] film"], model="pretrained").json()["fills"]
    expect(said(page)).to_have_text(f"{best['piece']}, {percent(best['probability'])}")


def test_answers_are_shown(page: Page, server: Any, choose: Any) -> None:
    choose("reader-of-all", "Finds the answer")
    page.get_by_label("Question", exact=True).fill("the film")
    page.get_by_label("Paragraph").fill(f"{CHARACTERS} {TEXT}")
    page.keyboard.press("Control+Enter")
    asked = {"question": "the film", "paragraph": f"{CHARACTERS} {TEXT}", "model": "reader-of-all"}
    told = server.post("answer", **asked).json()["answer"]
    expect(said(page)).to_have_text(f"{told['text']}, {percent(told['probability'])}")
    assert page.locator("mark").all_inner_texts() == [told["text"]]


@pytest.mark.lab
def test_choices_are_shown(page: Page, server: Any, choose: Any) -> None:
    choose("chooser", "Picks the choice")
    page.get_by_label("Context", exact=True).fill("the actor")
    page.get_by_label("Choice 1").fill("plays")
    page.get_by_label("Choice 2").fill("a bad film")
    page.keyboard.press("Control+Enter")
    record = {"context": "the actor", "choices": ["plays", "a bad film"]}
    (told,) = server.post("predict", records=[record], model="chooser").json()["predictions"]
    shares = told["probabilities"]
    expect(said(page)).to_have_text(f"{record['choices'][told['choice']]}, {percent(max(shares))}")
    expect(page.locator("ol.chips")).to_have_count(2)


def test_a_file_is_predicted_whatever_is_wrong_with_some_rows(page: Page, server: Any) -> None:
    texts = [f"{'good' if number % 3 else 'bad'} film {'a ' * (number % 7)}." for number in range(80)]
    texts[10], texts[50] = "a " * 60, ""
    stream = io.StringIO()
    csv.writer(stream).writerows([["id", "text"], *([number, text] for number, text in enumerate(texts))])
    page.get_by_role("link", name="A file").click()
    file = {"name": "films.csv", "mimeType": "text/csv", "buffer": stream.getvalue().encode()}
    page.get_by_label("File", exact=True).set_input_files(file)  # type: ignore[arg-type]
    page.get_by_role("button", name="Classify: 80 rows").click()
    expect(said(page)).to_have_text("80 rows done, 2 of them without an answer.")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    assert [row["text"] for row in rows] == texts
    assert "pieces too long" in rows[10]["error"] and rows[50]["error"] == "There is no text in it."
    whole = [place for place in range(80) if place not in (10, 50)]
    told = server.post("predict", texts=[texts[place] for place in whole], model="classifier").json()["predictions"]
    for place, one in zip(whole, told):
        assert rows[place]["prediction"] == one["label"]
        assert float(rows[place]["probability neg"]) == pytest.approx(one["probabilities"]["neg"], abs=1e-5)


@pytest.mark.lab
def test_records_of_an_annotation_tool_go_back_with_suggestions(page: Page, server: Any, choose: Any) -> None:
    records = [
        {"id": 1, "text": f"{CHARACTERS} {TEXT}", "label": []},
        {"id": 2, "text": "the actor", "label": [[4, 9, "PER"]]},
        {"id": 3, "text": "a poor film", "label": []},
    ]
    choose("tagger", "Finds entities")
    page.get_by_role("link", name="A file").click()
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    file = {"name": "films.jsonl", "mimeType": "application/json", "buffer": lines.encode()}
    page.get_by_label("File", exact=True).set_input_files(file)  # type: ignore[arg-type]
    expect(said(page)).to_have_text("films.jsonl has 3 records of doccano.")
    page.get_by_role("button", name="Find entities: 3 rows").click()
    expect(said(page)).to_have_text("3 rows done.")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the JSON lines").click()
    found = [json.loads(line) for line in Path(download.value.path()).read_text(encoding="utf-8").splitlines()]
    asked = server.post("annotate", records=records, model="tagger").json()
    assert asked["form"] == "doccano" and asked["texts"] == [record["text"] for record in records]
    assert found == asked["records"]
    told = server.post("tag", texts=asked["texts"], model="tagger").json()["entities"]
    assert [one["entities"] for one in asked["predictions"]] == told
    assert found[1]["label"] == records[1]["label"]  # what people have marked stays
    assert [span[2] for span in found[0]["label"]] == [one["type"] for one in told[0]]
    long = {"id": 4, "text": "a film " * 30, "label": []}
    refused = server.post("annotate", records=[records[1], long], model="classifier").json()["error"]
    as_text = server.post("predict", texts=["a", long["text"]], model="classifier").json()["error"]
    assert refused == {**as_text, "field": "records[1]"} and as_text["field"] == "texts[1]"
    for name, row in (("records", {"text": "a"}), ("records[1]", {"id": 4, "label": [[0, 1, "PER"]]})):
        refused = server.post("annotate", records=[records[1], row][name == "records" :], model="tagger")
        assert refused.status_code == 422 and refused.json()["error"]["field"] == name


def test_the_nearest_texts_are_those_of_the_vectors(page: Page, server: Any, choose: Any) -> None:
    choose("encoder", "Finds texts that are alike")
    page.get_by_role("link", name="Nearest texts", exact=True).click()
    lines = ["the actor plays", "a bad film", "good", "a film . the film"]
    page.get_by_label("Texts to look through").fill("\n".join(lines))
    page.get_by_label("Your text").fill("a poor film")
    page.keyboard.press("Control+Enter")
    expect(said(page)).to_have_text("The nearest of 4 texts")
    one, *others = server.post("embed", texts=["a poor film", *lines], normalise=True, model="encoder").json()[
        "vectors"
    ]
    cosines = {line: sum(a * b for a, b in zip(one, other)) for line, other in zip(lines, others)}
    shown = page.locator("#nearest table tr").all()
    assert [row.locator("th").inner_text() for row in shown] == sorted(lines, key=cosines.__getitem__, reverse=True)
    expect(page.locator("#nearest ol.chips li").first).to_have_text("[CLS]")


def test_the_files_come_with_their_types_and_a_policy(server: Any) -> None:
    types = {
        "": "text/html",
        "page.js": "text/javascript",
        "kinds/tag.js": "text/javascript",
        "look.css": "text/css",
        "icon.svg": "image/svg+xml",
    }
    for path, kind in types.items():
        response = server.client.get(f"/{path}")
        assert response.status_code == 200
        assert response.headers["content-type"] == f"{kind}; charset=utf-8"
        assert response.headers["content-security-policy"] == PAGE_POLICY
        assert response.headers["x-content-type-options"] == "nosniff"
    for path in ("__init__.py", "kinds", "kinds/", "../server.py", "%2e%2e/server.py", "none.js", "page.js/x"):
        response = server.client.get(f"/{path}")
        assert response.status_code == 404 and "error" in response.json()
    unchanged = server.client.get("/page.js", headers={"if-none-match": server.client.get("/page.js").headers["etag"]})
    assert unchanged.status_code == 304
