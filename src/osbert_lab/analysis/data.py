"""The parts of a file or folder that an analysis can read: files by form of data, and a sample of each form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from osbert import components
from osbert.errors import UserError
from osbert.reading.form import plain_suffix
from osbert.tasks import Task
from osbert_lab.analysis.forms.contract import TABLES, DataForm, FileHead, Sampling
from osbert_lab.analysis.forms.texts import sentences_as_texts
from osbert_lab.analysis.sample import Sample

FORMS = "osbert_lab.analysis.forms"
TEXTS = "texts"
ABOUT = re.compile(
    r"(readme|licen[cs]e|copying|notice|changelog|authors|contributors|contributing|citation)([-_. ].*)?", re.IGNORECASE
)
"""Names of files that describe a folder's data and are not data."""
NAMED = 10
"""Most unread files that are named."""


def data_forms() -> dict[str, DataForm]:
    """Return the forms of data by name, in the order in which they are tried."""
    forms = {name: components.find(FORMS, name, base=DataForm)() for name in components.names(FORMS)}
    return dict(sorted(forms.items(), key=lambda named_form: named_form[1].position))


@dataclass(frozen=True, kw_only=True)
class AnalysisFiles:
    """The files of the data by form, and the files that are not read; hidden files are left out."""

    forms: Mapping[str, Sequence[Path]]
    others: Sequence[Path]

    @classmethod
    def find(cls, path: Path, task: Task | None = None) -> AnalysisFiles:
        """Return the files in a folder, or the file itself; `task`: the model's fine-tuning task.

        In a folder, a README, a licence and the like are not read as texts; by itself such a file is.
        """
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder.", code="missing-file")
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        files = [file for file in inside if file.is_file() and not file.name.startswith(".")]
        forms = data_forms()
        files_by_form: dict[str, list[Path]] = {name: [] for name in forms}
        others: list[Path] = []
        for file in files:
            # A README is text, too, but it describes the data; a user who names it directly wants it analysed.
            about = file != path and ABOUT.fullmatch(file.name)
            head = FileHead(file, task)
            name = None if about else next((name for name, form in forms.items() if form.knows(head)), None)
            (files_by_form[name] if name else others).append(file)
        return cls(forms=files_by_form, others=others)

    def refuse_nothing(self, path: Path, *, tables: bool = False) -> None:
        """Raise UserError if no file has a known form. `tables`: accept tables, which may belong to a run's task."""
        if any(self.forms.values()) or (tables and any(plain_suffix(file) in TABLES for file in self.others)):
            return
        known = "; ".join(form.files for form in data_forms().values())
        raise UserError(f"{path} contains no data for an analysis. Known forms: {known}.", code="wrong-format")

    def samples(self, sampling: Sampling) -> dict[str, Sample]:
        """Return the sample of each form, texts first. Without texts, the sentences of another form serve as texts."""
        forms = data_forms()
        samples_by_form: dict[str, Sample] = {
            name: form.sample(self.forms[name], sampling) for name, form in forms.items()
        }
        if not self.forms[TEXTS]:
            for name, form in forms.items():
                if examples := form.sentences(samples_by_form[name]):
                    samples_by_form[TEXTS] = sentences_as_texts(examples, name, sampling)
                    break
        return {TEXTS: samples_by_form.pop(TEXTS), **samples_by_form}

    def notes(self) -> list[str]:
        """Describe which files are not read."""
        if not self.others:
            return []
        named = ", ".join(path.name for path in self.others[:NAMED])
        more = f" and {len(self.others) - NAMED:,} more" if len(self.others) > NAMED else ""
        return [f"not read, since they are of no known form or speak about the data: {named}{more}"]
