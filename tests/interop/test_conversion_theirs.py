"""Models of others become runs: transformers' own classes of every kind, and what their configs leave open."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

from osbert.inference.engine import load
from osbert.interop.conversion import differences, model_of, notes, open_any, sequences, write_model_as
from osbert.interop.task_files import TaskHint
from osbert.interop.tokenizers import write_tokenizer
from osbert.tasks import Task
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.multilabel import Multilabel
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.tag import Tag
from osbert.text.tokenizer import Tokenizer
from refusals import refusal

TOLERANCE = 2e-5
TEXT, OTHER = "the film was very good , not bad .", "ann lives in new york !"


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE)


GOOGLE: tuple[Any, ...] = ("google",) if importlib.util.find_spec("osbert_lab") else ()
NAMES = {0: "I-LOC", 1: "B-PER", 2: "O", 3: "B-LOC", 4: "I-PER"}
"""Labels in an order that is not osbert's."""


@pytest.mark.parametrize(
    ("kind", "fields", "task"),
    [
        ("BertModel", {}, None),
        ("BertForPreTraining", {}, None),
        ("BertForMaskedLM", {}, None),
        ("BertForSequenceClassification", {"num_labels": 2}, Classify(labels=("LABEL_0", "LABEL_1"), temperature=1.0)),
        ("BertForSequenceClassification", {"num_labels": 1}, Regress()),
        ("BertForQuestionAnswering", {}, Span()),
        ("BertForTokenClassification", {"id2label": NAMES}, Tag(types=("LOC", "PER"))),
    ],
)
def test_models_of_theirs_become_runs(
    tmp_path: Path,
    sizes: dict[str, Any],
    tokenizer: Tokenizer,
    theirs_say: Callable[..., Any],
    ours_say: Callable[..., Any],
    kind: str,
    fields: dict[str, Any],
    task: Task | None,
) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**sizes, "vocab_size": len(tokenizer)}, **fields)
    theirs = getattr(transformers, kind)(config).eval()
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="10KB" if kind == "BertForMaskedLM" else "1GB")
    write_tokenizer(tokenizer, tmp_path / "theirs", length=24)
    model = model_of(open_any(tmp_path / "theirs"))
    assert model.report.problems == () and model.source.form == "huggingface"
    assert model.task == task
    assert model.source.has_pooler == any("pooler" in name for name in theirs.state_dict())
    write_model_as(model, tmp_path / "ours", "osbert")
    assert differences(model, model_of(open_any(tmp_path / "ours")))[0].largest == 0.0
    texts = (TEXT, OTHER) if kind != "BertForTokenClassification" else (TEXT,)
    engine = load(tmp_path / "ours")
    if task is None:
        again = theirs_say(tmp_path / "theirs", "AutoModel", *texts).last_hidden_state[0]
        close(torch.from_numpy(engine.embed([texts], pooling="tokens")[0]), again)
        return
    assert engine.predict([texts])
    said = theirs_say(tmp_path / "theirs", kind.replace("Bert", "AutoModel"), *texts)
    ours = ours_say(tmp_path / "ours", *texts)[engine.fine_tuned.name]
    if kind == "BertForQuestionAnswering":
        close(ours, torch.stack([said.start_logits[0], said.end_logits[0]], dim=1))
    elif kind == "BertForTokenClassification":
        close(ours, said.logits[0][:, [2, 3, 0, 1, 4]])
    else:
        close(ours, said.logits)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("DistilBert", {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 40}),
        ("Electra", {"embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}),
    ],
)
def test_models_of_other_families_stay_in_them(
    tmp_path: Path, tokenizer: Tokenizer, theirs_say: Callable[..., Any], family: str, fields: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=len(tokenizer), max_position_embeddings=24, initializer_range=0.3, num_labels=2, **fields
    )
    getattr(transformers, f"{family}ForSequenceClassification")(config).save_pretrained(tmp_path / "theirs")
    write_tokenizer(tokenizer, tmp_path / "theirs", length=24, segments=0 if family == "DistilBert" else 2)
    source = model_of(open_any(tmp_path / "theirs"))
    assert source.report.problems == () and source.task == Classify(labels=("LABEL_0", "LABEL_1"), temperature=1.0)
    write_model_as(source, tmp_path / "ours", "osbert")
    write_model_as(model_of(open_any(tmp_path / "ours")), tmp_path / "again", "huggingface")
    first, again = (
        theirs_say(tmp_path / name, "AutoModelForSequenceClassification", TEXT).logits for name in ("theirs", "again")
    )
    assert torch.equal(first, again)
    shares = load(tmp_path / "ours").predict([TEXT])[0].probabilities
    assert list(shares.values()) == pytest.approx(first.softmax(-1)[0].tolist(), abs=TOLERANCE)
    for form in GOOGLE:
        with refusal("not-convertible", family.lower()):
            write_model_as(source, tmp_path / form, form)


