"""ERNIE from texts to a model: phrases and capitals marked, five objectives in turn, stopped, resumed and opened."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import osbert
from corpora import invented
from osbert.corpus.shards import Corpus
from osbert.data.stages import first_steps
from osbert.models.contract import StepSize
from osbert.runs.events import TrainingStart
from osbert.runs.pretrain.first_weights import other_text
from osbert.runs.pretrain.masks import sample_masks
from osbert.runs.pretrain.settings import read_plan
from osbert.runs.pretrain.speed_test import SpeedTest, turns
from osbert.tasks import Prediction
from osbert.training.progress import Progress
from osbert_lab.planning.plan_sizes import candidates
from osbert_lab.planning.speed import flops_per_token, training_flops
from refusals import refusal

OBJECTIVES = ("mlm", "capitals", "document_words", "reorder", "distance")
TINY = {
    "objectives": OBJECTIVES, "model.tasks": 5, "model.layers": 1, "width": 16, "heads": 2, "model.length": 24,
    "batch": 4, "data.length": 24, "held_out": 0.05, "steps": 15, "log_every": 5, "checkpoint_every": 4,
    "evaluate_every": 15, "precision": "fp32", "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of documents in which Bada Kefe is met twice in each."""
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n\n".join(f"{text} We met Bada Kefe. So did Bada Kefe." for text in invented()))
    osbert.train_tokenizer(path, out=path.parent / "vocabulary", vocabulary=150)
    return path


@pytest.fixture(scope="module")
def corpus(texts: Path) -> Path:
    tokenizer, out = texts.parent / "vocabulary", texts.parent / "corpus"
    osbert.build_corpus(texts, tokenizer=tokenizer, out=out, phrases="capitals", capitals=True)
    return out


def test_it_is_trained_by_turns_and_goes_on_where_it_was_stopped(corpus: Path, tmp_path: Path) -> None:
    whole = osbert.pretrain("ernie-small", corpus=corpus, out=tmp_path / "whole", **TINY)
    lines = [json.loads(line) for line in (whole.folder / "metrics.jsonl").read_text().splitlines()]
    assert all(lines[-1][f"held_out.{name}.loss"] > 0 for name in OBJECTIVES)
    config = json.loads((whole.folder / "config.json").read_text())
    assert config["architectures"] == ["ErnieForMaskedLM"] and config["task_type_vocab_size"] == 5

    def stop(event: Any) -> None:
        if isinstance(event, Progress) and event.step == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        osbert.pretrain("ernie-small", corpus=corpus, out=tmp_path / "again", watch=stop, **TINY)
    begun: list[int] = []
    osbert.pretrain(
        "ernie-small",
        corpus=corpus,
        out=tmp_path / "again",
        watch=lambda event: begun.append(event.done) if isinstance(event, TrainingStart) else None,
        **TINY,
    )
    assert begun == [6]
    runs = (tmp_path / "again", whole.folder)
    assert len({(run / "model.safetensors").read_bytes() for run in runs}) == 1
    # Further training: an objective in another place reads another task embedding.
    for names, moved in ((OBJECTIVES[:2], ""), (("reorder", "mlm"), "mlm and reorder")):
        further = {"objectives": names, "data.length": 24}
        remarks = read_plan("", further, corpus=corpus, origin=whole.folder).remarks
        assert [remark.startswith(moved) for remark in remarks if "task" in remark] == [True] * bool(moved)


def test_its_masks_can_be_shown(corpus: Path) -> None:
    """Of objectives that take turns only masking has masks."""
    sample = sample_masks(corpus, "ernie-small", {"data.length": 24, "model.length": 24, "held_out": 0.05})
    assert len(list(sample.text(1))) >= 3
    assert all({*example.targets} == {"mlm"} for example in sample.examples)


