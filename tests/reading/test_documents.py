from __future__ import annotations

import json
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.reading import documents as readers
from osbert.reading import encodings as decoding
from osbert.reading.documents import Chunk, DocumentOptions, probe, read_chunks
from osbert.reading.inputs import Repairs, find_inputs
from refusals import refusal


def documents_of(chunks: list[Chunk]) -> list[str]:
    joined: list[str] = []
    for chunk in chunks:
        if chunk.opens:
            joined.append(chunk.text)
        else:
            joined[-1] += chunk.text
    return joined


@pytest.fixture()
def write(tmp_path):
    def write(text: str, name: str = "a.txt"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


TEXT = "\n\nOne.\nTwo.\n  \n\t\nThree.\n\n\n\nFour. \n"


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ("file", ["One.\nTwo.\n  \n\t\nThree.\n\n\n\nFour."]),
        ("blank-line", ["One.\nTwo.", "Three.", "Four."]),
        ("line", ["One.", "Two.", "Three.", "Four."]),
    ],
)
def test_documents_of_text_files(write, documents, expected):
    assert documents_of(list(read_chunks([write(TEXT)], documents=documents))) == expected


def test_each_file_opens_a_document(write):
    files = [write("One", "a.txt"), write("Two", "b.txt")]
    assert documents_of(list(read_chunks(files))) == ["One", "Two"]


def plain(text: str, documents: str) -> list[str]:
    """The definition: split the whole text at once."""
    if documents == "file":
        return [text.strip()] if text.strip() else []
    parts: list[list[str]] = [[]]
    for line in text.split("\n"):
        if documents == "line" or not line.strip():
            parts.append([])
        parts[-1].append(line)
    whole = ("\n".join(part).strip() for part in parts)
    return [part for part in whole if part]


@given(
    text=st.text(st.sampled_from("ab. \n\n\t中"), max_size=200),
    documents=st.sampled_from(["file", "blank-line", "line"]),
    block=st.integers(1, 30),
)
def test_streaming_gives_what_splitting_the_whole_text_gives(tmp_path_factory, text, documents, block):
    path = tmp_path_factory.mktemp("law") / "a.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "BLOCK", block)
        assert documents_of(list(read_chunks([path], documents=documents))) == plain(text, documents)


@given(
    text=st.text(st.sampled_from("ab.  \n中"), min_size=1, max_size=300),
    documents=st.sampled_from(["file", "blank-line", "line"]),
    chunk=st.integers(4, 30),
)
def test_cutting_loses_nothing_and_keeps_the_limit(tmp_path_factory, text, documents, chunk):
    path = tmp_path_factory.mktemp("law") / "a.txt"
    path.write_text(text, encoding="utf-8")
    found = []
    for block in (7, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(readers, "CHUNK", chunk)
            patch.setattr(decoding, "BLOCK", block)
            found.append(list(read_chunks([path], documents=documents)))
    assert all(len(part.text) <= chunk for part in found[0])
    squeezed = ["".join(document.split()) for document in documents_of(found[0])]
    assert squeezed == ["".join(document.split()) for document in plain(text, documents)]
    assert squeezed == ["".join(document.split()) for document in documents_of(found[1])]


def test_long_text_is_cut_at_lines_then_sentences_then_spaces(write, monkeypatch):
    monkeypatch.setattr(readers, "CHUNK", 20)

    def cut(text: str) -> list[str]:
        return [chunk.text for chunk in read_chunks([write(text)], documents="file")]

    assert cut("aaaa bb. cccc\ndddd eeee ffff") == ["aaaa bb. cccc", "\ndddd eeee ffff"]
    assert cut("aaaa bbbb cccc. dd eeee ffff") == ["aaaa bbbb cccc.", " dd eeee ffff"]
    assert cut("我们在这里说的是中国人。他是一个好人这个国家") == ["我们在这里说的是中国人。", "他是一个好人这个国家"]
    assert cut("aaaa bbbb cccc dddddddddd") == ["aaaa bbbb cccc", " dddddddddd"]
    assert cut("a" * 50) == ["a" * 20, "a" * 20, "a" * 10]


def test_json_lines_are_documents_and_long_ones_are_cut(write, monkeypatch):
    monkeypatch.setattr(readers, "CHUNK", 10)
    lines = [{"text": "One\n\nTwo"}, {"text": "  "}, {"text": "word " * 9}, {"text": ""}]
    path = write("\n\n".join(json.dumps(line) for line in lines), "a.jsonl")
    chunks = list(read_chunks([path]))
    assert [chunk.opens for chunk in chunks][:4] == [True, True, False, False]
    assert sum(chunk.opens for chunk in chunks) == 2
    assert documents_of(chunks) == ["One\n\nTwo", ("word " * 9).strip()]


@given(st.lists(st.text(max_size=30), max_size=20), st.integers(1, 40))
def test_json_lines_give_back_any_text(tmp_path_factory, written, block):
    path = tmp_path_factory.mktemp("law") / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"text": text}, ensure_ascii=len(text) % 2 == 0) + "\n" for text in written), "utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "BLOCK", block)
        assert documents_of(list(read_chunks([path]))) == [text.strip() for text in written if text.strip()]


