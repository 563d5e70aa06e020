"""Reads tagged text for spans by name: one data set or a folder of several, with natural names for their tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate, count
from pathlib import Path
from typing import Any

from osbert.errors import Problems
from osbert.reading.splits import Names
from osbert.reading.table import Origin, is_whole
from osbert.reading.tagged.files import CALLED, TagReading, find_tagged
from osbert.tasks import Record
from osbert.tasks.kinds.tag import TagSource
from osbert.tasks.kinds.tag.passages import TaggedText

NATURAL: Mapping[str, str] = {
    "per": "person",
    "loc": "location",
    "org": "organization",
    "organisation": "organization",
    "misc": "miscellaneous",
    "gpe": "country, city or state",
    "fac": "building or place",
    "norp": "nationality, religion or political group",
    "prod": "product",
    "programlang": "programming language",
    "politicalparty": "political party",
    "literarygenre": "literary genre",
    "musicgenre": "music genre",
    "musicalartist": "musical artist",
    "musicalinstrument": "musical instrument",
    "academicjournal": "academic journal",
    "astronomicalobject": "astronomical object",
    "chemicalcompound": "chemical compound",
    "chemicalelement": "chemical element",
}
"""Usual tags, in lower case -> what a model can read: CoNLL-2003's, OntoNotes' and CrossNER's."""


@dataclass(frozen=True, kw_only=True)
class NamedSpansText(TaggedText):
    """A text with the `types` that are asked for in it: those of its data set; () for those of the task."""

    types: tuple[str, ...] = ()


def natural_name(tag: str, names: Mapping[str, str]) -> str:
    """Return the name that a model reads for a tag: the user's, a usual one, or the tag's words in lower case.

    >>> natural_name("PER", {}), natural_name("creative-work", {}), natural_name("PER", {"PER": "human being"})
    ('person', 'creative work', 'human being')
    """
    words = " ".join(tag.replace("_", " ").replace("-", " ").lower().split())
    return names.get(tag) or NATURAL.get(tag.lower()) or words or tag


class NamedSpansSource(TagSource):
    """Reads one data set as `tag` does, or a folder whose subfolders are data sets.

    Each data set has its own types: what another one would mark is unknown in its texts, so it is not asked there.
    """

    task: Any  # a NamedSpans, whose module imports this one
    split_names: Names = CALLED

    @property
    def reading(self) -> TagReading:
        """Return the settings for reading files; entities may be nested."""
        task = self.task
        return TagReading(column=task.column, text=task.text, encoding=task.encoding, split=task.split, nested=True)

    @cached_property
    def parts(self) -> list[NamedSpansSource]:
        """The readers of the data sets of a folder; [] for a single one."""
        data = Path(self.task.data)
        if self.given is not None or not self.task.data or not data.is_dir() or is_whole(data):
            return []
        folders = sorted(folder for folder in data.iterdir() if folder.is_dir() and not folder.name.startswith("."))
        if any(path.is_file() and not path.name.startswith(".") for path in data.iterdir()) or not folders:
            return []
        return [type(self)(replace(self.task, data=str(folder), dev="")) for folder in folders]

    def find_files(self, data: Path) -> Mapping[str, Path]:
        """Return the file of each split; of several data sets the folder, for the splits that any of them has."""
        if not self.parts:
            return find_tagged(data)
        splits = {split for part in self.parts for split in part.files()}
        return {"train" if split == "all" else split: data for split in sorted(splits | {"dev"})}

    def findings(self) -> list[str]:
        """Describe the files, the names of tags that changed, and the origin of development rows."""
        if self.parts:
            return [line for part in self.parts for line in part.findings()]
        return super().findings()

    def records(self, split: str, problems: Problems) -> Iterator[Record]:
        """Yield the records of a split, numbered; those of several data sets one after the other."""
        if not self.parts or (split == "dev" and self.task.dev):
            yield from super().records(split, problems)
            return
        numbers = count()
        for part in self.parts:
            files = part.files()
            if split in files or "all" in files or (split == "dev" and part.is_held_out("dev")):
                for record in part.records(split, problems):
                    yield replace(record, number=next(numbers))

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> list[TaggedText]:
        """Return the texts of a file, with the types of their data set."""
        names = self.task.tag_names
        texts = []
        for text in super().read(origin, problems, labelled=labelled):
            renamed = [span._replace(type=natural_name(span.type, names)) for span in text.label or ()]
            # Two tags of the same words can have one name: the span is one then.
            texts.append(replace(text, label=None if text.label is None else tuple(dict.fromkeys(renamed))))
        self._known_types.update(span.type for text in texts for span in text.label or ())
        types = tuple(sorted(self._known_types)) if labelled else ()
        return [NamedSpansText(**_values(text), types=types) for text in texts]

    @cached_property
    def _known_types(self) -> set[str]:
        """The types of all files that were read; the training file comes first."""
        return set()


def without_spaces(text: TaggedText) -> TaggedText:
    """Return a text with the same words and no space before any of them."""
    words = [text.texts[0][start:end] for start, end in text.words]
    ends = [*accumulate(len(word) + 1 for word in words)]
    return replace(
        text, texts=("|".join(words),), words=tuple((end - len(word) - 1, end - 1) for word, end in zip(words, ends))
    )


def _values(record: Record) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def parse_names(names: Sequence[str]) -> dict[str, str]:
    """Return names by tag from "TAG=name". Raises ValueError for another form.

    >>> parse_names(["PER=person"])
    {'PER': 'person'}
    """
    pairs = [name.partition("=") for name in names]
    if wrong := [tag for tag, _, name in pairs if not (tag.strip() and name.strip())]:
        raise ValueError(f"names are TAG=name, as in PER=person, not '{wrong[0]}'")
    return {tag.strip(): name.strip() for tag, _, name in pairs}
