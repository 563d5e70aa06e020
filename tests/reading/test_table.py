"""One's own files: what is found by looking, real line numbers, and every problem with its place."""

from __future__ import annotations

import builtins
import csv
import gzip
import importlib.util
import io
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.errors import Problems, UserError
from osbert.reading import data_file
from osbert.reading.columns import TextColumns, choose
from osbert.reading.delimited import parse
from osbert.reading.splits import find_splits
from osbert.reading.table import TableReading, open_table
from osbert.reading.tagged.files import TagReading, read_tagged
from refusals import refusal


def problems() -> Problems:
    return Problems(heading="the file cannot be used")


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path, **reading: str) -> list[dict[str, str]]:
    noted = problems()
    rows = [dict(row.values) for row in open_table(path, TableReading(**reading)).rows(noted)]
    noted.stop_if_any()
    return rows


WANTED = [{"text": "good, really", "label": "pos"}, {"text": "bad", "label": "neg"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text,label\n"good, really",pos\nbad,neg\n'),
        ("a.csv", 'text,label\r\n"good, really",pos\r\nbad,neg\r\n'),
        ("a.csv", '\ufefftext,label\n"good, really",pos\nbad,neg'),
        ("a.csv", "text;label\ngood, really;pos\nbad;neg\n"),
        ("a.csv", "text|label\ngood, really|pos\nbad|neg\n"),
        ("a.csv", "text\tlabel\ngood, really\tpos\nbad\tneg\n"),
        ("a.tsv", "text\tlabel\n\ngood, really\tpos\n\nbad\tneg\n\n"),
        ("a.jsonl", '{"text": "good, really", "label": "pos"}\n\n{"text": "bad", "label": "neg"}\n'),
        ("a.json", '\ufeff{"text": "good, really", "label": "pos"}\r\n{"text": "bad", "label": "neg"}\r\n'),
        ("a.csv", 'text,label\n"good, really",pos\nbad,neg\n'.encode("utf-16")),
        ("a.csv", 'text,label\n"good, really",pos\nbad,neg\n'.encode("utf-32")),
        (
            "a.jsonl",
            '\ufeff{"text": "good, really", "label": "pos"}\n{"text": "bad", "label": "neg"}'.encode("utf-32-be"),
        ),
        ("a.csv.gz", gzip.compress(b'text,label\n"good, really",pos\nbad,neg\n', mtime=0)),
        ("a.jsonl.xz", lzma.compress(b'{"text": "good, really", "label": "pos"}\n{"text": "bad", "label": "neg"}\n')),
    ],
)
def test_the_form_is_found(tmp_path: Path, name: str, content: str | bytes) -> None:
    assert read(write(tmp_path, name, content)) == WANTED


def test_zstd(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress(b'text,label\n"good, really",pos\nbad,neg\n')
    assert read(write(tmp_path, "a.csv.zst", packed)) == WANTED


@pytest.mark.parametrize(
    ("content", "header"),
    [
        ("label\ttext\n1\tgood\n", True),
        ("good film\t1\nbad film\t0\n", False),
        ("好看\tpositive\n难看\tnegative\n还行\tpositive\n", False),
        ("positive\t好看\nnegative\t难看\npositive\t还行\n", False),
        ("kommentar\tnote\nsehr gut\t1\nnicht so gut\t5\n", True),
        ("a sentence of many words here\tpos\nx\tneg\ny\tneg\n", False),
    ],
)
def test_a_header_is_told_from_a_row(tmp_path: Path, content: str, header: bool) -> None:
    table = open_table(write(tmp_path, "a.tsv", content))
    assert table.format.header is header
    if not header:
        assert table.columns == ("column 1", "column 2")


def test_header_by_word_of_the_user(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "text,label\nx,1\n")
    assert len(read(path, header="no")) == 2
    path = write(tmp_path, "b.csv", "a sentence of many words here,7\nx,1\n")
    assert open_table(path, TableReading(names=("7",))).columns == ("a sentence of many words here", "7")


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'text,label\n"two\nlines",a\n\n"an ""inner"" quote",b\nlast,c\n')
    rows = list(open_table(path).rows(problems()))
    assert [row.line for row in rows] == [2, 5, 6]
    assert [row.values["text"] for row in rows] == ["two\nlines", 'an "inner" quote', "last"]


