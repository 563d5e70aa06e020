"""A question and a long paragraph -> overlapping windows; their scores -> the most probable spans of all windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example
from osbert.data.long_texts import spread
from osbert.data.pack import Packer, PieceRun
from osbert.tasks.edges import ExplainedScore, require_label
from osbert.tasks.kinds.span.questions import AnswerCandidate, AnswerPrediction
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.tokenizer import Encoding

PARAGRAPHS = 1 << 14
"""Number of paragraphs whose pieces are cached; they recur with each question and in each epoch."""
KEPT = 1 << 14
"""Characters of the longest paragraph that is cached."""


@dataclass(frozen=True, kw_only=True)
class QuestionWindow(Example):
    """A sequence [CLS] question [SEP] w pieces of the paragraph [SEP].

    `first`: index of the paragraph's first token. `starts`, `ends` (w,): the range of each piece in characters of the
    paragraph. `assign_windows` (w,): whether the piece has most context in this window.
    """

    first: int
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    owned: Booleans


@dataclass(frozen=True, kw_only=True)
class Cutter:
    """Splits questions and paragraphs: at most `question` pieces of a question, and windows with the stride `stride`.

    A question never takes more than half of a sequence.
    """

    packer: Packer
    question: int
    stride: int

    @property
    def most(self) -> int:
        """Return the most pieces of a question that are used."""
        return min(self.question, self.packer.room(2) // 2)

    def question_pieces(self, text: str) -> tuple[PieceRun, int]:
        """Return the question's pieces, and the number of pieces that were cut off."""
        ids = self.packer.tokenizer.encode(text)
        size = min(len(ids), self.most)
        return PieceRun.of(ids[:size], self.packer.tokenizer), len(ids) - size

    def windows(self, question: str, paragraph: str, *, record: int) -> Iterator[tuple[int, QuestionWindow]]:
        """Yield (index of the first piece of the paragraph, window).

        `truncated` of the first window counts the pieces that were cut off the question.
        """
        question_run, truncated = self.question_pieces(question)
        pieces = encoding(self.packer.tokenizer, paragraph)
        run = PieceRun.of(pieces.ids, self.packer.tokenizer)
        bounds = spread(len(pieces), self.packer.room(2) - len(question_run.ids), self.stride)
        owners = assign_windows(len(pieces), bounds)
        for number, (begin, end) in enumerate(bounds):
            example = self.packer.pair(question_run, PieceRun(run.ids[begin:end], run.words[begin:end]), record=record)
            yield (
                begin,
                QuestionWindow(
                    ids=example.ids,
                    segments=example.segments,
                    words=example.words,
                    special=example.special,
                    record=record,
                    truncated=0 if number else truncated,
                    first=self.packer.form.second(len(question_run.ids)),
                    starts=pieces.starts[begin:end],
                    ends=pieces.ends[begin:end],
                    owned=owners[begin:end] == number,
                ),
            )


def encoding(tokenizer: AnyTokenizer, paragraph: str) -> Encoding:
    """Return the paragraph's pieces with their ranges in characters."""
    return _encode_cached(tokenizer, paragraph) if len(paragraph) <= KEPT else tokenizer.encode_with_offsets(paragraph)


@lru_cache(maxsize=PARAGRAPHS)
def _encode_cached(tokenizer: AnyTokenizer, paragraph: str) -> Encoding:
    return tokenizer.encode_with_offsets(paragraph)


