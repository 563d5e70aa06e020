"""RoBERTa, XLM-R, DistilBERT, ELECTRA and ModernBERT: the states, scores and folders of transformers, both ways."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from safetensors.torch import load_file, save_file

from osbert.data.batch import Batch, BatchTarget, collate
from osbert.data.example import Example
from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.interop.huggingface import names as huggingface_names
from osbert.models.architecture import Architecture
from osbert.models.contract import Head, Learner
from osbert.models.families.transformer import Transformer
from osbert.models.heads.grouped import ChoiceHead, SpanHead
from osbert.models.heads.predictions import MaskedLanguageHead, NumberHead, SequenceHead
from osbert.models.heads.tagging import TagHead
from refusals import refusal

TOLERANCE = 2e-5
SIZES = {"vocab_size": 60, "initializer_range": 0.3}
BERT = SIZES | {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 24,
}
ROBERTA = BERT | {"max_position_embeddings": 26, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
DEBERTA = BERT | {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": "p2c|c2p",
    "norm_rel_ebd": "layer_norm",
}
"""In batches whose longest text is longer than the distances go."""
MODERN = BERT | {"local_attention": 8, "pad_token_id": 0}
EURO = BERT | dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "roberta": ("Roberta", ROBERTA),
    "xlm-roberta": ("XLMRoberta", ROBERTA),
    "roberta-relu": ("Roberta", ROBERTA | {"hidden_act": "relu"}),
    "camembert": ("Camembert", ROBERTA),
    "distilbert": (
        "DistilBert",
        SIZES | {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 40, "max_position_embeddings": 24},
    ),
    "electra": ("Electra", BERT | {"embedding_size": 6}),
    "electra-tanh": ("Electra", BERT | {"embedding_size": 6, "hidden_act": "gelu_new"}),
    "electra-base": ("Electra", BERT | {"embedding_size": 16}),
    "albert": ("Albert", BERT | {"embedding_size": 6, "num_hidden_layers": 3}),
    "albert-groups": (
        "Albert",
        BERT | {"embedding_size": 6, "num_hidden_layers": 4, "num_hidden_groups": 2, "hidden_act": "relu"},
    ),
    "mpnet": ("MPNet", BERT | {"max_position_embeddings": 202, "layer_norm_eps": 1e-5, "hidden_act": "silu"}),
    "eurobert": ("EuroBert", EURO),
    "eurobert-grouped": (
        "EuroBert",
        EURO
        | {"num_attention_heads": 4, "num_key_value_heads": 2, "classifier_pooling": "bos", "hidden_act": "gelu"}
        | {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
    "eurobert-mean": ("EuroBert", EURO | {"num_key_value_heads": 1, "classifier_pooling": "mean"}),
    "nomic_bert": ("NomicBert", BERT | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "gte": ("Gte", BERT | {"pad_token_id": 0, "hidden_act": "relu"}),
    "deberta-v1": (
        "Deberta",
        BERT | {"relative_attention": True, "position_biased_input": False, "pos_att_type": "c2p|p2c"},
    ),
    "deberta-v1-c2p": (
        "Deberta",
        BERT
        | {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p"]}
        | {"max_relative_positions": 7, "type_vocab_size": 0},
    ),
    "deberta-v2-p2c": ("DebertaV2", DEBERTA | {"share_att_key": True, "position_buckets": 8, "pos_att_type": "p2c"}),
    "deberta-v2-c2p": ("DebertaV2", DEBERTA | {"norm_rel_ebd": "none", "pos_att_type": ["c2p"]}),
    "deberta-v3": (
        "DebertaV2",
        DEBERTA | {"share_att_key": True, "position_buckets": 8, "max_position_embeddings": 16},
    ),
    "deberta-v2": (
        "DebertaV2",
        DEBERTA | {"max_relative_positions": 7, "type_vocab_size": 2, "embedding_size": 6, "hidden_act": "relu"},
    ),
    "modernbert": ("ModernBert", MODERN),
    "modernbert-mean": (
        "ModernBert",
        MODERN
        | {"classifier_pooling": "mean", "global_attn_every_n_layers": 2}
        | {"hidden_activation": "silu", "classifier_activation": "silu"},
    ),
}
WRITTEN = {
    **dict.fromkeys(("xlm-roberta", "camembert"), "Roberta"),
    **dict.fromkeys(("deberta-v1", "deberta-v1-c2p"), "DebertaV2"),
}
HEADS = {
    "classify": "ForSequenceClassification",
    "tag": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choose": "ForMultipleChoice",
    "mlm": "ForMaskedLM",
}

MISSING = {
    **dict.fromkeys(("nomic_bert", "gte", "eurobert", "eurobert-grouped", "eurobert-mean"), ("span", "choose")),
    **dict.fromkeys(("deberta-v1", "deberta-v1-c2p"), ("choose",)),
}
"""The heads that transformers has no class for."""


def model(name: str, kind: str = "Model") -> Any:
    """A random model of transformers, no two of whose vectors are alike."""
    begin, sizes = CONFIGS[name]
    labels = {"num_labels": 2 if kind in ("ForQuestionAnswering", "ForPreTraining") else 3}
    config = getattr(transformers, f"{begin}Config")(**sizes, **labels)
    torch.manual_seed(0)
    made = getattr(transformers, begin + kind)(config).eval()
    for parameter in made.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=parameter.detach().mean().item(), std=0.1)
    return made


def batch_of(lengths: list[int], *, segments: bool) -> Batch:
    rng = np.random.default_rng(0)
    plain = [np.zeros(length, np.bool_) for length in lengths]
    return collate(
        [
            Example(
                ids=rng.integers(5, 60, size=length),
                segments=(np.arange(length) > length // 2).astype(np.int8) * segments,
                words=none,
                special=none,
                record=place,
            )
            for place, (length, none) in enumerate(zip(lengths, plain))
        ]
    )


def theirs(made: Any, batch: Batch, **options: Any) -> Any:
    """What transformers gives for each sequence by itself; their padding plays no part."""
    outputs = []
    for ids, segments in zip(batch.ids.split(batch.lengths), batch.segments.split(batch.lengths), strict=True):
        kinds = {"token_type_ids": segments[None]} if segments.any() else {}
        with torch.no_grad():
            outputs.append(made(input_ids=ids[None], **kinds, **options))
    return outputs


def head_of(kind: str, backbone: Transformer) -> Head:
    if kind == "classify":
        return SequenceHead(backbone, target=kind, labels=3)
    if kind == "regress":
        return NumberHead(backbone, target=kind)
    if kind == "tag":
        return TagHead(backbone, target=kind, labels=3)
    return {"span": SpanHead, "choose": ChoiceHead, "mlm": MaskedLanguageHead}[kind](backbone, target=kind)


def scores(learner: Learner, kind: str, batch: Batch) -> torch.Tensor:
    with torch.no_grad():
        return learner.heads[kind].outputs(learner.states(batch), batch)


def expected(made: Any, kind: str, batch: Batch) -> torch.Tensor:
    if kind == "choose":
        rows = [ids[None, None] for ids in batch.ids.split(batch.lengths)]
        return torch.cat([made(row, attention_mask=torch.ones_like(row)).logits[0] for row in rows]).detach()[:, None]
    found = theirs(made, batch)
    if kind == "span":
        return torch.cat([torch.stack([one.start_logits[0], one.end_logits[0]], dim=1) for one in found])
    rows = [one.logits for one in found]
    return torch.cat(rows) if kind in ("classify", "regress") else torch.cat([row[0] for row in rows])


def labelled(batch: Batch, kind: str) -> Batch:
    everything = BatchTarget(
        labels=torch.zeros(batch.tokens), index=torch.arange(batch.tokens), per_token=True, count=1.0
    )
    return replace(batch, targets={kind: everything}) if kind == "mlm" else batch


@pytest.mark.parametrize("name", CONFIGS)
def test_every_layer_is_theirs(name: str, tmp_path: Path) -> None:
    made = model(name)
    made.save_pretrained(tmp_path)
    loaded = open_folder(tmp_path)
    assert loaded.report.problems == ()
    assert bool(loaded.report.select_names("new")) == (getattr(made, "pooler", None) is None)
    batch = batch_of([24, 9, 9, 2], segments=name.startswith(("electra", "albert", "deberta-v2")))
    found = theirs(made, batch, output_hidden_states=True)
    with torch.no_grad():
        layers = list(loaded.backbone.eval().layers(batch))
    assert len(layers) == len(found[0].hidden_states) >= 3
    for layer, mine in enumerate(layers):
        other = torch.cat([one.hidden_states[layer][0] for one in found])
        torch.testing.assert_close(mine, other, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in CONFIGS for kind in HEADS if kind not in MISSING.get(name, ())],
)
def test_their_heads_give_their_scores_and_are_written_as_theirs(name: str, kind: str, tmp_path: Path) -> None:
    made = model(name, HEADS[kind])
    made.save_pretrained(tmp_path / "theirs")
    loaded = open_folder(tmp_path / "theirs")
    learner = Learner(loaded.backbone, {kind: head_of(kind, loaded.backbone)}).eval()
    rows = huggingface.fill_heads(loaded.tensors, learner)
    assert all(row.status == "loaded" and row.expected for row in rows)
    batch = labelled(batch_of([24, 9, 5], segments=False), kind)
    before = expected(made, kind, batch)
    torch.testing.assert_close(scores(learner, kind, batch), before, rtol=0, atol=TOLERANCE)

    huggingface.write_model(learner, tmp_path / "ours")
    name_of_class = WRITTEN.get(name, CONFIGS[name][0]) + HEADS[kind]
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["architectures"] == [name_of_class]
    again, information = getattr(transformers, name_of_class).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not information["missing_keys"] and not information["mismatched_keys"]
    torch.testing.assert_close(expected(again.eval(), kind, batch), before, rtol=0, atol=TOLERANCE)

    reopened = open_folder(tmp_path / "ours")
    assert reopened.report.problems == () and reopened.report.select_names("new") == ()
    assert reopened.backbone.architecture == replace(
        learner.backbone.architecture, dropout=reopened.backbone.architecture.dropout
    )
    fresh = Learner(reopened.backbone, {kind: head_of(kind, reopened.backbone)}).eval()
    assert all(row.status == "loaded" for row in huggingface.fill_heads(reopened.tensors, fresh))
    torch.testing.assert_close(scores(fresh, kind, batch), before, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", CONFIGS)
def test_regression_is_written_as_theirs(name: str, tmp_path: Path) -> None:
    model(name).save_pretrained(tmp_path / "theirs")
    backbone = open_folder(tmp_path / "theirs").backbone
    learner = Learner(backbone, {"regress": head_of("regress", backbone)}).eval()
    huggingface.write_model(learner, tmp_path / "ours", center=2.0, scale=3.0)
    batch = batch_of([9, 5], segments=False)
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours").eval()
    wanted = expected(again, "regress", batch)
    torch.testing.assert_close(2 + 3 * scores(learner, "regress", batch), wanted, rtol=0, atol=TOLERANCE)


def test_alberts_pretraining_is_read_and_written(tmp_path: Path) -> None:
    """Masked pieces and the order of sentences: both scores of AlbertForPreTraining, and a fresh folder of ours."""
    made = model("albert", "ForPreTraining")
    made.save_pretrained(tmp_path / "theirs")
    folder = open_folder(tmp_path / "theirs")
    assert folder.report.problems == () and {*folder.heads} == {"mlm", "sentence_order"}
    learner = Learner(folder.backbone, folder.heads).eval()
    batch = labelled(batch_of([24, 9, 5], segments=True), "mlm")
    found = theirs(made, batch)
    orders = torch.cat([one.sop_logits for one in found])
    torch.testing.assert_close(scores(learner, "sentence_order", batch), orders, rtol=0, atol=TOLERANCE)
    pieces = torch.cat([one.prediction_logits[0] for one in found])
    torch.testing.assert_close(scores(learner, "mlm", batch), pieces, rtol=0, atol=TOLERANCE)
    huggingface.write_model(learner, tmp_path / "ours")
    again, report = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert again.config.architectures == ["AlbertForPreTraining"]
    assert not report["missing_keys"] and not report["mismatched_keys"] and not report["unexpected_keys"]
    torch.testing.assert_close(theirs(again.eval(), batch)[0].sop_logits, found[0].sop_logits, rtol=0, atol=TOLERANCE)


def test_what_is_missing_is_told_by_its_name_in_the_file(tmp_path: Path) -> None:
    model("distilbert").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["transformer.layer.1.attention.out_lin.bias"]
    save_file(tensors, tmp_path / "model.safetensors")
    with refusal("damaged-file", "transformer.layer.1.attention.out_lin.bias", "16"):
        _ = open_folder(tmp_path).backbone


def test_a_pooler_beside_a_classifier_that_has_its_own_is_left_out(tmp_path: Path) -> None:
    """The first releases of transformers wrote both; the classifier never read the pooler."""
    made = model("roberta", "ForSequenceClassification")
    made.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors |= {"roberta.pooler.dense.weight": torch.ones(16, 16), "roberta.pooler.dense.bias": torch.ones(16)}
    save_file(tensors, tmp_path / "model.safetensors")
    loaded = open_folder(tmp_path)
    assert torch.equal(loaded.backbone.pooler.weight, made.classifier.dense.weight)
    unused = sorted(row.name for row in loaded.report.problems)
    assert unused == ["roberta.pooler.dense.bias", "roberta.pooler.dense.weight"]


@pytest.mark.parametrize(
    ("name", "change", "refused"),
    [
        ("roberta", {"hidden_act": "mish"}, ("unsupported-model", "hidden_act", "'mish'")),
        ("roberta", {"is_decoder": True}, ("unsupported-model", "is_decoder", "True")),
        ("distilbert", {"is_decoder": True}, ("unsupported-model", "is_decoder", "True")),
        ("roberta", {"pad_token_id": None}, ("unsupported-model", "pad_token_id", "None")),
        ("xlm-roberta", {"max_position_embeddings": 2}, ("unsupported-model", "config.json", "length", "0")),
        ("distilbert", {"n_heads": "two"}, ("unsupported-model", "n_heads", "'two'")),
        ("distilbert", {"activation": "mish"}, ("unsupported-model", "activation", "'mish'")),
        ("nomic_bert", {"head_dim": 4}, ("unsupported-model", "head_dim", "4")),
        (
            "nomic_bert",
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
            ("unsupported-model", "rope_parameters", "yarn"),
        ),
        ("gte", {"rope_scaling": {"type": "ntk", "factor": 2.0}}, ("unsupported-model", "rope_scaling", "ntk")),
        ("deberta-v1", {"talking_head": True}, ("unsupported-model", "talking_head", "True")),
        ("electra", {"embedding_size": 6.5}, ("unsupported-model", "embedding_size", "6.5")),
        ("albert", {"embedding_size": 16}, ("unsupported-model", "embedding_size", "16", "hidden_size")),
        ("albert", {"num_hidden_groups": 2}, ("unsupported-model", "num_hidden_groups", "2", "num_hidden_layers", "3")),
        ("albert", {"num_hidden_groups": 0}, ("unsupported-model", "num_hidden_groups", "1")),
        ("albert", {"inner_group_num": 2}, ("unsupported-model", "inner_group_num", "2")),
        ("albert", {"hidden_act": "mish"}, ("unsupported-model", "hidden_act", "'mish'")),
        ("electra", {"summary_type": "last"}, ("unsupported-model", "summary_type", "'last'")),
    ],
)
def test_other_mathematics_is_refused(
    name: str, change: dict[str, Any], refused: tuple[str, ...], tmp_path: Path
) -> None:
    model(name).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with refusal(*refused):
        _ = open_folder(tmp_path).backbone


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"first_position": 2, "adapters": 3}, "adapters = 3"),
        ({"first_position": 2, "pooling": "gelu"}, "first_position = 2 and pooling = gelu"),
        ({"segments": 0}, "segments = 0"),
        ({"embedding": 6}, "embedding = 6"),
        ({"layers": 4, "distinct": 2}, "distinct = 2"),
        ({"summary": "last", "embedding_norm": False}, "embedding_norm = False and summary = last"),
        ({"piece_transform": False, "scaled_outputs": True}, "piece_transform = False"),
        ({"first_position": 2, "distinct": 1}, "distinct = 1"),
        ({"positions": "disentangled", "pooling": "gelu", "buckets": 8, "biases": False}, "biases = False"),
    ],
)
def test_what_no_family_is_stays_with_us(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    small = {"layers": 1, "heads": 2, "width": 16, "vocabulary": 60, "length": 24, "deviation": 0.3}
    sizes = Architecture(**small | changes)
    backbone = sizes.build().eval()
    assert told in huggingface.osbert_only_reason(sizes)
    huggingface.write_model(Learner(backbone, {"mlm": head_of("mlm", backbone)}), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == huggingface_names.OWN
    again = open_folder(tmp_path).backbone.eval()
    assert again.architecture == backbone.architecture
    batch = batch_of([9, 5], segments=True)
    assert torch.equal(again(batch).pooled, backbone(batch).pooled)
