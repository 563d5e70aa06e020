"""Files of tagged text: columns and JSON lines in all their forms; and every way in which they can be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from osbert.errors import Problems
from osbert.reading.tagged.files import TaggedFile, TagReading, find_tagged, read_tagged
from osbert.reading.tagged.rows import apart, cover_words, marks
from osbert.reading.tagged.schemes import EntitySpan
from refusals import refusal

PER, LOC = "PER", "LOC"
COLUMNS = "EU NNP I-ORG\nrejects VBZ O\n\nPeter NNP I-PER\nBlackburn NNP I-PER\n"


def read(
    folder: Path, text: str | bytes, *, name: str = "train.conll", labelled: bool = True, **reading: object
) -> tuple[TaggedFile, list[str]]:
    """Return a file with this text as it is read, and what was wrong with it."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    problems = Problems(heading="")
    found = read_tagged(path, TagReading(**reading), problems, labelled=labelled)
    return found, [message.replace(f"{path}, ", "") for message in problems.messages]


def words(found: TaggedFile) -> list[list[str]]:
    return [[one.text[start:end] for start, end in one.words] for one in found.sentences]


@pytest.mark.parametrize(
    "text",
    [
        COLUMNS,
        COLUMNS.replace(" ", "\t"),
        COLUMNS.replace("\n", "\r\n"),
        "﻿" + COLUMNS.replace("\n\n", "\n \t \n\n"),
        COLUMNS.encode("utf-16"),
        COLUMNS.replace("I-", "B-").replace("Blackburn NNP B-", "Blackburn NNP I-"),
    ],
)
def test_columns(tmp_path: Path, text: str | bytes) -> None:
    found, problems = read(tmp_path, text)
    assert words(found) == [["EU", "rejects"], ["Peter", "Blackburn"]] and not problems
    assert [one.spans for one in found.sentences] == [(EntitySpan(0, 1, "ORG"),), (EntitySpan(0, 2, PER),)]
    assert [one.text for one in found.sentences] == ["EU rejects", "Peter Blackburn"]
    assert found.sentences[1].line == (5 if b"\t \n" in (text if isinstance(text, bytes) else text.encode()) else 4)


def test_documents_and_another_column(tmp_path: Path) -> None:
    text = f"-DOCSTART- -X- O O\n\n{COLUMNS}\n-DOCSTART- -X- O O\nYes UH O\n".replace(" O O", " O")
    found, problems = read(tmp_path, text, column=2)
    assert len(problems) == 3 and "unknown tag 'NNP'" in problems[0] and "--scheme words" in problems[0]
    found, problems = read(tmp_path, text, column=2, plain=True)
    assert not problems and [one.document for one in found.sentences] == [0, 0, 1]
    assert found.sentences[0].spans == (EntitySpan(0, 1, "NNP"), EntitySpan(1, 2, "VBZ"))
    assert "3 sentences, 5 words in 2 documents" in found.describe()


def test_characters_stand_side_by_side(tmp_path: Path) -> None:
    found, _ = read(tmp_path, "北0\tB-LOC\n京1\tI-LOC\n!\tO\n", split="characters", spell=lambda cell: cell[:1])
    assert found.sentences[0].text == "北京!" and found.sentences[0].spans == (EntitySpan(0, 2, LOC),)


def test_all_that_is_wrong_with_columns_is_told_at_once(tmp_path: Path) -> None:
    text = "Peter B-PER\nBlackburn\n\nin O O\nParis X-LOC\nin LOC\nagain LOC\n\tO\n"
    _, problems = read(tmp_path, text)
    assert [problem.partition(":")[0] for problem in problems] == ["line 2", "line 4", "line 8", "line 5", "line 6"]
    assert "1 columns, but line 1 has 2" in problems[0] and "blank line" in problems[0]
    assert "the word is empty" in problems[2]
    assert "unknown tag 'X-LOC'" in problems[3] and "unknown tag 'LOC'" in problems[4]


@pytest.mark.parametrize(
    "comment",
    ["# id 5239d808 domain=en", "# sent_id = weblog-1", "# text = EU rejects", "# newdoc", "#\thttp://a.org\t[2009]"],
)
def test_comments_above_a_sentence_are_no_words(tmp_path: Path, comment: str) -> None:
    found, problems = read(tmp_path, f"{comment}\nEU\tNNP\tB-ORG\n#\tid\tO\n\n{comment}\nYes\tUH\tO\n")
    assert words(found) == [["EU", "#"], ["Yes"]] and not problems and found.sentences[0].line == 2


