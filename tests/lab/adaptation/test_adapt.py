"""Adaptation: forms of texts, new heads, sentence encoders, what is forgotten, resumption, refusals."""

from __future__ import annotations

import csv
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import corpora
import osbert
from osbert.errors import UserError
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.folders import write_model
from osbert.interop.sentence_files import SentenceModel, write_sentence_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.runs.pretrain.pretraining import EncoderRun
from osbert_lab.adaptation.adapt import DomainTexts
from osbert_lab.adaptation.settings import AdaptationOptions
from refusals import refusal
from terminal import run
from vocabularies import train

TEXTS = corpora.invented()
SMALL = {
    "steps": 4, "batch": 4, "data_length": 24, "held_out": 0.05, "log_every": 2, "checkpoint_every": 2,
    "evaluate_every": 2, "precision": "fp32", "device": "cpu",
}  # fmt: skip


def written(folder: Path) -> Path:
    """Return a published encoder of our form: no recipe and no head."""
    tokenizer = train(TEXTS, vocabulary=100)
    torch.manual_seed(0)
    sizes = Architecture(layers=1, heads=2, width=16, vocabulary=len(tokenizer), length=24, deviation=0.2)
    write_model(Learner(sizes.build(), {}), folder)
    write_tokenizer(tokenizer, folder, length=24)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("plain") / "model")


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = written(tmp_path_factory.mktemp("sentences") / "model")
    write_sentence_model(folder, SentenceModel(pooling="max", normalize=True, length=20), width=16)
    return folder


