"""The served models: a run folder, its name, the calls that it answers, and its engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from osbert import components
from osbert.errors import Problems, UserError, nearest
from osbert.extensions import extensions
from osbert.inference.label_settings import SLOT
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.server.calls import MOST_BEAMS, MOST_PIECES
from osbert.server.calls.schemas import Refusal, shorten
from osbert.tasks import Task
from osbert.tasks.edges import Edge

if TYPE_CHECKING:
    from osbert.inference.embedder import Embedder
    from osbert.inference.engine import Engine
    from osbert.inference.label_predictor import LabelPredictor
    from osbert.inference.label_settings import LabelNames, NamingOptions
    from osbert.runs.similarity.served_search import ServedSearch

ENCODER = Edge(kind="encoder")
"""Edge of a model without a task or language head: it embeds texts."""
PRETRAINED = Edge(kind="pretraining", call="fill-mask")
"""Edge of a model with a masked-LM head."""
WRITER = Edge(kind="writer", call="generate")
"""Edge of a model that continues texts."""
SOURCE_WRITER = Edge(kind="source_writer", call=WRITER.call)
"""Edge of an encoder-decoder, whose text is not a continuation of the given one."""
EMBED = "embed"
"""Name of the call that every model answers."""
EMBED_SPARSE = "embed-sparse"
"""Name of what models that were trained for sparse vectors can do."""
EXPLAIN = "explain"
"""Name of the call for models whose predictions can be explained."""
SEARCH = "search"
"""Name of the call for the model that embeds the queries of served files of vectors."""
ATTENTION = "attention"
"""Name of the call for models with attention that run in torch."""
PREDICT = "predict"
"""Name of the call that models of sentences and masks answer, too, for classes by name."""
ANNOTATE, ANNOTATING = "annotate", ("predict", "tag")
"""Name of the call for records of an annotation tool, and the calls of the models that answer it."""

KEPT = 16
"""Most lists of classes by name that a model keeps ready."""


def kinds() -> list[str]:
    """Return the sorted kinds of models that osbert can serve, without those of served third-party tasks."""
    tasks: list[type[Task]] = [components.find("tasks", name, base=Task) for name in components.names("tasks")]
    builtin_edges = (PRETRAINED, ENCODER, WRITER, SOURCE_WRITER)
    return sorted({*(edge.kind for edge in builtin_edges), *(task.edge.kind for task in tasks if task.edge)})


class WritingLimits(NamedTuple):
    """Limits of generation: most pieces of a generated text, and most beams."""

    pieces: int = MOST_PIECES
    beams: int = MOST_BEAMS


class ModelFolder(NamedTuple):
    """A model folder and the name that it is served by."""

    name: str
    folder: Path


def parse_models(runs: Sequence[str]) -> list[ModelFolder]:
    """Return the models given as NAME=PATH or PATH (its name is then the folder's name; PATH may contain "=").

    Raises UserError that lists every missing folder, empty name and duplicate name.
    """
    problems = Problems(heading="These models cannot be served")
    folders: dict[str, ModelFolder] = {}
    for given in runs:
        # An existing folder wins over NAME=PATH, so that folder names with "=" work.
        name, equals, path = ("", "", given) if Path(given).is_dir() else given.partition("=")
        folder = Path(path if equals else given)
        name = name if equals else folder.resolve().name
        if not folder.is_dir():
            problems.add(f"{folder}: there is no such folder.", code="missing-file")
        elif not name:
            problems.add(f"{given}: the name is empty. Write NAME=PATH, or the path alone.", code="invalid-value")
        elif name in folders:
            problems.add(
                f"{folders[name].folder} and {folder} are both called {name}. Write NAME=PATH for one of them.",
                code="duplicate-name",
            )
        folders.setdefault(name, ModelFolder(name, folder))
    problems.stop_if_any()
    return list(folders.values())


def include_folder(runs: Sequence[ModelFolder], folder: Path | None) -> list[ModelFolder]:
    """Return the runs with the model in a folder, if it is not one of them. Raises UserError if there is none."""
    from osbert.runs.similarity.retrieval import name_model

    if not (runs or folder):
        raise UserError("Give a run, osbert serve RUN, or a file of vectors, --vectors.", code="missing-option")
    if folder is None or any(run.folder.resolve() == folder.resolve() for run in runs):
        return [*runs]
    return [*runs, ModelFolder(name_model(folder), folder)]


class ServerModel:
    """A served model: its engine, its edge (kind and call) and the limits of its answers."""

    def __init__(self, name: str, engine: Engine, writing: WritingLimits = WritingLimits()) -> None:  # noqa: B008
        """Serve `engine` as `name`. Raises UserError if its task or the length of its sequences cannot be served.

        `length`: most tokens of a sequence; for an encoder, of a text to embed. `remarks`: oddities of its folder, and
        prompts that a request has to name. `search`: the search whose queries it embeds.
        """
        from osbert.inference.embedder import name_prompts, vector_settings

        self.name = name
        self.engine = engine
        self.writing = writing
        self.masks = engine.masks
        self.edge = _edge(engine, masks=self.masks is not None)
        self.length = engine.packer.length
        if not self.edge.call:
            # Its own pooling may be unsupported: the first request for it gets the error.
            self.length = vector_settings(EmbeddingOptions(pooling="mean"), engine).length
        sentences = engine.sentence_model("mean")
        prompts = name_prompts(sentences.prompts) if sentences and not sentences.prompts.of(None) else ()
        self.remarks = (*engine.remarks, *prompts)
        self.search: ServedSearch | None = None
        self._predictors: dict[tuple[LabelNames, NamingOptions], LabelPredictor] = {}

    def facts(self) -> dict[str, Any]:
        """Return the model's entry in /v1/models."""
        task = self.engine.task
        labels = task.export_metadata().get("labels") if task else None
        names = {"labels": list(labels)} if labels else {}
        fields = list(task.request_fields) if task else ["text"]
        sentences = self.engine.sentence_model("mean")
        call_facts = {"call": asdict(self.edge)} if self.edge.is_own else {}
        return {
            "name": self.name,
            "kind": self.edge.kind,
            **names,
            "fields": fields,
            "length": self.length,
            **({} if self.edge.call else {"pooling": sentences.pooling if sentences else "mean"}),
            "explains": self.engine.explains,
            "writes": self.answers(WRITER.call),
            **({"by_name": self.by_name} if self.by_name else {}),
            **({"search": self.search.facts()} if self.search else {}),
            **(task.training_facts if task else {}),
            **call_facts,
        }

    def answers(self, call: str) -> bool:
        """Return whether the model can answer a call."""
        if call == EXPLAIN:
            return self.engine.explains
        if call == EMBED_SPARSE:
            return self._is_sparse
        if call == SEARCH:
            return self.search is not None
        if call == ATTENTION:
            from osbert.inference.explain import attends

            return attends(self.engine)
        if call == WRITER.call and self.engine.writes:
            return True
        if call == PREDICT and self.edge.call != call:
            return self.by_name == "classes"
        return call in (EMBED, self.edge.call) or (call == ANNOTATE and self.edge.call in ANNOTATING)

    @cached_property
    def by_name(self) -> str:
        """Return what it predicts by names that a request gives: classes, or types of entities; "" for neither."""
        from osbert.inference.label_predictor import choose_scorer
        from osbert.inference.label_settings import NamingOptions

        try:
            return choose_scorer(self.engine, NamingOptions()).subject
        except UserError:
            return ""

    @cached_property
    def _is_sparse(self) -> bool:
        from osbert.inference.embedder import vector_settings

        try:
            return vector_settings(EmbeddingOptions(), self.engine).kind == "sparse"
        except UserError:
            return False

    def label_predictor(self, labels: LabelNames, options: NamingOptions) -> LabelPredictor:
        """Return the predictor of labels by name, kept for the next request with the same ones.

        Raises Refusal (422) for labels that the model cannot predict, and for a template without {label}.
        """
        from osbert.inference.label_predictor import LabelPredictor
        from osbert.inference.label_settings import read_labels

        if (labels, options) not in self._predictors:
            try:
                options.template_or(SLOT)
            except UserError as error:
                raise self._refusal(error, "template") from error
            try:
                predictor = LabelPredictor(self.engine, read_labels(labels, where="labels"), options)
            except UserError as error:
                # With one label `multi` may be the client's translation, not the user's.
                excluded = error.code == "options-exclude-each-other" and len(labels) > 1
                raise self._refusal(error, "multi" if excluded else "labels") from error
            if len(self._predictors) >= KEPT:
                self._predictors.clear()
            self._predictors[labels, options] = predictor
        return self._predictors[labels, options]

    def embedder(self, options: EmbeddingOptions, *, sparse: bool = False) -> Embedder:
        """Return the embedder for these options.

        Raises Refusal (422) if the model lacks the role, gives sparse vectors without `sparse`, or needs a pooling or
        part that osbert does not support.
        """
        try:
            embedder = self.engine.embedder(options)
            kind = embedder.settings.kind
            if kind == "multi" or (kind == "sparse" and not sparse):
                call = "/embed_sparse" if kind == "sparse" and extensions("osbert.server.clients") else "no call"
                raise Refusal(
                    422,
                    f"The vectors of {self.name} are {kind}, for which there is {call}. Name a pooling, such as "
                    "mean, for the states of its encoder.",
                    field="pooling",
                )
            return embedder
        except UserError as error:
            # Without the field at fault there is a vector; else this refuses another field.
            field = "pooling"
            if options.dimensions:
                self.embedder(replace(options, dimensions=0), sparse=sparse)
                field = "dimensions"
            elif options.role is not None:
                self.embedder(replace(options, role=None), sparse=sparse)
                field = "role"
            raise self._refusal(error, field) from error

    def _refusal(self, error: UserError, field: str) -> Refusal:
        """Return the refusal (422) of a request for which the model will not do, without the path of its folder."""
        return Refusal(422, str(error).replace(str(self.engine.folder), f"the model {self.name}"), field=field)


def _edge(engine: Engine, *, masks: bool) -> Edge:
    """Return the edge that the task declares; without a task, the edge that fits the model's head.

    `masks`: whether the model fills masks. Raises UserError if the task declares no edge.
    """
    if engine.task is None:
        writer = SOURCE_WRITER if engine.backend.architecture.has_decoder else WRITER
        return PRETRAINED if masks else writer if engine.writes else ENCODER
    if engine.task.edge is None:
        raise UserError(
            f"{engine.folder}: a task of the kind {engine.task.name} cannot be served: its class declares no edge "
            "(docs/add-a-task.md).",
            code="invalid-component",
        )
    return engine.task.edge


def find(models: Mapping[str, ServerModel], name: str | None, call: str, what: str, labels: Any = None) -> ServerModel:
    """Return the model `name`, or for None the first model that answers `call`.

    `what`: a verb phrase for the call, for messages. `labels`: those that the request names. Raises Refusal: 404 if
    there is no such model, 422 if the model does not answer this call.
    """
    able = [model for model in models.values() if model.answers(call)]
    if name is None:
        # One whose own call it is, before those that answer it for classes by name alone; with labels one of those.
        # For vectors an encoder, whose edge has no call.
        own_call = "" if call == EMBED else call
        if able:
            return next(
                (model for model in able if (model.by_name if labels else model.edge.call == own_call)), able[0]
            )
        raise Refusal(404, f"None of the models here can {what}: {', '.join(_list_models(models))}.")
    if name not in models:
        short = shorten(name)
        known = f"There is no model '{short}' here, but {', '.join(_list_models(models))}."
        raise Refusal(404, known + nearest(short, models), field="model")
    if models[name] not in able:
        raise Refusal(422, f"The model {name} ({models[name].edge.kind}) cannot {what}.", field="model")
    return models[name]


def _list_models(models: Mapping[str, ServerModel]) -> Iterator[str]:
    yield from (f"{model.name} ({model.edge.kind})" for model in models.values())
