"""Folders of strangers that name code wherever a file can name it: no verb runs it, nor does the server.

The code lies in the current directory and on PYTHONPATH, and leaves a mark when it is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from harness import LONG, Site

import osbert
from osbert import recipe
from osbert.console.verbs import verb_packages
from osbert.interop.files.weight_files import write_tensors
from osbert.interop.huggingface.folders import write_model
from osbert.interop.sentence_files import SentenceModel, write_sentence_model
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.tasks.kinds.classify import Classify
from refusals import refusal
from terminal import run

START = "import sys\nfrom osbert.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
"""What the installed script osbert is."""
SHADOWS = ("numpy", "torch", "safetensors", "osbert", "tempfile", "random", "pickle")
"""Modules that every process of osbert imports: files of these names lie in the current directory."""
TASK = "from osbert.tasks.kinds.classify import Classify\nclass Bait(Classify): pass\n"
AIM = "from osbert.objectives.mlm import MaskedLanguage\nclass Bait(MaskedLanguage): pass\n"


class Import:
    """Pickles to a call that imports the stranger's code."""

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return importlib.import_module, ("strangers.code",)


@dataclass(frozen=True)
class Trap:
    """A current directory with a stranger's code, and a model to put baits into."""

    here: Path
    model: Path
    corpus: Path
    recipe: Path

    @property
    def sprung(self) -> bool:
        return (self.here / "mark").exists() or any(name.startswith("strangers") for name in sys.modules)

    def folder(self, bait: Callable[[Path], None]) -> Path:
        """Return a copy of the model with a bait in it, below a folder of its own."""
        folder = self.here / "runs" / "model"
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(self.model, folder)
        bait(folder)
        return folder


def code(mark: Path, more: str = "") -> str:
    return f"open({str(mark)!r}, 'w').close()\n{more}"


