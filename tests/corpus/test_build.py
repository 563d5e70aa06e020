from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from corpora import files_of
from osbert.corpus import build as build_module
from osbert.corpus.build import Build
from osbert.corpus.encode import encode_document
from osbert.corpus.shards import Corpus, ShardBlock
from osbert.corpus.state import BuildSettings
from osbert.reading.documents import DocumentOptions
from refusals import refusal


@pytest.fixture(autouse=True)
def small_portions(monkeypatch):
    monkeypatch.setattr(build_module, "PORTION", 2000)


@pytest.fixture()
def make(tmp_path, tokenizer):
    """Return a function that builds files into a folder and opens the corpus."""

    def make(*files: Path, out: str = "corpus", workers: int = 1, watch=lambda progress: None, **settings) -> Corpus:
        reading = DocumentOptions(
            **{key: settings.pop(key) for key in list(settings) if key in DocumentOptions.__dataclass_fields__}
        )
        chosen = BuildSettings(reading=reading, **settings)
        build = Build.prepare(files, tokenizer=tokenizer, folder=tmp_path / out, settings=chosen)
        build.run(workers=workers, watch=watch)
        return Corpus.open(tmp_path / out)

    return make


@pytest.fixture()
def write(tmp_path):
    def write(documents: list[str], name: str = "a.txt") -> Path:
        path = tmp_path / name
        path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
        return path

    return write


def test_the_corpus_is_the_documents_of_the_files(make, write, prose, tokenizer):
    texts = prose(60)
    corpus = make(write(texts[:30], "a.txt"), write(texts[30:], "b.txt"), shard_tokens=2000)
    expected = [encode_document(text, tokenizer) for text in texts]
    assert corpus.documents == 60
    assert corpus.tokens == sum(map(len, expected))
    assert corpus.sentences == sum(len(document.sentences) - 1 for document in expected)
    assert len(corpus.manifest["shards"]) > 2
    assert all(shard["tokens"] <= 2000 for shard in corpus.manifest["shards"])
    ids = np.concatenate([document.ids for block in corpus.blocks(300) for document in corpus.read(block)])
    words = np.concatenate([document.words for block in corpus.blocks(300) for document in corpus.read(block)])
    np.testing.assert_array_equal(ids, np.concatenate([document.ids for document in expected]))
    np.testing.assert_array_equal(words, np.concatenate([document.words for document in expected]))
    np.testing.assert_array_equal(corpus.counts, np.bincount(ids, minlength=len(tokenizer)))
    shares = corpus.counts / corpus.counts.sum()
    assert corpus.unigram_entropy == pytest.approx(-sum(share * np.log(share) for share in shares if share))


def test_documents_are_whole_where_blocks_do_not_cut_them(make, write, prose, tokenizer):
    texts = prose(40)
    corpus = make(write(texts))
    found = [document for block in corpus.blocks(10**9) for document in corpus.read(block)]
    assert len(found) == 40
    for document, text in zip(found, texts):
        expected = encode_document(text, tokenizer)
        np.testing.assert_array_equal(document.ids, expected.ids)
        np.testing.assert_array_equal(document.sentences, expected.sentences)


def test_parts_of_documents_are_marked(make, write, prose, tokenizer):
    texts = prose(40)
    corpus = make(write(texts), shard_tokens=1000)
    sentences = [len(encode_document(text, tokenizer).sentences) - 1 for text in texts]
    assert corpus.document_sentences.tolist() == sentences
    for block in (block for tokens in (1, 64, 300, 10**6) for block in corpus.blocks(tokens)):
        found = corpus.read(block)
        assert found.cut is not None
        assert found.cut.tolist() == [len(one.sentences) - 1 < sentences[one.source] for one in found]


@pytest.mark.parametrize("tokens", [1, 17, 64, 1000, 10**12])
def test_blocks_cover_every_shard_in_order_and_keep_their_size(make, write, prose, tokens):
    corpus = make(write(prose(40)), shard_tokens=3000)
    blocks = corpus.blocks(tokens)
    place: dict[int, int] = {}
    for block in blocks:
        assert block.first == place.get(block.shard, 0) < block.last
        place[block.shard] = block.last
        size = sum(map(len, corpus.read(block)))
        assert size <= tokens or block.last == block.first + 1
    assert place == {number: shard["sentences"] for number, shard in enumerate(corpus.manifest["shards"])}
    assert sum(len(document) for block in blocks for document in corpus.read(block)) == corpus.tokens