@pytest.fixture(scope="module")
def general(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("general") / "general.txt"
    path.write_text("\n\n".join(corpora.invented(seed=1)), encoding="utf-8")
    return path


@pytest.fixture
def adapt(tmp_path: Path, general: Path) -> Callable[..., EncoderRun]:
    """Adapt a model in a folder of the test, for a few steps."""

    def adapt(model: Path, texts: Any = TEXTS, out: str = "run", **settings: Any) -> EncoderRun:
        return osbert.adapt(model, texts, out=tmp_path / out, **{**SMALL, "general": general, **settings})

    return adapt


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the encoder's weights but for the pooler, which is drawn where there is none."""
    state = open_folder(folder).backbone.state_dict()
    return {name: weight for name, weight in state.items() if not name.startswith("pooler.")}


def moved(before: Path, after: Path) -> float:
    old, new = weights(before), weights(after)
    return max(float((new[name][: len(old[name])] - old[name]).abs().max()) for name in old)


@pytest.mark.lab
def test_a_new_head_learns_on_the_encoder_as_it_is_and_then_all_of_it_learns_gently(plain, adapt) -> None:
    events: list[Any] = []
    done = adapt(plain, watch=events.append)
    heads = done.folder / "adapting" / "heads"
    assert moved(plain, heads) == 0
    assert "mlm" in open_folder(heads).heads and "mlm" in open_folder(done.folder).heads
    assert 0 < moved(plain, done.folder) < 4 * 2 * 5e-5
    assert {"held_out.mlm.loss", "general.mlm.loss"} <= done.metrics.keys()
    assert not [name for name in done.metrics if name.startswith("held_out_before")]
    assert any("no head for mlm" in str(event) for event in events)
    report = (done.folder / "report.html").read_text("utf-8")
    assert "general text" in report and "corpus before" not in report
    # What has a head goes on with it, and is measured on what it was measured on before.
    again = adapt(done.folder, out="again", general=None)
    assert not (again.folder / "adapting" / "heads").exists()
    assert "held_out_before.mlm.loss" in again.metrics and "general.mlm.loss" not in again.metrics
    # One new head of several learns without their curriculum, and the corpora have the marks that it needs.
    both = adapt(done.folder, out="both", objectives=["mlm", "capitals"], curriculum="continual")
    begun = json.loads((both.folder / "adapting" / "heads" / "run.json").read_text())["settings"]
    assert begun["objectives"] == ["capitals"] and begun["data"]["curriculum"] == "together"
    assert {"held_out.mlm.loss", "held_out.capitals.loss", "general.capitals.loss"} <= both.metrics.keys()


def test_a_sentence_encoder_stays_one(sentences, adapt) -> None:
    done = adapt(sentences, objectives=["same_text"])
    assert "held_out.same_text.loss" in done.metrics and "general.same_text.loss" in done.metrics
    assert done.model.sentence_model() == osbert.load(sentences).sentence_model()
    assert 0 < moved(sentences, done.folder) < 4 * 2 * 5e-5
    vectors = done.model.embed(TEXTS[:3])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert "modules.json" in done.facts["sha256"]
    for given, pooling in (({}, "max"), ({"same_text.pooling": "cls"}, "cls")):
        chosen = adapt(sentences, out=pooling, objectives=["same_text"], **{"steps": 1, **given})
        assert f'pooling = "{pooling}"' in (chosen.folder / "recipe.toml").read_text("utf-8")


def test_masked_pieces_which_are_the_default_keep_it_one_too(sentences, adapt) -> None:
    done = adapt(sentences)
    assert done.model.sentence_model() == osbert.load(sentences).sentence_model()
    assert moved(sentences, done.folder / "adapting" / "heads") == 0


def test_it_ends_where_general_text_is_forgotten(plain, adapt) -> None:
    done = adapt(plain, steps=40, learning_rate=0.3, forgetting=0.05)
    assert done.metrics["step"] < 40 and "general.mlm.loss" in done.facts["ended"]
    assert done.facts["ended"].replace("'", "&#x27;") in (done.folder / "report.html").read_text("utf-8")
    again = adapt(plain, steps=40, learning_rate=0.3, forgetting=0.05)
    assert again.facts == done.facts

    def stop(event: Any) -> None:
        if getattr(event, "of", "") == "general" and event.values["step"] == done.metrics["step"]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adapt(plain, out="stopped", steps=40, learning_rate=0.3, forgetting=0.05, watch=stop)
    resumed = adapt(plain, out="stopped", steps=40, learning_rate=0.3, forgetting=0.05)
    assert resumed.facts["ended"] == done.facts["ended"]


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(plain, adapt) -> None:
    whole = adapt(plain, out="whole")
    for steps, last in ((1, 1), (4, 3)):  # of the new head's run, and of the whole model's

        def stop(event: Any, steps: int = steps, last: int = last) -> None:
            if (getattr(event, "steps", 0), getattr(event, "step", 0)) == (steps, last):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            adapt(plain, out="stopped", watch=stop)
    assert moved(whole.folder, adapt(plain, out="stopped").folder) == 0


def test_words_of_the_texts_become_pieces(plain, adapt) -> None:
    done = adapt(plain, extend=5)
    old, new = open_folder(plain), open_folder(done.folder)
    assert len(old.tokenizer) < len(new.tokenizer) == new.architecture.vocabulary <= len(old.tokenizer) + 5
    heads = weights(done.folder / "adapting" / "heads")["embeddings.pieces.weight"]
    spelt = old.tokenizer.encode(new.tokenizer.vocabulary[-1]).tolist()
    torch.testing.assert_close(heads[-1], heads[spelt].mean(dim=0))


def test_every_form_of_texts_gives_the_same_rows(tmp_path) -> None:
    with (tmp_path / "texts.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("number", "review"), *enumerate([*TEXTS, ""])])
    lines = [json.dumps({"note": text, "id": number}) + "\n" for number, text in enumerate(TEXTS)]
    (tmp_path / "texts.jsonl").write_text("".join(lines))
    (tmp_path / "more.txt").write_text(TEXTS[0])
    forms = {
        "list": (TEXTS, ""),
        "rows": ([{"text": text} for text in TEXTS], ""),
        "csv": ([tmp_path / "texts.csv"], ""),
        "jsonl": (str(tmp_path / "texts.jsonl"), "note"),
    }
    for name, (texts, column) in forms.items():
        found = DomainTexts.find(texts, AdaptationOptions(text=column).reading)
        (path,) = found.write_tables(tmp_path / f"{name}-rows.jsonl", column)
        assert [json.loads(line)[column or "text"] for line in path.read_text("utf-8").splitlines()] == TEXTS
    both = DomainTexts.find([tmp_path / "more.txt", tmp_path / "texts.csv"], AdaptationOptions().reading)
    assert both.write_tables(tmp_path / "rows.jsonl", "") == [tmp_path / "more.txt", tmp_path / "rows.jsonl"]
    with refusal("unknown-column", "note", "id"):
        DomainTexts.find(tmp_path / "texts.jsonl", AdaptationOptions().reading).write_tables(
            tmp_path / "none.jsonl", ""
        )


def test_a_folder_stands_for_its_tables_and_its_texts_but_not_for_the_output(tmp_path) -> None:
    reading, run = AdaptationOptions().reading, tmp_path / "run"
    run.mkdir()
    for name in ("more.txt", "b.csv", "a.jsonl", "run/texts.jsonl", "notes.odt"):
        (tmp_path / name).write_text('{"text": "one"}\n' if "jsonl" in name else "text\none\n")
    found = DomainTexts.find(tmp_path, reading, without=run)
    assert found.files == (tmp_path / "more.txt",)
    assert [table.path.name for table in found.tables] == ["a.jsonl", "b.csv"]
    with refusal("missing-file", "nothing.csv"):
        DomainTexts.find(["nothing.csv"], reading)


def test_column_and_encoding_hold_for_all_files(plain, adapt, tmp_path) -> None:
    (tmp_path / "in").mkdir()
    lines = "".join(json.dumps({"body": f"{text} caf\u00e9"}, ensure_ascii=False) + "\n" for text in TEXTS)
    (tmp_path / "in" / "rows.jsonl").write_text(lines, encoding="latin-1")
    (tmp_path / "plain.txt").write_text("\n\n".join(f"{text} caf\u00e9" for text in TEXTS), encoding="latin-1")
    (tmp_path / "rows.csv").write_text("id,body\n" + "".join(f"1,{text}\n" for text in TEXTS), encoding="latin-1")
    files = [tmp_path / "in", tmp_path / "plain.txt", tmp_path / "rows.csv"]
    done = adapt(plain, files, text="body", encoding="latin-1", steps=1)
    facts = json.loads((done.folder / "run.json").read_text("utf-8"))
    assert facts["documents"] == 3 * len(TEXTS)


def test_what_is_no_text_is_refused(plain, adapt, tmp_path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}\n{"text": ["two"]}\n')
    with refusal("unusable-row", "rows.jsonl, line 2", "text"):
        adapt(plain, tmp_path / "rows.jsonl")
    with refusal("invalid-value", "dict"):
        adapt(plain, {"train": TEXTS}, out="splits")


def test_other_texts_in_the_same_folder_are_refused_and_so_is_what_is_not_there(plain, adapt, tmp_path) -> None:
    adapt(plain, steps=1)
    with refusal("begun-with-other-settings", "run"):
        adapt(plain, TEXTS[:30], steps=1)
    with refusal("begun-with-other-settings", "extend: 0 -> 3"):
        adapt(plain, steps=1, extend=3)
    with refusal("missing-file", "nothing.csv"):
        adapt(plain, Path("nothing.csv"), out="none")
    with refusal("output-holds-something-else", "adapt.json"):
        adapt(plain, out="run/adapting/heads")
    assert not (tmp_path / "run/adapting/heads/adapting").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with refusal("output-holds-something-else", "full"):
        adapt(plain, out="full")
    with refusal("unknown-setting", "stepz"):
        adapt(plain, out="other", stepz=3)
    with refusal("invalid-setting", "evaluate_every", "--forgetting none"):
        adapt(plain, out="other", evaluate_every=0)
    with refusal("missing-file", "full") as caught:
        adapt(tmp_path / "full", out="other")
    assert "--from" not in str(caught.value)


def rewrite(path: Path, old: str, new: str) -> None:
    """Change a text in a file, and put its time of change back."""
    stamp = path.stat()
    content = path.read_text("utf-8")
    assert len(old) == len(new) and old in content
    path.write_text(content.replace(old, new), "utf-8")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def test_texts_that_changed_are_noticed_at_the_same_size_and_time(plain, adapt, general, tmp_path) -> None:
    texts, wide = tmp_path / "texts.jsonl", tmp_path / "wide.txt"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), "utf-8")
    wide.write_text(general.read_text("utf-8"), "utf-8")
    adapt(plain, texts, steps=1, general=wide)
    adapt(plain, texts, steps=1, general=wide)
    word = TEXTS[0].split()[0]
    for path, first in ((texts, word), (wide, general.read_text("utf-8").split()[0])):
        before = path.read_text("utf-8")
        rewrite(path, first, first[::-1].swapcase())
        with refusal("begun-with-other-settings", "run"):
            adapt(plain, texts, steps=1, general=wide)
        path.write_text(before, "utf-8")


def test_a_flipped_bit_in_the_note_of_an_adaptation_is_told(plain, adapt) -> None:
    done = adapt(plain, steps=1)
    path = done.folder / "adapting" / "adapt.json"
    whole = path.read_bytes()
    for place in random.Random(0).sample(range(8 * len(whole)), 64):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            adapt(plain, steps=1)  # a space that became another one
        except UserError as error:
            assert error.code in ("damaged-file", "begun-with-other-settings")
    path.write_bytes(whole.replace(b'"extend": 0', b'"extend": 3'))
    with refusal("damaged-file", "adapt.json"):
        adapt(plain, steps=1)


def test_on_the_command_line_with_docstrings_as_general_text(sentences, tmp_path, capsys) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n\n".join(TEXTS), encoding="utf-8")
    words = ["--steps", "2", "--batch", "4", "--data.length", "24", "--device", "cpu", "--precision", "fp32"]
    assert run("adapt", sentences, texts, "--out", tmp_path / "out", *words) == 0
    told = capsys.readouterr().out
    assert "docstrings" in told and "general text: loss" in told and "pooling (max)" in told
    assert run("adapt", sentences, "--out", tmp_path / "out", *words) == 1
    assert "texts" in capsys.readouterr().err
