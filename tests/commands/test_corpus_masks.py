"""osbert corpus show --masks: what pretraining would see, readable without colours, and rates that are true."""

from __future__ import annotations

import re
import string
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from osbert.cli import main
from osbert.corpus.shards import Corpus
from osbert.data.corrupt import word_bounds
from osbert.data.example import Example, Target
from osbert.interop.tokenizers import write_tokenizer
from osbert.reports.mask_text import count_rates, show_masks
from osbert.runs.pretrain.masks import SAMPLED
from osbert.text.tokenizer import SPECIALS, Tokenizer
from terminal import told

LETTERS = string.ascii_lowercase[:12] + ".我们爱北京"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer([*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS)])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """Return a corpus of words of one to three letters, and of Chinese with a space between words."""
    folder = tmp_path_factory.mktemp("masks")
    write_tokenizer(tokenizer, folder / "tokenizer")
    rng = np.random.default_rng(0)
    words = [*("".join(rng.choice(list("abcdefghijkl"), size=1 + number % 3)) for number in range(60)), "我们", "北京"]
    sentences = [" ".join(rng.choice(words, size=8)) + "." for _ in range(400)]
    documents = ["\n".join(sentences[start : start + 8]) for start in range(0, len(sentences), 8)]
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    command = ("corpus", "build", folder / "text.txt", "--tokenizer", folder / "tokenizer", "--out", folder / "corpus")
    assert main([*map(str, command), "--words", "segmented", "--workers", "2"]) == 0
    return folder / "corpus"


@pytest.fixture()
def show(corpus: Path, capsys: pytest.CaptureFixture[str]):
    """Return a function that runs `osbert corpus show` and returns (status, output, errors)."""

    def run(*words: str) -> tuple[int | str | None, str, str]:
        done = told(capsys, "corpus", "show", corpus, *words)
        return done.status, done.output, done.error

    return run


def test_the_report_counts_segmented_words(corpus: Path) -> None:
    text = (corpus.parent / "text.txt").read_text(encoding="utf-8")
    report = Corpus.open(corpus).report
    assert report["words"] == len(text.replace(".", " . ").split())
    assert report["tokens_per_word"] == pytest.approx(report["tokens"] / report["words"], abs=1e-4)


def rows(output: str) -> dict[str, tuple[str, str]]:
    """Return (counted, wanted) of each row of the table."""
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if "│" in line]
    return {name: (counted, wanted) for name, counted, wanted in cells}


def test_sequences_show_the_true_pieces_and_rates_are_near_the_wanted_ones(show) -> None:
    status, output, _ = show("--masks", "4", "--data.length", "32", "--unit", "words")
    assert status == 0
    sequences = [line for line in output.splitlines() if line.startswith("[CLS]")]
    assert len(sequences) == 4
    assert all("\x1b" not in line and "[MASK]←" in line for line in sequences)
    assert all("(nsp: B follows A)" in line or "(nsp: B is from elsewhere)" in line for line in sequences)
    table = rows(output)
    assert table.pop("tokens a sequence, mean")[1] == "at most 32"
    assert table.pop("words cut: chosen in part") == ("0.00%", "0.00%")
    assert table.pop("second texts from elsewhere")[1] == "50.00%"
    assert len(table) == 4
    for counted, wanted in table.values():
        assert abs(float(counted.rstrip("%")) - float(wanted.rstrip("%"))) < 2
    assert f"{SAMPLED:,} sequences" in output


def test_objectives_without_masks_are_shown_with_their_labels(show) -> None:
    status, output, _ = show("--masks", "3", "--objectives", "nsp", "--data.length", "32")
    assert status == 0 and "(nsp: B " in output and rows(output)["second texts from elsewhere"][1] == "50.00%"
    assert "[MASK]←" not in output.split("\n", 2)[2] and "chosen, of all tokens" not in output
    status, output, _ = show("--masks", "1", "--recipe", "cpu", "--objectives", "sentence_order", "--data.length", "32")
    assert status == 0 and "(sentence_order: " in output and "Masks of" not in output
    sizes = ("--data.length", "16", "--model.direction", "left_to_right")
    status, output, _ = show("--masks", "2", "--recipe", "cpu", "--objectives", "left_to_right", *sizes)
    assert status == 0 and all("←" in line for line in output.splitlines() if line.startswith("[CLS]"))


