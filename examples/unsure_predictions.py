"""Shows the texts that a classifier is least sure of, the first ones to look at: RUN FILE, one text a line."""

from __future__ import annotations

import sys
from pathlib import Path

import osbert


def main(run: str, file: str) -> None:
    """Print the texts in the order of their highest probability, lowest first."""
    texts = [line for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
    said = zip(osbert.load(run).predict(texts), texts)
    for prediction, text in sorted(said, key=lambda pair: max(pair[0].probabilities.values())):
        print(f"{max(prediction.probabilities.values()):.1%}  {prediction.value}  {text}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
