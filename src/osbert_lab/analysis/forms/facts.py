"""Facts: tables with columns sub_label and obj_label, and tables of patterns with [X] and [Y], such as ParaRel's.

Both belong to a relation, which is the name of the file: facts/P36.jsonl and patterns/P36.jsonl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from osbert.errors import Problems
from osbert.inference.pieces import MASK, encode_with_masks
from osbert.terminal import format_count
from osbert_lab.analysis.forms.contract import DataForm, FileHead, Sampling
from osbert_lab.analysis.judgements import FactRelation, Pieces
from osbert_lab.analysis.sample import ItemSample, draw
from osbert_lab.analysis.tables import left_out, stem, table_rows, unusable_rows

COLUMNS, PATTERN = ("sub_label", "obj_label"), "pattern"
SUBJECT, OBJECT = "[X]", "[Y]"


class FactForm(DataForm):
    """Relations, with a sample of facts for each."""

    position = 4
    files = f"facts (tables with the columns {' and '.join(COLUMNS)}, and of the same names with the column {PATTERN})"

    def knows(self, file: FileHead) -> bool:
        """Return whether the columns of facts, or the column of patterns, exist."""
        return file.columns >= {*COLUMNS} or PATTERN in file.columns

    def sample(self, files: Sequence[Path], sampling: Sampling) -> ItemSample[FactRelation]:
        """Return the relations that have both facts and patterns."""
        problems = unusable_rows("facts")
        facts: dict[str, list[tuple[str, str]]] = {}
        patterns: dict[str, list[str]] = {}
        for path in files:
            if FileHead(path).columns >= {*COLUMNS}:
                rows = table_rows(path, COLUMNS, sampling, problems)
                facts.setdefault(stem(path), []).extend(
                    (row.values[COLUMNS[0]], row.values[COLUMNS[1]]) for row in rows
                )
            else:
                patterns.setdefault(stem(path), []).extend(_patterns(path, sampling, problems))
        read = sum(map(len, facts.values()))
        # Sorted: the order of relations must not depend on that of the files.
        shared = sorted(facts.keys() & patterns.keys())
        relations = [_relation(name, facts[name], patterns[name], sampling) for name in shared]
        if sampling.reading.errors == "strict":
            problems.stop_if_any()
        # A relation with a single object can be answered without the subject.
        usable_relations = [relation for relation in relations if relation.facts and len(relation.objects) > 1]
        sentences = [
            sentence
            for relation in usable_relations
            for _, fact_sentences in relation.facts
            for sentence in fact_sentences
        ]
        usable = sum(sum(relation.counts) for relation in relations)
        notes = [
            f"{format_count(sum(len(relation.facts) for relation in usable_relations), 'fact')} of {read:,} read, of "
            f"{format_count(len(usable_relations), 'relation')}; {read - usable:,} have an object that is not one piece"
        ]
        single = [relation.name for relation in relations if len(relation.objects) == 1]
        notes += [f"left out, as all facts have the same object: {', '.join(single)}"] if single else []
        lone = sorted(facts.keys() ^ patterns.keys())
        notes += [f"facts without patterns, or patterns without facts: {', '.join(lone)}"] if lone else []
        tokens = sum(len(sentence) + sampling.packer.form.specials(1) for sentence in sentences)
        return ItemSample(
            items=usable_relations, read=read, tokens=tokens, notes=[*notes, *left_out(problems)] if files else []
        )


def _relation(name: str, facts: Sequence[tuple[str, str]], patterns: Sequence[str], sampling: Sampling) -> FactRelation:
    """Return a relation with a sample of the facts whose object is one token and whose sentences fit."""
    objects = {label: pieces[0] for _, label in facts if len(pieces := _pieces(label, sampling)) == 1}
    fitting = [(subject, objects[label]) for subject, label in facts if label in objects]
    counts = Counter(answer for _, answer in fitting)
    answer_indices = {answer: index for index, answer in enumerate(counts)}
    # The name is part of the seed, so a relation's sample does not depend on the other relations.
    rng = np.random.default_rng([sampling.options.seed, 3, *name.encode()])
    drawn, _ = draw(fitting, sampling.options.pairs, rng)
    laid = [(answer_indices[answer], _sentences(subject, patterns, sampling)) for subject, answer in drawn]
    return FactRelation(
        name=name,
        objects=tuple(counts),
        counts=tuple(counts.values()),
        facts=tuple((index, sentences) for index, sentences in laid if sentences),
    )


def _patterns(path: Path, sampling: Sampling, problems: Problems) -> Iterator[str]:
    for row in table_rows(path, (PATTERN,), sampling, problems):
        pattern = row.values[PATTERN]
        if pattern.count(SUBJECT) == pattern.count(OBJECT) == 1:
            yield pattern
        else:
            problems.add(
                f"{path}, line {row.line}: '{pattern}' must contain {SUBJECT} and {OBJECT} exactly once.",
                code="unusable-row",
            )


def _pieces(text: str, sampling: Sampling) -> Pieces:
    """Return the tokens of an object, encoded as a word in mid-sentence."""
    tokenizer = sampling.packer.tokenizer
    # Encoded behind a word, since byte-level vocabularies write a leading space into the token.
    before, whole = tokenizer.encode("a"), tokenizer.encode(f"a {text}")
    return tuple(whole[len(before) :].tolist())


def _sentences(subject: str, patterns: Sequence[str], sampling: Sampling) -> tuple[Pieces, ...]:
    """Return the tokens of a fact in each pattern, its object masked; [] if one is too long."""
    # A subject that contains the mask would add a second masked position.
    texts = [pattern.replace(SUBJECT, subject.replace(MASK, "")).replace(OBJECT, MASK) for pattern in patterns]
    sentences = [encode_with_masks(text, sampling.packer.tokenizer)[0] for text in texts]
    fitting = all(len(sentence) <= sampling.packer.room(1) for sentence in sentences)
    return tuple(tuple(sentence.tolist()) for sentence in sentences) if fitting else ()