BAD = '{"text": "fine"}\n{"text": \n{"body": "x", "id": 1}\n[1, 2]\n{"text": null}\n"words"\n{"text": "last"}\n'


def test_all_bad_json_lines_of_a_file_are_told_at_once(write):
    path = write(BAD, "a.jsonl")
    chunks = read_chunks([path])
    assert next(chunks).text == "fine"
    with refusal("unusable-row", "a.jsonl") as caught:
        next(chunks)
    field = "'text'"
    named = (("JSON",), (field, "body, id", "--field"), (field, "[1, 2]"), (field, "null"), (field, '"words"'))
    for number, (line, values) in enumerate(zip(str(caught.value).splitlines()[1:], named, strict=True), 2):
        assert all(value in line for value in (f"line {number}: ", *values))


def test_bad_json_lines_are_left_out_and_counted_on_request(write):
    repairs = Repairs()
    chunks = read_chunks([write(BAD, "a.jsonl")], errors="replace", repairs=repairs)
    assert [chunk.text for chunk in chunks] == ["fine", "last"]
    assert repairs.records == 5
    assert "line 3" in repairs.examples[1]


def test_many_bad_lines_are_told_up_to_a_limit(write):
    with refusal("unusable-row", "a.jsonl") as caught:
        list(read_chunks([write("{\n" * 1000, "a.jsonl")]))
    assert str(caught.value).count("line ") == 20


@given(st.lists(st.text(max_size=30), max_size=20), st.integers(1, 40), st.sampled_from([None, 1]))
def test_a_json_array_gives_back_any_text(tmp_path_factory, written, block, indent):
    path = tmp_path_factory.mktemp("law") / "a.json"
    items = [{"text": text, "tags": [{"[": text}, '"]\\']} for text in written]
    path.write_text(json.dumps(items, ensure_ascii=len(written) % 2 == 0, indent=indent), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "BLOCK", block)
        assert documents_of(list(read_chunks([path]))) == [text.strip() for text in written if text.strip()]


def test_bad_items_of_an_array_are_told_by_their_numbers(write, monkeypatch):
    for array in ('[{"text": "fine"}, 3, {"text": "x"]}, "words"]', '[{"text": "fine"}, {"text": "cut'):
        chunks = read_chunks([write(array, "a.json")])
        assert next(chunks).text == "fine"
        with refusal("unusable-row", "a.json", "item 2: "):
            next(chunks)
    for array in ('[{"text": "fine"}', '[{"text": "fine"}] {"text": "more"}'):
        with refusal("unusable-row", "item 2: ", "end"):
            list(read_chunks([write(array, "a.json")]))
    monkeypatch.setattr(readers, "JSON_LINE", 30)
    repairs = Repairs()
    path = write(json.dumps([{"text": "x" * 99}, {"text": "two"}]), "b.json")
    assert [chunk.text for chunk in read_chunks([path], errors="replace", repairs=repairs)] == ["two"]
    assert repairs.records == 1


def test_a_json_line_beyond_the_limit_is_told_and_the_rest_still_read(write, monkeypatch):
    monkeypatch.setattr(readers, "JSON_LINE", 1000)
    monkeypatch.setattr(decoding, "BLOCK", 64)
    long = json.dumps({"text": "x" * 5000})
    path = write(f'{{"text": "one"}}\n{long}\n{{"text": "two"}}\n{long}', "a.jsonl")
    with refusal("unusable-row", "2", "1,000"):
        list(read_chunks([path]))
    repairs = Repairs()
    chunks = read_chunks([path], errors="replace", repairs=repairs)
    assert [chunk.text for chunk in chunks] == ["one", "two"]
    assert repairs.records == 2


def test_lone_surrogates_are_replaced_and_counted(write):
    repairs = Repairs()
    path = write('{"text": "a\\ud83d b \\ud83d\\ude00"}', "a.jsonl")
    (chunk,) = read_chunks([path], repairs=repairs)
    assert chunk.text == "a\ufffd b 😀"
    assert repairs.replaced == 1


def test_empty_files_are_counted(write, tmp_path):
    (tmp_path / "d.txt.xz").write_bytes(lzma.compress(b""))
    files = [
        write("", "a.txt"),
        write("  \n\n ", "b.txt"),
        write("", "c.jsonl"),
        tmp_path / "d.txt.xz",
        write("x", "e.txt"),
    ]
    repairs = Repairs()
    assert [chunk.text for chunk in read_chunks(files, repairs=repairs)] == ["x"]
    assert repairs.empty == 4


def test_probe_tells_what_is_wrong_with_every_beginning(write, tmp_path):
    (tmp_path / "b.txt").write_bytes("café ".encode("latin-1") * 20)
    files = [write("fine"), tmp_path / "b.txt", write("{", "c.jsonl")]
    with refusal("wrong-encoding", "b.txt: byte 3", "c.jsonl") as caught:
        probe(find_inputs(files), DocumentOptions())
    assert "unusable-row" in caught.value.codes and "a.txt" not in str(caught.value)
