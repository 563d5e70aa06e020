"""What a model is trained on: the contract, and one objective a file; the file's name is the objective's name."""

from osbert.objectives.contract import Objective

__all__ = ["Objective"]
