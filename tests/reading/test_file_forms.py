"""Files that are read whole: JSON arrays, workbooks, brat's folders, WebAnno TSV; and Parquet with names of classes."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest

from osbert.errors import Problems
from osbert.reading.data_file import DataFile
from osbert.reading.table import is_whole, open_table
from osbert.reading.tagged.files import TaggedFile, TagReading, find_tagged, read_tagged
from osbert.tasks.kinds.classify import Classify
from refusals import refusal


def tagged(path: Path) -> TaggedFile:
    problems = Problems(heading=f"{path} cannot be used")
    found = read_tagged(path, TagReading(), problems, labelled=True)
    problems.stop_if_any()
    return found


def entities(path: Path) -> list[list[tuple[str, str]]]:
    return [
        [(one.text[one.words[start][0] : one.words[end - 1][1]], type_) for start, end, type_ in one.spans or ()]
        for one in tagged(path).sentences
    ]


def rows(path: Path) -> list[dict[str, str]]:
    problems = Problems(heading=f"{path} cannot be used")
    found = [dict(row.values) for row in open_table(path).rows(problems)]
    problems.stop_if_any()
    return found


@pytest.mark.parametrize("name", ["in.json", "in.jsonl", "in.ndjson", "in"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_an_array_of_objects_is_a_table(tmp_path: Path, name: str, encoding: str) -> None:
    path = tmp_path / name
    items = [{"text": "größer", "label": "a"}, {"text": "b", "label": "b", "n": 1}]
    path.write_text("\n " + json.dumps(items, indent=1), encoding=encoding)
    assert rows(path) == [{"text": "größer", "label": "a"}, {"text": "b", "label": "b", "n": "1"}]
    table = open_table(path)
    assert table.columns == ("text", "label", "n") and table.place(2) == f"{path}, record 2"


def test_an_array_holds_what_rows_in_memory_may_be(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text('["a", "b"]')
    assert rows(path) == [{"text": "a"}, {"text": "b"}]
    path.write_text('[["a", "x"], ["b", "y"]]')
    assert rows(path) == [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    path.write_text('[{"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]}]')
    assert entities(path) == [[("EU", "ORG")]]


@pytest.mark.parametrize(
    ("text", "code", "value"),
    [
        ("[]", "no-data", "in.json"),
        ('[{"text": "a"},\n {"text": "b"]', "wrong-format", "line 2"),
        ('[{"text": "a", "text": "b"}]', "wrong-format", "'text'"),
        ('[{"text": "a"}, 7]', "unusable-row", "record 2"),
        ("[" * 100 + "]" * 100, "wrong-format", "in.json"),
    ],
)
def test_an_array_that_cannot_be_read(tmp_path: Path, text: str, code: str, value: str) -> None:
    path = tmp_path / "in.json"
    path.write_text(text)
    with refusal(code, path, value):
        rows(path)


def test_an_array_larger_than_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osbert.reading.data_file.LARGEST", 10)
    (tmp_path / "in.json").write_text('[{"text": "a"}]')
    with refusal("too-large", "in.json"):
        open_table(tmp_path / "in.json")


def brat(folder: Path, name: str, text: str, marked: str | None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.txt").write_bytes(text.encode())
    if marked is not None:
        (folder / f"{name}.ann").write_text(marked)
    return folder


BRAT = "EU rejects German call.\r\nNorth and South 🙂 America\n"
ANN = (
    "T1\tORG 0 2\tEU\nT2\tLOC 25 30;41 50\tNorth America\nR1\tPartOf Arg1:T1 Arg2:T2\nA1\tSure T1\n"
    "E1\tORG:T1\n#1\tAnnotatorNotes T1\tsure\nT3\tMISC 11 17\tGerman\n"
)


@pytest.mark.lab
def test_a_folder_of_brat(tmp_path: Path) -> None:
    folder = brat(tmp_path / "set", "b", "nobody", "")
    brat(folder, "a", BRAT, ANN)
    found = tagged(folder)
    assert [one.text for one in found.sentences] == [BRAT, "nobody"]
    assert entities(folder)[0] == [("EU", "ORG"), ("German", "MISC"), ("North and South 🙂 America", "LOC")]
    assert entities(folder / "a.ann") == entities(folder)[:1]
    assert find_tagged(folder) == {"all": folder} and "brat" in found.describe()
    brat(tmp_path / "dev", "c", "x", "")
    assert find_tagged(tmp_path) == {"dev": tmp_path / "dev"}
    found = tagged(brat(folder, "unseen", "nobody has", None))  # an .ann file
    assert len(found.sentences) == 2 and found.unlabelled == [3] and "document 3" in found.describe()
    before = DataFile(folder)
    assert before.sha256
    (folder / "b.ann").write_text("T1\tX 0 6\tnobody\n")
    with refusal("file-changed", folder):
        before.require_same()


@pytest.mark.lab
@pytest.mark.parametrize(
    ("marked", "value"),
    [
        ("T1\tORG 0 99\tEU\n", "0 to 99"),
        ("T1\tORG 3 5\tEU\n", "'EU'"),
        ("T1 ORG 0 2 EU\n", "line 1"),
        ("T1\tORG 0 2\tEU\nT2\tORG x y\tEU\n", "line 2"),
    ],
)
def test_a_document_of_brat_that_cannot_be_read(tmp_path: Path, marked: str, value: str) -> None:
    folder = brat(tmp_path / "set", "a", BRAT, marked)
    with refusal("unusable-row", folder, "a.ann", value):
        tagged(folder)


@pytest.mark.lab
def test_what_is_missing_in_a_folder_of_brat(tmp_path: Path) -> None:
    folder = brat(tmp_path / "set", "a", "EU", None)
    (folder / "b.ann").write_text("")
    with refusal("missing-file", "b.txt"):
        tagged(folder)
    (folder / "b.txt").write_bytes(b"\xff")
    with refusal("wrong-encoding", "b.txt"):
        tagged(folder)


TSV = """#FORMAT=WebAnno TSV 3.3
#T_SP=de.tudarmstadt.ukp.dkpro.core.api.lexmorph.type.pos.POS|PosValue
#T_SP=de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity|identifier|value


