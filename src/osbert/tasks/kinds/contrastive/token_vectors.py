"""Contrastive training of many vectors a text (ColBERT): its settings, sequences by role, and MaxSim."""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.late_interaction import DOCUMENT, QUERY, LateInteraction, RoleLayout, TokenVectors
from osbert.data.long_texts import lay_out_texts
from osbert.data.multi_vectors import MultiVectors, maxsim
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.tasks.tables.texts import TextTask
from osbert.text.file_tokenizer import AnyTokenizer

QUERY_LENGTH, WIDTH = 32, 128
"""Tokens of a query and numbers of a token's vector, as ColBERT has them (Khattab & Zaharia 2020, section 4.1)."""
MARKERS = {QUERY: "[unused0]", DOCUMENT: "[unused1]"}
"""Pieces without a meaning in BERT's vocabularies, which Stanford's ColBERT puts before texts of each role."""
MARKER = re.compile(r"(\[[^\]]+\]|<[^>]+>) ?")
"""The beginning of a prompt that is a single piece, such as "[Q] "."""
AUTO = "auto"
"""The value of a setting that the model decides."""


@dataclass(frozen=True, kw_only=True)
class LateInteractionTask(TextTask):
    """What of a task is for many vectors a text (--pooling colbert)."""

    token_width: int = 0
    """With colbert, the numbers of a token's vector, which a dense layer makes of its state; 0: 128, or the model's."""
    query_length: int = 0
    """With colbert, the most tokens of a first text; 0: 32, or the model's."""
    query_expansion: Literal["auto", "unseen", "attended", "none"] = "auto"
    """With colbert, whether first texts are filled up with [MASK] to the query length. These tokens have vectors, too,
    and attend to the text (query augmentation, Khattab & Zaharia 2020). unseen: the text does not attend to them;
    attended: it does. auto: unseen, or the model's."""
    skipped: str = AUTO
    """With colbert, the pieces of other texts without a vector, with spaces between. auto: punctuation, or the
    model's."""
    lower_case: bool = False
    """Read texts in lower case, as a sentence model does whose files say so."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.token_width, self.query_length) < 0:
            raise ValueError(
                f"token_width and query_length must be 0 or more, not {self.token_width} and {self.query_length}"
            )

    def late_settings(self, trained: TokenVectors | None) -> dict[str, Any]:
        """Return these settings: those of a model that was trained for many vectors, else ColBERT's.

        Raises UserError for settings that the model has of its own, and for texts without a second one.
        """
        if self.text and not self.pair:
            raise UserError(
                "Many vectors a text (ColBERT) are learnt from queries and documents: give pairs, or train dense "
                "vectors (--pooling mean).",
                code="options-exclude-each-other",
            )
        settings = {
            "query_length": QUERY_LENGTH,
            "query_expansion": "unseen",
            "token_width": WIDTH,
            "skipped": " ".join(string.punctuation),
        }
        given = {name: value for name in settings if (value := getattr(self, name)) not in (0, AUTO)}
        if trained is None:
            return settings | given
        late = trained.late
        settings = {
            "query_length": late.query_length or self.length,
            "query_expansion": ("attended" if late.attend else "unseen") if late.expansion else "none",
            "token_width": len(trained.projection),
            "skipped": " ".join(trained.skipped),
        }
        if others := [name for name, value in given.items() if value != settings[name]]:
            raise UserError(
                f"--{others[0].replace('_', '-')} {given[others[0]]}: the model was trained with "
                f"{settings[others[0]]}, and keeps it. Remove the option.",
                code="invalid-value",
            )
        return settings

    @property
    def late(self) -> LateInteraction:
        """How queries are laid out, and the markers with which the prompts begin."""
        markers = {role: MARKER.match(prompt) for role, prompt in self.prompts.items() if role}
        return LateInteraction(
            query_length=self.query_length,
            expansion=0 if self.query_expansion == "none" else self.query_length,
            attend=self.query_expansion == "attended",
            prefixes={role: match[0] if match else "" for role, match in markers.items()},
        )

    @cached_property
    def _layouts(self) -> dict[tuple[str, AnyTokenizer], RoleLayout]:
        """The layouts of roles, each made when its first text comes."""
        return {}

    def lay_out_role(self, text: str, packer: Packer, *, role: str, record: int) -> Example:
        """Return the sequence of a query or a document, with a vector for each token that counts."""
        layout = self._layouts.get((role, packer.tokenizer))
        if layout is None:
            skipped = self.skipped.split() if role == DOCUMENT else ()
            layout = RoleLayout.of(
                self.late, packer.tokenizer, role=role, prompt=self.prompts.get(role, ""), skipped=skipped
            )
            self._layouts[role, packer.tokenizer] = layout
        length = min(packer.length, self.query_length) if role == QUERY else packer.length
        shorter = dataclasses.replace(packer, length=length - len(layout.marker.ids))
        text, prompt = (text.lower(), layout.prompt.lower()) if self.lower_case else (text, layout.prompt)
        (example,) = lay_out_texts([text], shorter, prompt=prompt, long=self.long, overlap=self.overlap, record=record)
        return layout.complete(example, len(packer.form.before))


def stack_texts(rows: Sequence[NDArray[np.floating]]) -> NDArray[np.floating] | MultiVectors:
    """Return the vectors of n texts, (D,) each or (tokens, D), for `compare_texts`."""
    return np.stack(rows) if rows[0].ndim == 1 else MultiVectors.of(rows, (np.zeros(len(row)) for row in rows))


def compare_texts(first: Any, second: Any) -> NDArray[np.floating]:
    """Return the similarities (n, m) of n texts with m others: products, and of many vectors a text MaxSim."""
    similarities: NDArray[np.floating] = maxsim(first, second) if isinstance(first, MultiVectors) else first @ second.T
    return similarities
