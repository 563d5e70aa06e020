"""Fine-tunes a classifier on a table and shows where it errs: python examples/classify_rows.py MODEL FILE OUT."""

from __future__ import annotations

import sys

import osbert


def main(model: str, file: str, out: str) -> None:
    """Fine-tune, print the scores of the held-out rows with their interval, and the worst mistakes."""
    run = osbert.finetune("classify", model=model, data=file, out=out)
    for name, value in run.metrics.items():
        print(f"{name}: {value:.4f}")
    if run.interval:
        print(f"95% interval by the bootstrap: {run.interval.low:.4f} to {run.interval.high:.4f}")
    for mistake in run.errors[:5]:
        print(mistake)


if __name__ == "__main__":
    main(*sys.argv[1:4])
