"""osbert convert: the table, the forward check, the exit status, and every input that cannot be converted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import terminal
from osbert.commands.convert import convert
from osbert.commands.export import export
from osbert.inference.engine import load
from osbert.interop.files.weight_files import read_file
from osbert.interop.huggingface.folders import TensorRow
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.runs.convert import merge_layers
from osbert.runs.pretrain.start import Origin
from osbert.text.tokenizer import Tokenizer
from refusals import refusal

WRITTEN = Path(__file__).parents[1] / "lab" / "tensorflow" / "bert"


def osbert(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "osbert", *map(str, arguments)], capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def copied(encoder: Path, tmp_path: Path) -> Path:
    """Return a copy of an encoder's folder, for a test to spoil."""
    return shutil.copytree(encoder, tmp_path / "copied")


@pytest.mark.lab
def test_a_run_goes_to_google_and_back_and_predicts_the_same(run: Path, tmp_path: Path) -> None:
    """The real command, with all that it prints."""
    there, back = tmp_path / "there", tmp_path / "back"
    done = osbert("convert", run, there, "--to", "google")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{run}: a run of osbert's, 1 layers of 16, 16 pieces; classify; task classify"
    table = [line.split() for line in lines if " loaded " in line or " unused " in line]
    assert ["embeddings.word_embeddings.weight", "16", "x", "16", "loaded", "expected"] in table
    assert "no problem" in done.stdout and "PROBLEM" not in done.stdout
    assert "largest differences (bound 2e-05):" in done.stdout and "  scores of classify: 0" in lines
    assert lines[-1] == f"{there}: written as google"
    names = {path.name for path in there.iterdir()}
    assert names == {
        *("bert_config.json", "vocab.txt", "tokenizer_config.json"),
        *("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"),
    }
    convert(there, back, to="osbert")
    texts = ["a good film .", "the poor plays"]
    assert load(back).predict(texts) == load(run).predict(texts)
    assert read_file(back / "model.safetensors").keys() == read_file(run / "model.safetensors").keys()
    assert json.loads((back / "run.json").read_text())["command"] == "convert"


@pytest.mark.lab
def test_a_checkpoint_of_tensorflow_becomes_an_encoder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    convert(WRITTEN, tmp_path / "encoder", to="osbert")
    out = capsys.readouterr().out
    assert "TensorFlow's, 2 layers of 8, 24 pieces; mlm, nsp" in out
    assert "bert/encoder/layer_0-1/intermediate/dense/kernel" in out and "8 x 12" in out
    assert [line.split() for line in out.splitlines() if line.lstrip().startswith("global_step")] == [
        ["global_step", "number", "unused", "expected", "used", "in", "training", "only"]
    ]
    assert load(tmp_path / "encoder").embed(["the film"]).shape == (1, 8)
    assert Origin.open(tmp_path / "encoder").architecture.width == 8
    assert not list(tmp_path.glob(".*"))


