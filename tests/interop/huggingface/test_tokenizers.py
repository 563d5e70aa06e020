"""Byte-level BPE and Unigram tokenizers: pieces and ids are those of transformers, in and out."""

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

from family_tokenizers import KINDS, LEARNT, save_roberta
from osbert.data.pack import Packer, PieceRun
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.folders import text_id_remarks, text_ids
from osbert.interop.tokenizers import read_any_tokenizer, write_any_tokenizer
from osbert.tasks.kinds.span.windows import Cutter
from osbert.tasks.kinds.tag.passages import TaggedText, cut_words
from osbert.text.file_tokenizer import NAMES, FileTokenizer
from osbert.text.tokenizer import SPECIALS, Form, Tokenizer
from refusals import refusal

TEXTS = [
    *LEARNT,
    "",
    "a",
    "  two  spaces and\ttabs\nlines  ",
    "👍🏽 ﬁne ½ ①",
    "Ünseen wörds, 'quoted' (end).",
    "the <mask> fox",
]


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizers") / request.param
    KINDS[request.param](path)
    return path


@pytest.fixture(scope="module")
def ours(folder: Path) -> FileTokenizer:
    found = read_any_tokenizer(folder)
    assert isinstance(found, FileTokenizer)
    return found


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    if folder.name == "bpe":
        return transformers.RobertaTokenizer.from_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_pieces_and_specials_are_theirs(ours: FileTokenizer, theirs: Any) -> None:
    assert len(ours) == len(theirs)
    assert ours.tokens(range(len(ours))) == theirs.convert_ids_to_tokens(list(range(len(theirs))))
    ids = (ours.pad, ours.unknown, ours.cls, ours.sep, ours.mask)
    names = ("pad", "unk", "cls", "sep", "mask")
    found = {name: getattr(theirs, f"{name}_token_id") for name in (*names, "bos", "eos")}
    instead = {"cls": "bos", "sep": "eos", "unk": "pad"}  # of a folder that does not name these
    wanted = [found[instead[name]] if found[name] is None else found[name] for name in names]
    assert ids == tuple(wanted)


def test_special_pieces_have_one_order(ours: FileTokenizer) -> None:
    """Corpora and runs know a tokenizer by its fingerprint, which follows from the order."""
    assert [*ours.specials] == [*NAMES]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_theirs(ours: FileTokenizer, theirs: Any, text: str) -> None:
    wanted = theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.encode(text).tolist() == wanted
    assert np.frombuffer(ours.encode_many([text])[0], ours.id_type).tolist() == wanted
    assert ours.encode_with_offsets(text).ids.tolist() == wanted


@pytest.mark.parametrize("length", [64, 16])
def test_sequences_are_theirs(ours: FileTokenizer, theirs: Any, length: int) -> None:
    length += ours.form.specials(2) % 2  # an odd number goes to the first text, in theirs to the longer
    packer = Packer(tokenizer=ours, length=length)
    runs = [PieceRun(ids, ~ours.continuation[ids]) for ids in (ours.encode(LEARNT[0]), ours.encode(LEARNT[1]))]
    alone, pair = packer.single(*runs[0]), packer.pair(*runs)
    options = {"truncation": True, "max_length": length}
    assert alone.ids.tolist() == theirs(LEARNT[0], **options)["input_ids"]
    both = theirs(*LEARNT[:2], **options)
    assert pair.ids.tolist() == both["input_ids"] and len(pair) <= length
    assert pair.segments.tolist() == both.get("token_type_ids", [0] * len(pair))
    mask = theirs(*LEARNT[:2], **options, return_special_tokens_mask=True)["special_tokens_mask"]
    assert pair.special.tolist() == [bool(one) for one in mask]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_lie_where_theirs_do_without_the_space_before(ours: FileTokenizer, theirs: Any, text: str) -> None:
    found = ours.encode_with_offsets(text)
    places = theirs(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    for start, end, (first, last) in zip(found.starts, found.ends, places, strict=True):
        assert text[start:end].strip() == text[first:last].strip()
        assert text[start:end] == text[start:end].strip() or not text[start:end].strip()
    assert (np.diff(found.starts) >= 0).all() and (np.diff(found.ends) >= 0).all()
    assert not len(found) or (found.words[0] == 0 and set(np.diff(found.words)) <= {0, 1})


def test_words_by_themselves_are_cut_as_within_their_text(ours: FileTokenizer) -> None:
    text = "the quick brown café fox"
    words = [(0, 3), (4, 9), (10, 15), (16, 20), (21, 24)]
    assert b"".join(ours.encode_words(text, words)) == ours.encode_bytes(text)


def test_the_written_folder_is_theirs_too(ours: FileTokenizer, theirs: Any, tmp_path: Path) -> None:
    write_any_tokenizer(ours, tmp_path, length=32)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert again.model_max_length == 32
    for text in TEXTS:
        assert again(text, LEARNT[0])["input_ids"] == theirs(text, LEARNT[0])["input_ids"]
    assert read_any_tokenizer(tmp_path) == ours == pickle.loads(pickle.dumps(ours))


def test_word_starts_and_text(ours: FileTokenizer) -> None:
    ids = ours.encode("the quick fox")
    assert (~ours.continuation[ids]).sum() >= 2
    assert ours.decode(ids).strip() == "the quick fox"


def test_the_first_space_goes_by_the_folder(tmp_path: Path) -> None:
    save_roberta(tmp_path / "folder")
    path = tmp_path / "folder" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"add_prefix_space": True}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    ours = read_any_tokenizer(tmp_path / "folder")
    assert ours.encode("quick fox").tolist() == theirs("quick fox", add_special_tokens=False)["input_ids"]
    assert ours.encode("quick fox").tolist() == ours.encode(" quick fox").tolist()


