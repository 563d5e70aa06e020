"""The three ways to a text's vector: the library, the command and the server."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import osbert
from osbert.commands.embed import VectorOptions, embed
from osbert.server.calls.models import ModelFolder
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker


def vectors(model: Path, texts: Sequence[str], folder: Path) -> dict[str, np.ndarray]:
    """Return the vectors of texts by each way, with no setting given; `folder` is for the command's files."""
    folder.mkdir()
    return {
        "library": osbert.load(model).embed(texts),
        "command": by_command(model, texts, folder),
        "server": by_server(worker_of(model), texts),
    }


def by_command(model: Path, texts: Sequence[str], folder: Path, options: VectorOptions | None = None) -> np.ndarray:
    """Return the vectors that `osbert embed` writes for the texts; `folder` is for its files."""
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    embed(model, folder / "texts.txt", out=folder / "vectors.npy", vectors=options)
    return np.asarray(np.load(folder / "vectors.npy"))


def worker_of(model: Path) -> Worker:
    """Return a worker of the server that holds the model."""
    return Worker(Orders(runs=[ModelFolder("one", model)], device="cpu"))


def request(texts: Sequence[str], **asked: object) -> Dispatch:
    """Return a request for the vectors of texts; what is not `asked` is left to the model."""
    asked = {"texts": list(texts), "pooling": None, "normalise": None, "long": "truncate", **asked}
    return Dispatch(1, "embed", asked, 0.0, math.inf)


def by_server(worker: Worker, texts: Sequence[str], **asked: object) -> np.ndarray:
    """Return the vectors with which a worker answers."""
    assert worker.take_in([request(texts, **asked)]) == []
    (answer,) = worker.work().answers
    assert answer.status == 200, answer.body
    return np.array(json.loads(answer.body)["vectors"], np.float32)