def test_unicode_line_separators_do_not_end_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "text,label\none\u2028more\x85and\x0cmore,a\ntwo,b\n")
    rows = list(open_table(path).rows(problems()))
    assert [row.line for row in rows] == [2, 3] and rows[0].values["text"] == "one\u2028more\x85and\x0cmore"


def test_bare_quotes_in_tab_separated_files_are_plain(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", 'sentence\tlabel\n"he said it was\t1\nthe "best" film\t0\n')
    assert [row["sentence"] for row in read(path)] == ['"he said it was', 'the "best" film']
    quoted = write(tmp_path, "b.tsv", 'sentence\tlabel\n"a\tb"\t1\nc\t0\n')
    assert [row["sentence"] for row in read(quoted)] == ["a\tb", "c"]
    assert read(write(tmp_path, "c.tsv", 'sentence\tlabel\n"a"\t1\n'), quotes="no") == [
        {"sentence": '"a"', "label": "1"}
    ]


def test_every_bad_row_is_told_with_its_line(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.csv", 'text,label\n"x\ny",a\none,two,three\nalone\n"closed" too early,b\nfine,a\n"open,b\n'
    )
    noted = problems()
    rows = list(open_table(path).rows(noted))
    assert [row.values["text"] for row in rows] == ["x\ny", "fine"]
    with refusal("unusable-row", "line 4: 3", "2", "text, label", "line 5: 1", "line 6: ", "line 8: "):
        noted.stop_if_any()


def test_the_header_within_a_file_is_no_row(tmp_path: Path) -> None:
    path = write(tmp_path, "joined.csv", "text,label\ntext,x\n\ufefftext,label\nfine,a\n")
    rows = list(open_table(path).rows(noted := problems()))
    assert [row.values["text"] for row in rows] == ["text", "fine"]
    with refusal("unusable-row", "joined.csv, line 3"):
        noted.stop_if_any()
    assert read(write(tmp_path, "one.csv", "text\ntext\n")) == [{"text": "text"}]


RULES = {
    "bars.md": "| text | label |\n|:---|---:|\n| a | x |\n| b | y |\n",
    "words.md": "Satz | Klasse\n--- | :--:\na | x\nb | y\n",
    "sqlcmd.csv": "satz,klasse\n----,------\na,x\nb,y\n",
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_below_the_header_is_no_row(tmp_path: Path, name: str) -> None:
    table = open_table(write(tmp_path, name, RULES[name]))
    found = [[cell.strip() for cell in row.values.values() if cell.strip()] for row in table.rows(problems())]
    assert table.format.header and found == [["a", "x"], ["b", "y"]]


def test_a_second_table_of_markdown_is_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path, "two.md", RULES["bars.md"] + "\n" + RULES["bars.md"])
    noted = problems()
    assert len(list(open_table(path).rows(noted))) == 4
    with refusal("unusable-row", "two.md, line 6", "two.md, line 7"):
        noted.stop_if_any()


@pytest.mark.parametrize("title", ["Report 2026;;", "Report 2026", "Report 2026\n", "Report;;\n;;"])
def test_a_header_below_a_title_is_named(tmp_path: Path, title: str) -> None:
    path = write(tmp_path, "titled.csv", f"{title}\nid;text;label\n1;good film;x\n2;bad film;y\n")
    with refusal("wrong-format", "titled.csv", "id, text, label"):
        open_table(path)
    assert open_table(path, TableReading(header="no", delimiter=";")).columns[0] == "column 1"
    named = TableReading(names=("Satz", "Klasse"))
    with refusal("wrong-format", "Satz, Klasse"):
        open_table(write(tmp_path, "other.csv", f"{title}\nSatz;Klasse\ngut;x\nschlecht;y\n"), named)


def test_bad_json_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "x", "n": null, "k": 3}\n{"text": \n["x"]\n')
    noted = problems()
    rows = list(open_table(path).rows(noted))
    assert [dict(row.values) for row in rows] == [{"text": "x", "n": "", "k": "3"}]
    assert rows[0].source == {"text": "x", "n": None, "k": 3}
    assert "line 2: not JSON" in noted.messages[0] and "line 3" in noted.messages[1]
    for text, fault in (('{"k": "a\tb"}', "Invalid control character at"), ('{"k": "ab', "Unterminated string at")):
        list(open_table(write(tmp_path, "b.jsonl", '{"k": "x"}\n' + text)).rows(noted := problems()))
        assert f"line 2: not JSON ({fault} character " in noted.messages[0]


@pytest.mark.parametrize(
    ("name", "content", "refused"),
    [
        ("a.csv", "", ("no-data", "a.csv")),
        ("a.csv", " \n\n", ("no-data", "a.csv")),
        ("a.jsonl", "plain\n", ("wrong-format", "a.jsonl", "JSON")),
        ("a.csv", "text,text\nx,y\n", ("duplicate-name", "a.csv", "'text'")),
        (
            "a.csv",
            "text,label\nok,a\nstraße schön,b\nüber größe,c\n".encode("cp1252"),
            ("wrong-encoding", "line 3", "byte 20", "0xdf", "utf-8", "cp1252"),
        ),
        (
            "a.csv",
            b"text,label\nok,a\ncaf\xe9 noir,b\n",
            ("wrong-encoding", "line 3", "byte 19", "0xe9", "utf-8", "cp1252"),
        ),
        ("a.csv", "text,label\n电影很好,a\n".encode("gb18030"), ("wrong-encoding", "--encoding gb18030")),
        (
            "a.csv",
            "text,label\n这是我的电影，他们不在这个地方。,a\n".encode("gb18030"),
            ("wrong-encoding", "--encoding gb18030"),
        ),
        ("a.csv", "text,label\nФильм очень хороший,a\n".encode("cp1251"), ("wrong-encoding", "--encoding cp1251")),
        (
            "a.csv",
            "text,label\nfein,a\nschön und über und größe ".encode() + b"\xff,b\n",
            ("wrong-encoding", "line 3", "0xff"),
        ),
        ("a.csv", "text,label\rgood,a\rbad,b\r", ("wrong-format", "a.csv", "'\\r'")),
        ("a.csv", "text\rgood film\rbad film\nplay\n", ("wrong-format", "a.csv", "'\\r'")),
        ("a.txt", "good film\rbad film\rfine\nplay\n", ("wrong-format", "a.txt", "'\\r'")),
        ("a.txt", "good\nbad\nfine film\rplay\nfilm\n", ("unusable-row", "a.txt, line 3", "10")),
        *(
            (
                "a.csv",
                "text,label\ngood,a\n电影,b\n".encode(encoding),
                ("wrong-encoding", f"--encoding {encoding}"),
            )
            for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
        ),
        (
            "a.jsonl",
            '{"text": "good", "n": 1}\n{"text": "a", "n": 2, "text": "b"}\n',
            ("wrong-format", "line 2", "'text'"),
        ),
        ("a.csv", b"text,label\nok,caf\xc3", ("wrong-encoding", "a.csv", "utf-8")),
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, name: str, content: str | bytes, refused: tuple[str, ...]) -> None:
    with refusal(*refused):
        read(write(tmp_path, name, content))


def test_bytes_beyond_the_sample_and_other_encodings(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", b"text,label\n" + b"fine,a\n" * 3000 + b"caf\xe9,b\n")
    with refusal("wrong-encoding", "3002"):
        read(path)
    assert read(path, encoding="latin-1")[-1] == {"text": "café", "label": "b"}
    with refusal("invalid-value"):
        read(path, encoding="klingon")
    with refusal("missing-file"):
        read(tmp_path / "absent.csv")
    with refusal("wrong-format", tmp_path):
        read(tmp_path)


def test_a_cell_of_a_hundred_thousand_words(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'text,label\n"' + "word " * 100_000 + '",a\n')
    assert len(read(path)[0]["text"]) == 500_000


cells = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=0, max_size=8)


@given(rows=st.lists(st.lists(cells, min_size=2, max_size=4), max_size=5), delimiter=st.sampled_from(",;\t|"))
def test_parsing_undoes_the_standard_library_writer(rows: list[list[str]], delimiter: str) -> None:
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    buffer = io.StringIO(newline="")
    csv.writer(buffer, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(rows)
    buffer.seek(0)
    lines = buffer.getvalue().split("\n")
    noted = problems()
    read_back = parse(iter([f"{line}\n" for line in lines]), delimiter=delimiter, quotes=True, name="", problems=noted)
    assert [found for _, found in read_back] == rows
    assert noted.count == 0


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        (("label", "text"), TextColumns(text="text", label="label")),
        (("Review", "Sentiment", "id"), TextColumns(text="Review", label="Sentiment")),
        (("sentence1", "sentence2", "label"), TextColumns(text="sentence1", pair="sentence2", label="label")),
        (("qid1", "question1", "question2", "topic"), TextColumns(text="question1", pair="question2", label="topic")),
        (("index", "question", "sentence", "label"), TextColumns(text="question", pair="sentence", label="label")),
        (("kommentar", "label"), TextColumns(text="kommentar", label="label")),
        (("index", "sentence", "class", "label"), TextColumns(text="sentence", label="label")),
    ],
)
def test_columns_by_their_usual_names(columns: tuple[str, ...], chosen: TextColumns) -> None:
    assert choose(columns, user_columns=TextColumns(text=""), path="a.csv") == chosen


def test_columns_by_word_of_the_user() -> None:
    names = ("a", "b", "c", "score", "label")
    assert choose(names, user_columns=TextColumns(text="a", pair="b", label="c"), path="f").texts == ("a", "b")
    assert choose(names, user_columns=TextColumns(text="a"), path="f", numbers=True) == TextColumns(
        text="a", label="score"
    )
    assert choose(names, user_columns=TextColumns(text="a"), path="f") == TextColumns(text="a", label="label")
    assert choose(("x",), user_columns=TextColumns(text=""), path="f", labelled=False) == TextColumns(text="x")
    pairs = choose(("text", "pair"), user_columns=TextColumns(text=""), path="f", labelled=False)
    assert pairs.texts == ("text", "pair")  # the names of the options
    absent = choose(("text", "id"), user_columns=TextColumns(text="", label="gold"), path="f", labelled=False)
    assert absent == TextColumns(text="text")


@pytest.mark.parametrize(
    ("columns", "asked", "message"),
    [
        (("text", "review", "label"), TextColumns(text=""), "the text could be 'text' or 'review': give --text NAME"),
        (("text", "class", "topic"), TextColumns(text=""), "the label could be 'class' or 'topic': give --label NAME"),
        (("text", "id"), TextColumns(text=""), "none is called label: give --label NAME."),
        (("text",), TextColumns(text=""), "in a second column"),
        (("schema", "data"), TextColumns(text=""), "if the rows are in 'data'"),
        (
            ("a", "b"),
            TextColumns(text=""),
            "none is called text or label: give --text NAME (and --pair NAME for pairs) and ",
        ),
        (
            ("column 1", "column 2", "column 3"),
            TextColumns(text=""),
            "and --label NAME, where NAME is 'column 1' and so on;",
        ),
        (
            ("column 1", "column 2", "column 3"),
            TextColumns(text="column 1"),
            "no header: give --label NAME, where NAME",
        ),
        (("a", "b", "label"), TextColumns(text=""), "none is called text"),
        (("text", "label"), TextColumns(text="texts"), "there is no 'texts' (--text). Did you mean 'text'?"),
        (("text", "label"), TextColumns(text="text", label="text"), "must be different columns"),
    ],
)
def test_columns_in_doubt_are_listed(columns: tuple[str, ...], asked: TextColumns, message: str) -> None:
    with pytest.raises(UserError) as error:
        choose(columns, user_columns=asked, path="a.csv")
    assert message in str(error.value) and f"a.csv has the columns {', '.join(map(repr, columns))}" in str(error.value)


def test_labelled_reviews(data: Path) -> None:
    table = open_table(data / "text" / "reviews-labelled-train.jsonl.xz")
    rows = list(table.rows(problems()))
    assert len(rows) == 5000 and table.columns == ("text", "label")
    assert {row.values["label"] for row in rows} == {"pos", "neg"}


@pytest.mark.parametrize(("name", "rows"), [("CoLA/dev", 527), ("RTE/dev", 277), ("SST-2/test", 1821)])
def test_official_files_are_read_row_for_row(data: Path, name: str, rows: int) -> None:
    path = data / "glue" / f"{name}.tsv"
    noted = problems()
    assert len(list(open_table(path).rows(noted))) == rows and noted.count == 0


def test_decimal_commas_separate_no_cells_and_are_no_names(tmp_path: Path) -> None:
    table = open_table(write(tmp_path, "a.csv", "gut;7,6\nschlecht;1,25\nmittel;4,5\n"))
    assert next([*row.values.values()] for row in table.rows(problems())) == ["gut", "7,6"]
    assert open_table(write(tmp_path, "b.csv", "7,6\n1,25\n")).columns == ("column 1", "column 2")


def test_nan_is_null_in_every_view_of_a_row(tmp_path: Path) -> None:
    [row] = open_table(write(tmp_path, "a.jsonl", '{"text": "x", "n": NaN, "k": Infinity}\n')).rows(problems())
    assert row.values == {"text": "x", "n": "", "k": "Infinity"}
    assert row.nulls == {"n"} and row.source["n"] is None
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"text": ["x", "y"], "n": [float("nan"), 1.0]}), tmp_path / "a.parquet")
    first, second = open_table(tmp_path / "a.parquet").rows(problems())
    assert (first.values["n"], first.nulls) == ("", {"n"}) and (second.values["n"], second.nulls) == (
        "1.0",
        frozenset(),
    )