def test_a_file_that_does_not_name_its_model_is_read(tmp_path: Path) -> None:
    """Those of the first releases."""
    save_roberta(tmp_path / "folder")
    path = tmp_path / "folder" / "tokenizer.json"
    whole = read_any_tokenizer(tmp_path / "folder")
    content = json.loads(path.read_text())
    del content["model"]["type"]
    path.write_text(json.dumps(content))
    assert read_any_tokenizer(tmp_path / "folder").encode("the fox").tolist() == whole.encode("the fox").tolist()


def change(folder: Path, **fields: Any) -> None:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_dropout_is_turned_off_with_a_remark_and_in_copies(tmp_path: Path) -> None:
    save_roberta(tmp_path / "folder")
    path = tmp_path / "folder" / "tokenizer.json"
    plain = read_any_tokenizer(path)
    content = json.loads(path.read_text())
    content["model"]["dropout"] = 0.5
    path.write_text(json.dumps(content))
    ours = read_any_tokenizer(path)
    assert isinstance(ours, FileTokenizer) and isinstance(plain, FileTokenizer)
    assert not plain.remarks and "0.5" in ours.remarks[0]
    write_any_tokenizer(ours, tmp_path / "copy")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "copy")
    for text in LEARNT * 3:
        wanted = plain.encode(text).tolist()
        assert ours.encode(text).tolist() == wanted == np.frombuffer(ours.encode_many([text])[0], "<u2").tolist()
        assert (
            ours.with_marks().encode(text).tolist() == pickle.loads(pickle.dumps(ours)).encode(text).tolist() == wanted
        )
        assert theirs(text, add_special_tokens=False)["input_ids"] == wanted
    assert not read_any_tokenizer(tmp_path / "copy").remarks
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 8, "intermediate_size": 8}
    model = transformers.RobertaModel(transformers.RobertaConfig(vocab_size=len(ours), pad_token_id=1, **sizes))
    model.save_pretrained(tmp_path / "folder")
    assert ours.remarks[0] in open_folder(tmp_path / "folder").remarks


def test_what_cannot_be_used_is_told(tmp_path: Path) -> None:
    save_roberta(tmp_path / "folder")
    (tmp_path / "bare" / "vocab.json").write_text('{"a": 0}')
    with refusal("unusable-tokenizer"):
        read_any_tokenizer(tmp_path / "bare")
    change(tmp_path / "folder", post_processor=None)
    with refusal("unusable-tokenizer", "post_processor"):
        read_any_tokenizer(tmp_path / "folder")
    change(tmp_path / "folder", normalizer={"type": "Unheard"})
    with refusal("unusable-tokenizer"):
        read_any_tokenizer(tmp_path / "folder")
    config = tmp_path / "folder" / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"mask_token": "[HIDE]"}))
    change(tmp_path / "folder", normalizer=None)
    with refusal("unusable-tokenizer"):
        read_any_tokenizer(tmp_path / "folder")
    config.write_text(json.dumps({"mask_token": 5}))
    with refusal("unusable-tokenizer"):
        read_any_tokenizer(tmp_path / "folder")


def test_windows_of_a_paragraph_know_where_its_pieces_stand(ours: FileTokenizer) -> None:
    packer, paragraph = Packer(tokenizer=ours, length=24), " ".join(LEARNT)
    whole = ours.encode(paragraph)
    windows = list(Cutter(packer=packer, question=6, stride=4).windows("the fox", paragraph, record=0))
    assert len(windows) > 2
    for begin, window in windows:
        size = len(window.starts)
        assert window.ids[window.first : window.first + size].tolist() == whole[begin : begin + size].tolist()
        assert window.ids[-1] == ours.sep and len(window) == window.first + size + 1 <= 24


def test_each_word_of_a_passage_has_its_pieces(ours: FileTokenizer) -> None:
    """Also one of which nothing is left (a zero-width space, where the tokenizer drops it)."""
    text = "good\nfilm. \u200b 日本語"
    words = ((0, 4), (5, 9), (9, 10), (11, 12), (13, 16))
    run = cut_words(TaggedText(number=0, texts=(text,), words=words), ours)
    assert run.words.sum() == len(words) and run.words[0]
    assert run.ids[: len(ours.encode("good film"))].tolist() == ours.encode("good film").tolist()


