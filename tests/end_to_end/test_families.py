"""Encoders of other families through the commands: embedded, fine-tuned, predicted with; equal to transformers."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

import osbert
from family_tokenizers import KINDS
from osbert.commands.convert import convert
from osbert.commands.embed import VectorOptions, embed
from osbert.commands.export import export
from osbert.commands.finetune import finetune
from osbert.runs.finetune.model import ModelReader
from osbert.text.tokenizer import SPECIALS
from refusals import refusal

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 40}
DISTILBERT = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 40}
TWO = {"num_hidden_layers": 2}  # one layer suffices but where the second differs or is the first
MODERNBERT = {"local_attention": 8, "max_position_embeddings": 64, "pad_token_id": 0, "classifier_pooling": "mean"}
EUROBERT = {"num_key_value_heads": 1, "max_position_embeddings": 64} | dict.fromkeys(
    ("bos_token_id", "eos_token_id", "pad_token_id")
)
DEBERTA = {
    "relative_attention": True,
    "position_biased_input": False,
    "share_att_key": True,
    "position_buckets": 8,
    "pos_att_type": "p2c|c2p",
    "norm_rel_ebd": "layer_norm",
    "max_position_embeddings": 64,
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "distilbert": ("DistilBert", DISTILBERT | {"max_position_embeddings": 64}),
    "roberta": ("Roberta", SIZES | {"max_position_embeddings": 66, "type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "xlm-roberta": ("XLMRoberta", SIZES | {"max_position_embeddings": 66, "type_vocab_size": 1}),
    "electra": ("Electra", SIZES | {"embedding_size": 6, "max_position_embeddings": 64}),
    "albert": ("Albert", SIZES | TWO | {"embedding_size": 6, "max_position_embeddings": 64}),
    "deberta": ("DebertaV2", SIZES | DEBERTA),
    "modernbert": ("ModernBert", SIZES | TWO | MODERNBERT),
    "mpnet": ("MPNet", SIZES | {"max_position_embeddings": 66}),
    "eurobert": ("EuroBert", SIZES | EUROBERT),
}
LABELS = {"good": "pos", "fine": "pos", "bad": "neg", "poor": "neg"}
FILLERS = ("the", "film", "plays", "a", "café", "don't", "naïve,", "…")
SETTINGS = (
    *("--text", "first", "--pair", "second", "--epochs", "2", "--learning-rate", "1e-2"),
    *("--precision", "fp32", "--device", "cpu"),
)


def texts(count: int) -> list[str]:
    rng = random.Random(0)
    return [" ".join([*rng.choices(FILLERS, k=rng.randint(1, 6)), rng.choice(list(LABELS))]) for _ in range(count)]


def save_tokenizer(name: str, folder: Path) -> int:
    """Write a tokenizer as transformers does, and return how many pieces it has."""
    if save := KINDS.get(name):
        save(folder)
        return len(transformers.AutoTokenizer.from_pretrained(folder))
    pieces = [*SPECIALS, *LABELS, "the", "film", "play", "##s", "a", "cafe", "don", "'", "t", "na", "##ive", ","]
    tokenizer = transformers.BertTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


@pytest.fixture(scope="module", params=CONFIGS)
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small random model of a family, and its tokenizer, as transformers writes them."""
    folder = tmp_path_factory.mktemp("encoders") / request.param
    vocabulary = save_tokenizer(request.param, folder)
    begin, sizes = CONFIGS[request.param]
    torch.manual_seed(0)
    config = getattr(transformers, f"{begin}Config")(vocab_size=vocabulary, initializer_range=0.3, **sizes)
    getattr(transformers, f"{begin}Model")(config).eval().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "pairs.tsv"
    found = texts(60)
    rows = [f"{first}\t{second}\t{LABELS[second.split()[-1]]}" for first, second in zip(found, reversed(found))]
    path.write_text("\n".join(["first\tsecond\tlabel", *rows]) + "\n", encoding="utf-8")
    return path


