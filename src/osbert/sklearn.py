"""Estimators by scikit-learn's conventions: a text classifier, a text regressor, and vectors for other estimators.

They are thin. `fit` is `osbert.finetune` on rows in memory, `predict` is the model's own. They work in Pipeline,
GridSearchCV and cross_val_score, can be cloned, and pickle by content: the files of the model travel in the pickle.
scikit-learn comes with the extra: pip install "osbert[sklearn]".

    X   n texts, or n pairs of texts: a list, an array (n,) or (n, 2), a Series or a DataFrame of one or two columns
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

import osbert
from osbert.errors import UserError
from osbert.runs.contract import Watch, ignore
from osbert.tasks.probabilities import as_array
from osbert.tasks.tables.classes import parse_object

try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise UserError(
        'osbert.sklearn needs the library scikit-learn: pip install "osbert[sklearn]"', code="missing-library"
    ) from error

if TYPE_CHECKING:
    from numpy.random import RandomState
    from sklearn.utils import Tags

    from osbert.inference.engine import Engine
    from osbert.tasks import Prediction

__all__ = ["TextClassifier", "TextEmbedder", "TextRegressor"]

MISSING = ("None", "nan", "<NA>", "NaT")
"""Values in place of a label, as text."""
LEFT_OUT = ("checkpoints", "report.html", "trials")
"""Files and folders of a run that a pickle does not hold: predicting needs none of them."""


class ModelFiles:
    """A model's folder that is pickled and copied by content. `engine`: the model, loaded when it is first used."""

    def __init__(self, folder: Path | None = None) -> None:
        """Keep the folder; None for a temporary one, which is removed with this object."""
        self.folder = Path(tempfile.mkdtemp(prefix="osbert-")) if folder is None else folder
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    @cached_property
    def engine(self) -> Engine:
        """Return the model, as `osbert.load` opens it."""
        return osbert.load(self.folder)

    def __getstate__(self) -> dict[str, bytes]:
        """Return the content of each file that predicting needs, by its path in the folder."""
        entries = (path for path in sorted(self.folder.iterdir()) if path.name not in LEFT_OUT)
        files = (file for path in entries for file in [path, *sorted(path.rglob("*"))] if file.is_file())
        return {str(file.relative_to(self.folder)): file.read_bytes() for file in files}

    def __setstate__(self, contents: dict[str, bytes]) -> None:
        """Write the files into a temporary folder."""
        self.__init__()  # type: ignore[misc]
        for name, content in contents.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


class ModelEstimator(BaseEstimator):
    """A base for estimators: after `fit`, `files_` holds a model that reads texts."""

    files_: ModelFiles

    def __sklearn_tags__(self) -> Tags:
        """Declare that a sample is a text, not a row of numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    @property
    def engine_(self) -> Engine:
        """Return the model, as `osbert.load` opens it. Raises NotFittedError before `fit`."""
        check_is_fitted(self, "files_")
        return self.files_.engine

    @property
    def folder_(self) -> Path:
        """Return the model's folder. Raises NotFittedError before `fit`."""
        check_is_fitted(self, "files_")
        return self.files_.folder


class FinetuneEstimator(ModelEstimator):
    """An estimator whose `fit` fine-tunes an encoder."""

    def __init__(
        self,
        model: str | Path = "minilm",
        *,
        epochs: int | None = None,
        learning_rate: float | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: int | RandomState | None = None,
        out: str | Path | None = None,
    ) -> None:
        """Keep the parameters as they are; `fit` checks them."""
        self.model = model
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.settings = settings
        self.random_state = random_state
        self.out = out

    def _finetune(self, task: str, X: Any, rows: list[tuple[Any, ...]], watch: Watch) -> None:
        """Fine-tune on `rows`, made of the texts X and their labels, whose columns `_predict` expects again."""
        seed = self.random_state
        # scikit-learn's convention: a RandomState gives each fit another seed, an int always the same one.
        if seed is not None and not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31)
        named = {"epochs": self.epochs, "learning_rate": self.learning_rate, "training.seed": seed}
        given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        given |= {"watch": watch} | dict(self.settings or {})
        part = any(name.endswith("tuning") and value in ("adapters", "lora") for name, value in given.items())
        if part and not any(name.endswith("merge") for name in given):
            given["training.merge"] = True  # a whole model: the base is not in the pickle
        files = ModelFiles(None if self.out is None else Path(self.out).absolute())
        osbert.finetune(task, model=self.model, data=rows, out=files.folder, **given)
        self.files_ = files
        self.columns_ = tuple(getattr(X, "columns", ()))

    def _predict(self, X: Any) -> list[Prediction]:
        """Return the predictions. Raises ValueError if X is a table of pairs with other columns than that of `fit`."""
        names, fitted = tuple(getattr(X, "columns", ())), getattr(self, "columns_", ())
        if len(names) == len(fitted) == 2 and names != fitted:
            raise ValueError(f"X has the columns {names}, but `fit` had {fitted}, in this order")
        return self.engine_.predict(_texts(X))


