"""What may be wrong with the data of a fine-tuning: what is reported, when, and what is not."""

from __future__ import annotations

import random
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from osbert.data.pack import Packer
from osbert.errors import differ_in_one_letter
from osbert.runs.contract import Notice
from osbert.runs.finetune import records as warnings
from osbert.runs.finetune.records import Splits, read_tasks, report_tasks, slips
from osbert.runs.finetune.rows import TaskRows
from osbert.tasks import Record, Task
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.tag import Tag
from osbert.text.tokenizer import SPECIALS, Tokenizer
from refusals import refusal

Rows = list[tuple[Any, ...]]


def rows(*labels: str, first: int = 0, each: int = 20) -> Rows:
    """Return rows of different texts, so many of each label."""
    return [(f"{label} text {number}", label) for number in range(first, first + each) for label in labels]


def report(task: str | Task, data: Any, **settings: Any) -> tuple[list[Notice], Splits]:
    """Return what is reported of a task's data, and the records."""
    events: list[Notice] = []
    plan, records = read_tasks([task], settings, model=Path("none"), data=data, watch=events.append)
    report_tasks(plan.tasks, records, events.append)
    return events, records[0]


def read(task: str | Task, data: Any, **settings: Any) -> tuple[list[str], Splits]:
    """Return the warnings about a task's data, which come after all other notices, and the records."""
    events, records = report(task, data, **settings)
    levels = [event.warning for event in events]
    assert levels == sorted(levels)
    return [event.text for event in events if event.warning], records


def test_data_without_faults_have_no_warning() -> None:
    assert read("classify", {"train": rows("neg", "pos"), "dev": rows("neg", "pos", first=20)})[0] == []
    assert read("classify", rows("neg", "pos"))[0] == []
    scored = [(text, str(number)) for number, (text, _) in enumerate(rows("a", "b"))]
    assert read("regress", {"train": scored, "dev": [("another", "3")]})[0] == []


def test_texts_of_both_splits_are_counted_and_can_be_left_out() -> None:
    train = rows("neg", "pos")
    dev = [*rows("neg", "pos", first=20, each=2), ("Neg  text 3 ", "neg"), ("neg text 4", "pos")]
    (said,), _ = read("classify", {"train": train, "dev": dev})
    assert "2 of 6" in said and "'Neg  text 3 '" in said and "dev, row 5; train, row 7" in said
    assert "1 of them with another label" in said and "--deduplicate" in said
    (broken,), _ = read("classify", {"train": [*train, ("a\nline", "pos")], "dev": [("a\nline", "neg")]})
    assert "'a line'" in broken
    warnings, records = read("classify", {"train": train, "dev": dev}, deduplicate=True)
    assert warnings == [] and (len(records["train"]), len(records["dev"])) == (38, 6)
    with refusal("no-data", "--deduplicate"):
        read("classify", {"train": rows("neg", "pos"), "dev": rows("neg", "pos")}, deduplicate=True)


def test_few_texts_of_both_splits_are_reported_without_a_warning() -> None:
    data = {"train": rows("neg", "pos"), "dev": [*rows("neg", "pos", first=20, each=26), ("neg text 4", "neg")]}
    events, _ = report("classify", data)
    assert not any(event.warning for event in events)
    assert "1 of 53" in events[-1].text and "'neg text 4'" in events[-1].text


def test_labels_with_quotes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "spaced.csv"
    path.write_text("text, label\n" + "".join(f'"{text}", "{label}"\n' for text, label in rows("neg", "pos")))
    (line,), _ = read("classify", path)
    assert '"neg"' in line and "spaced.csv, line 2" in line


def test_texts_that_the_vocabulary_lacks_are_counted() -> None:
    packer = Packer(tokenizer=Tokenizer([*SPECIALS, "good"]), length=20)

    def unknown(*texts: str) -> str:
        records = [Record(number=number, texts=(text,), label="x") for number, text in enumerate(texts)]
        splits = {"train": records, "dev": []}
        return TaskRows.of(Classify(labels=("x", "y")), splits, packer).unknown

    assert not unknown("good", "good bad") and not unknown()
    assert unknown("ዘመን", "good", "good ዘመን bad").startswith("2 of the first 3 ")


