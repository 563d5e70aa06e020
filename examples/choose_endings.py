"""Chooses the text that goes best with another, by a run of swag or choose: choose_endings.py RUN CONTEXT CHOICE..."""

from __future__ import annotations

import sys

import osbert


def main(run: str, context: str, *choices: str) -> None:
    """Print the choices with their probabilities, an arrow before the chosen one."""
    (prediction,) = osbert.load(run).predict([(context, *choices)])
    for choice, probability in zip(choices, prediction.probabilities.values()):
        print(f"{'->' if choice == prediction.choice else '  '} {probability:6.1%}  {choice}")


if __name__ == "__main__":
    main(*sys.argv[1:])
