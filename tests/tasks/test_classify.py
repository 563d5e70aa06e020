"""classify: labels learnt and checked, targets, weights, predictions, and scores equal to scikit-learn's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, cohen_kappa_score, confusion_matrix, f1_score, matthews_corrcoef
from sklearn.utils import compute_class_weight

from osbert.data.batch import collate
from osbert.data.pack import Packer
from osbert.errors import Problems
from osbert.evaluation.score import class_scores, classes_left_out, constant_answer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.tasks import Prediction, Record, findings, load
from osbert.tasks.kinds import classify
from osbert.tasks.kinds.classify import Classify, confusion
from osbert.tasks.kinds.multilabel.prediction import LabelsPrediction
from refusals import refusal


def records(labels: Sequence[str]) -> list[Record]:
    return [Record(number=number, texts=("good film",), label=label) for number, label in enumerate(labels)]


def table(folder: Path, name: str, rows: Sequence[tuple[str, ...]], header: str = "text,label") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return path


def test_labels_are_learnt_in_sorted_order() -> None:
    task = Classify().fit(records(["pos", "neg", "pos"]))
    assert task.labels == ("neg", "pos") and task.weights == ()


def test_balanced_weights_make_every_class_weigh_the_same() -> None:
    task = Classify(class_weights="balanced").fit(records(["a"] * 6 + ["b"] * 2 + ["c"]))
    assert task.weights == pytest.approx((0.5, 1.5, 3.0))
    assert task.criterion == "macro_f1" and Classify().criterion == "accuracy"


@given(labels=st.lists(st.sampled_from("abc"), min_size=2).filter(lambda found: len({*found}) > 1))
def test_balanced_weights_equal_scikit_learns(labels: list[str]) -> None:
    names = sorted({*labels})
    expected = compute_class_weight("balanced", classes=np.array(names), y=np.array(labels))
    assert Classify(class_weights="balanced").fit(records(labels)).weights == pytest.approx(expected.tolist())


def test_ordered_labels_keep_their_order_and_are_scored_by_it() -> None:
    order = ("bad", "fair", "good", "great")
    task = Classify(ordered=order).fit(records(["good", "bad", "fair"]))
    assert task.labels == order and task.criterion == "kappa"
    rng = np.random.default_rng(0)
    said, true = ([order[place] for place in rng.integers(0, 4, 200)] for _ in range(2))
    scores = task.metrics([Prediction(value=value) for value in said], records(true))
    assert scores["kappa"] == pytest.approx(cohen_kappa_score(said, true, weights="quadratic", labels=order))
    places = [abs(order.index(one) - order.index(other)) for one, other in zip(said, true)]
    assert scores["distance"] == pytest.approx(np.mean(places))
    same = task.metrics([Prediction(value="bad")] * 2, records(["bad", "bad"]))
    assert (same["kappa"], same["distance"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    "settings",
    [
        {"focal": 2.0},
        {"label_smoothing": 0.1},
        {"labels": ("good", "bad")},
        {"ordered": ("bad", "bad")},
        {"robust": 0.7},
    ],
)
def test_what_ordered_labels_do_not_go_with(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="order"):
        Classify(**{"ordered": ("bad", "good"), **settings})


def test_an_example_carries_its_label_and_weight(packer: Packer) -> None:
    task = Classify(labels=("neg", "pos"), weights=(0.5, 2.0))
    (example,) = task.encode(Record(number=7, texts=("Good plays",), label="pos"), packer)
    assert packer.tokenizer.tokens(example.ids) == ["[CLS]", "good", "play", "##s", "[SEP]"]
    assert example.words.tolist() == [False, True, True, False, False]
    assert example.targets["classify"].labels.tolist() == [1]
    assert example.targets["classify"].weights.tolist() == [2.0]
    assert example.record == 7 and example.truncated == 0


def test_a_pair_and_a_long_text(packer: Packer) -> None:
    (pair,) = Classify().encode(Record(number=0, texts=("good film", "bad play")), packer)
    assert pair.segments.tolist() == [0, 0, 0, 0, 1, 1, 1] and not pair.targets
    (long,) = Classify().encode(Record(number=0, texts=("good " * 50,)), packer)
    assert len(long) == 8 and long.truncated == 44
    with refusal("wrong-number-of-texts", "3"):
        Classify().encode(Record(number=0, texts=("a", "a", "a")), packer)


def test_decoding_is_a_softmax_with_the_labels_names() -> None:
    task = Classify(labels=("a", "b", "c"))
    prediction = task.decode([np.array([1.0, 3.0, -2.0], np.float32)], records("b")[0], [])
    expected = np.exp([1, 3, -2]) / np.exp([1, 3, -2]).sum()
    assert prediction.value == "b"
    assert list(prediction.probabilities) == ["a", "b", "c"]
    assert list(prediction.probabilities.values()) == pytest.approx(expected.tolist())
    huge = task.decode([np.array([1e4, 0.0, -1e4], np.float32)], records("a")[0], [])
    assert sum(huge.probabilities.values()) == pytest.approx(1)


labels = st.sampled_from(["a", "b", "c", "d"])


@given(pairs=st.lists(st.tuples(labels, labels), min_size=1, max_size=40))
def test_scores_equal_scikit_learns(pairs: list[tuple[str, str]]) -> None:
    names = ["a", "b", "c", "d"]
    said, true = [one for one, _ in pairs], [one for _, one in pairs]
    task = Classify(labels=tuple(names))
    scores = task.metrics([Prediction(value=value) for value in said], records(true))
    met = sorted({*said, *true})  # scikit-learn's own classes where no labels are given
    each = dict(zip(met, f1_score(true, said, average=None, zero_division=0)))
    assert scores["accuracy"] == pytest.approx(accuracy_score(true, said))
    assert scores["macro_f1"] == pytest.approx(f1_score(true, said, average="macro", zero_division=0))
    assert scores["matthews"] == pytest.approx(matthews_corrcoef(true, said) if len(met) > 1 else 0)
    assert {name: scores.get(f"f1/{name}") for name in names} == {name: pytest.approx(each.get(name)) for name in names}
    assert list(class_scores(task, scores)) == names
    assert {name for name, shown in class_scores(task, scores).items() if shown == "-"} == {*names} - {*met}
    assert (confusion(said, true, names) == confusion_matrix(true, said, labels=names)).all()


def test_the_positive_class_has_a_score_where_it_is_absent() -> None:
    class Rare(Classify):
        positive = "yes"

    scores = Rare(labels=("no", "yes")).metrics([Prediction(value="no")], records(["no"]))
    assert scores == {"f1": 0, "accuracy": 1, "macro_f1": 1, "matthews": 0, "f1/no": 1}


def test_a_label_that_is_nan_is_empty_and_no_class(tmp_path: Path) -> None:
    rows = ['{"text": "good", "label": 1.0}', '{"text": "bad", "label": 0.0}', '{"text": "so", "label": NaN}']
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "dev.jsonl").write_text("\n".join(rows[:2]) + "\n")
    with refusal("missing-label", "train.jsonl", "3"):
        load(Classify(data=str(tmp_path)), ("train", "dev"))


def test_every_problem_of_every_file_is_told_before_training(tmp_path: Path) -> None:
    table(tmp_path, "train.csv", [("good", "pos"), ("bad", "neg"), ("", "pos"), ("a", "b", "c"), ("fine", "")])
    table(tmp_path, "dev.csv", [("good", "pos"), ("bad", "negg"), ("so", "other")])
    train = ("train.csv, line 4: ", "--skip-empty", "train.csv, line 5: 3", "train.csv, line 6: ", "--skip-unlabelled")
    dev = ("dev.csv, line 3: ", "'negg'", "neg, pos", "'neg'", "dev.csv, line 4: ", "'other'")
    with refusal("empty-text", *train, *dev) as error:
        load(Classify(data=str(tmp_path)), ("train", "dev"))
    assert error.value.codes == ("empty-text", "unusable-row", "missing-label", "unknown-label")


def test_a_training_file_that_fails_makes_no_label_unknown(tmp_path: Path) -> None:
    table(tmp_path, "train.csv", [("", "pos"), ("", "neg")])
    table(tmp_path, "dev.csv", [("good", "pos"), ("bad", "neg")])
    with refusal("empty-text", "train.csv, line 2: ") as error:
        load(Classify(data=str(tmp_path)), ("train", "dev"))
    assert "unknown-label" not in error.value.codes


def test_no_rows_for_development_and_what_to_do(tmp_path: Path) -> None:
    path = table(tmp_path, "data.csv", [("good", "pos"), ("bad", "neg")])
    with refusal("no-data", "--held-out", "--dev") as error:
        load(Classify(data=str(path)), ("train", "dev"))
    assert "file has no rows" not in str(error.value)  # there is none for development
    (tmp_path / "dev.csv").write_text("text,label\n")
    table(tmp_path, "train.csv", [("good", "pos"), ("bad", "neg")])
    path.unlink()
    with refusal("no-data", "file has no rows") as error:
        load(Classify(data=str(tmp_path)), ("train", "dev"))
    assert "--held-out" not in str(error.value)


def test_weights_are_one_a_label() -> None:
    rows = records(["a", "b", "a"])
    assert Classify(weights=(1.0, 3.0)).fit(rows).weights == (1.0, 3.0)
    with refusal("wrong-number-of-values", "3", "2"):
        Classify(weights=(1.0, 3.0, 1.0)).fit(rows)
    with refusal("options-exclude-each-other"):
        Classify(weights=(1.0, 3.0), class_weights="balanced").fit(rows)
    with pytest.raises(ValueError, match="above 0"):
        Classify(weights=(1.0, -3.0))
    given = Classify(class_weights="b=3").fit(rows)
    assert given.weights == (1.0, 3.0) and given.criterion == "accuracy"
    with refusal("unknown-label", "'bb'", "'b'"):
        Classify(class_weights="bb=3").fit(rows)
    with refusal("options-exclude-each-other", "b=3"):
        Classify(weights=(1.0, 3.0), class_weights="b=3").fit(rows)
    for wrong in ("blanced", "a=x", "=3", "", "a=1,,b=2", "a=2, a=3"):
        with pytest.raises(ValueError, match="class_weights"):
            Classify(class_weights=wrong)
    with pytest.raises(ValueError, match="above 0"):
        Classify(class_weights="a=0")
    with pytest.raises(ValueError, match="length must be at least 5"):
        Classify(length=4)


def test_settings_of_the_loss_that_cannot_be_are_refused() -> None:
    for wrong in (-0.1, 1.0):
        with pytest.raises(ValueError, match="label_smoothing"):
            Classify(label_smoothing=wrong)
    with pytest.raises(ValueError, match="focal"):
        Classify(focal=-1.0)
    with pytest.raises(ValueError, match="focal and label_smoothing"):
        Classify(focal=2.0, label_smoothing=0.1)


@pytest.mark.parametrize("settings", [{"label_smoothing": 0.2}, {"focal": 2.0}])
def test_settings_of_the_loss_reach_the_head(packer: Packer, settings: dict[str, float]) -> None:
    rows = [Record(number=place, texts=("good film",), label=label) for place, label in enumerate("aab")]
    losses = []
    for task in (Classify(labels=("a", "b")), Classify(labels=("a", "b"), **settings)):
        torch.manual_seed(0)
        backbone = Architecture(layers=1, heads=2, width=16, vocabulary=len(packer.tokenizer), length=8).build()
        learner = Learner(backbone, {"classify": task.head(backbone)}).eval()
        learner.heads["classify"].get_parameter("linear.bias").data.copy_(torch.tensor([1.0, -1.0]))
        batch = collate([example for row in rows for example in task.encode(row, packer)])
        losses.append(learner(batch)["classify"])
    assert abs(losses[1].total.item() - losses[0].total.item()) > 0.05 and losses[1].count == 3


def test_one_class_is_nothing_to_learn(tmp_path: Path) -> None:
    path = table(tmp_path, "data.csv", [("good", "pos")] * 30)
    with refusal("nothing-to-learn", "pos"):
        load(Classify(data=str(path)), ("train", "dev"))


def test_one_file_is_divided_the_same_way_every_time(tmp_path: Path) -> None:
    path = table(tmp_path, "data.csv", [(f"text {n}", "pos" if n % 4 else "neg") for n in range(100)])
    _, first = load(Classify(data=str(path)), ("train", "dev"))
    _, second = load(Classify(data=str(path)), ("train", "dev"))
    assert first == second and len(first["train"]) == 90
    assert sorted(record.label for record in first["dev"]) == ["neg"] * 2 + ["pos"] * 8
    texts = {record.texts for split in first.values() for record in split}
    assert len(texts) == 100
    assert [record.number for record in first["dev"]] == list(range(10))
    with pytest.raises(ValueError, match="held_out must be a fraction"):
        Classify(held_out=1.5)


def test_problems_of_a_divided_file_are_told_once(tmp_path: Path) -> None:
    path = table(tmp_path, "data.csv", [("x", "a"), ("y", "b"), (" \u200b \u200b", "a"), ("z", "b")])
    with refusal("empty-text") as error:
        load(Classify(data=str(path)), ("train", "dev"))
    assert str(error.value).count("line 4: ") == 1
    task, kept = load(Classify(data=str(path), skip_empty=True), ("train", "dev"))
    assert sum(map(len, kept.values())) == 3
    assert [line for line in findings(task) if "left out" in line] == [
        f"rows left out: 1, the first being {path}, line 4: the text is empty."
    ]


@pytest.mark.parametrize(("unlabelled", "told"), [(4, 0), (5, 1)])
def test_a_file_of_which_most_rows_are_left_out_is_told(tmp_path: Path, unlabelled: int, told: int) -> None:
    rows = [("x", "a"), ("y", "b"), ("z", "a"), ("w", "b"), *[("v", "")] * unlabelled]
    path = table(tmp_path, "data.csv", rows)
    task = Classify(data=str(path), skip_unlabelled=True).source.resolve()
    found = [line for line in findings(task) if f"{unlabelled} of {len(rows)}; 4 are kept" in line]
    assert len(found) == told and all(f"{unlabelled} have no label in the column 'label'" in line for line in found)


@pytest.mark.parametrize(
    ("labels", "code"), [(["a"], "nothing-to-learn"), (["a", "a"], "nothing-to-learn"), ([], "no-data")]
)
def test_too_few_labels_are_refused_whatever_is_left_out(tmp_path: Path, labels: list[str], code: str) -> None:
    path = table(tmp_path, "data.csv", [*(("x", label) for label in labels), *[("v", "")] * 5])
    with refusal(code, "data.csv", *labels):
        load(Classify(data=str(path), skip_unlabelled=True).source.resolve(), ("train", "dev"))


def test_a_pair_with_an_empty_text_is_asked_but_not_learnt_from(tmp_path: Path) -> None:
    rows = [("x", "y", "a"), ("z", "", "b"), ("v", "w", "b"), ("q", "r", "a")]
    path = table(tmp_path, "data.csv", rows, header="sentence1,sentence2,label")
    with refusal("empty-text", "3", "--skip"):
        load(Classify(data=str(path)), ("train", "dev"))
    task, kept = load(Classify(data=str(path), skip_empty=True), ("train", "dev"))
    assert sum(map(len, kept.values())) == 3
    problems = Problems(heading="")
    assert [record.texts[1] for record in task.source.read(path, problems, labelled=False)] == ["y", "", "w", "r"]
    assert not problems.count


def test_columns_are_written_down_and_survive_another_file(tmp_path: Path) -> None:
    folder = tmp_path / "task"
    folder.mkdir()
    table(folder, "train.csv", [("x", "y", "a"), ("z", "w", "b")], header="premise,hypothesis,verdict")
    task = Classify(data=str(folder), label="verdict").source.resolve()
    assert (task.text, task.pair, task.label) == ("premise", "hypothesis", "verdict")
    same = table(tmp_path, "same.csv", [("x", "y", "1")], header="hypothesis,premise,id")
    assert (task.source.switch_data(same, {}).text, task.source.switch_data(same, {}).pair) == ("premise", "hypothesis")
    other = table(tmp_path, "other.csv", [("x", "y", "a")], header="sentence1,sentence2,label")
    assert (task.source.switch_data(other, {}).text, task.source.switch_data(other, {}).pair) == (
        "sentence1",
        "sentence2",
    )
    named = task.source.switch_data(other, {"text": "sentence2", "pair": "label", "label": ""})
    assert (named.text, named.pair) == ("sentence2", "label")
    single = table(tmp_path, "single.csv", [("x", "a")])
    with refusal("unknown-column"):
        task.source.switch_data(single, {})


def test_columns_whose_names_differ_in_case_are_not_chosen_between(tmp_path: Path) -> None:
    path = table(tmp_path, "rows.csv", [("1", "x", "a"), ("2", "y", "b")], header="text,Text,label")
    with refusal("ambiguous-column", "'text'", "'Text'", "--text"):
        Classify(data=path).source.resolve()
    assert isinstance(task := Classify(data=path, text="Text").source.resolve(), Classify) and task.text == "Text"


def test_of_a_table_on_its_side_some_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({str(number): {"text": "x", "label": "a"} for number in range(1000)}))
    with refusal("unknown-column", "'29'", "970 more") as error:
        Classify(data=str(path)).source.resolve()
    assert "'30'" not in str(error.value)


def test_reading_settings_of_the_training_file_are_forgotten(tmp_path: Path) -> None:
    task = Classify(text="column 1", label="column 2", header="no", delimiter="|", encoding="latin-1")
    moved = task.source.switch_data(table(tmp_path, "new.csv", [("x", "a")]), {"quotes": "no"})
    assert (moved.header, moved.delimiter, moved.encoding, moved.quotes) == ("auto", "", "", "no")
    assert (moved.text, moved.label) == ("text", "")


def test_missing_json_keys_and_files(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text('{"text": "x", "label": "a"}\n{"text": "y"}\n{"label": "b"}\n', encoding="utf-8")
    with refusal("missing-split", "line 2: ", "'label'", "line 3: ", "'text'", "test", "train") as error:
        load(Classify(data=str(tmp_path)), ("train", "dev", "test"))
    assert {"missing-label", "unusable-row"} <= set(error.value.codes)


def test_lists_of_labels_with_empty_cells_are_a_matter_of_multilabel(tmp_path: Path) -> None:
    path = tmp_path / "lists.csv"
    for cells, named in (("art;war,,art,war", True), ("art,,war", False)):
        path.write_text("text,label\n" + "".join(f"a text {row},{cell}\n" for row, cell in enumerate(cells.split(","))))
        with refusal("missing-label", "line 3") as raised:
            load(Classify(data=str(path)), ("train", "dev"))
        assert ("finetune multilabel" in str(raised.value)) == named
        assert ("--skip-unlabelled" in str(raised.value)) != named


def test_lists_of_one_label_with_an_empty_one_stay_with_classify(tmp_path: Path) -> None:
    path = tmp_path / "choices.jsonl"
    lines = [{"text": f"a text {row}", "label": label} for row, label in enumerate([["art"], ["war"], []])]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with refusal("missing-label", "line 3", "--skip-unlabelled") as raised:
        load(Classify(data=str(path)), ("train", "dev"))
    assert "multilabel" not in str(raised.value)


def test_one_answer_to_different_labels_is_a_collapse() -> None:
    task = Classify(labels=("a", "b"))
    records = [Record(number=place, texts=("x",), label=label) for place, label in enumerate("aba")]

    def said(answers: str) -> str:
        return constant_answer(task, [Prediction(value=answer) for answer in answers], records)

    assert said("aaa") == "'a'" and said("aab") == ""
    assert constant_answer(task, [Prediction(value="a")], records[:1]) == "" == constant_answer(task, [], [])


def test_two_classes_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="'pos'"):
        Classify(labels=("neg", "pos", "pos"))


def test_ten_thousand_labels_are_scored_without_a_table_of_pairs_and_shown_in_part(monkeypatch) -> None:
    """A confusion table of 10,000 labels takes 800 MB, and each sample of the bootstrap would make one."""
    monkeypatch.setattr(classify, "confusion", None)
    names = [f"class {number:05}" for number in range(10_000)]
    task = Classify(labels=tuple(names))
    shares = dict.fromkeys(names, 0.5 / 9_999) | {names[3]: 0.5}
    predictions = [Prediction(value=names[3], probabilities=shares), Prediction(value=names[4])]
    records = [Record(number=0, texts=("a",), label=names[3]), Record(number=1, texts=("b",), label=names[5])]
    metrics = task.metrics(predictions, records)
    assert metrics["accuracy"] == 0.5
    assert metrics["macro_f1"] == pytest.approx(1 / 3)
    assert metrics["matthews"] == pytest.approx(matthews_corrcoef([names[3], names[5]], [names[3], names[4]]))
    assert class_scores(task, metrics) == {names[4]: "0.0000", names[5]: "0.0000", names[3]: "1.0000"}
    assert "9,997" in classes_left_out(task, metrics)
    lines = predictions[0].lines()
    assert len(lines) == 12 and names[3] in lines[1] and "9,990 more" in lines[-1]
    few = Classify(labels=("a", "b"))
    assert not classes_left_out(few, {}) and class_scores(few, {}) == {"a": "-", "b": "-"}


def test_of_many_labels_of_one_text_the_likeliest_and_the_predicted_are_listed() -> None:
    shares = {f"label {number}": number / 1000 for number in range(500)}
    lines = LabelsPrediction(value=("label 7",), probabilities=shares).lines()
    assert len(lines) == 13 and "label 7" in lines[11] and "489 more" in lines[12]
