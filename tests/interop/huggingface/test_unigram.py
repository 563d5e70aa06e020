"""Folders whose tokenizer is a SentencePiece model alone are cut as the tokenizers library cuts, built by hand here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import Unigram
from tokenizers.normalizers import Lowercase, Normalizer, Precompiled, Replace, Strip
from tokenizers.processors import TemplateProcessing

from osbert.data.pack import Packer, PieceRun
from osbert.interop.hub_answers import select_files
from osbert.interop.tokenizers import read_any_tokenizer, write_any_tokenizer
from osbert.text.file_tokenizer import AnyTokenizer
from refusals import refusal
from sentencepiece_models import (
    ALBERT,
    ALGORITHM,
    BYTE_FALLBACK,
    CHARSMAP,
    CUT,
    DEBERTA,
    FAIRSEQ,
    PREFIX,
    UNKNOWN_ID,
    USER_DEFINED,
    charsmap,
    model,
)

MAP = charsmap({"ﬁ": "fi", "\u00a0": " ", "\t": " ", "ａ": "a"})
TEXTS = [
    *("the quick fox", "  the   quick\u00a0\u00a0fox  ", "café cafe\u0301 THE Fox", "``quick'' 1,1, 1, fox", ""),
    *("日本語 the日本 🦊🦊 ﬁx ａ", "\t the\tfox \t", "zebra ☃", "a<mask> the [MASK]fox </s>[SEP]"),
]
CLEAN = [Strip(), Replace(Regex(" {2,}"), " ")]
KINDS: dict[str, tuple[str, dict[str, Any], bytes]] = {
    "deberta-v2": ("spm.model", {"model_type": "deberta-v2"}, model(DEBERTA, {UNKNOWN_ID: 3}, {CHARSMAP: MAP})),
    "xlm-roberta": ("sentencepiece.bpe.model", {"model_type": "xlm-roberta"}, model(FAIRSEQ, {}, {CHARSMAP: MAP})),
    "camembert": ("sentencepiece.bpe.model", {"model_type": "camembert"}, model(FAIRSEQ, {}, {CHARSMAP: MAP})),
    "albert": ("spiece.model", {"model_type": "albert"}, model(ALBERT, {UNKNOWN_ID: 1}, {CHARSMAP: MAP})),
}


def save(folder: Path, kind: str, **settings: Any) -> Path:
    """A folder of a kind; `settings` go into its tokenizer_config.json."""
    name, config, content = KINDS[kind]
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def by_hand(
    first: Sequence[str], specials: Sequence[str], unknown: int, steps: Sequence[Normalizer], mask: str
) -> Tokenizer:
    """The library's tokenizer of CUT behind `first`; `specials` begin and end a text, or part two."""
    scores = {"<unk>NOTUSED": -100.0, "1,": -104.0 if mask == "albert" else -4.0}
    vocabulary = [(text, scores.get(text, score)) for text, score in [*((text, 0.0) for text in first), *CUT]]
    made = Tokenizer(Unigram(vocabulary, unk_id=unknown, byte_fallback=False))
    made.normalizer = normalizers.Sequence([*steps, Precompiled(MAP), *CLEAN])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    masks = "[MASK]" if "[CLS]" in first else "<mask>"
    made.add_special_tokens([AddedToken(masks, lstrip=mask != "deberta-v2"), *specials])
    cls, sep = specials[:2]
    pair = f"{cls} $A {sep} $B:1 {sep}:1" if "[CLS]" in first else f"{cls} $A {sep} {sep} $B {sep}"
    ids = [(piece, made.token_to_id(piece)) for piece in (cls, sep)]
    made.post_processor = TemplateProcessing(single=f"{cls} $A {sep}", pair=pair, special_tokens=ids)
    return made


