"""The LSTM translator beside torch's stacked LSTM, a decoder written here step by step, and its own cached steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.models.contract import Learner, StepSize
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.objectives.mlm import MaskedLanguage
from osbert_lab.recurrent.translator import Translator
from osbert_lab.recurrent.translator_architecture import TranslatorArchitecture
from osbert_lab.writing.decoder_inputs import decoder_examples

SIZES = TranslatorArchitecture(width=16, vocabulary=29, length=32, deviation=0.5)
SOURCES, TEXTS = ([5, 6, 7, 8], [9, 10], [11, 12, 13]), ([20, 21, 22], [23, 24, 25, 26], [27, 28])
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def example(ids: list[int], record: int) -> Example:
    flags = np.zeros(len(ids), np.bool_)
    return Example(ids=np.array(ids), segments=flags.astype(np.int8), words=flags, special=flags, record=record)


def examples() -> Examples:
    sources, texts = (Examples.of([example(ids, row) for row, ids in enumerate(part)]) for part in (SOURCES, TEXTS))
    return decoder_examples(sources, texts, 3, name="translation")


@pytest.fixture(scope="module", params=[False, True], ids=["one table", "a table each"])
def model(request: pytest.FixtureRequest) -> Translator:
    torch.manual_seed(0)
    made: Translator = SIZES.replace(own_tables=request.param).build().eval()
    return made


@pytest.fixture(scope="module")
def head(model: Translator) -> MaskedLanguageHead:
    torch.manual_seed(1)
    made = MaskedLanguageHead(model, target="translation").eval()
    nn.init.normal_(made.bias, 0, 0.1)
    return made


@pytest.fixture(scope="module")
def batch() -> Batch:
    return collate([*examples()])


def stacked(model: Translator) -> nn.LSTM:
    """Return torch's LSTM of two layers with the encoder's weights, by the names of the published state dict."""
    lstm = nn.LSTM(8, 8, num_layers=2, bidirectional=True)
    for layer, block in enumerate(model.blocks):
        for name, weight in block.lstm.named_parameters():
            lstm.get_parameter(name.replace("l0", f"l{layer}")).data.copy_(weight)
    return lstm


def plain_source(model: Translator, ids: list[int]) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Return the states (S, D) of one source, and each layer's final state and cell (D,)."""
    states, (ends, cells) = stacked(model)(model.words.weight[ids])
    return states, [(ends[2 * n : 2 * n + 2].flatten(), cells[2 * n : 2 * n + 2].flatten()) for n in range(2)]