#Text=🙂 European Union rejects a\\tb
1-1\t0-2\t🙂\t_\t_\t_\t
1-2\t3-11\tEuropean\tNNP\t*[1]\tORG[1]\t
1-3\t12-17\tUnion\tNNP\t*[1]|*[2]\tORG[1]|LOC[2]\t
1-4\t18-25\trejects\tVBZ\t_\t_\t
1-5\t26-27\ta\tX\t_\t_\t
1-6\t28-29\tb\tX\t*\tS\\_1\t

#Text=Nobody
2-1\t30-36\tNobody\tNN\t_\t_\t
"""


@pytest.mark.lab
def test_webanno_tsv(tmp_path: Path) -> None:
    path = tmp_path / "in.tsv"
    path.write_text(TSV)
    found = tagged(path)
    assert [one.text for one in found.sentences] == ["🙂 European Union rejects a\tb", "Nobody"]
    assert [one.line for one in found.sentences] == [6, 14] and found.dropped == [6]
    assert entities(path) == [[("European Union", "ORG"), ("b", "S_1")], []]
    path.write_text(TSV.replace("NamedEntity", "One") + "#T_SP=x.Other|value\n")
    with refusal("ambiguous-column", "One", "Other"):
        tagged(path)
    path.write_text(TSV.replace("3-11\tEuropean", "5-11\tEuropean").replace("2-1\t30-36", "2-1\t30"))
    with refusal("unusable-row", "line 6", "line 14", "'European'"):
        tagged(path)


def test_parquet_with_classes_by_number(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    names = {"names": ["O", "B-ORG", "I-ORG"], "_type": "ClassLabel"}
    features = {
        "tokens": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "Sequence"},
        "ner_tags": {"feature": names, "_type": "Sequence"},
        "label": {"names": ["bad", "good"], "_type": "ClassLabel"},
    }
    table = pyarrow.table(
        {
            "text": ["EU rejects", "no"],
            "tokens": [["EU", "rejects"], ["no"]],
            "ner_tags": [[1, 0], [0]],
            "label": [1, -1],
        }
    )
    path = tmp_path / "train.parquet"
    told = json.dumps({"info": {"features": features}}).encode()
    parquet.write_table(table.replace_schema_metadata({b"huggingface": told}), path)
    assert entities(path) == [[("EU", "ORG")], []]
    assert [row["label"] for row in rows(path)] == ["good", ""]
    unknown = table.set_column(3, "label", [[1, 7]]).replace_schema_metadata({b"huggingface": told})
    parquet.write_table(unknown, path)
    with refusal("unusable-row", "line 2", "'label'", "7"):
        rows(path)
    unlabelled = Classify(data=str(path), skip_unlabelled=True).source
    problems = Problems(heading="")
    assert [record.label for record in unlabelled.records("all", problems)] == ["good"]
    assert problems.count == 1
    for broken in (b"{", b"[]", b'{"info": {"features": {"label": {"names": 3}}}}', b"\xff"):
        parquet.write_table(table.replace_schema_metadata({b"huggingface": broken}), path)
        assert [row["label"] for row in rows(path)] == ["1", "-1"]
    with refusal("unusable-row", "line 1", "ner_tags"):
        tagged(path)


def workbook(path: Path, cells: list[list[object]]) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in cells:
        book.active.append(row)
    book.save(path)
    return path


def test_a_workbook_is_a_table(tmp_path: Path) -> None:
    path = workbook(
        tmp_path / "in.xlsx",
        [["text", "label", None, "n"], ["good", "pos", None, 1], [None], [None, "neg", "x", 2.5], ["bad", "neg"]],
    )
    assert rows(path) == [
        {"text": "good", "label": "pos", "column 3": "", "n": "1"},
        {"text": "", "label": "neg", "column 3": "x", "n": "2.5"},
        {"text": "bad", "label": "neg", "column 3": "", "n": ""},
    ]
    assert open_table(path).place(3) == f"{path}, row 3" and "first sheet" in open_table(path).describe()
    with refusal("empty-text", "row 4"):
        Problems(heading="x").stop_if_any()
        problems = Problems(heading=f"{path} cannot be used")
        list(Classify(data=str(path)).source.read(path, problems, labelled=True))
        problems.stop_if_any()
    with refusal("duplicate-name", "'a'"):
        open_table(workbook(tmp_path / "b.xlsx", [["text", "a", "a"], ["x", "y", "z"]]))
    with refusal("no-data", "c.xlsx"):
        open_table(workbook(tmp_path / "c.xlsx", []))


def test_merged_cells_of_a_workbook_have_one_value(tmp_path: Path) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    for row in (["text", "label", "a"], ["good", "pos"], ["fine"], [None], ["bad", "neg", "x"], ["c"], ["d"]):
        book.active.append(row)
    for merged in ("C1:C2", "B2:B4", "B5:B6"):
        book.active.merge_cells(merged)
    book.save(tmp_path / "in.xlsx")
    assert [tuple(row.values()) for row in rows(tmp_path / "in.xlsx")] == [
        *(("good", "pos", ""), ("fine", "pos", ""), ("bad", "neg", "x"), ("c", "neg", ""), ("d", "", ""))
    ]


@pytest.mark.lab
def test_folders_of_texts_by_class(tmp_path: Path) -> None:
    for split, label, name, text in (
        *(("train", "pos", "1.txt", b"good\n"), ("train", "pos", "2.txt", b"fine")),
        *(("train", "neg", "3", b"bad"), ("train", "neg", "4", b"caf\xe9"), ("test", "pos", "5.txt", b"so")),
    ):
        (tmp_path / split / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / split / label / name).write_bytes(text)
    (tmp_path / "train" / "urls_pos.txt").write_text("an address")
    with refusal("wrong-encoding", "neg/4", "--encoding"):
        list(Classify(data=str(tmp_path)).source.records("train", Problems(heading="")))
    source = Classify(data=str(tmp_path), encoding="latin-1").source
    assert source.files() == {"train": tmp_path / "train"}  # one text is no folder of texts
    records = [*source.records("train", Problems(heading="")), *source.records("dev", Problems(heading=""))]
    texts = {(record.texts[0], record.label) for record in records}
    assert texts == {("bad", "neg"), ("caf\xe9", "neg"), ("good\n", "pos"), ("fine", "pos")}
    (tmp_path / "train" / "dev.csv").write_text("text,label\na,b\n")
    assert not is_whole(tmp_path / "train")


@pytest.mark.lab
@pytest.mark.parametrize("name", ["cooking.train", "reviews.txt", "reviews"])
def test_lines_of_fasttext(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    first = "__label__pos a good film, and __label__x\r\n\n__label__neg\u2028b"
    path.write_text(f"{first}\nno label\n__label__neg __label__b d")
    table = open_table(path)
    found = [(row.line, row.source["text"], row.source["label"]) for row in table.rows(Problems(heading=""))]
    assert table.columns == ("text", "label") and found == [
        (1, "a good film, and __label__x", ["pos"]),
        (3, "b", ["neg"]),
        (4, "no label", []),
        (5, "d", ["neg", "b"]),
    ]


def test_formulas_of_a_workbook_need_stored_values(tmp_path: Path) -> None:
    path = workbook(tmp_path / "in.xlsx", [["text", "label"], ["good", '=UPPER("pos")'], ["=) smile", "neg"]])
    with refusal("unusable-row", "'Sheet'", "B2", "A3"):
        open_table(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}

    def stored(cell: bytes, *, calculated: bool = True) -> Path:
        with zipfile.ZipFile(tmp_path / "other.xlsx", "w") as archive:
            for name, content in parts.items():
                content = re.sub(b'(<c r="..")>(<f>.*?</f>)<v></v>', cell, content)
                archive.writestr(name, content.replace(b'OnLoad="1"', b'OnLoad="0"') if calculated else content)
        return tmp_path / "other.xlsx"

    assert [row["label"] for row in rows(stored(rb'\1 t="str">\2<v></v>'))] == ["", "neg"]  # "" is a calculated text
    assert [row["label"] for row in rows(stored(rb"\1>\2<v>0</v>"))] == ["0", "neg"]
    assert [row["label"] for row in rows(stored(rb"\1>\2<v>2</v>", calculated=False))] == ["2", "neg"]
    with refusal("unusable-row", "B2", "A3"):  # as XlsxWriter does
        open_table(stored(rb"\1>\2<v>0</v>", calculated=False))


def test_a_hidden_sheet_is_not_the_first_sheet(tmp_path: Path) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.append(["hidden", "rows"])
    book.active.sheet_state = "hidden"
    sheet = book.create_sheet("Data")
    sheet.append(["text", "label"])
    sheet.append(["good", "pos"])
    book.save(tmp_path / "in.xlsx")
    assert rows(tmp_path / "in.xlsx") == [{"text": "good", "label": "pos"}]


def test_a_workbook_of_strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workbook(tmp_path / "in.xlsx", [["text"], ["a"]])
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}

    def written(**changed: bytes) -> Path:
        with zipfile.ZipFile(tmp_path / "other.xlsx", "w") as archive:
            for name, content in parts.items():
                archive.writestr(name, changed.get(name.rsplit("/", 1)[-1].partition(".")[0], content))
        return tmp_path / "other.xlsx"

    with refusal("damaged-file", "sheet1.xml"):
        open_table(written(sheet1=b'<!DOCTYPE x [<!ENTITY a "b">]>' + parts["xl/worksheets/sheet1.xml"]))
    with refusal("damaged-file", "other.xlsx"):
        open_table(written(sheet1=b"<worksheet><row"))
    with refusal("damaged-file", "other.xlsx"):
        open_table(written(workbook=b"no"))
    monkeypatch.setattr("osbert.reading.data_file.LARGEST", 100)
    with refusal("too-large", "in.xlsx"):
        open_table(path)
