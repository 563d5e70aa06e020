"""osbert.sklearn keeps scikit-learn's conventions: its own checks where texts allow, the rest said again for texts."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted

from osbert.errors import UserError
from osbert.sklearn import TextClassifier, TextEmbedder, TextRegressor
from refusals import refusal
from tiny_runs import write_run

KINDS = [TextClassifier, TextRegressor, TextEmbedder]
TEXTS = ["good film", "bad film", "a good play", "a bad play"] * 10
LABELS = ["pos", "neg"] * 20
QUESTIONS = ["the good film", "a bad film", "good"]

WITHOUT_X = (
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_estimators_unfitted",
    "check_n_features_in_after_fitting",
    "check_estimators_partial_fit_n_features",
    "check_non_transformer_estimators_n_iter",
    "check_transformer_n_iter",
    "check_decision_proba_consistency",
    "check_classifiers_one_label_sample_weights",
)
"""scikit-learn's checks that fit on no numbers; they run as they are."""
HERE = {
    "check_fit_score_takes_y": "test_fit_takes_y_second",
    "check_estimators_overwrite_params": "test_fit_leaves_the_parameters_and_returns_self",
    "check_dont_overwrite_parameters": "test_fit_leaves_the_parameters_and_returns_self",
    "check_estimators_fit_returns_self": "test_fit_leaves_the_parameters_and_returns_self",
    "check_transformers_unfitted": "test_before_fit_there_is_no_model",
    "check_fit_check_is_fitted": "test_before_fit_there_is_no_model",
    "check_dict_unchanged": "test_predicting_changes_no_attribute",
    "check_estimators_pickle": "test_a_pickle_predicts_the_same_after_the_folder_is_gone",
    "check_readonly_memmap_input": "test_samples_may_be_of_many_forms",
    "check_methods_sample_order_invariance": "test_a_text_is_predicted_the_same_in_any_order_and_subset",
    "check_methods_subset_invariance": "test_a_text_is_predicted_the_same_in_any_order_and_subset",
    "check_fit_idempotent": "test_a_second_fit_gives_the_same_model",
    "check_pipeline_consistency": "test_an_embedder_and_a_logistic_regression_make_a_pipeline",
    "check_classifiers_classes": "test_labels_keep_their_type",
    "check_classifiers_train": "test_a_classifier_learns",
    "check_classifiers_one_label": "test_what_cannot_be_learnt_from_is_an_error",
    "check_classifiers_regression_target": "test_what_cannot_be_learnt_from_is_an_error",
    "check_supervised_y_no_nan": "test_what_cannot_be_learnt_from_is_an_error",
    "check_supervised_y_2d": "test_y_may_be_a_column",
    "check_requires_y_none": "test_what_cannot_be_learnt_from_is_an_error",
    "check_regressors_train": "test_a_regressor_learns",
    "check_regressors_int": "test_y_may_be_a_column",
    "check_transformer_general": "test_an_embedder_gives_named_vectors",
    "check_transformer_get_feature_names_out": "test_an_embedder_gives_named_vectors",
    "check_set_output_transform": "test_an_embedder_gives_named_vectors",
    "check_get_feature_names_out_error": "test_before_fit_there_is_no_model",
    "check_estimators_empty_data_messages": "test_what_cannot_be_learnt_from_is_an_error",
    "check_fit2d_predict1d": "test_a_sample_that_is_no_text_is_an_error",
    "check_dtype_object": "test_a_sample_that_is_no_text_is_an_error",
}
"""scikit-learn's checks that fit on numbers, and the test here that makes the same demand of texts."""
NO_FEATURES = "a text has no columns: there is no n_features_in_, and X has no number of features to compare"
NUMBERS = "its X is numbers, and what it asks of them has no meaning for texts"
EXCEPTIONS = {
    "check_n_features_in": NO_FEATURES,
    "check_fit1d": NO_FEATURES,
    "check_fit2d_1feature": NO_FEATURES,
    "check_fit2d_1sample": NO_FEATURES,
    "check_complex_data": NUMBERS,
    "check_estimators_dtypes": NUMBERS,
    "check_estimators_nan_inf": NUMBERS,
    "check_f_contiguous_array_estimator": NUMBERS,
    "check_array_api_input": NUMBERS,
    "check_positive_only_tag_during_fit": NUMBERS,
    "check_estimator_sparse_array": NUMBERS,
    "check_estimator_sparse_matrix": NUMBERS,
    "check_estimator_sparse_tag": NUMBERS,
    "check_transformer_preserve_dtypes": NUMBERS,
    "check_classifier_data_not_an_array": NUMBERS,
    "check_regressor_data_not_an_array": NUMBERS,
    "check_transformer_data_not_an_array": NUMBERS,
    "check_regressors_no_decision_function": NUMBERS,
}
"""scikit-learn's checks that are not made of texts, with the reason."""


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("sklearn") / "encoder", None)


