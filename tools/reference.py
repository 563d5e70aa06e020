"""Writes the reference pages of the site from the code: Python, verbs, settings, recipes, forms of files."""

from __future__ import annotations

import ast
import importlib
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import osbert
import osbert_lab
from osbert import cli, components, recipe
from osbert.console.recipe_options import schemas_shown
from osbert.console.verbs import VerbPackage, verb_packages
from osbert.extensions import extensions
from osbert.options import FIRST
from osbert.runs.finetune.plan import schemas as task_schemas
from osbert.runs.json_lines import event_name

SOURCE = Path(__file__).resolve().parent.parent / "src" / "osbert"
FORMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "reading": (
        "Text and tables",
        ("inputs", "documents", "encodings", "compression", "delimited", "parquet", "memory"),
    ),
    "../osbert_lab": ("Dumps of Wikipedia", ("wikipedia",)),
    "reading/tagged": ("Tagged text", ("files", "rows")),
    "reading/file_forms": ("Files that are read whole", ()),
    "../osbert_lab/annotation": (
        "Annotation tools",
        ("brat", "doccano", "docbin", "label_studio", "prodigy", "spacy", "webanno"),
    ),
}
"""Folders whose modules read files: a title, and the modules that read a form; () for all but the contract."""

CLASSES = {
    "Models": ("osbert.inference.engine.Engine", "osbert.models.padded.Padded"),
    "Runs": (
        "osbert.runs.finetune.finetune.FinetuneRun",
        "osbert.runs.pretrain.pretraining.EncoderRun",
        "osbert.runs.contract.Notice",
    ),
    "scikit-learn": ("osbert.sklearn.TextClassifier", "osbert.sklearn.TextRegressor", "osbert.sklearn.TextEmbedder"),
    "Errors": ("osbert.errors.UserError",),
    "Results of models": (
        "osbert.tasks.record.Prediction",
        "osbert.tasks.kinds.tag.passages.EntityPrediction",
        "osbert.tasks.kinds.tag.passages.TextEntity",
        "osbert.analysis.explanation.Explanation",
        "osbert.analysis.attention.TextAttention",
        "osbert.analysis.scoring.TextLikelihood",
        "osbert.inference.pieces.MaskFill",
        "osbert_lab.writing.settings.Generation",
    ),
    "Results of runs": (
        "osbert.runs.finetune.finetune.Mistake",
        "osbert_lab.distillation.distillation.DistilRun",
        "osbert_lab.distillation.static.StaticStudent",
        "osbert.runs.compare.RunComparison",
        "osbert.runs.evaluate.EvaluationScores",
        "osbert.evaluation.confusion.ConfusionMatrix",
        "osbert_lab.analysis.model_analysis.ModelAnalysis",
        "osbert.runs.rows.predict.PredictionTally",
        "osbert.runs.rows.explain.ExplanationTally",
        "osbert.runs.rows.score.ScoringTally",
        "osbert_lab.writing.row_file.GenerationTally",
        "osbert_lab.influence.training_rows.TrainingRows",
    ),
    "Vectors": (
        "osbert.runs.rows.embed.FileVectors",
        "osbert.runs.similarity.search.Neighbourhood",
        "osbert.runs.similarity.retrieval.RetrievalEvaluation",
        "osbert_lab.duplicates.find_duplicates.DuplicateTally",
        "osbert_lab.hard_negatives.MiningTally",
        "osbert_lab.topics.result.TopicTally",
    ),
    "Tokenizers and corpora": (
        "osbert.text.tokenizer.Tokenizer",
        "osbert.text.file_tokenizer.FileTokenizer",
        "osbert.corpus.shards.Corpus",
    ),
}
"""What the functions return and raise, and the classes that one makes oneself."""

CONTRACTS = {
    "Objectives and tasks": (
        "osbert.objectives.contract.Objective",
        "osbert.tasks.contract.Task",
        "osbert.tasks.record.Record",
    ),
    "Networks": (
        "osbert.models.contract.Backbone",
        "osbert.models.contract.Head",
        "osbert.models.contract.Learner",
        "osbert.models.contract.States",
        "osbert.models.contract.Loss",
    ),
    "Data": ("osbert.data.example.Example", "osbert.data.batch.Batch"),
}
"""The classes that one extends, and those that their methods take and return."""

