"""Pairs of sentences on different groups: tables with the columns sent_more and sent_less (CrowS-Pairs)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from osbert.terminal import format_count
from osbert_lab.analysis.forms.contract import DataForm, FileHead, Sampling
from osbert_lab.analysis.judgements import ContrastPair, work
from osbert_lab.analysis.sample import ItemSample
from osbert_lab.analysis.tables import left_out, pieces_of, table_rows, unusable_rows

COLUMNS = ("sent_more", "sent_less")
KIND = "bias_type"


class ContrastPairForm(DataForm):
    """Pairs; all of them are read."""

    position = 3
    files = f"pairs of sentences (a table with the columns {' and '.join(COLUMNS)})"

    def knows(self, file: FileHead) -> bool:
        """Return whether both columns exist."""
        return file.columns >= {*COLUMNS}

    def sample(self, files: Sequence[Path], sampling: Sampling) -> ItemSample[ContrastPair]:
        """Return all pairs, each with its bias_type: the attribute in which the groups differ."""
        problems = unusable_rows("pairs of sentences")
        pairs: list[ContrastPair] = []
        rows = [(path, row) for path in files for row in table_rows(path, COLUMNS, sampling, problems)]
        read = len(rows) + problems.count
        for path, row in rows:
            location = f"{path}, line {row.line}"
            more, less = (pieces_of(row.values[name], location, sampling, problems) for name in COLUMNS)
            if more and less:
                pairs.append(ContrastPair(kind=row.values.get(KIND) or "all", more=more, less=less))
        if sampling.reading.errors == "strict":
            problems.stop_if_any()
        tokens = work((pieces for pair in pairs for pieces in (pair.more, pair.less)), sampling.packer)
        notes = [f"{format_count(len(pairs), 'pair')} of sentences of {read:,} read", *left_out(problems)]
        return ItemSample(items=pairs, read=read, tokens=tokens, notes=notes if read else [])
