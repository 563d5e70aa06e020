"""Windows and decoding equal google-research/bert's run_squad.py, restated here; answers are slices of paragraphs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.data.long_texts import spread
from osbert.data.pack import Packer
from osbert.tasks.kinds.span.windows import Cutter, Decoder, QuestionWindow, assign_windows, encoding
from osbert.text.tokenizer import SPECIALS, Tokenizer

WORDS = ["good", "bad", "film", "a", "play", "##s", "long", ".", "ß", "##ed"]
PACKER = Packer(tokenizer=Tokenizer([*SPECIALS, *WORDS]), length=16)


def their_spans(pieces: int, room: int, stride: int) -> list[tuple[int, int]]:
    """run_squad.py: doc_spans."""
    spans, start = [], 0
    while start < pieces:
        length = min(pieces - start, room)
        spans.append((start, start + length))
        if start + length == pieces:
            break
        start += min(length, stride)
    return spans


def their_owner(spans: list[tuple[int, int]], position: int) -> int:
    """run_squad.py: _check_is_max_context."""
    best_score, best_index = None, -1
    for index, (start, stop) in enumerate(spans):
        if not start <= position < stop:
            continue
        score = min(position - start, stop - 1 - position) + 0.01 * (stop - start)
        if best_score is None or score > best_score:
            best_score, best_index = score, index
    return best_index


@given(pieces=st.integers(1, 60), room=st.integers(1, 20), stride=st.integers(1, 30))
def test_windows_are_theirs(pieces: int, room: int, stride: int) -> None:
    bounds = spread(pieces, room, stride)
    assert bounds == their_spans(pieces, room, stride)
    assert assign_windows(pieces, bounds).tolist() == [their_owner(bounds, piece) for piece in range(pieces)]


text = st.lists(
    st.sampled_from(["good", "bad", "films", "plays", "a", "long.", "ß", "\u200b", "xyz", "  "]), max_size=40
)


def windows(question: str, paragraph: str, **settings: int) -> list[QuestionWindow]:
    cutter = Cutter(packer=PACKER, question=settings.get("question", 4), stride=settings.get("stride", 5))
    return [window for _, window in cutter.windows(question, paragraph, record=7)]


@given(question=text.map(" ".join), paragraph=text.map(" ".join))
def test_each_piece_is_owned_once_and_stands_where_it_says(question: str, paragraph: str) -> None:
    made = windows(question, paragraph)
    pieces = encoding(PACKER.tokenizer, paragraph)
    starts = [int(start) for window in made for start in window.starts[window.owned]]
    assert starts == pieces.starts.tolist()
    for window in made:
        assert len(window) <= PACKER.length and window.record == 7
        inside = slice(window.first, window.first + len(window.starts))
        assert (window.segments[inside] == 1).all() and not window.special[inside].any()
        assert window.special[window.first - 1] and window.segments[window.first - 1] == 0
        for piece, start, end in zip(PACKER.tokenizer.tokens(window.ids[inside]), window.starts, window.ends):
            if piece not in SPECIALS:
                assert piece.removeprefix("##") in paragraph[start:end].lower()
    cut = max(0, len(PACKER.tokenizer.encode(question)) - 4)
    assert [window.truncated for window in made] == [cut] + [0] * (len(made) - 1)


def their_answer(
    paragraph: str, made: list[QuestionWindow], outputs: list[np.ndarray], *, longest: int, null: bool, threshold: float
) -> tuple[str, dict[str, float]]:
    """run_squad.py: write_predictions, with every start and end among the n best."""
    prelim, score_null = [], math.inf
    for window, scores in zip(made, outputs):
        score_null = min(score_null, float(scores[0, 0]) + float(scores[0, 1]))
        for start in range(len(window.starts)):
            for end in range(start, len(window.starts)):
                if window.owned[start] and end - start + 1 <= longest:
                    score = float(scores[window.first + start, 0]) + float(scores[window.first + end, 1])
                    prelim.append((score, paragraph[window.starts[start] : window.ends[end]]))
    prelim.sort(key=lambda pair: -pair[0])
    nbest: dict[str, float] = {}
    for score, said in prelim:
        nbest.setdefault(said, score)
    best_text = next(iter(nbest), "")
    if null or not nbest:
        nbest[""] = score_null
    total = sum(math.exp(score) for score in nbest.values())
    shares = {said: math.exp(score) / total for said, score in nbest.items()}
    if null and best_text and score_null - nbest[best_text] >= -threshold:
        return "", shares
    return best_text, shares


@settings(max_examples=60)
@given(paragraph=text.map(" ".join), seed=st.integers(0, 99), null=st.booleans(), longest=st.integers(1, 9))
def test_answers_are_theirs(paragraph: str, seed: int, null: bool, longest: int) -> None:
    made = windows("good", paragraph)
    rng = np.random.default_rng(seed)
    outputs = [rng.normal(size=(len(window), 2)).astype(np.float32) for window in made]
    decoder = Decoder(most=10_000, longest=longest, unanswerable=null, threshold=0.25)
    answer = decoder.answer(paragraph, made, outputs)
    value, shares = their_answer(paragraph, made, outputs, longest=longest, null=null, threshold=0.25)
    assert answer.value == value
    assert {one.text: one.probability for one in answer.candidates} == pytest.approx(shares)
    assert sum(one.probability for one in answer.candidates) == pytest.approx(1)
    for one in answer.candidates:
        assert paragraph[one.start : one.end] == one.text if one.start >= 0 else one.text == ""
    few = Decoder(most=3, longest=longest, unanswerable=null, threshold=0.25).answer(paragraph, made, outputs)
    assert len(few.candidates) <= 3 + null + (not paragraph.strip())
    if null and answer.margin is not None and few.margin is not None:
        assert few.margin <= answer.margin + 1e-9


def test_a_hundred_thousand_words() -> None:
    paragraph = "a good film . " * 25_000
    made = windows("good film", paragraph, stride=9)
    assert sum(int(window.owned.sum()) for window in made) == 100_000
    outputs = [np.zeros((len(window), 2), np.float32) for window in made]
    outputs[5000][made[5000].first + 4] = 9
    answer = Decoder(most=20, longest=30, unanswerable=False, threshold=0.0).answer(paragraph, made, outputs)
    assert answer.value and paragraph[answer.chosen.start : answer.chosen.end] == answer.value
    assert answer.chosen.start == made[5000].starts[4]