def expected(kind: str) -> Tokenizer:
    berts, ours = ["[CLS]", "[SEP]"], ["<s>", "</s>", "<pad>", "<unk>"]
    if kind == "deberta-v2":
        return by_hand(["[PAD]", *berts, "[UNK]"], [*berts, "[PAD]", "[UNK]"], 3, [], kind)
    if kind == "albert":
        quotes = [Replace("``", '"'), Replace("''", '"')]
        plain = [normalizers.NFKD(), normalizers.StripAccents(), Lowercase()]
        return by_hand(["<pad>", "<unk>", *berts, "[MASK]"], [*berts, "<pad>", "<unk>"], 1, [*quotes, *plain], kind)
    fairseq = ["<s>", "<pad>", "</s>", "<unk>"]
    if kind == "camembert":
        fairseq = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    return by_hand(fairseq, ours, 3, [], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_and_places_are_those_of_the_library(tmp_path: Path, kind: str) -> None:
    ours, theirs = read_any_tokenizer(save(tmp_path / "folder", kind)), expected(kind)
    for text in TEXTS:
        wanted = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text).tolist() == wanted.ids, text
        found = ours.encode_with_offsets(text)
        assert found.ids.tolist() == wanted.ids
        places = zip(found.starts, found.ends, wanted.offsets, strict=True)
        assert all(text[start:end].strip() == text[first:last].strip() for start, end, (first, last) in places)
    pair = Packer(tokenizer=ours, length=32).pair(run_of(ours, "the fox"), run_of(ours, "quick"))
    wanted = theirs.encode("the fox", "quick")
    assert (pair.ids.tolist(), pair.segments.tolist()) == (wanted.ids, wanted.type_ids)
    assert ours.vocabulary == tuple(theirs.id_to_token(number) for number in range(theirs.get_vocab_size()))


def run_of(tokenizer: AnyTokenizer, text: str) -> PieceRun:
    ids = tokenizer.encode(text)
    return PieceRun(ids, ~tokenizer.continuation[ids])


def test_the_special_pieces_have_the_published_ids(tmp_path: Path) -> None:
    wanted = {
        "deberta-v2": (0, 3, 1, 2),
        "albert": (0, 1, 2, 3),
        "xlm-roberta": (1, 3, 0, 2),
        "camembert": (1, 3, 5, 6),
    }
    for kind, ids in wanted.items():
        ours = read_any_tokenizer(save(tmp_path / kind, kind))
        assert (ours.pad, ours.unknown, ours.cls, ours.sep) == ids
        assert ours.mask == (4 if kind == "albert" else len(ours) - 1)


NOTED = [3, 4, 3, 8, 14, 17, 27, 0]
"""What sentencepiece 0.2.3 makes of LINE with the model of XLM-R's and CamemBERT's folder."""
LINE = "  the quick\u00a0 the ﬁx☃"


@pytest.mark.parametrize(("kind", "further"), [("xlm-roberta", 1), ("camembert", 4)])
def test_ids_are_those_of_sentencepiece_so_much_further_on(tmp_path: Path, kind: str, further: int) -> None:
    ours = read_any_tokenizer(save(tmp_path / "folder", kind))
    assert ours.encode(LINE).tolist() == [number + further if number else ours.unknown for number in NOTED]


def test_ids_are_those_of_sentencepiece_itself(tmp_path: Path) -> None:
    library = pytest.importorskip("sentencepiece")
    for options in ({}, {PREFIX: 0}):
        content = model(DEBERTA, {UNKNOWN_ID: 3}, {CHARSMAP: MAP, **options})
        (save(tmp_path / "folder", "deberta-v2") / "spm.model").write_bytes(content)
        ours, theirs = read_any_tokenizer(tmp_path / "folder"), library.SentencePieceProcessor(model_proto=content)
        for text in (LINE, *TEXTS[:-1]):
            assert ours.encode(text).tolist() == theirs.encode(text), (options, text)


def test_the_written_folder_stands_alone(tmp_path: Path) -> None:
    for kind in KINDS:
        ours = read_any_tokenizer(save(tmp_path / kind, kind, model_max_length=32))
        write_any_tokenizer(ours, tmp_path / f"{kind} out", length=32)
        assert read_any_tokenizer(tmp_path / f"{kind} out") == ours
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / f"{kind} out")
        assert theirs.mask_token_id == ours.mask
        for text in TEXTS:
            assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text).tolist()


def pieces(folder: Path, text: str) -> list[str]:
    ours = read_any_tokenizer(folder)
    return ours.tokens(ours.encode(text))


