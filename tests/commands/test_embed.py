"""osbert embed: the vectors of a file's texts in their order, whatever the form, the windows and what stops the run."""

from __future__ import annotations

import io
import json
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import osbert
from forked import start_script
from osbert.commands.embed import VectorOptions, embed
from osbert.inference.engine import load
from osbert.inference.vectors.reading import open_vectors
from osbert.models.contract import Learner
from osbert.runs.contract import WorkProgress
from osbert.runs.file_options import TextFile, TextOptions
from osbert.runs.rows import vector_parts as windows
from osbert.runs.rows.embed import embed_file
from refusals import refusal

TEXTS = ["a good film", "bad", "the plays . the plays", "film", "poor actor"]
TOO_LONG = "film " * 50


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([TEXTS[0], "", *TEXTS[1:]]) + "\n")
    return path


def texts_in(found: np.lib.npyio.NpzFile) -> list[str]:
    raw, ends = found["text"].tobytes(), found["text_ends"].tolist()
    return [raw[start:end].decode() for start, end in zip([0, *ends], ends)]


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "weighted", "pooler"])
def test_pooled_vectors(encoder: Path, lines: Path, tmp_path: Path, pooling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "ROWS", 2)
    embed(encoder, lines, out=tmp_path / "x.npz", vectors=VectorOptions(pooling=pooling))
    with np.load(tmp_path / "x.npz") as found:
        assert set(found) == {"vectors", "lines", "text", "text_ends", "settings"}
        assert found["vectors"].shape == (5, 16) and found["vectors"].dtype == np.float32
        assert found["lines"].tolist() == [1, 3, 4, 5, 6]
        assert texts_in(found) == TEXTS
        np.testing.assert_allclose(found["vectors"], load(encoder).embed(TEXTS, pooling=pooling), atol=1e-6)
    assert not list(tmp_path.glob("*.unfinished"))


@pytest.mark.parametrize(("name", "remarked"), [("title", True), ("author", False)])
def test_titles_of_a_corpus_that_are_not_read_are_named(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, remarked: bool
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"_id": "1", name: "the film", "text": "a good film"}) + "\n")
    embed(encoder, corpus, out=tmp_path / "x.npz")
    assert ("evaluate retrieval" in capsys.readouterr().out) == remarked


