"""Calls of models with a language head: filling masks, scoring texts, and generating."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert import recipe
from osbert.analysis.scoring import ScoringOptions
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.inference.fill import MASK, MaskFill, fill, pack_with_masks
from osbert.inference.generate import TextWriter
from osbert.inference.score import language_model, require_usable_head, score_samples
from osbert.inference.text_windows import Text, samples, windows
from osbert.models.contract import Learner
from osbert.models.generation.contract import CachedDecoder
from osbert.models.generation.defaults import WritingDefaults
from osbert.models.generation.generated_text import Generation
from osbert.models.generation.settings import GivenOptions
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.signatures import takes_settings_of
from osbert.tasks import Task
from osbert.terminal import one_line
from osbert.text.file_tokenizer import AnyTokenizer

if TYPE_CHECKING:
    from typing import Unpack

    from osbert.keywords import LikelihoodKeywords, WritingKeywords


class PieceModel:
    """The calls of an Engine that need a language head."""

    folder: Path
    """The folder that the model was read from."""
    tokenizer: AnyTokenizer
    """The model's tokenizer: texts to ids, with the offsets of each piece."""
    packer: Packer
    """Lays out ids as sequences with special tokens, at most as long as the model or its task allows."""
    task: Task | None
    """The task that the model was fine-tuned for, None for an encoder."""
    pieces: MaskedLanguageHead | None
    """The language head, None if the model has none."""
    unusable_head: str
    """Why the folder's language head is not used, "" if it is, or if there is none."""
    masks: MaskedLanguageHead | None
    """The language head if it predicts masked pieces, else None."""
    writing: WritingDefaults
    """How the model writes where a call does not say: the defaults of its folder."""

    @property
    def learner(self) -> Learner:
        """The torch model."""
        raise NotImplementedError

    @cached_property
    def _decoders(self) -> dict[MaskedLanguageHead, CachedDecoder | None]:
        """The decoders of all calls so far: the weights that one has prepared for steps are kept."""
        return {}

    def decoder(self, head: MaskedLanguageHead) -> CachedDecoder | None:
        """Return the decoder that generates with a head's logits, cached for all calls; None if the model cannot."""
        if head not in self._decoders:
            self._decoders[head] = self.learner.backbone.decoder(head)
        return self._decoders[head]

    def fill(self, text: str, *, top: int = 5) -> list[list[MaskFill]]:
        """Return the `top` likeliest pieces for each [MASK] in a text, the likeliest first, with their probabilities.

        Raises UserError if the model does not predict masked pieces (a fine-tuned, an exported or a left-to-right one
        does not), if the text has no [MASK], and if it is too long.

        >>> import osbert
        >>> model = osbert.load("encoder")
        >>> [likeliest, *others] = model.fill("a [MASK] film")[0]
        >>> likeliest.piece in model.tokenizer.vocabulary, 0 < likeliest.probability < 1, len(others)
        (True, True, 4)
        """
        if self.masks is None:
            require_usable_head(self)
            raise UserError(
                f"The model in {self.folder} does not predict masked pieces: that needs an encoder pretrained on "
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
        example = pack_with_masks(text, self.packer)
        if example.truncated:
            raise UserError(
                f"The text has {example.truncated:,} pieces too many for {self.packer.length} tokens. Shorten it.",
                code="text-too-long",
            )
        [fillings] = fill(self.learner, self.masks, [example], self.tokenizer, top=top)
        return fillings

    @takes_settings_of(ScoringOptions)
    def score(self, texts: Iterator[str] | Sequence[str], **options: Unpack[LikelihoodKeywords]) -> Any:
        """Return the TextLikelihood of each text (osbert.analysis.scoring), in nats.

        It is the pseudo-log-likelihood for a masked language model, the log-likelihood for a left-to-right one.
        `options`: the fields of ScoringOptions: masking="word" masks the rest of a piece's word with it. For an
        iterator the result is an iterator, as with `predict`. Raises UserError if the model does not predict pieces,
        and if a text is empty or does not fit.

        >>> import osbert
        >>> model = osbert.load("encoder")
        >>> [score] = model.score(["a good film"])
        >>> len(score.pieces), score.log_likelihood < 0
        (3, True)
        """
        score = partial(score_samples, language_model(self), self.packer, recipe.settings(ScoringOptions, options))
        if isinstance(texts, Iterator):
            return chain.from_iterable(score(*window) for window in windows(texts, "score"))
        return score(0, samples(texts, "score"))

    @takes_settings_of(GivenOptions)
    def generate(self, texts: Sequence[Text], **options: Unpack[WritingKeywords]) -> list[Generation]:
        """Return the continuation of each text, or the target for each source if the model is trained on such pairs.

        `options`: the fields of GivenOptions (osbert.models.generation.settings), as in `osbert generate`: most, least,
        beams, length_penalty, no_repeat, sample, temperature, top_k, top_p and seed. With one seed, the result for the
        text at an index does not depend on the other texts. Options left at their defaults take the run's own values.
        Raises UserError if the model cannot generate, if options are invalid or exclude each other, and if an item is
        not a text.

        >>> import osbert
        >>> model = osbert.load("writer")
        >>> [written] = model.generate(["the good"], most=3)
        >>> written.pieces, written.ended
        (3, 'most')
        """
        given = samples(texts, "generate")
        return TextWriter.of(self, recipe.settings(GivenOptions, options)).texts(given)

    @takes_settings_of(GivenOptions)
    def stream(self, text: Text, **options: Unpack[WritingKeywords]) -> Iterator[str]:
        """Yield the generation for a text in parts, as they are generated; `options` as for `generate`.

        With beam search it comes in one part at the end, since any beginning may still be replaced.

        >>> import osbert
        >>> model = osbert.load("writer")
        >>> parts = list(model.stream("the good", most=3))
        >>> "".join(parts) == model.generate(["the good"], most=3)[0].text
        True
        """
        [sample] = samples([text], "stream")
        return TextWriter.of(self, recipe.settings(GivenOptions, options)).stream(*sample)
