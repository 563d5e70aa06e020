"""Settings of attributions: the weights of the words of a prediction. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from osbert.errors import UserError

Baseline = Literal["auto", "mask", "pad", "zero"]
"""The vector of a missing word: that of [MASK] or [PAD], or zeros; auto: the first of them that exists."""
Method = Literal["gradients", "occlusion"]
MOST = 1024
"""Most points: the computation of the nodes takes time cubic in their number."""


@dataclass(frozen=True, kw_only=True)
class AttributionOptions:
    """Settings of attributions."""

    method: Method = "gradients"
    """gradients: integrated gradients (Sundararajan et al. 2017); occlusion: the drop of the score without the word."""
    baseline: Baseline = "auto"
    """Vector of a missing word: mask, pad or zero; auto: mask if the tokenizer has one."""
    points: int = 32
    """Points at which gradients are computed (Gauss-Legendre quadrature)."""
    tolerance: float = 0.02
    """Completeness error above which the points are doubled, up to 256. A large value keeps them as they are."""
    check: bool = True
    """Also compute occlusion, to report how well it agrees with the gradients."""
    check_words: int = 24
    """Words of a text that are occluded for the check, evenly spaced by rank of weight; 0: all words."""

    def require_possible(self) -> None:
        """Raise UserError if points, tolerance or check_words is out of range."""
        if not 1 <= self.points <= MOST:
            raise UserError(f"points must be between 1 and {MOST}, not {self.points}.", code="invalid-value")
        if not self.tolerance >= 0:
            raise UserError(f"tolerance must be 0 or more, not {self.tolerance}.", code="invalid-value")
        if self.check_words < 0 or self.check_words in (1, 2):  # no rank correlation of two
            raise UserError(f"check_words must be 3 or more, or 0, not {self.check_words}.", code="invalid-value")