MEMBERS = (types.FunctionType, property, cached_property, classmethod, staticmethod)
"""What a class has that its reference must show; fields stand in its signature."""
EMPTY = ("", '""', "[]", "none", "()", "{}")
"""Defaults that say nothing."""
OWN = {"Arguments", "Parameters", "Output", FIRST}
"""The groups of a verb's own options; the others are tables of settings."""
SETTINGS = {"finetune": "task-settings.md"} | dict.fromkeys(("pretrain", "bench", "plan"), "recipe-settings.md")
"""The pages with the settings of verbs that have too many for their own."""
NAMES = (
    "On the command line a setting is an option, `--training.epochs 4`, or `--epochs 4` where only one table has that "
    "name. In Python it is a keyword: `epochs=4`."
)

Setting = tuple[str, str, str, str]
"""Its dotted name, type, default and help text."""
Pages = dict[str, str]


def pages() -> Pages:
    """Return the text of each generated page by its path on the site."""
    verbs = {" ".join(words): verb_page(words) for words in every_verb()}
    found = {f"reference/commands/{name.replace(' ', '-')}.md": text for name, text in verbs.items()}
    return {
        "reference/commands/index.md": verb_index(verbs),
        **found,
        "reference/python.md": python_page(),
        "reference/contracts.md": contracts_page(),
        "reference/events.md": events_page(),
        "reference/task-settings.md": task_settings_page(),
        "reference/recipe-settings.md": recipe_settings_page(),
        "reference/forms.md": forms_page(),
    }


def every_verb() -> Iterator[tuple[str, ...]]:
    """Yield the words of every verb, in the order of `osbert --help`."""
    for package in verb_packages():
        yield from package.names()


def about(words: Sequence[str]) -> str:
    """Return a verb's line in the help."""
    return package_of(words).about((*words,))


def package_of(words: Sequence[str]) -> VerbPackage:
    """Return the package that a verb comes from."""
    return next(package for package in verb_packages() if (*words,) in package.names())


def verb_index(verbs: Iterable[str]) -> str:
    """Return the page that lists the verbs."""
    rows = [f"| [`{name}`]({name.replace(' ', '-')}.md) | {about(name.split())} |" for name in verbs]
    opening = "`osbert VERB --help` prints the page of a verb in the terminal."
    return "\n".join(["# Verbs", "", opening, "", "| verb | what it does |", "|---|---|", *rows, ""])


def verb_page(words: tuple[str, ...]) -> str:
    """Return the page of one verb: its usage, its text and its options by group."""
    name = " ".join(words)
    app = cli.application([*words, "--help"])
    for word in words:
        app = app[word]
    arguments = [one for one in app.assemble_argument_collection(parse_docstring=True) if one.show]
    module = importlib.import_module(package_of(words).module((*words,)))
    function = getattr(module, words[-1])
    lines = [f"# osbert {name}", "", described_text(function), "", "```text", usage(name, arguments), "```", ""]
    groups: dict[str, list[Any]] = {}
    for argument in arguments:
        groups.setdefault(argument.parameter.group[0].name, []).append(argument)
    settings = {*groups} - OWN if hasattr(function, "settings_schemas") else set()
    page = SETTINGS.get(name, "")
    for title, options in groups.items():
        if not (page and title in settings):
            lines += [f"## {title}", "", *map(option, options)]
    if page:
        tables = [
            f"[`{title}`](../{page}#{title.replace('.', '')})" for title in groups if title in settings - {"Settings"}
        ]
        lines += ["## Settings", "", f"And any of the [settings](../{page}): the tables {', '.join(tables)}.", ""]
    return "\n".join(lines)


def described_text(function: Any) -> str:
    """Return a verb's docstring up to its parameters."""
    return re.split(r"\n\s*Parameters\n", function.__doc__ or "")[0].replace("\n    ", "\n").strip()


def usage(name: str, arguments: Iterable[Any]) -> str:
    """Return the line of usage: what must be given, and that there is more."""
    needed = [one for one in arguments if one.required]
    words = [one.names[0] if one.names[0].isupper() else f"{one.names[0]} {kind(one)}" for one in needed]
    return f"osbert {name} {' '.join(words)} [OPTIONS]".replace("  ", " ")