def test_parquet_is_read_as_text_cells(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {"sentence": ["good, really", "bad\nfilm", None], "label": [1, 0, -1], "score": [0.5, 2.0, None]}
    path = tmp_path / "train-00000-of-00001.parquet"
    parquet.write_table(pyarrow.table(rows), path)
    assert find_splits(tmp_path) == {"train": path}
    table = open_table(path)
    found = list(table.rows(problems()))
    assert [dict(row.values) for row in found] == [
        {"sentence": "good, really", "label": "1", "score": "0.5"},
        {"sentence": "bad\nfilm", "label": "0", "score": "2.0"},
        {"sentence": "", "label": "-1", "score": ""},
    ]
    assert [row.line for row in found] == [1, 2, 3]
    assert table.describe() == f"{path}: Parquet; columns: sentence, label, score"
    write(tmp_path, "b.parquet", "no such thing")
    with refusal("wrong-format", "b.parquet"):
        open_table(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    ("name", "content", "cells"),
    [
        ("a.txt", "a\n\n  \nb\n\n", ["a", "", "  ", "b", ""]),
        ("a.txt", "\r\na\r\nb", ["", "a", "b"]),
        ("a.csv", "\ntext\na\n\nb\n\n", ["a", "", "b", ""]),
        ("a.csv", "1\n\n2\n", ["1", "", "2"]),
        ("a.csv", "sep=;\n1\n\n2\n", ["1", "", "2"]),
        ("a.tsv", "text\tlabel\na\tx\n\t\n\n", ["a", ""]),
        ("a.csv", 'text,label\na,x\n\n"",y\n\n', ["a", ""]),
    ],
)
def test_a_blank_line_is_a_row_where_there_is_one_column(
    tmp_path: Path, name: str, content: str, cells: list[str]
) -> None:
    rows = list(open_table(write(tmp_path, name, content)).rows(problems()))
    assert [next(iter(row.values.values())) for row in rows] == cells
    lines = content.split("\n")
    assert all(row.blank == (not lines[row.line - 1].strip(" \r")) for row in rows)


@pytest.mark.parametrize(
    ("hint", "delimiter"),
    [("sep=;\r\n", ";"), ('"sep=;"\n', ";"), ("SEP=|\n", "|"), ("\ufeffsep=\t\n", "\t"), ("sep=%\n", "%")],
)
@pytest.mark.parametrize("header", [True, False])
def test_excels_hint_at_the_delimiter_is_obeyed(tmp_path: Path, hint: str, delimiter: str, header: bool) -> None:
    lines = [["text", "label"]] * header + [["so, so", "1"], ["3,5;|"[: 3 if delimiter in ";|" else 5], "2"]]
    content = hint + "".join(delimiter.join(cells) + "\n" for cells in lines)
    table = open_table(write(tmp_path, "a.csv", content))
    rows = list(table.rows(noted := problems()))
    assert noted.count == 0 and table.format.hint
    assert table.columns == (("text", "label") if header else ("column 1", "column 2"))
    assert [[*row.values.values()] for row in rows] == lines[header:]
    assert [row.line for row in rows] == ([3, 4] if header else [2, 3])


TABLES = {
    "a.csv": b'text,label\n"so, so",pos\nbad,neg\n',
    "a.csv.gz": gzip.compress(b'text,label\n"so, so",pos\nbad,neg\n'),
    "a.tsv": b'text\tlabel\nso "so"\tpos\n"bad\tneg\n',
    "a.txt": b"so, so\nbad\n",
    "a.jsonl": b'{"text": "so, so", "label": "pos"}\n{"text": "bad", "label": "neg"}\n',
    "a.json": b'[{"text": "so, so"}, {"text": "bad"}]',
}


@pytest.mark.parametrize("name", TABLES)
def test_a_small_file_is_opened_once(tmp_path: Path, name: str, opens: Callable[[], int]) -> None:
    table = open_table(write(tmp_path, name, TABLES[name]))
    assert len(list(table.rows(problems()))) == len(list(table.rows(problems()))) == 2
    table.file.require_same(whole=True)
    assert opens() == 1


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.txt"])
def test_a_large_file_is_opened_once_for_its_form_and_once_by_each_pass(
    tmp_path: Path, name: str, opens: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_file, "SMALL", 0)
    table = open_table(write(tmp_path, name, TABLES[name]))
    looks = name == "a.txt" and importlib.util.find_spec("osbert_lab") is not None  # for the labels of fastText
    assert opens() == looks + 1
    assert list(table.rows(problems()))
    assert opens() == looks + 2


def test_the_quotes_of_a_large_tab_separated_file_take_one_pass(
    tmp_path: Path, opens: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_file, "SMALL", 0)
    bare = "".join(f'"text {number}\t{number}\n' for number in range(5000))
    table = open_table(write(tmp_path, "a.tsv", bare))
    assert not table.format.quotes and len(list(table.rows(problems()))) == 5000
    looks = importlib.util.find_spec("osbert_lab") is not None  # for the signature of WebAnno
    assert opens() == looks + 2  # for the quotes and the rows


def test_columns_of_tags_are_opened_once(tmp_path: Path, opens: Callable[[], int]) -> None:
    path = write(tmp_path, "a.csv", "EU\tB-ORG\nrejects\tO\n")
    assert read_tagged(path, TagReading(), problems(), labelled=True).sentences
    assert opens() == 1


@pytest.fixture
def opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that counts how often files of the test were opened to be read."""
    opened: list[object] = []
    real = io.open

    def count(file: object, mode: str = "r", *arguments: object, **options: object) -> object:
        if mode == "rb" and Path(str(file)).parent == tmp_path:
            opened.append(file)
        return real(file, mode, *arguments, **options)

    for module in (io, builtins):
        monkeypatch.setattr(module, "open", count)
    return lambda: len(opened)