def test_a_test_of_the_speed_sees_all_objectives(corpus: Path, tmp_path: Path) -> None:
    plan = read_plan("ernie-small", TINY, corpus=corpus)
    assert turns(plan) == len(OBJECTIVES) and len(first_steps(plan.loader(length=24))) == len(OBJECTIVES)
    test = SpeedTest(plan, tmp_path)
    assert test.speed(24, seconds=0.01).steps % len(OBJECTIVES) == 0
    (own,) = (size for size in candidates(plan, "cpu") if size.plan is plan)
    each = [StepSize.of(test.learner, batches) for batches in first_steps(plan.loader(length=24))]
    arithmetic = sum(training_flops(test.learner, size) for size in each) / sum(size.tokens for size in each)
    assert own.flops == pytest.approx(arithmetic) == pytest.approx(flops_per_token(test, 24))
    assert other_text(replace(plan, general=plan.corpus))["general"][-1].targets.keys() == {OBJECTIVES[-1]}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"curriculum": "together"}, ("capitals", "document_words")),
        ({"model.tasks": 3}, ("model.tasks", "5")),
        ({"objectives": ("mlm",)}, ("curriculum", "only one")),
        ({"objectives": ("mlm", "dialogue"), "data.length": 6}, ("data.length", "dialogue", "7")),  # it never ended
    ],
)
def test_what_cannot_go_together_is_refused(
    settings: dict[str, Any], told: tuple[str, ...], corpus: Path, tmp_path: Path
) -> None:
    with refusal("invalid-setting", *told):
        osbert.pretrain("ernie-small", corpus=corpus, out=tmp_path / "run", **{**TINY, **settings})


def test_capitals_need_a_corpus_that_marks_them(texts: Path, tmp_path: Path) -> None:
    osbert.build_corpus(texts, tokenizer=texts.parent / "vocabulary", out=tmp_path / "corpus")
    with refusal("invalid-setting", "--capitals"):
        osbert.pretrain("ernie-small", corpus=tmp_path / "corpus", out=tmp_path / "run", **TINY)


