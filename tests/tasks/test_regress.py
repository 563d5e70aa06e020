"""regress: numbers checked and standardised, and scores equal to scipy's and scikit-learn's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import mean_squared_error, r2_score

from osbert.data.pack import Packer
from osbert.errors import Problems
from osbert.reading.memory import tables
from osbert.tasks import Prediction, Record, load
from osbert.tasks.kinds.regress import Regress
from refusals import refusal


def records(numbers: list[float]) -> list[Record]:
    return [Record(number=place, texts=("good film",), label=number) for place, number in enumerate(numbers)]


def test_numbers_are_learnt_standardised_and_told_in_their_own_unit(packer: Packer) -> None:
    rows = records([100.0, 300.0, 200.0, 400.0])
    task = Regress().fit(rows)
    targets = np.array([task.encode(row, packer)[0].targets["regress"].labels[0] for row in rows])
    assert targets.dtype == np.float32
    assert targets.mean() == pytest.approx(0, abs=1e-6) and targets.std() == pytest.approx(1)
    said = [task.decode([np.array([target])], row, []).value for target, row in zip(targets, rows)]
    assert said == pytest.approx([100, 300, 200, 400], rel=1e-5)
    assert not task.encode(Record(number=0, texts=("a",)), packer)[0].targets
    assert task.training_facts["range"] == [100, 400] and "range" not in Regress().training_facts
    with pytest.raises(ValueError, match="training_range"):
        Regress(training_range=(1.0,))


numbers = st.integers(-50, 50).map(lambda number: number / 4)


@given(pairs=st.lists(st.tuples(numbers, numbers), min_size=3, max_size=30))
def test_scores_equal_scipys(pairs: list[tuple[float, float]]) -> None:
    said, true = [one for one, _ in pairs], [one for _, one in pairs]
    scores = Regress().metrics([Prediction(value=value) for value in said], records(true))
    assert scores["mse"] == pytest.approx(mean_squared_error(true, said))
    assert scores["r2"] == pytest.approx(r2_score(true, said) if len(set(true)) > 1 else 0, abs=1e-9)
    if len(set(said)) == 1 or len(set(true)) == 1:
        assert scores["pearson"] == scores["spearman"] == 0
    else:
        assert scores["pearson"] == pytest.approx(pearsonr(said, true).statistic, abs=1e-9)
        assert scores["spearman"] == pytest.approx(spearmanr(said, true).statistic, abs=1e-9)


@pytest.mark.parametrize("constant", [0.1, 1e-3, 1 / 3])
def test_equal_numbers_are_no_spread_though_their_mean_is_rounded(constant: float) -> None:
    numbers = [constant] * 3
    rows = [Prediction(value=value) for value in (0.2, 0.4, 0.7)]
    scores = Regress().metrics(rows, records(numbers))
    assert scores["pearson"] == scores["spearman"] == scores["r2"] == 0
    same = Regress().metrics([Prediction(value=value) for value in numbers], records([0.2, 0.4, 0.7]))
    assert same["pearson"] == same["spearman"] == 0
    assert Regress().fit(records(numbers)).scale == 0


def test_what_is_no_number_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("sentence1\tsentence2\tscore\nx\ty\t4.5\nx\ty\tgood\nx\ty\tnan\nx\ty\t1_0\n")
    (tmp_path / "dev.tsv").write_text("sentence1\tsentence2\tscore\nx\ty\tinf\nx\ty\t2\n")
    places = (("train.tsv, line 3", "good"), ("train.tsv, line 4", "nan"), ("train.tsv, line 5", "1_0"))
    with refusal("unusable-row") as error:
        load(Regress(data=str(tmp_path)), ("train", "dev"))
    for place, value in (*places, ("dev.tsv, line 2", "inf")):
        assert any(place in line and f"'{value}'" in line for line in str(error.value).splitlines())


@pytest.mark.parametrize("large", ["1e300", "-1e160", "1e101"])
def test_numbers_whose_squares_are_infinite_are_named_with_their_line(tmp_path: Path, large: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text("text,score\n" + "x,2\nx,1e100\n" * 20 + f"x,{large}\n")
    with refusal("unusable-row", "line 42", large):
        load(Regress(data=str(path)), ("train", "dev"))


def test_the_largest_and_the_closest_numbers_have_finite_scores(tmp_path: Path) -> None:
    for low, high in ((-1e100, 1e100), (0.0, 2e-100)):
        rows = records([low, high] * 50)
        task = Regress().fit(rows)
        assert task.scale == pytest.approx((high - low) / 2)
        scores = task.metrics([Prediction(value=low)] * 100, rows)
        assert np.isfinite([*scores.values()]).all() and scores["r2"] == pytest.approx(-1)
    path = tmp_path / "data.csv"
    path.write_text("text,score\n" + "x,1e-300\nx,3e-300\n" * 20)
    with refusal("nothing-to-learn", "1e-300", "3e-300"):
        load(Regress(data=str(path)), ("train", "dev"))


def labels(data: Path, split: str = "all", **settings: str) -> list[float]:
    task = Regress(data=str(data), **settings)  # type: ignore[arg-type]
    problems = Problems(heading="unusable")
    found = [record.label for record in task.source.records(split, problems)]
    problems.stop_if_any()
    return found


def test_decimal_commas_are_understood_where_all_fractions_have_them(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("text;score\nx;7,6\nx;8\nx;-0,250\nx;1,5e3\n")
    assert labels(path) == labels(path, decimal="comma") == [7.6, 8, -0.25, 1500]
    with refusal("unusable-row", "line 2", "'7,6'", "--decimal"):
        labels(path, decimal="point")
    task = Regress(data=str(path))
    assert any("comma" in line and "'score'" in line for line in task.source.findings())
    other = tmp_path / "other.csv"
    other.write_text("text;score\nx;7.5\n")
    task = Regress(data=str(path), decimal="comma")
    moved = task.source.switch_data(other, {})
    assert [record.label for record in moved.source.records("all", Problems(heading=""))] == [7.5]
    with refusal("unusable-row", "7.5"):
        labels(other, decimal="comma")


@pytest.mark.parametrize("cells", [("7,6", "8.1"), ("1,250", "12,500,000"), ("7,6", "about 3,5"), ("1.250,5", "3,5")])
def test_doubtful_commas_are_named_with_the_option(tmp_path: Path, cells: tuple[str, str]) -> None:
    path = tmp_path / "data.csv"
    path.write_text("text;score\n" + "".join(f"x;{cell}\n" for cell in cells))
    with refusal("unusable-row", "--decimal", cells[0]):
        labels(path)


def test_points_before_a_decimal_comma_stand_between_thousands_once_the_option_says_so(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("text;score\nx;1.000,50\nx;-12.345.678\nx;7,5\n")
    with refusal("unusable-row", "'1.000,50'", "--decimal comma"):
        labels(path)
    assert labels(path, decimal="comma") == [1000.5, -12345678, 7.5]
    path.write_text("text;score\nx;10.00,50\n")
    with refusal("unusable-row", "'10.00,50'"):
        labels(path, decimal="comma")


def test_points_between_thousands_are_doubtful(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("text;score\nx;950\nx;1.250\nx;12.000\n")
    with refusal("unusable-row", "line 3: ", "'1.250'", "--decimal", "line 4: "):
        labels(path)
    assert labels(path, decimal="point") == [950, 1.25, 12]
    path.write_text("text;score\nx;950\nx;1.25\nx;1.125\n")
    assert labels(path) == [950, 1.25, 1.125]
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "x", "score": 950}\n{"text": "x", "score": 1.125}\n')
    assert labels(rows) == [950, 1.125]


def test_rows_in_memory_have_decimal_commas(tmp_path: Path) -> None:
    rows = [{"text": "x", "score": "7,6"}, {"text": "x", "score": 8}]
    task = Regress().source.switch_data(tables(rows), {})
    assert [record.label for record in task.source.records("all", Problems(heading=""))] == [7.6, 8]


def test_equal_numbers_are_nothing_to_learn(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("text,score\n" + "x,2\n" * 20)
    with refusal("nothing-to-learn", "2"):
        load(Regress(data=str(path)), ("train", "dev"))


def test_sts_b(data: Path) -> None:
    task, rows = load(Regress(data=str(data / "glue" / "STS-B")).source.resolve(), ("train", "dev"))
    assert (task.text, task.pair, task.label) == ("sentence1", "sentence2", "score")
    assert len(rows["dev"]) == 1500 and 0 <= min(row.label for row in rows["dev"]) <= 5