def test_a_block_may_begin_and_end_within_a_document(make, write):
    corpus = make(write(["One. Two. Three.", "Four. Five."]))
    first, second = corpus.read(ShardBlock(0, 1, 4))
    assert len(first.sentences) == 3 and len(second.sentences) == 2
    with pytest.raises(ValueError, match="positive"):
        corpus.blocks(0)


def test_a_chunk_is_never_cut_by_a_shard(make, write, prose):
    text = "\n".join(prose(200))
    corpus = make(write([text, "Another."]), shard_tokens=2000)
    assert corpus.documents == 2
    assert corpus.manifest["shards"][0]["tokens"] > 2000  # a chunk is encoded at once, however small a shard may be


def test_documents_go_on_in_the_next_shard(make, write, prose, monkeypatch, tokenizer):
    from osbert.reading import documents as readers

    monkeypatch.setattr(readers, "CHUNK", 500)
    text = "\n".join(prose(100))
    corpus = make(write([text, "Another."]), shard_tokens=2000)
    assert corpus.documents == 2
    assert len(corpus.manifest["shards"]) > 3
    ids = [document.ids for block in corpus.blocks() for document in corpus.read(block)]
    np.testing.assert_array_equal(
        np.concatenate(ids), np.concatenate([tokenizer.encode(text), tokenizer.encode("Another.")])
    )


def test_any_number_of_workers_gives_the_same_bytes(make, write, prose, tmp_path, monkeypatch):
    monkeypatch.setattr("osbert.corpus.encode.PART", 500)
    path = write(prose(300))
    one = make(path, out="one", shard_tokens=4000)
    make(path, out="three", workers=3, shard_tokens=4000)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "three")
    assert {path.name for path in one.folder.iterdir()} == {
        "corpus.json", "counts.npy", *(shard["name"] for shard in one.manifest["shards"])
    }  # fmt: skip


def test_the_manifest_holds_the_true_sizes_and_hashes(make, write, prose):
    corpus = make(write(prose(20)))
    for shard in corpus.manifest["shards"]:
        for name, written in shard["files"].items():
            data = (corpus.folder / shard["name"] / name).read_bytes()
            assert written == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_the_report_counts_what_is_there(make, write):
    texts = [
        "The same line.\nAnother 中 line.",
        "New line.\nThe same line.",
        "New line.\nThe same line.",
        "  The same line. ",
    ]
    report = make(write(texts)).report
    assert (report["documents"], report["lines"], report["sentences"]) == (4, 7, 7)
    assert (report["duplicate_lines"], report["duplicate_documents"]) == (4, 1)
    assert (report["unknown"], report["deduplicated"], report["inputs"]) == (1, False, 1)
    assert report["unknown_rate"] == pytest.approx(1 / report["tokens"], abs=1e-6)
    assert report["tokens_per_word"] == pytest.approx(report["tokens"] / report["words"], abs=1e-4)
    assert report["text_bytes"] == sum(len(line.strip().encode()) + 1 for text in texts for line in text.split("\n"))


@pytest.mark.parametrize("shard_tokens", [60, 10**6])
def test_deduplicating_gives_the_corpus_of_the_text_without_repeats(
    make, write, prose, tmp_path, shard_tokens, monkeypatch
):
    monkeypatch.setattr(build_module, "PORTION", 100)
    rest = prose(12)
    texts = [rest[0], rest[1], rest[0], f"{rest[2]}\n{rest[1]}", f"{rest[1]}\n{rest[3]}", *rest[4:], *rest[:3]]
    seen: set[str] = set()
    thinned = []
    for text in texts:
        lines = [line for line in text.split("\n") if line not in seen and not seen.add(line)]
        if lines:
            thinned.append("\n".join(lines))
    corpus = make(write(texts), deduplicate=True, shard_tokens=shard_tokens)
    clean = make(write(thinned, "b.txt"), out="clean")
    assert (corpus.documents, corpus.sentences, corpus.tokens) == (clean.documents, clean.sentences, clean.tokens)
    assert corpus.report["duplicate_documents"] == 3 and corpus.report["deduplicated"]
    np.testing.assert_array_equal(corpus.counts, clean.counts)

    def ids(corpus: Corpus) -> np.ndarray:
        return np.concatenate([document.ids for block in corpus.blocks() for document in corpus.read(block)])

    np.testing.assert_array_equal(ids(corpus), ids(clean))
    assert not (corpus.folder / "building").exists()


