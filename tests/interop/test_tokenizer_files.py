"""Tokenizer folders: what we write loads in transformers with equal pieces, and theirs load here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from osbert.interop.hub import minilm
from osbert.interop.tokenizers import read_any_tokenizer, read_tokenizer, write_any_tokenizer, write_tokenizer
from osbert.text.tokenizer import SPECIALS, Tokenizer
from refusals import refusal

TEXT = "The café's Straße, naïve 一龥 İx don't U.S.A. $9.50 Ünïcödé résumé ABC abc \u00ad\u200b! ﬁ ½ 😀 x"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789éßïüöÉÜİ½一😀$.,'!"
PIECES = [*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS), "the", "The", "##af", "##es", "abc", "ABC"]


def make(*, cased: bool, **flags: bool) -> Tokenizer:
    return Tokenizer(PIECES, lowercase=not cased, **flags)


def their_ids(folder: Path, text: str) -> list[int]:
    from transformers import AutoTokenizer

    ids: list[int] = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    return ids


def their_pieces(folder: Path, text: str) -> list[str]:
    from transformers import AutoTokenizer

    pieces: list[str] = AutoTokenizer.from_pretrained(folder).convert_ids_to_tokens(their_ids(folder, text))
    return pieces


@pytest.mark.parametrize("cased", [False, True])
def test_transformers_cuts_as_we_do(tmp_path: Path, cased: bool) -> None:
    tokenizer = make(cased=cased)
    write_tokenizer(tokenizer, tmp_path, length=64)
    expected = ["[CLS]", *tokenizer.tokens(tokenizer.encode(TEXT)), "[SEP]"]
    assert their_pieces(tmp_path, TEXT) == expected
    assert "[UNK]" in expected and len(set(expected)) > 30


def test_transformers_reads_specials_pairs_and_length(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = make(cased=False)
    write_tokenizer(tokenizer, tmp_path, length=64)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.model_max_length == 64
    assert [loaded.pad_token_id, loaded.unk_token_id, loaded.cls_token_id] == [
        tokenizer.pad,
        tokenizer.unknown,
        tokenizer.cls,
    ]
    assert [loaded.sep_token_id, loaded.mask_token_id] == [tokenizer.sep, tokenizer.mask]
    both = loaded("a b", "c")
    a, b, c = tokenizer.encode("a b c").tolist()
    assert both["input_ids"] == [tokenizer.cls, a, b, tokenizer.sep, c, tokenizer.sep]
    assert both["token_type_ids"] == [0, 0, 0, 0, 1, 1]
    assert len(loaded) == len(tokenizer)


@pytest.mark.parametrize(
    "files", [("tokenizer.json",), ("vocab.txt", "tokenizer_config.json"), ("tokenizer.json", "vocab.txt")]
)
@pytest.mark.parametrize(
    "tokenizer",
    [make(cased=False), make(cased=True), make(cased=False, strip_accents=False), make(cased=True, cjk=False)],
)
def test_what_is_written_is_read(tmp_path: Path, tokenizer: Tokenizer, files: tuple[str, ...]) -> None:
    write_tokenizer(tokenizer, tmp_path / "whole")
    for name in files:
        (tmp_path / "part").mkdir(exist_ok=True)
        shutil.copy(tmp_path / "whole" / name, tmp_path / "part")
    assert read_tokenizer(tmp_path / "part") == tokenizer
    assert read_tokenizer(tmp_path / "whole") == tokenizer
    assert not list((tmp_path / "whole").glob(".*"))


def test_files_are_the_same_every_time(tmp_path: Path) -> None:
    write_tokenizer(make(cased=False), tmp_path / "a")
    write_tokenizer(read_tokenizer(tmp_path / "a"), tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)


def test_the_tokenizers_library_reads_our_file(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library

    tokenizer = make(cased=False)
    write_tokenizer(tokenizer, tmp_path)
    library = Library.from_file(str(tmp_path / "tokenizer.json"))
    for text in (TEXT, "a" * 150):
        assert library.encode(text, add_special_tokens=False).ids == tokenizer.encode(text).tolist()
    assert library.decode(library.encode("abc, é").ids) == "abc, e"


def test_minilm_folder_loads_with_equal_pieces(tmp_path: Path) -> None:
    tokenizer = read_tokenizer(minilm())
    assert len(tokenizer) == 30522 and tokenizer.lowercase and tokenizer.strip_accents
    expected = ["[CLS]", *tokenizer.tokens(tokenizer.encode(TEXT)), "[SEP]"]
    assert their_pieces(minilm(), TEXT) == expected
    write_tokenizer(tokenizer, tmp_path)
    assert their_pieces(tmp_path, TEXT) == expected


@pytest.mark.parametrize("cased", [False, True])
def test_folders_that_transformers_writes(tmp_path: Path, cased: bool) -> None:
    from transformers import AutoTokenizer

    tokenizer = make(cased=cased)
    write_tokenizer(tokenizer, tmp_path / "ours")
    AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    assert read_tokenizer(tmp_path / "theirs") == tokenizer


@pytest.mark.parametrize("kind", ["BertTokenizer", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize("accents", [None, True, False])
@pytest.mark.parametrize("cased", [False, True])
def test_a_step_of_lower_case_counts_where_it_does_in_transformers(
    tmp_path: Path, cased: bool, accents: bool | None, kind: str
) -> None:
    """sentence-transformers 6 writes a Transformer's do_lower_case so. BertTokenizer follows its own flag instead."""
    write_tokenizer(make(cased=cased), tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        content = json.loads((tmp_path / name).read_text())
        if name == "tokenizer.json":
            content["normalizer"]["strip_accents"] = accents
            content["normalizer"] = {
                "type": "Sequence",
                "normalizers": [{"type": "Lowercase"}, content["normalizer"]],
            }
        else:
            content |= {"strip_accents": accents, "tokenizer_class": kind}
        (tmp_path / name).write_text(json.dumps(content))
    for tokenizer in (read_any_tokenizer(tmp_path), read_tokenizer(tmp_path)):
        assert ["[CLS]", *tokenizer.tokens(tokenizer.encode(TEXT)), "[SEP]"] == their_pieces(tmp_path, TEXT)


def test_case_is_guessed_from_a_vocabulary_alone(tmp_path: Path) -> None:
    for pieces, lowercase in ((PIECES, False), ([*SPECIALS, "[unused1]", "a", "é", "##b", "一"], True)):
        file = tmp_path / "vocab.txt"
        file.write_bytes(("\r\n".join(pieces) + "\r\n\r\n").encode("utf-8-sig"))
        for place in (tmp_path, file):
            tokenizer = read_tokenizer(place)
            assert tokenizer.vocabulary == tuple(pieces)
            assert (tokenizer.lowercase, tokenizer.strip_accents) == (lowercase, lowercase)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not read_tokenizer(file).lowercase
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": "no"}')
    with refusal("unusable-tokenizer", "s do_lower_case is "):
        read_tokenizer(file)


def test_pieces_added_later_have_their_ids(tmp_path: Path) -> None:
    write_tokenizer(make(cased=False), tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text("utf-8"))
    content["added_tokens"].append({"id": len(PIECES), "content": "[ENT]", "special": True})
    file.write_text(json.dumps(content), "utf-8")
    assert read_tokenizer(tmp_path).vocabulary == (*PIECES, "[ENT]")
    content["added_tokens"][-1]["id"] += 1
    file.write_text(json.dumps(content), "utf-8")
    with refusal("unusable-tokenizer", len(PIECES)):
        read_tokenizer(file)


ENTITY = {"content": "[ENT]", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
DECODER = {str(len(PIECES)): ENTITY | {"special": False}, str(len(PIECES) + 1): ENTITY | {"content": "<u>"}}


@pytest.mark.parametrize("cased", [False, True])
@pytest.mark.parametrize("form", ["tokenizer.json", "added_tokens.json", "tokenizer_config.json"])
def test_added_pieces_are_found_in_a_text_as_in_transformers(tmp_path: Path, form: str, cased: bool) -> None:
    write_tokenizer(make(cased=cased), tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    description, settings = tmp_path / "tokenizer.json", tmp_path / "tokenizer_config.json"
    if form == "tokenizer.json":
        content = json.loads(description.read_text("utf-8"))
        content["added_tokens"] += [{"id": int(number), "special": False} | piece for number, piece in DECODER.items()]
        content["normalizer"]["lowercase"] = cased  # tokenizer_config.json overrides it
        description.write_text(json.dumps(content), "utf-8")
    else:
        description.unlink()
    if form == "added_tokens.json":
        (tmp_path / form).write_text(json.dumps({"[ENT]": len(PIECES), "<u>": len(PIECES) + 1}))
    if form == "tokenizer_config.json":
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"added_tokens_decoder": DECODER}))
    text = f"{TEXT} the [ENT] café[ENT] <u>abc [ent] [E <U> [SEP]"
    expected = their_ids(tmp_path, text)
    tokenizer = read_any_tokenizer(tmp_path)
    assert [tokenizer.cls, *tokenizer.encode(text).tolist(), tokenizer.sep] == expected
    assert expected.count(len(PIECES)) == 2 + (not cased) and len(tokenizer) == len(PIECES) + 2
    write_any_tokenizer(tokenizer, tmp_path / "ours")
    assert their_ids(tmp_path / "ours", text) == expected