def option(argument: Any) -> str:
    """Return an option as an entry of a definition list."""
    default = "" if argument.required else shown(argument.field_info.default)
    facts = [kind(argument), "required" if argument.required else default and f"default `{default}`"]
    names = ", ".join(f"`{name}`" for name in argument.names)
    return entry(names, ", ".join(fact for fact in facts if fact), argument.parameter.help or "")


def shown(default: Any) -> str:
    """Return a default as one would type it; "" for one that says nothing."""
    if isinstance(default, bool):
        return "yes" if default else "no"
    return "" if default is None or str(default) in EMPTY or isinstance(default, type) else str(default)


def kind(argument: Any) -> str:
    """Return what an option takes: PATH, INTEGER, one of several words; "" for a flag."""
    return argument.parameter.metavar or in_words(argument.hint)


def in_words(hint: Any) -> str:
    """Return a type as the help shows it."""
    parts = [part for part in typing.get_args(hint) if part not in (type(None), ...)]
    if typing.get_origin(hint) is Literal:
        return "|".join(map(str, parts))
    if typing.get_origin(hint) in (typing.Union, types.UnionType, tuple, list) and parts:
        return in_words(parts[0])
    names = {bool: "", str: "TEXT", int: "INTEGER", float: "NUMBER", Path: "PATH"}
    return names.get(hint, "")


def escaped(text: str) -> str:
    """Return text of the help with options in code, and with what Markdown or HTML would take for its own escaped."""
    text = re.sub(r"(?<![\w`/-])(--[a-z][\w.-]*[\w])", r"`\1`", text)
    text = re.sub(r"\bdocs/([\w-]+)\.md", r"[\1](docs/\1.md)", text)
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*<|])", r"\\\1", part) for part in parts)


def python_page() -> str:
    """Return the page of the Python API, for mkdocstrings to fill in: the public functions, then what they return."""
    names = [f"osbert.{name}" for name in osbert.__all__ if not name.startswith("_")]
    names += [f"osbert_lab.{name}" for name in osbert_lab.__all__]
    names += [call.value.replace(":", ".") for call in extensions("osbert.inference.calls").values()]
    opening = (
        "[osbert from Python](docs/python.md) introduces these functions by examples. Two pages go on from here: the "
        "[events](events.md) that `watch` gets, and the [contracts](contracts.md) of what one adds to osbert."
    )
    functions = ["## Functions", "", *(f"::: {name}\n" for name in names)]
    return "\n".join(["# Python API", "", opening, "", *functions, *sections(CLASSES)])


def contracts_page() -> str:
    """Return the page of the classes that one extends, for mkdocstrings to fill in."""
    opening = (
        "The classes that an objective, a task or a backbone of your own extends. Three pages show how: "
        "[add an objective](docs/add-an-objective.md), [add a task](docs/add-a-task.md) and "
        "[add a backbone](docs/add-a-backbone.md)."
    )
    return "\n".join(["# Contracts", "", opening, "", *sections(CONTRACTS)])


def events_page() -> str:
    """Return the page of the events, for mkdocstrings to fill in."""
    opening = (
        "The objects that the functions pass to `watch`. [Output for programs](docs/output.md#events) says when each "
        "comes, and how it looks with `--json`."
    )
    return "\n".join(["# Events", "", opening, "", *(f"::: {name}\n" for name in event_classes())])


