"""The prediction of `osbert predict` for one text: that of the task, or the pieces for its masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from osbert.inference.engine import Engine
from osbert.inference.pieces import MASK, MaskFill
from osbert.tasks import Prediction

if TYPE_CHECKING:
    from osbert.inference.label_predictor import LabelPredictor


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


def predict_single(engine: Engine | LabelPredictor, texts: tuple[str, ...]) -> Prediction | FilledText:
    """Return the task's prediction for one sample; for an encoder without a task, the pieces for the masks of a text.

    Raises UserError if there is neither a task nor a mask.
    """
    if isinstance(engine, Engine) and engine.task is None and len(texts) == 1 and MASK in texts[0]:
        return FilledText(engine.fill(texts[0]))
    [prediction] = engine.predict([texts])
    return prediction
