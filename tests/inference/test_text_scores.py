"""How likely texts are: as transformers' own outputs say, as single masks are filled, and as a text grows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from osbert.analysis.scoring import hidden_pieces
from osbert.inference.engine import Engine, load
from osbert.inference.pieces import MASK
from osbert.interop.tokenizers import write_tokenizer
from osbert.text.tokenizer import SPECIALS, Tokenizer
from refusals import refusal
from tiny_runs import TASKS, WORDS, write_run

TEXTS = ["the good films .", "a bad play", "actorss", "the poor actors , a fine film . " * 2]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[transformers.BertForMaskedLM, Engine]:
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = Tokenizer([*SPECIALS, *WORDS])
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=24, initializer_range=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(config).eval()
    model.save_pretrained(folder)
    write_tokenizer(tokenizer, folder, length=24)
    return model, load(folder, device="cpu")


@pytest.mark.parametrize("masking", ["piece", "word"])
def test_scores_are_those_of_transformers_with_masked_copies(
    theirs: tuple[transformers.BertForMaskedLM, Engine], masking: str
) -> None:
    model, engine = theirs
    for score in engine.score(TEXTS, masking=masking):
        run = engine.packer.run(score.text)
        example = engine.packer.single(*run)
        for place, piece in enumerate(score.pieces):
            ids = torch.from_numpy(example.ids.astype(np.int64))
            if masking == "piece":
                ids[place + 1] = engine.tokenizer.mask
            else:
                rest = place + 1
                while rest == place + 1 or (rest <= len(run.ids) and not run.words[rest - 1]):
                    ids[rest] = engine.tokenizer.mask
                    rest += 1
            with torch.inference_mode():
                logits = model(input_ids=ids.unsqueeze(0)).logits[0, place + 1]
            expected = logits.log_softmax(-1)[int(run.ids[place])].item()
            assert piece.log_probability == pytest.approx(expected, abs=1e-4)


def test_a_score_is_the_sum_of_single_fills_whatever_is_scored_beside_it(
    theirs: tuple[transformers.BertForMaskedLM, Engine],
) -> None:
    engine = theirs[1]
    together = engine.score(TEXTS)
    words = ["the", "good", "film", "."]
    fills = 0.0
    for place, word in enumerate(words):
        masked = " ".join([*words[:place], MASK, *words[place + 1 :]])
        fills += math.log({one.piece: one.probability for one in engine.fill(masked, top=1000)[0]}[word])
    [alone] = engine.score(["the good film ."])
    assert alone.log_likelihood == pytest.approx(fills, abs=1e-4)
    assert alone.perplexity == pytest.approx(math.exp(-fills / 4), rel=1e-4)
    for text, score in zip(TEXTS, together, strict=True):
        [other] = engine.score([text])
        assert other.log_likelihood == pytest.approx(score.log_likelihood, abs=1e-4)
        assert "".join(text[one.start : one.end] for one in score.pieces) == text.replace(" ", "")
    assert (together[2].tokens, together[2].words, together[3].unknown) == (3, 1, 2)
    assert together[2].word_perplexity == pytest.approx(together[2].perplexity ** 3)
    assert [one.text for one in engine.score(iter(TEXTS * 2))] == TEXTS * 2


def test_a_left_to_right_model_gives_each_piece_what_the_text_before_it_says(tmp_path: Path) -> None:
    engine = load(write_run(tmp_path / "gpt", None, masks=True, direction="left_to_right"), device="cpu")
    assert engine.masks is None and engine.pieces is not None
    short, long = engine.score(["the good", "the good film ."])
    assert [one.log_probability for one in short.pieces] == pytest.approx(
        [one.log_probability for one in long.pieces[:2]], abs=1e-5
    )
    hidden = torch.from_numpy(engine.states("the good film ."))
    logs = engine.pieces.scores(hidden).log_softmax(-1)
    ids = engine.packer.run("the good film .").ids.tolist()
    expected = [logs[place, piece].item() for place, piece in enumerate(ids)]
    assert [one.log_probability for one in long.pieces] == pytest.approx(expected, abs=1e-5)


def test_what_cannot_be_scored_is_refused(tmp_path: Path) -> None:
    engine = load(write_run(tmp_path / "encoder", None, masks=True), device="cpu")
    with refusal("empty-text", "texts[1]"):
        engine.score(["a film", " "])
    with refusal("text-too-long", "texts[0]", 24, 22):
        engine.score(["a film " * 12])
    with refusal("wrong-number-of-texts", "texts[0]"):
        engine.score([("a film", "a play")])
    with refusal("invalid-value", "masking"):
        engine.score(["a film"], masking="letter")
    for name in ("classifier", "bare"):
        other = load(write_run(tmp_path / name, TASKS.get(name)), device="cpu")
        with refusal("unsupported-model", name):
            other.score(["a film"])


def test_the_rest_of_a_word_ends_where_the_next_begins() -> None:
    words = np.array([True, False, True])
    assert [hidden_pieces(words, place, "word") for place in range(3)] == [slice(0, 2), slice(1, 2), slice(2, 3)]
