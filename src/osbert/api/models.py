"""Uses of models: opening, scoring, comparing, predicting on files, exporting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.files import user_path
from osbert.runs.contract import Watch, ignore
from osbert.signatures import read_settings, takes_settings_of

if TYPE_CHECKING:
    from typing import Unpack

    from osbert.inference.engine import Engine
    from osbert.keywords import (
        EmbedKeywords,
        EvaluateKeywords,
        ExplainKeywords,
        ExportKeywords,
        PredictKeywords,
        ScoreKeywords,
    )
    from osbert.runs.compare import RunComparison
    from osbert.runs.evaluate import EvaluationScores
    from osbert.runs.rows.embed import FileVectors
    from osbert.runs.rows.explain import ExplanationTally
    from osbert.runs.rows.predict import PredictionTally
    from osbert.runs.rows.score import ScoringTally

OPENING = "osbert.interop.opening:Opening"


def load(folder: str | PathLike[str], *, trust: bool = False, verify: bool = True, watch: Watch = ignore) -> Engine:
    """Load a run folder, a Hugging Face folder or, by its name, a model of the Hugging Face hub, and return an Engine
    with `.embed(texts)`, `.predict(texts)`, `.explain(text)`, `.score(texts)`, `.fill(text)` and `.states(text)`.

    A name is OWNER/NAME, with @REVISION or without; a Path is never a name. `trust`: import the code that the folder's
    recipe.toml names. `verify`: compare a run's files with their hashes in run.json. `watch` is called with each event:
    a DownloadProgress (osbert.interop.hub) now and then while a model of the hub is fetched. Raises
    osbert.errors.UserError when the folder is not a model, when a name leads to none, when a file is damaged, and when
    it names code without `trust`.

    >>> import osbert
    >>> model = osbert.load("run")
    >>> [prediction.value for prediction in model.predict(["a good film", "the bad play"])]
    ['pos', 'neg']
    >>> model.embed(["a good film"]).shape
    (1, 16)
    """
    # Torch takes seconds to import: only when a model is wanted.
    from osbert.inference.engine import load as load_engine
    from osbert.interop.folder import open_folder
    from osbert.interop.opening import Opening

    return load_engine(open_folder(folder, Opening(trust=trust, verify=verify), watch=watch))


@takes_settings_of("osbert.runs.evaluate:EvaluationOptions")
def evaluate(
    run: str | PathLike[str],
    *,
    data: Any,
    split: str = "dev",
    out: str | Path | None = None,
    watch: Watch = ignore,
    **options: Unpack[EvaluateKeywords],
) -> EvaluationScores:
    """Return the scores of a fine-tuned run on data with labels: a dict by name.

    Its `confusion` is the confusion matrix, None if the task has no classes: `labels`, `array()`, rows of which are
    true labels, and `pairs`, those that occur (osbert.evaluation.confusion).

    `data`: a file, or rows in memory as `finetune` takes them, all of which count; or a folder, or rows by the names of
    their splits, of which `split` counts: "train", "dev" or "test". `out`: a file for the scores as well, as one JSON
    object (docs/output.md), or an .html page with what is wrong, too. `options`: those of `osbert evaluate`, such as
    text and label, the columns; trust and verify are as for `load`. `watch` is called with each event, such as a Notice
    of the rows that are left out. Raises osbert.errors.UserError, before anything is computed, with every label that
    the run does not know.

    >>> scores = osbert.evaluate("run", data="more.csv")
    >>> scores["accuracy"], scores.confusion.labels, bool(scores.confusion.array().diagonal().all())
    (1.0, ('neg', 'pos'), True)
    """
    from osbert import recipe
    from osbert.interop.hub import locate
    from osbert.runs import evaluate as runs  # lazily, as all else here: importing osbert is quick

    evaluation = runs.evaluate(
        locate(run, watch=watch).path,
        data=data,
        split=split,
        out=None if out is None else user_path(out),
        options=recipe.settings(runs.EvaluationOptions, options),
        watch=watch,
    )
    return runs.EvaluationScores(evaluation.metrics, evaluation.confusion)


@takes_settings_of("osbert.runs.evaluate:EvaluationOptions")
def compare(
    runs: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    data: Any,
    split: str = "dev",
    out: str | Path | None = None,
    watch: Watch = ignore,
    **options: Unpack[EvaluateKeywords],
) -> RunComparison:
    """Compare fine-tuned runs on the same data with labels; write a page to the file `out`, if given.

    Each pair is tested by the paired bootstrap of their score, and by McNemar's exact test where a row is right or
    wrong; the p-values of several pairs are corrected by Holm's method. The rest is as for `evaluate`. The result has
    `runs` with their metrics and intervals, `tests` and `differing`, the rows that they answer differently. Raises
    osbert.errors.UserError, too, where the runs do not read the same texts and labels in the data.

    >>> found = osbert.compare(["run", "run"], data="more.csv", out="compared.html")
    >>> found.tests[0].score.difference, found.tests[0].right.p_value, found.differing
    (0.0, 1.0, [])
    """
    from osbert import recipe
    from osbert.interop.hub import locate
    from osbert.runs.compare import compare as run_compare
    from osbert.runs.evaluate import EvaluationOptions

    given = runs if isinstance(runs, Iterable) and not isinstance(runs, str) else [runs]
    folders = [locate(run, watch=watch).path for run in given]
    chosen = recipe.settings(EvaluationOptions, options)
    page = None if out is None else user_path(out)
    return run_compare(folders, data=data, split=split, out=page, options=chosen, watch=watch)


@takes_settings_of(
    "osbert.runs.rows.prediction_settings:PredictionOptions",
    "osbert.runs.file_options:FileTaskOptions",
    "osbert.inference.label_settings:LabelOptions",
    OPENING,
)
def predict(
    run: str | PathLike[str],
    file: str | Path,
    *,
    out: str | Path,
    watch: Watch = ignore,
    labels: str | Iterable[str] | Mapping[str, str] = "",
    **options: Unpack[PredictKeywords],
) -> PredictionTally:
    """Predict every row of a file with a fine-tuned run, into the file `out`; return row counts.

    `file`: CSV, TSV, JSON lines or Parquet of any size; `out`: .csv, .tsv, .jsonl, .parquet, .xlsx or .md, or .json for
    answers. `options`: those of `osbert predict --file`, such as top_k=3, probabilities=True, abstain=0.6 and the
    columns to read; trust and verify are as for `load`. `labels`: classes by name, or descriptions by name, which the
    model was not trained for. The same call resumes one that was stopped. `watch` is called with each event, such as a
    WorkProgress (osbert.runs.contract) after each window of rows. For texts in memory: `load(run).predict`. Raises
    osbert.errors.UserError with every row that cannot be used, before the work.

    >>> counts = osbert.predict("run", "more.csv", out="predicted.csv", abstain=0.6)
    >>> counts.rows == counts.empty, Path("predicted.csv").read_text().startswith("text,label,prediction,")
    (False, True)
    """
    from osbert.inference.label_settings import LabelOptions, spell_labels
    from osbert.interop.hub import locate
    from osbert.runs.rows.output import RowOutput
    from osbert.runs.rows.predict import PredictionSource, predict_file

    written, reading, naming, opening = read_settings(predict, {**options, "labels": spell_labels(labels)})
    source: Callable[..., PredictionSource] = PredictionSource
    if naming != LabelOptions():
        from osbert.runs.rows.label_names import label_source

        source = label_source(naming)
    path = user_path(file, instead="load(run).predict(texts)")  # before a model is downloaded
    return predict_file(
        locate(run, watch=watch).path,
        path,
        output=RowOutput(path=user_path(out)),
        written=written,
        options=reading,
        source=source,
        opening=opening,
        watch=watch,
    )


@takes_settings_of("osbert.analysis.settings:AttributionOptions", "osbert.runs.file_options:FileTaskOptions", OPENING)
def explain(
    run: str | PathLike[str],
    file: str | Path,
    *,
    out: str | Path,
    label: str = "",
    watch: Watch = ignore,
    **options: Unpack[ExplainKeywords],
) -> ExplanationTally:
    """Explain the prediction of a fine-tuned run for every row of a file, into the folder `out`; return counts.

    rows.csv has the five strongest words of each row, words.json and report.html those of each label. `label`: explain
    its score instead of that of the prediction. `options`: those of `osbert explain`, such as points, baseline,
    check and the columns to read; trust and verify are as for `load`. `watch` is called with each event, such as a
    WorkProgress (osbert.runs.contract). For texts that are no file: `load(run).explain`. Raises
    osbert.errors.UserError with every row that cannot be used, before the work.

    >>> counts = osbert.explain("run", "more.csv", out="why", points=8, check=False)
    >>> counts.rows == counts.explanations, counts.words["neg"]["for"][0].word in ("bad", "poor")
    (True, True)
    """
    from osbert.interop.hub import locate
    from osbert.runs.rows.explain import explain_file

    weighing, reading, opening = read_settings(explain, options)
    path = user_path(file, instead="load(run).explain(text)")
    return explain_file(
        locate(run, watch=watch).path,
        path,
        out=user_path(out),
        label=label,
        weighing=weighing,
        options=reading,
        opening=opening,
        watch=watch,
    )


@takes_settings_of("osbert.analysis.scoring:ScoringOptions", "osbert.runs.file_options:EmbeddedTaskOptions", OPENING)
def score(
    model: str | PathLike[str],
    file: str | Path,
    *,
    out: str | Path,
    watch: Watch = ignore,
    **options: Unpack[ScoreKeywords],
) -> ScoringTally:
    """Write the rows of a file with the log-likelihoods of their texts under a pretrained model to `out`; return sums.

    `out`: .csv, .tsv, .parquet, or .jsonl with the log-probability of each piece. `options`: those of `osbert score`,
    such as masking and the columns to read; trust and verify are as for `load`. The same call goes on with one that was
    stopped. `watch` is called with each event, such as a WorkProgress (osbert.runs.contract) after each window of
    rows. For texts that are no file: `load(model).score`. Raises osbert.errors.UserError with every text that cannot be
    scored, before the work.

    >>> found = osbert.score("encoder", "more.csv", out="scores.csv")
    >>> found.rows > 0, found.word_perplexity > 1
    (True, True)
    """
    from osbert.interop.hub import locate
    from osbert.runs.file_options import TextFile
    from osbert.runs.rows.score import score_file

    scoring, reading, opening = read_settings(score, options)
    texts = TextFile(user_path(file, instead="load(model).score(texts)"), reading)
    folder = locate(model, watch=watch).path
    return score_file(folder, texts, out=user_path(out), scoring=scoring, opening=opening, watch=watch)


@takes_settings_of("osbert.runs.rows.vector_output:VectorOptions", "osbert.runs.file_options:TextTaskOptions", OPENING)
def embed(
    model: str | PathLike[str],
    file: str | Path,
    *,
    out: str | Path,
    watch: Watch = ignore,
    **options: Unpack[EmbedKeywords],
) -> FileVectors:
    """Write the vectors of a file's texts to the file `out`, .npy, .npz, .parquet or .jsonl; return a description.

    `file`: texts a line, CSV, TSV, JSON lines or Parquet of any size. `options`: those of `osbert embed`, such as
    pooling, normalize, layers, tokens and the columns to read; trust and verify are as for `load`. The same call goes
    on with one that was stopped. `watch` is called with each event, such as a WorkProgress
    (osbert.runs.contract) after each window of texts. For texts that are no file: `load(model).embed`. Raises
    osbert.errors.UserError for unreadable input and invalid settings.

    >>> osbert.embed("encoder", "more.csv", out="vectors.npy", pooling="cls").shape[1:]
    (16,)
    """
    from osbert.interop.hub import locate
    from osbert.runs.file_options import TextFile
    from osbert.runs.rows.embed import embed_file

    vectors, reading, opening = read_settings(embed, options)
    texts = TextFile(user_path(file, instead="load(model).embed(texts)"), reading)
    return embed_file(
        locate(model, watch=watch).path,
        texts,
        out=user_path(out),
        vectors=vectors,
        opening=opening,
        watch=watch,
    )


@takes_settings_of("osbert.runs.settings:ExportOptions")
def export(
    run: str | PathLike[str],
    *,
    out: str | Path | None = None,
    watch: Watch = ignore,
    **settings: Unpack[ExportKeywords],
) -> Path:
    """Export a run, or an encoder, as ONNX; return the folder, `out` or by default RUN-onnx or RUN-int8.

    `load`, and osbert's verbs, take the folder in place of the run. `settings`: int8 (weights of a byte each),
    tolerance (how much the metric may drop), data (labelled rows to compare on, in place of the run's development
    rows), unchecked (compare nothing), and how a file is read, as for `evaluate`. `watch` is called with each event,
    the comparison of both among them. Needs the extra onnx. Raises osbert.errors.UserError if the run has no ONNX
    form, or if the export is worse than the run by more than the tolerance; then nothing is written.

    >>> folder = osbert.export("run", out="onnx", data="more.csv", tolerance=0.5)
    >>> osbert.load(folder).predict(["the good film"])[0].value
    'pos'
    """
    from osbert import recipe
    from osbert.interop.hub import locate
    from osbert.runs.export import export as run_export
    from osbert.runs.settings import ExportOptions

    chosen = recipe.settings(ExportOptions, settings)
    exported = run_export(
        locate(run, watch=watch).path,
        out=None if out is None else user_path(out),
        settings=chosen.settings,
        options=chosen.file,
        opening=chosen.opening,
        watch=watch,
    )
    return exported.folder
