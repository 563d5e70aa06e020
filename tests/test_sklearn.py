"""osbert.sklearn keeps scikit-learn's conventions: its own checks where texts allow, the rest said again for texts."""

from __future__ import annotations

import copy
import inspect
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator

from osbert.errors import UserError
from osbert.sklearn import TextClassifier, TextEmbedder, TextRegressor
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.regress import Regress
from tiny_runs import write_run

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
    "check_estimator_sparse_tag",
)
"""scikit-learn's checks that give an estimator no numbers for X; they run as they are."""
HERE = {
    "check_fit_score_takes_y": "test_fit_takes_y_second",
    "check_estimators_overwrite_params": "test_fit_leaves_the_parameters_and_returns_self",
    "check_dont_overwrite_parameters": "test_fit_leaves_the_parameters_and_returns_self",
    "check_estimators_fit_returns_self": "test_fit_leaves_the_parameters_and_returns_self",
    "check_estimators_unfitted": "test_before_fit_there_is_no_model",
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
LEFT_OUT = {
    "n_features_in": "texts have no columns of features: there is no n_features_in_, and no names of features come in",
    "numbers": "numbers that are complex, sparse, NaN, negative, of other dtypes or array types: a sample is a text",
    "sample_weight": "fit takes no sample weights",
    "multioutput": "osbert.finetune('multilabel') is no estimator",
    "decision_function": "a classifier has probabilities, no decision function",
    "partial_fit": "fine-tuning goes on with a run that was stopped, not with more rows",
    "others": "clusterers, outlier detectors, linear models and estimators with n_iter_",
}
"""What no text has a form of, with the reason."""


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


@pytest.fixture(params=[TextClassifier, TextRegressor, TextEmbedder])
def estimator(request: pytest.FixtureRequest, encoder: Path) -> BaseEstimator:
    more = {} if request.param is TextEmbedder else {"epochs": 1}
    return request.param(encoder, **more)


def learnt(estimator: BaseEstimator) -> BaseEstimator:
    return estimator.fit(TEXTS, [float(label == "pos") for label in LABELS])


def answers(estimator: BaseEstimator, X: Any) -> Any:
    return estimator.transform(X) if hasattr(estimator, "transform") else estimator.predict(X)


@pytest.mark.parametrize("check", WITHOUT_X)
@pytest.mark.parametrize("kind", [TextClassifier, TextRegressor, TextEmbedder])
def test_scikit_learns_own_check(kind: type[BaseEstimator], check: str) -> None:
    if not hasattr(estimator_checks, check):
        pytest.skip(f"this scikit-learn has no {check}")
    run: Callable[..., None] = getattr(estimator_checks, check)
    if check == "check_estimator_sparse_tag":
        pytest.skip("it fits on numbers") if not kind().__sklearn_tags__().input_tags.two_d_array else None
    run(kind.__name__, kind())


@pytest.mark.filterwarnings("ignore")  # that what takes texts is not tested by it
@pytest.mark.parametrize("kind", [TextClassifier, TextRegressor, TextEmbedder])
def test_scikit_learn_checks_what_it_can_of_texts(kind: type[BaseEstimator]) -> None:
    for estimator, check in estimator_checks_generator(kind()):
        check(estimator)


def test_the_list_of_checks_names_tests_that_there_are() -> None:
    assert set(HERE.values()) <= set(globals())
    assert not set(HERE) & set(WITHOUT_X)
