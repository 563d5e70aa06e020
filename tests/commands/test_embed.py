"""osbert embed: the vectors of a file's texts in their order, as Engine.embed gives them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from osbert.commands import embed as command
from osbert.commands.embed import embed
from osbert.errors import UserError
from osbert.serving.engine import load

TEXTS = ["a good film", "bad", "the plays . the plays", "film", "poor actor"]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([TEXTS[0], "", *TEXTS[1:]]) + "\n")
    return path


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "pooler"])
def test_pooled_vectors(encoder: Path, lines: Path, tmp_path: Path, pooling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "ROWS", 2)
    embed(encoder, lines, out=tmp_path / "x.npz", pooling=pooling)
    with np.load(tmp_path / "x.npz") as found:
        assert set(found) == {"vectors", "lines"}
        assert found["vectors"].shape == (5, 16) and found["vectors"].dtype == np.float32
        assert found["lines"].tolist() == [1, 3, 4, 5, 6]
        np.testing.assert_allclose(found["vectors"], load(encoder).embed(TEXTS, pooling=pooling), atol=1e-6)


def test_token_vectors_of_two_layers(run: Path, lines: Path, tmp_path: Path) -> None:
    embed(run, lines, out=tmp_path / "x.npz", pooling="tokens", layers="-1,0")
    engine = load(run)
    expected = engine.embed(TEXTS, pooling="tokens", layers=[-1, 0])
    with np.load(tmp_path / "x.npz") as found:
        starts = found["starts"]
        assert found["vectors"].shape == (starts[-1], 2, 16) and len(found["ids"]) == starts[-1]
        for place, one in enumerate(expected):
            span = slice(starts[place], starts[place + 1])
            np.testing.assert_allclose(found["vectors"][span], one, atol=1e-6)
            assert engine.tokenizer.decode(found["ids"][span][1:-1]) == TEXTS[place]


def test_pairs_from_a_table_and_texts_that_are_too_long(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.csv").write_text(f"sentence1,sentence2,label\ngood,bad,x\ngood,{'film ' * 50},y\n")
    embed(encoder, tmp_path / "pairs.csv", out=tmp_path / "x.npz", pooling="cls")
    with np.load(tmp_path / "x.npz") as found:
        np.testing.assert_allclose(
            found["vectors"][:1], load(encoder).embed([("good", "bad")], pooling="cls"), atol=1e-6
        )
    assert "1 texts are longer than 24 tokens" in capsys.readouterr().out


def test_wrong_usage(encoder: Path, lines: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"written as \.npz"):
        embed(encoder, lines, out=tmp_path / "x.csv")
    with pytest.raises(UserError, match="--layers last"):
        embed(encoder, lines, out=tmp_path / "x.npz", layers="last")
    with pytest.raises(UserError, match="There is no layer 2: the model has 0"):
        embed(encoder, lines, out=tmp_path / "x.npz", layers="2")
    (tmp_path / "none.csv").write_text("text,n\n")
    with pytest.raises(UserError, match="has no rows"):
        embed(encoder, tmp_path / "none.csv", out=tmp_path / "x.npz")
    (tmp_path / "bad.csv").write_text("text,n\ngood,1\nbad\n")
    with pytest.raises(UserError, match="line 3"):
        embed(encoder, tmp_path / "bad.csv", out=tmp_path / "x.npz")
