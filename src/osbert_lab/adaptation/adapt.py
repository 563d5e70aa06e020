"""Adaptation as a function: from a model and texts to a run folder with the model, trained further on the texts.

Its parts: a corpus of the texts with the model's tokenizer, or an extended one; a pretraining of new heads on the
frozen encoder; and a pretraining of all weights, which ends if too much is forgotten.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.errors import Problems, UserError
from osbert.files import read_own, replacing, require_folder, write_sealed
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.reading.columns import TextColumns, choose
from osbert.reading.data_file import sampled_sha256
from osbert.reading.form import SUFFIXES, plain_suffix
from osbert.reading.inputs import files_below, kind_of
from osbert.reading.memory import Data, tables
from osbert.reading.table import Table, TableReading, open_table
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.corpus import CorpusSettings, build_corpus
from osbert.runs.pretrain.first_weights import first_weights, other_text
from osbert.runs.pretrain.pretraining import EncoderRun, PretrainRequest, pretrain
from osbert.runs.pretrain.settings import PretrainPlan, read_settings, table_of
from osbert.runs.pretrain.start import KEPT_OUT, Origin
from osbert.runs.tokenizer import ExtensionSettings, extend_tokenizer, files_or_texts
from osbert.training.interruption import Interruption
from osbert.training.run_folder import RunFolder
from osbert_lab.adaptation.general_text import general_text
from osbert_lab.adaptation.settings import HEADS, PLAIN, SENTENCES, AdaptationOptions

TABLES = tuple(suffix for suffix in SUFFIXES if suffix != ".txt")
"""Suffixes of files with rows and a column of texts; other files are plain text."""
GENERAL_CHARACTERS = 200_000
"""Characters of docstrings in the default general text."""


@dataclass(frozen=True, kw_only=True)
class DomainTexts:
    """Files and tables of texts. `identity`: equal for two commands with the same texts."""

    files: tuple[Path, ...]
    tables: tuple[Table, ...]
    identity: list[Any]

    @classmethod
    def find(cls, texts: Data, reading: TableReading, *, without: Path | None = None) -> DomainTexts:
        """Tell files from rows in memory, and files of rows from files of text; a folder stands for its files.

        `without`: the folder that is written, which is not read. Raises UserError at a missing file.
        """
        several = isinstance(texts, Mapping)  # columns or splits, of which one must be named: `files_or_texts` refuses
        if not several and (hasattr(texts, "columns") or hasattr(texts, "column_names")):  # a DataFrame, a Dataset
            return cls._in_memory(texts)
        texts = texts if several or isinstance(texts, str | Path) else [*texts]
        if isinstance(texts, list) and texts and not isinstance(texts[0], str | Path):
            return cls._in_memory(texts)
        files, rows = files_or_texts(texts)
        if not files:
            return cls._in_memory([*rows])
        paths = [Path(file) for file in files]
        if missing := [str(path) for path in paths if not path.exists()]:
            raise UserError(f"{', '.join(missing)}: there is no such file.", code="missing-file")
        paths = [inner for path in paths for inner in _inside(path, without)]
        rowed = [path for path in paths if plain_suffix(path) in TABLES and path.is_file()]
        return cls(
            files=tuple(path for path in paths if path not in rowed),
            tables=tuple(open_table(path, reading) for path in rowed),
            identity=[[str(path.resolve()), sampled_sha256(path) if path.is_file() else ""] for path in paths],
        )

    @classmethod
    def _in_memory(cls, rows: Data) -> DomainTexts:
        (table,) = tables(rows).values()
        assert isinstance(table, Table)
        digest = hashlib.sha256()
        for row in table.rows(Problems(heading="")):
            digest.update(json.dumps(row.values, sort_keys=True).encode())
        return cls(files=(), tables=(table,), identity=[digest.hexdigest()])

    def write_tables(self, path: Path, column: str, *, encoding: str = "utf-8", again: bool = False) -> list[Path]:
        """Return the files of which a corpus can be built; the texts of all tables go into `path`, unless it is there.

        `column`: the one with the texts, "" if it is detected by its name; the rows of `path` have them under it, or
        under "text". `encoding`: that of `path`, and so of all. `again`: write it even if it is there. Raises UserError
        for every unusable row.
        """
        if self.tables and (again or not path.exists()):
            with replacing(path) as aside, aside.open("w", encoding=encoding) as stream:
                for table in self.tables:
                    write_rows(_column_texts(table, column), stream, column or "text")
        return [*self.files, *([path] if self.tables else [])]

    def describe(self, column: str) -> Iterator[str]:
        """Yield a description of each table."""
        for table in self.tables:
            yield f"{table.describe()}; {_columns(table, column).describe().removesuffix(', no label')}"


def general_rows(path: Path) -> Path | None:
    """Return a file with docstrings of Python's standard library, written if missing; None if there are none."""
    if not path.exists() and (passages := general_text(GENERAL_CHARACTERS)):
        with replacing(path) as aside, aside.open("w", encoding="utf-8") as stream:
            write_rows(passages, stream)
    return path if path.exists() else None


