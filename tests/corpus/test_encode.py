from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from osbert.corpus.encode import encode_document, encode_portion
from osbert.text.words import segmenter, word_finder

# A line never ends in a shortened word here: sentences end with lines in a corpus, whatever the last word.
LINE = st.text(st.sampled_from("ab thewy. ?!\x00\t中"), max_size=40).map(lambda line: line + " end.")


@given(st.lists(st.lists(LINE, min_size=1, max_size=4).map("\n".join), min_size=1, max_size=5))
def test_a_portion_is_its_documents_one_after_the_other(tokenizer, texts):
    encoded = encode_portion([(text, True) for text in texts], tokenizer)
    ids = np.frombuffer(encoded.ids, tokenizer.id_type)
    sentences = [*encoded.sentences, len(ids)]
    words = np.unpackbits(encoded.words, count=len(ids)).astype(bool)
    bounds = [*encoded.documents, len(encoded.sentences)]
    assert len(bounds) == len(texts) + 1
    for text, first, last in zip(texts, bounds, bounds[1:]):
        expected = encode_document(text, tokenizer)
        begin, end = sentences[first], sentences[last]
        np.testing.assert_array_equal(ids[begin:end], expected.ids)
        np.testing.assert_array_equal(words[begin:end], expected.words)
        np.testing.assert_array_equal(np.array(sentences[first : last + 1]) - begin, expected.sentences)
    np.testing.assert_array_equal(encoded.counts, np.bincount(ids, minlength=len(tokenizer)))
    assert encoded.tokens == len(ids)


def test_lines_are_hashed_stripped_and_point_at_their_sentences(tokenizer):
    encoded = encode_portion([("One. Two.\n\n  three \n\x00\nthree", True), ("One. Two.", True)], tokenizer)
    assert encoded.lines.tolist() == [0, 2, 3, 4]  # the empty line and the one without pieces are no lines
    first, second, third, fourth = encoded.hashes.tolist()
    assert first == fourth and second == third and first != second
    assert encoded.text_bytes == 10 + 6 + 2 + 6 + 10


def test_a_document_whose_text_is_yet_to_come_begins_behind_the_last_sentence(tokenizer):
    encoded = encode_portion([("One.", True), ("\x00", True)], tokenizer)
    assert encoded.documents.tolist() == [0, 1]
    assert len(encoded.sentences) == 1
    encoded = encode_portion([("\x00", True), ("One.", False)], tokenizer)
    assert encoded.documents.tolist() == [0]


def test_an_empty_portion_and_sentence_ends(tokenizer):
    assert encode_portion([("\x00", True)], tokenizer).tokens == 0
    for text, ends in (
        ("no end", False),
        ("3.14 is it", False),
        ("An end.", True),
        ("“An end.” so", True),
        ("完了。", True),
    ):
        assert encode_portion([(text, True)], tokenizer).sentence_ends is ends


@given(st.lists(st.text(st.sampled_from("ab the中国人. \n\x00"), max_size=40), min_size=1, max_size=4))
def test_a_segmenter_changes_nothing_but_where_words_start(tokenizer, texts):
    segment = segmenter("segmented")
    portion = [(text, True) for text in texts]
    plain, encoded = encode_portion(portion, tokenizer), encode_portion(portion, tokenizer, segment=segment)
    for name in ("ids", "sentences", "documents", "hashes", "lines", "counts"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(encoded, name))
    starts = b"".join(word_finder(tokenizer, segment)(text) for text in texts)
    assert np.unpackbits(encoded.words, count=encoded.tokens).tobytes() == starts
