"""The table of generations: its rows and columns resolve, tests of words, and what its report shows before the end."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ended_tables import plan
from osbert.options import parse_settings
from osbert.recipe import as_table
from osbert.runs.finetune.plan import schema
from osbert.text.train_file import word_tokenizer
from osbert.training.run_folder import RunFolder
from osbert_lab.papers.encoders import PretrainedEncoders, run_folder
from osbert_lab.papers.families import write_families_report
from osbert_lab.papers.plan import TablePlan
from osbert_lab.papers.tables import TableRow, read_table, words
from osbert_lab.papers.word_tests import score_words, whole_words, word_table
from osbert_lab.papers.years import tuning_gains
from osbert_lab.static_vectors.word_vectors import write_static
from refusals import refusal

TABLE = read_table("generations")
WORDS = ["king", "queen", "man", "woman", "tiger", "cat"]


@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.name)
def test_the_settings_of_a_row_are_those_of_its_recipe(row: TableRow) -> None:
    encoders = PretrainedEncoders(recipe="cpu", corpus=Path("corpus"), settings={"model.heads": 2}, usual=TABLE.usual)
    if "heads" in as_table(PretrainedEncoders(recipe="cpu", corpus=Path()).read(row)).get("model", {}):
        assert encoders.read(row).model.heads == 2
    else:
        encoders = replace(encoders, settings={} if row.recipe in ("cove-small", "elmo-small") else encoders.settings)
    assert encoders.read(row).minutes == 2.0 and row.year >= 2013
    [trial] = encoders.trials([row], 7, Path("out"))
    assert "7" in trial.settings and "-".join(filter(None, ("corpus", row.corpus))) in trial.settings


def test_rows_are_in_the_order_of_their_years_and_columns_are_tasks_that_can_be_fine_tuned() -> None:
    years = [row.year for row in TABLE.rows]
    assert years == sorted(years) and len({row.name for row in TABLE.rows}) == len(years)
    for column in TABLE.columns:
        named = parse_settings(words(column.settings), schema(column.task or column.set))
        assert {name.rpartition(".")[2] for name in named} == {*column.settings}
    assert {one for claim in TABLE.claims for one in (claim.above, claim.below)} <= {row.name for row in TABLE.rows}


def test_a_row_with_a_corpus_of_its_own_is_left_out_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = TableRow(name="pairs", recipe="gpt-small", corpus="pairs", year=2017)
    table = replace(TABLE, rows=(TABLE.rows[0], row))
    assert table.with_corpora(tmp_path / "corpus").left_out == ("pairs",)
    (tmp_path / "corpus-pairs").mkdir()
    kept = table.with_corpora(tmp_path / "corpus")
    assert kept.rows == table.rows and not kept.left_out
    encoders = PretrainedEncoders(recipe="cpu", corpus=tmp_path / "corpus")
    corpora = [
        trial.settings[trial.settings.index("--corpus") + 1] for trial in encoders.trials(kept.rows, 0, tmp_path)
    ]
    assert corpora == [str(tmp_path / "corpus"), str(tmp_path / "corpus-pairs")]
    monkeypatch.chdir(tmp_path / "corpus-pairs")
    assert row.own_corpus(Path()) == tmp_path / "corpus-pairs-pairs"
    with refusal("missing-file", "corpus-pairs-pairs"):
        replace(TABLE, rows=(row,)).with_corpora(Path())


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A finished model of static vectors, in which queen - king = woman - man."""
    tokenizer = word_tokenizer(WORDS, lowercase=True)
    vectors = torch.zeros(len(tokenizer), 3)
    known = {"king": (1, 0, 1), "queen": (1, 1, 1), "man": (1, 0, 0), "woman": (1, 1, 0), "cat": (0, 0, 1)}
    for word, vector in {**known, "tiger": (0, 0.1, 1)}.items():
        vectors[tokenizer.vocabulary.index(word)] = torch.tensor(vector)
    folder = tmp_path / "encoder"
    folder.mkdir()
    write_static(folder, tokenizer, vectors)
    (folder / "run.json").write_text('{"finished": {}}')
    return folder