def write_rows(texts: Iterable[str], stream: Any, field: str = "text") -> None:
    """Write texts as ASCII JSON lines, one document each; empty ones are left out."""
    for text in texts:
        if text.strip():
            stream.write(json.dumps({field: text}) + "\n")


def _inside(path: Path, without: Path | None) -> list[Path]:
    """Return the files in a folder that hold texts; the path itself if it is a file, or a folder without any."""
    problems = Problems(heading="These texts cannot be read")

    def holds_texts(name: str) -> bool:
        return kind_of(name) is not None or plain_suffix(Path(name)) in TABLES

    files = files_below(path, problems, without=without, known=holds_texts) if path.is_dir() else []
    problems.stop_if_any()
    return files or [path]


def _columns(table: Table, column: str) -> TextColumns:
    columns = choose(table.columns, user_columns=TextColumns(text=column), path=table.called, labelled=False)
    return TextColumns(text=columns.text, pair=columns.pair)


def _column_texts(table: Table, column: str) -> Iterator[str]:
    names: Sequence[str] = _columns(table, column).texts
    problems = Problems(heading=f"{table.called} cannot be used")
    for row in table.rows(problems):
        for name in row.nested.intersection(names):
            message = f"{table.place(row.line)}: '{name}' holds a list or an object and no text. Give another --text."
            problems.add(message, code="unusable-row")
        yield from (row.values.get(name, "") for name in names)
    problems.stop_if_any()


PARTS = "adapting"
"""Subfolder with the run's inputs, which may be removed after the run."""
NOTE = "adapt.json"
"""File in that subfolder with facts that identify the texts and options."""
HEAD_SHARE = 0.2
"""Fraction of the steps or minutes for training new heads on the frozen encoder."""


@dataclass(frozen=True)
class AdaptationRequest:
    """The arguments of an adaptation; nothing is opened yet. `settings`: overlay the recipe, by name."""

    model: Path
    texts: Data
    out: Path
    _: KW_ONLY
    options: AdaptationOptions = field(default_factory=AdaptationOptions)
    settings: Mapping[str, Any] = field(default_factory=dict)
    opening: Opening = CAREFUL
    begun: float = field(default_factory=time.monotonic)
    """Start of the time budget, by time.monotonic."""

    @property
    def parts(self) -> Path:
        """The folder with the run's inputs."""
        return self.out / PARTS


def recipe_for(model: Path, opening: Opening = CAREFUL) -> str:
    """Return the name of the packaged recipe for a model."""
    return SENTENCES if open_folder(model, opening).sentences else PLAIN


