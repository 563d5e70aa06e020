"""Masks in texts for models whose mask has another name: filled as transformers fills them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from family_tokenizers import KINDS
from osbert.data.pack import PieceRun
from osbert.inference import pieces as module
from osbert.inference.engine import load
from osbert.inference.pieces import MASK, fill, pack_with_masks
from osbert.interop.opening import Opening
from refusals import refusal
from tiny_runs import TASKS, write_run

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
    examples = [pack_with_masks(text, engine.packer) for text in TEXTS]
    theirs = [text.replace(MASK, "<mask>") for text in TEXTS]
    assert [example.ids.tolist() for example in examples] == [tokenizer.encode(text).ids for text in theirs]
    pipeline = transformers.pipeline("fill-mask", model=str(folder), top_k=3)
    (found,) = fill(engine.learner, head, examples[2:3], engine.tokenizer, top=3)
    assert [one.probability for one in found[0]] == pytest.approx(
        [one["score"] for one in pipeline(theirs[2])], abs=1e-5
    )
    assert engine.fill(TEXTS[2], top=3) == found


def test_a_model_fills_the_masks_of_a_text(tmp_path: Path) -> None:
    model = load(write_run(tmp_path / "encoder", None, masks=True), device="cpu")
    first, second = model.fill(f"a {MASK} film, the {MASK}")
    assert [len(first), len(second)] == [5, 5]
    assert [one.probability for one in first] == sorted((one.probability for one in first), reverse=True)
    everything = model.fill(f"a {MASK} film", top=1000)[0]
    assert len(everything) == len(model.tokenizer) and sum(one.probability for one in everything) == pytest.approx(1)
    with refusal("invalid-value", "a film"):
        model.fill("a film")
    with refusal("text-too-long", "24"):
        model.fill("a film " * 20 + MASK)


def test_few_logits_are_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(write_run(tmp_path / "encoder", None, masks=True), device="cpu")
    assert model.masks is not None
    examples = [
        pack_with_masks(text, model.packer) for text in (f"{MASK} film {MASK} {MASK}", "a", f"a {MASK}", MASK * 5)
    ]
    expected = fill(model.learner, model.masks, examples, model.tokenizer, top=2)
    sizes: list[int] = []
    scores = model.masks.scores
    monkeypatch.setattr(module, "SCORES", 2)
    monkeypatch.setattr(model.masks, "scores", lambda hidden: sizes.append(len(hidden)) or scores(hidden))
    found = fill(model.learner, model.masks, examples, model.tokenizer, top=2)
    assert sizes == [2, 2, 2, 2, 1] and [len(masks) for masks in found] == [3, 0, 1, 5]
    for masks, others in zip(found, expected, strict=True):
        for mask, other in zip(masks, others, strict=True):
            assert [one.piece for one in mask] == [one.piece for one in other]
            assert [one.probability for one in mask] == pytest.approx([one.probability for one in other])


@pytest.mark.parametrize("name", ["classifier", "encoder"])
def test_a_model_without_that_head_fills_no_mask(tmp_path: Path, name: str) -> None:
    model = load(write_run(tmp_path / name, TASKS.get(name)), device="cpu")
    with refusal("unsupported-model"):
        model.fill(f"a {MASK} film")


@pytest.mark.parametrize("head", ["cls.predictions.decoder.weight", "cls.predictions.bias"])
def test_a_head_that_cannot_be_used_is_refused_with_its_reason(head: str, tmp_path: Path) -> None:
    """A table of its own, where the piece embeddings are expected, or a bias of another length."""
    folder = tmp_path / "encoder"
    write_run(folder, None, masks=True)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {head: torch.ones(3, 16)}, folder / "model.safetensors")
    model = load(folder, device="cpu", opening=Opening(verify=False))
    for call in (lambda: model.fill(f"a {MASK} film"), lambda: model.score(["a film"])):
        with refusal("unsupported-model", head):
            call()
    assert not load(write_run(tmp_path / "other", None, masks=True), device="cpu").unusable_head


def test_what_is_no_text_and_no_number_of_pieces_is_refused(tmp_path: Path) -> None:
    model = load(write_run(tmp_path / "encoder", None, masks=True))
    for text, top in ((["a [MASK]"], 5), (None, 5), ("a [MASK]", 0), ("a [MASK]", -1), ("a [MASK]", "5")):
        with refusal("invalid-value", repr(top)):
            model.fill(text, top=top)


def test_the_states_of_a_text_are_its_vectors_without_pooling(tmp_path: Path) -> None:
    model = load(write_run(tmp_path / "encoder", None), device="cpu")
    for text in ("a good film", ("a good film", "the bad play")):
        np.testing.assert_array_equal(model.states(text), model.embed([text], pooling="tokens")[0])
    example = model.packer.single(*PieceRun.of(model.tokenizer.encode("a good film"), model.tokenizer))
    np.testing.assert_array_equal(model.states("a good film"), model.states_of([example])[0])
    assert model.states("good " * 100).shape == (24, 16)
