"""Byte-level BPE and Unigram learnt from texts: the pieces, that they are always the same, bounds and refusals."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from osbert.text.file_tokenizer import FileTokenizer
from osbert.text.tokenizer import Form
from osbert.text.train_file import BYTE_LEVEL, UNIGRAM, ChunkCounter, learn_bpe, learn_unigram
from refusals import refusal
from vocabularies import printed_by_every_process

TEXT = "The lower the lowest, the newer the newest: wider widest low new wide."

PROGRAM = """
import random
from osbert.text.train_file import ChunkCounter, learn_bpe, learn_unigram
rng, counter = random.Random(7), ChunkCounter()
for _ in range(60):
    words = ["".join(rng.choices("abcdefghijé日本中", k=rng.randint(1, 7))) for _ in range(40)]
    counter.add(" ".join(words) + rng.choice(".!?") + rng.choice("αβγδεζηθικλμνξοπρστ") * rng.randint(0, 1))
for learn in (learn_bpe, learn_unigram):
    learnt = learn(counter.words(), vocabulary=400)
    print(learnt.fingerprint, len(learnt))
"""


def counted(*texts: str) -> Counter[str]:
    counter = ChunkCounter()
    for text in texts:
        counter.add(text)
    return counter.words()


def test_bpe_is_what_the_library_learns_from_the_texts_themselves() -> None:
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdeé", k=rng.randint(1, 6))) + rng.choice(["", ",", "'s", "12"]) for _ in range(99)]
    texts = [" ".join(rng.choices(words, k=30)) for _ in range(50)]
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=400, min_frequency=2, special_tokens=list(BYTE_LEVEL), initial_alphabet=alphabet,
            show_progress=False,
        ),
    )  # fmt: skip
    ours = learn_bpe(counted(*texts), vocabulary=400)
    vocabulary = library.get_vocab()
    assert ours.vocabulary == tuple(sorted(vocabulary, key=vocabulary.__getitem__))
    for text in [*texts, "  two  spaces\n\tand more ", "naïve 日本 😀"]:
        assert ours.encode(text).tolist() == library.encode(text).ids


@pytest.mark.parametrize("learn", [learn_bpe, learn_unigram])
def test_special_pieces_come_first_and_stand_around_texts(learn) -> None:
    learnt: FileTokenizer = learn(counted(*[TEXT] * 3), vocabulary=300)
    bpe = learn is learn_bpe
    assert learnt.vocabulary[:5] == (BYTE_LEVEL if bpe else UNIGRAM)
    first = Form(before=(0,), between=(2, 2), after=(2,), second_segment=0)
    assert learnt.form == (first if bpe else Form(before=(2,), between=(3,), after=(3,)))
    assert learnt.vocabulary[learnt.mask] == ("<mask>" if bpe else "[MASK]")
    text = f"the {learnt.specials['mask']} lowest"
    ids = learnt.encode(text).tolist()
    assert ids.count(learnt.mask) == 1
    assert learnt.encode(text.replace(" " + learnt.specials["mask"], learnt.specials["mask"])).tolist() == ids


@given(st.text())
def test_bpe_writes_any_text(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert SMALL.decode(SMALL.encode(text)) == text or any(piece in text for piece in BYTE_LEVEL)


SMALL = learn_bpe(counted(*[TEXT] * 3), vocabulary=280)


def test_unigram_lowers_strips_accents_and_sets_punctuation_apart() -> None:
    texts = ["Élan élans, ELAN! (élan) 'elans', elanor"] * 9
    learnt = learn_unigram(counted(*texts), vocabulary=60)
    assert learnt.encode("ÉLAN, elan").tolist() == learnt.encode("elan, elan").tolist()
    assert "▁elan" in learnt.vocabulary and "," in learnt.tokens(learnt.encode("elan, elan"))
    assert not any("é" in piece or piece.isupper() for piece in learnt.vocabulary[5:])
    assert not any("," in piece and piece != "," for piece in learnt.vocabulary)
    cased = learn_unigram(counted(*texts), vocabulary=60, lowercase=False)
    assert any("É" in piece for piece in cased.vocabulary) and any("L" in piece for piece in cased.vocabulary[5:])


def test_lowercase_bpe() -> None:
    learnt = learn_bpe(counted("Élan élan"), vocabulary=270, lowercase=True)
    assert learnt.decode(learnt.encode("ÉLAN")) == "elan"


def test_unigram_knows_the_most_frequent_characters_alone() -> None:
    found = counted("aa ab ba ca aa ab 日本 日本 中")
    learnt = learn_unigram(found, vocabulary=60, alphabet=3)  # the sign of a space is one
    assert {"a", "b", "日"} <= set("".join(learnt.vocabulary[5:])) and "中" not in learnt.vocabulary
    assert learnt.unknown in learnt.encode("c") and learnt.unknown not in learnt.encode("ab")


@pytest.mark.parametrize("learn", [learn_bpe, learn_unigram])
def test_size_is_at_most_what_was_asked(learn) -> None:
    found = counted(*[TEXT] * 5)
    assert len(learn(found, vocabulary=270)) <= 270
    few = learn(found, vocabulary=5000)
    assert len(few) < 400 and learn(found, vocabulary=5000).content == few.content


def test_same_file_in_every_process() -> None:
    assert " 400\n" in printed_by_every_process(PROGRAM)


def test_the_first_chunk_of_a_text_has_no_space_before_it() -> None:
    assert counted("the cat\nthe\t end", "", "the") == {"the": 2, " cat": 1, " the": 1, " end": 1}


def test_long_chunks_are_cut_and_the_rarer_half_is_forgotten() -> None:
    assert set(map(len, counted("日" * 450))) == {200, 201, 51}
    counter = ChunkCounter(most=4)
    for text in ("a b", "a b", "a c", "a d", "a e"):
        counter.add(text)
    assert counter.words() == {"a": 5, " b": 2} and counter.forgotten == 3


def test_refusals() -> None:
    with refusal("no-data"):
        learn_bpe({}, vocabulary=300)
    with refusal("no-data"):
        learn_unigram({}, vocabulary=300)
    with refusal("invalid-value", 261):
        learn_bpe({"a": 1}, vocabulary=261)
    with refusal("invalid-value", 5):
        learn_unigram({"a": 1}, vocabulary=5)