class TextClassifier(ClassifierMixin, FinetuneEstimator):
    """A classifier of texts, or of pairs of texts: an encoder with a softmax layer, fine-tuned.

    `model`: a folder, or a name such as "minilm" (docs/models-by-name.md). `settings`: any other settings of
    `osbert.finetune`. `random_state`: the seed; None for osbert's own, always the same. `out`: the run folder, in which
    the same fit goes on after a stop; None for a temporary one. A part of the rows is held out for scores, and
    from 200 of them on to choose the best epoch (`settings={"held_out": 0.2}`).

    Labels may be of any type; `classes_` has them in sorted order. Raises osbert.errors.UserError as `osbert.finetune`.

    >>> from osbert.sklearn import TextClassifier
    >>> texts, labels = ["good film", "bad film", "a good play", "a bad play"] * 20, ["pos", "neg"] * 40
    >>> classifier = TextClassifier("encoder", epochs=8, learning_rate=1e-2, settings={"batch": 8}).fit(texts, labels)
    >>> classifier.predict(["a good play"]).tolist(), classifier.predict_proba(["a good play"]).shape
    (['pos'], (1, 2))
    """

    classes_: NDArray[Any]
    """The labels of `fit` (classes,), sorted and of their own type: the columns of `predict_proba`."""

    def fit(self, X: Any, y: ArrayLike, *, watch: Watch = ignore) -> Self:
        """Fine-tune on n texts, or pairs, and their n labels. `watch` is called with each event.

        >>> from osbert.sklearn import TextClassifier
        >>> TextClassifier("encoder", epochs=1).fit(["good film", "bad film"] * 10, [1, 0] * 10).classes_.tolist()
        [0, 1]
        """
        texts, labels = _texts(X), column_or_1d(y, warn=True)
        check_consistent_length(texts, labels)
        if missing := [row for row, label in enumerate(labels) if str(label) in MISSING and not isinstance(label, str)]:
            raise ValueError(f"y[{missing[0]}] is {labels[missing[0]]}: a text has no label. Leave such texts out")
        check_classification_targets(labels)
        classes = np.unique(labels)
        if len(classes) < 2:
            raise ValueError(f"the labels have one class, {classes.tolist()}: a classifier needs two or more")
        if any(label != label.strip() or not label for label in map(str, classes)):
            raise ValueError(f"a label is empty or has spaces around it: {classes.tolist()}")
        if soft := [label for label in map(str, classes) if parse_object(label)]:
            raise ValueError(
                f"{soft[0]} is a probability for each label, which osbert.finetune learns, not an estimator"
            )
        self._finetune("classify", X, [(*text, str(label)) for text, label in zip(texts, labels)], watch)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Return the probabilities (n, classes), in the order of `classes_`."""
        predictions = self._predict(X)
        names = [str(label) for label in self.classes_]
        rows = np.array([as_array(prediction.probabilities) for prediction in predictions], dtype=np.float64).reshape(
            -1, len(names)
        )
        # The model has its labels in the order of their texts, `classes_` may be numbers.
        index = {label: number for number, label in enumerate(predictions[0].probabilities if predictions else names)}
        return rows[:, [index[name] for name in names]]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each text (n,)."""
        predictions = self._predict(X)
        # The model's labels are strings; `classes_` maps them back to the type of y.
        numbers = {str(label): number for number, label in enumerate(self.classes_)}
        return self.classes_[np.array([numbers[prediction.value] for prediction in predictions], dtype=np.intp)]