def template(single: str, pair: str) -> dict[str, Any]:
    """Return a post-processor; "A:0" is a text with its segment, all else a special piece with its own."""

    def parts(words: str) -> list[dict[str, Any]]:
        found = [word.split(":") for word in words.split()]
        return [
            {"Sequence" if name in "AB" else "SpecialToken": {"id": name, "type_id": int(segment)}}
            for name, segment in found
        ]

    names = {word.split(":")[0] for word in pair.split()} - {"A", "B"}
    ids = {"<s>": 0, "</s>": 2, "<mask>": 4}
    special = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in sorted(names)}
    return {"type": "TemplateProcessing", "single": parts(single), "pair": parts(pair), "special_tokens": special}


@pytest.mark.parametrize(
    ("single", "pair", "form"),
    [
        ("<s>:0 A:0 </s>:0", "<s>:0 A:0 </s>:0 B:1 </s>:1", Form(before=(0,), between=(2,), after=(2,))),
        ("A:0 </s>:0", "A:0 </s>:0 B:0 </s>:0", Form(between=(2,), after=(2,), second_segment=0, summary="last")),
        ("A:0 </s>:0 <s>:0", "A:0 </s>:0 B:1 </s>:1 <s>:1", Form(between=(2,), after=(2, 0), summary="last")),
        (
            "<mask>:0 A:0 <s>:0",
            "<mask>:0 A:0 </s>:0 B:0 <s>:0",
            Form(before=(4,), between=(2,), after=(0,), second_segment=0, summary="last"),
        ),
    ],
    ids=["albert", "t5", "xlnet", "gpt"],
)
def test_the_form_of_a_file_is_read(tmp_path: Path, single: str, pair: str, form: Form) -> None:
    save_roberta(tmp_path / "folder")
    change(tmp_path / "folder", post_processor=template(single, pair))
    ours = read_any_tokenizer(tmp_path / "folder")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "folder")
    assert ours.form == form
    first, second = (PieceRun.of(ours.encode(text), ours) for text in LEARNT[:2])
    packed = Packer(tokenizer=ours, length=99).pair(first, second)
    found = theirs(*LEARNT[:2], return_token_type_ids=True)
    assert packed.ids.tolist() == found["input_ids"] and packed.segments.tolist() == found["token_type_ids"]
    assert Packer(tokenizer=ours, length=99).single(*first).ids.tolist() == theirs(LEARNT[0])["input_ids"]


@pytest.mark.parametrize(
    ("single", "pair"),
    [
        ("<s>:0 A:0", "<s>:0 A:0 </s>:0 B:1 </s>:1"),
        ("<s>:0 A:0 </s>:0", "<s>:0 A:0 </s>:0 B:1 <s>:1"),
        ("<s>:0 A:0 </s>:0", "<s>:0 A:0 </s>:1 B:1 </s>:1"),
        ("A:0 </s>:0 <s>:2", "A:0 </s>:0 B:1 </s>:1 <s>:3"),
        ("<s>:0 A:0 </s>:0", "<s>:0 B:0 </s>:0 </s>:0"),
    ],
)
def test_a_form_that_cannot_be_expressed_is_refused_by_name(tmp_path: Path, single: str, pair: str) -> None:
    save_roberta(tmp_path / "folder")
    change(tmp_path / "folder", post_processor=template(single, pair))
    with refusal("unusable-tokenizer", "post_processor", "</s>"):
        read_any_tokenizer(tmp_path / "folder")


def test_pieces_that_are_berts_too_are_not_taken_for_its_special_ones(tmp_path: Path) -> None:
    """MPNet's vocabulary has [CLS] and [SEP] among its pieces: vocab.txt alone would be read as BERT's."""
    KINDS["mpnet"](tmp_path)
    pieces = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    with refusal("unusable-tokenizer", "tokenizer.json", "vocab.txt", "save_pretrained"):
        read_any_tokenizer(tmp_path)


def test_segments_that_no_model_gets_do_not_matter(tmp_path: Path) -> None:
    """EuroBERT's file gives a pair's second start piece segment 1; its settings list no segments."""
    KINDS["eurobert"](tmp_path)
    form = read_any_tokenizer(tmp_path).form
    assert (len(form.before), len(form.between), len(form.after), form.second_segment) == (1, 2, 1, 0)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_input_names": ["input_ids", "token_type_ids"]}))
    with refusal("unusable-tokenizer", "<|begin_of_text|>:1"):
        read_any_tokenizer(tmp_path)


def test_ids_of_texts_other_than_the_tokenizers_are_remarked() -> None:
    tokenizer = Tokenizer([*SPECIALS, "a"])
    assert not [*text_id_remarks(text_ids(tokenizer), tokenizer)]
    start, end = text_id_remarks({"decoder_start_token_id": 0, "eos_token_id": 1}, tokenizer)
    assert "decoder_start_token_id" in start and "eos_token_id" in end and "[SEP]" in start
