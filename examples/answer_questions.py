"""Answers questions on a paragraph by a run of squad or span: answer_questions.py RUN PARAGRAPH QUESTION..."""

from __future__ import annotations

import sys

import osbert


def main(run: str, paragraph: str, *questions: str) -> None:
    """Print the likeliest answers to each question, all of them slices of the paragraph; "-" for no answer."""
    reader = osbert.load(run)
    for question, prediction in zip(questions, reader.predict([(question, paragraph) for question in questions])):
        print(question)
        for answer in prediction.candidates[:3]:
            print(f"  {answer.probability:6.1%}  {answer.text or '-'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
