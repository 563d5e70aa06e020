"""The models that are served: each a run folder with a name, what it is for, and the engine that reads with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from osbert.errors import Problems, UserError, nearest
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.server.schemas import Refused, shortened
from osbert.tasks import Task
from osbert.tasks.kinds.choose import Choose
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.contrastive import Contrastive
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.tag import Tag
from osbert.tasks.tables.texts import TextTask

if TYPE_CHECKING:
    from osbert.inference.embedder import Embedder
    from osbert.inference.engine import Engine

Kind = Literal["classify", "regress", "tag", "span", "choose", "pretraining", "encoder"]


class Run(NamedTuple):
    """A folder to serve, and the name it goes by."""

    name: str
    folder: Path


def named(runs: Sequence[str]) -> list[Run]:
    """Return the runs given as PATH, which may hold a =, or NAME=PATH; a path's name is its folder's.

    Raises UserError when one is no model, or two have one name.
    """
    problems = Problems(heading="These models cannot be served")
    found: dict[str, Run] = {}
    for given in runs:
        name, equals, path = ("", "", given) if Path(given).is_dir() else given.partition("=")
        folder = Path(path if equals else given)
        name = name if equals else folder.resolve().name
        if not folder.is_dir():
            problems.add(f"{folder}: there is no such folder.")
        elif not name:
            problems.add(f"{given}: the name is empty. Write NAME=PATH, or the path alone.")
        elif name in found:
            problems.add(f"{found[name].folder} and {folder} are both called {name}. Write NAME=PATH for one of them.")
        found.setdefault(name, Run(name, folder))
    problems.stop_if_any()
    return list(found.values())


class Model:
    """A run that is served."""

    def __init__(self, name: str, engine: Engine) -> None:
        """Give `engine` a name. Raises UserError when its task, or an encoder of such a length, cannot be served.

        `length`: the most tokens that it reads at once; of an encoder, those that its vectors are made of. `remarks`:
        what was odd about its folder, and what it asks for that its vectors are made without.
        """
        from osbert.inference.embedder import vector_settings

        self.name = name
        self.engine = engine
        self.masks = engine.masks
        self.kind: Kind = kind(engine, masks=self.masks is not None)
        self.length = engine.packer.length
        if self.kind == "encoder":
            # Its own pooling may be unsupported: the first request for it gets the error.
            self.length = vector_settings(EmbeddingOptions(pooling="mean"), engine).length
        self.remarks = (*engine.remarks, *engine.not_applied)

    def told(self) -> dict[str, Any]:
        """Return what /v1/models tells."""
        task = self.engine.task
        labels = getattr(task, "labels", None)
        names = {"labels": list(labels)} if labels else {}
        return {"name": self.name, "kind": self.kind, **names, "fields": fields(task), "length": self.length}

    def embedder(self, options: EmbeddingOptions) -> Embedder:
        """Return what makes the vectors that a request wants.

        Raises Refused, 422, when the model was trained for what there is not here.
        """
        try:
            return self.engine.embedder(options)
        except UserError as error:
            raise Refused(422, str(error), field="pooling") from error


def kind(engine: Engine, *, masks: bool) -> Kind:
    """Return what an engine's model is for: its task's kind, else whether it can fill `masks`.

    What was taught that alike texts get near vectors is an encoder.
    """
    kinds: tuple[tuple[type[Task], Kind], ...] = (
        (Classify, "classify"), (Regress, "regress"), (Tag, "tag"), (Span, "span"), (Choose, "choose"),
        (Contrastive, "encoder"),
    )  # fmt: skip
    for class_, name in kinds:
        if isinstance(engine.task, class_):
            return name
    if engine.task is not None:
        raise UserError(f"{engine.folder}: a task of the kind {engine.task.name} cannot be served.")
    return "pretraining" if masks else "encoder"


def fields(task: Task | None) -> list[str]:
    """Return what a request says for a model of a task: its texts by name, or the columns of a record."""
    if isinstance(task, Contrastive):
        return ["text"]
    if isinstance(task, Span):
        return ["question", "paragraph"]
    if isinstance(task, Choose):
        prefix = (task.prefix,) if task.prefix else ()
        return [*task.context, *prefix, *task.choices] if task.context and task.choices else ["context", "choices"]
    return ["text", "other"] if isinstance(task, TextTask) and task.pair else ["text"]


def find(models: Mapping[str, Model], name: str | None, kinds: Sequence[Kind], what: str) -> Model:
    """Return the model of a name, or the first of these kinds; raises Refused when there is none.

    `what`: what is asked of it, in words.
    """
    able = [model for model in models.values() if model.kind in kinds]
    if name is None:
        if able:
            return able[0]
        raise Refused(404, f"None of the models here can {what}: {', '.join(_listed(models))}.")
    if name not in models:
        short = shortened(name)
        known = f"There is no model '{short}' here, but {', '.join(_listed(models))}."
        raise Refused(404, known + nearest(short, models), field="model")
    if models[name] not in able:
        raise Refused(422, f"The model {name} ({models[name].kind}) cannot {what}.", field="model")
    return models[name]


def _listed(models: Mapping[str, Model]) -> Iterator[str]:
    yield from (f"{model.name} ({model.kind})" for model in models.values())