def test_a_problem_stops_the_writing_unless_anyway_is_said(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = load_file(copied / "model.safetensors")
    save_file({**tensors, "encoder.layer.0.adapter.weight": torch.zeros(2)}, copied / "model.safetensors")
    done = terminal.told(capsys, "convert", copied, tmp_path / "out", "--to", "osbert")
    assert done.status == 1
    assert "1 tensor" in done.error and "--anyway" in done.error
    (row,) = [line for line in done.output.splitlines() if "adapter" in line]
    assert row.split() == ["encoder.layer.0.adapter.weight", "2", "unused", "PROBLEM", "unknown"]
    assert not (tmp_path / "out").exists()
    with refusal("not-convertible", "1"):
        convert(copied, tmp_path / "out", to="osbert", anyway=True)
    assert load(tmp_path / "out").embed(["a film"]).shape == (1, 16)


def test_a_forward_check_that_fails_leaves_nothing(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from osbert.interop.conversion import ModelParts, write_model_as

    def wrong(model: ModelParts, folder: Path, form: str) -> None:
        with torch.no_grad():
            model.learner.backbone.blocks[0].up.weight[0, 0] += 1.0  # type: ignore[operator, index, union-attr]
        write_model_as(model, folder, form)

    monkeypatch.setattr("osbert.runs.convert.write_model_as", wrong)
    with refusal("check-failed"):
        convert(encoder, tmp_path / "out", to="huggingface")
    assert "PROBLEM" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_run_goes_to_onnx_by_way_of_a_run_folder(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    convert(run, tmp_path / "theirs", to="huggingface")
    convert(tmp_path / "theirs", tmp_path / "exported", to="onnx")
    assert "In onnxruntime, largest differences (bound 0.0001):" in capsys.readouterr().out
    assert (tmp_path / "exported" / "model.onnx").is_file()
    texts = ["a good film .", "the poor plays"]
    said, wanted = load(tmp_path / "exported").predict(texts), load(run).predict(texts)
    assert [one.value for one in said] == [one.value for one in wanted]
    for one, other in zip(said, wanted, strict=True):
        assert list(one.probabilities.values()) == pytest.approx(list(other.probabilities.values()), abs=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exported", "theirs"]


class Code:
    """What a pickle may hold: a call that its reader makes."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.path,)

    def __init__(self, path: Path) -> None:
        self.path = str(path)


def spoil_safetensors(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def spoil_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Code(folder / "ran")}, folder / "pytorch_model.bin")


def spoil_config(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 32, "num_hidden_layers": 2}))


def spoil_vocabulary(folder: Path) -> None:
    write_tokenizer(Tokenizer([*read_tokenizer(folder).vocabulary, "more"]), folder)


def spoil_shard(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    shards = {"pooler.dense.bias": "model-00001-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))


def spoil_recipe(folder: Path) -> None:
    (folder / "recipe.toml").write_text('task = "classify"\n[classify')


def spoil_task(folder: Path) -> None:
    (folder / "recipe.toml").write_text('task = "classify"\n[classify]\nlabels = ["a", "b"]\n')


def unfinish(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "run.json").write_text("{}")


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def lose_data(folder: Path) -> None:
    empty(folder)
    shutil.copytree(WRITTEN, folder, dirs_exist_ok=True)
    (folder / "bert_model.ckpt.data-00000-of-00001").unlink()


@pytest.mark.parametrize(
    ("spoil", "refused"),
    [
        (spoil_safetensors, ("damaged-file", "model.safetensors")),
        (spoil_pickle, ("damaged-file", "pytorch_model.bin")),
        (spoil_config, ("damaged-file", "intermediate.dense.weight")),
        (spoil_vocabulary, ("mismatched-tokenizer", "17", "16")),
        (spoil_shard, ("missing-file", "model-00001-of-00002.safetensors")),
        pytest.param(lose_data, ("missing-file", "bert_model.ckpt.data-00000-of-00001"), marks=pytest.mark.lab),
        (spoil_recipe, ("invalid-recipe", "recipe.toml", "TOML")),
        (spoil_task, ("damaged-file", "classifier.weight", "(2, 16)")),
        (unfinish, ("unfinished-run", "copied")),
        (empty, ("not-a-model", "copied", "config.json")),
    ],
)
def test_what_cannot_be_converted_is_told(
    copied: Path, tmp_path: Path, spoil: object, refused: tuple[str, ...]
) -> None:
    assert callable(spoil)
    spoil(copied)
    with refusal(*refused):
        convert(copied, tmp_path / "out", to="huggingface")
    assert [path.name for path in tmp_path.iterdir()] == ["copied"]
    assert not (copied / "ran").exists()


def test_targets_and_options_that_cannot_be_are_told(encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with refusal("output-exists"):
        convert(encoder, tmp_path / "full", to="osbert")
    with refusal("missing-file"):
        convert(tmp_path / "nowhere", tmp_path / "out", to="osbert")
    with refusal("options-exclude-each-other", "--task", "--labels"):
        convert(encoder, tmp_path / "out", to="osbert", labels="a,b")
    (tmp_path / "out").mkdir()
    convert(encoder, tmp_path / "out", to="huggingface")
    assert (tmp_path / "out" / "config.json").is_file()


def test_layers_that_are_alike_are_one_row() -> None:
    def row(layer: int, **fields: object) -> TensorRow:
        return TensorRow(name=f"encoder.layer.{layer}.output.dense.bias", shape=(4,), **{"status": "loaded", **fields})

    names = [one.name for one in merge_layers((row(0), row(1), row(2, remark="float16 made float32"), row(3)))]
    assert names == [f"encoder.layer.{layer}.output.dense.bias" for layer in (0, 1, 3, 2)]
    assert [one.name for one in merge_layers((row(0), row(1)))] == ["encoder.layer.0-1.output.dense.bias"]
    alone = TensorRow(name="pooler.dense.bias", shape=(4,), status="new", expected=False)
    assert merge_layers((alone,)) == [alone]


@pytest.mark.lab
def test_the_folder_that_one_is_in_can_be_read_and_not_written(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(WRITTEN)
    convert(Path(), tmp_path / "read", to="osbert")
    assert (tmp_path / "read" / "model.safetensors").is_file()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for command in (lambda: convert(encoder, Path(), to="osbert"), lambda: export(encoder, to="onnx", out=Path())):
        with refusal("output-is-current-folder"):
            command()
