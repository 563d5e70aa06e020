"""Bits flipped in the files of a finished run: none goes unnoticed when the run is opened."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from harness import CHANCE, LONG, Site

from osbert.errors import UserError
from osbert.inference.engine import load
from osbert.interop.conversion import open_model
from osbert.training.run_folder import HASHED

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
            way_in = (load, open_model)[attempt % 2]
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


def test_a_flip_is_found_before_a_run_goes_on_from_it(site: Site) -> None:
    start = site.fresh()
    shutil.copytree(site.undisturbed, start)
    flip(start / "model.safetensors", -32)  # the lowest bit of the last number, which stays a number
    with pytest.raises(UserError, match=r"model\.safetensors"):
        load(start)
    out = site.fresh()
    ended = site.run(out, "--from", str(start))
    wrong = ended.status == 0 or str(start / "model.safetensors") not in ended.output
    site.tally.count("a bit flipped in an encoder that is trained further", wrong=wrong)
    assert not wrong and not out.exists(), ended
    assert site.run(out, "--from", str(start), "--no-verify").status == 0
