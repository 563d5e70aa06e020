"""Pretraining objectives: the contract, and one objective in each file, which gives it its name."""

from osbert.objectives.contract import Objective

__all__ = ["Objective"]
