"""Folders of google-research/bert: the outputs of transformers' own reader, round trips, and clear refusals."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.interop.conversion import model_of, open_any
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.configs import architecture
from osbert.interop.huggingface.folders import assemble, fill_heads, normalize_names, to_huggingface
from osbert.interop.tokenizers import read_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.grouped import SpanHead
from osbert.models.heads.predictions import MaskedLanguageHead, NumberHead, SequenceHead
from osbert.models.heads.tagging import TagHead
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.tensorflow import checkpoint as google
from osbert_lab.tensorflow.bundle import open_bundle, write_bundle
from refusals import refusal

WRITTEN = Path(__file__).parent / "bert"


def opened(folder: Path) -> Learner:
    prefix = google.checkpoint(folder)
    assert prefix is not None
    found = google.read_google(prefix)
    backbone, report = assemble(architecture(found.config, where=str(folder)), found.tensors, where=folder)
    assert report.select_names("new") == () and report.problems == ()
    heads = {
        "mlm": MaskedLanguageHead(backbone),
        "nsp": SequenceHead(backbone, target="nsp", form="nsp"),
    }
    learner = Learner(backbone, heads).eval()
    assert {row.status for row in fill_heads(found.tensors, learner)} == {"loaded"}
    return learner


def test_a_checkpoint_of_tensorflow_gives_the_outputs_of_transformers() -> None:
    """outputs.npz: what transformers' BertForPreTraining says after its own reading of the checkpoint."""
    wanted = np.load(WRITTEN / "outputs.npz")
    learner = opened(WRITTEN)
    rows = [
        Example(ids=ids, segments=segments, words=np.ones(11, bool), special=np.zeros(11, bool), record=place)
        for place, (ids, segments) in enumerate(zip(wanted["ids"], wanted["segments"]))
    ]
    batch = collate(rows)
    with torch.no_grad():
        states = learner.backbone(batch)
        mlm = learner.heads["mlm"].scores(states.hidden)
        nsp = learner.heads["nsp"].outputs(states, batch)
    for name, found in (("hidden", states.hidden), ("mlm", mlm), ("nsp", nsp)):
        expected = torch.from_numpy(wanted[name])
        torch.testing.assert_close(found.view_as(expected), expected, rtol=0, atol=2e-5)


def test_a_checkpoint_goes_through_ours_to_the_byte(tmp_path: Path) -> None:
    learner = opened(WRITTEN)
    config, tensors = to_huggingface(learner)
    google.write_google(config, tensors, read_tokenizer(WRITTEN), tmp_path)
    assert json.loads((tmp_path / "bert_config.json").read_text()) == json.loads(
        (WRITTEN / "bert_config.json").read_text()
    )
    assert (tmp_path / "vocab.txt").read_bytes() == (WRITTEN / "vocab.txt").read_bytes()
    bundle = open_bundle(WRITTEN / "bert_model.ckpt")
    model = {name: bundle.read(name) for name in bundle.entries if not google.of_optimizer(name)}
    write_bundle(model, tmp_path / "wanted")
    for suffix in (".index", ".data-00000-of-00001"):
        assert (tmp_path / f"bert_model.ckpt{suffix}").read_bytes() == (tmp_path / f"wanted{suffix}").read_bytes()


def test_further_variables_are_named_and_the_optimizers_known() -> None:
    found = google.read_google(WRITTEN / "bert_model.ckpt")
    assert set(found.unused) == {
        "bert/embeddings/token_type_embeddings/adam_m",
        "bert/embeddings/word_embeddings/adam_m",
        "global_step",
    }
    assert all(google.of_optimizer(name) for name in found.unused)
    assert not google.of_optimizer("bert/encoder/layer_0/adapter/kernel")


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        ("classify", {"output_weights": (3, 16), "output_bias": (3,)}),
        ("regress", {"output_weights": (1, 16), "output_bias": (1,)}),
        ("tag", {"output_weights": (5, 16), "output_bias": (5,)}),
        ("span", {"cls/squad/output_weights": (2, 16), "cls/squad/output_bias": (2,)}),
    ],
)
def test_fine_tuned_layers_have_the_names_of_their_scripts(
    tmp_path: Path, kind: str, theirs: dict[str, tuple[int, ...]]
) -> None:
    """run_classifier.py and run_squad.py of google-research/bert; the second kind of scores, in units, as our own."""
    backbone = small_sizes(activation="gelu_tanh").build()
    heads = {
        "classify": partial(SequenceHead, labels=3),
        "regress": NumberHead,
        "tag": partial(TagHead, labels=5),
        "span": SpanHead,
    }
    learner = Learner(backbone, {kind: heads[kind](backbone, target=kind)}).eval()
    scale = 2.0 if kind == "regress" else 1.0
    config, tensors = to_huggingface(learner, scale=scale)
    google.write_google(config, tensors, pieces(60), tmp_path)
    shapes = {name: entry.shape for name, entry in open_bundle(tmp_path / "bert_model.ckpt").entries.items()}
    assert shapes.items() >= theirs.items()
    assert {name.partition("/")[0] for name in shapes.keys() - theirs.keys()} == {"bert"} | (
        {"osbert"} if kind == "regress" else set()
    )
    assert json.loads((tmp_path / "bert_config.json").read_text())["hidden_act"] == "gelu"
    found = google.read_google(tmp_path / "bert_model.ckpt")
    assert architecture(found.config, where="") == learner.backbone.architecture
    assert found.tensors.keys() == normalize_names(tensors).keys() and found.unused == {}
    for name, tensor in normalize_names(tensors).items():
        assert torch.equal(found.tensors[name], tensor), name


