"""Corpora and runs written to an object store: the bytes of local ones, also after the machine of a run was lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import corpora
import osbert
from clock import CLOCK
from object_store import QUIET
from osbert.runs.contract import Notice
from osbert.training.progress import Progress
from osbert.training.tracking import read_lines
from osbert_lab.object_stores.output_folders import StoredFolder
from refusals import refusal

pytestmark = QUIET

SIZES: dict[str, Any] = {
    "model.layers": 1, "width": 16, "heads": 2, "model.length": 24, "batch": 4, "data.length": 24, "held_out": 0.05,
    "steps": 7, "checkpoint_every": 2, "precision": "fp32", "device": "cpu", "dropout": 0.1,
}  # fmt: skip


class Lost(BaseException):
    """The machine is lost."""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that goes to a machine: each has a cache of its own."""
    return lambda name: monkeypatch.setenv("OSBERT_CACHE", str(tmp_path / name))


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"{name}.txt" for name in "ab"]
    for seed, file in enumerate(files):
        file.write_text("\n\n".join(corpora.invented(seed=seed)))
    osbert.train_tokenizer(files, out=tmp_path / "tokenizer", vocabulary=120)
    return files


def fetched(s3: Any, name: str, folder: Path) -> Path:
    """Return the folder of a store, without the hidden files, of which there must be none."""
    s3.get(f"box/{name}/", str(folder), recursive=True)
    assert not [path for path in folder.rglob("*") if path.name.startswith(".")]
    return folder


def test_a_corpus_and_a_mixture(s3: Any, texts: list[Path], tmp_path: Path) -> None:
    build = {"tokenizer": tmp_path / "tokenizer", "shard_tokens": 500}
    for name, file in zip("ab", texts):
        local = osbert.build_corpus(file, out=tmp_path / name, **build)
        stored = osbert.build_corpus(file, out=f"s3://box/{name}", **build)
        assert stored.content == local.content
        found = fetched(s3, name, tmp_path / f"{name} of the store")
        assert corpora.files_of(found) == corpora.files_of(tmp_path / name)
    events: list[Any] = []
    osbert.build_corpus(texts[0], out="s3://box/a", watch=events.append, **build)
    assert any("s3://box/a is already finished" in str(event) for event in events)
    with refusal("begun-with-other-settings", "s3://box/a"):
        osbert.build_corpus(texts[1], out="s3://box/a", **build)
    with refusal("output-is-input", "s3://box/mixed"):
        osbert.mix_corpora(["s3://box/mixed", "s3://box/b"], out="s3://box/mixed")
    mixed = osbert.mix_corpora(["s3://box/a", "s3://box/b"], weights=[3, 1], out="s3://box/mixed")
    assert (
        mixed.content
        == osbert.mix_corpora([tmp_path / "a", tmp_path / "b"], weights=[3, 1], out=tmp_path / "m").content
    )
    with refusal("output-exists", "s3://box/mixed"):
        osbert.mix_corpora(["s3://box/a", "s3://box/b"], out="s3://box/mixed")


@pytest.mark.parametrize("checkpoint_writing", ["foreground", "background"])
def test_a_run_goes_on_from_the_store(
    s3: Any,
    texts: list[Path],
    tmp_path: Path,
    machine: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    checkpoint_writing: str,
) -> None:
    osbert.build_corpus(texts, tokenizer=tmp_path / "tokenizer", out=tmp_path / "corpus")
    settings = SIZES | {"checkpoint_writing": checkpoint_writing}
    call: dict[str, Any] = {"corpus": tmp_path / "corpus", **settings}
    whole = osbert.pretrain("cpu", out=tmp_path / "whole", **call)
    begun: list[int] = []
    push = StoredFolder.push

    def no_more(folder: StoredFolder) -> None:
        raise Lost

    for number, lost_at in enumerate((1, 4, 6, 8)):

        def lose(event: Any, lost_at: int = lost_at) -> None:
            if isinstance(event, Notice) and "Going on from the checkpoint of step" in event.text:
                begun.append(int(event.text.rstrip(".").rpartition(" ")[2]))
            if isinstance(event, Progress) and event.step == lost_at:
                monkeypatch.setattr(StoredFolder, "push", no_more)  # as a killed process uploads nothing
                raise Lost

        machine(f"machine-{number}")
        if lost_at > SIZES["steps"]:
            run = osbert.pretrain("cpu", out="s3://box/run", watch=lose, **call)
            break
        with pytest.raises(Lost):
            osbert.pretrain("cpu", out="s3://box/run", watch=lose, **call)
        monkeypatch.setattr(StoredFolder, "push", push)
    assert begun == [2, 4] or checkpoint_writing == "background", begun
    assert str(run.folder) == "s3:/box/run" and run.metrics["step"] == SIZES["steps"]
    found = fetched(s3, "run", tmp_path / "of the store")
    assert (found / "model.safetensors").read_bytes() == (whole.folder / "model.safetensors").read_bytes()
    lines, wanted = (
        [
            {name: value for name, value in line.items() if name not in CLOCK}
            for line in read_lines(path / "metrics.jsonl")
        ]
        for path in (found, whole.folder)
    )
    assert lines == wanted
    assert {path.name for path in (found / "checkpoints").iterdir()} == {
        path.name for path in (whole.folder / "checkpoints").iterdir()
    }
    assert not any(path.is_file() for path in (tmp_path / "machine-3" / "outputs").rglob("*"))


def test_a_fine_tuning(s3: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("text,label\n" + "a good film,pos\na bad film,neg\n" * 20)
    call: dict[str, Any] = {"model": runs["encoder"], "data": tmp_path / "data.csv", "epochs": 1, "batch": 8}
    local = osbert.finetune("classify", out=tmp_path / "tuned", **call)
    stored = osbert.finetune("classify", out="s3://box/tuned", **call)
    assert stored.metrics == local.metrics and str(stored.folder) == "s3:/box/tuned"
    texts = ["a good play"]
    assert [one.value for one in stored.predict(texts)] == [one.value for one in local.predict(texts)]
    found = fetched(s3, "tuned", tmp_path / "of the store")
    names = [path.name for path in (tmp_path / "tuned").iterdir() if not path.name.startswith(".")]
    assert sorted(path.name for path in found.iterdir()) == sorted(names)
    assert (found / "model.safetensors").read_bytes() == (tmp_path / "tuned" / "model.safetensors").read_bytes()
    assert osbert.finetune("classify", out="s3://box/tuned", **call).metrics == local.metrics, "finished already"
    with refusal("begun-with-other-settings", "s3://box/tuned"):
        osbert.finetune("classify", out="s3://box/tuned", **(call | {"epochs": 2}))
