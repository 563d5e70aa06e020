"""Pretraining that is stopped and started again, beside the same in one piece."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import osbert


def resume_bit_for_bit(recipe: str, whole: Path, stopped: Path, step: int, settings: Mapping[str, Any]) -> None:
    """Stop a run in a step, go on with it, and expect the weights of the run that nothing stopped."""

    def stop(event: Any) -> None:
        if getattr(event, "step", 0) == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        osbert.pretrain(recipe, out=stopped, watch=stop, **settings)
    assert not (stopped / "model.safetensors").exists()
    osbert.pretrain(recipe, out=stopped, **settings)
    one, other = (load_file(folder / "model.safetensors") for folder in (whole, stopped))
    assert one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)