def plain_cell(cell: nn.LSTMCell, value: Tensor, state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    gates = cell.weight_ih @ value + cell.bias_ih + cell.weight_hh @ state + cell.bias_hh
    into, forget, new, out = gates.view(4, -1)
    memory = torch.sigmoid(forget) * memory + torch.sigmoid(into) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(memory), memory


def plain_outputs(model: Translator, source: list[int], text: list[int]) -> Tensor:
    """Return the decoder's outputs (T, D / 2) for one source and decoder input, one step after the other."""
    states, layers = plain_source(model, source)
    writer, last, found = model.writer, torch.zeros(8), []
    for piece in text:
        value = torch.cat([model.written_words.weight[piece], last])
        for number, cell in enumerate(writer.cells):
            layers[number] = plain_cell(cell, value, *layers[number])
            value = layers[number][0]
        asked = writer.asking.weight @ value + writer.asking.bias
        weights = torch.softmax(torch.stack([state @ asked for state in states]), 0)
        context = sum(weight * state for weight, state in zip(weights, states))
        last = torch.tanh(writer.joining.weight @ torch.cat([context, value]) + writer.joining.bias)
        found.append(last)
    return torch.stack(found)


def test_the_encoder_is_a_stacked_lstm_and_its_layers_are_states(model: Translator, batch: Batch) -> None:
    assert batch.source is not None
    with torch.no_grad():
        lowest, _, top = model.layers(batch.source)
        states = model(batch.source)
        plain = [plain_source(model, ids.tolist()) for ids in batch.source.ids.split(list(batch.source.lengths))]
    torch.testing.assert_close(top, torch.cat([states for states, _ in plain]), **CLOSE)
    assert torch.equal(states.hidden, top) and torch.equal(lowest, model.words(batch.source.ids).repeat(1, 2))
    # The summary is what both directions have at their ends: the state from which the decoder starts.
    torch.testing.assert_close(states.summary, torch.stack([ends[1][0] for _, ends in plain]), **CLOSE)


def test_the_decoder_is_a_plain_one_with_input_feeding(model: Translator, batch: Batch) -> None:
    assert batch.source is not None
    with torch.no_grad():
        found = model(batch).hidden.split(list(batch.lengths))
        sources, texts = (one.ids.split(list(one.lengths)) for one in (batch.source, batch))
        for outputs, source, text in zip(found, sources, texts, strict=True):
            torch.testing.assert_close(outputs, plain_outputs(model, source.tolist(), text.tolist()), **CLOSE)


def test_an_output_sees_its_source_and_what_is_before_it(model: Translator, batch: Batch) -> None:
    assert batch.source is not None
    place = 2  # within the first text, of 4 or more pieces
    ids, source = batch.ids.clone(), batch.source.ids.clone()
    ids[place], source[0] = 1, 1
    with torch.no_grad():
        before, later = model(batch).hidden, model(batch.replace_columns(ids=ids)).hidden
        other = model(replace(batch, source=batch.source.replace_columns(ids=source))).hidden
    length = batch.lengths[0]
    moved = (before != later).any(1).nonzero().flatten().tolist()
    assert moved == list(range(place, length))
    assert (before != other).any(1).nonzero().flatten().tolist() == list(range(length))


def prompts() -> list[Example]:
    return [replace(example([3], row), source=one.source) for row, one in enumerate(examples())]


def test_cached_steps_score_as_one_pass_does(model: Translator, head: MaskedLanguageHead) -> None:
    several, decoder = list(examples()), model.decoder(head)
    assert decoder is not None
    with torch.no_grad():
        found = decoder.begin(prompts(), most=8)
        for step in range(4):
            for row, one in enumerate(several):
                if step < len(one):
                    alone = collate([replace(one, record=0)])
                    torch.testing.assert_close(found[row], head.every(model(alone), alone)[step], **CLOSE)
            decoder.choose(torch.tensor([2, 0, 1]))
            decoder.choose(torch.tensor([1, 2, 0]))  # back in their order
            found = decoder.step(torch.tensor([one.ids[min(step + 1, len(one) - 1)] for one in several]))


def test_greedy_texts_are_those_of_whole_passes(model: Translator, head: MaskedLanguageHead) -> None:
    decoder, written = model.decoder(head), [[3] for _ in SOURCES]
    assert decoder is not None
    with torch.no_grad():
        scores = decoder.begin(prompts(), most=6)
        for _ in range(6):
            for text, piece in zip(written, scores.argmax(1).tolist(), strict=True):
                text.append(piece)
            scores = decoder.step(scores.argmax(1))
        for text, prompt in zip(written, prompts(), strict=True):
            for length in range(1, 7):
                one = collate([replace(example(text[:length], 0), source=prompt.source)])
                assert int(head.every(model(one), one)[-1].argmax()) == text[length]
    assert len({tuple(text) for text in written}) > 1


def test_the_arithmetic_of_a_step_counts_both_sides(model: Translator, head: MaskedLanguageHead, batch: Batch) -> None:
    learner = Learner(model, {"translation": head})
    size = StepSize.of(learner, [batch])
    assert size.source is not None
    # 4 gates of both directions and layers; the decoder's cells, W1 and W2; scores and means of the attention.
    encoder = 2 * 4 * 8 * (8 + 8) + 2 * 4 * 8 * (16 + 8)
    writer = 2 * 4 * 16 * (16 + 16) + 16 * 16 + 32 * 8
    crossing = sum(len(source) * len(text) for source, text in zip(SOURCES, TEXTS))
    assert model.flops(size) == 2 * (9 * encoder + 9 * writer) + 4 * 16 * crossing
    assert model.flops(size.source) == 2 * 9 * encoder


def test_settings_and_objectives_that_cannot_be_are_refused() -> None:
    bad = SIZES.replace(width=13, layers=0, dropout=1.0)
    assert len(bad.problems()) == 3 and not SIZES.problems()
    (objection,) = MaskedLanguage().objections(SIZES)
    assert "translator" in objection and "translation" in objection
