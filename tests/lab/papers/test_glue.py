"""osbert finetune glue and osbert submit: nine runs from official files, their table, and the server's zip."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from sklearn.metrics import matthews_corrcoef

from osbert.commands.evaluate import evaluate
from osbert.commands.finetune import finetune
from osbert.inference.engine import load
from osbert.training.run_folder import RECIPE
from osbert.training.trainer import Trainer
from osbert_lab.commands.submit import submit
from osbert_lab.papers.glue import COLUMNS, SETS, SUBMISSION, average
from osbert_lab.papers.glue_runs import finetune_glue
from osbert_lab.papers.published import TABLE_1
from osbert_lab.papers.submit import find_runs
from osbert_lab.papers.submit import test_rows as _test_rows
from refusals import refusal

PAIR = "index\tsentence1\tsentence2\tlabel"
STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
MRPC = "#1 ID\t#2 ID\t#1 String\t#2 String"
DIAGNOSTIC = "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\tHypothesis\tLabel"
MNLI = "index\tpromptID\tgenre\tsentence1\tsentence2"
FILES: dict[str, tuple[str, Callable[[int], str]]] = {
    "CoLA/train.tsv": ("", lambda n: f"gj04\t{n % 2}\t\ta {('bad', 'good')[n % 2]} film"),
    "CoLA/test.tsv": ("index\tsentence", lambda n: f'{n}\ta "good film'),
    "SST-2/train.tsv": ("sentence\tlabel", lambda n: f"{('bad', 'good')[n % 2]} film \t{n % 2}"),
    "SST-2/test.tsv": ("index\tsentence", lambda n: f"{n}\ta film"),
    "MRPC/msr_paraphrase_train.txt": (f"Quality\t{MRPC}", lambda n: f'{n % 2}\t1\t2\ta "good film\tbad'),
    "MRPC/msr_paraphrase_test.txt": (f"Quality\t{MRPC}", lambda n: "1\t1\t2\ta\tb"),
    "STS-B/train.tsv": (f"{STSB}\tscore", lambda n: f"{n}\tg\tf\ty\t1\tn\tn\ta good\ta film\t{n % 6}.000"),
    "STS-B/test.tsv": (STSB, lambda n: f"{n}\tg\tf\ty\t1\tn\tn\ta good\ta film"),
    "QQP/train.tsv": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", lambda n: f"{n}\t1\t2\ta\tb\t{n % 2}"),
    "QQP/test.tsv": ("id\tquestion1\tquestion2", lambda n: f"{n}\ta\t"),
    "MNLI/train.tsv": (f"{MNLI}\tgold_label", lambda n: f"{n}\t1\tg\ta\tb\t{('neutral', 'entailment')[n % 2]}"),
    "MNLI/test_matched.tsv": (MNLI, lambda n: f"{n}\t1\tg\ta\tb"),
    "MNLI/test_mismatched.tsv": (MNLI, lambda n: f"{n}\t1\tg\ta\tb"),
    "QNLI/dev.tsv": ("index\tquestion\tsentence\tlabel", lambda n: f"{n}\ta\tb\t{('not_', '')[n % 2]}entailment"),
    "QNLI/test.tsv": ("index\tquestion\tsentence", lambda n: f"{n}\ta\tb"),
    "RTE/train.tsv": (PAIR, lambda n: f"{n}\ta\tb\t{('not_', '')[n % 2]}entailment"),
    "RTE/test.tsv": ("index\tsentence1\tsentence2", lambda n: f"{n}\ta\tb"),
    "WNLI/train.tsv": (PAIR, lambda n: f"{n}\ta\tb\t{int(n % 3 == 0)}"),
    "WNLI/test.tsv": ("index\tsentence1\tsentence2", lambda n: f"{n}\ta\tb"),
    "diagnostic/diagnostic.tsv": ("index\tsentence1\tsentence2", lambda n: f"{n}\ta\tb"),
}
ROWS = 24
SETTINGS = ("--epochs", "1", "--precision", "fp32", "--learning-rate", "1e-3", "--length", "16")


def write(data: Path) -> Path:
    for name, (header, row) in FILES.items():
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [*([header] if header else []), *(row(number) for number in range(ROWS))]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
        if name.endswith("train.tsv"):
            dev = ("dev_matched.tsv", "dev_mismatched.tsv") if "MNLI" in name else ("dev.tsv",)
            for other in dev:
                shutil.copy(path, path.with_name(other))
    return data


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    folder = tmp_path_factory.mktemp("glue")
    finetune("glue", *SETTINGS, model=encoder, data=write(folder / "data"), out=folder / "runs")
    return folder / "runs"


def test_every_set_has_its_run_and_the_table_its_official_scores(
    runs: Path, encoder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(self: Trainer) -> None:
        raise AssertionError("a finished set is run again")

    monkeypatch.setattr(Trainer, "run", again)
    finetune("glue", *SETTINGS, model=encoder, data=runs.parent / "data", out=runs)
    told = capsys.readouterr().out
    scores = json.loads((runs / "glue.json").read_text())
    assert list(scores) == [column for glue in SETS for column in glue.scores] and set(COLUMNS) < set(scores)
    for column, value in scores.items():
        assert f"\n  {column}" in told and f"{value:6.1f}  " in told
    task = {column: (glue.task, name) for glue in SETS for column, name in glue.scores.items()}
    for column, value in scores.items():
        run, name = task[column]
        facts = json.loads((runs / run / "run.json").read_text())
        assert value == 100 * facts["finished"]["best"]["metrics"][name]
    assert f"{'average':<15} {average(scores):6.1f}  of nine columns, without WNLI" in told
    assert scores["WNLI"] == pytest.approx(100 * 16 / 24) and "majority class" in told
    assert "QNLI*" in told and "only " in told and "held out for development" in told
    assert (runs / "glue.txt").read_text() in told


def test_the_papers_average_is_the_mean_of_its_nine_columns() -> None:
    for figures in TABLE_1.figures.values():
        assert average(figures) == pytest.approx(figures["average"], abs=0.06)


def test_the_submission_has_the_servers_files(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "glue.zip"
    submit(runs, out=out)
    with ZipFile(out) as archive:
        pages = {name: archive.read(name).decode().splitlines() for name in archive.namelist()}
    assert list(pages) == [one.file for one in SUBMISSION] and len(pages) == 11
    spelt = {"name": {"entailment", "neutral", "contradiction", "not_entailment"}, "number": {"0", "1"}}
    for one in SUBMISSION:
        header, *lines = pages[one.file]
        cells = [line.split("\t") for line in lines]
        assert header == "index\tprediction" and [int(index) for index, _ in cells] == list(range(ROWS))
        if one.spelling == "score":
            assert all(0 <= float(value) <= 5 for _, value in cells)
        else:
            assert {value for _, value in cells} <= spelt[one.spelling]
    assert {line.split("\t")[1] for line in pages["WNLI.tsv"][1:]} == {"0"}
    assert "11 of 11 files" in capsys.readouterr().out
    before = out.read_bytes()
    (tmp_path / "link.zip").symlink_to("served.csv")
    submit(runs, out=tmp_path / "link.zip", data=runs.parent / "data")
    assert (tmp_path / "served.csv").read_bytes() == before and (tmp_path / "link.zip").is_symlink()


def test_runs_of_other_tasks_beside_glues_are_not_opened(runs: Path, tmp_path: Path) -> None:
    for name in ("ner-1", "ner-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / RECIPE).write_text('task = "conll2003"\n')
    (tmp_path / "rte").symlink_to(runs / "rte")
    assert [*find_runs(tmp_path)] == ["rte"]


@pytest.mark.parametrize("cell", ["", "?", "hidden"])
def test_labels_of_test_rows_are_not_read(runs: Path, tmp_path: Path, cell: str) -> None:
    for wanted, column in zip((SUBMISSION[3], SUBMISSION[8]), ("score", "label")):
        folder = tmp_path / wanted.task
        folder.mkdir()
        rows = "".join(f"{n}\tgood\ta film\t{cell}\n" for n in range(3))
        (folder / "test.tsv").write_text(f"index\tsentence1\tsentence2\t{column}\n{rows}")
        found = _test_rows(wanted, find_runs(runs), tmp_path)
        assert [(one.number, one.texts, one.label) for one in found] == [
            (n, ("good", "a film"), None) for n in range(3)
        ]
    (tmp_path / "rte" / "test.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n1\t\t\n")
    with refusal("empty-text", "test.tsv", "3"):
        _test_rows(SUBMISSION[8], find_runs(runs), tmp_path)


def test_the_diagnostic_set_with_labels_is_scored_with_a_run_of_mnli(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"good": "entailment", "actor": "neutral", "bad": "contradiction"}
    rows = [f'{n}\t1\tg\ta "film\t{word}\t{label}' for n in range(36) for word, label in words.items()]
    (tmp_path / "mnli").mkdir()
    for name in ("train.tsv", "dev_matched.tsv"):
        (tmp_path / "mnli" / name).write_text("\n".join([f"{MNLI}\tgold_label", *rows]) + "\n")
    settings = ("--epochs", "20", "--batch", "6", "--learning-rate", "1e-2", "--precision", "fp32", "--dropout", "0")
    finetune("mnli", *settings, model=encoder, data=tmp_path / "mnli", out=tmp_path / "run")
    path = tmp_path / "diagnostic-full.tsv"
    texts = [word for word in words for _ in range(3)]
    labels = ["entailment", "entailment", "neutral", *[*words.values()] * 2]
    rows = [f'Quantifiers\t\t\t\tNews\ta "film\t{text}\t{label}' for text, label in zip(texts, labels)]
    path.write_text("\n".join([DIAGNOSTIC, *rows]) + "\n")
    capsys.readouterr()
    evaluate(tmp_path / "run", data=path)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    said = [one.value for one in load(tmp_path / "run").predict([('a "film', text) for text in texts])]
    assert {*said} == {*labels} and ["9", "rows"] in lines
    assert ["matthews", f"{matthews_corrcoef(labels, said):.4f}"] in lines
    path.write_text(path.read_text().replace("contradiction", "contradicts"))
    with refusal("unknown-label", "7", "contradicts", "contradiction"):
        evaluate(tmp_path / "run", data=path)


def test_what_is_missing_is_said(runs: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "data")
    for name in ("RTE/test.tsv", "MNLI/test_mismatched.tsv"):
        (tmp_path / "data" / name).unlink()
    shutil.copytree(runs, tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs" / "qqp")
    with refusal("missing-file", "--partial") as refused:
        submit(tmp_path / "runs", out=tmp_path / "glue.zip", data=tmp_path / "data")
    lines = str(refused.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["MNLI-mm.tsv", "QQP.tsv", "RTE.tsv"]
    assert not (tmp_path / "glue.zip").exists()
    submit(tmp_path / "runs", out=tmp_path / "glue.zip", data=tmp_path / "data", partial=True)
    told = capsys.readouterr().out
    assert "8 of 11 files" in told and "QQP.tsv: there is no run of qqp" in told
    assert "RTE.tsv: " in told and "MNLI-mm.tsv: " in told and "has no file for test_mismatched" in told
    (tmp_path / "data" / "CoLA" / "test.tsv").write_text("index\tsentence\n0\tgood\n1\n2\ta\tb\n")
    with refusal("unusable-row", "CoLA/test.tsv", "line 3", "1", "line 4: 3"):
        submit(tmp_path / "runs", out=tmp_path / "glue.zip", data=tmp_path / "data")
    with refusal("unknown-output-format"):
        submit(runs, out=tmp_path / "glue.tsv")
    with refusal("not-a-model"):
        submit(encoder, out=tmp_path / "glue.zip")
    for name in ("reviews", "more-reviews", "tagger"):  # runs that are none of GLUE's are not opened
        shutil.copytree(runs / "cola", tmp_path / "runs" / name)
        task = "my_code.tagger" if name == "tagger" else "classify"
        (tmp_path / "runs" / name / "recipe.toml").write_text(f'task = "{task}"\n')
    assert "tagger" not in {run.folder.name for run in find_runs(tmp_path / "runs").values()}
    shutil.copytree(runs / "rte", tmp_path / "runs" / "rte-again")
    with refusal("duplicate-name"):
        submit(tmp_path / "runs", out=tmp_path / "glue.zip")


def test_all_sets_are_checked_before_the_first_is_trained(encoder: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "data")
    shutil.rmtree(data / "QNLI")
    (data / "CoLA" / "train.tsv").write_text("gj04\t2\t\tA film.\ngj04\t1\t\tGood.\n")
    (data / "RTE" / "dev.tsv").write_text(f"{PAIR}\n0\ta\tb\tentailmnt\n")
    with refusal("unknown-label", "CoLA: ", "'2'", "'entailment'"):
        finetune("glue", *SETTINGS, model=encoder, data=data, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    with refusal("unknown-label", "--class-weights"):
        finetune("glue", "--class-weights", "balanced", model=encoder, data=data, out=tmp_path / "runs")
    shutil.copy(data / "SST-2" / "train.tsv", data / "SST-2" / "train.csv")
    (data / "MRPC" / "dev-00000-of-00002.parquet").touch()
    with refusal("missing-split", "2", "train.csv", "MRPC: ", "dev-00000-of-00002.parquet"):
        finetune("glue", *SETTINGS, model=encoder, data=data, out=tmp_path / "runs")
    with refusal("missing-split"):
        finetune("glue", model=encoder, data=tmp_path, out=tmp_path / "runs")


def test_long_texts_are_refused_before_the_first_set_is_trained_or_predicted(encoder: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "data")
    for name in ("MNLI", "QQP", "QNLI", "STS-B", "MRPC", "CoLA"):
        shutil.rmtree(data / name)
    settings = (*SETTINGS, "--long", "error")
    for name in ("RTE/train.tsv", "WNLI/dev.tsv"):
        lines = (data / name).read_text("utf-8-sig").splitlines()
        (data / name).write_text(
            "\n".join([lines[0], lines[1].replace("\ta\t", f"\t{'a ' * 30}\t"), *lines[2:]]) + "\n"
        )
    with refusal("text-too-long", *(f"{data / name}, line 2: 18" for name in ("RTE/train.tsv", "WNLI/dev.tsv")), "16"):
        finetune("glue", *settings, model=encoder, data=data, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    write(data)
    shutil.rmtree(data / "MNLI")
    finetune("rte", "wnli", *settings, "--batch", "4", model=encoder, data=data, out=tmp_path / "runs")
    for name in ("RTE", "WNLI"):
        (data / name / "test.tsv").write_text(f"index\tsentence1\tsentence2\n0\t{'a ' * 30}\tb\n")
    with refusal("text-too-long", "RTE/test.tsv, line 2: 18", "WNLI/test.tsv, line 2: 18"):
        submit(tmp_path / "runs", out=tmp_path / "glue.zip")
    assert not (tmp_path / "glue.zip").exists()


def test_a_set_that_fails_leaves_the_others_finished(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "data")
    for name in ("MNLI", "QQP", "QNLI", "STS-B", "MRPC", "CoLA", "WNLI"):
        shutil.rmtree(data / name)
    (tmp_path / "runs" / "sst2").mkdir(parents=True)
    (tmp_path / "runs" / "sst2" / "config.json").write_text("{}")
    with refusal("output-holds-something-else", "2", "config.json"):
        finetune("glue", *SETTINGS, model=encoder, data=data, out=tmp_path / "runs")
    told = capsys.readouterr().out
    assert "No data for MNLI, QQP, QNLI, CoLA, STS-B, MRPC, WNLI" in told
    assert list(json.loads((tmp_path / "runs" / "glue.json").read_text())) == ["RTE"]
    assert "average" in told and "of 1 of the 9 columns" in told and "Not measured: MNLI-m, " in told


def test_of_several_runs_the_table_says_that_it_has_the_best(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write(tmp_path / "data"), tmp_path / "runs"
    for name in ("MNLI", "QQP", "QNLI", "STS-B", "MRPC", "CoLA", "SST-2"):
        shutil.rmtree(data / name)
    finetune("glue", *SETTINGS, "--seeds", "2", model=encoder, data=data, out=out)
    assert "The best of several runs, chosen on the same rows: RTE, WNLI." in (out / "glue.txt").read_text()
    runs = {path.name for path in (out / "wnli" / "trials").iterdir()}
    assert runs == {"seed-0", "seed-1"}  # by the majority rule all answers are alike: nothing has collapsed
    submit(out, out=tmp_path / "glue.zip", partial=True)
    assert "2 of 11 files" in capsys.readouterr().out


def test_glue_is_a_function_that_returns_the_scores(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, events = write(tmp_path / "data"), []
    for name in ("MNLI", "QQP", "QNLI", "STS-B", "MRPC", "CoLA", "SST-2"):
        shutil.rmtree(data / name)
    settings = {"epochs": 1, "precision": "fp32", "learning_rate": 1e-3, "length": 16}
    scores = finetune_glue(model=encoder, data=data, out=tmp_path / "runs", watch=events.append, **settings)
    assert scores == json.loads((tmp_path / "runs" / "glue.json").read_text()) and list(scores) == ["RTE", "WNLI"]
    assert str(events[-1]).strip() == (tmp_path / "runs" / "glue.txt").read_text().strip()
    assert capsys.readouterr().out == ""
    with refusal("unknown-setting", "epocs", "epochs"):
        finetune_glue(model=encoder, data=data, out=tmp_path / "more", epocs=1)
