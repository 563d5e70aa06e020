"""Work that is stopped and started again: pretraining, beside the same in one piece, and the update of vectors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import osbert
from osbert.runs.contract import WorkProgress
from osbert.runs.rows import vector_parts


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


def stop_an_update(monkeypatch: pytest.MonkeyPatch, model: Path, file: Path, out: Path) -> None:
    """Stop `osbert embed --update` after four texts of a file, in windows of two, and expect the output of before."""

    def stop(event: Any) -> None:
        if isinstance(event, WorkProgress) and event.done == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(vector_parts, "ROWS", 2)
    before = out.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        osbert.embed(model, file, out=out, update=True, watch=stop)
    assert out.read_bytes() == before
