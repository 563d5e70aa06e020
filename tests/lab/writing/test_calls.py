"""What a left-to-right model writes: from Python, and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import osbert
from osbert.errors import UserError
from osbert.inference.engine import Engine
from osbert.runs.contract import WorkProgress
from osbert.runs.file_options import EmbeddedOptions
from osbert.runs.rows import texts as row_texts
from osbert.text.tokenizer import Tokenizer
from osbert_lab.commands.generate import generate
from osbert_lab.writing import prompt_writer
from osbert_lab.writing.settings import GenerationOptions, GivenOptions
from refusals import refusal
from terminal import told
from tiny_runs import write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("made") / "writer", None, masks=True, direction="left_to_right")


@pytest.fixture(scope="module")
def model(folder: Path) -> Engine:
    return osbert.load(folder)


def test_a_text_goes_on_as_it_reads(model: Engine) -> None:
    [found] = model.generate(["the good"], most=9)
    joined = model.tokenizer.decode(
        [*model.tokenizer.encode("the good"), *model.tokenizer.encode("the good" + found.text)[2:]]
    )
    assert joined == "the good" + found.text
    assert (found.pieces, found.ended, found.truncated) == (9, "most", 0)
    assert not any(special in found.text for special in ("[", "]"))  # none of the pieces that no text has


@pytest.mark.parametrize("options", [{}, {"beams": 3}, {"sample": True, "seed": 7, "temperature": 2.0}])
def test_many_texts_in_parts_and_alone_are_the_same(
    model: Engine, options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["the good", "", "a fine film . the play", "bad"]
    together = model.generate(given, most=5, **options)
    for most in (1, 2):
        monkeypatch.setattr("osbert_lab.writing.prompt_writer.ROWS", most)
        assert [one.text for one in model.generate(given, most=5, **options)] == [one.text for one in together]
    assert "".join(model.stream("the good", most=5, **options)) == together[0].text


def test_the_parts_of_a_stream_come_while_it_is_written(model: Engine) -> None:
    assert len(list(model.stream("a", most=6))) == 6
    assert len(list(model.stream("a", most=6, beams=2))) == 1


def test_of_a_long_text_the_end_is_read(model: Engine) -> None:
    long = "the film " * 20
    [found] = model.generate([long], most=8)
    assert found.truncated == 40 - (24 - 1 - 8)
    assert found.text == model.generate([long[-len("the film ") * 7 - len("film ") :]], most=8)[0].text


def test_the_default_fits_the_model(model: Engine) -> None:
    assert model.generate(["a"])[0].pieces == 12
    assert GenerationOptions().fitting(512).most == 64 and GenerationOptions(most=3).fitting(512).most == 3


def test_what_cannot_be_is_refused(model: Engine, tmp_path: Path) -> None:
    with refusal("invalid-value", "23", "24"):
        model.generate(["a"], most=23)
    with refusal("invalid-setting", "top_k"):
        model.generate(["a"], top_k=2)
    with refusal("invalid-setting", "least", 13, 12):  # the default of `most`
        model.generate(["a"], least=13)
    with refusal("wrong-number-of-texts", "texts[1]"):
        model.generate(["a", ("a", "b")])
    with refusal("unsupported-model"):
        osbert.load(write_run(tmp_path / "encoder", None, masks=True)).generate(["a"])
    with refusal("unsupported-model"):
        osbert.load(write_run(tmp_path / "bare", None, direction="left_to_right")).generate(["a"])


def test_keys_and_values_that_no_memory_holds_are_refused_before_the_work(
    model: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        prompt_writer, "free_memory", lambda device: 3 * 8 * 16 * 12
    )  # three times 12 tokens of one layer of 16
    assert model.generate(["a"], most=4, beams=2)
    with refusal("out-of-memory", "beams", 8):
        model.generate(["a"], most=4, beams=8)
    monkeypatch.setattr(prompt_writer, "free_memory", lambda device: 8 * 16 * 12)
    with refusal("out-of-memory", "most", 15):
        model.generate(["a"], most=15)


def test_a_form_without_specials_has_no_end(model: Engine) -> None:
    assert model.tokenizer.form.end == model.tokenizer.sep
    assert type(model.tokenizer.form)().end is None


def test_the_command_prints_texts_and_what_is_not_read(
    folder: Path, model: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "the film " * 20
    generate(folder, "the good", options=GivenOptions(most=5))
    assert capsys.readouterr().out == f"the good{model.generate(['the good'], most=5)[0].text}\n"
    made = generate(folder, long, "a", options=GivenOptions(most=8, beams=2))
    printed = capsys.readouterr()
    assert made["generations"][0]["truncated"] == 25 and "25" in printed.err
    assert len(printed.out.splitlines()) == 2
    done = told(capsys, "generate", folder, "the good", "--most", "5", "--json")
    assert json.loads(done.output)["generations"][0]["pieces"] == 5


def test_a_file_is_gone_on_with_row_by_row(
    folder: Path,
    model: Engine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["the good", "a fine film", "the film " * 20, "bad"]
    (tmp_path / "in.csv").write_text("text,id\n" + "".join(f"{text},{place}\n" for place, text in enumerate(texts)))
    options = {"most": 8, "sample": True, "seed": 3}
    tally = osbert.generate(folder, tmp_path / "in.csv", out=tmp_path / "out.jsonl", **options)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    together = model.generate(
        [text.strip() for text in texts], **options
    )  # the rows' numbers draw, whatever the window
    assert [row["generated"] for row in rows] == [one.text for one in together]
    assert (tally.rows, tally.cut, rows[2]["id"]) == (4, 1, "2")
    writing = GivenOptions(most=8, sample=True, seed=3)
    generate(folder, file=tmp_path / "in.csv", out=tmp_path / "out.csv", options=writing)
    assert "4 rows" in capsys.readouterr().out
    stopped_at: list[int] = []

    def stop(event: object) -> None:
        if isinstance(event, WorkProgress) and event.done:
            stopped_at.append(event.done)
            raise KeyboardInterrupt

    monkeypatch.setattr(row_texts, "WINDOW", 2)
    again = {"out": tmp_path / "again.jsonl", **options}
    with pytest.raises(KeyboardInterrupt):
        osbert.generate(folder, tmp_path / "in.csv", watch=stop, **again)
    assert stopped_at == [2] and (tmp_path / "again.jsonl.unfinished").is_dir()
    with refusal("begun-with-other-settings", "most"):
        osbert.generate(folder, tmp_path / "in.csv", **{**again, "most": 7})
    events: list[object] = []
    assert osbert.generate(folder, tmp_path / "in.csv", watch=events.append, **again) == tally
    assert [one.done for one in events if isinstance(one, WorkProgress)] == [2, 4]
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    assert not (tmp_path / "again.jsonl.unfinished").exists()
    with refusal("missing-option", "--file"):
        generate(folder, "a", reading=EmbeddedOptions(text="id"))
    for wrong in ({}, {"file": tmp_path / "in.csv"}, {"out": tmp_path / "x.csv"}):
        with refusal("missing-option"):
            generate(folder, **wrong)  # type: ignore[arg-type]


def test_rows_without_pieces_stay_empty_and_bad_ones_are_listed_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = write_run(tmp_path / "reader", None, masks=True, writes="masked", segments=6)
    (tmp_path / "in.jsonl").write_text('{"text": "the good"}\n{"text": "\\u200b"}\n{"text": "a"}\n')
    tally = osbert.generate(reader, tmp_path / "in.jsonl", out=tmp_path / "out.jsonl", most=3)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert (tally.rows, tally.empty) == (3, 1) and [row["pieces"] for row in rows] == [3, None, 3]
    encode = Tokenizer.encode

    def picky(self: Tokenizer, text: str) -> NDArray[np.int32]:
        if "a" in text:
            raise UserError(f"{text!r} is no text", code="unusable-tokenizer")
        return encode(self, text)

    monkeypatch.setattr(Tokenizer, "encode", picky)
    (tmp_path / "in.jsonl").write_text('{"text": "the good"}\n' * 3 + '{"text": "a"}\n{"text": "a film"}\n')
    with refusal("unusable-tokenizer", "in.jsonl, line 4", "in.jsonl, line 5"):
        osbert.generate(reader, tmp_path / "in.jsonl", out=tmp_path / "none.jsonl", most=3)
    assert not (tmp_path / "none.jsonl.unfinished").exists()