def test_added_pieces_of_other_types_are_refused(tmp_path: Path) -> None:
    write_tokenizer(make(cased=False), tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "added_tokens.json").write_text('{"[ENT]": "last"}')
    with refusal("unusable-tokenizer", tmp_path):
        read_any_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (
            {"model": {"type": "BPE", "vocab": {}, "merges": []}},
            ("unusable-tokenizer", "tokenizer.json", "BPE", "WordPiece"),
        ),
        ({"model": {"type": "Unigram", "vocab": []}}, ("unusable-tokenizer", "tokenizer.json", "Unigram")),
        ({"normalizer": {"type": "Lowercase"}}, ("unusable-tokenizer", "tokenizer.json", "normalizer", "Lowercase")),
        (
            {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "BertNormalizer"}]}},
            ("unusable-tokenizer", "tokenizer.json", "normalizer", "NFKC"),
        ),
        ({"normalizer": None}, ("unusable-tokenizer", "tokenizer.json", "normalizer", "None")),
        (
            {"pre_tokenizer": {"type": "ByteLevel"}},
            ("unusable-tokenizer", "tokenizer.json", "pre-tokenizer", "ByteLevel"),
        ),
        (
            {"model": {"type": "WordPiece", "continuing_subword_prefix": "@@", "vocab": {}}},
            ("unusable-tokenizer", "tokenizer.json", "@@"),
        ),
        ({"model": {"type": "WordPiece"}}, ("unusable-tokenizer", "tokenizer.json", "vocabulary")),
        ({"model": 5}, ("unusable-tokenizer", "tokenizer.json", "'int'")),
        ({"model": {"type": "WordPiece", "vocab": {"a": 0, "b": "1"}}}, ("unusable-tokenizer", "tokenizer.json")),
        ({"added_tokens": [{"id": 3}]}, ("unusable-tokenizer", "tokenizer.json", "'content'")),
    ],
)
def test_other_tokenizers_are_refused(tmp_path: Path, change: dict[str, object], refused: tuple[str, ...]) -> None:
    write_tokenizer(make(cased=False), tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | change), "utf-8")
    with refusal(*refused):
        read_tokenizer(tmp_path)


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with refusal("missing-file"):
        read_tokenizer(tmp_path / "nowhere")
    (tmp_path / "model.bin").touch()
    with refusal("unusable-tokenizer", "tokenizer.json", "vocab.txt", "model.bin"):
        read_tokenizer(tmp_path)
    file = tmp_path / "vocab.txt"
    for content, refused in (
        (b"\n\n", ("unusable-tokenizer", "vocab.txt")),
        (b"[PAD]\na\xff\n", ("wrong-encoding", "vocab.txt", "byte 7")),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\na\n", ("unusable-tokenizer", "[MASK]", "'a'")),
    ):
        file.write_bytes(content)
        with refusal(*refused):
            read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with refusal("wrong-format", "tokenizer.json"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("[]")
    with refusal("wrong-format"):
        read_tokenizer(tmp_path)