@pytest.mark.parametrize("first", [0, 1])
def test_numbers_of_words_are_no_words(tmp_path: Path, first: int) -> None:
    rows = [f"{number}\t{word}\tO\n" for number, word in enumerate(["EU", "rejects"], first)]
    _, (problem,) = read(tmp_path, "".join([*rows, "\n", *rows]))
    assert "cut -f2-" in problem
    counted = f"{''.join(rows)}\n2\tNN\tO\n1\tNN\tO\n"
    assert not read(tmp_path, counted)[1]


def test_tags_must_be_there_where_they_are_needed(tmp_path: Path) -> None:
    _, problems = read(tmp_path, "Peter\nlaughs\n")
    assert problems == [
        "line 1: no column of tags behind the word (one column). Write a word and its tag in each line, separated by a "
        "tab or spaces."
    ]
    assert "--column 7 of 3" in read(tmp_path, COLUMNS, column=7)[1][0]
    found, problems = read(tmp_path, "Peter\nlaughs\n\nYes\n", labelled=False)
    assert not problems and words(found) == [["Peter", "laughs"], ["Yes"]]
    assert found.sentences[0].spans is None
    found, problems = read(tmp_path, "Peter NNP\nlaughs VBZ\n", labelled=False)
    assert not problems and found.sentences[0].spans is None


def test_illegal_tags_are_counted(tmp_path: Path) -> None:
    found, _ = read(tmp_path, "a B-PER\nb I-PER\nc O\nd I-LOC\ne B-LOC\nf O\ng B-LOC\n")
    assert "tags in BIO, 1 of them not as it spells them: read as conlleval does" in found.describe()
    assert found.sentences[0].spans == (
        EntitySpan(0, 2, PER),
        EntitySpan(3, 4, LOC),
        EntitySpan(4, 5, LOC),
        EntitySpan(6, 7, LOC),
    )


TEXT = "Peter went to New York."
MARKED = [
    {"text": TEXT, "entities": [{"start": 0, "end": 5, "label": PER}, {"start": 14, "end": 22, "label": LOC}]},
    {"text": TEXT, "spans": [{"start": 14, "end": 22, "type": LOC}, {"start": 0, "end": 5, "type": PER}]},
    {"text": TEXT, "label": [[0, 5, PER], [14, 22, LOC]]},
    {"text": TEXT, "label": {PER: {"Peter": [[0, 4]]}, LOC: {"New York": [[14, 21]]}}},
    {"sentence": TEXT, "labels": [[0, 5, PER], [14, 22, LOC]]},
    {"tokens": ["Peter", "went", "to", "New", "York", "."], "ner_tags": ["B-PER", "O", "O", "B-LOC", "I-LOC", "O"]},
    {"words": ["Peter", "went", "to", "New", "York", "."], "labels": ["S-PER", "O", "O", "B-LOC", "E-LOC", "O"]},
]


@pytest.mark.parametrize("value", MARKED, ids=lambda value: " ".join(value))
def test_json_lines(tmp_path: Path, value: dict[str, object]) -> None:
    found, problems = read(tmp_path, "﻿" + json.dumps(value) + "\r\n\r\n", name="train.jsonl")
    assert not problems and words(found) == [["Peter", "went", "to", "New", "York", "."]]
    assert found.sentences[0].spans == (EntitySpan(0, 1, PER), EntitySpan(3, 5, LOC)) and found.sentences[0].line == 1


