"""word2vec and GloVe as a method of pretraining, for recipes with the setting `vectors`. It does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osbert.corpus.shards import Corpus
from osbert.errors import UserError
from osbert.runs.contract import Watch
from osbert.training.interruption import Interruption
from osbert_lab.static_vectors.settings import TABLES, MethodSettings, vector_schema


class StaticVectorMethod:
    """Learns one vector for each word."""

    about = "learns vectors of words without context"
    scratch = (TABLES,)

    def schema(self, table: Mapping[str, Any]) -> type[MethodSettings]:
        """Return the settings class of a recipe. Raises UserError for an unknown method."""
        schema = vector_schema(table)
        assert schema is not None
        return schema

    def check(self, recipe: str, *, processes: int, is_continued: bool) -> None:
        """Raise UserError if there are several processes, or another encoder to go on from."""
        if processes > 1 or is_continued:
            raise UserError(
                f"The recipe {recipe} trains vectors from scratch, with its own worker processes. Remove "
                f"{('--from' if is_continued else 'torchrun, and use --workers')}.",
                code="options-exclude-each-other",
            )

    def learn(
        self,
        name: str,
        settings: MethodSettings,
        *,
        corpus: Corpus,
        out: Path,
        watch: Watch,
        wish: Interruption,
        begun: float,
    ) -> bool:
        """Learn the vectors to the end, or resume the run in `out`; return False if a wish has stopped it."""
        from osbert_lab.static_vectors.vector_run import VectorRun  # loads torch, which the settings do not need

        return VectorRun(
            name=name, settings=settings, corpus=corpus, out=out, watch=watch, wish=wish, begun=begun
        ).complete()


METHOD = StaticVectorMethod()
"""The method, for the entry point."""
