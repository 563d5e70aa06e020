"""--long from training to prediction: told before training, kept with the run, refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from osbert.commands.evaluate import evaluate
from osbert.commands.finetune import finetune
from osbert.commands.predict import predict
from osbert.tasks.kinds.classify import Classify
from refusals import refusal

SETTINGS = ("--epochs", "2", "--learning-rate", "1e-2", "--precision", "fp32", "--length", "8")


@pytest.fixture(scope="module")
def long_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty rows, half of them longer than 8 tokens; the word that decides is the middle one of 13."""
    folder = tmp_path_factory.mktemp("long")
    rows = [f"{word} film,{label}" for word, label in (("good", "pos"), ("bad", "neg"))] * 10
    around = "the film a play the film"
    rows += [f"{around} {word} {around},{label}" for word, label in (("good", "pos"), ("bad", "neg"))] * 10
    for name in ("train.csv", "dev.csv"):
        (folder / name).write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("long", "told", "later"),
    [
        ("truncate", "20 of 40 texts (50.0%) are longer than 8 tokens; 140 pieces", "pieces at the end were not read"),
        (
            "head+tail",
            "20 of 40 texts (50.0%) are longer than 8 tokens; 140 pieces (36.8% of all) in the middle are not read",
            "pieces in the middle were not read",
        ),
        ("window", "20 of 40 texts (50.0%) are longer than 8 tokens; they are read in 60 overlapping windows", ""),
    ],
)
def test_what_becomes_of_long_texts_is_told_and_kept(
    long: str,
    told: str,
    later: str,
    encoder: Path,
    long_table: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    settings = (*SETTINGS, "--long", long, "--overlap", "2")
    finetune("classify", *settings, model=encoder, data=long_table, out=run)
    said = capsys.readouterr().out
    assert f"train: {told}" in said and f"dev: {told}" in said  # the same rows
    evaluate(run, data=long_table)
    said = capsys.readouterr().out
    assert (f"20 texts are longer than the run reads (8 tokens); {later}" in " ".join(said.split())) == bool(later)
    predict(run, "the film a play the film good the film a play the film")
    assert later in " ".join(capsys.readouterr().out.split())
    (tmp_path / "new.csv").write_text(f"text\n{'film ' * 13}good\ngood\n")
    predict(run, file=tmp_path / "new.csv", out=tmp_path / "said.csv")
    cut = [line.rsplit(",", 1)[1] for line in (tmp_path / "said.csv").read_text().splitlines()[1:]]
    assert cut == (["8", "0"] if later else ["0", "0"])


def test_no_text_may_be_long_under_error(
    encoder: Path, long_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refusal("text-too-long", f"{long_table / 'train.csv'}, line 22: 7", "8") as error:
        finetune("classify", *SETTINGS, "--long", "error", model=encoder, data=long_table, out=tmp_path / "run")
    *listed, rest = str(error.value).splitlines()[1:]
    assert len(listed) == 20 and all(", line " in line for line in listed) and "20" in rest
    assert not (tmp_path / "run").exists()
    finetune(
        "classify", *SETTINGS, "--long", "error", "--length", "24", model=encoder, data=long_table, out=tmp_path / "run"
    )
    with refusal("text-too-long", "0", "8", "24"):
        predict(tmp_path / "run", "film " * 30)
    (tmp_path / "new.csv").write_text(f"text,label\n{'film ' * 30},pos\ngood,neg\n{'film ' * 40},neg\n")
    monkeypatch.setattr("osbert.runs.rows.predict.TEXTS", 1)  # all are told, however few are in memory at a time
    for command in (evaluate, None):
        with refusal("text-too-long", "new.csv, line 2: 8", "new.csv, line 4: 18"):
            if command:
                evaluate(tmp_path / "run", data=tmp_path / "new.csv")
            else:
                predict(tmp_path / "run", file=tmp_path / "new.csv", out=tmp_path / "said.csv")
    assert not (tmp_path / "said.csv").exists()


def test_rows_that_were_found_to_fit_are_not_looked_at_again_each_epoch(
    encoder: Path, long_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    real = Classify.encode
    monkeypatch.setattr(Classify, "encode", lambda self, record, *rest: encoded.append("") or real(self, record, *rest))
    counts = []
    for epochs in ("1", "3"):
        settings = (*SETTINGS, "--long", "error", "--length", "24", "--epochs", epochs)
        finetune("classify", *settings, model=encoder, data=long_table, out=tmp_path / epochs)
        counts.append(len(encoded))
        encoded.clear()
    assert counts[0] == counts[1]


def test_no_text_may_be_unknown_to_the_setting(encoder: Path, long_table: Path, tmp_path: Path) -> None:
    with refusal("invalid-value", "classify.long", "window"):
        finetune("classify", "--long", "windows", model=encoder, data=long_table, out=tmp_path / "run")