def small_sizes(**changes: Any) -> Architecture:
    return Architecture(layers=2, heads=2, width=16, feedforward=40, vocabulary=60, length=24, **changes)


def pieces(count: int, **flags: bool) -> Tokenizer:
    return Tokenizer([*SPECIALS, *(f"w{number}" for number in range(count - 5))], **flags)


def test_the_case_of_the_vocabulary_is_kept(tmp_path: Path) -> None:
    config, tensors = to_huggingface(Learner(small_sizes().build(), {}))
    for lowercase in (True, False):
        google.write_google(config, tensors, pieces(60, lowercase=lowercase), tmp_path)
        assert read_tokenizer(tmp_path) == pieces(60, lowercase=lowercase)


def test_what_their_code_has_not_is_refused(tmp_path: Path) -> None:
    sizes = small_sizes(positions="rotary", epsilon=1e-5, biases=False, direction="left_to_right")
    config, tensors = to_huggingface(Learner(sizes.build(), {}))
    settings = ("biases = False", "positions = rotary", "direction = left_to", "epsilon = 1e-05", "ideographs")
    with refusal("not-convertible", *settings, "lowercase = True", "strip_accents = False"):
        google.write_google(config, tensors, pieces(60, strip_accents=False, cjk=False), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_which_checkpoint_a_path_means(tmp_path: Path) -> None:
    for step in (5, 10):
        for path in WRITTEN.glob("bert_model.ckpt.*"):
            shutil.copy(path, tmp_path / path.name.replace("bert_model.ckpt", f"model.ckpt-{step}"))
    with refusal("invalid-value", "model.ckpt", "5"):
        google.checkpoint(tmp_path)
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "/gone/model.ckpt-10"\nall_model_checkpoint_paths: "x"\n'
    )
    assert google.checkpoint(tmp_path) == tmp_path / "model.ckpt-10"
    assert google.checkpoint(tmp_path / "model.ckpt-5") == tmp_path / "model.ckpt-5"
    assert google.checkpoint(tmp_path / "model.ckpt-5.index") == tmp_path / "model.ckpt-5"
    assert google.checkpoint(tmp_path / "elsewhere") is None
    with refusal("not-a-model", "--to"):
        _ = open_folder(tmp_path).backbone
    with refusal("missing-file", "bert_config.json"):
        google.read_google(tmp_path / "model.ckpt-5")
    for index in tmp_path.glob("*.index"):
        index.unlink()
    with refusal("missing-file", "model.ckpt", "-10.data", "00000", "00001"):
        google.checkpoint(tmp_path)


def test_an_index_without_its_data_is_told(tmp_path: Path) -> None:
    shutil.copytree(WRITTEN, tmp_path, dirs_exist_ok=True)
    (tmp_path / "bert_model.ckpt.data-00000-of-00001").unlink()
    with refusal("missing-file", "00000", "00001"):
        google.read_google(tmp_path / "bert_model.ckpt")


def test_sizes_that_are_not_those_of_the_weights_are_told(tmp_path: Path) -> None:
    shutil.copytree(WRITTEN, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "bert_config.json").read_text())
    (tmp_path / "bert_config.json").write_text(json.dumps({**config, "vocab_size": 25, "num_hidden_layers": 3}))
    missing = "encoder.layer.2.output.dense.weight (8, 12)"
    with refusal("damaged-file", "word_embeddings.weight", "(24, 8)", "(25, 8)", missing):
        opened(tmp_path)
    (tmp_path / "bert_config.json").write_text(json.dumps({**config, "hidden_act": "linear"}))
    with refusal("unsupported-model", "hidden_act", "linear"):
        opened(tmp_path)


def test_a_checkpoint_beside_a_config_json_is_taken_for_what_it_is(tmp_path: Path) -> None:
    """As google-research/bert's models were put up for Hugging Face's readers."""
    for path in WRITTEN.iterdir():
        shutil.copy(path, tmp_path / path.name.replace("bert_config", "config"))
    assert open_any(tmp_path).form == "google"


def test_a_weight_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    shutil.copytree(WRITTEN, tmp_path / "bert")
    bundle = open_bundle(tmp_path / "bert" / "bert_model.ckpt")
    tensors = {name: bundle.read(name) for name in bundle.entries}
    tensors["bert/pooler/dense/bias"][0] = torch.nan
    write_bundle(tensors, tmp_path / "bert" / "bert_model.ckpt")
    with refusal("not-finite", "bert_model.ckpt", "1"):
        model_of(open_any(tmp_path / "bert"))