def test_what_cuts_a_word_is_widened_and_what_overlaps_is_dropped_and_told(tmp_path: Path) -> None:
    value = {"text": "Londoners in New York", "entities": [[0, 6, LOC], [13, 21, LOC], [13, 16, "MISC"]]}
    found, problems = read(tmp_path, json.dumps(value), name="a.json")
    assert not problems and found.sentences[0].spans == (EntitySpan(0, 1, LOC), EntitySpan(2, 4, LOC))
    assert "1 entities end within a word and are extended to all of it (first: line 1)" in found.describe()
    assert "1 overlap a longer one and are skipped (first: line 1)" in found.describe()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"tokens": ["a", "b"], "tags": ["O"]}', "2 in 'tokens', but 1 in 'tags': write a tag for each word"),
        ('{"tokens": "a b", "tags": ["O"]}', "'tokens' is not a list of texts"),
        ('{"tokens": ["a", " "], "tags": ["O", "O"]}', "one of the words is empty"),
        ('{"tokens": [], "tags": []}', "the text is empty"),
        ('{"tokens": ["a"]}', "it has tokens, but no tags"),
        ('{"tokens": ["a"], "tags": null}', "it has tokens, but no tags"),
        (
            '{"text": "a", "entities": null}',
            "'entities' is null: the text is not labelled. Mark its entities, [] for none",
        ),
        ('{"tokens": ["a"], "tags": ["Q-PER"]}', "unknown tag 'Q-PER'"),
        ('{"text": "a"}', "it has a text, but no entities"),
        ('{"text": " ", "entities": []}', "the text is empty. Remove the line"),
        ('{"content": 3, "entities": []}', "it has neither 'text' nor 'tokens', only content, entities"),
        ('{"text": "a", "entities": [[0, 2, "PER"]]}', "the PER from 0 to 2 is outside the text of 1 "),
        ('{"text": "a b", "entities": [[1, 2, "PER"]]}', "the PER from 1 to 2 contains no word"),
        ('{"text": "a", "entities": [[0, "1", "PER"]]}', "start and end are not whole numbers"),
        ('{"text": "a", "entities": [{"start": 0, "end": 1}]}', "an entity without a label"),
        ('{"text": "a", "entities": [3]}', "no entity with start, end and label: 3"),
        ('{"text": "a", "entities": "b"}', "the entities are not a list: b"),
        ('{"text": "ab", "label": {"PER": {"b": [[0, 0]]}}}', "the PER from 0 to 1 is 'b', but the text has 'a'"),
        (
            '{"text": "the EU", "entities": [{"start": 0, "end": 2, "label": "ORG", "text": "EU"}]}',
            "the ORG from 0 to 2 is 'EU', but the text has 'th'",
        ),
        ('{"text": "ab", "label": {"PER": 3}}', "the PER is not of the form {mention: [[start, last], ...]}"),
        ('[{"text": "ab"}]', "is not an object {...}; write one a line"),
        ('{"text": ', "not JSON"),
    ],
)
def test_what_is_wrong_with_json_lines(tmp_path: Path, line: str, message: str) -> None:
    found, problems = read(tmp_path, f'{line}\n{{"text": "ok", "entities": []}}\n{line}\n', name="train.jsonl")
    assert problems[0].startswith("line 1: ") and message in problems[0]
    assert len(problems) == (1 if "unknown tag" in message else 2)
    assert found.sentences[0].text == "ok" or "unknown tag" in message


def test_entities_of_a_pipeline_of_transformers(tmp_path: Path) -> None:
    entity = {"entity_group": "PER", "score": 0.9, "word": "Peter", "start": 0, "end": 5}
    found, problems = read(tmp_path, json.dumps({"text": "Peter lives", "entities": [entity]}), name="train.jsonl")
    assert not problems and found.sentences[0].spans == (EntitySpan(0, 1, PER),)


def test_the_text_of_an_entity_may_be_in_another_normal_form(tmp_path: Path) -> None:
    entity = {"start": 0, "end": 4, "label": "LOC", "text": "Cafe\N{COMBINING ACUTE ACCENT}"}
    line = json.dumps({"text": "Caf\N{LATIN SMALL LETTER E WITH ACUTE} Orient", "entities": [entity]})
    found, problems = read(tmp_path, line, name="train.jsonl")
    assert not problems and found.sentences[0].spans == (EntitySpan(0, 1, LOC),)


def test_labels_may_be_absent_from_lines_to_predict(tmp_path: Path) -> None:
    found, problems = read(tmp_path, '{"words": ["b"]}\n{"text": "a"}', name="test.json", labelled=False)
    assert not problems and [one.spans for one in found.sentences] == [None, None]
    assert [one.text for one in found.sentences] == ["b", "a"]


def test_spans_of_characters_and_words() -> None:
    words = [(0, 5), (6, 10), (10, 11)]
    assert cover_words(EntitySpan(6, 11, "X"), words) == EntitySpan(1, 3, "X")
    assert cover_words(EntitySpan(3, 7, "X"), words) == EntitySpan(0, 2, "X")
    assert cover_words(EntitySpan(5, 6, "X"), words) == EntitySpan(1, 1, "X")
    assert apart([EntitySpan(0, 2, "A"), EntitySpan(1, 4, "B"), EntitySpan(4, 5, "C"), EntitySpan(4, 5, "D")]) == [
        (1, 4, "B"),
        (4, 5, "C"),
    ]
    assert marks([], "text") == []


