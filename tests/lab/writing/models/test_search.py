"""Greedy choice, sampling and beams, against an exhaustive search and against transformers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.interop.folder import open_folder
from osbert.models.architecture import Architecture
from osbert.models.families.transformer import Transformer
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.sizes import Precision
from osbert_lab.writing import steps
from osbert_lab.writing.decoders import LeftToRightDecoder
from osbert_lab.writing.search import Limits, WrittenPiece, WrittenRow, _Search, likeliest, write
from osbert_lab.writing.settings import MOST_PENALTY, MOST_PIECES, GenerationOptions, GenerationRules
from refusals import refusal

KINDS: dict[str, dict[str, Any]] = {
    "gpt": {"piece_transform": False, "pooling": "none", "segments": 0},
    "pre-norm": {"normalization": "pre", "embedding_norm": False},
    "rotary, local": {"positions": "rotary", "window": 3, "global_every": 2, "local_base": 50.0},
    "shared keys": {"positions": "rotary", "key_heads": 2, "root_norm": True, "biases": False},
    "scored distances": {"positions": "rotary", "distance_scores": 8},
    "distances": {"positions": "distances", "farthest": 6},
    "one block": {"distinct": 1, "embedding": 8},
}


FREE = Limits()


def model(vocabulary: int = 23, **settings: Any) -> LeftToRightDecoder:
    torch.manual_seed(0)
    sizes = Architecture(layers=3, heads=4, width=16, length=40, vocabulary=vocabulary, direction="left_to_right")
    backbone = Transformer(replace(sizes, deviation=0.5, **settings))
    backbone.initialise()
    return LeftToRightDecoder(backbone.eval(), MaskedLanguageHead(backbone, target="left_to_right").eval())


def prompts(*lengths: int, vocabulary: int = 23) -> list[Example]:
    rng = np.random.default_rng(3)
    return [
        Example(
            ids=rng.integers(0, vocabulary, size=length).astype(np.int32),
            segments=np.zeros(length, np.int8),
            words=np.ones(length, np.bool_),
            special=np.zeros(length, np.bool_),
        )
        for length in lengths
    ]


def scores(decoder: LeftToRightDecoder, prompt: Example, pieces: Sequence[int]) -> Tensor:
    """Return the scores of the piece after a prompt and some pieces, by one pass over all of it."""
    ids = np.append(prompt.ids, np.array(pieces, np.int32))
    order = None if prompt.order is None else np.append(prompt.order, 1 + np.arange(len(pieces)))
    whole = replace(prompts(len(ids))[0], ids=ids, order=order)
    states = decoder.backbone(collate([whole]))
    return decoder.head.scores(states.hidden[-1:])[0]


def texts(decoder: LeftToRightDecoder, given: list[Example], limits: Limits = FREE, **options: Any) -> list[WrittenRow]:
    with torch.inference_mode():
        events = list(write(decoder, given, GenerationOptions(**options), limits))
    rows = {event.row: event for event in events if isinstance(event, WrittenRow)}
    pieces: dict[int, list[int]] = {row: [] for row in rows}
    for event in events:
        if isinstance(event, WrittenPiece):
            pieces[event.row].append(event.piece)
    if options.get("beams", 1) == 1:
        assert all(tuple(pieces[row]) == found.pieces for row, found in rows.items())
    return [rows[row] for row in sorted(rows)]


@pytest.mark.parametrize("worthwhile", [4, 100], ids=["laid out", "as they are"])
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_each_step_is_what_one_pass_over_the_whole_text_gives(
    kind: str, worthwhile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "WORTHWHILE", worthwhile)
    decoder = model(**KINDS[kind])
    given = prompts(5, 9, 2)
    found = decoder.begin(given, most=9)
    written = [[int(scores)] for scores in found.argmax(dim=-1)]
    for row, prompt in enumerate(given):
        torch.testing.assert_close(found[row], scores(decoder, prompt, []), rtol=0, atol=1e-5)
    rows = [0, 1, 2]
    for moved in (None, [2, 1, 0], None, [0, 1], [1, 0, 1], None, None):
        if moved is not None:
            rows, written = [rows[one] for one in moved], [list(written[one]) for one in moved]
            decoder.choose(torch.tensor(moved))
        found = decoder.step(torch.tensor([pieces[-1] for pieces in written]))
        for row, pieces, column in zip(rows, written, found, strict=True):
            torch.testing.assert_close(column, scores(decoder, given[row], pieces), rtol=0, atol=1e-5)
            pieces.append(int(column.argmax()))


@pytest.mark.parametrize("kind", ["gpt", "shared keys", "scored distances"])
@torch.inference_mode()
def test_steps_in_bf16_are_those_in_fp32_but_for_rounding(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "WORTHWHILE", 2)
    plain = model(**KINDS[kind])
    rounded = plain.fresh("bf16")
    given = prompts(5, 9, 2)
    found = [(decoder.begin(given, most=9), decoder) for decoder in (plain, rounded)]
    for _ in range(4):
        (wanted, _), (near, _) = found
        assert near.dtype == torch.bfloat16
        assert (wanted - near).abs().mean() < 0.03 * wanted.abs().mean() + 0.01
        found = [(decoder.step(wanted.argmax(dim=-1)), decoder) for _, decoder in found]
    assert {kind.precision for kind in plain.ready} == {torch.float32, torch.bfloat16}


def give_other_memory(weight: Tensor) -> None:
    weight.data = weight.data.flip(0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("change", [torch.no_grad()(Tensor.neg_), lambda weight: weight.data.neg_(), give_other_memory])
def test_a_call_has_the_weights_of_its_time(
    precision: Precision, change: Callable[[Tensor], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "spares_time", lambda: True)  # as on AMD's processors: float32 is laid out, too
    shared, given = model(), prompts(6, 6)

    def step(decoder: LeftToRightDecoder) -> Tensor:
        with torch.inference_mode():
            decoder.begin(given, most=steps.WORTHWHILE)
            return decoder.step(torch.tensor([4, 5]))

    earlier, prepared = step(shared.fresh(precision)), {**shared.ready}
    assert shared.ready.keys() == prepared.keys() and torch.equal(step(shared.fresh(precision)), earlier)
    assert all(shared.ready[kind] is weights for kind, weights in prepared.items())
    block = shared.backbone.depth[1]
    for weight in (block.up.weight, block.attention_norm.weight, shared.head.bias):
        change(weight)
        plain = LeftToRightDecoder(shared.backbone, shared.head).fresh(precision)
        assert torch.equal(step(shared.fresh(precision)), step(plain))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@torch.inference_mode()
def test_the_memory_that_is_announced_is_taken(precision: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "spares_time", lambda: True)  # as on AMD's processors: float32 is laid out, too
    decoder, given = model().fresh(precision), prompts(6, 6)
    memory, copies = decoder.memory(given[0], most=9), decoder.copies(rows=2, most=9)
    decoder.begin(given, most=9)
    decoder.step(torch.tensor([4, 5]))
    assert 2 * memory == sum(one.nbytes for one in [*decoder.cache.keys, *decoder.cache.values])
    blocks = [(*block.attention.products, block.up, block.down) for block in decoder.weights.blocks]
    made = [product.weight for products in [*blocks, (decoder.weights.pieces,)] for product in products]
    assert copies == sum(one.numel() * one.element_size() for one in made) > 0
    assert decoder.copies(rows=2, most=9) == 0  # they are made now
    lean = model().fresh(precision, spare=copies - 1)
    assert lean.copies(rows=2, most=9) == (0 if precision == "fp32" else copies)
    torch.testing.assert_close(lean.begin(given, most=9), decoder.begin(given, most=9), rtol=0, atol=1e-5)


@torch.inference_mode()
def test_a_prompt_of_one_order_sees_all_of_itself() -> None:
    decoder = model()
    [prompt] = prompts(6)
    prompt = replace(prompt, order=np.zeros(6, np.int64))
    decoder.begin([prompt], most=3)
    found = decoder.step(torch.tensor([4]))[0]
    torch.testing.assert_close(found, scores(decoder, prompt, [4]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"beams": 3}, {"sample": True, "seed": 5, "top_k": 9, "top_p": 0.9}])
def test_a_text_is_the_same_alone_and_among_others(options: dict[str, Any]) -> None:
    decoder = model()
    given = prompts(4, 9, 1, 6)
    together = texts(decoder, given, Limits(end=3), most=12, **options)
    for row, prompt in enumerate(given):
        with torch.inference_mode():
            events = list(write(decoder, [prompt], GenerationOptions(most=12, **options), Limits(end=3), numbers=[row]))
        assert isinstance(events[-1], WrittenRow)
        assert events[-1].pieces == together[row].pieces
        assert events[-1].log_probability == pytest.approx(together[row].log_probability, abs=1e-4)


@pytest.mark.parametrize("kind", ["gpt", "scored distances"])
@torch.inference_mode()
def test_a_text_in_bf16_is_the_same_alone_and_among_others_but_for_ties(kind: str) -> None:
    decoder, given = model(**KINDS[kind]).fresh("bf16"), prompts(4, 9, 1, 6)
    together = texts(decoder, given, most=12)
    for row, prompt in enumerate(given):
        [alone] = texts(decoder, [prompt], most=12)
        pairs = enumerate(zip(alone.pieces, together[row].pieces, strict=True))
        differing = next((place for place, (one, other) in pairs if one != other), None)
        if differing is not None:
            # A product of several rows may round otherwise: only pieces as good as equal may change places.
            whole = scores(decoder, prompt, alone.pieces[:differing]).float()
            one, other = (found.pieces[differing] for found in (alone, together[row]))
            assert abs(whole[one] - whole[other]) < 2**-6 * whole.abs().max()
        else:
            assert alone.pieces == together[row].pieces
            assert alone.log_probability == pytest.approx(together[row].log_probability, abs=0.2)
    assert len({found.pieces for found in together}) > 1


@pytest.mark.parametrize("penalty", [0.0, 1.5, -0.5])
def test_as_many_beams_as_texts_find_the_best_of_all_texts(penalty: float) -> None:
    decoder = model(vocabulary=5)
    [prompt] = prompts(3, vocabulary=5)
    end, most = 4, 4
    best: tuple[float, tuple[int, ...]] = (-float("inf"), ())

    @functools.cache
    def shares(pieces: tuple[int, ...]) -> list[float]:
        with torch.inference_mode():
            return scores(decoder, prompt, pieces).log_softmax(-1).tolist()

    for length in range(most + 1):
        for pieces in itertools.product(range(4), repeat=length):
            whole = pieces if length == most else (*pieces, end)
            total = sum(shares(whole[:place])[one] for place, one in enumerate(whole))
            best = max(best, (total / ((5 + len(whole)) / 6) ** penalty, pieces))
    [found] = texts(decoder, [prompt], Limits(end=end), beams=64, most=most, length_penalty=penalty)
    assert found.pieces == best[1]


def test_one_beam_is_greedy_and_each_piece_is_the_likeliest() -> None:
    decoder = model()
    for found, prompt in zip(texts(decoder, prompts(4, 7), most=6), prompts(4, 7), strict=True):
        assert found.ended == "most" and len(found.pieces) == 6
        for place, piece in enumerate(found.pieces):
            assert int(scores(decoder, prompt, found.pieces[:place]).argmax()) == piece


def test_the_least_the_forbidden_and_what_repeats() -> None:
    decoder = model()
    given = prompts(4, 7, 2)
    never = torch.zeros(23, dtype=torch.bool)
    never[5:] = True
    [*found] = texts(decoder, given, Limits(never=never), most=20)
    assert all(max(one.pieces) < 5 for one in found)
    for options in ({}, {"beams": 4}):
        for one in texts(decoder, given, most=20, no_repeat=2, **options):
            pairs = list(itertools.pairwise(one.pieces))
            assert len(pairs) == len(set(pairs))
        likeliest = int(scores(decoder, given[0], []).argmax())
        [first, *_] = texts(decoder, given, Limits(end=likeliest), most=8, least=3, **options)
        assert len(first.pieces) >= 3 and likeliest not in first.pieces[:3]
    # Five pieces in all, each of them once: then nothing is left, which ends the text.
    for options in ({}, {"beams": 4}, {"sample": True}):
        assert {
            len(one.pieces) for one in texts(decoder, given, Limits(never=never), most=20, no_repeat=1, **options)
        } == {5}


def test_draws_have_the_models_probabilities() -> None:
    decoder = model(vocabulary=6)
    [prompt] = prompts(3, vocabulary=6)
    found = texts(decoder, [prompt] * 4000, most=1, sample=True, temperature=2.0)
    counts = np.bincount([one.pieces[0] for one in found], minlength=6)
    expected = (scores(decoder, prompt, []).detach() / 2).softmax(-1).numpy() * 4000
    assert ((counts - expected) ** 2 / expected).sum() < 20.5  # chi-square, 5 degrees of freedom, p = 0.001
    few = {one.pieces[0] for one in texts(decoder, [prompt] * 200, most=1, sample=True, top_k=2)}
    assert few <= set(np.argsort(-expected)[:2].tolist())
    surest = {one.pieces[0] for one in texts(decoder, [prompt] * 200, most=1, sample=True, top_p=1e-6)}
    assert surest == {int(expected.argmax())}
    [coldest] = texts(decoder, [prompt], most=1, sample=True, temperature=1e-320)
    assert [*coldest.pieces] == [int(expected.argmax())]


def test_every_penalty_in_range_gives_a_number() -> None:
    for penalty in (MOST_PENALTY, -MOST_PENALTY):
        assert np.isfinite(GenerationOptions(length_penalty=penalty).score(-1e6, MOST_PIECES))
        rules = GenerationRules(scoring="pieces", counted=1)
        assert np.isfinite(GenerationOptions(length_penalty=penalty / 2, rules=rules).score(-1e6, MOST_PIECES))


@pytest.mark.parametrize("beams", [1, 3])
def test_scores_that_are_not_numbers_are_reported(beams: int) -> None:
    decoder = model(vocabulary=6)
    with torch.no_grad():
        decoder.head.bias.fill_(float("nan"))
    [found] = texts(decoder, prompts(3, vocabulary=6), most=3, beams=beams)
    assert np.isnan(found.log_probability)


@pytest.mark.parametrize("vocabulary", [3, 64, 500])
def test_the_likeliest_pieces_are_those_of_a_sort(vocabulary: int) -> None:
    scores = torch.randn(5, vocabulary, generator=torch.Generator().manual_seed(0))
    scores[0, : vocabulary - 2] = float("-inf")  # fewer allowed pieces than are searched for
    values, indices = likeliest(scores, 3)
    assert torch.equal(values, scores.sort(dim=-1, descending=True).values[:, :3])
    assert torch.equal(scores.gather(1, indices), values) and all(len(set(row)) == 3 for row in indices.tolist())


@pytest.mark.parametrize("beams", [1, 3])
def test_transformers_writes_the_same(beams: int, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, n_positions=40, vocab_size=9, bos_token_id=3, eos_token_id=3
    )
    torch.manual_seed(1)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    for name, weight in theirs.named_parameters():
        torch.nn.init.normal_(weight, mean=float("ln_" in name and name.endswith("weight")), std=0.3)
    theirs.save_pretrained(tmp_path)
    folder = open_folder(tmp_path)
    head = folder.heads["mlm"]
    assert isinstance(folder.backbone, Transformer) and isinstance(head, MaskedLanguageHead)
    decoder = LeftToRightDecoder(folder.backbone.eval(), head.eval())
    given = prompts(5, 5, 5, 5, vocabulary=9)
    ids = torch.from_numpy(np.stack([prompt.ids for prompt in given])).long()
    found = texts(decoder, given, Limits(end=3), most=12, beams=beams)
    assert len({len(one.pieces) for one in found}) > 1  # some end before others
    for one, row in zip(found, ids, strict=True):
        written = theirs.generate(
            row[None],
            attention_mask=torch.ones_like(row[None]),
            max_new_tokens=12,
            num_beams=beams,
            do_sample=False,
            length_penalty=0.0,
            pad_token_id=0,
        )[0, 5:].tolist()
        assert written == [*one.pieces, *([3] if one.ended == "end" else [])]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"beams": 0}, "invalid-value"),
        ({"top_p": 0.0}, "invalid-value"),
        ({"temperature": float("nan"), "sample": True}, "invalid-value"),
        ({"least": 9, "most": 3}, "invalid-setting"),
        ({"sample": True, "beams": 2}, "invalid-setting"),
        ({"top_k": 3}, "invalid-setting"),
        ({"length_penalty": 1.0}, "invalid-setting"),
        ({"length_penalty": 1e4}, "invalid-value"),
    ],
)
def test_settings_that_cannot_be(options: dict[str, Any], code: str) -> None:
    with refusal(code, *options):
        GenerationOptions(**options).require_possible()


@pytest.mark.parametrize(("stops", "won"), [("bound", False), ("now", True), ("first", True)])
def test_a_search_ends_by_its_rule(stops: Any, won: bool) -> None:
    """An open text of 12 pieces at -30 could pass -0.5 at 512 pieces (-0.06), and does not at its own length (-2.5)."""
    rules = GenerationRules(scoring="pieces", stops=stops)
    options = GenerationOptions(beams=2, most=512, length_penalty=1.0, rules=rules)
    search = _Search(row=0, open=[(-30.0, [1] * 12)])
    assert not search.is_won(options)
    search.end(-4.0, [1] * 9, "end", options)
    search.end(-5.0, [1] * 9, "end", options)
    assert search.is_won(options) == won