def test_the_head_that_electra_was_trained_with_is_read_and_written(
    tmp_path: Path, tokenizer: Tokenizer, theirs_say: Callable[..., Any]
) -> None:
    config = transformers.ElectraConfig(
        vocab_size=len(tokenizer), embedding_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.ElectraForPreTraining(config).save_pretrained(tmp_path / "theirs")
    write_tokenizer(tokenizer, tmp_path / "theirs")
    source = model_of(open_any(tmp_path / "theirs"))
    assert source.report.problems == ()
    loaded = {row.name for row in source.report.rows if row.status == "loaded"}
    assert {f"discriminator_predictions.{part}.weight" for part in ("dense", "dense_prediction")} < loaded
    write_model_as(source, tmp_path / "again", "huggingface")
    first, again = (theirs_say(tmp_path / name, "AutoModelForPreTraining", TEXT).logits for name in ("theirs", "again"))
    assert torch.equal(first, again)


@pytest.fixture
def theirs(tmp_path: Path, sizes: dict[str, Any], tokenizer: Tokenizer) -> Callable[..., Path]:
    """Return a maker of a folder with a classifier of theirs: (fields of its config)."""

    def make(**fields: Any) -> Path:
        torch.manual_seed(0)
        config = transformers.BertConfig(**{**sizes, "vocab_size": len(tokenizer), **fields})
        transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
        write_tokenizer(tokenizer, tmp_path, length=24)
        return tmp_path

    return make


def test_a_classifier_of_a_decoder_is_refused(theirs: Callable[..., Path]) -> None:
    """transformers reads its first token, osbert the last."""
    with refusal("unsupported-model", "is_decoder"):
        model_of(open_any(theirs(is_decoder=True)))


def test_a_classifier_without_the_pooler_that_it_reads_is_refused(theirs: Callable[..., Path]) -> None:
    file = theirs() / "model.safetensors"
    tensors = {name: tensor for name, tensor in load_file(file).items() if "pooler" not in name}
    save_file(tensors, file, metadata={"format": "pt"})
    with refusal("damaged-file", "pooler.dense.weight", "pooler.dense.bias"):
        model_of(open_any(file.parent))


@pytest.mark.parametrize(("positions", "bound", "length"), [(24, 8, 8), (24, 10**30, 512), (600, 10**30, 600)])
def test_a_classifier_truncates_where_a_pipeline_of_theirs_does(
    theirs: Callable[..., Path], tmp_path: Path, positions: int, bound: int, length: int
) -> None:
    folder = theirs(max_position_embeddings=positions)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": bound}))
    model = model_of(open_any(folder))
    assert model.task is not None and model.task.length == length
    assert any("model_max_length" in note for note in notes(model, "osbert")) == (length == bound)
    write_model_as(model, tmp_path / "ours", "osbert")
    text = "the film was very good , not bad . " * (60 if positions > 512 else 2)
    pipe = transformers.pipeline("text-classification", str(folder), top_k=None)
    scores = {row["label"]: row["score"] for row in pipe([text], truncation=bound == 8)[0]}
    assert load(tmp_path / "ours").predict([text])[0].probabilities == pytest.approx(scores, abs=TOLERANCE)


def test_a_layer_whose_purpose_is_unknown_is_a_problem_until_it_is_told(theirs: Callable[..., Path]) -> None:
    folder = theirs(num_labels=2)
    config = json.loads((folder / "config.json").read_text())
    del config["architectures"]
    (folder / "config.json").write_text(json.dumps(config))
    model = model_of(open_any(folder))
    assert {row.name for row in model.report.problems} == {"classifier.weight", "classifier.bias"}
    assert "--task classify --labels no,yes" in model.report.problems[0].remark
    told = model_of(open_any(folder), TaskHint(kind="classify", labels=("no", "yes")))
    assert told.report.problems == () and told.task == Classify(labels=("no", "yes"), temperature=1.0)
    with refusal("wrong-number-of-values", "--labels", "3", "2"):
        model_of(open_any(folder), TaskHint(kind="classify", labels=("no", "yes", "maybe")))
    with refusal("duplicate-name", "no"):
        model_of(open_any(folder), TaskHint(kind="classify", labels=("no", "no")))
    assert (
        "regress has 1 outputs, this layer has 2"
        in model_of(open_any(folder), TaskHint(kind="regress")).report.problems[0].remark
    )
    remark = model_of(open_any(folder), TaskHint(kind="tag", labels=("B-X", "I-X"))).report.problems[0].remark
    assert "no scheme of tags has the labels B-X, I-X (is there an O?)" in remark


def test_several_labels_at_once_are_multilabel(theirs: Callable[..., Path]) -> None:
    folder = theirs(num_labels=2, problem_type="multi_label_classification")
    model = model_of(open_any(folder))
    assert model.report.problems == ()
    assert model.task == Multilabel(labels=("LABEL_0", "LABEL_1"), threshold="0.5")


@pytest.mark.parametrize(("rows", "expected"), [(0, True), (2, False), (8, True)])
def test_rows_that_belong_to_no_piece_are_a_problem_unless_they_make_a_round_number(
    theirs: Callable[..., Path], tokenizer: Tokenizer, rows: int, expected: bool
) -> None:
    size = -(-len(tokenizer) // 8) * 8 if rows == 8 else len(tokenizer) + rows
    model = model_of(open_any(theirs(vocab_size=size)))
    (row,) = [row for row in model.report.rows if row.name == "embeddings.word_embeddings.weight"]
    assert row.expected == expected and bool(row.remark) == (size > len(tokenizer))
    assert len(sequences(model)[5].ids) == 24


def test_an_encoder_without_pooler_stays_so(tmp_path: Path, sizes: dict[str, Any], tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**sizes, "vocab_size": len(tokenizer)})
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "theirs")
    write_tokenizer(tokenizer, tmp_path / "theirs")
    model = model_of(open_any(tmp_path / "theirs"))
    assert not model.source.has_pooler and model.report.problems == ()
    for form in ("osbert", *GOOGLE):
        write_model_as(model, tmp_path / form, form)  # type: ignore[arg-type]
        assert not open_any(tmp_path / form).has_pooler