def test_an_objective_of_a_later_stage_that_has_no_sequences_is_refused(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("So did we.\n\n" * 60)
    osbert.build_corpus(tmp_path / "short.txt", tokenizer=texts.parent / "vocabulary", out=tmp_path / "corpus")
    later = {**TINY, "objectives": ("mlm", "dialogue"), "curriculum": "one_by_one", "held_out": 0.0}
    with refusal("too-little-data", "dialogue"):
        osbert.pretrain("ernie-small", corpus=tmp_path / "corpus", out=tmp_path / "run", **later)
    assert not (tmp_path / "run").exists()


def test_phrases_come_from_a_list_a_tagger_or_capitals(
    texts: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same phrase by each way gives the same marks, also where repeated lines are looked for."""
    (tmp_path / "list.txt").write_text("Bada Kefe\n\nnever met\n")
    (tmp_path / "run").mkdir()

    class Engine:
        task = SimpleNamespace(form="tokens")

        def predict(self, sentences: list[str]) -> list[Prediction]:
            found = [[{"text": "Bada Kefe"}] * ("Bada Kefe" in sentence) for sentence in sentences]
            return [SimpleNamespace(as_dict=lambda found=one: {"prediction": found}) for one in found]  # type: ignore[misc]

    monkeypatch.setattr("osbert.inference.engine.load", lambda run, opening: Engine())
    monkeypatch.setattr(
        "osbert.interop.folder.open_folder", lambda run, opening: SimpleNamespace(fingerprint="of a run")
    )
    merged = Corpus.open(corpus)
    tokenizer = texts.parent / "vocabulary"
    plain = osbert.build_corpus(texts, tokenizer=tokenizer, out=tmp_path / "plain")
    assert merged.report["tokens"] == plain.report["tokens"]
    assert plain.report["words"] - merged.report["words"] == 2 * len(invented())
    for name in ("list.txt", "run"):
        built = osbert.build_corpus(
            texts,
            tokenizer=tokenizer,
            out=tmp_path / f"corpus-{name}",
            phrases=str(tmp_path / name),
            capitals=True,
            deduplicate=name == "run",
        )
        assert built.report["words"] == merged.report["words"]
        assert built.counts.tolist() == merged.counts.tolist()


def test_phrases_of_texts_are_found_once(
    texts: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[str] = []

    def found(sentences: Iterator[str]) -> list[str]:
        searches.extend(sentences)
        return ["Bada Kefe"] * 2

    monkeypatch.setattr("osbert_lab.ernie.phrase_search.find_capitalised", found)

    def build(out: Path, **given: Any) -> Corpus | None:
        return osbert.build_corpus(texts, tokenizer=texts.parent / "vocabulary", out=out, phrases="capitals", **given)

    build(corpus, capitals=True)
    assert not searches
    with refusal("begun-with-other-settings", "documents"):
        build(corpus, capitals=True, documents="line")
    (tmp_path / "other.txt").write_text("no corpus")
    with refusal("output-holds-something-else"):
        build(tmp_path)
    assert searches and [path.name for path in tmp_path.iterdir()] == ["other.txt"]


def test_phrases_are_found_by_a_function_that_is_trusted(
    texts: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_spans.py").write_text(
        "find = lambda text: ['Bada Kefe'] * ('Bada Kefe' in text)\nimport no_such\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    given: dict[str, Any] = {"tokenizer": texts.parent / "vocabulary", "out": tmp_path / "corpus", "capitals": True}
    with refusal("untrusted-code", "own_spans"):
        osbert.build_corpus(texts, phrases="own_spans:find", **given)
    with pytest.raises(ModuleNotFoundError):  # of what the module itself imports
        osbert.build_corpus(texts, phrases="own_spans:find", trust=True, **given)
    (tmp_path / "own_spans.py").write_text("find = lambda text: ['Bada Kefe'] * ('Bada Kefe' in text)\n")
    importlib.invalidate_caches()
    (tmp_path / "one_span.py").write_text("find = 'Bada Kefe'.strip\none = lambda text: text\nnone = 3\n")
    for name in ("one_span:one", "one_span:find"):
        with refusal("invalid-value", name):
            osbert.build_corpus(texts, phrases=name, trust=True, **given)
    for name in ("own_spans:other", "nowhere:find", "one_span:none"):
        with refusal("component-not-importable", name.split(":")[0]):
            osbert.build_corpus(texts, phrases=name, trust=True, **given)
    built = osbert.build_corpus(texts, phrases="own_spans:find", trust=True, **given)
    assert built is not None and built.counts.tolist() == Corpus.open(corpus).counts.tolist()
    assert built.report["words"] == Corpus.open(corpus).report["words"]


def test_sources_without_phrases_are_refused(texts: Path, tmp_path: Path) -> None:
    tokenizer = texts.parent / "vocabulary"
    with refusal("missing-file", "nowhere"):
        osbert.build_corpus(texts, tokenizer=tokenizer, out=tmp_path / "corpus", phrases="nowhere")
    (tmp_path / "empty.txt").write_text("\n")
    with refusal("no-data", "empty.txt"):
        osbert.build_corpus(texts, tokenizer=tokenizer, out=tmp_path / "corpus", phrases=str(tmp_path / "empty.txt"))
    (tmp_path / "latin.txt").write_bytes("Bada Kefe\nZoë Kefe\n".encode("latin-1"))
    with refusal("wrong-encoding", "latin.txt, line 2", "0xeb"):
        osbert.build_corpus(texts, tokenizer=tokenizer, out=tmp_path / "corpus", phrases=str(tmp_path / "latin.txt"))


def test_objectives_that_find_little_to_learn_are_named(tmp_path: Path) -> None:
    """Lines of one sentence each: nothing to reorder, no distances within a document, and no other part of it."""
    (tmp_path / "lines.txt").write_text("\n\n".join(text.split(". ")[0] + "." for text in invented() * 8))
    osbert.train_tokenizer(tmp_path / "lines.txt", out=tmp_path / "vocabulary", vocabulary=150)
    osbert.build_corpus(tmp_path / "lines.txt", tokenizer=tmp_path / "vocabulary", out=tmp_path / "corpus", workers=1)
    names = ("mlm", "document_words", "reorder", "distance")
    settings = {"objectives": names, "curriculum": "continual", "data.length": 24, "held_out": 0.0}
    remarks = read_plan("ernie-small", settings, corpus=tmp_path / "corpus").remarks
    for name in names[1:]:
        assert [remark for remark in remarks if remark.startswith(name)], (name, remarks)