def adapt(request: AdaptationRequest, *, watch: Watch = ignore, wish: Interruption | None = None) -> EncoderRun:
    """Adapt a model to the end; return the run.

    The same request resumes a stopped one. `watch` gets the events of pretraining, twice if heads are new.
    Raises UserError, StopRequest and KeyboardInterrupt as `pretrain` does.
    """
    wish = wish or Interruption()
    with wish.at_once():
        # Two adaptations must not write the parts of one folder; pretraining locks it again by itself.
        with claim(request.out):
            # The progress of building a corpus would mix with that of training: notices alone are passed on.
            main = _prepare(request, lambda event: watch(event) if isinstance(event, Notice) else None)
        plan = main.plan()
        fresh = [name for name in first_weights(plan)[1] if name in plan.objectives]
    if fresh:
        heads = _of_heads(main, plan, fresh)
        why = "so that its errors do not disturb what the encoder has learned"
        missing = f"{request.model} has no head for {' and '.join(fresh)}"
        watch(Notice(f"{missing}. A new head is trained first on the frozen encoder, {why}."))
        pretrain(heads, watch=watch, wish=wish)
        _keep_held_out(request.model, heads.out)
        main = replace(main, origin=heads.out)
    return pretrain(main, watch=watch, wish=wish)


def _prepare(request: AdaptationRequest, watch: Watch) -> PretrainRequest:
    """Build the corpus of the texts, and one of general text if the model has none; return the pretraining."""
    require_folder(request.out)
    RunFolder(request.out).refuse_foreign()
    options, parts = request.options, request.parts
    origin = Origin.open(request.model, request.opening)
    name = recipe_for(request.model, request.opening)
    settings, capitals = _objective(request, origin, name, watch)
    if isinstance(request.texts, list) and not request.texts:
        raise UserError("Give the text files after the model: osbert adapt MODEL texts.csv --out RUN.", code="no-data")
    source = DomainTexts.find(request.texts, options.reading, without=request.out)
    general = None if options.general is None else DomainTexts.find(options.general, TableReading())
    for line in source.describe(options.text):
        watch(Notice(line))
    identity = _identity(request, source, general)
    begun = _is_begun(request, identity)
    parts.mkdir(parents=True, exist_ok=True)
    encoding, column = options.encoding or "utf-8", options.text or "text"
    files = source.write_tables(parts / "texts.jsonl", options.text, encoding=encoding, again=not begun)
    tokenizer = request.model if not options.extend else parts / "tokenizer"
    if options.extend and not begun:
        pieces = ExtensionSettings(pieces=options.extend, field=column, encoding=encoding)
        extend_tokenizer(request.model, files, out=tokenizer, settings=pieces, opening=request.opening, watch=watch)
    # Written before the corpus: after a stop, a resumed call can compare its inputs with these.
    write_sealed(parts / NOTE, identity)
    reading = CorpusSettings(field=column, encoding=encoding, capitals=capitals)
    build_corpus(
        files, tokenizer=tokenizer, out=parts / "corpus", settings=reading, opening=request.opening, watch=watch
    )
    main = PretrainRequest(
        recipe=name,
        settings=settings,
        corpus=parts / "corpus",
        out=request.out,
        origin=request.model,
        opening=request.opening,
        begun=request.begun,
    )
    if general is None and other_text(main.plan()):
        watch(Notice(f"General text: the held-out text of {request.model}."))
        return main
    general_files = _general(request, general, watch)
    if general_files is not None:
        marks = CorpusSettings(capitals=capitals)
        build_corpus(general_files, tokenizer=tokenizer, out=parts / "general", settings=marks, opening=request.opening)
    return replace(main, general=None if general_files is None else parts / "general")


def _objective(request: AdaptationRequest, origin: Origin, name: str, watch: Watch) -> tuple[dict[str, Any], bool]:
    """Return the settings with the objective that fits the model, and report the choice and its reason.

    Also return whether an objective needs marks of capitals in its corpus.
    """
    settings = dict(request.settings)
    if origin.architecture.has_decoder and "objectives" not in settings:
        raise UserError(
            f"{request.model} is an encoder-decoder, but the recipe {name} masks pieces, which does not train a "
            "decoder. Choose the objective of its pretraining: --objectives spans (T5), denoise (BART), fragment "
            "(MASS), translation (CoVe).",
            code="missing-option",
        )
    # A left-to-right model cannot predict masked pieces, so its own objective replaces the recipe's.
    if model_objective := origin.architecture.language_objective:
        settings = {"objectives": [model_objective], **settings}
    chosen = read_settings(name, settings, model=origin.table(), opening=request.opening)
    if sentences := origin.source.sentences:
        if sentences.kind == "sparse":
            raise UserError(
                f"{request.model} gives sparse vectors (SPLADE) by its language head, which no longer would if it were "
                "trained on masked pieces. Adapt the encoder that it was made of.",
                code="unsupported-model",
            )
        twice = "same_text" in chosen.objectives
        if twice and "same_text.pooling" not in recipe.resolve_names(settings, schema=type(chosen)):
            settings["same_text.pooling"] = sentences.pooling
        why = (
            "Each text is read twice under dropout and must find itself among the others (SimCSE)."
            if twice
            else "Masked pieces teach it more of a domain than the same text twice (SimCSE), which it can do already."
        )
        unchanged = f"its pooling ({sentences.pooling}), normalisation and length are kept"
        watch(Notice(f"{request.model} is a sentence encoder: {unchanged}. {why}"))
    return settings, any(getattr(chosen, table_of(objective)).marked for objective in chosen.objectives)


