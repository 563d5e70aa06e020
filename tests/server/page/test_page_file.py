"""A CSV file: every row keeps what it has and gets its prediction; what is wrong with one costs others nothing."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from osbert.reading.columns import PAIRS, ROLES

Told = dict[str, Any]
ODD = ['plain', 'with, comma', 'with "quotes"', "two\nlines", "grüße 😀", "<b>bold</b>"]  # fmt: skip


def predict(body: Told) -> Told:
    """Say of each text whether it has a space."""
    return {"predictions": [one(text) for text in body["texts"]]}


def one(text: str) -> Told:
    return {"label": "yes" if " " in text else "no", "probabilities": {"no": 0.25, "yes": 0.75}}


def give(page: Page, content: str | bytes, *, name: str = "rows.csv", label: str = "File") -> None:
    data = content.encode() if isinstance(content, str) else content
    chooser = page.get_by_label(label, exact=True)
    expect(chooser).to_be_visible()  # a file may be put into one that is hidden, before the page knows its models
    chooser.set_input_files({"name": name, "mimeType": "text/csv", "buffer": data})


def written(page: Page) -> tuple[str, bytes]:
    """Return the name and content of the CSV that the page gives back."""
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the CSV").click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def sheet(page: Page, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(written(page)[1].decode("utf-8-sig"), newline=""), delimiter=delimiter))


def said(page: Page) -> Any:
    return page.get_by_role("region", name="Predictions").get_by_role("status")


def as_csv(rows: list[list[str]], delimiter: str = ",") -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=delimiter).writerows(rows)
    return stream.getvalue()


def test_a_file_goes_in_and_comes_back_with_its_predictions(open_page: Any) -> None:
    page, server = open_page("classify", at="#file", answers={"v1/predict": predict})
    rows = [[str(number), text, "kept"] for number, text in enumerate(ODD)]
    give(page, b"\xef\xbb\xbf" + as_csv([["id", "Text", "prediction"], *rows]).encode(), name="my.rows.csv")
    expect(said(page)).to_have_text("my.rows.csv has 6 rows and 3 columns.")
    expect(page.get_by_label("Text", exact=True).locator("option:checked")).to_have_text("Text")
    page.get_by_role("button", name="Classify: 6 rows").click()
    expect(said(page)).to_have_text("6 rows done.")
    assert server.asked == [("v1/predict", {"texts": ODD, "model": "my classify"})]
    name, content = written(page)
    assert name == "my.rows.predicted.csv" and content.startswith(b"\xef\xbb\xbf")
    found = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    assert found[0] == ["id", "Text", "prediction", "prediction 2", "probability no", "probability yes"]
    assert found[1:] == [[*row, "yes" if " " in row[1] else "no", "0.25", "0.75"] for row in rows]
    lines = page.get_by_role("table").locator("tbody tr").all()
    assert [line.locator("th").inner_text() for line in lines] == ["2", "3", "4", "5", "7", "8"]
    assert [line.locator("td").first.inner_text() for line in lines] == ODD
    assert page.locator("main b").count() == 0


def test_pairs_choices_and_questions_take_their_columns(open_page: Any, pick: Any) -> None:
    def choose(row: Told) -> Told:
        return {"choice": len(row["choices"]) - 1, "probabilities": [0.2] * len(row["choices"])}

    def predict_all(body: Told) -> Told:
        if "records" in body:
            return {"predictions": [choose(row) for row in body["records"]]}
        return {"predictions": [one(" ".join(pair)) for pair in body["texts"]]}

    answers = {
        "v1/predict": predict_all,
        "v1/answer": lambda body: {"answer": {"text": "b", "start": 2, "end": 3, "probability": 0.5}, "n_best": []},
    }
    page, server = open_page("pairs", "choose", "span", at="#file", answers=answers)
    give(page, "sentence2,text\nright,left\n")
    page.get_by_role("button", name="Classify").click()
    expect(said(page)).to_have_text("1 row done.")
    assert server.asked.pop()[1]["texts"] == [["left", "right"]]

    pairs = {
        "title,body": ["title", "body"],
        "id,sentence1,sentence2,label": ["sentence1", "sentence2"],
        "sentence,question,label": ["question", "sentence"],
        "headline,content": ["headline", "content"],
        **{f"id,{second},{first}": [first, second] for first, second in PAIRS},
        "a,b,c": ["Choose a column", "Choose a column"],
    }
    selects = page.get_by_role("group", name="Columns of 1 row").locator("select")
    for header, columns in pairs.items():
        give(page, f"{header}\n{header}\n")
        expect(selects.nth(0).locator("option").last).to_have_text(header.split(",")[-1])  # the page has read this file
        for place, column in enumerate(columns):
            expect(selects.nth(place).locator("option:checked")).to_have_text(column)
    selects.nth(0).select_option("b")
    selects.nth(1).select_option("b")
    page.get_by_role("button", name="Classify").click()
    expect(page.locator("#file").get_by_role("alert")).to_contain_text("one column")
    assert not server.asked

    pick(page, "my choose")
    give(page, "ctx,ending0,ending1,ending2\nstart,a,b,c\nother,a,b,\nlone,a,,\n")
    expect(page.get_by_label("ending2")).to_be_checked()
    page.get_by_role("button", name="Choose").click()
    expect(said(page)).to_have_text("3 rows done, 1 of them without an answer.")
    assert [record["choices"] for record in server.asked.pop()[1]["records"]] == [["a", "b", "c"], ["a", "b"]]
    assert [(row["prediction"], row["choice"], row["error"]) for row in sheet(page)] == [
        ("2", "c", ""), ("1", "b", ""), ("", "", "It has fewer than two choices.")
    ]  # fmt: skip

    pick(page, "my span")
    give(page, "question;context\nwhat?;a b\n")
    page.get_by_role("button", name="Answer").click()
    expect(said(page)).to_have_text("1 row done.")
    assert sheet(page, ";") == [
        {"question": "what?", "context": "a b", "prediction": "b", "probability": "0.5", "start": "2", "end": "3"}
    ]


def test_the_columns_are_those_of_the_command_line_or_open(open_page: Any) -> None:
    page, server = open_page("classify", at="#file", answers={"v1/predict": predict})
    for column in ROLES["text"]:
        give(page, f"id,{column},foo\n1,hello,bar\n")
        expect(page.get_by_label("Text", exact=True).locator("option:checked")).to_have_text(column)
    give(page, "label,foo\nno,hello\n")
    expect(page.get_by_label("Text", exact=True).locator("option:checked")).to_have_text("foo")
    give(page, "id,foo\n1,hello there\n")
    expect(page.get_by_label("Text", exact=True).locator("option:checked")).to_have_text("Choose a column")
    page.get_by_role("button", name="Classify: 1 row").click()
    expect(page.locator("#file").get_by_role("alert")).to_contain_text("Text")
    assert not server.asked
    page.get_by_role("group", name="Columns of 1 row").get_by_label("Text").select_option("foo")
    page.get_by_role("button", name="Classify: 1 row").click()
    expect(said(page)).to_have_text("1 row done.")
    assert server.asked == [("v1/predict", {"texts": ["hello there"], "model": "my classify"})]


def test_rows_that_are_refused_cost_the_others_nothing(open_page: Any, refused: Any) -> None:
    def strict(body: Told) -> Told:
        if bad := [place for place, text in enumerate(body["texts"]) if "bad" in text]:
            raise refused(422, f"texts[{bad[0]}] is bad")
        return predict(body)

    page, _ = open_page("classify", at="#file", answers={"v1/predict": strict})
    texts = [f"text {number}" for number in range(70)]
    texts[3], texts[40], texts[50] = "bad", "worse, bad", " "
    give(
        page, as_csv([["n", "text"], *([str(number), text] for number, text in enumerate(texts))]) + "70,a,b\r\n71\r\n"
    )
    page.get_by_role("button", name="Classify: 72 rows").click()
    expect(said(page)).to_have_text("72 rows done, 5 of them without an answer.")
    found = sheet(page)
    assert {int(row["n"]): row["error"] for row in found if row["error"]} == {
        3: "texts[0] is bad",
        40: "texts[0] is bad",
        50: "There is no text in it.",
        70: "This row has 3 fields, the first line has 2.",
        71: "This row has 1 field, the first line has 2.",
    }
    assert [row["prediction"] for row in found if not row["error"]] == ["yes"] * 67
    assert found[70][None] == ["b"]  # type: ignore[index]  # what has no column is kept, behind all others
    expect(page.get_by_role("region", name="Without an answer").get_by_role("listitem")).to_have_count(5)


def test_a_busy_server_is_asked_again_after_its_time(open_page: Any, refused: Any) -> None:
    busy = [True]

    def predict_later(body: Told) -> Told:
        if busy:
            busy.pop()
            raise refused(429, "Too many requests", after="1")
        return predict(body)

    page, server = open_page("classify", at="#file", answers={"v1/predict": predict_later})
    give(page, "text\na b\nc d\n")
    page.get_by_role("button", name="Classify").click()
    expect(said(page)).to_have_text("The server is busy; 0 rows done, the next are sent in 1 s.")
    expect(said(page)).to_have_text("2 rows done.")
    assert [body["texts"] for _, body in server.asked] == [["a b", "c d"]] * 2


def test_a_run_that_is_stopped_goes_on_where_it_was(open_page: Any, refused: Any) -> None:
    ready = [64]

    def until(body: Told) -> Told:
        if ready[0] <= 0:
            raise refused(401, "The key has ended.")
        ready[0] -= len(body["texts"])
        return predict(body)

    page, server = open_page("classify", at="#file", answers={"v1/predict": until})
    give(page, "text\n" + "".join(f"text {number}\n" for number in range(100)))
    page.get_by_role("button", name="Classify").click()
    expect(page.locator("#file").get_by_role("alert")).to_have_text("The key has ended.")
    expect(said(page)).to_have_text("Stopped: 64 of 100 rows done.")
    assert [row["prediction"] for row in sheet(page)] == ["yes"] * 64 + [""] * 36
    ready[0] = 100
    page.get_by_role("button", name="Go on").click()
    expect(said(page)).to_have_text("100 rows done.")
    assert [len(body["texts"]) for _, body in server.asked] == [32, 32, 32, 32, 4]
    assert [row["text"] for row in sheet(page) if row["prediction"]] == [f"text {number}" for number in range(100)]


def test_the_stop_button_stops(open_page: Any, refused: Any) -> None:
    def never(body: Told) -> Told:
        raise refused(503, "The server is starting", after="600")

    page, _ = open_page("classify", at="#file", answers={"v1/predict": never})
    give(page, "text\na b\n")
    page.get_by_role("button", name="Classify").press("Enter")
    expect(said(page)).to_contain_text("The server is busy")
    expect(page.get_by_role("button", name="Stop")).to_be_focused()
    page.keyboard.press("Enter")
    expect(said(page)).to_have_text("Stopped: 0 of 1 row done.")
    expect(page.get_by_role("button", name="Go on")).to_be_focused()
    expect(page.get_by_role("link", name="Download the CSV")).to_be_hidden()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "The file is empty."),
        (b'text\n"a', 'Line 2: a quote is opened and never closed. "a'),
        ("text\ngrüße".encode("latin-1"), "The file is not UTF-8 text. Save it in UTF-8 and choose it again."),
    ],
)
def test_files_that_cannot_be_read_are_told(open_page: Any, content: bytes, message: str) -> None:
    page, _ = open_page("classify", at="#file")
    give(page, "text\na\n")
    expect(page.get_by_role("button", name=re.compile("Classify"))).to_be_visible()
    give(page, content)
    expect(page.locator("#file").get_by_role("alert")).to_have_text(message)
    expect(page.get_by_role("button", name=re.compile("Classify"))).to_be_hidden()


COUNTING = """() => {
    const make = URL.createObjectURL;
    window.made = 0;
    URL.createObjectURL = (blob) => {
        window.made += 1;
        return make.call(URL, blob);
    };
}"""


def test_answers_are_sifted_by_label_range_and_words(open_page: Any) -> None:
    def predict(body: Told) -> Told:
        shares = [int(text.split()[-1]) / 100 for text in body["texts"]]
        rows = [("yes", one) if one >= 0.5 else ("no", 1 - one) for one in shares]
        return {"predictions": [{"label": name, "probabilities": {name: one}} for name, one in rows]}

    page, _ = open_page("classify", at="#file", answers={"v1/predict": predict})
    page.evaluate(COUNTING)
    give(page, "text\n" + "".join(f"{'Film' if n % 2 else 'book'} {n}\n" for n in range(0, 100, 5)) + " \n")
    expect(page.get_by_role("region", name="Filters")).to_be_hidden()
    page.get_by_role("button", name="Classify").click()
    expect(said(page)).to_have_text("21 rows done, 1 of them without an answer.")
    filters = page.get_by_role("region", name="Filters")
    expect(filters.get_by_role("img")).to_have_accessible_name(re.compile(r"50% to 60%: 3 rows; .*90% to 100%: 5 rows"))
    answered = page.get_by_role("table").locator("tbody tr")
    expect(answered).to_have_count(20)
    page.get_by_label("Label", exact=True).select_option("no (10)")
    expect(answered).to_have_count(10)
    page.get_by_label("From (%)").fill("80")
    expect(answered).to_have_count(5)
    page.get_by_label("To (%)").fill("97")
    page.get_by_label("Text with").fill("film")
    expect(filters).to_contain_text("2 of 20 rows")
    assert answered.locator("td").first.all_inner_texts() == ["Film 5"]
    assert filters.locator(".inside").count() == 2
    assert not page.evaluate("window.made"), "the file is not written before somebody takes it"
    with page.expect_download() as download:
        page.get_by_role("link", name="Download 2 rows").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    assert [(row["text"], row["prediction"]) for row in rows] == [("Film 5", "no"), ("Film 15", "no")]
    assert page.evaluate("window.made") == 1
    page.get_by_role("button", name="Once more").click()
    expect(answered).to_have_count(20)


def test_rows_of_json_go_back_as_they_stood_with_their_predictions(open_page: Any, pick: Any) -> None:
    def choose(body: Told) -> Told:
        return {"predictions": [{"choice": 1, "probabilities": [0.25, 0.75]} for _ in body["records"]]}

    page, server = open_page("classify", at="#file", answers={"v1/predict": predict})
    lines = ['{"text": "a b", "id": 12345678901234567890, "x": 1.0}', '{"text":"c","prediction":null}', '{"id": 3}']
    give(page, "\n".join(lines) + "\n\n", name="my.jsonl")
    expect(said(page)).to_have_text("my.jsonl has 3 rows and 4 columns.")
    page.get_by_role("button", name="Classify").click()
    expect(said(page)).to_have_text("3 rows done, 1 of them without an answer.")
    expect(page.get_by_role("region", name="Without an answer").get_by_role("listitem")).to_contain_text(
        "Line 3: There is no"
    )
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the JSON lines").click()
    assert download.value.suggested_filename == "my.predicted.jsonl"
    said_of = '"prediction 2":"%s","probabilities":{"no":0.25,"yes":0.75}}'
    assert Path(download.value.path()).read_text(encoding="utf-8").splitlines() == [
        f"{lines[0][:-1]}, {said_of % 'yes'}", f"{lines[1][:-1]}, {said_of % 'no'}",
        '{"id": 3, "error":"There is no text in it."}',
    ]  # fmt: skip

    server.models[0] |= {"kind": "choose", "fields": ["context", "choices"]}
    server.answers["v1/predict"] = choose
    page.reload()
    give(
        page,
        '[{"context": "start", "choices": ["a", "]b"]},\n {"context": "end", "choices": ["c", "\\"d"], "n": []}]',
        name="rows.json",
    )
    expect(page.get_by_label("choices", exact=True)).to_be_checked()
    page.get_by_role("button", name="Choose").click()
    expect(said(page)).to_have_text("2 rows done.")
    assert [row["choices"] for row in server.asked.pop()[1]["records"]] == [["a", "]b"], ["c", '"d']]
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the JSON", exact=True).click()
    told = {"prediction": 1, "probabilities": [0.25, 0.75]}
    assert json.loads(Path(download.value.path()).read_text(encoding="utf-8")) == [
        {"context": "start", "choices": ["a", "]b"], **told, "choice": "]b"},
        {"context": "end", "choices": ["c", '"d'], "n": [], **told, "choice": '"d'},
    ]


def test_the_nearest_texts_come_first_and_are_read_once(open_page: Any, refused: Any) -> None:
    vectors = {"north": [0.0, 1.0], "east": [1.0, 0.0], "north east": [0.6, 0.8], "south": [0.0, -1.0]}

    def embed(body: Told) -> Told:
        assert body["normalise"] is True
        if "bad" in body["texts"]:
            raise refused(422, "That is bad")
        truncated = {"truncated": [3 if text == "south" else 0 for text in body["texts"]]}
        return {"vectors": [vectors[text] for text in body["texts"]], **(truncated if "south" in body["texts"] else {})}

    page, server = open_page("encoder", at="#nearest", answers={"v1/embed": embed})
    alert = page.locator("#nearest").get_by_role("alert")
    page.get_by_role("button", name="Find the nearest").click()
    expect(alert).to_have_text("Type the text whose nearest ones are wanted.")
    page.get_by_label("Your text").fill("north")
    page.keyboard.press("Control+Enter")
    expect(alert).to_have_text("Give the texts to look through: type them, or choose a file.")
    page.get_by_label("Texts to look through").fill("east\n\nbad\n south \neast")
    give(page, "n,text\n1,north east\n", label="CSV or JSON lines")
    page.get_by_role("button", name="Find the nearest").click()
    result = page.get_by_role("region", name="Nearest texts").locator("table")
    expect(result.locator("tr")).to_have_count(3)
    rows = [
        (row.locator("th").inner_text(), row.locator("td.number").inner_text()) for row in result.locator("tr").all()
    ]
    assert rows == [("north east", "0.800"), ("east", "0.000"), ("south", "-1.000")]
    expect(page.locator("#nearest").get_by_role("status")).to_have_text(
        "The nearest of 4 texts; 1 could not be read; of 1 text only the beginning was read"
    )
    read = len(server.asked)
    page.get_by_label("How many to show").fill("1")
    page.get_by_label("Your text").fill("east")
    page.keyboard.press("Control+Enter")
    expect(result.locator("tr")).to_have_count(1)
    assert result.locator("th").inner_text() == "east"
    assert [body["texts"] for _, body in server.asked[read:]] == [["bad"], ["east"]]


def test_what_is_refused_while_a_tool_is_looked_for_does_not_make_its_file_a_plain_one(
    open_page: Any, refused: Any
) -> None:
    def annotate(body: Told) -> Told:
        [record] = body["records"]
        if len(body["examples"]) == 1:
            raise refused(503, "The server is about to stop.")
        if record["id"] == 1:
            raise refused(422, "12 pieces more than fit.", field="records[0]")
        return {"form": "doccano", "texts": ["x"], "records": [record], "predictions": [one("x")]}

    page, _ = open_page("classify", at="#file", answers={"v1/annotate": annotate})
    lines = [f'{{"id": {number}, "text": "x", "label": []}}\n' for number in (1, 2)]
    give(page, lines[1], name="one.jsonl")
    expect(page.locator("#file .trouble")).to_have_text("The server is about to stop.")
    expect(page.get_by_role("button", name="Classify")).to_be_hidden()
    give(page, "".join(lines), name="both.jsonl")
    expect(said(page)).to_have_text("both.jsonl has 2 records of doccano.")
