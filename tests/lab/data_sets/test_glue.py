"""GLUE's sets: the official files row for row, Hugging Face's forms, official scores, and the files' known defects."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from osbert import components
from osbert.errors import Problems
from osbert.runs.evaluate import Evaluation
from osbert.tasks import Prediction, Record, Task, findings, load, with_data
from osbert.tasks.kinds.classify import Classify
from osbert_lab.data_sets.glue import Mnli, Mrpc, Wnli
from refusals import refusal


def task(name: str, data: Path | str = "", **settings: Any) -> Any:
    return dataclasses.replace(components.find("tasks", name, base=Task)(), data=str(data), **settings)


@pytest.mark.parametrize(
    ("name", "folder", "rows", "first"),
    [
        ("cola", "CoLA", (8551, 527), ("Our friends won't buy this analysis, let alone the next one we propose.",)),
        ("stsb", "STS-B", (5749, 1500), ("A plane is taking off.", "An air plane is taking off.")),
        ("mnli", "MNLI", (6000, 2000), ("The new rights are nice enough", "Everyone really likes the newest benefits")),
        ("rte", "RTE", (2490, 277), None),
        ("wnli", "WNLI", (565, 70), None),
        ("qqp", "QQP", (16999, 3400), None),
        ("mrpc", "MRPC", (3669, 407), None),
    ],
)
def test_the_official_files(
    data: Path, name: str, folder: str, rows: tuple[int, int], first: tuple[str, ...] | None
) -> None:
    fitted, records = load(task(name, data / "glue" / folder).source.resolve(), ("train", "dev"))
    assert (len(records["train"]), len(records["dev"])) == rows
    assert first is None or records["train"][0].texts == first
    assert all(len(record.texts) == (1 if name == "cola" else 2) for record in records["dev"])
    labels = {record.label for record in records["train"]}
    assert labels == set(getattr(fitted, "labels", labels))


def test_a_quote_in_an_official_file_is_a_character(data: Path) -> None:
    _, records = load(task("mrpc", data / "glue" / "MRPC").source.resolve(), ("train", "dev"))
    texts = Counter(record.texts[0] for split in records.values() for record in split)
    assert texts['Amrozi accused his brother, whom he called "the witness", of deliberately distorting his evidence.']
    lines = (data / "glue" / "MRPC" / "msr_paraphrase_train.txt").read_text("utf-8-sig").splitlines()[1:]
    assert texts == Counter(line.split("\t")[3] for line in lines)


def test_rows_without_all_cells_are_left_out_and_told(data: Path) -> None:
    qqp = task("qqp", data / "glue" / "QQP").source.resolve()
    (told,) = [line for line in findings(qqp) if line.startswith("rows left out: 1,")]
    assert "line 2: 5 cells, but there are 6 columns" in told


@pytest.mark.parametrize(
    ("name", "official", "row", "theirs", "expected"),
    [
        ("cola", "gj04\t1\t\tIt ran.", None, {"sentence": "It ran.", "label": 1}, (("It ran.",), "acceptable")),
        ("sst2", "sentence\tlabel", "fine \t1", {"sentence": "fine ", "label": 1}, (("fine ",), "positive")),
        (
            "mrpc", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", '0\t1\t2\t"a\tb"',
            {"sentence1": '"a', "sentence2": 'b"', "label": 0}, (('"a', 'b"'), "not_equivalent"),
        ),
        (
            "stsb", "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
            "0\tg\tf\ty\t1\tn\tn\ta\tb\t2.500", {"sentence1": "a", "sentence2": "b", "label": 2.5}, (("a", "b"), 2.5),
        ),
        (
            "qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "7\t1\t2\ta\tb\t1",
            {"question1": "a", "question2": "b", "label": 1}, (("a", "b"), "duplicate"),
        ),
        (
            "mnli", "index\tpromptID\tgenre\tsentence1_parse\tsentence1\tsentence2\tlabel1\tgold_label",
            "0\t1\tg\t(x)\ta\tb\tneutral\tcontradiction",
            {"premise": "a", "hypothesis": "b", "label": 2}, (("a", "b"), "contradiction"),
        ),
        (
            "qnli", "index\tquestion\tsentence\tlabel", "0\ta\tb\tnot_entailment",
            {"question": "a", "sentence": "b", "label": 1}, (("a", "b"), "not_entailment"),
        ),
        (
            "rte", "index\tsentence1\tsentence2\tlabel", "0\ta\tb\tentailment",
            {"sentence1": "a", "sentence2": "b", "label": 0}, (("a", "b"), "entailment"),
        ),
        (
            "wnli", "index\tsentence1\tsentence2\tlabel", "0\ta\tb\t1",
            {"sentence1": "a", "sentence2": "b", "label": 1}, (("a", "b"), "entailment"),
        ),
    ],
)  # fmt: skip
def test_official_and_hugging_face_rows_are_the_same_records(
    name: str, official: str, row: str | None, theirs: dict[str, Any], expected: tuple[Any, Any], tmp_path: Path
) -> None:
    tsv, jsonl = tmp_path / "tsv", tmp_path / "jsonl"
    for folder in (tsv, jsonl):
        folder.mkdir()
    matched = "_matched" if name == "mnli" else ""
    (tsv / "train.tsv").write_bytes(f"\ufeff{official}\r\n{row}\r\n".encode() if row else f"{official}\n".encode())
    (jsonl / "train.jsonl").write_text(json.dumps({"idx": 0, **theirs}) + "\n")
    (jsonl / f"test{matched}.jsonl").write_text(json.dumps({"idx": 0, **theirs, "label": -1}) + "\n")
    problems = Problems(heading="")
    for folder in (tsv, jsonl):
        (tsv / f"dev{matched}.tsv").write_bytes((tsv / "train.tsv").read_bytes())
        (jsonl / f"validation{matched}.jsonl").write_bytes((jsonl / "train.jsonl").read_bytes())
        here = task(name, folder).source.resolve()
        for split in ("train", "dev"):
            (record,) = here.source.records(split, problems)
            assert (record.texts, record.label) == expected
        here.check([record], problems)
    (unlabelled,) = task(name, jsonl).source.resolve().source.records("test", problems)
    assert unlabelled.label is None and unlabelled.texts == expected[0]
    # A task that was resolved on one form reads the other.
    (record,) = task(name, tsv).source.resolve().source.switch_data(jsonl, {}).source.records("train", problems)
    assert record.texts == expected[0] and not problems.count


def test_parquet_as_hugging_face_names_it(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {"premise": ["a", "c"], "hypothesis": ["b", "d"], "label": [0, 2], "idx": [0, 1]}
    for split in ("train", "validation_matched", "validation_mismatched"):
        parquet.write_table(pyarrow.table(rows), tmp_path / f"{split}-00000-of-00001.parquet")
    _, records = load(task("mnli", tmp_path).source.resolve(), ("train", "dev"))
    assert [record.label for record in records["train"]] == ["entailment", "contradiction"]
    assert [record.number for record in records["dev"]] == [0, 1, 2, 3]


def test_mnli_scores_matched_and_mismatched_rows_apart() -> None:
    mnli = task("mnli")
    true = ["entailment", "neutral", "neutral", "contradiction"]
    files = ["dev_matched.tsv", "dev_matched.tsv", "dev_mismatched.tsv", "validation_mismatched-00000-of-00001.parquet"]
    records = [
        Record(number=place, texts=("a", "b"), label=label, path=f"glue/MNLI/{file}")
        for place, (label, file) in enumerate(zip(true, files))
    ]
    said = [Prediction(value=value) for value in ("entailment", "entailment", "neutral", "neutral")]
    scores = mnli.metrics(said, records)
    assert (scores["accuracy"], scores["accuracy_mismatched"]) == (0.5, 0.5) and mnli.criterion == "accuracy"
    alone = mnli.metrics(said[2:], records[2:])
    assert alone["accuracy"] == 0.5 and "accuracy_mismatched" not in alone


def test_a_few_bad_rows_of_mnli_are_left_out_and_many_refused(tmp_path: Path) -> None:
    good = [f"{number}\ta\tb\t{('neutral', 'entailment')[number % 2]}" for number in range(300)]
    head = "index\tsentence1\tsentence2\tgold_label"
    (tmp_path / "dev_matched.tsv").write_text("\n".join([head, *good]) + "\n")
    (tmp_path / "train.tsv").write_text(
        "\n".join([head, *good, "300\ta\tb\t-", "301\ta\tb", "302\t\t\tneutral"]) + "\n"
    )
    mnli = task("mnli", tmp_path).source.resolve()
    _, records = load(mnli, ("train", "dev"))
    assert len(records["train"]) == 300
    told = " ".join(findings(mnli))
    assert "rows left out: 3, the first being" in told and "line 302: the row has no label" in told
    (tmp_path / "train.tsv").write_text("\n".join([head, *good[:100], "300\ta\tb\t-", "301\ta\tb"]) + "\n")
    with refusal("unusable-row", "102", "line 103: 3") as error:
        load(mnli, ("train", "dev"))
    assert "missing-label" in error.value.codes
    (tmp_path / "test_matched.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n1\ta\n")
    with refusal("unusable-row", "3", "2"):  # the server wants every row
        load(mnli, ("test",), fit=False)


ONE_LABEL = pytest.mark.filterwarnings("ignore:A single label was found")  # scikit-learn's own
yes_or_no = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30)


@ONE_LABEL
@pytest.mark.parametrize("name", ["cola", "mrpc", "qqp"])
@given(pairs=yes_or_no)
def test_official_scores_equal_scikit_learns(name: str, pairs: list[tuple[bool, bool]]) -> None:
    here = task(name)
    said, true = ([one[place] for one in pairs] for place in (0, 1))
    records = [Record(number=0, texts=("a",), label=here.labels[one]) for one in true]
    scores = here.metrics([Prediction(value=here.labels[one]) for one in said], records)
    assert scores["matthews"] == pytest.approx(matthews_corrcoef(true, said))
    assert scores["accuracy"] == pytest.approx(accuracy_score(true, said))
    assert here.criterion == ("matthews" if name == "cola" else "f1")
    if name != "cola":
        assert scores["f1"] == pytest.approx(f1_score(true, said, zero_division=0))


@ONE_LABEL
@given(pairs=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=30))
def test_matthews_of_three_classes_is_the_diagnostic_sets_r3(pairs: list[tuple[str, str]]) -> None:
    said, true = ([one[place] for one in pairs] for place in (0, 1))
    records = [Record(number=0, texts=("a",), label=one) for one in true]
    scores = Classify(labels=("a", "b", "c")).metrics([Prediction(value=one) for one in said], records)
    assert scores["matthews"] == pytest.approx(matthews_corrcoef(true, said))


def records_of(labels: Sequence[str]) -> list[Record]:
    return [Record(number=place, texts=("a", "b"), label=label) for place, label in enumerate(labels)]


def test_wnli_is_the_majority_class_whatever_the_model_says() -> None:
    import numpy as np

    rows = records_of(["entailment", "not_entailment", "entailment"])
    scores = [np.array([5.0, -5.0])]
    fitted = Wnli().fit(rows)
    said = fitted.decode(scores, rows[0], [])
    assert said.value == "entailment" and said.probabilities == {"not_entailment": 0, "entailment": 1}
    assert Wnli(rule="model").fit(rows).decode(scores, rows[0], []).value == "not_entailment"
    assert Wnli().fit(records_of(["entailment", "not_entailment"])).majority == "not_entailment"


def test_the_diagnostic_set_is_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "diagnostic.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    with refusal("missing-split"):
        task("ax", tmp_path).source.resolve()
    (record,) = task("ax", tmp_path).source.records("test", Problems(heading=""))
    assert record.texts == ("a", "b") and record.label is None


def test_a_column_that_the_user_names_wins_and_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("index\tsentence1\tsentence2\tshort\tlabel\n0\ta\tb\tc\tentailment\n")
    named = task("rte", tmp_path, text="sentence1", pair="short", label="label").source.resolve()
    assert (named.text, named.pair) == ("sentence1", "short")
    with refusal("unknown-column", "longer", "--pair"):
        task("rte", tmp_path, text="sentence1", pair="longer").source.resolve()


def test_one_class_alone_is_nothing_to_learn_though_the_set_has_two(tmp_path: Path) -> None:
    rows = "".join(f"{number}\ta\tb\tentailment\n" for number in range(5))
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("index\tsentence1\tsentence2\tlabel\n" + rows)
    with refusal("nothing-to-learn", "entailment"):
        load(task("rte", tmp_path).source.resolve(), ("train", "dev"))


def test_a_missing_column_is_told_with_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("index\tsentence1\tlabel\n0\ta\tentailment\n")
    (tmp_path / "dev.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    with refusal("unknown-column", "train.tsv", "index", "sentence1", "label"):
        task("rte", tmp_path).source.resolve()
    (tmp_path / "train.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n")
    with refusal("unknown-column", "dev.tsv"):
        load(task("rte", tmp_path).source.resolve(), ("train", "dev"))


@pytest.mark.parametrize("cell", ["NaN", "Infinity", "null", '"4,5"'])
def test_scores_that_are_no_numbers_in_json_lines(cell: str, tmp_path: Path) -> None:
    good = '{"sentence1": "a", "sentence2": "b", "label": 1.5}\n'
    (tmp_path / "train.jsonl").write_text(good + good.replace("1.5", cell) + good.replace("1.5", cell))
    (tmp_path / "validation.jsonl").write_text(good)
    with refusal("nothing-to-learn", "train.jsonl", "line 2", "line 3"):
        load(task("stsb", tmp_path).source.resolve(), ("train", "dev"))


def test_glues_own_files_of_mrpc_go_before_microsofts(tmp_path: Path) -> None:
    rows = "1\t1\t2\ta\tb\n0\t1\t2\ta\tb\n"
    for name in ("train.tsv", "dev.tsv", "msr_paraphrase_train.txt", "msr_paraphrase_test.txt"):
        extra = rows if name.startswith("msr") else ""
        (tmp_path / name).write_text("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + rows + extra)
    _, records = load(task("mrpc", tmp_path).source.resolve(), ("train", "dev", "test"))
    assert {split: len(found) for split, found in records.items()} == {"train": 2, "dev": 2, "test": 4}


def test_sts_b_in_its_first_form_has_rows_with_two_more_cells(tmp_path: Path) -> None:
    row = 'main-captions\tMSRvid\t2012test\t0024\t2.500\tA "girl.\tA boy.'
    for split in ("train", "dev", "test"):
        (tmp_path / f"sts-{split}.tsv").write_text(f"{row}\n{row}\tsource\tlicence\n{row.replace('2.5', '5.0')}\n")
    stsb, records = load(task("stsb", tmp_path).source.resolve(), ("train", "dev"))
    assert [(record.texts, record.label, record.line) for record in records["train"]] == [
        (('A "girl.', "A boy."), 2.5, 1),
        (('A "girl.', "A boy."), 2.5, 2),
        (('A "girl.', "A boy."), 5.0, 3),
    ]
    moved = stsb.source.switch_data(tmp_path / "sts-test.tsv", {})
    assert len(load(moved, ("all",), fit=False)[1]["all"]) == 3
    (tmp_path / "sts-train.tsv").write_text(f"{row}\n{row}\tone more\n{row}\n")
    with refusal("unusable-row", "sts-train.tsv", "2", "8"):
        load(task("stsb", tmp_path).source.resolve(), ("train", "dev"))


def test_rows_in_memory_have_their_set_s_columns() -> None:
    pairs = [{"sentence1": "a", "sentence2": "b", "label": n % 2} for n in range(4)]
    _, records = load(with_data(Mrpc(), pairs).source.resolve(), ("train",))
    assert {record.label for record in records["train"]} == {"equivalent", "not_equivalent"}
    sets = {"train": 3, "validation_matched": 2, "validation_mismatched": 1}
    rows = [{"premise": "a", "hypothesis": "b", "label": n % 3} for n in range(6)]
    task, records = load(
        with_data(Mnli(), {name: rows[:n] for name, n in sets.items()}).source.resolve(), ("train", "dev")
    )
    assert [record.path for record in records["dev"]] == ["validation_matched"] * 2 + ["validation_mismatched"]
    assert task.data == ""


@pytest.mark.parametrize(("rule", "told"), [("majority", False), ("model", True)])
def test_a_rule_has_no_calibration_error(rule: str, told: bool) -> None:
    task = Wnli(rule=rule, majority="entailment")  # type: ignore[arg-type]
    record = Record(number=0, texts=("a", "b"), label="entailment")
    said = Prediction(value="entailment", probabilities={"not_entailment": 0.0, "entailment": 1.0})
    evaluation = Evaluation(task=task, records=[record], predictions=[said], metrics=task.metrics([said], [record]))
    assert any("expected calibration error" in line for line in evaluation.lines()) == told