def theirs(folder: Path, *inputs: str, kind: str = "AutoModel") -> Any:
    """What transformers makes of a text or a pair by itself."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**tokenizer(*inputs, return_tensors="pt"))


def test_texts_are_embedded_as_transformers_does(encoder: Path, tmp_path: Path) -> None:
    found = texts(5)
    source, out = tmp_path / "texts.txt", tmp_path / "vectors.npz"
    source.write_text("\n".join(found) + "\n", encoding="utf-8")
    embed(encoder, source, out=out, vectors=VectorOptions(pooling="tokens"))
    arrays = np.load(out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    for place, text in enumerate(found):
        rows = slice(arrays["starts"][place], arrays["starts"][place + 1])
        assert arrays["ids"][rows].tolist() == tokenizer(text)["input_ids"]
        states = theirs(encoder, text).last_hidden_state[0]
        np.testing.assert_allclose(arrays["vectors"][rows], states.numpy(), rtol=0, atol=2e-5)


def test_a_folder_of_sentence_transformers_gives_its_vectors(encoder: Path, tmp_path: Path) -> None:
    """Laid out as all-mpnet-base-v2: the mean of the tokens, at most 12 of them, of length 1."""
    if encoder.name != "mpnet":
        pytest.skip("one family suffices")
    folder = shutil.copytree(encoder, tmp_path / "all")
    kinds = ("Transformer", "Pooling", "Normalize")
    paths = ("", "1_Pooling", "2_Normalize")
    parts = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (kind, path) in enumerate(zip(kinds, paths))
    ]
    (folder / "modules.json").write_text(json.dumps(parts))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 12, "do_lower_case": False}))
    found = osbert.load(folder).embed(texts(5))
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    model = transformers.AutoModel.from_pretrained(encoder).eval()
    for text, vector in zip(texts(5), found, strict=True):
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=12)).last_hidden_state
        wanted = torch.nn.functional.normalize(states[0].mean(dim=0), dim=0)
        np.testing.assert_allclose(vector, wanted.numpy(), rtol=0, atol=2e-5)


def test_a_run_on_it_stands_alone_and_opens_in_transformers(encoder: Path, table: Path, tmp_path: Path) -> None:
    """Pairs, whose form differs most between families."""
    run = tmp_path / "run"
    finetune("classify", *SETTINGS, model=encoder, data=table, out=run)
    pair = tuple(texts(2))
    (ours,) = osbert.load(run).predict([pair])
    scores = theirs(run, *pair, kind="AutoModelForSequenceClassification").logits
    np.testing.assert_allclose(scores.softmax(-1)[0], list(ours.probabilities.values()), rtol=0, atol=2e-5)

    convert(run, tmp_path / "theirs", to="huggingface")
    convert(tmp_path / "theirs", tmp_path / "again", to="osbert")
    (back,) = osbert.load(tmp_path / "again").predict([pair])
    assert back.probabilities == ours.probabilities
    export(run, to="onnx", out=tmp_path / "exported")  # which compares the two on the development rows
    (exported,) = osbert.load(tmp_path / "exported").predict([pair])
    np.testing.assert_allclose(
        list(exported.probabilities.values()), list(ours.probabilities.values()), rtol=0, atol=2e-5
    )


@pytest.mark.lab
def test_only_bert_has_the_form_of_google(encoder: Path, tmp_path: Path) -> None:
    with refusal("not-convertible"):
        convert(encoder, tmp_path / "google", to="google")


def test_what_it_reads_texts_with_is_known_before_its_weights_are(encoder: Path) -> None:
    """By this GLUE, several tasks and a submission refuse texts that may not be cut."""
    reader = ModelReader.of(encoder)
    assert reader.length == 64
    assert len(reader.tokenizer) == len(transformers.AutoTokenizer.from_pretrained(encoder))


def test_the_command_predicts(encoder: Path, table: Path, tmp_path: Path) -> None:
    """In a process of its own; only what was tuned is kept, by its name in the base."""
    if encoder.name != "distilbert":
        pytest.skip("one family suffices")
    words = ("finetune", "classify", "--model", encoder, "--data", table, "--out", tmp_path / "run", *SETTINGS)
    line = [sys.executable, "-m", "osbert", *map(str, words), "--tuning", "lora"]
    done = subprocess.run(line, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "tuned.safetensors").is_file() and "has only the tuned weights" in done.stdout
    (prediction,) = osbert.load(tmp_path / "run").predict([tuple(texts(2))])
    assert set(prediction.probabilities) == {"pos", "neg"}


def test_tags_are_told_by_their_places_in_the_text(encoder: Path, tmp_path: Path) -> None:
    """Words are cut by themselves, whatever the tokenizer."""
    tagged = [[(word, f"B-{LABELS[word]}" if word in LABELS else "O") for word in text.split()] for text in texts(60)]
    lines = "\n\n".join("\n".join(" ".join(pair) for pair in pairs) for pairs in tagged)
    (tmp_path / "tags.txt").write_text(lines + "\n", encoding="utf-8")
    settings = ("--epochs", "4", "--learning-rate", "1e-2", "--precision", "fp32", "--device", "cpu", "--batch", "8")
    finetune("tag", *settings, model=encoder, data=tmp_path / "tags.txt", out=tmp_path / "run")
    found = [
        (text, one)
        for text, said in zip(texts(60), osbert.load(tmp_path / "run").predict(texts(60)))
        for one in said.value
    ]
    assert found and all(text[one.start : one.end] == one.text for text, one in found)
    assert all(one.text in text.replace(",", " ,").replace("'", " ' ").split() for text, one in found)
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "run")
    assert set(model.config.id2label.values()) >= {"O", "B-pos", "B-neg"}
