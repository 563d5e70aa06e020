"""Which text of a mixture a run holds out: some of every part; that of an earlier version as it was begun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import corpora
import osbert
from osbert.corpus.shards import Corpus
from osbert.data.loader import LoaderSettings, PretrainingLoader, by_part
from osbert.data.pack import Packer
from osbert.objectives.mlm import MaskedLanguage
from osbert.runs.contract import Notice
from osbert.runs.corpus import tokenizer_of
from osbert.runs.pretrain.pretraining import PretrainRequest, pretrain
from osbert.training.progress import Progress
from refusals import refusal

TINY = {
    "objectives": ["mlm"], "layers": 1, "width": 16, "heads": 2, "model.length": 24, "batch": 4, "data.length": 24,
    "steps": 6, "checkpoint_every": 2, "evaluate_every": 3, "precision": "fp32", "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return corpora.cats_and_dogs(tmp_path_factory.mktemp("mixed"))


def loader_of(corpus: Corpus, **settings: Any) -> PretrainingLoader:
    packer = Packer(tokenizer=tokenizer_of(corpus), length=24)
    return PretrainingLoader(corpus, {"mlm": MaskedLanguage(rate=0.1)}, packer, LoaderSettings(batch=4, **settings))


@pytest.mark.parametrize("held_out", [0.0001, 0.05, 0.2, 0.9])
def test_every_part_is_held_out_by_its_weight_and_left_for_training(mixed: Corpus, held_out: float) -> None:
    loader = loader_of(mixed, held_out=held_out)
    held = [sum(map(mixed.size, group)) for group in by_part(mixed, loader.held)]
    rest = [sum(map(mixed.size, group)) for group in by_part(mixed, loader.training)]
    assert [out + left for out, left in zip(held, rest)] == [part.tokens for part in mixed.parts]
    for part, out in zip(mixed.parts, held):
        wanted = max(128, part.fraction * held_out * mixed.tokens)
        assert out == pytest.approx(min(wanted, max(held_out, 0.1) * part.tokens), abs=8)


def test_a_part_of_long_sentences_gives_a_whole_one_unless_it_is_the_only_one(mixed: Corpus, tmp_path: Path) -> None:
    for name, lines in (("one", 1), ("many", 5)):
        (tmp_path / f"{name}.txt").write_text(f"{'cat dog ' * 300}\n" * lines)
        osbert.build_corpus(tmp_path / f"{name}.txt", tokenizer=mixed.folder, out=tmp_path / name, documents="line")
    long = osbert.mix_corpora([tmp_path / "one", tmp_path / "many"], out=tmp_path / "long")
    held = [sum(map(long.size, group)) for group in by_part(long, loader_of(long, held_out=0.01).held)]
    assert held == [0, 600]


def test_blocks_of_a_run_of_an_earlier_version_are_held_out_as_they_were(mixed: Corpus) -> None:
    """Printed by commit 57b02379; `whole` is what its runs go on with."""
    loader = loader_of(mixed, held_out=0.1, pool=1000, held_out_of="whole")
    held = [(block.shard, block.first, block.last) for block in loader.held]
    assert held == [(0, 18, 36), (0, 108, 126), (0, 144, 162), (0, 162, 180), (1, 216, 234)]


def test_a_run_of_an_earlier_version_goes_on_with_its_division(mixed: Corpus, tmp_path: Path) -> None:
    said: list[str] = []

    def run(out: str, *, stop: int = 0, **settings: Any) -> Path:
        def watch(event: Any) -> None:
            said.extend([event.text] if isinstance(event, Notice) else [])
            if isinstance(event, Progress) and event.step == stop:
                raise KeyboardInterrupt

        request = PretrainRequest(recipe="cpu", settings=TINY | settings, corpus=mixed.folder, out=tmp_path / out)
        return pretrain(request, watch=watch).folder

    with pytest.raises(KeyboardInterrupt):
        run("before", stop=4, held_out_of="whole")
    path = tmp_path / "before" / "run.json"
    facts = json.loads(path.read_text())
    del facts["settings"]["data"]["held_out_of"]  # as an earlier version wrote it
    path.write_text(json.dumps(facts))
    with refusal("begun-with-other-settings"):
        run("before", held_out_of="parts")
    assert sum("cat" in text and "dog" in text for text in said) == 1
    whole, new = run("whole", held_out_of="whole"), run("new")
    assert (run("before") / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert (new / "model.safetensors").read_bytes() != (whole / "model.safetensors").read_bytes()
    finished = [json.loads((folder / "run.json").read_text())["finished"] for folder in (whole, new)]
    assert [len([tokens for _, tokens in facts["held_out"] if tokens]) for facts in finished] == [1, 2]
    for name, tokens in finished[1]["held_out"]:
        assert f"Held-out tokens of {name}</td><td>{tokens}<" in (new / "report.html").read_text()
