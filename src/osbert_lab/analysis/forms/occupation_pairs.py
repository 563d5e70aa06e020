"""Sentences on occupations with a stereotypical pronoun, paired with the other pronoun (WinoBias).

A file is called pro_stereotyped... or anti_stereotyped..., and has a number and a sentence a line, with brackets around
both mentions. A pair is the line of one number in two files whose names are the same behind pro and anti.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from osbert.errors import Problems
from osbert.reading.form import decoding_error, open_text
from osbert.terminal import format_count
from osbert_lab.analysis.forms.contract import DataForm, FileHead, Sampling
from osbert_lab.analysis.judgements import ContrastPair, work
from osbert_lab.analysis.sample import ItemSample
from osbert_lab.analysis.tables import left_out, pieces_of, unusable_rows

NAME = re.compile(r"(pro|anti)_stereotyped_?(.*)", re.IGNORECASE)
LISTS = re.compile(r"(fe)?male_occupations\..*", re.IGNORECASE)
"""Lists of words that are shipped with the sentences, and are not texts."""
LINE = re.compile(r"(\d+)\s+(.*\[.*\].*)")
TYPE = re.compile(r"type(\d+)")
PRONOUNS = {"he": "he", "him": "he", "his": "he", "she": "she", "her": "she", "hers": "she"}


class OccupationForm(DataForm):
    """Pairs; all of them are read."""

    position = 3
    files = "sentences on occupations (WinoBias's files pro_stereotyped... and anti_stereotyped...)"

    def knows(self, file: FileHead) -> bool:
        """Return whether the name is one of WinoBias's, and the first line has a number and brackets."""
        if LISTS.fullmatch(file.path.name):
            return True
        return bool(NAME.fullmatch(file.path.name) and file.lines and LINE.fullmatch(file.lines[0]))

    def sample(self, files: Sequence[Path], sampling: Sampling) -> ItemSample[ContrastPair]:
        """Return all pairs; the kind of a pair is the file's type and the stereotypical pronoun."""
        problems = unusable_rows("sentences on occupations")
        sentences_by_path = {path: _sentences(path, sampling, problems) for path in files if NAME.fullmatch(path.name)}
        pairs: list[ContrastPair | None] = []
        # Start from the pro files only, or each pair would be read twice.
        for path in (file for file in sentences_by_path if file.name[:3].lower() == "pro"):
            partner = path.with_name(f"anti{path.name[3:]}")
            if partner not in sentences_by_path:
                problems.add(f"{path}: the file {partner.name} is missing beside it.", code="missing-file")
                continue
            others = sentences_by_path[partner]
            pairs += [
                _pair((path, partner), sentence, others.get(number), sampling, problems)
                for number, sentence in sentences_by_path[path].items()
            ]
        read, known = len(pairs), [pair for pair in pairs if pair]
        if sampling.reading.errors == "strict":
            problems.stop_if_any()
        tokens = work((pieces for pair in known for pieces in (pair.more, pair.less)), sampling.packer)
        notes = [
            f"{format_count(len(known), 'pair')} of sentences on occupations of {read:,} read",
            *left_out(problems),
        ]
        return ItemSample(items=known, read=read, tokens=tokens, notes=notes if sentences_by_path else [])


def _sentences(path: Path, sampling: Sampling, problems: Problems) -> dict[str, tuple[str, int]]:
    """Return the sentences of a file by number, with their lines; brackets are kept."""
    sentences = {}
    encoding = sampling.reading.encoding
    try:
        with open_text(path, encoding) as lines:
            for line, raw in enumerate(lines, 1):
                if parted := LINE.fullmatch(raw.strip()):
                    sentences[parted[1]] = parted[2], line
                elif raw.strip():
                    message = f"{path}, line {line}: no number with a sentence in which a mention is in brackets."
                    problems.add(message, code="unusable-row")
    except UnicodeError as error:
        raise decoding_error(path, encoding) from error
    return sentences


def _pair(
    paths: tuple[Path, Path],
    sentence: tuple[str, int],
    other: tuple[str, int] | None,
    sampling: Sampling,
    problems: Problems,
) -> ContrastPair | None:
    """Return a pair; None, with a note, if the other sentence or a pronoun is missing, or a sentence is too long."""
    text, line = sentence
    location = f"{paths[0]}, line {line}"
    if other is None:
        problems.add(f"{location}: {paths[1].name} has no sentence with this number.", code="unusable-row")
        return None
    pronoun = next((PRONOUNS[word] for word in re.findall(r"\[(\w+)\]", text.lower()) if word in PRONOUNS), None)
    if pronoun is None:
        known = ", ".join(PRONOUNS)
        problems.add(f"{location}: none of {known} is in square brackets.", code="unusable-row")
        return None
    locations = (location, f"{paths[1]}, line {other[1]}")
    more, less = (
        pieces_of(re.sub(r"[\[\]]", "", sentence_text), where, sampling, problems)
        for sentence_text, where in zip((text, other[0]), locations, strict=True)
    )
    numbered = TYPE.search(paths[0].name)
    kind = f"type {numbered[1]}, {pronoun}" if numbered else pronoun
    return ContrastPair(kind=kind, more=more, less=less) if more and less else None