@pytest.fixture
def classifier(encoder: Path) -> TextClassifier:
    return TextClassifier(encoder, epochs=8, learning_rate=1e-2, settings={"batch": 8})


@pytest.fixture
def regressor(encoder: Path) -> TextRegressor:
    return TextRegressor(encoder, epochs=8, learning_rate=1e-2, settings={"batch": 8})


@pytest.fixture(scope="session")
def fitted(encoder: Path) -> TextClassifier:
    """Return a classifier that tests only read."""
    return TextClassifier(encoder, epochs=8, learning_rate=1e-2, settings={"batch": 8}).fit(TEXTS, LABELS)


@pytest.fixture(params=KINDS)
def estimator(request: pytest.FixtureRequest, encoder: Path) -> BaseEstimator:
    more = {} if request.param is TextEmbedder else {"epochs": 1}
    return request.param(encoder, **more)


class Series:
    """What pandas and polars have in common: a column that becomes an array."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def to_numpy(self) -> np.ndarray[Any, Any]:
        return np.array(self.values, dtype=object)


def learnt(estimator: BaseEstimator) -> BaseEstimator:
    return estimator.fit(TEXTS, [float(label == "pos") for label in LABELS])


def answers(estimator: BaseEstimator, X: Any) -> Any:
    return estimator.transform(X) if hasattr(estimator, "transform") else estimator.predict(X)


@pytest.mark.parametrize("check", WITHOUT_X)
@pytest.mark.parametrize("kind", KINDS)
def test_scikit_learns_own_check_passes(kind: type[BaseEstimator], check: str) -> None:
    if not hasattr(estimator_checks, check):
        pytest.skip(f"this scikit-learn has no {check}")
    getattr(estimator_checks, check)(kind.__name__, kind())


@pytest.mark.filterwarnings("ignore:Can't test estimator")
@pytest.mark.parametrize("kind", KINDS)
def test_scikit_learn_finds_nothing_in_what_it_tests_of_texts(kind: type[BaseEstimator]) -> None:
    for estimator, check in estimator_checks.estimator_checks_generator(kind()):
        check(estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_every_check_that_numbers_would_get_runs_or_has_a_test_here_or_a_reason(kind: type[BaseEstimator]) -> None:
    class Numbers(kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()

        def __sklearn_tags__(self) -> Any:
            tags = super().__sklearn_tags__()
            tags.input_tags.two_d_array = True
            return tags

    made = [check for _, check in estimator_checks.estimator_checks_generator(Numbers())]
    names = {getattr(check.func, "__name__", "") or check.func.func.__name__ for check in made}
    assert names <= {*WITHOUT_X, *HERE, *EXCEPTIONS}, sorted(names - {*WITHOUT_X, *HERE, *EXCEPTIONS})
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_sklearn*.py"))
    assert [name for name in HERE.values() if f"def {name}(" not in tests] == []


def test_fit_takes_y_second(estimator: BaseEstimator) -> None:
    assert list(inspect.signature(estimator.fit).parameters)[:2] == ["X", "y"]


def test_fit_leaves_the_parameters_and_returns_self(estimator: BaseEstimator) -> None:
    before, deep = estimator.get_params(), copy.deepcopy(estimator.get_params())
    assert learnt(estimator) is estimator
    assert estimator.get_params() == deep
    assert all(estimator.get_params()[name] is value for name, value in before.items())
    added = set(vars(estimator)) - set(before)
    assert added and all(name.endswith("_") for name in added)


def test_before_fit_there_is_no_model(estimator: BaseEstimator) -> None:
    for name in ("predict", "predict_proba", "transform", "get_feature_names_out"):
        if hasattr(estimator, name):
            with pytest.raises(NotFittedError):
                getattr(estimator, name)(*[QUESTIONS] * (name != "get_feature_names_out"))
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)
    with pytest.raises(NotFittedError):
        _ = estimator.engine_
    check_is_fitted(learnt(estimator))


def test_predicting_changes_no_attribute(estimator: BaseEstimator) -> None:
    learnt(estimator)
    before = dict(vars(estimator))
    answers(estimator, QUESTIONS)
    assert vars(estimator).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(estimator).items())


def test_a_pickle_predicts_the_same_after_the_folder_is_gone(estimator: BaseEstimator) -> None:
    estimator = clone(estimator)  # which no fixture holds
    expected = answers(learnt(estimator), QUESTIONS)
    packed = pickle.dumps(estimator)
    temporary = None if isinstance(estimator, TextEmbedder) else estimator.folder_
    del estimator
    gc.collect()
    assert temporary is None or not temporary.exists()
    again = pickle.loads(packed)
    np.testing.assert_array_equal(answers(again, QUESTIONS), expected)
    place = again.folder_
    assert place.exists()
    del again
    gc.collect()
    assert not place.exists()


def test_an_unfitted_one_pickles_too(estimator: BaseEstimator) -> None:
    assert pickle.loads(pickle.dumps(estimator)).get_params() == estimator.get_params()


def test_a_copy_stands_alone_and_a_clone_is_unfitted(estimator: BaseEstimator) -> None:
    copied = copy.deepcopy(learnt(estimator))
    assert copied.folder_ != estimator.folder_
    np.testing.assert_array_equal(answers(copied, QUESTIONS), answers(estimator, QUESTIONS))
    cloned = clone(estimator)
    assert cloned.get_params() == estimator.get_params()
    with pytest.raises(NotFittedError):
        answers(cloned, QUESTIONS)


def test_a_pickle_leaves_out_what_predicting_does_not_need(fitted: TextClassifier) -> None:
    held = fitted.files_.__getstate__()
    assert "model.safetensors" in held and "report.html" not in held
    assert not any(name.startswith("checkpoints") for name in held)


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        np.array,
        lambda texts: np.array(texts, dtype=object),
        lambda texts: np.array(texts)[:, None],
        Series,
    ],
    ids=["list", "tuple", "strings", "objects", "column", "series"],
)
def test_samples_may_be_of_many_forms(fitted: TextClassifier, form: Callable[[list[str]], Any]) -> None:
    X = form(QUESTIONS)
    if isinstance(X, np.ndarray):
        X.setflags(write=False)
    assert fitted.predict(X).tolist() == fitted.predict(QUESTIONS).tolist()


def test_a_text_is_predicted_the_same_in_any_order_and_subset(fitted: TextClassifier) -> None:
    whole = fitted.predict_proba(QUESTIONS)
    np.testing.assert_allclose(fitted.predict_proba(QUESTIONS[::-1]), whole[::-1], atol=1e-6)
    alone = np.concatenate([fitted.predict_proba([text]) for text in QUESTIONS])
    np.testing.assert_allclose(alone, whole, atol=1e-6)
    assert fitted.predict([]).shape == (0,) and fitted.predict_proba([]).shape == (0, 2)


def test_a_second_fit_gives_the_same_model(classifier: TextClassifier) -> None:
    classifier.set_params(epochs=1, random_state=3)
    first = classifier.fit(TEXTS, LABELS).predict_proba(QUESTIONS)
    np.testing.assert_array_equal(classifier.fit(TEXTS, LABELS).predict_proba(QUESTIONS), first)
    other = clone(classifier).set_params(random_state=np.random.RandomState(5)).fit(TEXTS, LABELS)
    assert (other.predict_proba(QUESTIONS) != first).any()


def test_a_classifier_learns(fitted: TextClassifier) -> None:
    assert is_classifier(fitted) and fitted.classes_.tolist() == ["neg", "pos"]
    assert fitted.predict(QUESTIONS).tolist() == ["pos", "neg", "pos"]
    probabilities = fitted.predict_proba(QUESTIONS)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert fitted.classes_[probabilities.argmax(axis=1)].tolist() == ["pos", "neg", "pos"]
    assert fitted.score(TEXTS, LABELS) == 1


@pytest.mark.parametrize("classes", [(0, 1), (10, 9), (True, False), ("no", "yes")], ids=str)
def test_labels_keep_their_type(classifier: TextClassifier, classes: tuple[Any, Any]) -> None:
    y = np.array(classes * 20)
    classifier.fit(TEXTS, y)
    predicted = classifier.predict(TEXTS)
    assert predicted.dtype == y.dtype and classifier.classes_.tolist() == sorted(classes)
    assert (predicted == y).all()


def test_a_regressor_learns(regressor: TextRegressor) -> None:
    numbers = [float(label == "pos") for label in LABELS]
    assert is_regressor(regressor.set_params(epochs=20).fit(TEXTS * 2, numbers * 2))
    assert regressor.score(TEXTS, numbers) > 0.5
    assert regressor.predict(QUESTIONS).shape == (3,)


@pytest.mark.parametrize("kind", [TextClassifier, TextRegressor])
def test_y_may_be_a_column(encoder: Path, kind: type[BaseEstimator]) -> None:
    estimator = kind(encoder, epochs=1)
    with pytest.warns(DataConversionWarning):
        estimator.fit(TEXTS, np.array([[1], [0]] * 20))
    assert estimator.predict(QUESTIONS).shape == (3,)


def test_pairs_of_texts_are_samples(encoder: Path) -> None:
    pairs = [("good film", "a good play"), ("good film", "bad play")] * 10
    estimator = TextClassifier(encoder, epochs=1).fit(pairs, [1, 0] * 10)
    expected = estimator.predict_proba(pairs[:2])
    for form in (np.array(pairs[:2]), np.array(pairs[:2], dtype=object), Series(pairs[:2])):
        np.testing.assert_array_equal(estimator.predict_proba(form), expected)
    assert TextRegressor(encoder, epochs=1).fit(pairs, [1.0, 0.0] * 10).predict(pairs).shape == (20,)
    assert TextEmbedder(encoder).fit_transform(pairs).shape == (20, 16)
    with pytest.raises(UserError):
        estimator.predict(QUESTIONS)


@pytest.mark.parametrize(("kind", "y"), [(TextClassifier, LABELS), (TextRegressor, [1.0, 0.0] * 20)])
def test_the_columns_of_a_table_of_pairs_keep_their_order(encoder: Path, kind: type[BaseEstimator], y: Any) -> None:
    table = Series([*zip(TEXTS, TEXTS[::-1])])
    table.columns = ["premise", "hypothesis"]
    estimator = kind(encoder, epochs=1).fit(table, y)
    assert len(estimator.predict(table)) == len(estimator.predict(table.to_numpy())) == 40
    table.columns = table.columns[::-1]
    with pytest.raises(ValueError, match=r"hypothesis.*premise.*premise"):
        pickle.loads(pickle.dumps(estimator)).predict(table)


@pytest.mark.parametrize("missing", [None, float("nan"), np.datetime64("NaT", "D")])
def test_a_label_that_is_missing_is_named(encoder: Path, missing: Any) -> None:
    with pytest.raises(ValueError, match=r"y\[39\]"):
        TextClassifier(encoder).fit(TEXTS, np.array([*LABELS[1:], missing], dtype=object))


@pytest.mark.parametrize("y", [LABELS[:-1], [*LABELS, "pos"], ["pos"] * 40, ["pos", ""] * 20, [0.5, 1.5] * 20, None])
def test_what_cannot_be_learnt_from_is_an_error(classifier: TextClassifier, regressor: TextRegressor, y: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        classifier.fit(TEXTS, y)
    assert not hasattr(classifier, "files_") and not hasattr(classifier, "classes_")
    with pytest.raises((ValueError, TypeError)):
        regressor.fit(TEXTS, [np.nan] * 40 if y else y)
    with pytest.raises((ValueError, UserError)):
        classifier.fit([], [])


def test_labels_that_are_probabilities_are_refused(encoder: Path) -> None:
    with pytest.raises(ValueError, match="probability"):
        TextClassifier(encoder).fit(["good", "bad"] * 10, ['{"pos": 0.8, "neg": 0.2}', "neg"] * 10)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("a text", "X is one text"),
        ([1, 2], r"X\[0\] is 1"),
        (["good", None], r"X\[1\] is None"),
        (["good", float("nan")], r"X\[1\] is nan"),
        ([("a", "b", "c")], r"X\[0\] is \('a', 'b', 'c'\)"),
        (np.zeros((2, 3)), r"X\[0\]"),
        ([("good", float("nan"))], r"X\[0\] is \('good', nan\)"),
        (["good", ("good", "film")], "texts and pairs"),
    ],
    ids=["text", "numbers", "none", "nan", "three", "array", "half", "mixed"],
)
def test_a_sample_that_is_no_text_is_an_error(fitted: TextClassifier, X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted.predict(X)
    with pytest.raises(ValueError, match=message):
        clone(fitted).fit(X, [0, 1])


def test_a_misspelt_setting_is_an_error_that_names_the_nearest(encoder: Path) -> None:
    with refusal("unknown-setting"):
        TextClassifier(encoder, settings={"warmupp": 0.1}).fit(TEXTS, LABELS)
