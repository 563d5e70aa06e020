"""The one opener: what it says of each kind of folder, and that it reads the weights once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_runs
from osbert.commands.embed import embed
from osbert.inference.engine import load
from osbert.interop import folder as opener
from osbert.interop.conversion import model_of, notes, open_any, write_model_as
from osbert.interop.files import weight_files
from osbert.interop.files.weight_files import PICKLED, SAFE, read_tensors
from osbert.interop.folder import Folder, open_folder
from osbert.interop.hub import ModelLocation
from osbert.interop.onnx import files as onnx_files
from osbert.interop.opening import Opening
from osbert.objectives.mlm import MaskedLanguage
from osbert.runs.finetune.model import read_model
from osbert.runs.finetune.settings import FinetuneSettings
from osbert.runs.pretrain.start import Origin
from osbert.server.calls.models import ServerModel
from osbert.training.run_folder import RunFolder
from refusals import refusal

CLASSIFIER = tiny_runs.TASKS["classifier"]


def exported(folder: Path) -> Path:
    return tiny_runs.write_exported(folder, tiny_runs.write_run(folder.with_name("before"), CLASSIFIER))


def tuned(folder: Path) -> Path:
    return tiny_runs.write_tuned(folder, CLASSIFIER, {})


def theirs(folder: Path) -> Path:
    write_model_as(model_of(open_any(tiny_runs.write_run(folder.with_name("ours"), CLASSIFIER))), folder, "huggingface")
    return folder


def pickled(folder: Path) -> Path:
    tiny_runs.write_run(folder, None, masks=True)
    torch.save(read_tensors(folder), folder / PICKLED)
    (folder / SAFE).unlink()
    return folder


def finished(folder: Path) -> Path:
    RunFolder(tiny_runs.write_run(folder, CLASSIFIER)).finish({})
    return folder


KINDS: dict[str, Callable[[Path], Path]] = {
    "run": finished,
    "pretrained": lambda folder: tiny_runs.write_run(folder, None, masks=True),
    "theirs": theirs,
    "pickled": pickled,
    "exported": exported,
    "tuned": tuned,
    "sentences": tiny_runs.write_sentences,
}
HEADS = {"run": ["classify"], "tuned": ["classify"], "exported": ["classify"], "sentences": ["contrastive"]}


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder of each kind, named after it."""
    return KINDS[request.param](tmp_path / request.param)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each file of weights is read."""
    counts: Counter[str] = Counter()

    def counted(read: Callable[[Path], object]) -> Callable[[Path], object]:
        return lambda path: (counts.update([f"{path.parent.name}/{path.name}"]), read(path))[1]

    monkeypatch.setattr(weight_files, "_tensors", counted(weight_files._tensors))
    monkeypatch.setattr("osbert.inference.onnx_backend.open_onnx", counted(onnx_files.open_onnx))
    return counts


def files(folder: Path) -> dict[str, int]:
    """Return the files of weights that a folder stands on, each of which is to be read once."""
    own = {"pickled": [PICKLED], "exported": ["model.onnx"], "tuned": ["tuned.safetensors", "../base/" + SAFE]}
    paths = [folder / name for name in own.get(folder.name, [SAFE])]
    return {f"{path.resolve().parent.name}/{path.name}": 1 for path in paths}


def test_what_a_folder_is(folder: Path) -> None:
    opened, kind = open_folder(folder), folder.name
    assert (opened.path, opened.name, opened.commit, str(opened)) == (folder, str(folder), "", str(folder))
    assert opened.has_pooler and opened.is_exported == (kind == "exported")
    assert opened.form == ("huggingface" if kind in ("theirs", "pretrained", "pickled") else "osbert")
    assert (opened.architecture.width, opened.config["hidden_size"], len(opened.tokenizer)) == (16, 16, 16)
    assert opened.remarks == ()
    name = HEADS.get(kind, [None])[0]
    assert opened.task is None if name is None else opened.task is not None and opened.task.name == name
    sentences = opened.sentences
    assert (sentences is None) == (kind != "sentences")
    if not opened.is_exported:
        heads = ["mlm"] if kind in ("pretrained", "pickled") else HEADS.get(kind, [])
        assert list(opened.heads) == heads and opened.backbone.architecture == opened.architecture
        assert set(opened.backbone.state_dict()) == set(open_folder(folder).backbone.state_dict())


def test_what_others_apply_and_osbert_does_not_is_remarked(tmp_path: Path) -> None:
    settings = theirs(tmp_path / "theirs") / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"truncation_side": "left"}))
    adapter = tmp_path / "theirs" / "adapter_config.json"
    adapter.write_text("{}")
    opened = open_folder(tmp_path / "theirs")
    for remarks in (opened.remarks, list(notes(model_of(opened), "osbert"))):
        assert adapter.name in remarks[0] and "truncation_side" in remarks[1]
    (tmp_path / "theirs" / SAFE).unlink()
    with refusal("not-a-model", adapter.name):
        _ = open_folder(tmp_path / "theirs").backbone


def test_each_part_is_made_once(folder: Path) -> None:
    opened = open_folder(folder)
    for name in ("config", "tokenizer", "task", "sentences", "report", "remarks", "fingerprint"):
        assert getattr(opened, name) is getattr(opened, name)
    if not opened.is_exported:
        assert opened.backbone is opened.backbone and opened.heads is opened.heads


def test_weights_are_read_once(folder: Path, reads: Counter[str], tmp_path: Path) -> None:
    engine = load(folder)
    ServerModel("served", engine)
    engine.embed(["good film"])
    if engine.task is CLASSIFIER:
        engine.predict(["good film"])
    assert reads == files(folder)
    reads.clear()
    (tmp_path / "texts.txt").write_text("good film\n")
    embed(folder, tmp_path / "texts.txt", out=tmp_path / "vectors.npy")
    assert reads == files(folder)
    if engine.source.is_exported:
        return
    for way in (
        lambda: model_of(open_any(folder)),
        lambda: read_model(folder, FinetuneSettings()),
        lambda: read_model(folder, FinetuneSettings(), from_scratch=True),
        lambda: begun(folder),
    ):
        reads.clear()
        way()
        assert reads == files(folder)


def begun(folder: Path) -> None:
    """Go on from an encoder as `osbert pretrain --from` does."""
    origin = Origin.open(folder)
    assert origin.source.fingerprint
    origin.learner({"mlm": MaskedLanguage()}, origin.architecture, origin.tokenizer, seed=0)


def test_nothing_is_read_before_it_is_used(tmp_path: Path, reads: Counter[str]) -> None:
    nowhere = open_folder(tmp_path / "nowhere")
    with refusal("missing-file"):
        _ = nowhere.backbone
    opened = open_folder(tiny_runs.write_run(tmp_path / "run", CLASSIFIER))
    assert opened.task is not None and opened.tokenizer and opened.architecture and opened.sentences is None
    assert not reads
    assert opened.heads and reads.total() == 1


def test_the_hashes_are_compared_before_anything_is_used(tmp_path: Path) -> None:
    folder = finished(tmp_path / "run")
    (folder / "vocab.txt").write_text("spoilt")
    for part in ("config", "architecture", "tokenizer", "task", "sentences", "tensors", "backbone", "heads"):
        with refusal("damaged-file", "vocab.txt", "--no-verify"):
            getattr(open_folder(folder), part)
    assert open_folder(folder, Opening(verify=False)).heads


def test_released_weights_are_free_and_what_was_read_stays(tmp_path: Path, reads: Counter[str]) -> None:
    opened = open_folder(tiny_runs.write_run(tmp_path / "run", None, masks=True))
    before, fingerprint, tokenizer = opened.backbone, opened.fingerprint, opened.tokenizer
    assert opened.has_pooler
    opened.release()
    assert opened.has_pooler and opened.fingerprint == fingerprint and opened.tokenizer is tokenizer
    assert reads.total() == 1
    assert opened.backbone is not before and reads.total() == 2


def test_a_hub_has_a_name_and_a_commit(tmp_path: Path) -> None:
    folder = Folder(
        ModelLocation(
            path=tmp_path, name="google-bert/bert-base-uncased", commit="86b5e0934494bd15c9632b12f734a8a67f723594"
        )
    )
    assert (folder.name, folder.commit[:4], str(folder)) == ("google-bert/bert-base-uncased", "86b5", str(tmp_path))


def test_the_engine_has_what_predicts_masked_pieces(tmp_path: Path) -> None:
    assert load(tiny_runs.write_run(tmp_path / "whole", None, masks=True)).masks is not None
    assert load(tiny_runs.write_run(tmp_path / "bare", None)).masks is None
    assert load(tiny_runs.write_run(tmp_path / "tuned", CLASSIFIER)).masks is None
    torch.manual_seed(0)
    before = torch.get_rng_state()
    load(tmp_path / "whole")
    np.testing.assert_array_equal(before, torch.get_rng_state())


def test_heads_that_are_not_whole_are_left_out(tmp_path: Path) -> None:
    folder = tiny_runs.write_run(tmp_path / "run", None, masks=True)
    tensors = read_tensors(folder)
    del tensors["cls.predictions.bias"]
    weight_files.write_tensors(tensors, folder / SAFE)
    assert open_folder(folder).heads == {} == opener.pretraining_heads(open_folder(folder).backbone, tensors)
