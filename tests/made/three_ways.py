"""The three ways to a text's vector: the library, the command and the server."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import osbert
from osbert.commands.embed import embed
from osbert.server.models import ModelFolder
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker


def vectors(model: Path, texts: Sequence[str], folder: Path) -> dict[str, np.ndarray]:
    """Return the vectors of texts by each way, with no setting given; `folder` is for the command's files."""
    folder.mkdir()
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    embed(model, folder / "texts.txt", out=folder / "x.npy")
    worker = Worker(Orders(runs=[ModelFolder("one", model)], device="cpu"))
    asked = {"texts": list(texts), "pooling": None, "normalise": None}
    assert worker.take_in([Dispatch(1, "embed", asked, 0.0, math.inf)]) == []
    (answer,) = worker.work().answers
    return {
        "library": osbert.load(model).embed(texts),
        "command": np.load(folder / "x.npy"),
        "server": np.array(json.loads(answer.body)["vectors"], np.float32),
    }