@pytest.fixture
def trap(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trap]:
    here = tmp_path / "here"
    (here / "strangers").mkdir(parents=True)
    for name, more in (("__init__", ""), ("code", TASK), ("aim", AIM)):
        (here / "strangers" / f"{name}.py").write_text(code(here / "mark", more))
    tokenizer = read_tokenizer(site.corpus)
    sizes = Architecture(layers=1, heads=2, width=16, vocabulary=len(tokenizer), length=32)
    task = Classify(labels=("neg", "pos"), text="text", temperature=1.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        backbone = sizes.build()
        write_model(Learner(backbone, {"classify": task.head(backbone)}), tmp_path / "model", **task.export_metadata())
    write_tokenizer(tokenizer, tmp_path / "model", length=32)
    settings = recipe.as_table(task)
    (tmp_path / "model" / "recipe.toml").write_text(recipe.dump({"task": "classify", "classify": settings}))
    (here / "rows.csv").write_text("text,label\n" + "".join(f"a word {n},{'np'[n % 2]}\n" for n in range(12)))
    (here / "labelled.csv").write_text("text,label\none word,neg\nanother,pos\n")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", str(here))
    yield Trap(here, tmp_path / "model", site.corpus, site.recipe)
    for name in [name for name in sys.modules if name.startswith("strangers")]:
        del sys.modules[name]


def changed(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def task(folder: Path) -> None:
    """A recipe whose task is code."""
    path = folder / "recipe.toml"
    path.write_text(path.read_text().replace('"classify"', '"strangers.code"').replace("[classify]", "[code]"))


def aim(folder: Path) -> None:
    """A recipe whose objective is code."""
    (folder / "recipe.toml").write_text('objectives = ["strangers.aim"]\n[training]\nsteps = 1\ndevice = "cpu"\n')


def files(folder: Path) -> None:
    """Code in every field of config, tokenizer and modules that elsewhere is imported; recipe and weights are whole."""
    there = dict.fromkeys(("AutoConfig", "AutoModel", "AutoTokenizer"), "strangers.code.Bait")
    changed(folder / "config.json", auto_map=there, architectures=["strangers.code.Bait"], custom_pipelines=there)
    changed(folder / "tokenizer_config.json", auto_map=there, tokenizer_class="strangers.code.Bait")
    changed(folder / "special_tokens_map.json", additional_special_tokens=[{"__type": "strangers.code.Bait"}])
    write_sentence_model(folder, SentenceModel(pooling="mean", normalize=True, length=16), width=16)
    modules = json.loads((folder / "modules.json").read_text())
    extra = {"idx": 3, "name": "3", "path": "strangers", "type": "strangers.code.Bait"}
    (folder / "modules.json").write_text(json.dumps([*modules, extra]))
    shutil.copytree(Path("strangers"), folder / "strangers")


def field(folder: Path) -> None:
    """A task in our own field of a config that is code, where there is no recipe."""
    (folder / "recipe.toml").unlink()
    changed(folder / "config.json", osbert_task={"name": "strangers.code", "settings": {}})


def weights(folder: Path) -> None:
    """Weights, and text held out by a pretraining, that are pickles of code."""
    (folder / "model.safetensors").unlink()
    torch.save({"bert.pooler.dense.bias": Import()}, folder / "pytorch_model.bin")
    np.savez(folder / "held_out.npz", ids=np.array([Import()], dtype=object))


def index(folder: Path) -> None:
    """An index of shards that names code as a file."""
    (folder / "model.safetensors").unlink()
    names = {"bert.pooler.dense.bias": "strangers/code.py", "bert.pooler.dense.weight": str(Path("strangers/code.py"))}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def base(folder: Path) -> None:
    """Tuned weights on top of a model that is a pickle of code."""
    shutil.copytree(folder, folder.parent / "base")
    weights(folder.parent / "base")
    (folder / "model.safetensors").unlink()
    write_tensors({"classifier.bias": torch.zeros(2)}, folder / "tuned.safetensors")
    (folder / "base.json").write_text(json.dumps({"path": str(folder.parent / "base"), "fingerprint": "0"}))


BAITS = (task, files, weights, *((aim, field, index, base) if LONG else ()))


def verbs(trap: Trap, folder: Path) -> Iterator[list[str]]:
    """Yield the command line of every verb that opens the folder, or its recipe."""
    there, out, rows = str(folder), str(trap.here / "out"), str(trap.here / "rows.csv")
    yield ["predict", there, "a word"]
    yield ["predict", there, "--file", rows, "--out", f"{out}.csv"]
    yield ["evaluate", there, "--data", str(trap.here / "labelled.csv")]
    yield ["embed", there, rows, "--text", "text", "--out", f"{out}.npz"]
    yield ["search", f"{out}.npz", "a word", "--model", there]
    yield ["finetune", "classify", "--model", there, "--data", rows, "--out", out, "--epochs", "1", "--device", "cpu"]
    yield ["finetune", "classify", "--model", str(trap.model), "--data", rows, "--out", there, "--epochs", "1"]
    corpus = ["--corpus", str(trap.corpus), "--out", out, "--steps", "1", "--data.length", "16"]
    yield ["pretrain", "--from", there, *corpus, "--training.device", "cpu"]
    yield ["pretrain", str(trap.recipe), "--from", there, *corpus]
    yield ["pretrain", str(trap.recipe), "--corpus", str(trap.corpus), "--out", there]
    for form in ("osbert", "huggingface", "google"):
        yield ["convert", there, out, "--to", form]
    if LONG:  # half a minute
        yield ["export", there, "--to", "onnx", "--out", out, "--unchecked"]
    yield ["submit", str(folder.parent), "--out", f"{out}.zip", "--data", str(trap.here)]
    yield ["tokenizer", "encode", there, "a word"]
    yield ["corpus", "show", there]
    yield ["reproduce", "table1", "--model", there, "--data", str(trap.here), "--out", out]


def recipes(trap: Trap, folder: Path) -> Iterator[list[str]]:
    """Yield the command line of every verb that takes the folder's recipe as a recipe file."""
    path, out = str(folder / "recipe.toml"), str(trap.here / "out")
    yield ["pretrain", path, "--corpus", str(trap.corpus), "--out", out]
    yield ["pretrain", "--from", str(folder), "--corpus", str(trap.corpus), "--out", out]
    yield ["plan", path, "--corpus", str(trap.corpus), "--minutes", "1", "--out", f"{out}.toml"]
    yield ["bench", path, "--corpus", str(trap.corpus), "--seconds", "0.1"]
    yield ["corpus", "show", str(trap.corpus), "--masks", "1", "--recipe", path]


def is_installed(words: Sequence[str]) -> bool:
    """Return whether a verb is there, and the form that it writes: those of the lab may be missing."""
    if words[-1] == "google" and importlib.util.find_spec("osbert_lab") is None:
        return False
    return any(words[0] == name[0] for package in verb_packages() for name in package.names())


def cleared(trap: Trap) -> None:
    for path in trap.here.glob("out*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("bait", BAITS, ids=lambda bait: bait.__name__)
def test_no_verb_runs_the_code_that_a_folder_names(site: Site, trap: Trap, bait: Callable[[Path], None]) -> None:
    folder = trap.folder(bait)
    ended: dict[str, set[int]] = {}
    for words in filter(is_installed, verbs(trap, folder)):
        if words[0] != "search":
            cleared(trap)
        ended.setdefault(words[0], set()).add(run(*words))
        assert not trap.sprung, words
        site.tally.count("a folder that names code")
    assert set().union(*ended.values()) <= {0, 1}
    # Of the others no fine-tuned model can be made.
    assert {ended[verb] == {0} for verb in ("predict", "evaluate")} == {bait is files}


def test_no_verb_runs_the_code_that_a_recipe_names(site: Site, trap: Trap, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trap.folder(aim)
    for words in filter(is_installed, recipes(trap, folder)):
        assert run(*words) == 1, words
        assert not trap.sprung, words
        assert "--trust" in capsys.readouterr().err
        site.tally.count("a recipe that names code")


def test_vectors_and_corpora_that_are_pickles(site: Site, trap: Trap) -> None:
    pickled = np.array([Import()], dtype=object)
    np.savez(trap.here / "vectors.npz", vectors=pickled, settings=pickled, lines=pickled)
    np.save(trap.here / "vectors.npy", pickled)
    (trap.here / "vectors.rows.npz").write_bytes((trap.here / "vectors.npz").read_bytes())
    corpus = trap.here / "corpus"
    shutil.copytree(trap.corpus, corpus)
    for path in corpus.rglob("*.npy"):
        path.write_bytes(pickle.dumps(Import()))
    places = ["--corpus", str(corpus), "--out", str(trap.here / "out")]
    for words in (
        ["search", str(trap.here / "vectors.npz"), "a word"],
        ["search", str(trap.here / "vectors.npy"), "a word"],
        ["corpus", "show", str(corpus)],
        ["corpus", "show", str(corpus), "--verify"],
        ["pretrain", str(trap.recipe), *places],
    ):
        assert run(*words) == 1, words
        assert not trap.sprung, words
        site.tally.count("a file of vectors or text that holds code")


def test_trust_imports_it_and_so_does_a_name_that_the_user_types(trap: Trap) -> None:
    """The baits are no blanks."""
    folder = trap.folder(task)
    with refusal("untrusted-code", folder / "recipe.toml", "strangers.code", "trust=True"):
        osbert.load(folder)
    assert not trap.sprung
    assert run("predict", str(folder), "a word", "--trust") == 0 and trap.sprung
    out = trap.here / "out"
    learn = ["finetune", "strangers.code", "--model", str(trap.model), "--data", "rows.csv", "--out", str(out)]
    assert run(*learn, "--epochs", "1", "--device", "cpu") == 0
    assert run(*learn, "--epochs", "1", "--device", "cpu") == 0  # the same command goes on
    assert run("predict", str(out), "a word") == 1
    assert osbert.load(out, trust=True).predict(["a word"])[0].value in ("n", "p")


def shadows(trap: Trap) -> tuple[Path, Path]:
    """Return the installed script, and a folder in which files have the names of modules that osbert imports."""
    start, elsewhere = trap.here.parent / "start.py", trap.here / "elsewhere"
    start.write_text(START)
    elsewhere.mkdir()
    for name in SHADOWS:
        (elsewhere / f"{name}.py").write_text(code(trap.here / "mark"))
    return start, elsewhere


@pytest.mark.skipif(not LONG, reason="a corpus is built by processes: seconds")
def test_the_processes_that_build_a_corpus_run_none(site: Site, trap: Trap) -> None:
    start, elsewhere = shadows(trap)
    (elsewhere / "text.txt").write_text("A word here.\n\nAnother one there.\n")
    words = ["corpus", "build", "text.txt", "--tokenizer", str(trap.model), "--out", "built", "--workers", "2"]
    done = subprocess.run([sys.executable, str(start), *words], cwd=elsewhere, capture_output=True, text=True)
    assert done.returncode == 0, done
    assert not trap.sprung
    site.tally.count("processes in a folder of modules that shadow ours")


def test_the_server_and_its_workers_run_none(site: Site, trap: Trap) -> None:
    """Its workers would find modules of these names in the current directory before the real ones."""
    start, elsewhere = shadows(trap)
    command = [sys.executable, str(start), "serve", "--port", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    refused = subprocess.run(
        [*command, str(trap.folder(task))], cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=120
    )
    assert refused.returncode == 1 and "--trust" in refused.stderr, refused
    assert not trap.sprung
    folder = trap.folder(files)
    with subprocess.Popen(
        [*command, str(folder)], cwd=elsewhere, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = next((line.strip() for line in process.stdout if line.startswith("http://")), "")
        assert url and httpx.post(f"{url}/v1/predict", json={"texts": ["a word"]}, timeout=60).status_code == 200
        process.send_signal(signal.SIGTERM)
    assert not trap.sprung
    site.tally.count("a server on a folder that names code")
