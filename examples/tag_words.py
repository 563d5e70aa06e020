"""Fine-tunes a tagger and marks the entities of texts: python examples/tag_words.py MODEL DATA OUT TEXT..."""

from __future__ import annotations

import sys

import osbert
from osbert.tasks import Prediction


def marked(text: str, prediction: Prediction) -> str:
    """Return a text with its entities in brackets: "[Ada Lovelace PER] wrote it"."""
    for entity in sorted(prediction.value, key=lambda one: -one.start):
        text = f"{text[: entity.start]}[{entity.text} {entity.type}]{text[entity.end :]}"
    return text


def main(model: str, data: str, out: str, *texts: str) -> None:
    """Fine-tune on a file of tagged words, or a folder with train and dev files, and print each text with its marks."""
    run = osbert.finetune("tag", model=model, data=data, out=out)
    print(f"F1 of whole entities: {run.metrics['f1']:.4f}")
    for text, prediction in zip(texts, run.predict(texts)):
        print(marked(text, prediction))


if __name__ == "__main__":
    main(*sys.argv[1:])
