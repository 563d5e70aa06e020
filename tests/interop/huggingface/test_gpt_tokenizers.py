"""GPT's and GPT-2's own tokenizers: ids are those of transformers, for fine-tuning there are three more pieces."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

from family_tokenizers import GPTS, LEARNT
from osbert.data.pack import Packer
from osbert.interop.tokenizers import read_any_tokenizer, write_any_tokenizer
from osbert.text.file_tokenizer import MARKS, FileTokenizer, for_tasks
from refusals import refusal

TEXTS = [
    *LEARNT,
    "",
    "a",
    "  two  spaces and\ttabs\nlines  ",
    "Ünseen wörds, 'quoted' (END).",
    "fox<|endoftext|>",
    "👍🏽",
]
CLASSES = {"gpt": transformers.OpenAIGPTTokenizer, "gpt2": transformers.GPT2Tokenizer}


@pytest.fixture(scope="module", params=GPTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizers") / request.param
    GPTS[request.param](path)
    return path


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return CLASSES[folder.name].from_pretrained(folder)


def without(folder: Path, copy: Path, *names: str) -> Path:
    """Copy a folder without some files."""
    copy.mkdir()
    for path in folder.iterdir():
        if path.name not in names:
            (copy / path.name).write_bytes(path.read_bytes())
    return copy


@pytest.mark.parametrize(
    "lost",
    [(), ("tokenizer.json",), ("tokenizer_config.json", "vocab.json"), ("tokenizer.json", "tokenizer_config.json")],
)
def test_ids_are_theirs_with_any_of_the_published_files(folder: Path, theirs: Any, lost: tuple, tmp_path: Path) -> None:
    ours = read_any_tokenizer(without(folder, tmp_path / folder.name, *lost))
    assert isinstance(ours, FileTokenizer) and len(ours) == len(theirs)
    packer = Packer(tokenizer=ours, length=64)
    for text in TEXTS:
        wanted = theirs(text)["input_ids"]
        assert ours.encode(text).tolist() == ours.encode_with_offsets(text).ids.tolist() == wanted
        assert np.frombuffer(ours.encode_many([text])[0], ours.id_type).tolist() == wanted
        assert packer.single(*packer.run(text)).ids.tolist() == (wanted or [ours.unknown])
    assert ours.unknown == theirs.unk_token_id
    assert ours.form.between == ((theirs.eos_token_id,) if folder.name == "gpt2" else ())
    assert ours.decode(ours.encode("the quick fox")).split() == ["the", "quick", "fox"]


def test_written_again_it_is_theirs(folder: Path, theirs: Any, tmp_path: Path) -> None:
    ours = read_any_tokenizer(folder)
    write_any_tokenizer(ours, tmp_path, length=32, segments=0)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (again.unk_token, again.eos_token) == (theirs.unk_token, theirs.eos_token)
    for text in TEXTS:
        assert again(text)["input_ids"] == theirs(text)["input_ids"]
    assert read_any_tokenizer(tmp_path) == ours == pickle.loads(pickle.dumps(ours))


def test_what_has_no_mask_says_so(folder: Path) -> None:
    for name in ("pad", "cls", "sep", "mask"):
        with refusal("unusable-tokenizer", name):
            getattr(read_any_tokenizer(folder), name)


def test_padding_that_a_user_has_named_stays(folder: Path, tmp_path: Path) -> None:
    path = without(folder, tmp_path / folder.name) / "tokenizer_config.json"
    unknown = read_any_tokenizer(folder).specials["unknown"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": unknown}))
    ours = read_any_tokenizer(path.parent)
    assert ours.pad == ours.unknown and ours.form.specials(1) == 0


def test_three_pieces_stand_around_the_texts_of_a_task(folder: Path, tmp_path: Path) -> None:
    plain = read_any_tokenizer(folder)
    ours = for_tasks(plain)
    assert for_tasks(ours) is ours and ours.tokens(range(len(plain), len(ours))) == [*MARKS]
    start, delimiter, classify = range(len(plain), len(ours))
    packer = Packer(tokenizer=ours, length=64)
    first, second = (packer.run(text) for text in LEARNT[:2])
    pair = packer.pair(first, second)
    assert pair.ids.tolist() == [start, *plain.encode(LEARNT[0]), delimiter, *plain.encode(LEARNT[1]), classify]
    assert packer.single(*first).ids.tolist() == [start, *plain.encode(LEARNT[0]), classify]
    assert ours.form.summary == "last" and not pair.segments.any()
    write_any_tokenizer(ours, tmp_path, length=32, segments=0)
    assert read_any_tokenizer(tmp_path) == ours
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert again(*LEARNT[:2])["input_ids"] == pair.ids.tolist()
