"""The models that are served: each a run folder with a name, what it is for, and the engine that reads with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from osbert import components
from osbert.errors import Problems, UserError, nearest
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.server.limits import MOST_BEAMS, MOST_PIECES
from osbert.server.schemas import Refusal, shortened
from osbert.tasks import Task
from osbert.tasks.edges import Edge

if TYPE_CHECKING:
    from osbert.inference.embedder import Embedder
    from osbert.inference.engine import Engine

ENCODER = Edge(kind="encoder")
"""How a model without a task is served: it embeds texts."""
PRETRAINED = Edge(kind="pretraining", call="fill-mask")
"""How one with a masked-LM head is served."""
WRITER = Edge(kind="writer", call="generate")
"""How one is served that goes on with texts."""
EMBED = "embed"
"""The call that every model answers."""
EXPLAIN = "explain"
"""The call that models answer whose predictions can be explained."""
ATTENTION = "attention"
"""The call that models answer which have attention and are computed by torch."""
ANNOTATE, ANNOTATING = "annotate", ("predict", "tag")
"""The call that reads an annotation tool's records, and the calls of the models that answer it."""


def kinds() -> list[str]:
    """Return the kinds of models that osbert serves by itself."""
    tasks: list[type[Task]] = [components.find("tasks", name, base=Task) for name in components.names("tasks")]
    return sorted({PRETRAINED.kind, ENCODER.kind, WRITER.kind, *(task.edge.kind for task in tasks if task.edge)})


class WritingLimits(NamedTuple):
    """The most pieces that are written for a text, and the most beams."""

    pieces: int = MOST_PIECES
    beams: int = MOST_BEAMS


class ModelFolder(NamedTuple):
    """A folder to serve, and the name it goes by."""

    name: str
    folder: Path


def named(runs: Sequence[str]) -> list[ModelFolder]:
    """Return the runs given as PATH, which may hold a =, or NAME=PATH; a path's name is its folder's.

    Raises UserError when one is no model, or two have one name.
    """
    problems = Problems(heading="These models cannot be served")
    found: dict[str, ModelFolder] = {}
    for given in runs:
        name, equals, path = ("", "", given) if Path(given).is_dir() else given.partition("=")
        folder = Path(path if equals else given)
        name = name if equals else folder.resolve().name
        if not folder.is_dir():
            problems.add(f"{folder}: there is no such folder.", code="missing-file")
        elif not name:
            problems.add(f"{given}: the name is empty. Write NAME=PATH, or the path alone.", code="invalid-value")
        elif name in found:
            problems.add(
                f"{found[name].folder} and {folder} are both called {name}. Write NAME=PATH for one of them.",
                code="duplicate-name",
            )
        found.setdefault(name, ModelFolder(name, folder))
    problems.stop_if_any()
    return list(found.values())


class ServerModel:
    """A run that is served."""

    def __init__(self, name: str, engine: Engine, writing: WritingLimits = WritingLimits()) -> None:  # noqa: B008
        """Give `engine` a name. Raises UserError when its task, or an encoder of such a length, cannot be served.

        `length`: the most tokens that it reads at once; of an encoder, those that its vectors are made of. `remarks`:
        what was odd about its folder, and what it asks for that its vectors are made without.
        """
        from osbert.inference.embedder import vector_settings

        self.name = name
        self.engine = engine
        self.writing = writing
        self.masks = engine.masks
        self.edge = _edge(engine, masks=self.masks is not None)
        self.length = engine.packer.length
        if not self.edge.call:
            # Its own pooling may be unsupported: the first request for it gets the error.
            self.length = vector_settings(EmbeddingOptions(pooling="mean"), engine).length
        self.remarks = (*engine.remarks, *engine.not_applied)

    def facts(self) -> dict[str, Any]:
        """Return its entry in /v1/models."""
        task = self.engine.task
        labels = task.published().get("labels") if task else None
        names = {"labels": list(labels)} if labels else {}
        fields = list(task.request_fields) if task else ["text"]
        own = {"call": asdict(self.edge)} if self.edge.is_own else {}
        learnt = {"columns": list(task.request_columns), "range": list(task.number_range)} if task else {}
        told = {name: values for name, values in learnt.items() if values}
        return {
            "name": self.name,
            "kind": self.edge.kind,
            **names,
            "fields": fields,
            "length": self.length,
            "explains": self.engine.explains,
            "writes": self.answers(WRITER.call),
            **told,
            **own,
        }

    def answers(self, call: str) -> bool:
        """Return whether a call can be answered by it."""
        if call == EXPLAIN:
            return self.engine.explains
        if call == ATTENTION:
            from osbert.inference.attention import attends

            return attends(self.engine.backend)
        if call == WRITER.call and self.engine.writes:
            return True
        return call in (EMBED, self.edge.call) or (call == ANNOTATE and self.edge.call in ANNOTATING)

    def embedder(self, options: EmbeddingOptions) -> Embedder:
        """Return the embedder for these options.

        Raises Refusal (422) if the model needs a pooling that osbert does not support.
        """
        try:
            return self.engine.embedder(options)
        except UserError as error:
            raise Refusal(422, str(error), field="pooling") from error


def _edge(engine: Engine, *, masks: bool) -> Edge:
    """Return how an engine's model is served: as its task's kind declares, else by whether it can fill `masks`.

    Raises UserError if its kind declares nothing.
    """
    if engine.task is None:
        return PRETRAINED if masks else WRITER if engine.writes else ENCODER
    if engine.task.edge is None:
        raise UserError(
            f"{engine.folder}: a task of the kind {engine.task.name} cannot be served: its class declares no edge "
            "(docs/add-a-task.md).",
            code="invalid-component",
        )
    return engine.task.edge


def find(models: Mapping[str, ServerModel], name: str | None, call: str, what: str) -> ServerModel:
    """Return the model of a name, or the first that answers a call; raises Refusal when there is none.

    `what`: what the call does, in words.
    """
    able = [model for model in models.values() if model.answers(call)]
    if name is None:
        if able:
            return able[0]
        raise Refusal(404, f"None of the models here can {what}: {', '.join(_listed(models))}.")
    if name not in models:
        short = shortened(name)
        known = f"There is no model '{short}' here, but {', '.join(_listed(models))}."
        raise Refusal(404, known + nearest(short, models), field="model")
    if models[name] not in able:
        raise Refusal(422, f"The model {name} ({models[name].edge.kind}) cannot {what}.", field="model")
    return models[name]


def _listed(models: Mapping[str, ServerModel]) -> Iterator[str]:
    yield from (f"{model.name} ({model.edge.kind})" for model in models.values())
