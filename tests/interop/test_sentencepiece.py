"""SentencePiece models: what the format says is read, and damaged files are UserErrors whatever is in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from osbert.errors import UserError
from osbert.interop.huggingface.unigram import UNIGRAM, read_sentencepiece
from osbert.interop.tokenizers import read_any_tokenizer
from refusals import refusal
from sentencepiece_models import (
    ALGORITHM,
    BYTE_FALLBACK,
    CHARSMAP,
    FAIRSEQ,
    PREFIX,
    UNKNOWN_ID,
    charsmap,
    message,
    model,
    varint,
)

RULES = charsmap({"é": "e", "ﬁ": "fi"})


def file(folder: Path, content: bytes) -> Path:
    path = folder / "sentencepiece.bpe.model"
    path.write_bytes(content)
    return path


def test_what_the_file_says_and_what_it_leaves_out(tmp_path: Path) -> None:
    told = {ALGORITHM: 2, BYTE_FALLBACK: 1, UNKNOWN_ID: 300}
    found = read_sentencepiece(file(tmp_path, model(FAIRSEQ, told, {CHARSMAP: RULES, PREFIX: 0})))
    assert [(text, kind) for text, _, kind in found.pieces] == [(text, kind) for text, _, kind in FAIRSEQ]
    assert (found.algorithm, found.byte_fallback, found.unknown) == (2, 1, 300)
    assert (found.charsmap, found.prefix) == (RULES, 0)
    usual = read_sentencepiece(file(tmp_path, message([(1, message([(1, "a"), (2, -1.5)]))])))
    assert usual.pieces == [("a", -1.5, 1)]
    assert (usual.algorithm, usual.unknown, usual.charsmap, usual.prefix) == (UNIGRAM, 0, b"", 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no model at all",
        model(FAIRSEQ)[:-3],
        varint(1 << 3 | 2) + varint(1 << 40),  # a length beyond the file
        b"\xff" * 64,  # a number without an end
        message([(1, 5)]),
        message([(1, message([(1, "a"), (2, float("nan"))]))]),
        message([(1, message([(1, "a"), (2, "score")]))]),
        message([(1, message([(1, b"\xff"), (2, -1.0)]))]),
        message([(1, message([(1, ""), (2, -1.0)]))]),
        model(FAIRSEQ, normalizer={CHARSMAP: 5}),
    ],
)
def test_a_damaged_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = file(tmp_path, content)
    with refusal("damaged-file", path):
        read_sentencepiece(path)


def test_a_model_of_too_many_pieces_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osbert.interop.huggingface.unigram.PIECES", 10)
    with refusal("too-large", "10"):
        read_sentencepiece(file(tmp_path, model(FAIRSEQ)))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_an_error_of_the_user_or_another_tokenizer(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(model(FAIRSEQ, normalizer={CHARSMAP: RULES}))
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    file(tmp_path, bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))]))
    try:
        read_any_tokenizer(tmp_path).encode("the quick fox, café ﬁx")
    except UserError as error:
        assert error.code