def test_warnings_say_what_will_not_work(make, write):
    one = make(write(["a b c\nd e f"]), out="one").report["warnings"]
    assert "next-sentence prediction" in one[0] and "No sentence ends" in one[1]
    unknown = make(write(["中文 中文。", "中文。"], "b.txt"), out="two").report["warnings"]
    assert len(unknown) == 1 and "[UNK]" in unknown[0]
    empty = make(write(["One.", "Two."], "c.txt"), write([], "d.txt"), out="three").report
    assert empty["warnings"] == ["1 file(s) without any text."]
    assert empty["repairs"]["empty"] == 1


def test_no_text_at_all_is_an_error(make, write):
    with refusal("no-data", "2"):
        make(write([], "a.txt"), write(["\n"], "b.txt"))
    assert make(write(["Now."], "a.txt")).documents == 1  # and the folder is free for another try


def test_a_finished_corpus_is_left_alone_and_another_one_refused(make, write, prose, tmp_path, tokenizer):
    path = write(prose(10))
    first = make(path)
    before = {name: os.stat(tmp_path / "corpus" / name).st_mtime_ns for name in ("corpus.json", "counts.npy")}
    assert make(path).report == first.report
    assert before == {name: os.stat(tmp_path / "corpus" / name).st_mtime_ns for name in before}
    with refusal("begun-with-other-settings", "blank-line", "line"):
        make(path, documents="line")
    with refusal("begun-with-other-settings", "1", "2"):
        make(path, write(["One."], "b.txt"))
    write(prose(11))
    with refusal("begun-with-other-settings", "a.txt"):
        make(path)
    other = type(tokenizer)([*tokenizer.vocabulary, "more"])
    with refusal("begun-with-other-settings"):
        Build.prepare([path], tokenizer=other, folder=tmp_path / "corpus", settings=BuildSettings())


def test_a_folder_with_other_things_is_refused(make, write, tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "thesis.doc").write_text("x")
    with refusal("output-holds-something-else"):
        make(write(["One."]))


def test_a_bad_file_late_in_the_list_keeps_what_is_finished(make, write, prose, tmp_path):
    good = write(prose(200))
    bad = tmp_path / "b.jsonl"
    lines = [json.dumps({"text": text}) for text in prose(50, seed=1)]
    bad.write_text("\n".join([*lines, "{", *lines]))
    with refusal("unusable-row", "b.jsonl", "51"):
        make(good, bad, shard_tokens=2000)
    kept = json.loads((tmp_path / "corpus" / "building.json").read_text())["shards"]
    assert len(kept) > 3
    times = {shard["name"]: os.stat(tmp_path / "corpus" / shard["name"] / "ids.npy").st_mtime_ns for shard in kept}
    corpus = make(good, bad, shard_tokens=2000, errors="replace")
    assert corpus.documents == 300 and corpus.report["repairs"]["records"] == 1
    assert times == {name: os.stat(tmp_path / "corpus" / name / "ids.npy").st_mtime_ns for name in times}


def test_a_file_that_was_not_reached_may_be_mended(make, write, prose, tmp_path, monkeypatch):
    monkeypatch.setattr(build_module, "probe", lambda **inputs: None)  # it would find this one before the work
    files = [write(prose(200)), tmp_path / "b.txt"]
    files[1].write_bytes("café".encode("latin-1"))
    with refusal("wrong-encoding", "b.txt", "3"):
        make(*files, shard_tokens=2000)
    files[1].write_text("Mended.")
    assert make(*files, shard_tokens=2000).documents == 201
    write(prose(199))
    with refusal("begun-with-other-settings", "a.txt"):
        make(*files, shard_tokens=2000)


def test_a_full_disk_is_told_and_the_next_try_goes_on(make, write, prose, tmp_path, monkeypatch):
    from osbert.corpus import writer

    original = writer.write_arrays

    def full(folder, arrays):
        if folder.name == "shard-00002":
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(folder, arrays)

    path = write(prose(200))
    with monkeypatch.context() as patch:
        patch.setattr(writer, "write_arrays", full)
        with refusal("not-written", "after 2"):
            make(path, shard_tokens=2000)
    make(path, shard_tokens=2000)
    make(path, shard_tokens=2000, out="whole")
    assert files_of(tmp_path / "corpus") == files_of(tmp_path / "whole")