def test_pairs_are_the_same_where_both_texts_are() -> None:
    train = [("a", f"b {number}", "xy"[number % 2]) for number in range(40)]
    assert read("classify", {"train": train, "dev": [("a", "c", "x")]})[0] == []
    (said,), _ = read("classify", {"train": train, "dev": [("a", "b 3", "x")]})
    assert "1 of 1" in said and "'a | b 3'" in said and "swapped" not in said
    (said,), _ = read("classify", {"train": train, "dev": [("b 3", "A", "x"), ("a", "b 4", "x")]})
    assert "2 of 2" in said and "1 of them with its texts swapped" in said
    records = read("classify", {"train": train, "dev": [("b 3", "a", "x")]}, deduplicate=True)[1]
    assert len(records["train"]) == len(train) - 1


def test_labels_that_may_be_one_and_labels_of_one_row() -> None:
    train = [*rows("positive", "negative"), ("a slip", "postive"), ("another", "Positive"), ("a third", "Positive")]
    warnings, _ = read("classify", {"train": train, "dev": rows("negative", first=20)})
    alike, single = warnings
    assert "'postive' (1 row, first: train, row 41) and 'positive' (20)" in alike
    assert "'Positive' (2 rows, first: train, row 42) and 'positive' (20)" in alike
    assert "one label" in single and "'postive' (train, row 41)" in single


@pytest.mark.parametrize(
    "counts",
    [
        {"neg": 900, "pos": 1},
        {"B": 900, "C": 1},
        {"spam": 900, "ham": 2},
        {"NNP": 900, "NNPS": 2, "WP": 900, "WP$": 1, "PRP": 300, "PRP$": 2},
        {"nsubj": 9000, "csubj": 30, "typical": 900, "atypical": 3},
        {"type 1": 900, "type 2": 2, "class10": 900, "class11": 1},
        {"country": 500, "county": 30},
        {"C": 900, "C++": 3, "C#": 2, "c": 1},
        {"1": 500, "-1": 3, "1-2": 2, "12": 1},
    ],
)
def test_labels_that_are_two(counts: dict[str, int]) -> None:
    assert slips(counts) == []


@pytest.mark.parametrize(
    ("rare", "usual"),
    [
        ("Positive", "positive"), ("not spam", "not_spam"), ("not  spam", "not spam"), ("notspam", "not-spam"),
        ("postive", "positive"), ("positiive", "positive"), ("psoitive", "positive"), ("positvie", "positive"),
        ("ＰＯＳ", "pos"), ("ORG", "org"), ("1.0", "1"), ("2", "2.00"), ("po\u200bs", "pos"),
        ("cafe\u0301", "caf\u00e9"), ("pos.", "pos"),
    ],
)  # fmt: skip
def test_labels_that_may_be_one(rare: str, usual: str) -> None:
    assert slips({usual: 60, "other": 60, rare: 3}) == [(rare, usual)]


def test_an_unknown_label_in_another_spelling_is_named() -> None:
    data = {"train": rows("0", "1"), "dev": rows("0.0", "1.0", first=20, each=500)}
    with refusal("unknown-label", "'0.0'", "'0'", "'1.0'", "'1'"):
        read("classify", data)


def test_labels_that_stand_for_a_missing_one_are_named() -> None:
    warnings, _ = read("classify", rows("neg", "pos", "NaN", "none", "\\N"))
    assert len(warnings) == 2 and "'NaN' (18 rows, first: row 3)" in warnings[0] and "'\\N'" in warnings[1]


@pytest.mark.parametrize(("number", "named"), [("-999", True), ("9999.0", True), ("-12", False), ("11", False)])
@pytest.mark.parametrize("split", ["train", "dev"])
def test_numbers_that_stand_for_a_missing_one_are_named(number: str, named: bool, split: str) -> None:
    scored = {name: [(f"{name} text {row}", f"{row % 5}.5") for row in range(40)] for name in ("train", "dev")}
    scored[split].append(("one more", number))
    warnings, _ = read("regress", scored)
    assert len(warnings) == named and all(f"({split}, row 41)" in line and "1 row has" in line for line in warnings)


def test_nines_among_numbers_of_their_size_are_numbers() -> None:
    scored = [(f"text {row}", str(80 + row)) for row in range(40)]
    assert read("regress", {"train": scored, "dev": [("another", "99")]})[0] == []


