"""The rows of docs/survey.md that pretrain or transfer run as they stand, in tiny sizes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import corpora
import osbert
from terminal import run
from vocabularies import train

pytestmark = pytest.mark.lab  # many rows need it

PAGE = Path(__file__).resolve().parents[2] / "docs" / "survey.md"
LINES = [
    (section.partition("\n")[0], shlex.split(line))
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")
    for line in re.findall(r"^\| .*`osbert ((?:pretrain|finetune) [^`]+)` \|", section, re.MULTILINE)
]
PRETRAINED = [words for _, words in LINES if words[0] == "pretrain"]
TRANSFERRED = [words for section, words in LINES if section == "Ways of transfer" and words[0] == "finetune"]

WRITERS = {"--auxiliary": "gpt", "--data-set": "t5"}
KINDS = ("classify", "tag")
QUICK = ("--device", "cpu", "--precision", "fp32")
ONE_STEP = ("--steps", "1", "--batch", "4", "--data.held-out", "0", *QUICK)
SMALL = (
    "--model.layers",
    "2",
    "--model.width",
    "16",
    "--model.heads",
    "2",
    "--model.length",
    "512",
    "--data.length",
    "32",
)
WORDS = ("--width", "8", "--epochs", "1", "--workers", "1")
LSTM = {
    "cove": ("--model.width", "16", "--data.length", "32"),
    "elmo": ("--model.width", "16", "--model.cells", "16", "--data.length", "32"),
}


def tiny(recipe: str) -> tuple[str, ...]:
    """Return options that shrink the recipe of a row."""
    if recipe in ("word2vec", "glove"):
        return WORDS
    family = recipe.partition("-")[0]
    if recipe == "further":
        return (*ONE_STEP, "--data.length", "32")
    return (*ONE_STEP, *LSTM.get(family, SMALL))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with everything that the rows name."""
    folder = tmp_path_factory.mktemp("survey")
    texts = corpora.invented()
    tokenizer = train(texts, vocabulary=120)
    corpora.build_corpus(folder, texts, tokenizer, capitals=True)
    pairs = [f"{text.split('.')[0]}.\n{text.split('.')[1].strip()}.".lower() for text in texts]
    (folder / "pairs.txt").write_text("\n\n".join(pairs), encoding="utf-8")
    osbert.train_tokenizer(folder / "pairs.txt", out=folder / "words", kind="words", vocabulary=60)
    osbert.build_corpus(folder / "pairs.txt", tokenizer=folder / "words", out=folder / "pairs" / "corpus", workers=1)
    write_related(folder, [text.partition(".")[0].lower() for text in texts])
    model = ("--corpus", folder / "corpus", *ONE_STEP, *SMALL, "--model.layers", "4")
    for name, recipe in (("model", "cpu"), ("gpt", "gpt-small"), ("t5", "t5-mini")):
        assert run("pretrain", recipe, *model, "--out", folder / name) == 0
    write_data(folder)
    chosen = ("--epochs", "1", "--batch", "4", *QUICK)
    data = folder / "glue" / "RTE"
    assert (
        run("finetune", "rte", "--model", folder / "model", "--data", data, *chosen, "--out", folder / "mnli-run") == 0
    )
    return folder


def write_related(folder: Path, sentences: list[str]) -> None:
    """Build a corpus of sentences with their translations, each after its language, and of sentences that contrast."""
    pairs = [f"xxen {sentence}.\nxxde {sentence}." for sentence in sentences]
    contrasts = [f"{sentence}.\nHowever, {sentence}.\nBut {sentence}." for sentence in sentences]
    text, vocabulary = folder / "related.txt", folder / "related-words"
    text.write_text("\n\n".join(pairs + contrasts), encoding="utf-8")
    osbert.train_tokenizer(text, out=vocabulary, vocabulary=160)
    osbert.build_corpus(text, tokenizer=vocabulary, out=folder / "related" / "corpus", workers=1)


def write_data(folder: Path) -> None:
    """Write a few rows of each data set."""
    glue = folder / "glue"
    rows = [(f"bada {number} kefe", f"logi {number}", number % 2) for number in range(8)]
    kinds = {
        "SST-2": ("sentence\tlabel", "{0}\t{2}"),
        "RTE": ("index\tsentence1\tsentence2\tlabel", "0\t{0}\t{1}\t{3}"),
        "MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{2}\t1\t2\t{0}\t{1}"),
    }
    for name, (head, form) in kinds.items():
        (glue / name).mkdir(parents=True)
        lines = [head, *(form.format(*row, ("entailment", "not_entailment")[row[2]]) for row in rows)]
        for split in ("train", "dev"):
            (glue / name / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = folder / "data"
    data.mkdir()
    sets = folder / "sets"
    sets.mkdir()
    for name in ("SST-2", "RTE"):
        (sets / name).symlink_to(glue / name)
    (sets / "squad").mkdir()
    asked = [{"id": "1", "question": "bada", "answers": [{"text": "kefe", "answer_start": 5}]}]
    for split in ("train", "dev"):
        paragraphs = [{"context": "bada kefe", "qas": asked}]
        (sets / "squad" / f"{split}-v1.1.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    tagged = "-DOCSTART- -X- -X- O\n\n" + "bada NN B I-PER\nkefe NN B O\n\nlogi NN B O\nbada NN B I-PER\n\n" * 4
    for name in ("eng.train", "eng.testa"):
        (data / name).write_text(tagged, encoding="utf-8")
    classes = [{"text": text, "label": label} for text, _, label in rows]
    tags = [{"tokens": ["bada", "kefe"], "tags": ["B-X", "O"]}] * 8
    for kind, content in (("classify", classes), ("tag", tags)):
        for split in ("train", "dev"):
            (folder / kind).mkdir(exist_ok=True)
            (folder / kind / f"{split}.jsonl").write_text("\n".join(map(json.dumps, content)) + "\n", encoding="utf-8")


def with_own(words: list[str], **own: str) -> list[str]:
    """Return the words of a row with other values of its options."""
    named = {f"--{name}": value for name, value in own.items()}
    return [named.get(before, word) for before, word in zip(["", *words], words)]  # what stands behind an option


@pytest.mark.parametrize("words", PRETRAINED, ids=shlex.join)
def test_a_row_pretrains(words: list[str], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    corpus = "pairs/corpus" if words[1].startswith("cove") else "corpus"
    corpus = "related/corpus" if {"xlm-mini", "mbart-mini", "discourse"} & {*words} else corpus
    assert run(*with_own(words, corpus=corpus, out=str(tmp_path / "run")), *tiny(words[1])) == 0
    assert osbert.load(tmp_path / "run").tokenizer


@pytest.mark.parametrize("words", TRANSFERRED, ids=shlex.join)
def test_a_row_transfers(words: list[str], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    own = {"out": str(tmp_path / "run")}
    # Two ways need a model that writes: from the left, or from a source.
    writers = [model for option, model in WRITERS.items() if option in words]
    own |= {"model": writers[0]} if writers else {}
    own |= {"data": words[1]} if words[1] in KINDS else {}
    own |= {"model": "t5"} if words[1] == "text_mixture" else {}
    assert run(*with_own(words, **own), "--epochs", "1", "--batch", "4", *QUICK) == 0
    assert [*tmp_path.glob("run/**/run.json")]
