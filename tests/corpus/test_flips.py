"""A bit that flips in an unfinished corpus: it is found, or it makes no difference; a finished corpus never has it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from osbert.corpus import build
from osbert.corpus.build import Build
from osbert.corpus.state import BuildSettings
from osbert.errors import UserError
from osbert.reading import documents as readers


def flip(path: Path, seed: int) -> None:
    """Change one bit of a file."""
    place = random.Random(seed).randrange(8 * path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)


@pytest.mark.parametrize("deduplicate", [False, True])
@pytest.mark.parametrize("phase", ["encoding", "duplicates"])
def test_a_flip_in_what_a_stopped_build_left_never_ends_in_another_corpus(
    tmp_path, tokenizer, prose, monkeypatch, deduplicate, phase
):
    monkeypatch.setattr(build, "PORTION", 3000)
    monkeypatch.setattr(readers, "CHUNK", 700)
    (tmp_path / "a.txt").write_text("\n\n".join([*prose(60), *prose(10), *prose(30, seed=1)]))
    settings = BuildSettings(deduplicate=deduplicate, shard_tokens=3000)

    def run(folder: Path, stop: str = "") -> None:
        def watch(progress: build.BuildProgress) -> None:
            if progress.phase == stop and (stop != "encoding" or len(work.state.shards) == 2):
                raise KeyboardInterrupt

        work = Build.prepare([tmp_path / "a.txt"], tokenizer=tokenizer, folder=folder, settings=settings)
        work.run(watch=watch)

    def content(folder: Path) -> dict[str, bytes]:
        files = folder.rglob("*.npy")
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}

    run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", phase)
    left = [path for path in (tmp_path / "stopped").rglob("*") if path.is_file() and path.stat().st_size]
    refused = set()
    for number, path in enumerate(left):
        shutil.copytree(tmp_path / "stopped", folder := tmp_path / "flipped")
        flip(folder / path.relative_to(tmp_path / "stopped"), number)
        try:
            run(folder)
        except UserError as error:
            assert path.name in str(error)
            refused.add(path.name)
        else:
            assert content(folder) == content(tmp_path / "whole")
        shutil.rmtree(folder)
    names = {"ids.npy", "sentences.npy", "documents.npy", "words.npy", "hashes.npy", "starts.npy", "counts.npy"}
    assert refused == names | {"building.json"}