def write_tests(data: Path) -> None:
    """Write the three tests of words into a folder of data."""
    (data / "words").mkdir()
    (data / "words" / "wordsim353.csv").write_text("a,b,score\ntiger,cat,9\nking,man,5\ncat,man,1\ncat,unseen,1\n")
    (data / "words" / "SimLex-999.txt").write_text("word1\tword2\tPOS\tSimLex999\nking\tqueen\tN\t8\ncat\tman\tN\t1\n")
    (data / "words" / "questions-words.txt").write_text(": family\nman woman king queen\nman woman king cat\n")


def test_words_are_tested_alone_and_only_whole(encoder: Path, tmp_path: Path) -> None:
    write_tests(tmp_path)
    found = score_words(encoder, TABLE.words, tmp_path)
    assert {name: (one.score, one.used, one.given) for name, one in found.items()} == {
        "words, WordSim-353": (1.0, 3, 4),
        "words, SimLex-999": (pytest.approx(1.0), 2, 2),
        "words, analogies": (0.5, 2, 2),
    }
    shutil.rmtree(tmp_path / "words")
    assert score_words(encoder, TABLE.words, tmp_path) == found  # kept beside the encoder
    table = word_table(encoder, [*WORDS, "king queen"])
    np.testing.assert_allclose(table.vectors[0], np.array([1, 0, 1]) / 2**0.5, atol=1e-6)
    assert "king queen" not in table.word_indices() and {*table.word_indices()} == {*WORDS}
    assert not RunFolder(tmp_path / "none").finished and score_words(tmp_path / "none", TABLE.words, tmp_path) == {}


def test_candidates_for_analogies_are_whole_words() -> None:
    tokenizer = word_tokenizer(["one", "##two", "3", "four."], lowercase=True)
    assert whole_words(tokenizer) == ["one"]


def test_a_report_by_year_shows_what_has_been_measured_so_far(tmp_path: Path) -> None:
    found = plan("generations", tmp_path)
    last = found.table.rows[-1].name
    for seed in (1, 2):
        shutil.rmtree(run_folder(last, seed, "SST-2, features", tmp_path))
    shutil.rmtree(run_folder(last, 0, "SQuAD, fine-tuned", tmp_path))
    printed = write_families_report(found)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert f"So far {6 * 3 * len(TABLE.rows) - 3:,} of {6 * 3 * len(TABLE.rows):,}" in printed
    assert page.count("<svg") == 3 and page.count(">2019<") == 3 and f">{last}<" in page
    [row] = [line.split("  ") for line in printed.splitlines() if line.startswith(f"{last}  ") and "-" in line][-1:]
    assert "-" in [cell.strip() for cell in row]
    gains = {one.column: one for one in tuning_gains({"A": {"X, features": [0.5, 0.6], "X, fine-tuned": [0.7]}})}
    assert gains["A, X"].differences == pytest.approx([0.2])


def test_tests_of_words_without_a_file_are_left_out(tmp_path: Path) -> None:
    encoders = PretrainedEncoders(recipe="cpu", corpus=tmp_path)
    found = TablePlan(table=TABLE, columns=(), encoders=encoders, data=tmp_path, out=tmp_path)
    assert not found.word_tests
    with refusal("missing-split"):
        TABLE.present(tmp_path)
    write_tests(tmp_path)
    assert found.word_tests == TABLE.words
    assert TABLE.present(tmp_path) == ()  # words alone are enough: they need no fine-tuning


@pytest.mark.parametrize(
    ("name", "given", "rule"),
    [
        ("generations", {}, "auto"),
        ("writing", {}, "auto"),
        ("writing", {"epochs": 3}, "paper"),
        ("table5", {}, "paper"),
    ],
)
def test_epochs_are_chosen_by_the_rows_where_no_paper_gives_them(
    name: str, given: dict[str, int], rule: str, tmp_path: Path
) -> None:
    tuned = [trial.settings for trial in replace(plan(name, tmp_path), finetuning=given).trials()]
    tuned = [settings for settings in tuned if settings[0] == "finetune"]
    assert tuned and {settings[settings.index("--settings") + 1] for settings in tuned} == {rule}
    assert {"--epochs" in settings for settings in tuned} == {rule == "paper"}