def test_blank_lines_of_one_column_have_no_vector(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.csv").write_text('text\ngood\n\n""\nbad\n\n')
    (tmp_path / "in.txt").write_text("good\n\nbad\n\n")
    for name, lines in (("in.csv", [2, 4, 5]), ("in.txt", [1, 3])):
        embed(encoder, tmp_path / name, out=tmp_path / "x.npz")
        with np.load(tmp_path / "x.npz") as found:
            assert found["lines"].tolist() == lines and len(found["vectors"]) == len(lines)
        assert "2 blank lines have no vector" in capsys.readouterr().out


def test_a_text_that_is_an_object_is_refused(encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "good"}\n{"text": {"en": "good"}}\n{"text": ["bad"]}\n')
    with refusal("unusable-row", "line 2: 'text' is a list or an object", "line 3: "):
        embed(encoder, tmp_path / "in.jsonl", out=tmp_path / "x.npz")


def test_npy_and_parquet_hold_the_same(
    encoder: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyarrow import parquet

    for name in ("x.npz", "x.npy", "x.parquet"):
        embed(encoder, lines, out=tmp_path / name, vectors=VectorOptions(normalize=True, layers="0,-1"))
    told = capsys.readouterr().out
    assert told.count("was not trained for sentence vectors") == 3  # once a run
    assert "1 blank line has no vector" in told
    vectors = np.load(tmp_path / "x.npy")
    assert vectors.shape == (5, 2, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, atol=1e-6)
    with np.load(tmp_path / "x.npz") as whole, np.load(tmp_path / "x.rows.npz") as rest:
        assert (whole["vectors"] == vectors).all()
        assert set(rest) == set(whole) - {"vectors"}
        assert texts_in(rest) == TEXTS
        settings = json.loads(whole["settings"].item())
    assert settings["vectors"]["pooling"] == "mean" and settings["vectors"]["normalize"]
    assert settings["model"] == str(encoder.resolve())
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table.column_names == ["line", "text", "vector_0", "vector_1"]
    assert table["text"].to_pylist() == TEXTS
    np.testing.assert_array_equal(np.array(table["vector_1"].to_pylist(), np.float32), vectors[:, 1])


def test_token_vectors_of_two_layers(run: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "ROWS", 2)
    embed(run, lines, out=tmp_path / "x.npz", vectors=VectorOptions(pooling="tokens", layers="-1,0"))
    engine = load(run)
    expected = engine.embed(TEXTS, pooling="tokens", layers=[-1, 0])
    with np.load(tmp_path / "x.npz") as found:
        starts = found["starts"]
        assert found["vectors"].shape == (starts[-1], 2, 16) and len(found["ids"]) == starts[-1]
        for place, one in enumerate(expected):
            span = slice(starts[place], starts[place + 1])
            np.testing.assert_allclose(found["vectors"][span], one, atol=1e-6)
            assert engine.tokenizer.decode(found["ids"][span][1:-1]) == TEXTS[place]


def test_named_layers_and_windows_are_means_of_what_there_is(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "long.txt").write_text(f"{TOO_LONG}\ngood\n")
    engine, found = load(encoder), {}
    for layers in ("sum-all", "concat-last-four", "embeddings"):
        embed(encoder, tmp_path / "long.txt", out=tmp_path / "x.npy", vectors=VectorOptions(layers=layers))
        found[layers] = np.load(tmp_path / "x.npy")[1]
    np.testing.assert_allclose(found["sum-all"], engine.embed(["good"])[0], atol=1e-6)  # it has one block
    np.testing.assert_allclose(found["concat-last-four"], found["sum-all"], atol=1e-6)
    assert "has fewer layers (1) than the four of --layers concat-last-four" in capsys.readouterr().out
    np.testing.assert_allclose(found["embeddings"], engine.embed(["good"], layers=0)[0], atol=1e-6)
    options = VectorOptions(long="window", overlap=0, length=12)
    embed(encoder, tmp_path / "long.txt", out=tmp_path / "x.npy", vectors=options)
    # 50 pieces in windows of 10, which are alike but for nothing: each is ten times "film".
    np.testing.assert_allclose(np.load(tmp_path / "x.npy")[0], engine.embed(["film " * 10])[0], atol=1e-6)


def test_pairs_and_what_is_not_read_is_told(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pairs.csv").write_text(f"sentence1,sentence2,label\ngood,bad,x\ngood,{TOO_LONG},y\n,,z\n")
    embed(encoder, tmp_path / "pairs.csv", out=tmp_path / "x.npz", vectors=VectorOptions(pooling="cls"))
    with np.load(tmp_path / "x.npz") as found:
        np.testing.assert_allclose(
            found["vectors"][:1], load(encoder).embed([("good", "bad")], pooling="cls"), atol=1e-6
        )
        assert {"text", "pair"} < set(found)
    told = capsys.readouterr().out
    assert "1 text is longer than 24 tokens; its end was not read (30 pieces)" in told
    assert "1 text is empty: its vector is that of [CLS] and [SEP] alone" in told
    with refusal("text-too-long", "pairs.csv", "3", "30", "24"):
        embed(encoder, tmp_path / "pairs.csv", out=tmp_path / "y.npz", vectors=VectorOptions(long="error"))
    assert not list(tmp_path.glob("*.unfinished"))


def test_texts_that_the_vocabulary_lacks_are_counted(encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "thai.txt").write_text("a good film\nแมว สุนัข\nกินข้าว\n\nbad แมว film\n")
    (tmp_path / "known.txt").write_text("a good film\n")
    written = osbert.embed(encoder, tmp_path / "thai.txt", out=tmp_path / "x.npz")
    assert written.tally["unknown"] == 2 and any("2 texts" in line and "unknown" in line for line in written.describe())
    assert "unknown" not in osbert.embed(encoder, tmp_path / "known.txt", out=tmp_path / "y.npz").tally


def test_the_originals_layout(encoder: Path, lines: Path, tmp_path: Path) -> None:
    from transformers import AutoModel, BertTokenizer

    embed(encoder, lines, out=tmp_path / "x.jsonl", vectors=VectorOptions(layers="-1,-2"))
    found = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [one["linex_index"] for one in found] == [0, 2, 3, 4, 5]
    theirs = AutoModel.from_pretrained(encoder).eval()
    tokenizer = BertTokenizer.from_pretrained(encoder)
    for text, line in zip(TEXTS, found, strict=True):
        assert list(line) == ["linex_index", "features"]
        inputs = tokenizer(text, return_tensors="pt")
        assert [one["token"] for one in line["features"]] == tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        states = theirs(**inputs, output_hidden_states=True).hidden_states
        for place, one in enumerate(line["features"]):
            assert [layer["index"] for layer in one["layers"]] == [-1, -2]
            for layer in one["layers"]:
                expected = states[layer["index"]][0, place].detach().numpy()
                np.testing.assert_allclose(layer["values"], expected, atol=2e-6)


def test_lines_from_standard_input(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(TEXTS).encode())))
    embed(encoder, Path("-"), out=tmp_path / "x.npy")
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), load(encoder).embed(TEXTS), atol=1e-6)
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_first_line_that_may_be_a_header_is_named(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for content, named in (("text\na film\n", True), ("a film\ntext\n", False)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        embed(encoder, Path("-"), out=tmp_path / f"{named}.npy")
        assert ("--form csv" in capsys.readouterr().out) == named
        assert len(np.load(tmp_path / f"{named}.npy")) == 2


def test_a_table_from_standard_input_becomes_vectors_on_standard_output(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    def give(content: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))

    monkeypatch.setattr(windows, "ROWS", 2)
    rows = [{"text": text, "n": number} for number, text in enumerate(TEXTS)]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "in.jsonl").write_text(content)
    expected = load(encoder).embed(TEXTS, layers=[0, -1])
    for form, pooling in (("", None), ("jsonl", "mean"), ("npy", None), ("npz", None)):
        give(content)
        options = VectorOptions(layers="0,-1", out_form=form, pooling=pooling)
        embed(encoder, Path("-"), out=Path("-"), vectors=options, form="jsonl")
        said = capfdbinary.readouterr()
        assert said.err.startswith(b"standard input: JSON lines")
        if form == "npz":
            embed(encoder, tmp_path / "in.jsonl", out=tmp_path / "x.npz", vectors=options)
            with np.load(io.BytesIO(said.out)) as found, np.load(tmp_path / "x.npz") as whole:
                assert set(found) == set(whole) and (found["vectors"] == whole["vectors"]).all()
        elif form == "npy":
            np.testing.assert_allclose(np.load(io.BytesIO(said.out)), expected, atol=1e-6)
        else:
            lines = [json.loads(line) for line in said.out.splitlines()]
            assert [list(line) for line in lines] == [["line", "text", "vector"]] * 5
            assert [line["text"] for line in lines] == TEXTS
            np.testing.assert_allclose([line["vector"] for line in lines], expected, atol=1e-6)
            embed(
                encoder,
                tmp_path / "in.jsonl",
                out=tmp_path / "x.jsonl",
                vectors=VectorOptions(layers="0,-1", pooling="mean"),
            )
            capfdbinary.readouterr()
            assert (tmp_path / "x.jsonl").read_bytes() == said.out
    capfdbinary.readouterr()
    give("good\n\nbad\n")
    with refusal("wrong-format", "standard input"):
        embed(encoder, Path("-"), out=Path("-"), form="jsonl")
    assert capfdbinary.readouterr().out == b"" and not list(tmp_path.glob("*.unfinished"))


@pytest.mark.parametrize(("suffix", "column"), [(".npz", "vectors"), (".parquet", "text")])
def test_a_run_that_is_stopped_again_and_again_ends_in_the_same_bytes(
    encoder: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, column: str
) -> None:
    def stop(event: object) -> None:
        if isinstance(event, WorkProgress):
            begun.append(event.done)
            if len(begun) == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(windows, "ROWS", 2)
    out = tmp_path / f"stopped{suffix}"
    for _ in range(2):
        begun: list[int] = []
        with pytest.raises(KeyboardInterrupt):
            embed_file(encoder, TextFile(lines), out=out, watch=stop)
        with (tmp_path / f"{out.name}.unfinished" / f"{column}.bin").open("ab") as file:
            file.write(b"half a window")
    for one in (out, tmp_path / f"whole{suffix}"):
        embed(encoder, lines, out=one)
    assert out.read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()


@pytest.mark.parametrize(("suffix", "column"), [(".npy", "vectors"), (".jsonl", "features")])
def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    suffix: str,
    column: str,
) -> None:
    path, out, whole = tmp_path / "many.txt", tmp_path / f"killed{suffix}", tmp_path / f"whole{suffix}"
    path.write_text("".join(f"{TEXTS[n % 5]} {'film ' * (n % 17)}\n" for n in range(400)))
    program = (
        "import sys, time; from osbert.runs.rows import vector_parts; from osbert.cli import main\n"
        "vector_parts.ROWS = 20; compute = vector_parts.RowBatches.compute\n"
        "vector_parts.RowBatches.compute = lambda *given: (compute(*given), time.sleep(0.2))[0]\n"
        "sys.exit(main())"
    )
    words = ["embed", encoder, path, "--out", out, "--length", "20"]
    (tmp_path / "killed.py").write_text(program)
    killed = start_script(tmp_path / "killed.py", [*map(str, words)], {}, tmp_path / "killed.log")
    progress = tmp_path / f"{out.name}.unfinished" / "progress.json"
    deadline = time.monotonic() + 120
    while not (progress.is_file() and json.loads(progress.read_text())["tally"]["rows"] >= 60):
        assert killed.is_alive() and time.monotonic() < deadline
        time.sleep(0.02)
    killed.kill()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL and not out.exists()
    with (progress.parent / f"{column}.bin").open("ab") as file:
        file.write(b"half a window")  # which a kill may leave
    monkeypatch.setattr(windows, "ROWS", 20)
    options = VectorOptions(length=20)
    for one in (out, whole):
        embed(encoder, path, out=one, vectors=options)
    told = capsys.readouterr().out
    assert told.count("going on after ") == 1 and told.count("400 texts") > 1
    assert out.read_bytes() == whole.read_bytes()
    if suffix == ".npy":
        assert out.with_suffix(".rows.npz").read_bytes() == whole.with_suffix(".rows.npz").read_bytes()
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_run_that_was_begun_goes_on_with_nothing_else(
    encoder: Path, run: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(event: object) -> None:
        if isinstance(event, WorkProgress) and event.done:
            raise KeyboardInterrupt

    out = tmp_path / "x.npy"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(windows, "ROWS", 2)
        embed_file(encoder, TextFile(lines), out=out, watch=stop)
    with refusal("begun-with-other-settings", "vectors.pooling", "mean", "cls"):
        embed(encoder, lines, out=out, vectors=VectorOptions(pooling="cls"))
    with refusal("begun-with-other-settings"):
        embed(run, lines, out=out)
    lines.write_text("another\n")
    with refusal("begun-with-other-settings", "x.npy.unfinished"):
        embed(encoder, lines, out=out)
    assert not out.exists()


def test_no_vector_is_written_that_is_no_number(
    encoder: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Learner, batch: object) -> object:
        yield from (state * np.nan for state in layers(self, batch))

    kind = type(load(encoder).learner.backbone)
    layers = kind.layers
    monkeypatch.setattr(kind, "layers", broken)
    with refusal("not-finite"):
        embed(encoder, lines, out=tmp_path / "x.npy")
    assert not list(tmp_path.glob("*x.n*"))


def test_wrong_usage(encoder: Path, lines: Path, tmp_path: Path) -> None:
    for name, options, refused in (
        ("x.csv", {}, ("unknown-output-format", ".npy", ".npz")),
        ("x.npz", {"layers": "lst"}, ("invalid-value", "--layers lst", "'last'")),
        ("x.npz", {"layers": "mix"}, ("invalid-value", "--layers mix")),
        ("x.npz", {"layers": "2"}, ("invalid-value", "layer 2", "0")),
        ("x.npz", {"length": 600}, ("invalid-value", "--length", "5", "24")),
        ("x.npz", {"length": 600, "overlap": -1}, ("invalid-value", "--overlap", "--length")),
        ("x.npz", {"tokens": 0}, ("invalid-value", "--tokens", "0")),
        ("x.npz", {"pooling": "pooler", "layers": "0"}, ("options-exclude-each-other", "pooler", "layer")),
        ("x.npz", {"pooling": "tokens", "normalize": True}, ("invalid-value", "--normalize")),
        ("x.npz", {"pooling": "tokens", "long": "window"}, ("invalid-value", "--long window")),
        ("x.npy", {"pooling": "tokens"}, ("unknown-output-format", ".npz", ".jsonl")),
        ("x.npz", {"out_form": "csv"}, ("unknown-output-format", ".jsonl")),
        ("x.jsonl", {"layers": "sum-all"}, ("unknown-output-format", "--layers")),
    ):
        with refusal(*refused):
            embed(encoder, lines, out=tmp_path / name, vectors=VectorOptions(**options))
    for name, content, refused in (
        ("none.csv", "text,n\n", ("no-data", "none.csv")),
        ("bad.csv", "text,n\ngood,1\nbad\n", ("unusable-row", "bad.csv", "line 3")),
        ("lack.jsonl", '{"text": "a"}\n{"txt": "b"}\n', ("unknown-column", "lack.jsonl", "line 2", "'text'")),
        ("two.csv", "text,body\na,b\n", ("ambiguous-column", "'text'", "'body'")),
    ):
        (tmp_path / name).write_text(content)
        with refusal(*refused):
            embed(encoder, tmp_path / name, out=tmp_path / "x.npz")
    with refusal("unknown-column", "tekst"):
        embed(encoder, tmp_path / "two.csv", out=tmp_path / "x.npz", reading=TextOptions(text="tekst"))
    assert not list(tmp_path.glob("*.unfinished"))


def test_the_other_columns_are_kept_in_every_form(encoder: Path, tmp_path: Path) -> None:
    """Also one whose name is taken; what reads the vectors takes none of them for the text."""
    from pyarrow import parquet

    file = tmp_path / "in.csv"
    file.write_text('id,review,text,a/b_ends\n1,"good film",x,\n2,bad,"y, z",é\n', encoding="utf-8")
    options = VectorOptions(pooling="mean", keep_columns=True)
    for name in ("x.npz", "x.npy", "x.parquet", "x.jsonl"):
        embed(encoder, file, out=tmp_path / name, vectors=options, reading=TextOptions(text="review"))
    kept = {"id": ["1", "2"], "text 2": ["x", "y, z"], "a/b_ends 2": ["", "é"]}
    for name in ("x.npz", "x.rows.npz"):
        with np.load(tmp_path / name) as found:
            for column, cells in kept.items():
                ends = found[f"{column}_ends"].tolist()
                raw = found[column].tobytes()
                assert [raw[start:end].decode() for start, end in zip([0, *ends], ends)] == cells
    table = parquet.read_table(tmp_path / "x.parquet").to_pydict()
    assert table["text"] == ["good film", "bad"] and {name: table[name] for name in kept} == kept
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text("utf-8").splitlines()]
    assert [[row[name] for row in rows] for name in kept] == [*kept.values()]
    for name in ("x.npz", "x.npy", "x.parquet"):
        assert open_vectors(tmp_path / name).rows([1])[0].texts == ("bad",)
    with refusal("options-exclude-each-other", "--keep-columns"):
        embed(encoder, file, out=tmp_path / "y.jsonl", vectors=VectorOptions(keep_columns=True))


def test_an_embedding_that_an_earlier_version_began_goes_on_with_the_same_counts(
    encoder: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions before the row machine kept these counts alone."""

    def stop(event: object) -> None:
        if isinstance(event, WorkProgress) and event.done:
            raise KeyboardInterrupt

    whole = embed_file(encoder, TextFile(lines), out=tmp_path / "whole.npz")
    assert {*whole.tally} == {"rows", "pieces", "empty", "cut", "unread", "windowed"}
    monkeypatch.setattr(windows, "ROWS", 2)
    out = tmp_path / "x.npz"
    with pytest.raises(KeyboardInterrupt):
        embed_file(encoder, TextFile(lines), out=out, watch=stop)
    kept = json.loads((tmp_path / "x.npz.unfinished" / "progress.json").read_text())["tally"]
    assert {*kept} == {*whole.tally} and kept["rows"] == 2
    assert embed_file(encoder, TextFile(lines), out=out).tally == whole.tally
    assert out.read_bytes() == (tmp_path / "whole.npz").read_bytes()
