"""The settings of the encoder-decoder, and checks of their combinations. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from osbert.models.architecture import MOST, Architecture


@dataclass(frozen=True, kw_only=True)
class PairArchitecture(Architecture):
    """The sizes and choices of an encoder with a decoder (Vaswani et al. 2017, section 3); `layers`: the encoder's."""

    family: ClassVar[str] = "pair"
    has_decoder = True
    decoder_layers: int = 0
    """Blocks of the decoder; 0 for as many as the encoder has."""
    reading: Literal["encoder", "both"] = "encoder"
    """Which side reads a text if none is generated: the encoder alone, or the decoder as well, which reads the same
    text shifted by one token and whose states tasks use (BART, Lewis et al. 2020, section 3)."""

    @property
    def writes_whole_texts(self) -> bool:
        """Return whether the decoder reads whole texts, as BART's does, which a target then is."""
        return self.reading == "both"

    @property
    def encoder_side(self) -> Architecture:
        """The settings of the encoder, a Transformer."""
        return self._side(**({} if self.reading == "encoder" else {"pooling": "none"}))

    @property
    def decoder_side(self) -> Architecture:
        """The settings of the decoder, as those of a causal Transformer."""
        pooling = "none" if self.reading == "encoder" else self.pooling
        layers = self.decoder_layers or self.layers
        return self._side(layers=layers, direction="left_to_right", segments=0, pooling=pooling)

    def _side(self, **changes: object) -> Architecture:
        settings = {field.name: getattr(self, field.name) for field in fields(Architecture)}
        return Architecture(**{**settings, **changes})

    def resize(self, layers: int, width: int) -> PairArchitecture:
        """Return these settings with other `layers` and `width`; the decoder's layers stay in proportion."""
        decoder = round(self.decoder_layers * layers / self.layers)
        return super().resize(layers, width).replace(decoder_layers=decoder)

    def narrow(self, factor: float) -> None:  # type: ignore[override]
        """Return None: no other model shares the tables of an encoder-decoder."""
        return

    def problems(self) -> tuple[str, ...]:
        """Describe every setting that an encoder-decoder cannot be built with."""
        return (*super().problems(), *self._of_pair())

    def _of_pair(self) -> Iterator[str]:
        if not 0 <= self.decoder_layers <= MOST["layers"]:
            bound = f"from 1 to {MOST['layers']:,}, or 0 for as many as the encoder has"
            yield f"decoder_layers is {self.decoder_layers:,}, but must be {bound}"
        off = {"direction": "both", "window": 0, "recurrent": 0, "adapters": 0, "distinct": 0, "neighbours": 0.0}
        for name, value in off.items():
            if getattr(self, name) != value:
                yield f"{name} is {getattr(self, name)}, which an encoder with a decoder does without: leave it out"
        if self.positions in ("disentangled", "distances"):
            yield f"positions is {self.positions}, whose decoder keeps no keys: take learned, rotary or none"
        if self.reading == "both" and self.summary in ("token", "first"):
            yield f"reading is both, and summary is {self.summary}, but its first token sees no other: take last"