def test_files_of_a_folder_by_their_names(tmp_path: Path) -> None:
    for name in ("eng.train", "eng.testa", "eng.testb", "README"):
        (tmp_path / name).touch()
    assert {split: path.name for split, path in find_tagged(tmp_path).items()} == {
        "train": "eng.train",
        "dev": "eng.testa",
        "test": "eng.testb",
    }
    (tmp_path / "wnut17train.conll").touch()
    with refusal("missing-split"):
        find_tagged(tmp_path)
    (tmp_path / "empty").mkdir()
    with refusal("missing-split"):
        find_tagged(tmp_path / "empty")
    with refusal("missing-file"):
        find_tagged(tmp_path / "absent")
    assert list(find_tagged(tmp_path / "README")) == ["all"]
    with refusal("missing-file"):
        read_tagged(tmp_path / "absent", TagReading(), Problems(heading=""), labelled=True)
    (tmp_path / "train.parquet").touch()
    with refusal("wrong-format"):
        read_tagged(tmp_path / "train.parquet", TagReading(), Problems(heading=""), labelled=True)


def test_another_encoding_is_told_or_read(tmp_path: Path) -> None:
    text = "北京 B-LOC\n的 O\n人 O\n" * 30
    with refusal("wrong-encoding", "8"):
        read(tmp_path, text.encode("gb18030"))
    assert len(read(tmp_path, text.encode("gb18030"), encoding="gb18030")[0].sentences[0].words) == 90


KAGGLE = "Sentence #,Word,POS,Tag\nSentence: 1,EU,NNP,I-ORG\n,rejects,VBZ,O\n"
KAGGLE += "Sentence: 2,Peter,NNP,I-PER\n,Blackburn,NNP,I-PER\n"
LONG = "sentence_id;word;tag\n0;EU;I-ORG\n0;rejects;O\n1;Peter;I-PER\n1;Blackburn;I-PER\n"


@pytest.mark.parametrize("text", [KAGGLE, "\ufeff" + KAGGLE.replace("\n", "\r\n"), LONG, LONG.replace(";", "\t")])
@pytest.mark.parametrize("name", ["train.csv", "train.tsv"])
def test_a_word_a_row(tmp_path: Path, text: str, name: str) -> None:
    found, problems = read(tmp_path, text, name=name)
    assert words(found) == [["EU", "rejects"], ["Peter", "Blackburn"]] and not problems
    assert [one.spans for one in found.sentences] == [(EntitySpan(0, 1, "ORG"),), (EntitySpan(0, 2, PER),)]
    assert found.sentences[1].line == 4 and "words from '" in found.describe()


def test_columns_of_a_word_a_row(tmp_path: Path) -> None:
    found, problems = read(tmp_path, KAGGLE, name="train.csv", column=3, plain=True)
    assert found.sentences[0].spans == (EntitySpan(0, 1, "NNP"), EntitySpan(1, 2, "VBZ")) and not problems
    found, problems = read(tmp_path, "sent_id,token\n1,EU\n1,rejects\n", name="new.csv", labelled=False)
    assert words(found) == [["EU", "rejects"]] and found.sentences[0].spans is None and not problems
    found, problems = read(tmp_path, KAGGLE.replace("EU", "Zürich").encode("latin-1"), name="a.csv", encoding="latin-1")
    assert words(found)[0] == ["Zürich", "rejects"] and not problems
    with refusal("wrong-encoding", "line 2"):
        read(tmp_path, KAGGLE.replace("EU", "Zürich").encode("latin-1"), name="a.csv")
    with refusal("unknown-column", "'name'"):
        read(tmp_path, "name,Sentence\nx,y\n", name="a.csv")
    with refusal("unknown-column", "'label'"):
        read(tmp_path, "sentence,word,label,tag\n1,EU,x,O\n", name="a.csv")
    assert words(read(tmp_path, COLUMNS, name="a.csv")[0]) == [["EU", "rejects"], ["Peter", "Blackburn"]]


def test_faults_of_a_word_a_row(tmp_path: Path) -> None:
    _, problems = read(tmp_path, LONG + "0;again;O\n2;;O\n", name="train.csv")
    assert len(problems) == 2 and "line 6" in problems[0] and "line 7" in problems[1]
    _, problems = read(tmp_path, LONG.replace("I-PER", "person"), name="train.csv")
    assert len(problems) == 1 and "line 4" in problems[0]
    rows = [{"sentence_id": 1, "tokens": ["EU", "rejects"], "tags": ["I-ORG", "O"]}]
    found, problems = read(tmp_path, json.dumps(rows), name="train.json")
    assert words(found) == [["EU", "rejects"]] and not problems