def covering(pieces: Encoding, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and the last piece that overlap the characters [start, end), None if there is none."""
    # starts and ends never decrease, so both are found by binary search.
    first = int(np.searchsorted(pieces.ends, start, side="right"))
    last = int(np.searchsorted(pieces.starts, end, side="left")) - 1
    return (first, last) if first <= last else None


def assign_windows(pieces: int, bounds: list[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the window (pieces,) in which each piece has most context, the first one in a tie.

    Context is the smaller of the numbers of pieces before and after it, plus 0.01 times the window's size as a tie
    breaker (as in google-research/bert's run_squad.py).
    """
    owners = np.zeros(pieces, np.int64)
    most = np.full(pieces, -1.0)
    for number, (begin, end) in enumerate(bounds):
        before = np.arange(end - begin)
        # The reversed array is the number of pieces after each one.
        context = np.minimum(before, before[::-1]) + 0.01 * (end - begin)
        better = context > most[begin:end]
        owners[begin:end][better] = number
        most[begin:end][better] = context[better]
    return owners


Scores = NDArray[np.floating]
ANSWER, NO_ANSWER = "answer", "no answer"
"""The names of the scores in explanations."""


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """Decodes answers: combines the best `most` starts and ends of each window and lists `most` answers.

    `longest`: most pieces of an answer. `unanswerable`: whether questions may have no answer; an answer is then given
    if its score exceeds the score of none (start and end at [CLS], section 4.3) by more than `threshold`.
    """

    most: int
    longest: int
    unanswerable: bool
    threshold: float

    def answer(self, paragraph: str, windows: Sequence[QuestionWindow], outputs: Sequence[Scores]) -> AnswerPrediction:
        """Return the answer from each window's scores (n, 2) of tokens as start and as end.

        A span scores the logit of its start plus that of its end (section 4.2). Here "Ada" is the most probable
        start, and "Ada" and "it" are probable ends:

        >>> from osbert.data.pack import Packer
        >>> from osbert.tasks.kinds.span.windows import Cutter
        >>> from osbert.text.tokenizer import SPECIALS, Tokenizer
        >>> packer = Packer(tokenizer=Tokenizer([*SPECIALS, "who", "?", "ada", "wrote", "it"]), length=12)
        >>> cutter = Cutter(packer=packer, question=4, stride=4)
        >>> ((_, window),) = cutter.windows("who?", "Ada wrote it", record=0)  # [CLS] who ? [SEP] ada wrote it [SEP]
        >>> scores = np.zeros((8, 2))
        >>> scores[4, 0], scores[4, 1], scores[6, 1] = 4, 3, 2
        >>> decoder = Decoder(most=3, longest=5, unanswerable=False, threshold=0)
        >>> for one in decoder.answer("Ada wrote it", [window], [scores]).candidates:
        ...     print(f"{one.text}: {one.score:.0f}, {one.probability:.3f}")
        Ada: 7, 0.705
        Ada wrote it: 6, 0.259
        Ada wrote: 4, 0.035
        """
        scored = [output.astype(np.float64) for output in outputs]
        # float64, so that sums of two logits do not tie by rounding.
        spans = [span for window, scores in zip(windows, scored) for span in self._spans(paragraph, window, scores)]
        best_by_text: dict[str, AnswerCandidate] = {}
        for span in sorted(spans, key=lambda candidate: -candidate.score):
            best_by_text.setdefault(span.text, span)
        spans = [*best_by_text.values()][: self.most]
        none = AnswerCandidate(text="", start=-1, end=-1, score=min(float(scores[0].sum()) for scores in scored))
        # The lowest score of "no answer" of all windows, as in run_squad.py of google-research/bert.
        margin = spans[0].score - none.score if spans and self.unanswerable else None
        listed = (
            spans if spans and not self.unanswerable else sorted([*spans, none], key=lambda candidate: -candidate.score)
        )
        probabilities = np.exp(np.array([candidate.score - listed[0].score for candidate in listed]))
        probabilities /= probabilities.sum()
        pairs = zip(listed, probabilities.tolist())
        candidates = [candidate._replace(probability=probability) for candidate, probability in pairs]
        likeliest = candidates[0]
        answer = AnswerPrediction(value=likeliest.text, chosen=likeliest, candidates=tuple(candidates), margin=margin)
        return answer.apply_threshold(self.threshold)

    def _spans(self, paragraph: str, window: QuestionWindow, scores: Scores) -> list[AnswerCandidate]:
        """Return the best spans of a window that start with a piece which has most context in this window.

        The score of a span from i to j is S T_i + E T_j, the sum of its start and end scores (Devlin et al. 2019,
        section 4.2).
        """
        inside = slice(window.first, window.first + len(window.starts))
        # A start in several windows counts only in the one where it has most context.
        starts = np.where(window.owned, scores[inside, 0], -np.inf)
        ends = scores[inside, 1]
        first, last = self._top(starts), self._top(ends)
        size = last[None, :] - first[:, None] + 1  # (k, k): pieces of the span
        legal = (size > 0) & (size <= self.longest) & window.owned[first][:, None]
        rows, columns = np.nonzero(legal)
        totals = starts[first[rows]] + ends[last[columns]]
        best = np.argsort(-totals, kind="stable")[: self.most]
        spans = []
        for row, column, total in zip(first[rows[best]], last[columns[best]], totals[best].tolist()):
            start, end = int(window.starts[row]), int(window.ends[column])
            spans.append(AnswerCandidate(text=paragraph[start:end], start=start, end=end, score=total))
        return spans

    def _top(self, scores: Scores) -> NDArray[np.intp]:
        """Return the indices of the `most` highest scores, unordered."""
        if len(scores) <= self.most:
            return np.arange(len(scores))
        return np.argpartition(-scores, self.most - 1)[: self.most]


def answer_score(chosen: AnswerCandidate, examples: Sequence[Example], label: str = "") -> ExplainedScore:
    """Return the score of an answer: the logits of its start and its end, in the window in which it starts.

    The score of no answer is that of the first tokens, averaged over windows. Raises UserError if `label` is neither
    "" nor the name of this score.
    """
    name = ANSWER if chosen.start >= 0 else NO_ANSWER
    require_label(label or name, [name])
    weights = [np.zeros((len(example), 2)) for example in examples]
    for example, window_weights in zip(examples, weights):
        assert isinstance(example, QuestionWindow)
        if chosen.start < 0:
            window_weights[0] = 1 / len(examples)
            continue
        starts = np.flatnonzero((example.starts == chosen.start) & example.owned)
        ends = np.flatnonzero(example.ends == chosen.end)
        if len(starts) and len(ends):
            window_weights[example.first + starts[0], 0] = window_weights[example.first + ends[-1], 1] = 1.0
            break
    return ExplainedScore(label=name, text=chosen.text, weights=weights)
