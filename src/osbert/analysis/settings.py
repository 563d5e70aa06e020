"""How the words of a prediction are weighed: the settings of attributions. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from osbert.errors import UserError

Baseline = Literal["auto", "mask", "pad", "zero"]
"""The vector that stands for a missing word: [MASK]'s, [PAD]'s or zeros; auto is the first of them that there is."""
Method = Literal["gradients", "occlusion"]
MOST = 1024
"""Most points: finding where they lie takes the cube of their number."""


@dataclass(frozen=True, kw_only=True)
class AttributionOptions:
    """How words are weighed."""

    method: Method = "gradients"
    """gradients: integrated gradients (Sundararajan et al. 2017); occlusion: the drop of the score without the word."""
    baseline: Baseline = "auto"
    """What stands for a missing word: mask, pad or zero, the vector; auto is mask where the tokenizer has one."""
    points: int = 32
    """Points at which gradients are taken, by Gauss and Legendre's rule."""
    tolerance: float = 0.02
    """Completeness error above which the points are doubled, up to 256; a large one keeps them as they are."""
    check: bool = True
    """Compute occlusion beside gradients, to report how far both agree."""
    check_words: int = 24
    """Words of a text that are occluded for the check, evenly spaced in the order of their weights; 0: all words."""

    def require_possible(self) -> None:
        """Raise UserError at a number of points or words that there cannot be, and at a tolerance below 0."""
        if not 1 <= self.points <= MOST:
            raise UserError(f"points must be between 1 and {MOST}, not {self.points}.", code="invalid-value")
        if not self.tolerance >= 0:
            raise UserError(f"tolerance must be 0 or more, not {self.tolerance}.", code="invalid-value")
        if self.check_words < 0 or self.check_words in (1, 2):  # no rank correlation of two
            raise UserError(f"check_words must be 3 or more, or 0, not {self.check_words}.", code="invalid-value")
