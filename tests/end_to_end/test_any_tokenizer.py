"""Text to a model with each kind of tokenizer: trained, a corpus built, pretrained, used, opened in transformers."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

import corpora
import osbert
from interrupted import resume_bit_for_bit
from osbert.commands.embed import VectorOptions, embed
from osbert.corpus.encode import encode_document
from osbert.data.corrupt import word_bounds
from osbert.data.step import Cursor
from osbert.interop.tokenizers import read_any_tokenizer
from osbert.recipe import read
from osbert.runs.pretrain.masks import sample_masks
from osbert.runs.pretrain.settings import read_plan
from osbert.text.file_tokenizer import FileTokenizer
from refusals import refusal
from terminal import run

KINDS = ("bpe", "unigram")
SIZES: dict[str, Any] = {
    "layers": 1, "width": 16, "heads": 2, "model_length": 32, "data_length": 24, "batch": 8, "held_out": 0.05,
    "precision": "fp32", "device": "cpu",
}  # fmt: skip
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "bpe": ("roberta-small", {}),
    "unigram": ("bert-tiny", {"objectives": ("mlm", "nsp"), "unit": "words", "long_share": 0.0, "micro_tokens": 0}),
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents between empty lines, some with sentences on lines of their own."""
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    found = [text.replace(". ", ".\n", number % 3) for number, text in enumerate(corpora.invented())]
    path.write_text(
        "\n\n".join([*found, "Naïve cafés: 日本語。テキスト。 “quoted” don't — 😀!"]) + "\n", encoding="utf-8"
    )
    return path


