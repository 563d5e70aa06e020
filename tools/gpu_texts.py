"""Texts for the stages of benchmarks/gpu.py that train by recipes: a corpus of film reviews, and tables of GLUE.

`make gpu-ready` puts them into build/gpu/texts (tools/gpu_ready.py), where the data are:

    corpus/    DATA/text/reviews.jsonl.xz by 8,192 pieces learnt from it: 15.7M tokens, 35 MiB
    glue/      the training and development rows of SST-2, MRPC and RTE: 5.5 MiB

They are made once: remove the folder to make them anew.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

TEXT = "text/reviews.jsonl.xz"
VOCABULARY = 8_192
GLUE = ("SST-2", "MRPC", "RTE")
TABLES = ("train.tsv", "dev.tsv", "msr_paraphrase_train.txt")
"""The files that recipes_minutes.py reads."""


def pack(data: Path, out: Path, *, vocabulary: int = VOCABULARY) -> bool:
    """Put a corpus and GLUE's tables into the folder `out`, unless it is there; return False if there are no data."""
    if out.is_dir():
        return True
    if not (data / TEXT).is_file() or not all((data / "glue" / name).is_dir() for name in GLUE):
        return False
    from osbert.runs.corpus import build_corpus
    from osbert.runs.tokenizer import VocabularySettings, train_tokenizer

    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as name:
        aside = Path(name) / "texts"
        tokenizer = Path(name) / "tokenizer"
        train_tokenizer([data / TEXT], out=tokenizer, settings=VocabularySettings(vocabulary=vocabulary))
        build_corpus([data / TEXT], tokenizer=tokenizer, out=aside / "corpus")
        for task in GLUE:
            (aside / "glue" / task).mkdir(parents=True)
            for table in TABLES:
                if (data / "glue" / task / table).is_file():
                    shutil.copyfile(data / "glue" / task / table, aside / "glue" / task / table)
        aside.rename(out)  # whole, or not there
    return True


def size(folder: Path) -> int:
    """Return the bytes of a folder's files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
