"""osbert reproduce: what it runs for a table, that it runs it once, and that it prints only what it measured."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from osbert import cli
from osbert.commands.reproduce import Plan, perplexity
from osbert.errors import UserError
from osbert.evaluation.paper import TABLE_8
from osbert.interop.tokenizer_files import read_tokenizer, write_tokenizer
from osbert.runs.pretrain.settings import read_settings
from osbert.runs.reproduce import tables as reproduce_tables
from osbert.runs.reproduce.encoders import Given, Pretrained, run_folder
from osbert.runs.reproduce.jobs import Job, Jobs
from osbert.runs.reproduce.tables import GLUE, MNLI, QNLI, SST2, TABLES, Row, Table, columns, spread

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


def run(words: list[str]) -> int:
    """Return the exit status, whichever way the command line ends."""
    try:
        return cli.main(words)
    except SystemExit as ending:
        return int(ending.code or 0)


def plan(table: Table, out: Path, **changed) -> Plan:
    encoders = Pretrained(recipe="cpu", corpus=out) if table.varied else Given(model=out)
    settings = {"datasets": table.datasets, "encoders": encoders, "data": out, "seeds": 2, "rows": 0}
    return Plan(table=table, out=out, finetuning=(), **(settings | changed))


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_the_paper_is_run_with_every_data_set(name: str, tmp_path: Path) -> None:
    table = TABLES[name]
    names = [row.name for row in table.rows]
    assert names == list(table.published.figures) if table.varied else {*names} <= {"ours", *table.published.figures}
    jobs = list(plan(table, tmp_path).jobs())
    encoders = [job for job in jobs if job.words[0] == "pretrain"]
    tuned = [job for job in jobs if job.words[0] == "finetune"]
    assert len(encoders) == (2 * sum(not row.encoder for row in table.rows) if table.varied else 0)
    assert len(tuned) == 2 * len(table.rows) * len(table.datasets)
    assert len({job.folder for job in jobs}) == len(jobs) == len({job.name for job in jobs})
    assert all(job.words[job.words.index("--settings") + 1] == "paper" for job in tuned)
    names = [job.name for job in jobs]
    for job in tuned if table.varied else ():
        before = jobs[names.index(job.after)]
        assert names.index(job.after) < names.index(job.name)
        assert str(before.folder) == job.words[job.words.index("--model") + 1]


def test_the_mixes_of_table_8_are_mlm_settings() -> None:
    found = [read_settings("cpu", row.pretraining).mlm for row in TABLES["table8"].rows]
    shares = [(mlm.mask, 1 - mlm.mask - mlm.random, mlm.random) for mlm in found]
    wanted = [tuple(int(share) / 100 for share in mix.split("/")) for mix in TABLE_8.figures]
    assert shares == [pytest.approx(mix) for mix in wanted]


def test_rows_are_drawn_and_a_missing_development_file_is_split_off(tmp_path: Path) -> None:
    lines = [f"{number}\tq{number}\ts{number}\tentailment" for number in range(50)]
    header = "index\tquestion\tsentence\tlabel"
    (tmp_path / "QNLI").mkdir()
    (tmp_path / "QNLI" / "dev.tsv").write_text("\n".join([header, *lines]) + "\n", "utf-8")
    QNLI.prepare(tmp_path, tmp_path / "out", rows=30)
    train, dev = ((tmp_path / "out" / name).read_text("utf-8").splitlines() for name in ("train.tsv", "dev.tsv"))
    assert train[0] == dev[0] == header and len(train) == 31 and len(dev) == 11
    assert not {*train[1:]} & {*dev[1:]} and {*train[1:], *dev[1:]} < {*lines}
    QNLI.prepare(tmp_path, tmp_path / "all", rows=0, dev_rows=4)
    train, few = ((tmp_path / "all" / name).read_text("utf-8").splitlines() for name in ("train.tsv", "dev.tsv"))
    assert len(train) == 41 and len(few) == 5 and {*few} < {*dev}


def test_the_official_training_rows_are_taken_where_they_are(tmp_path: Path) -> None:
    header, folder = "index\tquestion\tsentence\tlabel", tmp_path / "QNLI"
    folder.mkdir()
    for name in ("dev.tsv", "train.tsv"):
        assert QNLI.files(tmp_path) == ([folder / "dev.tsv"] if name == "train.tsv" else [])
        (folder / name).write_text(f"{header}\n1\t{name}\ts\tentailment\n", "utf-8")
    assert QNLI.files(tmp_path) == [folder / "train.tsv", folder / "dev.tsv"]
    QNLI.prepare(tmp_path, tmp_path / "out", rows=0)
    for name in ("train.tsv", "dev.tsv"):
        assert (tmp_path / "out" / name).read_text("utf-8") == (folder / name).read_text("utf-8")


def test_missing_files_are_all_told_when_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        TABLES["table5"].present(tmp_path)
    for name in ("MNLI/train.tsv", "MNLI/dev_matched.tsv", "QNLI/dev.tsv", "MRPC/train.tsv", "SST-2/dev.tsv"):
        assert name in str(caught.value)
    (tmp_path / "SST-2").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "SST-2" / name).touch()
    assert TABLES["table5"].present(tmp_path) == (SST2,)


def test_a_failed_job_is_named_with_its_output_and_what_follows_it_is_left(tmp_path: Path) -> None:
    told: list[str] = []
    jobs = [
        Job(name="first", words=("pretrain", "no-such-recipe", "--corpus", "x", "--out", "y"), folder=tmp_path / "a"),
        Job(name="second", words=("--version",), folder=tmp_path / "b", after="first"),
    ]
    with pytest.raises(UserError, match="first: status 1") as caught:
        Jobs(together=2, tell=told.append).run(jobs)
    assert "no-such-recipe" in (tmp_path / "a-log.txt").read_text("utf-8") and "a-log.txt" in str(caught.value)
    assert [line.split("  (")[0] for line in told] == ["[1/2] first: not done", "[2/2] second: not done"]
    assert not (tmp_path / "b").exists()


def test_spread_and_columns() -> None:
    assert spread([]) == "-" and spread([0.5]) == "50.0" and spread([0.4, 0.6]) == "50.0 +- 14.1"
    assert columns(TABLES["table8"]) == ("MNLI-m", "NER fine-tuned", "NER feature-based", "SST-2")
    assert columns(TABLES["table5"]) == TABLES["table5"].published.columns


@pytest.mark.parametrize("option", ["--seeds", "--jobs"])
def test_numbers_below_one_are_refused(option: str, tmp_path: Path, capsys) -> None:
    folder = str(tmp_path)
    words = ["reproduce", "table8", "--corpus", folder, "--data", folder, "--out", folder, option, "0"]
    assert run(words) == 1 and f"{option} must be 1 or more" in capsys.readouterr().err


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
    assert run(["corpus", "build", str(tmp_path / "text.txt"), *built]) == 0
    for dataset, header in ((SST2, "sentence\tlabel"), (MNLI, "index\tsentence1\tsentence2\tgold_label")):
        folder = tmp_path / "glue" / dataset.folder
        folder.mkdir(parents=True)
        for name, count in ((dataset.train, 30), (dataset.dev, 12)):
            rows = [f"{text}\t{row % 2}" if dataset is SST2 else f"{row}\t{text}\t{text}\t{'abc'[row % 3]}"
                    for row, text in enumerate(texts[:count])]  # fmt: skip
            (folder / name).write_text("\n".join([header, *rows]) + "\n", "utf-8")
    return tmp_path


def test_a_table_from_end_to_end(inputs: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    small = Table(published=TABLE_8, rows=(Row(name="80/10/10"),), datasets=(MNLI, SST2))
    missing = inputs / "glue" / "MNLI" / "train.tsv"
    content = missing.read_bytes()
    missing.unlink()
    monkeypatch.setattr(reproduce_tables, "TABLES", {"table8": small})
    out = inputs / "out"
    words = ["reproduce", "table8", "--recipe", str(inputs / "tiny.toml"), "--corpus", str(inputs / "corpus")]
    words += ["--data", str(inputs / "glue"), "--out", str(out), "--seeds", "1", "--jobs", "2"]
    words += ["--finetuning", "--epochs 1 --length 24 --precision fp32"]
    assert run(words) == 0
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
    assert run(words) == 0 and "[1/" not in capsys.readouterr().out  # nothing is run again
    assert "No data for MNLI-m" in printed and "split off" not in printed

    table, edited = (out / "table.txt").read_bytes(), inputs / "glue" / "SST-2" / "dev.tsv"
    assert run([*words, "--steps", "5"]) == 1
    assert "another protocol (pretraining.80/10/10.training.steps: 4 -> 5)" in capsys.readouterr().err
    edited.write_bytes(edited.read_bytes() + b"a film\t1\n")
    assert run(words) == 1 and "another protocol (data.SST-2.dev.tsv" in capsys.readouterr().err
    edited.write_bytes(edited.read_bytes().removesuffix(b"a film\t1\n"))
    other = str(rebuilt(inputs))
    assert (
        run([other if word == str(inputs / "corpus") else word for word in words]) == 1
        and "another protocol (corpus" in capsys.readouterr().err
    )
    assert (out / "table.txt").read_bytes() == table
    missing.write_bytes(content)  # a column that joins later makes the others no other ones
    assert run(words) == 0 and "[1/1] 80/10/10, seed 0, MNLI-m: done" in capsys.readouterr().out


def rebuilt(inputs: Path) -> Path:
    (inputs / "more.txt").write_text((inputs / "text.txt").read_text("utf-8") + "a good film .\n", "utf-8")
    built = ["--tokenizer", str(inputs / "tok"), "--out", str(inputs / "other"), "--documents", "line"]
    assert run(["corpus", "build", str(inputs / "more.txt"), *built]) == 0
    return inputs / "other"


def test_settings_of_finetuning_are_checked_before_any_run(inputs: Path, capsys) -> None:
    words = ["reproduce", "table8", "--recipe", str(inputs / "tiny.toml"), "--corpus", str(inputs / "corpus")]
    words += ["--data", str(inputs / "glue"), "--out", str(inputs / "out"), "--finetuning", "--epoch 1"]
    assert run(words) == 1
    assert "(--finetuning): Unknown setting --epoch. Did you mean 'epochs'?" in capsys.readouterr().err
    assert not (inputs / "out" / "runs").exists()


def test_columns_with_development_rows_of_our_own_are_named(inputs: Path) -> None:
    folder = inputs / "glue" / "QNLI"
    folder.mkdir()
    (folder / "dev.tsv").write_text("index\tquestion\tsentence\tlabel\n", "utf-8")
    table = Table(published=TABLES["table5"].published, rows=(Row(name="BASE"),), datasets=(QNLI, SST2))
    found = plan(table, inputs / "out", data=inputs / "glue")
    assert found._split_off() == ["QNLI"]


def test_the_sizes_of_table_6_are_the_papers_and_can_be_shrunk() -> None:
    table = TABLES["table6"]
    sizes = [read_settings("bert-base", row.pretraining).model for row in table.rows]
    assert [f"{one.layers}, {one.width}, {one.heads}" for one in sizes] == list(table.published.figures)
    small = [read_settings("bert-base", row.pretraining).model for row in table.shrunk(4).rows]
    assert [(one.layers, one.width, one.heads) for one in small][:2] == [(3, 192, 12), (6, 192, 3)]
    assert table.shrunk(1) is table
    with pytest.raises(UserError, match="--shrink 5 cannot be: 12 heads must share a width of 768 / 5 evenly"):
        table.shrunk(5)
    with pytest.raises(UserError, match="have no widths of their own"):
        TABLES["table8"].shrunk(2)


def test_table_1_takes_a_model_and_prints_what_it_measured_beside_the_paper(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (inputs / "glue" / "CoLA").mkdir()
    rows = [f"gj04\t{number % 2}\t\ta {('bad', 'good')[number % 2]} film" for number in range(30)]
    for name in ("train.tsv", "dev.tsv"):
        (inputs / "glue" / "CoLA" / name).write_text("\n".join(rows) + "\n", "utf-8")
    only = replace(TABLES["table1"], datasets=tuple(one for one in GLUE if one.column in ("CoLA", "RTE")))
    monkeypatch.setattr(reproduce_tables, "TABLES", {"table1": only, "table5": TABLES["table5"]})
    pretrained = ["pretrain", str(inputs / "tiny.toml"), "--corpus", str(inputs / "corpus")]
    assert run([*pretrained, "--out", str(inputs / "model")]) == 0
    words = ["reproduce", "table1", "--data", str(inputs / "glue"), "--out", str(inputs / "out"), "--seeds", "1"]
    words += ["--rows", "20", "--finetuning", "--epochs 1 --length 24 --precision fp32"]
    given = ["--model", str(inputs / "model")]
    assert run([*words, *given]) == 0
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
    assert run([*words, *given]) == 0 and "[1/" not in capsys.readouterr().out
    (inputs / "model" / "config.json").write_bytes((inputs / "model" / "config.json").read_bytes() + b"\n")
    assert run([*words, *given]) == 1 and "another protocol (model.config.json" in capsys.readouterr().err

    corpus = ["--corpus", str(inputs / "corpus")]
    for wrong, message in (
        ([], "Give --model M to fine-tune a model of yours, or --corpus C to pretrain on"),
        ([*given, *corpus], "With --model nothing is pretrained"),
        ([*given, "--steps", "5"], "With --model nothing is pretrained"),
        (["--model", str(inputs)], "is no model: it has no config.json"),
    ):
        assert run([*words, *wrong]) == 1 and message in capsys.readouterr().err
    words[1] = "table5"
    assert run(words) == 1 and "Give --corpus C to pretrain on" in capsys.readouterr().err
    assert run([*words, *given]) == 1 and "are encoders that differ" in capsys.readouterr().err


def test_an_average_is_made_of_all_columns_or_of_none(tmp_path: Path) -> None:
    table = TABLES["table1"]
    found = plan(table, tmp_path, seeds=1)
    for number, dataset in enumerate(table.datasets):
        folder = run_folder("ours", 0, dataset.column, tmp_path)
        folder.mkdir(parents=True)
        metrics = dict.fromkeys(dataset.measured.values(), number / 10)
        (folder / "run.json").write_text(json.dumps({"finished": {"best": {"metrics": metrics}}}))
    scores = found._scores("ours")
    assert scores["average"] == [pytest.approx((0 + 0 + 0.1 + 0.2 + 0.3 + 0.4 + 0.5 + 0.6 + 0.7) / 9)]
    assert found._mean("ours", scores) == ""
    metrics = {"finished": {"best": {"metrics": {"accuracy": 0.5}}}}
    (run_folder("ours", 0, "MNLI-m", tmp_path) / "run.json").write_text(json.dumps(metrics))
    assert {"average", "MNLI-mm"} & {*found._scores("ours")} == set()


def test_perplexity_is_that_of_the_last_look_at_held_out_text(tmp_path: Path) -> None:
    lines = [{"step": 0, "held_out.mlm.loss": 6.0}, {"step": 4, "mlm.loss": 3.0}, {"step": 4, "held_out.mlm.loss": 2.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert perplexity(tmp_path) == pytest.approx(math.exp(2))


def test_table_7_is_one_encoder_fine_tuned_and_on_six_choices_of_features(tmp_path: Path) -> None:
    jobs = list(plan(TABLES["table7"], tmp_path, seeds=1, encoders=Pretrained(recipe="cpu", corpus=tmp_path)).jobs())
    assert [job.words[0] for job in jobs] == ["pretrain", *["finetune"] * 7]
    assert all(str(jobs[0].folder) in job.words and job.after == jobs[0].name for job in jobs[1:])
    given = [job.words[job.words.index("--features") + 1] for job in jobs[2:]]
    assert given == ["embeddings", "second-to-last", "last", "sum-last-four", "concat-last-four", "sum-all"]
    assert "--features" not in jobs[1].words
    cells = plan(TABLES["table7"], tmp_path)._cells({"fine-tuned, BASE": {"dev F1": [0.5, 0.7]}})
    assert cells[:2] == [
        ["ours (published)", "dev F1", "test F1"],
        ["fine-tuned, BASE", "60.0 +- 14.1 (96.4)", "- (92.4)"],
    ]
    assert ["ELMo", "(95.7)", "(92.2)"] in cells and ["embeddings", "(91.0)", "-"] in cells


def test_what_rows_and_columns_have_of_their_own_is_told_and_kept(tmp_path: Path) -> None:
    table = TABLES["table7"]
    assert len(table.own_settings(table.datasets)) == 6
    told = "Row 'last layer': fine-tuned as all, but --features last --learning-rate 1e-3."
    assert told in table.own_settings(table.datasets)
    told = "Column 'NER feature-based': fine-tuned as all, but --features concat-last-four."
    assert told in TABLES["table8"].own_settings(TABLES["table8"].datasets)
    assert not any("Column" in line for line in TABLES["table8"].own_settings(()))
    recurrent, encoders = TABLES["table5"], Pretrained(recipe="cpu", corpus=tmp_path)
    assert "Row '+ BiLSTM': fine-tuned as all, but --recurrent 1." in recurrent.own_settings(())
    assert any("--mlm.mask 0.8 --mlm.random 0.1" in line for line in TABLES["table8"].own_settings(()))
    assert recurrent.differing()["finetuning_by_row"] == {"+ BiLSTM": "--recurrent 1"}
    found = replace(plan(TABLES["table8"], tmp_path, encoders=encoders), finetuning=("--features", "last"))
    words = next(job.words for job in found.jobs() if job.name.endswith("NER feature-based"))
    given = [words[place + 1] for place, word in enumerate(words) if word == "--features"]
    assert given == ["last", "concat-last-four"]  # the last one counts


def ended(folder: Path, accuracy: float, collapsed: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    best = {"metrics": {"accuracy": accuracy}, "collapsed": collapsed}
    (folder / "run.json").write_text(json.dumps({"finished": {"best": best}}))


def test_a_collapsed_run_is_named_and_another_one_counts_in_its_place(tmp_path: Path) -> None:
    table = Table(published=TABLE_8, rows=(Row(name="80/10/10"),), datasets=(SST2,))
    found = plan(table, tmp_path, seeds=3)
    (tmp_path / "protocol.json").write_text("{}")
    for seed, (accuracy, collapsed) in enumerate([(0.9, ""), (0.5, "'1'"), (0.5, "'0'")]):
        ended(run_folder("80/10/10", seed, "SST-2", tmp_path), accuracy, collapsed)
    jobs = list(found.restarts())
    assert [job.words[job.words.index("--training.seed") + 1] for job in jobs] == ["1001", "1002"]
    assert "again with seed 1001" in jobs[0].name and jobs[0].folder.name == "SST-2-again"
    for job, score in zip(jobs, (0.8, 0.7)):
        ended(job.folder, score)
    assert found._scores("80/10/10") == {"SST-2": [0.9, 0.8, 0.7]}
    told = found.report()
    assert "80/10/10, seed 1, SST-2: every development row is '1'; in its place: seed 1001\n" in told
    assert "80.0 +- 10.0\n" in told and "a figure with such a run" not in told
    assert len(json.loads((tmp_path / "results.json").read_text())["collapsed"]) == 2
    ended(jobs[1].folder, 0.5, "'0'")
    told = found.report()
    assert "in its place: seed 1002, collapsed as well and counted all the same" in told
    assert "73.3 +- 20.8!" in told and "!: a figure with such a run in it." in told


def test_documents_of_tagged_words_are_drawn_whole(tmp_path: Path) -> None:
    folder = tmp_path / "conll2003"
    folder.mkdir()
    sentences = [f"word{number} NN B-NP O\n\n" for number in range(9)]
    documents = ["-DOCSTART- -X- O O\n\n" + "".join(sentences[at : at + 3]) for at in (0, 3, 6)]
    for name in ("eng.train", "eng.testa"):
        (folder / name).write_text("".join(documents), "utf-8")
    (dataset,) = TABLES["table7"].datasets
    for rows, count in ((0, 3), (6, 2), (4, 1), (1, 1)):
        dataset.prepare(tmp_path, tmp_path / "out", rows=rows)
        drawn = (tmp_path / "out" / "eng.train").read_text("utf-8")
        assert drawn.count("-DOCSTART-") == count and drawn.count("word") == 3 * count
        assert all(document in drawn for document in documents if document.split("\n")[2] in drawn)
    assert (tmp_path / "out" / "eng.testa").read_bytes() == (folder / "eng.testa").read_bytes()