@pytest.fixture(scope="module", params=KINDS)
def vocabulary(request: pytest.FixtureRequest, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("vocabularies") / request.param
    made = osbert.train_tokenizer(texts, out=out, kind=request.param, vocabulary=330 if request.param == "bpe" else 90)
    assert read_any_tokenizer(out) == made and isinstance(made, FileTokenizer)
    return out


@pytest.fixture(scope="module")
def corpus(vocabulary: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpora") / vocabulary.name
    osbert.build_corpus(texts, tokenizer=vocabulary, out=out, workers=1, documents="blank-line")
    return out


@pytest.fixture(scope="module")
def encoder(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("encoders") / corpus.name
    recipe, settings = RECIPES[corpus.name]
    osbert.pretrain(recipe, corpus=corpus, out=out, steps=3, **SIZES, **settings)
    return out


def test_ids_are_those_of_transformers(vocabulary: Path) -> None:
    ours, theirs = read_any_tokenizer(vocabulary), transformers.AutoTokenizer.from_pretrained(vocabulary)
    names = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(theirs, f"{name}_token_id") for name in names] == [
        ours.pad, ours.unknown, ours.cls, ours.sep, ours.mask
    ]  # fmt: skip
    mask = ours.specials["mask"]  # type: ignore[union-attr]
    for text in ("Bada kefe, lo.", "naïve 日本 😀", f"bada {mask} kefe", "", "  two\n\tlines "):
        assert ours.encode(text).tolist() == theirs(text, add_special_tokens=False)["input_ids"]
    assert theirs("a", "a").input_ids == [
        *ours.form.before, *ours.encode("a"), *ours.form.between, *ours.encode("a"), *ours.form.after
    ]  # fmt: skip


def test_the_corpus_is_its_documents_word_starts_and_counts(corpus: Path, texts: Path) -> None:
    tokenizer = read_any_tokenizer(corpus)
    plan = read_plan("cpu", {"objectives": ("mlm",)}, corpus=corpus)
    (block,) = plan.corpus.blocks(1 << 20)
    documents = plan.corpus.read(block)
    found = texts.read_text("utf-8").strip().split("\n\n")
    assert len(documents) == len(found) and plan.corpus.fingerprint == tokenizer.fingerprint
    for document, text in zip(documents, found):
        expected = encode_document(text, tokenizer)
        np.testing.assert_array_equal(document.ids, expected.ids)
        np.testing.assert_array_equal(document.sentences, expected.sentences)
        np.testing.assert_array_equal(document.words, expected.words)
        # Sentences one after the other are the text, cut as a whole, but for line breaks, which are spaces. Unigram has
        # the sign of a space before each of them, also where there is none (Japanese).
        if corpus.name == "bpe" or text.isascii():
            np.testing.assert_array_equal(document.ids, tokenizer.encode(text.replace("\n", " ")))
    np.testing.assert_array_equal(plan.corpus.counts, np.bincount(documents.ids, minlength=len(tokenizer)))


def test_the_corpus_is_shown(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("corpus", "show", str(corpus)) == 0
    recipe, _ = RECIPES[corpus.name]
    assert run("corpus", "show", str(corpus), "--masks", "1", "--recipe", recipe, "--data.length", "24") == 0
    assert not capsys.readouterr().err


def test_workers_change_no_byte_of_the_corpus(corpus: Path, vocabulary: Path, texts: Path, tmp_path: Path) -> None:
    osbert.build_corpus(texts, tokenizer=vocabulary, out=tmp_path / "two", workers=2, documents="blank-line")
    for path in sorted(corpus.glob("shard-*/*.npy")):
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(corpus)).read_bytes()


def test_whole_words_are_masked(corpus: Path) -> None:
    recipe, settings = RECIPES[corpus.name]
    given = {**SIZES, **settings, "unit": "words", "steps": 1}
    sample = sample_masks(corpus, recipe, given, least=1)
    mask = sample.plan.tokenizer.mask
    masked = 0
    for example in sample.examples[:200]:
        chosen = np.zeros(len(example), np.bool_)
        index = example.targets["mlm"].index
        assert index is not None and not example.special[index].any()
        chosen[index] = True
        firsts, ends = word_bounds(example.words, example.special)
        assert all(chosen[first:end].all() or not chosen[first:end].any() for first, end in zip(firsts, ends))
        masked += int((example.ids == mask).sum())
    assert masked > 100
    assert list(sample.text(2))


def test_sequences_have_the_form_of_the_tokenizer(corpus: Path) -> None:
    recipe, settings = RECIPES[corpus.name]
    plan = read_plan(recipe, {**SIZES, **settings}, corpus=corpus)
    form, batch = plan.tokenizer.form, next(plan.loader(length=24).steps(Cursor())).batches[0]
    for ids, segments in zip(batch.ids.split(list(batch.lengths)), batch.segments.split(list(batch.lengths))):
        assert tuple(ids[: len(form.before)].tolist()) == form.before
        assert tuple(ids[-len(form.after) :].tolist()) == form.after
        assert set(segments.tolist()) <= {0, form.second_segment}


def test_the_model_is_used_and_opens_in_transformers_with_equal_states(encoder: Path, tmp_path: Path) -> None:
    found = ["Bada kefe lo.", "naïve cafés 😀", "Mi"]
    (tmp_path / "texts.txt").write_text("\n".join(found) + "\n", encoding="utf-8")
    embed(encoder, tmp_path / "texts.txt", out=tmp_path / "vectors.npz", vectors=VectorOptions(pooling="tokens"))
    arrays = np.load(tmp_path / "vectors.npz")
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    model = transformers.AutoModel.from_pretrained(encoder).eval()
    assert model.config.model_type == ("roberta" if encoder.name == "bpe" else "bert")
    batch = tokenizer(found, return_tensors="pt", padding=True)
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    for place, mask in enumerate(batch["attention_mask"]):
        rows = slice(arrays["starts"][place], arrays["starts"][place + 1])
        assert arrays["ids"][rows].tolist() == batch["input_ids"][place][mask.bool()].tolist()
        np.testing.assert_allclose(arrays["vectors"][rows], states[place][mask.bool()].numpy(), rtol=0, atol=2e-5)
    fillings = osbert.load(encoder).fill("Bada [MASK] lo.")
    assert len(fillings) == 1


def test_it_is_fine_tuned_on_pairs_and_predicts(encoder: Path, tmp_path: Path) -> None:
    rows = [(f"bada {word}", "kefe", label) for word, label in (("lo", "yes"), ("mi", "no"))] * 10
    tuned = osbert.finetune(
        "classify", model=encoder, data={"train": rows, "dev": rows[:4]}, out=tmp_path / "run", epochs=1
    )
    (ours,) = osbert.load(tmp_path / "run").predict([("bada lo", "kefe")])
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run").eval()
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path / "run")("bada lo", "kefe", return_tensors="pt")
    with torch.no_grad():
        scores = theirs(**inputs).logits.softmax(-1)[0]
    np.testing.assert_allclose(scores, list(ours.probabilities.values()), rtol=0, atol=2e-5)
    assert tuned.metrics


def test_a_run_goes_on_and_another_begins_from_it(corpus: Path, encoder: Path, tmp_path: Path) -> None:
    recipe, settings = RECIPES[corpus.name]
    options = {**SIZES, **settings, "checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        osbert.pretrain(recipe, corpus=corpus, out=tmp_path / "run", steps=3, watch=_stop_after(1), **options)
    osbert.pretrain(recipe, corpus=corpus, out=tmp_path / "run", steps=3, **options)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (encoder / "model.safetensors").read_bytes()
    osbert.pretrain(origin=encoder, corpus=corpus, out=tmp_path / "more", steps=1)
    texts = ["other words here and there"] * 3
    other = osbert.train_tokenizer(texts, out=tmp_path / "vocabulary", kind=corpus.name, vocabulary=262)
    shutil.copytree(corpus, tmp_path / "corpus")
    (tmp_path / "corpus" / "tokenizer.json").write_text(other.content, encoding="utf-8")  # type: ignore[union-attr]
    with refusal("mismatched-tokenizer"):
        read_plan(recipe, {**SIZES, **settings}, corpus=tmp_path / "corpus")


def _stop_after(step: int) -> Any:
    def watch(event: Any) -> None:
        if getattr(event, "step", 0) == step:
            raise KeyboardInterrupt

    return watch


def test_positions_must_begin_behind_the_padding_id(corpus: Path) -> None:
    recipe, settings = RECIPES[corpus.name]
    pad = read_any_tokenizer(corpus).pad
    read_plan(recipe, {**SIZES, **settings, "first_position": pad + 1}, corpus=corpus)
    with refusal("invalid-setting", "model.first_position", pad + 1):
        read_plan(recipe, {**SIZES, **settings, "first_position": pad + 2}, corpus=corpus)


@pytest.mark.parametrize("recipe", ["roberta-small", pytest.param("bart-mini", marks=pytest.mark.lab)])
def test_positions_of_a_packaged_recipe_begin_behind_any_padding_id(corpus: Path, recipe: str) -> None:
    pad = read_any_tokenizer(corpus).pad
    plan = read_plan(recipe, {"data_length": 24}, corpus=corpus)
    assert plan.settings.model.first_position == pad + 1
    assert any("first_position" in remark for remark in plan.remarks) == (pad != 1)
    assert read_plan(recipe, {"data_length": 24, "first_position": 0}, corpus=corpus).settings.model.first_position == 0


@pytest.fixture(scope="module")
def wordpiece(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus whose padding is piece 0."""
    folder = tmp_path_factory.mktemp("wordpiece")
    osbert.train_tokenizer(texts, out=folder / "vocabulary", vocabulary=120)
    osbert.build_corpus(
        texts, tokenizer=folder / "vocabulary", out=folder / "corpus", workers=1, documents="blank-line"
    )
    return folder / "corpus"


@pytest.mark.parametrize("recipe", ["roberta-small", pytest.param("bart-mini", marks=pytest.mark.lab)])
def test_a_fitted_first_position_is_stored_and_the_run_resumes_bit_for_bit(
    wordpiece: Path, tmp_path: Path, recipe: str
) -> None:
    settings = {**SIZES, "corpus": wordpiece, "steps": 3, "checkpoint_every": 1}
    osbert.pretrain(recipe, out=tmp_path / "run", **settings)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["model"]["first_position"] == 1
    assert read(tmp_path / "run" / "recipe.toml")["model"]["first_position"] == 1
    resume_bit_for_bit(recipe, tmp_path / "run", tmp_path / "stopped", 2, settings)
    # The stored recipe and the number itself make the same run.
    osbert.pretrain(str(tmp_path / "run" / "recipe.toml"), out=tmp_path / "stored", **settings)
    osbert.pretrain(recipe, out=tmp_path / "given", first_position=1, **settings)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "stored", "given")]
    assert weights[0] == weights[1] == weights[2]
    with refusal("invalid-setting", "model.first_position"):
        osbert.pretrain(recipe, out=tmp_path / "other", first_position=2, **settings)


def test_transformers_counts_a_fitted_first_position_alike(wordpiece: Path, tmp_path: Path) -> None:
    osbert.pretrain("roberta-small", corpus=wordpiece, out=tmp_path / "run", steps=3, **SIZES)
    found = ["Bada kefe lo.", "Mi"]
    model = transformers.AutoModel.from_pretrained(tmp_path / "run").eval()
    assert (model.config.model_type, model.config.pad_token_id) == ("roberta", 0)
    batch = transformers.AutoTokenizer.from_pretrained(tmp_path / "run")(found, return_tensors="pt", padding=True)
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    ours = osbert.load(tmp_path / "run").embed(found, pooling="tokens")
    for place, mask in enumerate(batch["attention_mask"].bool()):
        np.testing.assert_allclose(ours[place], states[place][mask].numpy(), rtol=0, atol=2e-5)


def test_pairs_of_a_tokenizer_with_one_segment_need_no_second(corpus: Path) -> None:
    given = {**SIZES, "objectives": ("mlm", "nsp"), "cross_documents": False, "segments": 1}
    if read_any_tokenizer(corpus).form.second_segment:
        with refusal("invalid-setting", "model.segments"):
            read_plan("roberta-small", {**given, "first_position": 1}, corpus=corpus)
    else:
        read_plan("roberta-small", given, corpus=corpus)


def test_next_sentences_need_a_state_that_stands_for_the_sequence(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus, tmp_path / "corpus")
    path = tmp_path / "corpus" / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    sep = read_any_tokenizer(corpus).sep
    end = {"SpecialToken": {"id": "end", "type_id": 0}}
    texts = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [texts[0], end],
        "pair": [texts[0], end, texts[1], end],
        "special_tokens": {"end": {"id": "end", "ids": [sep], "tokens": ["end"]}},
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    given = {"objectives": ("mlm", "nsp")}
    with refusal("invalid-setting", "nsp", 'model.summary = "last"'):
        read_plan("cpu", given, corpus=tmp_path / "corpus")
    for summary in ("last", "mean"):
        with refusal("mismatched-tokenizer") as raised:  # of the changed file, and nothing else
            read_plan("cpu", {**given, "summary": summary}, corpus=tmp_path / "corpus")
        assert raised.value.codes == ("mismatched-tokenizer",)


def test_chinese_words_need_wordpiece(vocabulary: Path, texts: Path, tmp_path: Path) -> None:
    with refusal("unusable-tokenizer"):
        osbert.build_corpus(texts, tokenizer=vocabulary, out=tmp_path / "corpus", words="segmented")


def test_a_tokenizer_replaces_one_of_another_kind(texts: Path, tmp_path: Path) -> None:
    for kind in ("wordpiece", "bpe", "unigram", "words", "wordpiece"):
        made = osbert.train_tokenizer(texts, out=tmp_path / "vocabulary", kind=kind, vocabulary=300)
        assert read_any_tokenizer(tmp_path / "vocabulary") == made
        assert (tmp_path / "vocabulary" / "vocab.txt").exists() == (kind == "wordpiece")
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "vocabulary")
        assert theirs("bada kefe", add_special_tokens=False)["input_ids"] == made.encode("bada kefe").tolist()


def test_alphabet_says_nothing_of_bytes_and_words(texts: Path, tmp_path: Path) -> None:
    with refusal("options-exclude-each-other", "--alphabet"):
        osbert.train_tokenizer(texts, out=tmp_path / "vocabulary", kind="bpe", alphabet=50)
    with refusal("options-exclude-each-other", "--alphabet"):
        osbert.train_tokenizer(texts, out=tmp_path / "vocabulary", kind="words", alphabet=50)
    with refusal("invalid-value", 261):
        osbert.train_tokenizer(texts, out=tmp_path / "vocabulary", kind="bpe", vocabulary=261)
    assert not (tmp_path / "vocabulary").exists()
