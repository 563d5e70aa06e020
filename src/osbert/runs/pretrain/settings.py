"""The settings of pretraining: a table for each part and each objective, checked before the run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from osbert import __version__, components, recipe
from osbert.corpus.shards import Corpus, open_corpus
from osbert.data.loader import LoaderSettings, PretrainingLoader
from osbert.data.pack import Packer
from osbert.data.stages import Curriculum, Stages
from osbert.errors import Problems, UserError
from osbert.extensions import extensions, require_extension
from osbert.interop.hub import hub_facts
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.tokenizers import read_any_tokenizer
from osbert.models.settings import settings_of
from osbert.models.sizes import Sizes
from osbert.objectives import Objective
from osbert.runs.contract import Watch
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.training.interruption import Interruption
from osbert.training.optimizer import OptimizerSettings
from osbert.training.run_folder import RunFolder
from osbert.training.settings import TrainingSettings
from osbert.training.tracking import require_trackers

if TYPE_CHECKING:
    from osbert.runs.pretrain.start import Origin


@dataclass(frozen=True, kw_only=True)
class DataSettings(LoaderSettings):
    """How sequences are laid out from the corpus and grouped into steps."""

    length: int = 128
    """Most tokens in a sequence, [CLS] and [SEP] included."""
    short: float = 0.1
    """Fraction of the sequences with a random shorter target length."""
    cross_documents: bool = False
    """Let a sequence continue in the next document, after another [SEP] (RoBERTa's FULL-SENTENCES). Only for objectives
    that do not lay out their own sequences."""
    streams: bool = False
    """Cut the corpus into `batch` contiguous streams; each step has the next sequence of each, as model.memory needs.
    Documents follow each other, and `short`, `cross_documents`, `pool` and `duplicates` have no effect."""
    curriculum: Curriculum = "together"
    """How the steps are divided among several objectives. together: each step trains all of them on the same sequences.
    Otherwise each step trains one, with sequences of its own, and all have the same number of steps: at_once draws one
    of all; one_by_one trains one after the other; continual brings in one in each stage, while the others go on
    (ERNIE 2.0)."""
    long_share: float = 0.0
    """Fraction of the steps, the last ones, with longer sequences; BERT: 0.1."""
    long_length: int = 512
    """Most tokens in a sequence in those last steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.long_share <= 1:
            raise ValueError(f"long_share must be a fraction from 0 to 1, not {self.long_share}")


def conflicts(objectives: Mapping[str, Objective], data: DataSettings, model: Sizes) -> Iterator[str]:
    """Yield a message for each pair of objectives or settings that conflict."""
    for name, objective in objectives.items():
        if data.duplicates and objective.course():
            masks = f"data.duplicates = {data.duplicates} repeats the masks of earlier epochs"
            yield f"{masks}, which {name}.later_rates or unit_from changes in the course of the run. Leave one out."
    layout_names = [name for name, objective in objectives.items() if objective.lays_out()]
    if data.cross_documents and layout_names:
        nothing = f"data.cross_documents does nothing with {layout_names[0]}"
        yield f"{nothing}, which lays out sequences of its own. Leave one out."
    if data.streams and layout_names:
        cut = "data.streams = true cuts the text regardless of sequences"
        yield f"{cut}, but {layout_names[0]} lays out its own. Drop one."
    if (memory := getattr(model, "memory", 0)) and not data.streams:
        yield f"model.memory is {memory}, but no sequence continues an earlier one. Set data.streams = true."
    together = data.curriculum == "together"
    yield from _together(objectives, layout_names) if together else _in_turn(objectives, data, model)


def _together(objectives: Mapping[str, Objective], layout_names: list[str]) -> Iterator[str]:
    """Yield the conflicts of objectives that are trained on the same sequences, which `layout_names` lay out."""
    for other in layout_names[1:]:
        # The loader asks the first alone: no sequence would have a target of the other.
        both = f"{layout_names[0]} and {other} both lay out sequences"
        yield f'{both}. Leave one out, or set data.curriculum = "continual".'
    kinds = {name: type(objective) for name, objective in objectives.items()}
    hiding = [name for name, kind in kinds.items() if kind.corrupts() and not kind.before_noise]
    for name in (name for name, kind in kinds.items() if kind.alone and len(hiding) > 1):
        others = [other for other in hiding if other != name]
        yield f"{name} fills all masks of a sequence, and {others[0]} hides pieces too. Leave one out."
    noisy: list[str] = []
    for name, kind in kinds.items():
        last = next((other for other in noisy if kinds[other].after_noise), "")
        if noisy and (kind.before_noise or (last and kind.corrupts())):
            other = last or noisy[0]
            yield f"{name} would take what {other} has hidden for text. Name {name} before {other} in objectives."
        elif not kind.before_noise and kind.corrupts():
            noisy.append(name)


def _in_turn(objectives: Mapping[str, Objective], data: DataSettings, model: Sizes) -> Iterator[str]:
    """Yield what excludes a curriculum, in which each step trains one objective."""
    if len(objectives) < 2:
        yield f'data.curriculum = "{data.curriculum}" divides the steps among objectives, but there is only one.'
    if data.streams:
        yield f'data.curriculum = "{data.curriculum}" is not for streams, which one objective reads. Drop one.'
    tasks, wanted = getattr(model, "tasks", 0), len(objectives)
    if 0 < tasks < wanted:
        yield f"model.tasks is {tasks}, but there are {wanted} objectives. Set model.tasks = {wanted}, or name fewer."


def fit_first_position(settings: Any, tokenizer: AnyTokenizer) -> tuple[Any, list[str]]:
    """Return settings whose first position, unless it is 0, is the padding id + 1, and a remark if that changes it."""
    first = getattr(settings.model, "first_position", 0)
    # At 0 the tokenizer is not asked: GPT's has no padding.
    if not first or first == (wanted := tokenizer.pad + 1):
        return settings, []
    remark = (
        f"model.first_position is {wanted} instead of {first}: positions begin behind the padding id, which is "
        f"{tokenizer.pad} in the corpus's tokenizer."
    )
    return dataclasses.replace(settings, model=settings.model.replace(first_position=wanted)), [remark]


VERIFIED = 2**30
"""Most bytes of a corpus that is compared with its hashes before each run: a second or two."""
BASIC = ("objectives", "family")
"""Settings that determine which other settings exist."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of every recipe; `schema` adds a table for each part and each objective."""

    objectives: tuple[str, ...] = ("mlm", "nsp")
    """The objectives: names of files in objectives/, or dotted names of your own."""
    family: str | None = None
    """The family of the backbone: a file in models/families/, with the settings in [model]; none: transformer."""
    minutes: float = 0.0
    """Time budget for the whole run in minutes; 0 for none. A short speed test then sets training.steps, which stay
    the same if the run is stopped and resumed."""
    trained: Literal["heads"] | None = None
    """heads: the encoder that is trained further is frozen, and only heads are trained. none: all weights are."""
    forgetting: float | None = None
    """The run ends if a held-out loss on the earlier text, or on general text, rises above its lowest value by more
    than this, in nats. none: it does not."""

    def __post_init__(self) -> None:
        """Raise ValueError for negative minutes, and for a limit of forgetting that is never evaluated."""
        if not 0 <= self.minutes < float("inf"):
            raise ValueError(f"minutes must be above 0, or 0 to train for training.steps, not {self.minutes}")
        if self.forgetting is not None and not self.forgetting > 0:
            raise ValueError(f"forgetting must be above 0, not {self.forgetting}")
        training = getattr(self, "training", None)  # of a class that `schema` has made
        if self.forgetting and training and not training.evaluate_every:
            raise ValueError(
                "--forgetting is checked at each evaluation, but training.evaluate_every = 0 means none: give a "
                "number of steps, or --forgetting none"
            )


def schema(objectives: Sequence[str], *, family: str | None = None, trust: bool = False) -> type:
    """Return the dataclass of a recipe's settings, with a table for each objective, under its name.

    Raises UserError for unknown objectives and families, and for code outside osbert without `trust`.
    """
    parts: list[Any] = [
        ("model", settings_of(family)),
        ("data", DataSettings),
        *((table_of(name), components.find("objectives", name, base=Objective, trust=trust)) for name in objectives),
        ("optimizer", OptimizerSettings),
        ("training", TrainingSettings),
    ]
    return recipe.make_schema("FullRecipe", tuple(parts), (Recipe,))


class Method(Protocol):
    """A method of pretraining with settings and a loop of its own, which another package adds.

    An entry point in the group `osbert.runs.pretrain.methods` leads to it, named for the setting by which its recipes
    choose it, such as `vectors`. Its module does not import torch.
    """

    about: str
    """What its recipes do, for messages: "learns vectors of words without context"."""
    scratch: tuple[str, ...]
    """Files of its run folder that are not uploaded to an object store."""

    def schema(self, table: Mapping[str, Any]) -> type:
        """Return the settings class of a recipe. Raises UserError if the method does not know it."""

    def check(self, recipe: str, *, processes: int, is_continued: bool) -> None:
        """Raise UserError if it cannot run in so many processes of torchrun, or go on from another encoder."""

    def learn(
        self, name: str, settings: Any, *, corpus: Corpus, out: Path, watch: Watch, wish: Interruption, begun: float
    ) -> bool:
        """Start the run in `out`, or resume it; return False if a wish has stopped it."""


def find_method(table: Mapping[str, Any]) -> Method | None:
    """Return the method of another package that a recipe chooses by a setting of its own; None for any other recipe.

    Entry points are read only for a setting that is not of `Recipe`.
    """
    usual = {field.name for field in dataclasses.fields(Recipe)}
    for name, value in table.items():
        if name not in usual and not isinstance(value, Mapping):
            extension = components.extension("runs.pretrain.methods", name)
            if extension is not None:
                method: Method = extension.load()
                return method
    return None


def every_schema() -> list[type]:
    """Return schemas with all settings of recipes, for the signature of the function; osbert's own family is the first.

    For each family there is one for each objective, and one for all of them, as two may have a setting of one name.
    Families of other packages count if their settings load without torch.
    """
    objectives = components.names("objectives")
    return [
        schema(names, family=family)
        for family in (*components.own_names("models.families"), *extensions("osbert.models.settings"))
        for names in ([objectives] + [[name] for name in objectives])
    ]


def table_of(objective: str) -> str:
    """Return the name of an objective's table: the last part of a dotted name."""
    return objective.rpartition(".")[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainPlan:
    """A run that is ready to start: settings resolved, inputs opened and checked.

    `budget`: the settings that replace `minutes` (budget.py); they are stored in run.json.
    """

    name: str
    settings: Any
    corpus: Corpus
    tokenizer: AnyTokenizer
    budget: Mapping[str, Any] | None = None
    origin: Origin | None = None
    """The encoder that is trained further; None to start from random weights."""
    given: frozenset[str] = frozenset()
    """Dotted names of the settings that the user gave."""
    general: Corpus | None = None
    """Corpus of general text, to measure how much the encoder forgets."""
    remarks: tuple[str, ...] = ()
    """Remarks on the settings, for the user."""
    begun: float = dataclasses.field(default_factory=time.monotonic)
    """Start of the time budget, by time.monotonic."""

    @property
    def objectives(self) -> dict[str, Objective]:
        """The objectives by name, in their order."""
        return {table_of(name): getattr(self.settings, table_of(name)) for name in self.settings.objectives}

    def loader(self, *, length: int) -> PretrainingLoader | Stages:
        """Return the loader of steps with sequences of at most `length` tokens."""
        data = self.settings.data
        length = max(objective.room(length, self.tokenizer.form.specials(1)) for objective in self.objectives.values())
        packer = Packer(tokenizer=self.tokenizer, length=length, short=data.short, cross_documents=data.cross_documents)
        kind: type[PretrainingLoader] = PretrainingLoader
        if data.streams:
            kind = require_extension("osbert.data.loaders", "streams", "data.streams")
        loader = kind(self.corpus, self.objectives, packer, data, run_steps=self.settings.training.steps)
        if data.curriculum == "together":
            return loader
        sizes = self.settings.model
        return Stages(loader, data.curriculum, segments=sizes.segments if getattr(sizes, "tasks", 0) else 0)

    def facts(self) -> dict[str, Any]:
        """Return facts that identify the inputs, and those for the report. No folders: data may move."""
        folder = None if self.origin is None else self.origin.folder
        read = {name: inputs for name, objective in self.objectives.items() if (inputs := objective.inputs())}
        return {
            "osbert": __version__,
            "recipe": self.name,
            "corpus": self.corpus.content,
            "tokenizer": self.tokenizer.fingerprint,
            "documents": self.corpus.documents,
            "tokens": self.corpus.tokens,
            "vocabulary": len(self.tokenizer),
            "unigram_entropy": self.corpus.unigram_entropy,
            "origin": None if self.origin is None else self.origin.source.fingerprint,
            **({"objective_inputs": read} if read else {}),
            **(hub_facts(folder) | RunFolder(folder).origin_facts if folder else {}),
            **({} if self.budget is None else {"budget": dict(self.budget)}),
        }


def read_plan(
    name: str,
    given: Mapping[str, Any],
    *,
    corpus: Path,
    out: Path | None = None,
    origin: Path | None = None,
    opening: Opening = CAREFUL,
) -> PretrainPlan:
    """Return the plan of a run: a recipe's name or path, the settings over it, the corpus.

    `out`: the run's folder; None if nothing will be written. `origin`: the folder of an encoder to train further; it
    gives the model's sizes, and the recipe if `name` is "".

    Raises UserError that lists everything wrong with them.
    """
    from osbert.runs.pretrain.start import Origin, recipe_of  # loads torch, which the settings do not need

    before = None if origin is None else Origin.open(origin, opening)
    if not name and before is None:
        raise UserError("Give a recipe, such as cpu, or continue from a run with --from.", code="missing-recipe")
    user_recipe = "" if name in recipe.recipe_names() else name  # a recipe that the user wrote, or chose by its path
    model = None if before is None else before.table() | ({} if name else before.objectives())
    name = name or recipe_of(before.folder)  # type: ignore[union-attr]
    settings = read_settings(name, given, model=model, opening=opening)
    chosen = recipe.resolve_names(given, schema=type(settings))
    remarks: list[str] = []
    if before is not None:
        if not settings.trained:
            of_recipe = recipe.read(user_recipe).get("optimizer", {}) if user_recipe else {}
            kept = chosen | {f"optimizer.{key}" for key in of_recipe}
            optimizer, remarks = before.gentle_rates(settings.optimizer, kept)
            settings = dataclasses.replace(settings, optimizer=optimizer)
        remarks += before.describe_task_moves(settings.objectives, settings.data.curriculum)
    opened = open_corpus(corpus)
    corpus = opened.folder
    if out is not None:
        opened.verify(most=VERIFIED)
    tokenizer = read_any_tokenizer(corpus, opening)
    problems = Problems(heading="This run cannot begin")
    if settings.model.vocabulary in (0, len(tokenizer)):
        settings = dataclasses.replace(settings, model=settings.model.replace(vocabulary=len(tokenizer)))
    else:
        wanted = f"model.vocabulary is {settings.model.vocabulary:,}, but the corpus's tokenizer has {len(tokenizer):,}"
        problems.add(f"{wanted} pieces. Leave it at 0.", code="invalid-value")
    if before is None and not user_recipe and "model.first_position" not in chosen:
        settings, placed = fit_first_position(settings, tokenizer)
        remarks += placed
    plan = PretrainPlan(
        name=Path(name).stem, settings=settings, corpus=opened, tokenizer=tokenizer, origin=before, given=chosen
    )
    if out is not None:
        _check_out(out, {"the corpus": corpus, "the encoder": origin}, problems)
        if settings.training.track:
            require_trackers(settings.training.track, problems)
    idle = _check(plan, problems)
    if before is not None:
        before.check(settings.model, tokenizer, problems)
    unused = _check_documents(plan, problems)
    problems.stop_if_any()
    return dataclasses.replace(plan, remarks=(*remarks, *unused, *dict.fromkeys(idle)))


def _check_out(out: Path, inputs: Mapping[str, Path | None], problems: Problems) -> None:
    """Add problems that prevent writing a run into `out`; `inputs`: the folders that are read, by description."""
    if out.exists() and not out.is_dir():
        problems.add(f"{out} is a file, but the run needs a folder. Choose another --out.", code="output-is-file")
    for what, folder in inputs.items():
        if folder is not None and out.resolve() == folder.resolve():
            problems.add(f"--out and {what} are the same folder, {out}. Choose another --out.", code="output-is-input")


def read_settings(
    name: str,
    given: Mapping[str, Any] | None = None,
    *,
    model: Mapping[str, Any] | None = None,
    opening: Opening = CAREFUL,
) -> Any:
    """Return a recipe's settings, overlaid with those `given` by keyword, as an instance of its `schema`.

    `model`: the model's family and table, and perhaps objectives, in place of the recipe's. Objectives of the user's
    own are imported if they are among those given, or if `opening` trusts the recipe's file.

    >>> read_settings("cpu", {"layers": 7}).model.layers
    7
    """
    table = {**recipe.read(name), **(model or {})}
    given = given or {}
    if method := find_method(table):
        message = f"The recipe {name} {method.about}, which `osbert pretrain` alone does."
        raise UserError(message, code="options-exclude-each-other")
    kind = recipe_schema(name, table, given, opening)
    # Tables of packaged objectives that the user has deselected are no mistake.
    others = {*components.names("objectives")} - {field.name for field in dataclasses.fields(kind)}
    recipe_table = {key: value for key, value in table.items() if key not in others}
    return recipe.build(kind, recipe.override(recipe_table, given, schema=kind), where=name)


def recipe_schema(name: str, table: Mapping[str, Any], given: Mapping[str, Any], opening: Opening = CAREFUL) -> type:
    """Return the schema of a recipe, read as `table`, with the objectives and the family that are `given` over it.

    Objectives of the user's own are imported if they are among those given, or if `opening` trusts the recipe's file.
    Raises UserError for unknown objectives and families, and for code that is not trusted.
    """
    if method := find_method(table):
        return method.schema(table)
    typed = {key: given[key] for key in BASIC if key in given}
    base = _read_base(table, typed)
    try:
        return schema(base.objectives, family=base.family, trust=bool(typed) or opening.trust)
    except UserError as error:
        raise UserError(f"{name}: {error}" if name else str(error), code=error.code, codes=error.codes) from error
    except (TypeError, ValueError) as error:
        raise UserError(
            f"objectives = {list(base.objectives)} cannot be combined: {error}", code="options-exclude-each-other"
        ) from error


def _read_base(table: Mapping[str, Any], given: Mapping[str, Any]) -> Recipe:
    """Return the objectives and the family, which determine the other settings."""
    base = {key: table[key] for key in BASIC if key in table}
    chosen = recipe.build(Recipe, recipe.override(base, given, schema=Recipe), where="The recipe")
    if not chosen.objectives:
        raise UserError('objectives is empty: name at least one, such as objectives = ["mlm"].', code="invalid-value")
    return chosen


def _check(plan: PretrainPlan, problems: Problems) -> list[str]:
    """Add a problem, with advice, for each reason why the run cannot start; return remarks on objectives."""
    from osbert.training.processor import choose

    settings, corpus = plan.settings, plan.corpus
    if plan.tokenizer.fingerprint != corpus.fingerprint:
        problems.add(
            f"the tokenizer in {corpus.folder} is not the one that the corpus was built with. Build the corpus again.",
            code="mismatched-tokenizer",
        )
    try:
        settings.model.empty()
    except ValueError as error:
        problems.add(str(error), code="invalid-setting")
    for name, objective in plan.objectives.items():
        for objection in objective.objections(settings.model):
            problems.add(objection, code="invalid-setting")
        if objective.marked and not corpus.marks_capitals:
            needed = f"{name} needs a corpus with marks of capital letters"
            problems.add(f"{needed}. Build {corpus.folder} again with --capitals.", code="invalid-setting")
        if not objective.weight > 0:
            wrong = f"{name}.weight is {objective.weight}, but must be above 0"
            problems.add(f"{wrong}. To train without {name}, leave it out.", code="invalid-setting")
    _check_form(plan, problems)
    try:
        choose(settings.training.device, settings.training.precision)
    except UserError as error:
        problems.add(str(error), code=error.code)
    for conflict in conflicts(plan.objectives, settings.data, settings.model):
        problems.add(conflict, code="invalid-setting")
    if settings.minutes and "training.steps" in plan.given:
        problems.add(
            f"--steps {settings.training.steps} and --minutes {settings.minutes:g} both set the length of "
            "training. Remove one of them.",
            code="options-exclude-each-other",
        )
    return _check_lengths(plan, problems)


def _check_lengths(plan: PretrainPlan, problems: Problems) -> list[str]:
    """Add problems for lengths of sequences that the model or the corpus does not support; return remarks on others."""
    settings, idle = plan.settings, list[str]()
    names = ("length", "long_length") if settings.data.long_share else ("length",)
    for name in names:
        length = getattr(settings.data, name)
        if length > (most := settings.model.length):
            message = f"data.{name} is {length:,}, but model.length allows sequences of {most:,} tokens."
            problems.add(message, code="invalid-setting")
        for named, objective in plan.objectives.items():
            if length < (least := objective.shortest(plan.tokenizer.form)):
                message = f"data.{name} is {length:,}, but sequences of {named} have {least} tokens or more."
                problems.add(message, code="invalid-setting")
        try:
            loader = plan.loader(length=length)
            if not problems.count:  # it fails for what is named already, such as missing marks
                idle += loader.require_sequences()
        except UserError as error:
            problems.add(str(error), code=error.code)
        except ValueError as error:
            problems.add(str(error), code="invalid-setting")
    return idle


def _check_documents(plan: PretrainPlan, problems: Problems) -> list[str]:
    """Return a remark on the documents that an objective skips; add a problem if it can use none."""
    remarks, corpus = [], plan.corpus
    for name, objective in plan.objectives.items():
        if not (needed := objective.document_sentences):
            continue
        used = int((corpus.document_sentences == needed).sum())
        if corpus.deduplicated:
            message = f"{name} needs every line of a document, but {corpus.folder} was built with --deduplicate. "
            problems.add(f"{message}Build it again without.", code="invalid-setting")
        elif not used:
            message = f"{corpus.folder} has no document of {needed} sentences, and {name} learns from no others."
            problems.add(message, code="too-little-data")
        elif used < corpus.documents:
            remarks.append(
                f"{name} learns from {used:,} of {corpus.documents:,} documents: the others do not have {needed} "
                "sentences."
            )
    return remarks


def _check_form(plan: PretrainPlan, problems: Problems) -> None:
    """Add problems if the model does not fit the special pieces of the corpus's tokenizer."""
    model, tokenizer = plan.settings.model, plan.tokenizer
    second = tokenizer.form.second_segment
    for objective in plan.objectives.values():
        if objective.pairs and second >= max(model.segments, 1):
            problems.add(
                f"{objective.name} trains on pairs, whose second text has segment {second}. Set model.segments = "
                f"{second + 1}.",
                code="invalid-setting",
            )
        reads_first = not model.summary_is_last and getattr(model, "summary", "first") not in ("mean", "late")
        if objective.pairs and tokenizer.form.summary == "last" and reads_first:
            problems.add(
                f"{objective.name} reads the first token of a sequence, but the corpus's tokenizer puts the "
                'summary token last. Set model.summary = "last", or use another tokenizer.',
                code="invalid-setting",
            )
    # transformers would count otherwise.
    if (first := getattr(model, "first_position", 0)) and first != tokenizer.pad + 1:
        problems.add(
            f"model.first_position is {first}, but positions begin behind the padding id, which is {tokenizer.pad} "
            f"({tokenizer.vocabulary[tokenizer.pad]}) in the corpus's tokenizer. Set model.first_position = "
            f"{tokenizer.pad + 1}, or 0 to begin at 0.",
            code="invalid-setting",
        )
