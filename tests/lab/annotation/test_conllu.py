"""CoNLL-U files are read as tagged words: comments, multiword tokens and empty nodes are no words."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from osbert.errors import Problems, UserError
from osbert.reading.tagged.files import TagReading, read_tagged
from refusals import refusal

SENTENCES = """\
# sent_id = 1
# text = Vámonos al mar
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_
3\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\t_
3.1\t_\t_\tVERB\t_\t_\t_\t_\t_\t_

# text = Sí
1\tSí\tsí\tINTJ\t_\t_\t0\troot\t_\t_
"""


@pytest.mark.parametrize("name", ["pos.conllu", "pos.conllu.gz"])
def test_words_and_parts_of_speech_are_read(tmp_path: Path, name: str) -> None:
    content = SENTENCES.encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    problems = Problems(heading="")
    file = read_tagged(path, TagReading(plain=True), problems, labelled=True)
    assert problems.count == 0
    first, second = file.sentences
    assert first.text == "Vamos nos mar" and first.line == 4
    assert first.spans is not None and [span.type for span in first.spans] == ["VERB", "PRON", "NOUN"]
    assert second.text == "Sí"


def test_a_row_of_other_columns_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "pos.conllu"
    path.write_text(SENTENCES + "2\t!\tPUNCT\n", encoding="utf-8")
    problems = Problems(heading="")
    read_tagged(path, TagReading(plain=True), problems, labelled=True)
    with refusal("unusable-row", f"{path}, line 11"):
        problems.stop_if_any()


def test_a_file_of_comments_alone_has_no_data(tmp_path: Path) -> None:
    path = tmp_path / "pos.conllu"
    path.write_text("# text = nothing\n", encoding="utf-8")
    with pytest.raises(UserError) as error:
        read_tagged(path, TagReading(plain=True), Problems(heading=""), labelled=True)
    assert error.value.code == "no-data"


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_lines_end_at_line_feeds_and_carriage_returns_alone(tmp_path: Path, end: str) -> None:
    path = tmp_path / "pos.conllu"
    content = SENTENCES.replace("Sí", "S\u2028\x85\x1cí")
    path.write_bytes(content.replace("\n", end).encode())
    problems = Problems(heading="")
    file = read_tagged(path, TagReading(plain=True), problems, labelled=True)
    assert problems.count == 0
    assert [sentence.line for sentence in file.sentences] == [4, 10]
    assert file.sentences[1].text == "S\u2028\x85\x1cí"


@pytest.mark.parametrize("row", ["x\tya\tya\tADV", "²\tya\tya\tADV", "2\tya\tya\t_", "2\tya\tya\t"])
def test_a_row_of_no_number_or_part_of_speech_is_an_error(tmp_path: Path, row: str) -> None:
    path = tmp_path / "pos.conllu"
    path.write_text(SENTENCES + row + "\t_" * 6 + "\n", encoding="utf-8")
    problems = Problems(heading="")
    read_tagged(path, TagReading(plain=True), problems, labelled=True)
    with refusal("unusable-row", str(path)):
        problems.stop_if_any()


@pytest.mark.parametrize("labelled", [True, False])
def test_a_file_without_parts_of_speech_can_be_predicted_but_not_learnt(tmp_path: Path, labelled: bool) -> None:
    path = tmp_path / "pos.conllu"
    path.write_text("1\tya" + "\t_" * 8 + "\n", encoding="utf-8")
    problems = Problems(heading="")
    file = read_tagged(path, TagReading(plain=True), problems, labelled=labelled)
    assert problems.count == labelled
    assert labelled or [sentence.text for sentence in file.sentences] == ["ya"]
