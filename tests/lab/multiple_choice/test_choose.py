"""choose and swag: columns of every form, labels of every kind, bad rows with their lines, a sequence a choice."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osbert.analysis.words import token_words
from osbert.data.pack import Packer
from osbert.data.record_loader import EncodedAhead
from osbert.errors import Problems
from osbert.runs.file_options import FileOptions
from osbert.runs.finetune.rows import TaskRows
from osbert.tasks import findings, load
from osbert.tasks.tables import note_long
from osbert_lab.multiple_choice.choose import ChoicePrediction, Choices, Choose, names
from refusals import refusal

SWAG = Choose(
    context=("sent1",),
    choices=("ending0", "ending1", "ending2", "ending3"),
    prefix="sent2",
    label="label",
    counting="0",
)
"""The settings of the data set SWAG."""
HEADER = "sent1,sent2,ending0,ending1,ending2,ending3,label\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "rows.csv", encoding: str = "utf-8", end: str = "\n") -> Path:
        (tmp_path / name).write_bytes(text.replace("\n", end).encode(encoding))
        return tmp_path / name

    return write


def read(path: Path, task: Choose | None = None) -> tuple[Choose, list[Any]]:
    task = dataclasses.replace(task or Choose(), data=str(path)).source.resolve()
    problems = Problems(heading="")
    records = list(task.source.records("all", problems))
    problems.stop_if_any()
    return task, records


def test_swags_official_columns(data: Path) -> None:
    task, records = read(data / "choice" / "swag-sample.csv", SWAG)
    assert len(records) == 11 and task.counting == "0"
    assert records[0].texts[0] == "Students lower their eyes nervously."
    assert records[0].texts[3] == "She walks slowly towards someone." and records[0].label == "2"
    found, same = read(data / "choice" / "swag-sample.csv")
    assert found.prefix == "sent2" and [record.texts for record in same] == [record.texts for record in records]
    _, without = read(data / "choice" / "swag-sample.csv", Choose(context=("sent1",)))
    assert without[0].texts[3] == "walks slowly towards someone."


def test_story_cloze_is_a_two_way_choice(data: Path) -> None:
    task, records = load(Choose(data=str(data / "choice")).source.resolve(), ("train", "dev"))
    assert {split: len(found) for split, found in records.items()} == {"train": 1500, "dev": 371}
    assert task.counting == "1" and {record.label for record in records["dev"]} == {"1", "2"}
    first = records["dev"][0]
    assert first.texts[0].startswith("Tia owned her own bakery. In her bakery,") and len(first.texts) == 3
    assert first.texts[2] == "Tia was relieved." and first.label == "2"
    assert task.description.describe_split(records["dev"]) == "371 rows (2 choices each)"


@pytest.mark.parametrize(("encoding", "end"), [("utf-8", "\n"), ("utf-8-sig", "\r\n")])
def test_as_many_choices_as_a_row_has(write: Callable[..., Path], encoding: str, end: str) -> None:
    text = "question,option a,option b,option c,answer\nq,x,y,,B\nq,x,y,z,c\n"
    task, records = read(write(text, encoding=encoding, end=end))
    assert task.counting == "A" and [len(record.texts) for record in records] == [3, 4]
    assert [record.label for record in records] == ["B", "C"]
    assert task.description.describe_split(records) == "2 rows (2 to 3 choices each)"


@pytest.mark.parametrize("passage", ["article", "context", "premise"])
def test_a_question_about_a_passage_is_read_before_each_choice(write: Callable[..., Path], passage: str) -> None:
    row = {passage: "Ann is in York.", "question": "Where is Ann?", "options": ["Rome", "York"], "answer": "B"}
    task, records = read(write(json.dumps(row), "rows.jsonl"))
    assert records[0].texts == ("Ann is in York.", "Where is Ann? Rome", "Where is Ann? York")
    assert records[0].label == "B" and (task.context, task.prefix) == ((passage,), "question")


def test_json_lines(write: Callable[..., Path]) -> None:
    rows: list[dict[str, Any]] = [
        {"context": "c", "choices": ["x", "y"], "label": 1},
        {"context": "c", "choices": ["x", "y", "z"], "label": "z"},
        {"context": "c", "choices": {"text": ["x", "y"], "label": ["4", "7"]}, "label": "7"},
    ]
    task, records = read(write("\n".join(map(json.dumps, rows)), "rows.jsonl"))
    assert task.counting == "0" and [record.label for record in records] == ["1", "2", "7"]
    assert records[2].names == ("4", "7")


@pytest.mark.parametrize(
    ("labels", "counting"), [((2, 1, 3), "1"), ((1, 2, 0), "0"), ((1, 1, 3), "0"), ((1, 3, 2), "1")]
)
def test_a_label_as_high_as_its_own_rows_choices_tells_how_they_are_counted(
    write: Callable[..., Path], labels: tuple[int, ...], counting: str
) -> None:
    rows = zip((["x", "y"], ["x", "y", "z"], ["x", "y", "z", "w"]), labels)
    lines = [json.dumps({"context": "c", "choices": choices, "label": label}) for choices, label in rows]
    task, _ = read(write("\n".join(lines), "rows.jsonl"))
    assert task.counting == counting
    assert f"the label of the first choice is {counting} (--counting 0, 1, A or text)" in findings(task)


def test_many_labels_that_may_count_from_0_or_1_are_refused_until_counting_says(write: Callable[..., Path]) -> None:
    path = write("context,choice1,choice2,choice3,label\n" + "c,x,y,z,1\nd,x,y,z,2\n" * 5)
    with refusal("ambiguous-label", path, "line 2", "--counting 1"):
        read(path)
    assert read(path, Choose(counting="1"))[0].counting == "1"


def sums(*labels: str) -> str:
    """Return rows whose choices are numbers themselves: 2, 3, 4 and 5."""
    rows = [{"context": "c", "choices": ["2", "3", "4", "5"], "label": label} for label in labels]
    return "\n".join(map(json.dumps, rows))


@pytest.mark.parametrize(
    ("text", "counting", "places"),
    [
        (sums("5", "4", "2"), "text", [3, 2, 0]),  # of five there is no fifth choice
        (sums("1", "4", "2"), "1", [0, 3, 1]),  # none has the text 1
        (sums("0", "3", "2"), "0", [0, 3, 2]),
        ('{"context": "c", "choices": ["1", "2", "3"], "label": 3}\n', "1", [2]),  # both readings mean the same
        ('{"context": "c", "choices": ["A", "B"], "label": "B"}\n', "A", [1]),
        ('{"context": "c", "choices": ["yes", "no"], "label": "no"}\n', "text", [1]),
    ],
)
def test_a_label_that_may_be_a_number_and_a_text_is_decided_by_the_file(
    write: Callable[..., Path], text: str, counting: str, places: list[int]
) -> None:
    task, records = read(write(text, "rows.jsonl"))
    assert task.counting == counting
    assert [record.names.index(record.label) for record in records] == places
    assert any(("texts of choices" in line) == (counting == "text") for line in findings(task)[-1:])


def test_labels_that_cannot_be_told_are_refused_until_counting_says(write: Callable[..., Path]) -> None:
    path = write(sums("4", "3", "2"), "rows.jsonl")
    with refusal("ambiguous-label", "rows.jsonl, line 1", "'4'", "'5'", "3 of 3", "--counting text"):
        read(path)
    for counting, labels in (("text", ["2", "1", "0"]), ("1", ["4", "3", "2"])):
        assert [one.label for one in read(path, Choose(counting=counting))[1]] == labels  # type: ignore[arg-type]
    path = write(sums("1", "4", "5"), "rows.jsonl")  # the last can only be a text, so what is the second?
    with refusal("ambiguous-label", "2", "4"):
        read(path)
    with refusal("unusable-row", "3", "5", "--counting"):
        read(path, Choose(counting="1"))
    with refusal("unusable-row", "1", "4"):
        read(path, Choose(counting="text"))


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (HEADER + "a,b,c,d,e,f,4\na,b,c,d,e,f,0\n", ("unusable-row", "line 2", "'4'", "0, 1, 2, 3")),
        (HEADER + "a,b,c,d,e,f,\n", ("missing-label", "line 2", "label")),
        (HEADER + "a,b,c,d,e,0\n", ("unusable-row", "line 2", "6 cells", "7 columns")),
        (HEADER + "a,b,c,,,,0\n", ("unusable-row", "line 2", "1 choice")),
        (HEADER + "a,b,c,,e,f,0\n", ("unusable-row", "line 2", "choice 2 of 4")),
        (HEADER + ",,,,,,0\n", ("empty-text", "line 2")),
        (HEADER + "a,b,c,d,e,c,0\n", ("unusable-row", "line 2", "'c'", "twice")),
        (HEADER + ",b,c,d,e,f,0\n", ("unusable-row", "line 2", "context")),
        ("sent1,sent2,ending0,ending1,ending2,label\na,b,c,d,e,0\n", ("unknown-column", "'ending3'", "--choices")),
        ("sent1,sent2,ending0,ending1,ending2,ending3\na,b,c,d,e,f\n", ("unknown-column", "'label'", "--label")),
        ("sent2,ending0,ending1,ending2,ending3,label\na,b,c,d,e,f\n", ("unknown-column", "'sent1'", "--context")),
    ],
)
def test_swag_that_cannot_be_used(write: Callable[..., Path], text: str, refused: tuple[str, ...]) -> None:
    with refusal(*refused):
        read(write(text), SWAG)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("a,b,label\nx,y,0\n", ("unknown-column", "--columns.choices NAME")),
        ("context,ending0,ending1\nx,y,z\n", ("unknown-column", "label", "--label NAME")),
        (
            "a,ending0,ending1,label\nx,y,z,0\n",
            ("unknown-column", "context", "--context NAME", "--columns.context NAME"),
        ),
        ('{"context": "c", "choices": "x", "label": 0}\n', ("unusable-row", "line 1", "'choices'")),
        (
            '{"context": "c", "choices": {"text": ["x", "y"], "label": [1, 1]}, "label": 1}\n',
            ("unusable-row", "line 1", "1 different"),
        ),
        (
            '{"context": "c", "choices": ["x", "y"], "label": 0}\n{"context": "c", "label": 0}\n',
            ("unusable-row", "line 2", "'choices'"),
        ),
    ],
)
def test_tables_that_cannot_be_used(write: Callable[..., Path], text: str, refused: tuple[str, ...]) -> None:
    with refusal(*refused):
        read(write(text, "rows.jsonl" if text.startswith("{") else "rows.csv"))


def test_equal_wrong_choices_are_counted(write: Callable[..., Path]) -> None:
    task, records = read(write(HEADER + "a,b,c,d,e,f,0\na,b,c,d,d,f,0\n"), SWAG)
    assert "1, the first being" in task.description.describe_split(records)


def test_one_label_for_all_is_nothing_to_learn(write: Callable[..., Path]) -> None:
    path = write("context,choice1,choice2,label\n" + "c,x,y,1\n" * 9)
    with refusal("nothing-to-learn", "1"):
        load(Choose(data=str(path)).source.resolve(), ("train",))


def test_a_test_file_needs_no_labels(tmp_path: Path) -> None:
    for name, label in (("train", ",label"), ("val", ",label"), ("test", "")):
        rows = "".join(f"a,b,c,d,e,f{label and f',{place}'}\n" for place in (0, 3))
        (tmp_path / f"{name}.csv").write_text(HEADER.replace(",label", label) + rows)
    _, records = load(dataclasses.replace(SWAG, data=str(tmp_path)).source.resolve(), ("train", "dev", "test"))
    assert [record.label for record in records["test"]] == [None, None]
    rows = list(SWAG.source.inputs(tmp_path / "test.csv").rows(Problems(heading="")))
    assert [record.texts[1] for _, record in rows if record] == ["b c", "b c"]


def test_another_file_may_have_other_columns(tmp_path: Path, write: Callable[..., Path]) -> None:
    task, _ = read(write("ctx,ending0,ending1,label\nc,x,y,0\nc,x,y,1\n"))
    path = tmp_path / "new.csv"
    path.write_text("story,choice1,choice2,answer\nc,x,y,1\n")
    moved = task.source.switch_data(path, {})
    assert [record.label for record in moved.source.records("all", Problems(heading=""))] == ["1"]
    path.write_text("a,b,c,d\nc,x,y,2\n")
    columns = {"context": "a", "choices": "b,c", "label": "d", "counting": "1"}
    moved = task.source.switch_data(path, FileOptions(columns=columns, header="yes").as_settings(task))
    assert [record.texts for record in moved.source.records("all", Problems(heading=""))] == [("c", "x", "y")]
    with refusal("unknown-setting", "--question"):
        task.source.switch_data(path, FileOptions(columns={"question": "a"}).as_settings(task))
    with refusal("unknown-setting", "--pair"):
        task.source.switch_data(path, {"pair": "x"})


def test_each_choice_has_words_of_its_own(packer: Packer) -> None:
    words = token_words(Choose(), Choose().record_of(("good", "bad", "bad")), packer)
    assert [word.text for word in words.words] == [0, 1, 2]
    assert [tokens.tolist() for tokens in words.tokens] == [[-1, 0, -1, 1, -1], [-1, 0, -1, 2, -1]]


def test_a_sequence_a_choice_and_one_target(packer: Packer) -> None:
    record = Choices(number=5, texts=("good film", "a play", "bad . " * 9), label="1", names=("0", "1"))
    first, second = Choose().encode(record, packer)
    assert not first.targets and second.targets["choose"].labels.tolist() == [1]
    assert first.record == second.record == 5 and second.truncated == 18 + 2 - 5
    assert packer.tokenizer.tokens(first.ids) == ["[CLS]", "good", "film", "[SEP]", "a", "play", "[SEP]"]


def test_a_context_that_is_cut_counts_once(packer: Packer) -> None:
    """Of 5 pieces the context of 12 keeps 4 before one choice and 3 before the other, which lose none."""
    record = Choices(number=0, texts=("good " * 12, "bad", "bad " * 2), label="1", names=("0", "1"))
    made = Choose().encode(record, packer)
    assert [example.truncated for example in made] == [9, 0] and made[1].targets
    both = Choices(number=0, texts=("good " * 40, "bad " * 40, "bad"), label="1", names=("0", "1"))
    assert [example.truncated for example in Choose().encode(both, packer)] == [37 + 38, 0]
    said = TaskRows(
        task=Choose(),
        packer=packer,
        training=[record] * 2,
        development=[record] * 3,
        encoded=EncodedAhead([made] * 2),
        fingerprint="",
        remarks=(),
    ).truncation
    # 8 tokens, and of the second choice 3 that are not the context's.
    share = f"{9 / (9 + 8 + 3):.1%} of all"
    assert f"train: 2 of 2 rows (100.0%) are longer than 8 tokens; 18 pieces ({share})" in said
    assert f"dev: 3 of 3 rows (100.0%) are longer than 8 tokens; 27 pieces ({share})" in said


def test_what_is_said(packer: Packer) -> None:
    task = Choose(counting="A")
    record = task.record_of(["good film", "a play", "bad", "long"])
    assert record.names == names(3, "A") == ("A", "B", "C")
    said = task.decode([np.array([score]) for score in (0.0, np.log(3), 0.0)], record, [])
    assert isinstance(said, ChoicePrediction) and (said.value, said.choice) == ("B", "bad")
    assert list(said.probabilities.values()) == pytest.approx([0.2, 0.6, 0.2])
    assert said.lines()[:2] == ["B", "   60.00%  B  bad"]
    assert task.metrics([said, said], [Choices(number=0, texts=(), label=label, names=()) for label in "BA"]) == {
        "accuracy": 0.5
    }
    with refusal("wrong-number-of-texts", "2"):
        task.record_of(["a", "b"])


def test_what_does_not_fit_is_cut_as_long_says_or_refused(packer: Packer) -> None:
    """Of 5 pieces 4 are the context's: one from its beginning, three from its end."""
    texts = ("good " * 3 + "film " * 9 + "play", "bad")
    record = Choices(number=0, texts=(*texts, "a"), label="1", names=("0", "1"), path="x.csv", line=3)
    first, second = Choose(long="head+tail").encode(record, packer)
    assert packer.tokenizer.tokens(first.ids) == ["[CLS]", "good", "film", "film", "play", "[SEP]", "bad", "[SEP]"]
    assert (first.truncated, second.truncated) == (9, 0) and second.targets
    assert (
        Choose(long="head+tail").description.unread == "in the middle" and Choose().description.unread == "at the end"
    )
    problems = Problems(heading="")
    note_long(Choose(), [record], packer, problems)
    note_long(Choose(long="error"), [dataclasses.replace(record, texts=("good", "bad", "a"))], packer, problems)
    assert not problems.count
    note_long(Choose(long="error"), [record], packer, problems)
    assert problems.messages[0].startswith(
        "x.csv, line 3: 9 pieces of the context and its choices more than fit into 8"
    )
    with pytest.raises(ValueError, match="long = window cannot be used"):
        Choose(long="window")