def test_minus_one_is_no_label_beside_others_that_count_from_0() -> None:
    dev = rows("0", "1", first=200)
    for labels, named in (("012", True), ("01", True), ("12", False), ("0", False)):
        train = [*rows(*labels), ("a text without a label", "-1")]
        warnings = read("classify", {"train": train, "dev": [row for row in dev if row[1] in labels] or train})[0]
        assert any("'-1' (1 row" in line and "missing" in line for line in warnings) == named
    assert read("classify", {"train": rows("-1", "0", "1"), "dev": dev})[0] == []
    assert "'-1.0'" in read("classify", {"train": rows("-1.0", "0.0", "1.0", "2.0"), "dev": [("a", "0.0")]})[0][0]


def test_a_problem_of_both_splits_is_listed_once() -> None:
    with refusal("nothing-to-learn") as raised:
        read("regress", [("a", 1), ("b", 1), ("c", 1)])
    assert str(raised.value).count("there is nothing to learn") == 1


MISREAD = ["caf\u00c3\u00a9", "it\u00e2\u20ac\u2122s", "caf\ufffd", "b'text'", "c\0a\0f\0", "caf\ud83d"]


@pytest.mark.parametrize("text", [*MISREAD, "nan", " NULL ", "None", "#VALUE!"])
def test_texts_that_were_wrongly_read_are_named(text: str) -> None:
    (line,), _ = read("classify", {"train": [*rows("neg", "pos"), (text, "neg")], "dev": rows("neg", first=20)})
    assert "1 training row" in line and "train, row 41" in line


def test_texts_with_several_labels_are_counted() -> None:
    twice = [("The same", "neg"), ("the  same", "pos")]
    (line,), _ = read("classify", {"train": [*rows("neg", "pos"), *twice], "dev": rows("neg", first=20)})
    assert "2 training rows" in line and "train, row 41" in line
    same = [("The same", "neg"), ("the same", "neg")]
    assert read("classify", {"train": [*rows("neg", "pos"), *same], "dev": rows("neg", first=20)})[0] == []


def test_swapped_pairs_may_have_another_label() -> None:
    names = [f"text {number}" for number in range(21)]
    forward = [(first, second, "entails") for first, second in pairwise(names)]
    backward = [(second, first, "neutral") for first, second, _ in forward]
    dev = [("another", "pair", "neutral"), ("a further", "pair", "entails")]
    assert read("classify", {"train": [*forward, *backward], "dev": dev})[0] == []


def test_plus_and_minus_are_labels() -> None:
    assert read("classify", {"train": rows("+", "-"), "dev": rows("+", "-", first=20)})[0] == []
    assert "'-'" in read("classify", {"train": rows("pos", "-"), "dev": rows("pos", "-", first=20)})[0][0]


def test_the_range_of_numbers_is_shown_for_each_split() -> None:
    scored = [(text, str(number / 2)) for number, (text, _) in enumerate(rows("a", "b"))]
    events, _ = report("regress", {"train": scored, "dev": [("c", "3")]})
    assert {"train: 40 rows (0 to 19.5)", "dev: 1 row"} <= {event.text for event in events}


def test_texts_with_accents_have_no_warning_and_html_entities_a_notice() -> None:
    texts = ("voil\u00e0, \u00e2ge, \u00c2GE \u00e9t\u00e9", "S\u00c3O, \u201cN\u00c3O\u201d", "Tom &amp; Co")
    data = {"train": [*rows("neg", "pos"), *((text, "neg") for text in texts)], "dev": rows("neg", "pos", first=20)}
    events, _ = report("classify", data)
    assert not any(event.warning for event in events)
    assert any("HTML entities" in event.text and "train, row 43" in event.text for event in events)


def test_labels_that_no_development_row_has_are_named() -> None:
    events, _ = report("classify", rows("a", "b", "c", each=3))
    assert "dev: none of them has a, c" in [event.text for event in events]


