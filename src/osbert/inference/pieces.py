"""Calls of a language head: the likeliest pieces for each [MASK] of a text, and the log-likelihoods of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from osbert.analysis.likelihood import LanguageModel
from osbert.analysis.scoring import Masking, PieceLikelihood, ScoringOptions, TextLikelihood
from osbert.data.example import Example, Integers
from osbert.data.pack import Packer, PieceRun
from osbert.errors import Problems, UserError
from osbert.evaluation.forward import TOKENS, batches, evaluating
from osbert.inference.model import LoadedModel
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.terminal import one_line
from osbert.text.file_tokenizer import AnyTokenizer, FileTokenizer, unknown_id
from osbert.text.tokenizer import SPECIALS

MASK = SPECIALS[-1]
SCORES = 512
"""Most masks whose logits over the vocabulary are in memory at a time."""


class MaskFill(NamedTuple):
    """A piece for a mask, and its probability."""

    piece: str
    probability: float


@dataclass(frozen=True)
class FilledText:
    """The likeliest pieces for each mask of a text."""

    truncated: ClassVar[int] = 0
    """A text that does not fit is refused."""
    unknown: ClassVar[bool] = False

    fills: list[list[MaskFill]]

    def lines(self) -> Iterator[str]:
        """Yield a line for each mask.

        >>> [*FilledText([[MaskFill("york", 0.5), MaskFill("jersey", 0.25)]]).lines()]
        ['york 0.500, jersey 0.250']
        """
        yield from (", ".join(f"{fill.piece} {fill.probability:.3f}" for fill in mask) for mask in self.fills)

    def as_dict(self) -> dict[str, Any]:
        """Return the pieces by their fields."""
        return {"fills": [[fill._asdict() for fill in mask] for mask in self.fills]}


def pack_with_masks(text: str, packer: Packer) -> Example:
    """Return the sequence of a text; each [MASK] becomes the mask piece, other special names are plain text."""
    return packer.single(*PieceRun.of(encode_with_masks(text, packer.tokenizer)[0], packer.tokenizer))


def encode_with_masks(text: str, tokenizer: AnyTokenizer) -> tuple[Integers, Integers, Integers]:
    """Return the piece ids (n,) of a text with masks, and their starts and ends (n,) in characters."""
    # A tokenizer from a file has its own spelling of the mask, and its own rule for the spaces around it. So its mask
    # is put into the text, and the offsets are mapped back to the text with [MASK].
    if isinstance(tokenizer, FileTokenizer):
        mask = tokenizer.vocabulary[tokenizer.mask]
        encoding = tokenizer.encode_with_offsets(text.replace(MASK, mask))
        origins = _origins(text, len(mask))
        return encoding.ids, origins[encoding.starts], origins[np.maximum(encoding.ends - 1, 0)] + 1
    parts: list[tuple[Integers, Integers, Integers]] = []
    begin = 0
    for number, part in enumerate(text.split(MASK)):
        if number:
            parts.append((np.array([tokenizer.mask]), np.array([begin - len(MASK)]), np.array([begin])))
        encoding = tokenizer.encode_with_offsets(part)
        parts.append((encoding.ids, begin + encoding.starts, begin + encoding.ends))
        begin += len(part) + len(MASK)
    ids, starts, ends = (np.concatenate(columns).astype(np.int32) for columns in zip(*parts, strict=True))
    return ids, starts, ends


def _origins(text: str, length: int) -> Integers:
    """Map offsets in a text whose masks have `length` characters to offsets in `text`; one past the end included.

    The characters of a mask map to the first one of [MASK], and its last character to the last one.
    """
    origins: list[int] = []
    begin = 0
    for number, part in enumerate(text.split(MASK)):
        if number:
            origins += [*[begin] * (length - 1), begin + len(MASK) - 1]
            begin += len(MASK)
        origins += range(begin, begin + len(part))
        begin += len(part)
    return np.array([*origins, begin])


def fill(
    learner: Learner, head: MaskedLanguageHead, examples: Sequence[Example], tokenizer: AnyTokenizer, *, top: int
) -> list[list[list[MaskFill]]]:
    """Return for each mask of each sequence the `top` likeliest pieces of the whole vocabulary."""
    fillings: list[list[list[MaskFill]]] = [[] for _ in examples]
    with evaluating(learner) as device:
        for batch in batches(examples, tokens=TOKENS):
            device_batch = batch.to(device)
            index = (device_batch.ids == tokenizer.mask).nonzero().squeeze(1)  # (M,)
            hidden = learner.backbone(device_batch).hidden
            # The batch is flat: a mask at position p belongs to the last sequence that starts at or before p.
            sequences = torch.searchsorted(device_batch.starts, index, right=True) - 1
            numbers = batch.records[sequences.cpu()]
            for own, positions in zip(numbers.split(SCORES), index.split(SCORES), strict=True):
                logits = head.scores(hidden[positions]).float()  # (M, V)
                best = logits.softmax(dim=-1).topk(min(top, logits.shape[1]))
                for number, probabilities, ids in zip(own.tolist(), best.values.tolist(), best.indices.tolist()):
                    fillings[number].append([MaskFill(*pair) for pair in zip(tokenizer.tokens(ids), probabilities)])
    return fillings


def fill_masks(model: LoadedModel, text: str, *, top: int) -> list[list[MaskFill]]:
    """Return the `top` likeliest pieces for each [MASK] in a text. Raises UserError as `Engine.fill`."""
    if model.masks is None:
        require_usable_head(model)
        raise UserError(
            f"The model in {model.folder} does not predict masked pieces: that needs an encoder pretrained on "
            "masked pieces, with the head that it learnt there, and no exported or fine-tuned model has it.",
            code="unsupported-model",
        )
    if not isinstance(text, str) or not isinstance(top, int) or top < 1:
        raise UserError(
            f"fill takes one text and the number of pieces to show, not {text!r:.60} and top={top!r}.",
            code="invalid-value",
        )
    if MASK not in text:
        raise UserError(
            f"There is no {MASK} in the text '{one_line(text)}': write one where a piece is missing.",
            code="invalid-value",
        )
    example = pack_with_masks(text, model.packer)
    if example.truncated:
        raise UserError(
            f"The text has {example.truncated:,} pieces too many for {model.packer.length} tokens. Shorten it.",
            code="text-too-long",
        )
    [fillings] = fill(model.learner, model.masks, [example], model.tokenizer, top=top)
    return fillings


def predicts_pieces(engine: LoadedModel) -> bool:
    """Return whether a model predicts pieces of its own input. An encoder-decoder predicts those of its target."""
    return engine.pieces is not None and not engine.learner.backbone.architecture.has_decoder


def require_usable_head(engine: LoadedModel) -> None:
    """Raise UserError with the reason if the folder has a language head that cannot be used."""
    if engine.unusable_head:
        raise UserError(
            f"The head for pieces in {engine.folder} cannot be used: {engine.unusable_head}. "
            f"osbert convert {engine.folder} NEW lists all tensors.",
            code="unsupported-model",
        )


def language_model(engine: LoadedModel) -> LanguageModel:
    """Return the model with its language head. Raises UserError if it has none, or is an encoder-decoder."""
    if engine.pieces is None or not predicts_pieces(engine):
        require_usable_head(engine)
        raise UserError(
            f"The model in {engine.folder} has no head for masked or next pieces of a text. Pretrained encoders and "
            "left-to-right models have one; exported and fine-tuned models, encoder-decoders, ELMo and CoVe do not.",
            code="unsupported-model",
        )
    return LanguageModel(engine.learner, engine.pieces, engine.tokenizer.mask if engine.masks else -1)


def score_samples(
    model: LanguageModel, packer: Packer, options: ScoringOptions, first: int, given: Sequence[Sequence[str]]
) -> list[TextLikelihood]:
    """Return the likelihood of each sample; the first one is texts[first] of the call, for messages.

    Raises UserError that lists every sample that is empty, too long, or not a single text.
    """
    problems = Problems(heading="These texts cannot be scored")
    for index, sample in enumerate(given, first):
        if len(sample) > 1:
            problems.add(f"texts[{index}]: {len(sample)} texts, not one.", code="wrong-number-of-texts")
        refuse_unscorable(packer, sample[0], f"texts[{index}]", problems)
    problems.stop_if_any()
    return score_texts(model, packer, [sample[0] for sample in given], options.masking)


def score_texts(model: LanguageModel, packer: Packer, texts: Sequence[str], masking: Masking) -> list[TextLikelihood]:
    """Return the likelihood of each text. Raises UserError if a score is not finite.

    Texts must fit into a sequence; see `refuse_unscorable`.
    """
    tokenizer = packer.tokenizer
    cut = [tokenizer.encode_with_offsets(text) for text in texts]
    runs = [PieceRun.of(encoding.ids.astype(np.int32), tokenizer) for encoding in cut]
    log_probabilities = model.log_probabilities([packer.single(*run) for run in runs], masking=masking)
    scores = []
    for text, offsets, run, values in zip(texts, cut, runs, log_probabilities, strict=True):
        # A left-to-right model without a start token cannot score the first piece: its value is NaN.
        unscored = model.causal and not packer.form.before
        if not np.isfinite(values[int(unscored) :]).all():
            raise UserError(
                "The model gives scores that are NaN or infinite: its weights are damaged, or its training has failed. "
                "Copy it again, or train it again.",
                code="not-finite",
            )
        bounds = zip(tokenizer.tokens(run.ids.tolist()), offsets.starts.tolist(), offsets.ends.tolist(), strict=True)
        pieces = [
            PieceLikelihood(piece=piece, start=start, end=end, log_probability=None if np.isnan(value) else value)
            for (piece, start, end), value in zip(bounds, values.tolist(), strict=True)
        ]
        unknown = int((run.ids == unknown_id(tokenizer)).sum())
        scores.append(TextLikelihood.of(text, pieces, starts=run.words.tolist(), unknown=unknown))
    return scores


def refuse_unscorable(packer: Packer, text: str, where: str, problems: Problems) -> None:
    """Add a problem if a text has no pieces or does not fit; `where` is its name in the message."""
    count = len(packer.tokenizer.encode(text))
    if not count:
        problems.add(f"{where}: the text is empty: there is nothing to score.", code="empty-text")
    elif count > packer.room(1):
        problems.add(
            f"{where}: {count:,} pieces, and the model reads {packer.room(1):,} at most. Cut the text into sentences.",
            code="text-too-long",
        )