def _general(request: AdaptationRequest, given: DomainTexts | None, watch: Watch) -> list[Path] | None:
    """Return the files of general text, by default of docstrings; None if there are none."""
    rows = request.parts / "general.jsonl"
    if given is not None:
        files = given.write_tables(rows, "")
        what = str(request.options.general)
    elif general_rows(rows):
        files = [rows]
        what = "English docstrings of Python's standard library; --general FILE for text like the model's own"
    else:
        return None
    watch(Notice(f"General text: {what}."))
    return files


def _of_heads(main: PretrainRequest, plan: PretrainPlan, fresh: list[str]) -> PretrainRequest:
    """Return the pretraining of new heads: data, masks and device of the run, learning rates of the heads' recipe."""
    whole, objectives = recipe.as_table(plan.settings), plan.settings.objectives
    minutes = HEAD_SHARE * plan.settings.minutes
    length = {"minutes": minutes} if minutes else {"steps": max(1, round(HEAD_SHARE * plan.settings.training.steps))}
    settings = {f"{part}.{key}": value for part in ("data", *fresh) for key, value in whole[part].items()}
    settings |= {f"training.{key}": whole["training"][key] for key in ("device", "precision", "compile", "seed")}
    if len(fresh) < 2:  # a curriculum divides the steps among several
        settings["data.curriculum"] = "together"
    return replace(
        main,
        recipe=HEADS,
        settings={"objectives": [name for name in objectives if table_of(name) in fresh], **settings, **length},
        out=main.out / PARTS / "heads",
        # The heads have minutes of their own, which do not count from the start of the command.
        begun=time.monotonic(),
    )


def _keep_held_out(model: Path, heads: Path) -> None:
    """Copy the model's held-out batches to the encoder with new heads, so that forgetting is measured on them."""
    (heads / KEPT_OUT).unlink(missing_ok=True)
    if (model / KEPT_OUT).is_file():
        shutil.copyfile(model / KEPT_OUT, heads / KEPT_OUT)


def _identity(request: AdaptationRequest, source: DomainTexts, general: DomainTexts | None) -> dict[str, Any]:
    """Return the facts, besides model and settings, that must be equal to resume an adaptation."""
    options = request.options
    chosen = {"text": options.text, "encoding": options.encoding, "extend": options.extend}
    return {"texts": source.identity, **chosen, "general": None if general is None else general.identity}


def _is_begun(request: AdaptationRequest, identity: Mapping[str, Any]) -> bool:
    """Return whether the folder has the inputs of this adaptation.

    Raises UserError if it has others, or only a run, or if its note of them is damaged.
    """
    path = request.parts / NOTE
    if not path.exists() and RunFolder(request.out).begun:
        raise UserError(
            f"{request.out} already contains a run, but no adaptation to continue ({path} is missing). Choose "
            "another --out.",
            code="output-holds-something-else",
        )
    if not path.exists():
        return False
    before = read_own(path, "Give another --out, or remove the folder.")
    if lines := recipe.difference(before, identity):
        raise UserError(
            f"{request.out} contains an adaptation with other settings ({'; '.join(lines)}). Choose another --out, "
            "or remove the folder.",
            code="begun-with-other-settings",
        )
    return True
