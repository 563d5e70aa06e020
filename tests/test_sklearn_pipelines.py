"""osbert.sklearn at work: vectors with names, pipelines, searches, cross-validation, run folders."""

from __future__ import annotations

import gc
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import osbert
from osbert.sklearn import TextClassifier, TextEmbedder
from tiny_runs import write_run

TEXTS = ["good film", "bad film", "a good play", "a bad play"] * 10
LABELS = ["pos", "neg"] * 20
QUESTIONS = ["the good film", "a bad film", "good"]


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("sklearn") / "encoder", None)


def test_an_embedder_gives_named_vectors(encoder: Path) -> None:
    embedder = TextEmbedder(encoder, pooling="cls", normalize=True, length=8).fit()
    vectors = embedder.transform(QUESTIONS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(
        vectors, osbert.load(encoder).embed(QUESTIONS, pooling="cls", normalize=True, length=8)
    )
    assert embedder.get_feature_names_out().tolist() == [f"textembedder{number}" for number in range(16)]
    assert TextEmbedder(encoder).set_output(transform="default").fit_transform(QUESTIONS).shape == (3, 16)
    with pytest.raises(ValueError, match="tokens"):
        TextEmbedder(encoder, pooling="tokens").fit()


def test_an_embedder_gives_a_frame_where_set_output_says_so(encoder: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="set_output(transform='pandas') needs pandas")
    frame = TextEmbedder(encoder).set_output(transform="pandas").fit_transform(pandas.Series(QUESTIONS))
    assert list(frame.columns) == [f"textembedder{number}" for number in range(16)]


def test_an_embedder_and_a_logistic_regression_make_a_pipeline(encoder: Path) -> None:
    pipeline = make_pipeline(TextEmbedder(encoder), LogisticRegression(C=100))
    assert pipeline.fit(TEXTS, LABELS).score(TEXTS, LABELS) == 1
    search = GridSearchCV(pipeline, {"textembedder__pooling": ["mean", "max"]}, cv=2).fit(TEXTS, LABELS)
    assert search.best_params_["textembedder__pooling"] in ("mean", "max")
    again = pickle.loads(pickle.dumps(pipeline))
    assert again.predict(QUESTIONS).tolist() == pipeline.predict(QUESTIONS).tolist()


def test_a_search_over_epochs_and_a_cross_validation(encoder: Path) -> None:
    estimator = TextClassifier(encoder, learning_rate=1e-2, settings={"batch": 8})
    texts, labels = TEXTS * 2, LABELS * 2
    search = GridSearchCV(estimator, {"epochs": [1, 8]}, cv=2, error_score="raise").fit(texts, labels)
    assert search.best_estimator_.epochs == search.best_params_["epochs"]
    assert search.predict(QUESTIONS).shape == (3,)
    scores = cross_val_score(estimator.set_params(epochs=8), texts, labels, cv=2, error_score="raise")
    assert scores.shape == (2,) and scores.min() > 0.9


def test_a_run_folder_of_ones_own_stays(encoder: Path, tmp_path: Path) -> None:
    estimator = TextClassifier(encoder, epochs=1, out=tmp_path / "run").fit(TEXTS, LABELS)
    expected = estimator.predict_proba(QUESTIONS)
    del estimator
    gc.collect()
    names = osbert.load(tmp_path / "run").predict(QUESTIONS)
    np.testing.assert_allclose([[one.probabilities[name] for name in ("neg", "pos")] for one in names], expected)


def test_a_relative_folder_stays_the_same_one(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts, labels = ["good film", "bad film"] * 10, [1, 0] * 10
    classifier = TextClassifier(encoder, epochs=1, out="run").fit(texts, labels)
    embedder = TextEmbedder("run").fit(texts)
    monkeypatch.chdir(encoder)
    assert len(classifier.predict(texts)) == len(embedder.transform(texts)) == 20


def test_a_pickle_holds_what_an_adapted_model_needs(encoder: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(encoder, base)
    texts, labels = ["good film", "bad film"] * 10, [1, 0] * 10
    classifier = TextClassifier(base, epochs=1, settings={"tuning": "lora"}).fit(texts, labels)
    said, pickled = classifier.predict_proba(texts), pickle.dumps(classifier)
    shutil.rmtree(base)
    np.testing.assert_array_equal(pickle.loads(pickled).predict_proba(texts), said)


def test_the_model_by_default_is_minilm() -> None:
    embedder = TextEmbedder(length=8).fit(QUESTIONS)
    assert embedder.transform(QUESTIONS).shape == (3, 384)
    assert len(embedder.get_feature_names_out()) == 384


def test_without_scikit_learn_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\nimport osbert, osbert.tasks.kinds.classify\nimport osbert.sklearn"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.stderr.splitlines()[-1].endswith('pip install "osbert[sklearn]"')