def test_the_temperature_of_choices_of_several_numbers_is_that_of_least_cross_entropy() -> None:
    rng, said, records, scores = np.random.default_rng(0), [], [], []
    for number in range(120):
        count = 2 + number % 4
        truth = rng.normal(size=count)
        right = rng.choice(count, p=np.exp(truth) / np.exp(truth).sum())
        record = Choices(number=number, texts=("c", *"vwxyz"[:count]), label=str(right), names=names(count, "0"))
        scores.append(3 * truth)  # three times as sure as it should be
        records.append(record)
        said.append(Choose().decode([np.array([one]) for one in 3 * truth], record, []))
    task, found = Choose().tune(said, records)
    looked_at = np.linspace(1, 6, 5001)
    losses = np.zeros(len(looked_at))
    for row, record in zip(scores, records):
        targets = np.full(len(row), 1 / 122 / (len(row) - 1))
        targets[int(record.label)] = 121 / 122
        scaled = row / looked_at[:, None]
        losses -= ((scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))) * targets).sum(axis=1)
    assert task.temperature == pytest.approx(looked_at[int(losses.argmin())], abs=1e-2)
    assert found and found.error_after < found.error_before and np.isfinite(found.error_after)
    said = [task.decode([np.array([one]) for one in row], one, []) for row, one in zip(scores, records)]
    _, again = Choose().tune(said, records)
    assert again and again.temperature == pytest.approx(1, abs=1e-2)
    assert Choose(temperature=2).tune(said, records) == (Choose(temperature=2), None)
    with pytest.raises(ValueError, match="temperature must be above 0"):
        Choose(temperature=-1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("context,choice1,choice2,label\nc,x,y,1\n", "the labels in 'label' are not read"),
        ("context,choice1,choice2\nc,x,y\n", "no label"),
    ],
)
def test_a_file_to_predict_tells_that_its_labels_are_not_read(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "new.csv").write_text(text)
    inputs = Choose().source.inputs(tmp_path / "new.csv")
    assert inputs.describe.endswith(told)
    assert [record.label for _, record in inputs.rows(Problems(heading="")) if record] == [None]


def test_rows_without_a_label_are_refused_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("context,choice1,choice2,label\n" + "c,x,y,1\nc,x,y,\nc,x,y,2\nc,x,y, \n" * 3)
    unlabelled = [3, 5, 7, 9, 11, 13]
    with refusal("missing-label") as error:
        load(Choose(data=str(path)).source.resolve(), ("train", "dev"))
    told = str(error.value).splitlines()[1:]
    assert [line.partition(": ")[0] for line in told] == [f"  - {path}, line {line}" for line in unlabelled]
    task = Choose(data=str(path), skip_unlabelled=True, held_out=0.3).source.resolve()
    _, records = load(task, ("train", "dev"))
    assert sorted(record.line for split in records.values() for record in split) == [2, 4, 6, 8, 10, 12]