class TextRegressor(RegressorMixin, FinetuneEstimator):
    """A number for each text, or pair of texts: an encoder with a linear layer, fine-tuned.

    Its parameters are those of TextClassifier. Raises osbert.errors.UserError as `osbert.finetune`.

    >>> from osbert.sklearn import TextRegressor
    >>> texts, numbers = ["a good film", "a bad play"] * 20, [1.0, 0.0] * 20
    >>> regressor = TextRegressor("encoder", epochs=1, settings={"batch": 8}).fit(texts, numbers)
    >>> regressor.predict(["good", "bad"]).shape
    (2,)
    """

    def fit(self, X: Any, y: ArrayLike, *, watch: Watch = ignore) -> Self:
        """Fine-tune on n texts, or pairs, and their n numbers. `watch` is called with each event."""
        texts, numbers = _texts(X), column_or_1d(np.asarray(y, dtype=np.float64), warn=True)
        check_consistent_length(texts, numbers)
        if not np.isfinite(numbers).all():
            raise ValueError("y has NaN or infinite numbers")
        self._finetune("regress", X, [(*text, float(number)) for text, number in zip(texts, numbers)], watch)
        return self

    def predict(self, X: Any) -> NDArray[np.floating]:
        """Return a number for each text (n,)."""
        return np.array([prediction.value for prediction in self._predict(X)], dtype=np.float64)


class TextEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ModelEstimator):
    """Vectors of texts by an encoder that is not trained: the first step of a Pipeline.

    `role`, `pooling`, `normalize`, `length`: as in `osbert embed`; None for what the model was trained with.

    >>> from osbert.sklearn import TextEmbedder
    >>> TextEmbedder("encoder").fit_transform(["a good film", "a bad play"]).shape
    (2, 16)
    """

    def __init__(
        self,
        model: str | Path = "minilm",
        *,
        role: str | None = None,
        pooling: str | None = None,
        normalize: bool | None = None,
        length: int | None = None,
    ) -> None:
        self.model = model
        self.role = role
        self.pooling = pooling
        self.normalize = normalize
        self.length = length

    def fit(self, X: Any = None, y: object = None, *, watch: Watch = ignore) -> Self:
        """Find the model; nothing is learnt. `watch` is called while a model of the hub is fetched."""
        from osbert.interop.hub import locate

        if self.pooling == "tokens":
            raise ValueError('pooling="tokens" gives no vector of a text: take model.embed for it')
        self.files_ = ModelFiles(locate(self.model, watch=watch).path.absolute())
        return self

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Return the vectors (n, D)."""
        vectors: NDArray[np.floating] = self.engine_.embed(_texts(X), **self._options)
        return vectors

    @property
    def _options(self) -> dict[str, Any]:
        """The options that are given."""
        names = ("role", "pooling", "normalize", "length")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def _n_features_out(self) -> int:
        from osbert.inference.vectors.settings import EmbeddingOptions

        return self.engine_.embedder(EmbeddingOptions(**self._options)).shape[-1]


def _texts(X: Any) -> list[tuple[str, ...]]:
    """Return the texts of each sample. Raises ValueError where a sample is no text and no pair of texts."""
    if isinstance(X, str):
        raise ValueError("X is one text: give a list of texts")
    rows = X.to_numpy() if hasattr(X, "to_numpy") else X
    samples = []
    for number, row in enumerate(rows):
        # As objects: numpy would make texts of the other values in a row, such as NaN.
        sample = (row,) if isinstance(row, str) else tuple(np.ravel(np.asarray(row, dtype=object)))
        if len(sample) not in (1, 2) or not all(isinstance(text, str) for text in sample):
            raise ValueError(f"X[{number}] is {row!r}: a sample is a text, or a pair of texts")
        samples.append(sample)
    if len({len(sample) for sample in samples}) > 1:
        raise ValueError("X has texts and pairs of texts: all samples must be of one kind")
    return [tuple(str(text) for text in sample) for sample in samples]