def test_several_labels_and_entities_are_labels_too() -> None:
    train = [{"text": f"text {number}", "labels": ["art", "war"][: 1 + number % 2]} for number in range(40)]
    train.append({"text": "one", "labels": ["Art", "peace"]})
    warnings, _ = read("multilabel", {"train": train, "dev": [{"text": "new", "labels": ["war"]}]})
    assert "'Art'" in warnings[0] and "'art' (40)" in warnings[0] and "'peace'" in warnings[1]
    marked = [(["Ann", "saw", f"{number}"], ["B-PERSON", "O", "O"]) for number in range(40)]
    marked += [(["Bob", "left"], ["B-PERSN", "O"])]
    warnings, _ = read("ner", {"train": marked, "dev": [(["Eve", "came"], ["B-PERSON", "O"])]})
    assert "'PERSN' (1 row" in warnings[0] and "'PERSON' (40)" in warnings[0]


def test_few_rows_count_as_what_they_hold() -> None:
    warnings, _ = read("classify", {"train": rows("neg", "pos", each=2)[:3], "dev": rows("neg", first=9, each=2)})
    assert "training has only 3 rows" in warnings[0] and "16" in warnings[0]
    sentences = [(["Ann", f"{number}"], ["B-PER", "O"]) for number in range(3)]
    data = {"train": sentences, "dev": [(["Eve"], ["B-PER"])]}
    assert "training has only 3 rows" in read(Tag(context="document"), data)[0][0]


def test_warnings_of_several_tasks_come_together_with_their_names(tmp_path: Path) -> None:
    from tiny_runs import write_run

    encoder = write_run(tmp_path / "encoder", None)
    events: list[Notice] = []
    slip = [*rows("film"), *rows("Film", first=20), *rows("other")]
    data = {"classify": {"train": slip, "dev": rows("other", first=20)}, "ner": tagged()}
    plan, records = read_tasks([Classify(), "ner"], {}, model=encoder, data=data, watch=events.append)
    report_tasks(plan.tasks, records, events.append)
    assert plan.paths == ("classify", "tag")
    said = [event.text for event in events if event.warning]
    assert [text.partition(":")[0] for text in said] == ["classify", "tag"]
    assert events[-2:] == [event for event in events if event.warning]


def tagged() -> dict[str, Rows]:
    """Return tagged texts, one of which is in both splits."""
    train = [(["Ann", "saw", f"{number}"], ["B-PER", "O", "O"]) for number in range(20)]
    return {"train": train, "dev": train[:1]}


def test_what_is_learnt_from_no_row_is_counted(tmp_path: Path) -> None:
    record = Record(number=0, texts=("a",), label="x", remark="mended", line=3, path="a.csv")
    from osbert.runs.finetune.records import Overlap, data_warnings, record_remarks

    records = {"train": [record], "dev": []}
    assert [*record_remarks(Classify(), records)] == ["a.csv, line 3: mended"]
    assert "1 record was corrected" in [*data_warnings(Classify(labels=("x", "y")), records, Overlap())][-1]


def every_pair(counts: dict[str, int]) -> set[tuple[str, str]]:
    """Return the pairs of names that `slips` looks for, by comparing all with all."""
    found = set()
    for first, second in combinations(counts, 2):
        rare, usual = sorted((first, second), key=lambda name: counts[name])
        alike = rare[0] == usual[0] and max(len(rare), len(usual)) >= 5 and differ_in_one_letter(rare, usual)
        digits = [[letter for letter in name if letter.isdigit()] for name in (rare, usual)]
        if alike and digits[0] == digits[1] and counts[usual] >= 20 * counts[rare]:
            found.add((rare, usual))
    return found


def test_slips_are_those_of_all_pairs() -> None:
    rng = random.Random(0)
    names = ["".join(rng.choice("aab1") for _ in range(rng.randrange(1, 8))) for _ in range(400)]
    counts = {name: rng.choice((1, 2, 19, 20, 40)) for name in names}
    found = slips(counts)
    assert len(found) == len({*found}) > 50
    assert {*found} == every_pair(counts)


def test_of_many_classes_few_pairs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr(warnings, "differ_in_one_letter", lambda *pair: compared.append(pair))
    rng = random.Random(0)
    words = ["".join(rng.choice("abcdefgh") for _ in range(6)) for _ in range(200)]
    names = {f"{first} {rng.choice(words)}": rng.choice((1, 20)) for first in words for _ in range(30)}
    slips(names)
    slips({f"category {number}": 20 if number % 2 else 1 for number in range(5_000)})
    slips({f"第{chr(0x4E00 + number)}类的问题": 20 if number % 2 else 1 for number in range(5_000)})
    assert len(compared) < len(names)