def test_settings_of_the_folder_count(tmp_path: Path) -> None:
    deberta = {"tokenizer_class": "DebertaV2Tokenizer"}
    folder = tmp_path / "folder"
    assert pieces(save(folder, "deberta-v2"), "THE fox") == ["▁", "[UNK]", "▁fox"]
    assert pieces(save(folder, "deberta-v2", do_lower_case=True), "THE fox") == ["▁the", "▁fox"]
    assert pieces(save(folder, "deberta-v2"), "1,1") == ["▁", "1,", "1"]
    assert pieces(save(folder, "deberta-v2", split_by_punct=True), "1,1") == ["▁", "1", "▁", ",", "▁", "1"]
    assert pieces(save(folder, "deberta-v2", add_prefix_space=False, **deberta), "quick") == ["qu", "ick"]
    assert pieces(save(folder, "albert", do_lower_case=False, keep_accents=True), "The é")[-2:] == ["▁", "é"]
    assert pieces(save(tmp_path / "other", "albert"), "THE É") == ["▁the", "▁", "e"]


def test_the_class_of_the_tokenizer_goes_before_the_models_type(tmp_path: Path) -> None:
    """As in multilingual E5 (small), a BERT whose tokenizer is XLM-R's."""
    folder = save(tmp_path / "folder", "xlm-roberta", tokenizer_class="XLMRobertaTokenizer")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    assert read_any_tokenizer(folder) == read_any_tokenizer(save(tmp_path / "plain", "xlm-roberta"))


def test_added_pieces_stand_where_the_folder_says(tmp_path: Path) -> None:
    folder, size = save(tmp_path / "folder", "deberta-v2"), len(DEBERTA)
    (folder / "added_tokens.json").write_text(json.dumps({"[MASK]": size + 1, "[E]": size, "[CLS]": 1}))
    ours = read_any_tokenizer(folder)
    assert ours.tokens(ours.encode("fox [E] the[MASK]")) == ["▁fox", "[E]", "▁the", "[MASK]"]
    assert ours.mask == size + 1
    save(folder, "deberta-v2", added_tokens_decoder={str(size): {"content": "[MASK]", "special": True}})
    assert read_any_tokenizer(folder).mask == size
    save(folder, "deberta-v2")
    (folder / "added_tokens.json").write_text(json.dumps({"[MASK]": size + 7}))
    with refusal("unusable-tokenizer", "[MASK]", size + 7, size):
        read_any_tokenizer(folder)


def test_pieces_of_the_user_are_never_cut(tmp_path: Path) -> None:
    folder = save(tmp_path / "folder", "deberta-v2")
    (folder / "spm.model").write_bytes(model([*DEBERTA, ("the1", 0.0, USER_DEFINED)], {UNKNOWN_ID: 3}))
    assert pieces(folder, "fox the1 the") == ["▁fox", "the1", "▁the"]


@pytest.mark.parametrize(
    ("trainer", "named"), [({ALGORITHM: 2}, "BPE"), ({ALGORITHM: 9}, "9"), ({BYTE_FALLBACK: 1}, "byte_fallback")]
)
def test_models_that_cut_otherwise_are_refused(tmp_path: Path, trainer: dict[int, int], named: str) -> None:
    folder = save(tmp_path / "folder", "xlm-roberta")
    (folder / "sentencepiece.bpe.model").write_bytes(model(FAIRSEQ, trainer))
    with refusal("unusable-tokenizer", named, "sentencepiece.bpe.model"):
        read_any_tokenizer(folder)


def test_an_unknown_piece_that_is_not_there_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "folder", "deberta-v2")
    (folder / "spm.model").write_bytes(model(DEBERTA, {UNKNOWN_ID: 1000}))
    with refusal("unusable-tokenizer", folder):
        read_any_tokenizer(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_among_the_files_that_are_downloaded(kind: str) -> None:
    files = ["README.md", "config.json", KINDS[kind][0], "pytorch_model.bin", "tf_model.h5"]
    assert select_files(files, where="someone/tiny") == files[1:4]


def test_other_families_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "folder", "xlm-roberta")
    for config in ({"model_type": "t5"}, {}):
        (folder / "config.json").write_text(json.dumps(config))
        with refusal("unusable-tokenizer", *config.values(), "tokenizer.json", "save_pretrained"):
            read_any_tokenizer(folder)
