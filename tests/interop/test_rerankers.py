"""Published rerankers, one output and a class for sequences: read by their own configs, or with --task rerank."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

from family_tokenizers import save_modernbert, save_xlm_roberta
from osbert.guarded import read_object
from osbert.inference.engine import load
from osbert.interop.conversion import model_of, open_any, write_model_as
from osbert.interop.task_files import TaskHint
from osbert.interop.tokenizers import write_tokenizer
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.kinds.rerank import Rerank
from osbert.text.tokenizer import Tokenizer

QUERY, DOCUMENTS = "the quick fox", ("a good film", "naïve cafés " * 30, "world end", "the quick brown fox don't stop")
PROMPT = "a quick "
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "num_labels": 1}
SIGMOID = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid", "version": "5.1.0"}}
FAMILIES: dict[str, tuple[str, Callable[[Path], None], dict[str, Any]]] = {
    "bge": ("XLMRoberta", save_xlm_roberta, {"max_position_embeddings": 26, "pad_token_id": 1, "type_vocab_size": 1}),
    "gte": (
        "ModernBert",
        save_modernbert,
        {"max_position_embeddings": 24, "classifier_pooling": "mean", "pad_token_id": 0, **SIGMOID},
    ),
}
"""The layout of a published reranker: the family, its tokenizer, and fields of its config."""


@pytest.mark.parametrize("name", FAMILIES)
def test_a_published_reranker_ranks_as_in_transformers(name: str, tmp_path: Path) -> None:
    family, save_tokenizer, fields = FAMILIES[name]
    theirs = tmp_path / "theirs"
    save_tokenizer(theirs)
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs)
    torch.manual_seed(0)
    sizes = {**SMALL, "vocab_size": len(tokenizer), "initializer_range": 0.3, **fields}
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = getattr(transformers, f"{family}ForSequenceClassification")(config).eval()
    model.save_pretrained(theirs)
    prompts = {"prompts": {"rank": PROMPT}, "default_prompt_name": "rank"}
    (theirs / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    source = model_of(open_any(theirs), TaskHint(kind="rerank") if name == "bge" else TaskHint())
    assert source.report.problems == () and source.task == Rerank(prompt=PROMPT)
    write_model_as(source, tmp_path / "ours", "osbert")
    (said,) = load(tmp_path / "ours").predict([(QUERY, *DOCUMENTS)])
    inputs = tokenizer(
        [PROMPT + QUERY] * 4, DOCUMENTS, truncation=True, max_length=24, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        scores = model(**inputs).logits[:, 0]
    assert said.value == pytest.approx(scores.tolist(), abs=2e-5)
    assert [one.index for one in said.ranked] == scores.argsort(descending=True).tolist()  # type: ignore[attr-defined]
    assert said.candidates[1].truncated > 0  # type: ignore[attr-defined]
    write_model_as(model_of(open_any(tmp_path / "ours")), tmp_path / "again", "huggingface")
    written = read_object(tmp_path / "again" / "config.json")
    assert written["id2label"] == {"0": "LABEL_0"} and "problem_type" not in written
    assert written["sentence_transformers"]["activation_fn"] == SIGMOID["sentence_transformers"]["activation_fn"]
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "again").eval()
    with torch.no_grad():
        torch.testing.assert_close(again(**inputs).logits[:, 0], scores, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        (SIGMOID, Rerank),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, Rerank),
        ({"problem_type": "regression"} | SIGMOID, Regress),
        ({}, Regress),
    ],
)
def test_the_config_says_whether_one_output_is_a_rank(
    fields: dict[str, Any], kind: type, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    config = transformers.BertConfig(**SMALL, **fields, vocab_size=len(tokenizer), max_position_embeddings=24)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    write_tokenizer(tokenizer, tmp_path, length=24)
    assert type(model_of(open_any(tmp_path)).task) is kind
