"""Other methods of pretraining, which other packages add: a recipe chooses one by a setting that no other recipe has.

An entry point in the group `osbert.runs.pretrain.methods` leads to a Method. It is named for the setting, such as
`vectors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from osbert.corpus.shards import Corpus
from osbert.runs.contract import Watch
from osbert.training.interruption import Interruption


class Method(Protocol):
    """A method of pretraining with settings and a loop of its own. Its module does not import torch."""

    about: str
    """What its recipes do, for messages: "learns vectors of words without context"."""
    scratch: tuple[str, ...]
    """Files of its run folder that are not uploaded to an object store."""

    def schema(self, table: Mapping[str, Any]) -> type:
        """Return the settings class of a recipe. Raises UserError if the method does not know it."""

    def check(self, recipe: str, *, processes: int, is_continued: bool) -> None:
        """Raise UserError if it cannot run in so many processes of torchrun, or go on from another encoder."""

    def learn(
        self, name: str, settings: Any, *, corpus: Corpus, out: Path, watch: Watch, wish: Interruption, begun: float
    ) -> bool:
        """Start the run in `out`, or resume it; return False if a wish has stopped it."""
