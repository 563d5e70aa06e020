"""osbert reproduce: what it runs for a table, that it runs it once, and that it prints only what it measured."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from osbert.errors import Problems
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert_lab.papers import tables as reproduce_tables
from osbert_lab.papers.children import ChildCommands
from osbert_lab.papers.encoders import GivenEncoder, PretrainedEncoders, run_folder
from osbert_lab.papers.plan import TablePlan
from osbert_lab.papers.published import TABLES as PUBLISHED
from osbert_lab.papers.report import cells, mean_line, perplexity, row_scores, write_table_report
from osbert_lab.papers.scale import TableScale
from osbert_lab.papers.settings import same_finetuning, split_settings, table_schemas
from osbert_lab.papers.tables import PaperTable, TableRow, read_table
from osbert_lab.study.runner import Study, StudyTrial, TrialEnd, read_results
from refusals import refusal
from terminal import run

TABLES = {name: read_table(name) for name in PUBLISHED}
MNLI, QNLI, MRPC, SST2, _ = TABLES["table5"].columns
GLUE = TABLES["table1"].columns

TUNING = ("--finetuning.epochs", "1", "--finetuning.length=24", "--finetuning.precision", "fp32")
RECIPE = """
objectives = ["mlm", "nsp"]
[model]
layers = 1
width = 16
heads = 2
length = 32
[data]
batch = 4
length = 24
[training]
steps = 4
precision = "fp32"
device = "cpu"
"""


def plan(table: PaperTable, out: Path, *, seeds: int = 2, **changed) -> TablePlan:
    encoders = PretrainedEncoders(recipe="cpu", corpus=out) if table.varied else GivenEncoder(model=out)
    settings = {"columns": table.columns, "encoders": encoders, "data": out, "scale": TableScale(seeds=seeds, rows=0)}
    return TablePlan(table=table, out=out, **(settings | changed))


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_the_paper_is_run_with_every_data_set(name: str, tmp_path: Path) -> None:
    table = TABLES[name]
    names = [row.name for row in table.rows]
    assert names == list(table.published.figures) if table.varied else {*names} <= {"ours", *table.published.figures}
    jobs = list(plan(table, tmp_path).trials())
    encoders = [job for job in jobs if job.settings[0] == "pretrain"]
    tuned = [job for job in jobs if job.settings[0] == "finetune"]
    assert len(encoders) == (2 * sum(not row.encoder for row in table.rows) if table.varied else 0)
    assert len(tuned) == 2 * len(table.rows) * len(table.columns)
    assert len({job.folder for job in jobs}) == len(jobs) == len({job.name for job in jobs})
    assert all(job.settings[job.settings.index("--settings") + 1] == "paper" for job in tuned)
    names = [job.name for job in jobs]
    for job in tuned if table.varied else ():
        before = jobs[names.index(job.after)]
        assert names.index(job.after) < names.index(job.name)
        assert str(before.folder) == job.settings[job.settings.index("--model") + 1]


def test_a_failed_job_is_named_with_its_output_and_what_follows_it_is_left(tmp_path: Path) -> None:
    told: list[str] = []
    failing = ("pretrain", "no-such-recipe", "--corpus", "x", "--out", "y")
    trials = [
        StudyTrial(name="first", settings=failing, folder=tmp_path / "a"),
        StudyTrial(name="second", settings=("--version",), folder=tmp_path / "b", after="first"),
    ]
    failed = Problems(heading="Some runs failed")
    Study(
        work=ChildCommands(2).work,
        threads=2,
        problems=failed,
        watch=lambda event: told.append(str(event)) if isinstance(event, TrialEnd) else None,
    ).run(trials)
    with refusal("child-failed", "1", "a-log.txt"):
        failed.stop_if_any()
    assert "no-such-recipe" in (tmp_path / "a-log.txt").read_text("utf-8")
    assert [line.split("  (")[0] for line in told] == ["[1/2] first: not done", "[2/2] second: not done"]
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("option", ["--seeds", "--jobs"])
def test_numbers_below_one_are_refused(option: str, tmp_path: Path, capsys) -> None:
    folder = str(tmp_path)
    words = ["reproduce", "table8", "--corpus", folder, "--data", folder, "--out", folder, option, "0"]
    assert run(*words) == 1 and option in capsys.readouterr().err


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Return a folder with a recipe, a corpus, and SST-2 and MNLI in small."""
    rng = random.Random(0)
    words = ["good", "bad", "film", "a", "the", "play", "actor"]
    texts = [" ".join(rng.choices(words, k=rng.randint(5, 20))) + " ." for _ in range(60)]
    (tmp_path / "tiny.toml").write_text(RECIPE, "utf-8")
    (tmp_path / "text.txt").write_text("\n".join(texts) + "\n", "utf-8")
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words]) + "\n", "utf-8")
    write_tokenizer(read_tokenizer(vocabulary), tmp_path / "tok")
    built = ["--tokenizer", str(tmp_path / "tok"), "--out", str(tmp_path / "corpus"), "--documents", "line"]
    assert run("corpus", "build", str(tmp_path / "text.txt"), *built) == 0
    for dataset, header in ((SST2, "sentence\tlabel"), (MNLI, "index\tsentence1\tsentence2\tgold_label")):
        folder = tmp_path / "glue" / dataset.folder
        folder.mkdir(parents=True)
        for name, count in zip(dataset.files, (30, 12)):
            rows = [f"{text}\t{row % 2}" if dataset is SST2 else f"{row}\t{text}\t{text}\t{'abc'[row % 3]}"
                    for row, text in enumerate(texts[:count])]  # fmt: skip
            (folder / name).write_text("\n".join([header, *rows]) + "\n", "utf-8")
    return tmp_path


