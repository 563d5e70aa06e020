"""Soft pieces: losses against their formulas, layers of the teacher to start with, and runs that need it no more."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

import corpora
import osbert
from osbert.data.batch import Batch, collate
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.interop.folder import open_folder
from osbert.models.contract import Learner
from osbert.objectives.mlm import MaskedLanguage
from osbert.text.document import Document
from osbert_lab.distillation.layers import select_layers
from osbert_lab.distillation.soft_pieces import SoftPieces
from osbert_lab.distillation.soft_pieces_head import SoftPiecesHead, open_teacher
from refusals import refusal
from terminal import run, told
from vocabularies import train

SIZES = ("--model.width", "16", "--model.heads", "2", "--data.length", "32")
TRAINING = ("--batch", "4", "--device", "cpu", "--precision", "fp32", *SIZES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a corpus and a teacher of four layers."""
    folder = tmp_path_factory.mktemp("teacher")
    corpora.build_corpus(folder, texts := corpora.invented(), train(texts, vocabulary=120))
    pretrain = ("pretrain", "bert-mini", "--corpus", folder / "corpus", "--out", folder / "teacher", "--steps", "2")
    assert run(*pretrain, "--model.layers", "4", *TRAINING) == 0
    return folder


def masked(folder: Path) -> Batch:
    """Return a batch of masked sequences."""
    tokenizer = open_folder(folder / "teacher").tokenizer
    ids = tokenizer.encode(" ".join(corpora.invented()[:4]))
    document = Document(ids=ids, sentences=np.array([0, len(ids)]), words=~tokenizer.continuation[ids])
    packer = Packer(tokenizer=tokenizer, length=32)
    spans = Examples.of([*packer.spans([document], np.random.default_rng(0))])
    objective = MaskedLanguage(rate=0.3)
    examples = objective.corrupt_all(spans, packer, Noise.at(0, np.arange(len(spans))))
    batch = collate([*examples])
    return batch.replace_columns(targets={"soft_pieces": batch.targets["mlm"]})


def learner(folder: Path, width: int = 16, **settings: float) -> tuple[Learner, SoftPiecesHead]:
    """Return a student of two layers with random weights, and its head."""
    torch.manual_seed(1)
    sizes = open_folder(folder / "teacher").architecture
    backbone = sizes.replace(layers=2, width=width, dropout=0.0, attention_dropout=0.0, deviation=0.3).build()
    head = SoftPieces(teacher=str(folder / "teacher"), start="random", **settings).head(backbone)  # type: ignore[arg-type]
    assert isinstance(head, SoftPiecesHead)
    return Learner(backbone, {"soft_pieces": head}), head


@pytest.mark.parametrize("width", [16, 8])
def test_the_loss_is_the_weighted_sum_of_its_formulas(folder: Path, width: int) -> None:
    settings = {"rate": 0.3, "soft": 0.6, "temperature": 3.0, "states": 0.5, "attentions": 0.25}
    student, head = learner(folder, width, **settings)
    teacher, batch = open_teacher(folder / "teacher"), masked(folder)
    index, labels = batch.targets["soft_pieces"].index, batch.targets["soft_pieces"].labels
    with torch.no_grad():
        loss = student(batch)["soft_pieces"]
        states, wanted = student.backbone(batch).hidden, teacher.learner.backbone(batch).hidden
        mlm_head = teacher.learner.heads["mlm"]
        ours, theirs = head.every(student.backbone(batch), batch), mlm_head.every(teacher.states(batch), batch)
        total = 0.0
        for token, label in zip(index.tolist(), labels.tolist(), strict=True):
            total += 0.4 * -float(ours[token].log_softmax(0)[label])
            p, q = (theirs[token] / 3).softmax(0), (ours[token] / 3).softmax(0)
            total += 0.6 * 9 * float((p * (p / q).log()).sum())
        mapped = states if width == 16 else states @ head.map.weight.T + head.map.bias  # type: ignore[union-attr]
        total += 0.5 * 0.3 * float((1 - functional.cosine_similarity(mapped, wanted)).sum())
        maps, teacher_maps = [*student.backbone.weights(batch)], [*teacher.learner.backbone.weights(batch)]
        for layer, chosen in enumerate(select_layers(teacher.learner.backbone, 2)):
            for q, p in zip(maps[layer], teacher_maps[chosen], strict=True):
                total += 0.25 * 0.3 / 2 / 2 * float((p * (p / q).log()).nansum())
    assert float(loss.total) == pytest.approx(total, rel=1e-4)
    assert loss.count == len(labels)


def test_the_gradient_reaches_the_student_alone(folder: Path) -> None:
    student, head = learner(folder, attentions=1.0)
    student(masked(folder))["soft_pieces"].total.backward()
    assert all(weight.grad is not None for name, weight in student.named_parameters() if "pooler" not in name)
    assert head.teacher is not None
    assert not [weight for weight in head.teacher.learner.parameters() if weight.requires_grad]
    assert not [name for name, _ in student.named_parameters() if "teacher" in name]