@pytest.mark.lab
def test_a_source_stands_before_its_target(show) -> None:
    status, output, _ = show("--masks", "2", "--recipe", "t5-mini", "--data.length", "24")
    assert status == 0 and all("  =>  " in line for line in output.splitlines() if "←" in line and ":" not in line)
    assert "  =>  " in output


def test_settings_and_recipe_reach_the_masks(show) -> None:
    settings = ("--rate", "0.3", "--mask", "0", "--random", "0", "--objectives", "mlm", "--limit", "5")
    _, output, _ = show("--masks", "1", "--recipe", "cpu", *settings)
    table = rows(output)
    assert "[MASK]←" not in output.split("\n", 2)[2] and "nsp" not in output
    assert table["shown as it is"] == ("100.00%", "100.00%")
    assert table["chosen, of all tokens"][1] == "30.00%, at most 5 a sequence"
    assert table["words cut: chosen in part"][1] == "any"
    assert "Masks of cpu" in output


def test_chinese_words_that_were_segmented_are_masked_whole(show) -> None:
    _, output, _ = show("--masks", "300", "--unit", "words", "--mask", "1", "--mlm.random", "0")
    assert "[MASK]←我·[MASK]←们" in output and " 我·们" in output
    assert not re.search("←我·们|我·.MASK.←们", output.replace("[MASK]←我·[MASK]←们", ""))


def test_sequences_cross_documents_only_when_asked(show) -> None:
    def separators(*words: str) -> int:
        _, output, _ = show("--masks", "40", "--objectives", "mlm", "--data.length", "200", "--random", "0", *words)
        return max(line.count("[SEP]") for line in output.splitlines() if line.startswith("[CLS]"))

    assert separators() == 1
    assert separators("--cross-documents") > 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--masks", "2", "--rate", "2"), "rate must be a fraction"),
        (("--masks", "2", "--cross-documents"), "cross_documents does nothing with nsp"),
        (("--masks", "2", "--recipe", "cpux"), "Did you mean 'cpu'?"),
        (("--rate", "0.3"), "--masks 5"),
        (("--masks", "2", "--random", "0"), "could be --mlm.random or --nsp.random"),
        (("--recipe", "cpu"), "--masks 5"),
    ],
)
def test_what_pretraining_would_refuse_is_refused(show, words: tuple[str, ...], message: str) -> None:
    status, _, errors = show(*words)
    assert status == 1 and message in errors


def example(tokenizer: Tokenizer, shown: str, truth: str, index: list[int]) -> Example:
    """Return a sequence that shows `shown` where `truth` stood at the positions `index`; both space-separated."""
    ids, true = (np.array([tokenizer.vocabulary.index(piece) for piece in text.split()]) for text in (shown, truth))
    special = np.array([piece in ("[CLS]", "[SEP]") for piece in truth.split()])
    words = ~special & np.array([not piece.startswith("##") for piece in truth.split()])
    target = Target(labels=true[index], index=np.array(index))
    return Example(ids=ids, segments=ids * 0, words=words, special=special, targets={"mlm": target})


def test_marks_and_rates_of_a_sequence_are_those_counted_by_hand(tokenizer: Tokenizer) -> None:
    sequence = example(
        tokenizer,
        "[CLS] a [MASK] ##c d e ##f [SEP] g ##h [SEP]",
        "[CLS] a ##b ##c d f ##f [SEP] g ##h [SEP]",
        [2, 4, 5, 8, 9],
    )
    text = show_masks(sequence, tokenizer, {})
    assert text.plain == "[CLS] a·[MASK]←##b·c d←d e←f·f [SEP] g←g·##h←##h [SEP]"
    with_colours = Console(force_terminal=True, width=200, color_system="standard")
    with with_colours.capture() as capture:
        with_colours.print(text)
    assert len(set(re.findall(r"\x1b\[1;(3\d)m", capture.get()))) == 3
    rates = count_rates([sequence], "mlm", tokenizer)
    assert (rates.length, rates.chosen, rates.mask, rates.random, rates.same) == (11, 5 / 11, 0.2, 0.2, 0.6)
    # Chosen of "abc" one piece of three, of "ff" one of two, of "gh" both; "d" has one piece only.
    assert rates.cut == 2 / 3
    assert len(word_bounds(sequence.words, sequence.special)[0]) == 4
