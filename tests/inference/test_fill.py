"""Masks in texts for models whose mask has another name: filled as transformers fills them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer

from family_tokenizers import KINDS
from osbert.inference.engine import load
from osbert.inference.fill import MASK, fill, masked

TEXTS = [f"the quick {MASK} fox", f"{MASK} fox, {MASK}.", f"fine{MASK}film", f"a film {MASK}"]


@pytest.mark.parametrize(("name", "family"), [("roberta", "Roberta"), ("xlm-roberta", "XLMRoberta")])
def test_the_spaces_around_a_mask_are_read_as_theirs(name: str, family: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    KINDS[name](folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    for piece in content["added_tokens"]:
        piece["lstrip"] = piece["content"] == "<mask>"  # as in the folders that they publish
    file.write_text(json.dumps(content), encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(file))
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=42, type_vocab_size=1, pad_token_id=1, **sizes
    )
    torch.manual_seed(0)
    getattr(transformers, f"{family}ForMaskedLM")(config).save_pretrained(folder)
    engine = load(folder, device="cpu")
    head = engine.masks
    assert head is not None
    examples = [masked(engine, text) for text in TEXTS]
    theirs = [text.replace(MASK, "<mask>") for text in TEXTS]
    assert [example.ids.tolist() for example in examples] == [tokenizer.encode(text).ids for text in theirs]
    pipeline = transformers.pipeline("fill-mask", model=str(folder), top_k=3)
    (found,) = fill(engine, head, examples[2:3], top=3)
    assert [one.probability for one in found[0]] == pytest.approx(
        [one["score"] for one in pipeline(theirs[2])], abs=1e-5
    )