def run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands of a study run in this process from now on: starting another one takes seconds."""

    def work(self: ChildCommands, trial: StudyTrial) -> None:
        assert run(*trial.settings) == 0

    monkeypatch.setattr(ChildCommands, "work", work)


def test_a_table_from_end_to_end(inputs: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    small = PaperTable(name="table8", rows=(TableRow(name="80/10/10"),), columns=(MNLI, SST2))
    missing = inputs / "glue" / "MNLI" / "train.tsv"
    content = missing.read_bytes()
    missing.unlink()
    monkeypatch.setattr(reproduce_tables, "read_table", {"table8": small}.__getitem__)
    out = inputs / "out"
    words = ["reproduce", "table8", "--recipe", str(inputs / "tiny.toml"), "--corpus", str(inputs / "corpus")]
    words += ["--data", str(inputs / "glue"), "--out", str(out), "--seeds", "1", "--jobs", "2"]
    words += [*TUNING]
    assert run(*words) == 0
    printed = capsys.readouterr().out
    (score,) = json.loads((out / "results.json").read_text("utf-8"))["scores"]["80/10/10"]["SST-2"]
    line = next(line for line in printed.splitlines() if line.startswith("80/10/10"))
    assert line.replace("!", "").split() == [
        "80/10/10",
        "-",
        "(84.2)",
        "-",
        "(95.4)",
        "-",
        "(94.9)",
        f"{100 * score:.1f}",
    ]
    assert (out / "table.txt").read_text("utf-8") in printed and "4 steps" in printed
    assert run(*words) == 0 and "[1/" not in capsys.readouterr().out  # nothing is run again
    assert "No data for MNLI-m" in printed and "split off" not in printed
    protocol = json.loads((out / "protocol.json").read_text("utf-8"))
    assert protocol["finetuning"] == "--epochs 1 --learning-rate 5e-4 --length 24 --precision fp32"
    for earlier in (
        "--epochs 1 --learning-rate 5e-4 --length 24 --precision fp32",
        "--epochs 3 --learning-rate 5e-4 --length 24 --training.epochs 1 --training.precision fp32",
    ):  # as the names were given once
        (out / "protocol.json").write_text(json.dumps(protocol | {"finetuning": earlier}), "utf-8")
        assert run(*words) == 0 and "[1/" not in capsys.readouterr().out
    assert run(*words, "--finetuning.epochs", "2") == 1
    assert "another protocol (finetuning: " in capsys.readouterr().err

    table, edited = (out / "table.txt").read_bytes(), inputs / "glue" / "SST-2" / "dev.tsv"
    assert run(*words, "--steps", "5") == 1
    assert "(pretraining.80/10/10.training.steps: 4 -> 5)" in capsys.readouterr().err
    edited.write_bytes(edited.read_bytes() + b"a film\t1\n")
    assert run(*words) == 1 and "(data.SST-2.dev.tsv" in capsys.readouterr().err
    edited.write_bytes(edited.read_bytes().removesuffix(b"a film\t1\n"))
    other = str(rebuilt(inputs))
    assert (
        run(*[other if word == str(inputs / "corpus") else word for word in words]) == 1
        and "(corpus" in capsys.readouterr().err
    )
    assert (out / "table.txt").read_bytes() == table
    missing.write_bytes(content)  # a column that joins later makes the others no other ones
    run_here(monkeypatch)
    words[words.index("--jobs") + 1] = "1"  # in the main thread, which alone can mind signals
    assert run(*words) == 0 and "[1/1] 80/10/10, seed 0, MNLI-m: done" in capsys.readouterr().out


def rebuilt(inputs: Path) -> Path:
    (inputs / "more.txt").write_text((inputs / "text.txt").read_text("utf-8") + "a good film .\n", "utf-8")
    built = ["--tokenizer", str(inputs / "tok"), "--out", str(inputs / "other"), "--documents", "line"]
    assert run("corpus", "build", str(inputs / "more.txt"), *built) == 0
    return inputs / "other"


def test_settings_of_finetuning_are_checked_before_any_run(inputs: Path, capsys) -> None:
    words = ["reproduce", "table8", "--recipe", str(inputs / "tiny.toml"), "--corpus", str(inputs / "corpus")]
    words += ["--data", str(inputs / "glue"), "--out", str(inputs / "out"), "--finetuning.epoch", "1"]
    assert run(*words) == 1
    error = capsys.readouterr().err
    assert all(value in error for value in ("--finetuning.epoch", "'finetuning.epochs'"))
    words[-2:] = ["--finetuning.epochs", "none"]
    assert run(*words) == 1 and "MNLI-m" in capsys.readouterr().err
    assert not (inputs / "out" / "runs").exists()


def test_columns_with_development_rows_of_our_own_are_named(inputs: Path) -> None:
    folder = inputs / "glue" / "QNLI"
    folder.mkdir()
    (folder / "dev.tsv").write_text("index\tquestion\tsentence\tlabel\n", "utf-8")
    table = PaperTable(name="table5", rows=(TableRow(name="BASE"),), columns=(QNLI, SST2))
    found = plan(table, inputs / "out", data=inputs / "glue")
    assert found.split_off == ["QNLI"]


def test_table_1_takes_a_model_and_prints_what_it_measured_beside_the_paper(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (inputs / "glue" / "CoLA").mkdir()
    rows = [f"gj04\t{number % 2}\t\ta {('bad', 'good')[number % 2]} film" for number in range(30)]
    for name in ("train.tsv", "dev.tsv"):
        (inputs / "glue" / "CoLA" / name).write_text("\n".join(rows) + "\n", "utf-8")
    run_here(monkeypatch)
    only = replace(TABLES["table1"], columns=tuple(one for one in GLUE if one.name in ("CoLA", "RTE")))
    monkeypatch.setattr(reproduce_tables, "read_table", {"table1": only, "table5": TABLES["table5"]}.__getitem__)
    pretrained = ["pretrain", str(inputs / "tiny.toml"), "--corpus", str(inputs / "corpus")]
    assert run(*pretrained, "--out", str(inputs / "model")) == 0
    words = ["reproduce", "table1", "--data", str(inputs / "glue"), "--out", str(inputs / "out"), "--seeds", "1"]
    words += ["--rows", "20", *TUNING]
    given = ["--model", str(inputs / "model")]
    assert run(*words, *given) == 0
    printed = capsys.readouterr().out
    (score,) = json.loads((inputs / "out" / "results.json").read_text("utf-8"))["scores"]["ours"]["CoLA"]
    runs = inputs / "out" / "runs" / "ours" / "seed-0"  # a model as small as this collapses now and then
    counted = runs / ("CoLA-again" if (runs / "CoLA-again").exists() else "CoLA")
    facts = json.loads((counted / "run.json").read_text("utf-8"))
    assert score == facts["finished"]["best"]["metrics"]["matthews"]
    assert len((inputs / "out" / "data" / "CoLA" / "train.tsv").read_text("utf-8").splitlines()) == 20
    lines = [line.replace("!", "").split() for line in printed.splitlines()]
    assert ["ours", "-", "-", "-", "-", "-", f"{100 * score:.1f}", "-", "-", "-", "-"] in lines
    paper = "BERT BASE (84.6) (83.4) (71.2) (90.5) (93.5) (52.1) (85.8) (88.9) (66.4) (79.6)"
    assert paper.split() in lines and "Matthews correlation for CoLA" in printed and "one seed" in printed
    assert f"Mean of the 1 measured: ours {100 * score:.1f}; " in printed
    assert run(*words, *given) == 0 and "[1/" not in capsys.readouterr().out
    (inputs / "model" / "config.json").write_bytes((inputs / "model" / "config.json").read_bytes() + b"\n")
    assert run(*words, *given) == 1 and "(model.config.json" in capsys.readouterr().err

    corpus = ["--corpus", str(inputs / "corpus")]
    for wrong, values in (
        ([], ("--model M", "--corpus C")),
        ([*given, *corpus], ("--model", "--corpus")),
        ([*given, "--steps", "5"], ("--model", "--corpus")),
        (["--model", str(inputs)], (str(inputs), "config.json")),
    ):
        assert run(*words, *wrong) == 1
        error = capsys.readouterr().err
        assert all(value in error for value in values), error
    words[1] = "table5"
    assert run(*words) == 1 and "--corpus C" in capsys.readouterr().err
    assert run(*words, *given) == 1 and "are different encoders" in capsys.readouterr().err


def test_an_average_is_made_of_all_columns_or_of_none(tmp_path: Path) -> None:
    table = TABLES["table1"]
    found = plan(table, tmp_path, seeds=1)
    for number, dataset in enumerate(table.columns):
        folder = run_folder("ours", 0, dataset.name, tmp_path)
        folder.mkdir(parents=True)
        metrics = dict.fromkeys(dataset.measured.values(), number / 10)
        (folder / "run.json").write_text(json.dumps({"finished": {"best": {"metrics": metrics}}}))
    scores = row_scores(found, table.rows[0])
    assert scores["average"] == [pytest.approx((0 + 0 + 0.1 + 0.2 + 0.3 + 0.4 + 0.5 + 0.6 + 0.7) / 9)]
    assert mean_line(found, "ours", scores) == ""
    metrics = {"finished": {"best": {"metrics": {"accuracy": 0.5}}}}
    (run_folder("ours", 0, "MNLI-m", tmp_path) / "run.json").write_text(json.dumps(metrics))
    assert {"average", "MNLI-mm"} & {*row_scores(found, table.rows[0])} == set()


def test_perplexity_is_that_of_the_last_look_at_held_out_text(tmp_path: Path) -> None:
    lines = [{"step": 0, "held_out.mlm.loss": 6.0}, {"step": 4, "mlm.loss": 3.0}, {"step": 4, "held_out.mlm.loss": 2.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert perplexity(tmp_path) == pytest.approx(math.exp(2))


def test_table_7_is_one_encoder_fine_tuned_and_on_six_choices_of_features(tmp_path: Path) -> None:
    encoders = PretrainedEncoders(recipe="cpu", corpus=tmp_path)
    jobs = list(plan(TABLES["table7"], tmp_path, seeds=1, encoders=encoders).trials())
    assert [job.settings[0] for job in jobs] == ["pretrain", *["finetune"] * 7]
    assert all(str(jobs[0].folder) in job.settings and job.after == jobs[0].name for job in jobs[1:])
    given = [job.settings[job.settings.index("--features") + 1] for job in jobs[2:]]
    assert given == ["embeddings", "second-to-last", "last", "sum-last-four", "concat-last-four", "sum-all"]
    assert "--features" not in jobs[1].settings
    lines = cells(plan(TABLES["table7"], tmp_path), {"fine-tuned, BASE": {"dev F1": [0.5, 0.7]}})
    assert lines[:2] == [
        ["ours (published)", "dev F1", "test F1"],
        ["fine-tuned, BASE", "60.0 +- 14.1 (96.4)", "- (92.4)"],
    ]
    assert ["ELMo", "(95.7)", "(92.2)"] in lines and ["embeddings", "(91.0)", "-"] in lines


def test_what_rows_and_columns_have_of_their_own_is_told_and_kept(tmp_path: Path) -> None:
    table = TABLES["table7"]
    assert len(table.own_settings(table.columns)) == 6
    told = "Row 'last layer': fine-tuned as all, but --features last --learning-rate 1e-3."
    assert told in table.own_settings(table.columns)
    told = "Column 'NER feature-based': fine-tuned as all, but --features concat-last-four."
    assert told in TABLES["table8"].own_settings(TABLES["table8"].columns)
    assert not any("Column" in line for line in TABLES["table8"].own_settings(()))
    recurrent, encoders = TABLES["table5"], PretrainedEncoders(recipe="cpu", corpus=tmp_path)
    assert "Row '+ BiLSTM': fine-tuned as all, but --recurrent 1." in recurrent.own_settings(())
    assert any("--mlm.mask 0.8 --mlm.random 0.1" in line for line in TABLES["table8"].own_settings(()))
    assert recurrent.differing()["finetuning_by_row"] == {"+ BiLSTM": "--recurrent 1"}
    found = plan(TABLES["table8"], tmp_path, encoders=encoders, finetuning={"features": "last"})
    words = next(job.settings for job in found.trials() if job.name.endswith("NER feature-based"))
    given = [words[place + 1] for place, word in enumerate(words) if word == "--features"]
    assert given == ["last", "concat-last-four"]  # the last one counts


def ended(folder: Path, accuracy: float, collapsed: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    best = {"metrics": {"accuracy": accuracy}, "collapsed": collapsed}
    (folder / "run.json").write_text(json.dumps({"finished": {"best": best}}))


def test_a_collapsed_run_is_named_and_another_one_counts_in_its_place(tmp_path: Path) -> None:
    table = PaperTable(name="table8", rows=(TableRow(name="80/10/10"),), columns=(SST2,))
    found = plan(table, tmp_path, seeds=3)
    (tmp_path / "protocol.json").write_text("{}")
    for seed, (accuracy, collapsed) in enumerate([(0.9, ""), (0.5, "'1'"), (0.5, "'0'")]):
        ended(run_folder("80/10/10", seed, "SST-2", tmp_path), accuracy, collapsed)
    jobs = [trial.again for trial in found.trials() if trial.again and read_results(trial)[1:]]
    assert [job.settings[job.settings.index("--training.seed") + 1] for job in jobs] == ["1001", "1002"]
    assert "again with seed 1001" in jobs[0].name and jobs[0].folder.name == "SST-2-again"
    for job, score in zip(jobs, (0.8, 0.7)):
        ended(job.folder, score)
    assert row_scores(found, table.rows[0]) == {"SST-2": [0.9, 0.8, 0.7]}
    told = write_table_report(found)
    assert "80/10/10, seed 1, SST-2: every development row is '1'; in its place: seed 1001\n" in told
    assert "80.0 +- 10.0\n" in told and "a figure with such a run" not in told
    assert len(json.loads((tmp_path / "results.json").read_text())["collapsed"]) == 2
    ended(jobs[1].folder, 0.5, "'0'")
    told = write_table_report(found)
    assert "in its place: seed 1002, collapsed as well and counted all the same" in told
    assert "73.3 +- 20.8!" in told and "!: a figure with such a run in it." in told


def test_settings_are_given_one_by_one_to_either_part() -> None:
    given = ["--steps", "9", "--pretraining.mlm.mask=0.7", "--no-cross-documents", "--batch", "8"]
    given += ["--finetuning.learning-rate", "-1", "--finetuning.merge", "--finetuning.length=24", "--epochs", "2"]
    for name in ("table5", "table2"):
        pretraining, finetuning = split_settings(given, table_schemas(TABLES[name], "cpu", given))
        assert pretraining == {"training.steps": "9", "mlm.mask": "0.7", "data.cross_documents": False, "batch": "8"}
        assert finetuning == {"learning_rate": "-1", "merge": True, "length": "24", "epochs": "2"}
    schemas = table_schemas(TABLES["table5"], "cpu", ["--pretraining.objectives", "mlm"])
    with refusal("unknown-setting", "--finetuning.epoch", "finetuning.epochs"):
        split_settings(["--finetuning.epoch", "1"], schemas)
    with refusal("unknown-setting", "--nsp.weight"):
        split_settings(["--nsp.weight", "2"], schemas)
    with refusal("invalid-value", "--finetuning.no-merge"):
        split_settings(["--finetuning.no-merge=3"], schemas)


@pytest.mark.parametrize("old", [["--finetuning", "--epochs 1 --length 24"], ["--finetuning=--epochs 1 --length 24"]])
def test_settings_of_finetuning_in_one_string_are_refused(old: list[str]) -> None:
    with refusal("replaced-option", "--finetuning.epochs 1 --finetuning.length 24"):
        split_settings(["--steps", "9", *old], [])


def test_a_quotation_mark_that_is_not_closed_is_refused_as_well() -> None:
    for old in (["--finetuning", "--epochs '3"], ["--finetuning"]):
        with refusal("replaced-option", "--finetuning.epochs"):
            split_settings(old, [])


def test_settings_are_the_same_by_whichever_name() -> None:
    usual = "--epochs 3 --learning-rate 5e-4 --length 128"
    for table in (TABLES["table1"], TABLES["table7"]):
        assert same_finetuning(f"{usual} --merge --training.epochs 2", f"--merge --epochs 2 {usual[11:]}", table)
        assert not same_finetuning(usual, f"{usual} --training.epochs 2", table)
        assert not same_finetuning(usual, f"{usual} --no-merge", table)
        assert not same_finetuning("--was-once 3", usual, table) and not same_finetuning("'", usual, table)


def test_help_lists_the_settings_of_both_parts(capsys) -> None:
    assert run("reproduce", "table2", "--recipe", "bert-tiny", "--help") == 0
    told = capsys.readouterr().out
    assert "--finetuning.epochs" in told and "--pretraining.mlm.mask" in told and "--finetuning.squad" in told
