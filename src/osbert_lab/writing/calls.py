"""Calls of a loaded model that write texts: `model.generate` and `model.stream`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from osbert import recipe
from osbert.inference.model import Text, samples
from osbert.signatures import takes_settings_of
from osbert_lab.writing.settings import Generation, GivenOptions

if TYPE_CHECKING:
    from typing import Unpack

    from osbert.inference.engine import Engine
    from osbert_lab.keywords import WritingKeywords


@takes_settings_of(GivenOptions)
def generate(self: Engine, texts: Sequence[Text], **options: Unpack[WritingKeywords]) -> list[Generation]:
    """Return the continuation of each text, or the target for each source if the model is trained on such pairs.

    `options`: the fields of GivenOptions (osbert_lab.writing.settings), as in `osbert generate`: most, least,
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
    from osbert_lab.writing.text_writer import TextWriter

    given = samples(texts, "generate")
    return TextWriter.of(self, recipe.settings(GivenOptions, options)).texts(given)


@takes_settings_of(GivenOptions)
def stream(self: Engine, text: Text, **options: Unpack[WritingKeywords]) -> Iterator[str]:
    """Yield the generation for a text in parts, as they are generated; `options` as for `generate`.

    With beam search it comes in one part at the end, since any beginning may still be replaced.

    >>> import osbert
    >>> model = osbert.load("writer")
    >>> parts = list(model.stream("the good", most=3))
    >>> "".join(parts) == model.generate(["the good"], most=3)[0].text
    True
    """
    from osbert_lab.writing.text_writer import TextWriter

    [sample] = samples([text], "stream")
    return TextWriter.of(self, recipe.settings(GivenOptions, options)).stream(*sample)
