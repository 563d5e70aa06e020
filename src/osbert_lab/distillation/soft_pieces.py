"""Soft pieces: masked pieces, and what a larger pretrained encoder makes of them (DistilBERT, TinyBERT)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.files import file_stamp
from osbert.interop.opening import CAREFUL
from osbert.interop.tokenizers import read_any_tokenizer
from osbert.objectives.contract import Answers
from osbert.objectives.mlm import MaskedLanguage

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes


def vocabulary_fingerprint(folder: Path) -> str:
    """Return the fingerprint of the tokenizer in a folder, which is read again if a file of the folder has changed."""
    return _vocabulary_fingerprint(folder, tuple((path.name, file_stamp(path)) for path in sorted(folder.glob("*"))))


@lru_cache(maxsize=1)  # asked for each step
def _vocabulary_fingerprint(folder: Path, stamps: tuple[Any, ...]) -> str:
    return str(read_any_tokenizer(folder, CAREFUL).fingerprint)


FREE = ("layers", "distinct", "dropout", "attention_dropout", "deviation", "neighbours", "scaled_outputs")
"""Settings in which a student that starts with layers of its teacher may differ from it."""


@dataclass(frozen=True, kw_only=True)
class SoftPieces(MaskedLanguage):
    """Masks as mlm, and learns from a teacher that reads the same masked sequences.

    loss = (1 - soft) x mlm + soft x divergence from the teacher's probabilities of masked pieces
           + states x (1 - cosine of the last states) + attentions x divergence of the attention weights

    The first three are DistilBERT's (Sanh et al. 2019, sections 2 and 3), the last is TinyBERT's (Jiao et al. 2019,
    equation 7) with MiniLM's divergence (Wang et al. 2020, equation 2) in place of squares. The means of states and
    attention weights are over all tokens.
    """

    title: ClassVar[str] = "masked pieces beside a teacher"
    answers: ClassVar[Answers] = "others"  # several losses in one, which the unigram entropy is no baseline of
    alone: ClassVar[bool] = True

    teacher: str = ""
    """The folder of the teacher: an encoder with a masked-language head and the corpus's vocabulary. It is needed."""
    start: Literal["layers", "random"] = "layers"
    """layers: evenly spaced layers of the teacher, its embeddings and its head; random: new weights."""
    soft: float = 0.7
    """Weight of the teacher's probabilities, from 0 to 1; the true pieces have the rest (DistilBERT: 5 to 2)."""
    temperature: float = 2.0
    """Temperature that divides the logits of both models."""
    states: float = 0.15
    """Weight of 1 - cosine of the last states (DistilBERT: 1 to 5 and 2); 0 for none. Of another width than the
    teacher's, they go through a linear map."""
    attentions: float = 0.0
    """Weight of the divergence of attention weights, layer by layer; the student reads each sequence once more for it,
    and needs as many heads as the teacher."""

    def __post_init__(self) -> None:
        """Raise ValueError for weights out of range."""
        super().__post_init__()
        if not 0 <= self.soft <= 1:
            raise ValueError(f"soft must be from 0 to 1, not {self.soft:g}")
        if not all(0 <= weight < math.inf for weight in (self.states, self.attentions)):
            raise ValueError(f"states and attentions must be 0 or more, not {self.states:g} and {self.attentions:g}")
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be above 0, not {self.temperature:g}")

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return examples with masks. Raises UserError if the teacher has another vocabulary than the corpus."""
        if vocabulary_fingerprint(Path(self.teacher)) != packer.tokenizer.fingerprint:
            raise UserError(
                f"{self.teacher} has another vocabulary than the corpus, whose pieces it would not know. Build the "
                f"corpus with --tokenizer {self.teacher}.",
                code="mismatched-tokenizer",
            )
        return super().corrupt_all(examples, packer, noise)

    def inputs(self) -> dict[str, str]:
        """Return the fingerprint of the teacher's weights, so that no other ones go on with a run."""
        from osbert.interop.folder import open_folder

        return {"teacher": open_folder(Path(self.teacher), CAREFUL).fingerprint} if self.teacher else {}

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield a message for each reason why an encoder cannot learn from the teacher."""
        yield from super().objections(architecture)
        if not self.teacher:
            yield f"{self.name} needs a teacher: give --teacher FOLDER, a pretrained encoder."
            return
        from osbert.interop.folder import open_folder

        teacher = open_folder(Path(self.teacher), CAREFUL).architecture
        if teacher.family != architecture.family:
            differences = [f"family is {architecture.family}, the teacher's {teacher.family}"]
        else:
            differences = [
                f"model.{name} is {value}, the teacher's {other}"
                for name, value, other in _explicit(architecture).differences(_explicit(teacher))
                if name not in FREE
            ]
        if self.start == "layers" and differences:
            yield (
                f"{self.name}.start = layers copies layers of {self.teacher}, but {'; '.join(differences)}. Set the "
                f"same, or {self.name}.start = random."
            )
        if self.start == "layers" and architecture.layers > teacher.layers:
            yield (
                f"model.layers is {architecture.layers}, more than the {teacher.layers} of the teacher. Set fewer, or "
                f"{self.name}.start = random."
            )
        heads = (getattr(sizes, "heads", 0) for sizes in (architecture, teacher))
        if self.attentions and len({*heads}) > 1:
            yield f"{self.name}.attentions compares heads one by one: set model.heads = {getattr(teacher, 'heads', 0)}."

    def head(self, backbone: Backbone) -> Head:
        """Return the masked-language head with the losses on the teacher's outputs; without a teacher, the head."""
        from osbert_lab.distillation.soft_pieces_head import SoftPiecesHead, open_teacher

        return SoftPiecesHead(backbone, self, teacher=open_teacher(Path(self.teacher)) if self.teacher else None)

    def begin(self, head: Head, counts: NDArray[np.integer]) -> None:
        """Copy the teacher's layers and head if `start` is layers; else initialise as mlm."""
        from osbert_lab.distillation.soft_pieces_head import SoftPiecesHead

        assert isinstance(head, SoftPiecesHead)
        if self.start == "layers" and head.teacher is not None:
            head.copy_teacher()
        else:
            super().begin(head, counts)


def _explicit(sizes: Sizes) -> Sizes:
    """Return sizes whose feed-forward width is a number, where 0 stands for four times the width."""
    return sizes if getattr(sizes, "feedforward", 1) else sizes.replace(feedforward=4 * sizes.width)
