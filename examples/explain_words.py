"""Shows which words made a run say what it says, as bars: python examples/explain_words.py RUN TEXT."""

from __future__ import annotations

import sys

import osbert


def main(run: str, text: str) -> None:
    """Print the prediction, and for each word what it adds to the score of that prediction (integrated gradients)."""
    model = osbert.load(run)
    (prediction,) = model.predict([text])
    (explanation,) = model.explain(text)
    print(f"{prediction.value}, {max(prediction.probabilities.values()):.1%}")
    for word in explanation.words:
        bar = ("+" if word.weight > 0 else "-") * round(10 * abs(word.weight))
        print(f"{word.weight:+7.3f}  {word.word:15}  {bar}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
