"""Coreference in files: texts of whole sentences, head words, candidates before a mention, GAP's two names."""

from __future__ import annotations

from pathlib import Path

from osbert.errors import Problems
from osbert_lab.analysis.coreference_files import GAP, head_word, read_documents, read_gap


def document(*sentences: str) -> str:
    """Return a document; a word is word/mentions."""
    lines = ["#begin document (a); part 0"]
    for sentence in sentences:
        for number, cell in enumerate(sentence.split()):
            word, _, mentions = cell.partition("/")
            lines.append(f"a\t0\t{number}\t{word}\t_\t{mentions}")
        lines.append("")
    return "\n".join([*lines, "#end document", ""])


def test_a_mention_may_refer_to_those_before_it(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text(document("The/(1 king of/ France/1)|(2) saw a/(3 dog/3) .", "He/(1) liked the/(3 dog/3) ./"))
    problems = Problems(heading="")
    [[text]] = read_documents(path, problems)
    assert text.words == ("The", "king", "of", "France", "saw", "a", "dog", ".", "He", "liked", "the", "dog", ".")
    he, dog = text.links
    assert (he.mention, he.candidates, he.right, he.kind) == (8, (1, 6), {1}, "pronouns")  # France is named once
    assert (dog.mention, dog.candidates, dog.right, dog.kind) == (11, (1, 6, 8), {6}, "nouns")
    assert text.line == 2 and not problems.count


def test_long_documents_are_cut_between_sentences_and_links_across_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text(document("Anna/(1) " + "x " * 59, "She/(1) saw her/(1) " + "x " * 60))
    [[first, second]] = read_documents(path, Problems(heading=""))
    assert len(first.words) == 60 and not first.links
    assert second.crossing == 1 and [link.candidates for link in second.links] == [(0,)]


def test_brackets_that_do_not_pair_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text(document("A/(1 dog/2)") + document("A/(1 dog"))
    problems = Problems(heading="")
    assert list(read_documents(path, problems)) == []
    assert [f"line {line}" in message for line, message in zip((3, 8), problems.messages)] == [True, True]


def test_a_row_of_gap_is_a_choice_of_two_names(tmp_path: Path) -> None:
    text = "Anna Bell met Carla. She smiled."
    rows = [
        [text, "She", "21", "Anna Bell", "0", "FALSE", "Carla", "14", "TRUE"],
        [text, "She", "21", "Anna Bell", "0", "FALSE", "Carla", "14", "FALSE"],
        [text, "She", "20", "Anna Bell", "0", "FALSE", "Carla", "14", "TRUE"],
    ]
    path = tmp_path / "gap.tsv"
    path.write_text("\n".join("\t".join(row) for row in [list(GAP), *rows]) + "\n")
    problems = Problems(heading="")
    [[found], none] = read_gap(path, problems)
    [link] = found.links
    assert (link.mention, link.candidates, link.right) == (5, (1, 3), {3}) and found.line == 2 and not none
    assert problems.count == 1 and "line 4" in problems.messages[0]


def test_the_head_word_stands_before_what_describes_it() -> None:
    given = [one.split() for one in ("her", "the old man in black", "a big dog")]
    assert [head_word(words, 0, len(words) - 1) for words in given] == [0, 2, 2]
