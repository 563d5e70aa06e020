"""Bits flipped in the files of a finished run: none goes unnoticed when the run is opened."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from harness import CHANCE, LONG, Site

import terminal
from osbert.errors import UserError
from osbert.inference.engine import load
from osbert.interop.conversion import model_of, open_any
from osbert.interop.tokenizers import WRITTEN
from osbert.training.run_folder import HASHED
from refusals import refusal

FLIPS = 200 if LONG else 5
"""Flips tried in each file."""


def flip(path: Path, place: int | None = None) -> int:
    """Flip a bit, at random unless its place is given, and return the place."""
    content = bytearray(path.read_bytes())
    place = CHANCE.randrange(8 * len(content)) if place is None else place % (8 * len(content))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    return place


def test_no_flip_in_a_finished_run_goes_unnoticed(site: Site) -> None:
    out = site.fresh()
    shutil.copytree(site.undisturbed, out)
    names = [name for name in HASHED if (out / name).is_file()]
    assert {"model.safetensors", "config.json", "vocab.txt", "tokenizer.json"} <= set(names)
    for name in names:
        for attempt in range(FLIPS):
            place = flip(out / name)
            way_in = (load, lambda folder: model_of(open_any(folder)))[attempt % 2]
            try:
                way_in(out)
            except UserError as error:
                told = name in str(error) or str(out) in str(error)
            else:
                told = False
            site.tally.count("a bit flipped in a finished run", wrong=not told)
            assert told, f"bit {place} of {name}"
            shutil.copyfile(site.undisturbed / name, out / name)
    load(out)
    shutil.rmtree(out)


READERS = (
    "tokenizer encode {tokenizer} bada",
    "tokenizer extend {tokenizer} {text} --pieces 5 --out {out}",
    "corpus build {text} --tokenizer {tokenizer} --workers 1 --out {out}",
)
"""Verbs that open only the tokenizer of a run."""


@pytest.mark.parametrize("verb", READERS)
def test_no_flip_in_a_tokenizer_goes_unnoticed(site: Site, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    run, out, text = site.fresh(), site.fresh(), site.folder / "words.txt"
    shutil.copytree(site.undisturbed, run)
    text.write_text("badakefe logi\n\n" * 40, encoding="utf-8")

    def status(tokenizer: Path, *words: str) -> int:
        return terminal.run(*verb.format(tokenizer=tokenizer, text=text, out=out).split(), *words)

    names = [name for name in WRITTEN if (run / name).is_file()]
    assert {"vocab.txt", "tokenizer.json", "tokenizer_config.json"} <= set(names)
    for name in names:
        for _ in range(FLIPS):
            place = flip(run / name)
            found = status(run) == 1 and str(run / name) in capsys.readouterr().err and not out.exists()
            site.tally.count("a bit flipped in a finished run's tokenizer", wrong=not found)
            assert found, f"bit {place} of {name}"
            shutil.copyfile(site.undisturbed / name, run / name)
    flip(run / "vocab.txt", 0)  # of the first piece, which stays a piece
    assert status(run) == status(run / "vocab.txt") == 1 and not out.exists()
    flip(run / "model.safetensors")  # which is not read
    assert status(run, "--no-verify") == 0
    shutil.rmtree(out, ignore_errors=True)
    flip(run / "vocab.txt", 0)
    assert status(run) == 0
    shutil.rmtree(out, ignore_errors=True)


def test_a_flip_is_found_before_a_run_goes_on_from_it(site: Site) -> None:
    start = site.fresh()
    shutil.copytree(site.undisturbed, start)
    flip(start / "model.safetensors", -32)  # the lowest bit of the last number, which stays a number
    with refusal("damaged-file", "model.safetensors"):
        load(start)
    out = site.fresh()
    ended = site.run(out, "--from", str(start))
    wrong = ended.status == 0 or str(start / "model.safetensors") not in ended.output
    site.tally.count("a bit flipped in an encoder that is trained further", wrong=wrong)
    assert not wrong and not out.exists(), ended
    assert site.run(out, "--from", str(start), "--no-verify").status == 0
