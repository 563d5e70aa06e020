"""The folder that the examples in docstrings and in docs/python.md run in: a tiny encoder, a run and a table."""

from __future__ import annotations

from pathlib import Path

import osbert
from tiny_runs import write_run

ROWS = "".join(
    f"{article}{word}{thing},{label}\n"
    for label, words in {"pos": ("good", "fine"), "neg": ("bad", "poor")}.items()
    for word in words
    for article, thing in (("", ""), ("", " film"), ("a ", " play"), ("the ", " film"))
)


def write_api_folder(folder: Path) -> Path:
    """Write models: `encoder` and `writer`, pretrained by their form, `run`, which knows good from bad; and data:
    `more.csv` and `glue`, whose only set tells them apart, too."""
    write_run(folder / "encoder", None, masks=True)
    write_run(folder / "writer", None, masks=True, direction="left_to_right")
    table = folder / "more.csv"
    table.write_text("text,label\n" + ROWS * 8)
    cola = folder / "glue" / "CoLA"
    cola.mkdir(parents=True)
    rows = [line.split(",") for line in ROWS.splitlines()]
    judged = "".join(f"gj04\t{int(label == 'pos')}\t\t{text}\n" for text, label in rows)
    (cola / "train.tsv").write_text(judged * 8)
    (cola / "dev.tsv").write_text(judged)
    run = osbert.finetune(
        "classify", model=folder / "encoder", data=table, out=folder / "run", epochs=8, batch=8, learning_rate=1e-2
    )
    assert run.metrics["accuracy"] == 1
    return folder