def test_it_starts_with_the_first_and_the_last_layer_the_embeddings_and_the_head(folder: Path) -> None:
    student, head = learner(folder)
    SoftPieces(teacher="any").begin(head, np.ones(1, np.int64))
    assert head.teacher is not None
    teacher, backbone = head.teacher.learner.backbone.state_dict(), student.backbone.state_dict()
    for name, weight in backbone.items():
        assert torch.equal(weight, teacher[name.replace("blocks.1.", "blocks.3.")])
    for name, weight in head.teacher.learner.heads["mlm"].state_dict().items():
        assert torch.equal(weight, head.get_parameter(name))


def test_a_student_is_a_model_of_its_own(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder / "teacher", tmp_path / "teacher")
    pretrain = ("pretrain", "bert-mini", "--corpus", folder / "corpus", "--out", tmp_path / "run", "--steps", "3")
    options = ("--objectives", "soft_pieces", "--teacher", copy, "--model.layers", "2", "--attentions", "0.1")
    assert run(*pretrain, *options, *TRAINING) == 0
    shutil.rmtree(copy)
    opened = open_folder(tmp_path / "run")
    assert [*opened.heads] == ["mlm"] and opened.architecture.layers == 2
    assert "BertForMaskedLM" in (tmp_path / "run" / "config.json").read_text()
    assert run("predict", tmp_path / "run", "bada [MASK] kefe") == 0


def test_a_run_does_not_go_on_with_another_teacher_of_the_same_name(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(folder / "teacher", tmp_path / "teacher")
    pretrain = ("pretrain", "bert-mini", "--corpus", folder / "corpus", "--out", tmp_path / "run", "--steps", "3")
    (copy / "run.json").unlink()  # it has the hashes of the weights, by which a damaged teacher is refused
    options = ("--objectives", "soft_pieces", "--teacher", copy, "--model.layers", "2", *TRAINING)
    assert run(*pretrain, *options) == 0
    assert run(*pretrain, *options) == 0
    weights = copy / "model.safetensors"
    tensors = load_file(weights)
    save_file({name: tensor + 0.5 for name, tensor in tensors.items()}, weights)
    done = told(capsys, *pretrain, *options, "--json")
    assert done.status == 1 and "objective_inputs.soft_pieces.teacher" in done.output + done.error


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        ((), "invalid-setting", "--teacher"),
        (("--teacher", "TEACHER", "--model.width", "32"), "invalid-setting", "model.width is 32"),
        (("--teacher", "TEACHER", "--model.layers", "6"), "invalid-setting", "model.layers is 6"),
        (("--teacher", "TEACHER", "--soft", "2"), "invalid-setting", "soft"),
        (
            ("--teacher", "TEACHER", "--soft_pieces.start", "random", "--model.heads", "4", "--attentions", "1"),
            "invalid-setting",
            "model.heads",
        ),
    ],
)
def test_what_cannot_be_learnt_is_refused_before_the_run(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    code: str,
    named: str,
) -> None:
    words = [str(folder / "teacher") if word == "TEACHER" else word for word in options]
    pretrain = ("pretrain", "bert-mini", "--corpus", folder / "corpus", "--out", tmp_path / "run", "--steps", "1")
    done = told(capsys, *pretrain, "--model.layers", "2", *TRAINING, "--objectives", "soft_pieces", *words, "--json")
    assert done.status == 1 and named in done.output + done.error and code in done.output + done.error
    assert not (tmp_path / "run").exists()


def test_the_vocabulary_is_that_of_the_teacher_which_is_in_the_folder_now(folder: Path, tmp_path: Path) -> None:
    teacher = shutil.copytree(folder / "teacher", tmp_path / "teacher")
    packer = Packer(tokenizer=open_folder(teacher).tokenizer, length=32)
    objective, noise = SoftPieces(teacher=str(teacher)), Noise.at(0, np.arange(0))
    assert len(objective.corrupt_all(Examples.of([]), packer, noise)) == 0
    shutil.rmtree(teacher)
    corpora.build_corpus(tmp_path / "texts", texts := corpora.invented(seed=3), train(texts, vocabulary=90))
    pretrain = ("pretrain", "bert-mini", "--corpus", tmp_path / "texts" / "corpus", "--out", teacher, "--steps", "2")
    assert run(*pretrain, "--model.layers", "4", *TRAINING) == 0
    with refusal("mismatched-tokenizer", str(teacher)):
        objective.corrupt_all(Examples.of([]), packer, noise)


def test_another_vocabulary_is_refused_before_the_run(folder: Path, tmp_path: Path) -> None:
    other = corpora.build_corpus(tmp_path / "texts", texts := corpora.invented(seed=3), train(texts, vocabulary=90))
    sizes = {"layers": 2, "model.width": 16, "model.heads": 2, "data.length": 32, "steps": 1, "device": "cpu"}
    settings = sizes | {"objectives": ["soft_pieces"], "teacher": str(folder / "teacher"), "start": "random"}
    with refusal("mismatched-tokenizer", str(folder / "teacher")):
        osbert.pretrain("bert-mini", corpus=other, out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()