def sections(titles: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a heading and the classes below it, for each title."""
    for title, names in titles.items():
        yield from (f"## {title}", "", *(f"::: {name}\n" for name in names))


def event_classes() -> Iterator[str]:
    """Yield the dotted names of the classes whose events docs/output.md lists."""
    page = (SOURCE.parents[1] / "docs" / "output.md").read_text(encoding="utf-8")
    table = page.partition("### Events")[2].partition("### Results")[0]
    listed = {*re.findall("^[|] `([a-z-]+)`", table, re.M)}
    for path in sorted(SOURCE.parent.rglob("*.py")):
        for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.M):
            if event_name(type(name, (), {})) in listed:
                yield ".".join([*path.relative_to(SOURCE.parent).with_suffix("").parts, name])


def shown_classes() -> Iterator[tuple[str, str]]:
    """Yield (page, dotted name) for each class of the three pages."""
    for page, titles in {"python": CLASSES, "contracts": CONTRACTS, "events": {"": (*event_classes(),)}}.items():
        for names in titles.values():
            yield from ((f"reference/{page}.md", name) for name in names)


def members(name: str) -> Iterator[str]:
    """Yield the public methods and properties of a class, inherited ones of osbert included."""
    module, _, attribute = name.rpartition(".")
    for owner in getattr(importlib.import_module(module), attribute).__mro__:
        if owner.__module__.startswith("osbert"):
            for name, value in vars(owner).items():
                if not name.startswith("_") and isinstance(value, MEMBERS):
                    yield name


def task_settings_page() -> str:
    """Return the page of the settings of fine-tuning and of every task."""
    opening = "# Settings of fine-tuning\n\nThe tables of a task's `recipe.toml`: first those that all tasks share."
    rows = [row for name in components.names("tasks") for row in described(task_schemas([name]))]
    return "\n".join([f"{opening} {NAMES}\n", *written_tables(rows, depth=2)])


def recipe_settings_page() -> str:
    """Return the page of the settings of pretraining, and the packaged recipes as they are."""
    opening = "# Settings of pretraining\n\nThe tables of a recipe; [recipes](docs/recipes.md) introduces them."
    rows = [row for name in recipe.recipe_names() for row in described(schemas_shown([name]))]
    parts = [f"{opening} {NAMES}\n", *written_tables(rows, depth=2), "## Packaged recipes\n"]
    parts.append(
        "The files that `osbert pretrain NAME` reads. `further` is the recipe of `pretrain --from`, and those called "
        "`adapt` are those of `osbert adapt`.\n"
    )
    for name, file in recipe.packaged_recipes().items():
        parts.append(f"### Recipe {name}\n\n```toml\n{file.read_text(encoding='utf-8').strip()}\n```\n")
    return "\n".join(parts)


def described(schemes: Iterable[type]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the settings of several schemas."""
    for schema in schemes:
        yield from recipe.describe_settings(schema)


def written_tables(rows: Iterable[Setting], *, depth: int) -> Iterator[str]:
    """Yield settings as definition lists, each once, below a heading for each table."""
    tables: dict[str, dict[str, Setting]] = {}
    for row in rows:
        tables.setdefault(row[0].rpartition(".")[0], {})[row[0]] = row
    for title, settings in sorted(tables.items(), key=lambda table: bool(table[0])):
        yield f"{'#' * depth} {title or 'The recipe itself'}\n"
        for path, kind, default, text in settings.values():
            fact = f", default `{default}`" if default not in EMPTY and "(default)" not in text else ""
            yield entry(f"`{path.rpartition('.')[2]}`", f"{kind}{fact}", text)


def entry(names: str, facts: str, text: str) -> str:
    """Return an option or a setting as an entry of a definition list."""
    facts = facts.replace(" | ", "|").replace("|", " | ").strip(", ")
    return f"{names} <small>{facts}</small>\n:   {escaped(' '.join(text.split()))}\n"


def forms_page() -> str:
    """Return the page of the forms of files that are read, from what their modules say."""
    lines = [
        "# Forms of files",
        "",
        "What osbert reads, as the modules that read it say. The form of a table or of tagged text is found by "
        "looking at the content: see [annotation formats](docs/formats.md). What osbert writes: "
        "[a run folder](docs/design.md#5-a-run-folder-stands-alone), [vectors](docs/vectors.md), "
        "[predictions](docs/finetune.md#predictions-for-a-file).",
        "",
    ]
    for folder, (title, modules) in FORMS.items():
        lines += [f"## {title}", ""]
        every = sorted(path.stem for path in (SOURCE / folder).glob("[!_]*.py") if path.stem != components.CONTRACT)
        for name in modules or every:
            tree = ast.parse((SOURCE / folder / f"{name}.py").read_text(encoding="utf-8"))
            lines += [f"### {name.replace('_', ' ')}", "", (ast.get_docstring(tree) or "").replace("<", "\\<"), ""]
    return "\n".join(lines)