def test_two_builds_at_once_in_one_folder_are_refused(make, write, prose):
    path = write(prose(100))

    def second(progress):
        with refusal("output-in-use"):
            make(path)
        raise RuntimeError("seen")

    with pytest.raises(RuntimeError, match="seen"):
        make(path, watch=second)


def test_a_build_that_is_refused_leaves_the_one_at_work_alone(make, write, prose, tmp_path, tokenizer):
    path = write(prose(100))
    other = type(tokenizer)([*tokenizer.vocabulary, "more"])
    begun = []

    def second(progress):
        state = (tmp_path / "corpus" / "building.json").read_bytes()
        build = Build.prepare([path], tokenizer=other, folder=tmp_path / "corpus", settings=BuildSettings())
        with refusal("output-in-use"):
            build.run(begin=lambda: begun.append(other))
        assert (tmp_path / "corpus" / "building.json").read_bytes() == state
        raise RuntimeError("seen")

    with pytest.raises(RuntimeError, match="seen"):
        make(path, watch=second)
    assert not begun


def test_what_another_build_finished_meanwhile_is_not_written_again(make, write, prose, tmp_path, tokenizer):
    path = write(prose(20))
    late, other = (
        Build.prepare([path], tokenizer=chosen, folder=tmp_path / "corpus", settings=BuildSettings())
        for chosen in (tokenizer, type(tokenizer)([*tokenizer.vocabulary, "more"]))
    )
    report = make(path).report
    before = files_of(tmp_path / "corpus")
    begun = []
    assert late.run(begin=lambda: begun.append(late)) == report
    with refusal("begun-with-other-settings"):
        other.run(begin=lambda: begun.append(other))
    assert not begun and files_of(tmp_path / "corpus") == before


def test_a_build_stopped_before_its_first_word_may_be_given_again(make, write, tmp_path):
    (tmp_path / "corpus" / "building").mkdir(parents=True)
    (tmp_path / "corpus" / "building" / "lock").write_bytes(b"")
    assert make(write(["One."])).documents == 1
    (tmp_path / "other" / "building").mkdir(parents=True)
    (tmp_path / "other" / "building" / "plan.txt").write_text("x")
    with refusal("output-holds-something-else"):
        make(tmp_path / "a.txt", out="other")


def test_a_worker_that_is_ended_is_told(make, write, prose):
    def kill(progress):
        for child in multiprocessing.active_children():
            child.kill()

    with refusal("out-of-memory"):
        make(write(prose(300)), workers=2, watch=kill)


def test_progress_ends_with_everything_read(make, write, prose):
    seen = []
    path = write(prose(100))
    make(path, watch=seen.append)
    encoding = [progress for progress in seen if progress.phase == "encoding"]
    assert all(one.done <= other.done and one.tokens < other.tokens for one, other in pairwise(encoding))
    assert encoding[-1].done == encoding[-1].total == path.stat().st_size


def test_a_damaged_corpus_is_told_by_file(make, write, prose, tmp_path):
    corpus = make(write(prose(20)))
    (tmp_path / "corpus/shard-00000/words.npy").unlink()
    with open(tmp_path / "corpus/shard-00000/ids.npy", "ab") as file:
        file.write(b"x")
    with refusal("damaged-file", "words.npy: ", "ids.npy: "):
        Corpus.open(corpus.folder)
    (tmp_path / "corpus/corpus.json").write_text("{")
    with refusal("wrong-format"):
        Corpus.open(corpus.folder)
    with refusal("not-a-model"):
        Corpus.open(tmp_path)


def test_a_corpus_pickles_as_its_folder(make, write, prose):
    corpus = make(write(prose(20)))
    corpus.read(corpus.blocks()[0])
    data = pickle.dumps(corpus)
    assert len(data) < 5000
    again = pickle.loads(data)
    assert again.tokens == corpus.tokens
    np.testing.assert_array_equal(again.read(again.blocks()[0])[0].ids, corpus.read(corpus.blocks()[0])[0].ids)
