"""The lab of osbert: what its core does without: models that write texts, analyses, adaptation, topics, the demo.

osbert itself does without this package, which comes in the same distribution. Its verbs are verbs of `osbert`, and the
functions below are also attributes of `osbert`, such as `osbert.analyse`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from osbert.runs.contract import Watch, ignore
from osbert.signatures import read_settings, takes_settings_of

if TYPE_CHECKING:
    from typing import Unpack

    from osbert.keywords import FinetuneKeywords
    from osbert.runs.pretrain.pretraining import EncoderRun
    from osbert_lab.analysis.model_analysis import ModelAnalysis
    from osbert_lab.distillation.distillation import DistilRun
    from osbert_lab.distillation.static import StaticStudent
    from osbert_lab.duplicates.find_duplicates import DuplicateTally
    from osbert_lab.hard_negatives import MiningTally
    from osbert_lab.influence.training_rows import TrainingRows
    from osbert_lab.keywords import (
        AdaptKeywords,
        AnalyseKeywords,
        CompareEncodersKeywords,
        DistilKeywords,
        FindDuplicatesKeywords,
        GenerateKeywords,
        MineKeywords,
        TrainingRowsKeywords,
    )
    from osbert_lab.topics.result import TopicTally
    from osbert_lab.vector_input import VectorInput
    from osbert_lab.writing.row_file import GenerationTally

__all__ = [
    "adapt",
    "analyse",
    "compare_encoders",
    "distil",
    "find_duplicates",
    "find_topics",
    "finetune_glue",
    "generate",
    "mine",
    "training_rows",
]


@takes_settings_of("osbert_lab.adaptation.settings:AdaptationOptions", "osbert.runs.pretrain.settings:every_schema")
def adapt(
    model: str | Path,
    texts: Any,
    *,
    out: str | Path,
    trust: bool = False,
    verify: bool = True,
    watch: Watch = ignore,
    **settings: Unpack[AdaptKeywords],
) -> EncoderRun:
    """Adapt an encoder to the texts of a domain, into the run folder `out`; return the run.

    `texts`: files or folders, or rows in memory: a list of strings or dicts, a pandas or polars DataFrame, a
    datasets.Dataset. A sentence encoder stays one. `settings`: `text`, the column; `general`, a file of general text;
    `extend`, most words that become pieces; `minutes`, or `steps`; and any other of the recipe, as `pretrain` takes
    them. The run ends early when the loss on general text rises by more than `forgetting`. `trust` and `verify` are as
    for `load`. `watch` is called with each event; the same call resumes a stopped run. Raises
    osbert.errors.UserError for what cannot be read or is not a setting.

    >>> texts = ["a good film", "the bad play", "the good play"] * 40
    >>> run = osbert.adapt("encoder", texts, out="adapted", steps=2, batch=8, data_length=16)
    >>> "general.mlm.loss" in run.metrics
    True
    """
    import dataclasses

    from osbert import recipe
    from osbert.interop.hub import locate
    from osbert.interop.opening import Opening
    from osbert_lab.adaptation.adapt import AdaptationRequest
    from osbert_lab.adaptation.adapt import adapt as run
    from osbert_lab.adaptation.settings import AdaptationOptions

    names = {field.name for field in dataclasses.fields(AdaptationOptions)}
    options = {name: value for name, value in settings.items() if name in names}
    request = AdaptationRequest(
        model=locate(model, watch=watch).path,
        texts=texts,
        out=Path(out),
        options=recipe.settings(AdaptationOptions, options),
        settings={name: value for name, value in settings.items() if name not in names},
        opening=Opening(trust=trust, verify=verify),
    )
    return run(request, watch=watch)


@takes_settings_of("osbert_lab.analysis.settings:AnalysisRequest")
def analyse(
    model: str | Path, *, data: str | Path, out: str | Path, watch: Watch = ignore, **options: Unpack[AnalyseKeywords]
) -> ModelAnalysis:
    """Measure what a model has learnt; write report.html and analysis.json into the folder `out`.

    `data`: a file or a folder with text, dependency trees (CoNLL-U), minimal pairs and more (docs/analysis.md).
    `options`: those of `osbert analyse`, such as texts, length and seed; trust and verify are as for `load`. The same
    call resumes a stopped one.
    `watch` is called with each event, such as an AnalysisProgress (osbert_lab.analysis.opened_model) after each few
    texts. Raises osbert.errors.UserError for unreadable input, with every invalid tree.

    >>> text = Path("text.txt").write_text("the good film\\n\\na bad play\\n\\n" * 10)
    >>> found = osbert.analyse("encoder", data="text.txt", out="analysis", shortest=3, length=12)
    >>> entropy = found.figure("layer_entropy", layer=1)
    >>> entropy.n, 0 < entropy.value < entropy.baselines["uniform"]
    (20, True)
    """
    from osbert import recipe
    from osbert.interop.hub import locate
    from osbert_lab.analysis.model_analysis import analyse as run_analysis
    from osbert_lab.analysis.settings import AnalysisRequest

    request = recipe.settings(AnalysisRequest, options)
    place = locate(model, watch=watch).path
    return run_analysis(place, data=Path(data), out=Path(out), request=request, watch=watch)


@takes_settings_of("osbert_lab.analysis.settings:ComparisonRequest")
def compare_encoders(
    models: Sequence[str | Path],
    *,
    data: str | Path,
    out: str | Path,
    watch: Watch = ignore,
    **options: Unpack[CompareEncodersKeywords],
) -> ModelAnalysis:
    """Compare models with the first one on the same texts; for a single run, its intermediate models with the last one.

    Writes report.html and analysis.json into the folder `out`: linear CKA of each pair of layers, how far layers moved,
    and the heads of each model. `data`: a file or a folder with text. `options`: those of `osbert analyse compare`,
    such as texts, length and seed. The rest is as for `analyse`.

    >>> text = Path("text.txt").write_text("the good film\\n\\na bad play\\n\\n" * 10)
    >>> found = osbert.compare_encoders(["encoder", "run"], data="text.txt", out="both", shortest=3, length=12)
    >>> found.figure("cka", model="run", layer=1, other=1).n
    20
    """
    from osbert import recipe
    from osbert.interop.hub import locate
    from osbert_lab.analysis.compare import compare as run_comparison
    from osbert_lab.analysis.settings import ComparisonRequest

    request = recipe.settings(ComparisonRequest, options)
    places = [locate(model, watch=watch).path for model in models]
    return run_comparison(places, data=Path(data), out=Path(out), request=request, watch=watch)


@takes_settings_of("osbert_lab.distillation.settings:DistilSettings")
def distil(
    teacher: str | Path,
    *,
    out: str | Path,
    data: Any = None,
    texts: Any = None,
    student: str | Path | None = None,
    to: Literal["run", "static"] = "run",
    watch: Watch = ignore,
    **settings: Unpack[DistilKeywords],
) -> DistilRun | StaticStudent:
    """Train a smaller encoder on the outputs of the fine-tuned run `teacher`, into the folder `out`; return the run.

    `data`: rows with labels, as `finetune` takes them, with `dev` among the settings. `texts`: a file, or rows, without
    labels, from which the student learns the teacher's answers, too. The student is `layers` of the teacher's layers,
    half of them by default, or `student`, an encoder by its folder or name. `settings`: `soft`, `temperature`,
    `states`, and any other of `osbert distil`; `trust` and `verify` are those of `load`. `watch` is as for `finetune`,
    and the same call goes on with a run that was stopped. The run is as one of `finetune`, and has `teacher`, the
    teacher's scores on the same development rows. With `to="static"` the student is a table of static vectors, `data`
    scored pairs on which both are compared, and `texts` rows in which pieces are counted. Raises
    osbert.errors.UserError for what cannot be read or is not a setting.

    >>> run = osbert.distil("run", data="more.csv", student="encoder", out="student", batch=8, learning_rate=1e-2)
    >>> run.teacher["accuracy"], [prediction.value for prediction in run.predict(["a good film", "bad"])]
    (1.0, ['pos', 'neg'])
    """
    from osbert.interop.hub import locate
    from osbert_lab.distillation.distillation import DistilRequest
    from osbert_lab.distillation.distillation import distil_to as run

    request = DistilRequest(
        locate(teacher, watch=watch).path,
        data,
        Path(out),
        texts=texts,
        student=None if student is None else locate(student, watch=watch).path,
        to=to,
        settings=settings,
    )
    return run(request, watch=watch)


@takes_settings_of("osbert.runs.file_options:EmbeddedOptions", "osbert.interop.opening:Opening")
def find_duplicates(
    data: str | Path | Sequence[str],
    *,
    model: str | Path | None = None,
    above: float = 0.95,
    out: str | Path | None = None,
    watch: Watch = ignore,
    **options: Unpack[FindDuplicatesKeywords],
) -> DuplicateTally:
    """Find near duplicates: texts whose cosine with an earlier kept text is at least `above`.

    `data`: a file that `embed` wrote; or a file of texts, or a list of them, which `model` embeds. `out`: a .csv, .tsv
    or .jsonl file for all texts of groups. `options`: those of `osbert duplicates`, such as the column of texts and the
    device; trust and verify are as for `load`. The result has counts, the `largest` groups and `kept_lines`, the lines
    without duplicates. `watch` is called with each event, such as a WorkProgress (osbert.runs.contract). Raises
    osbert.errors.UserError for data that cannot be read, and for a single text.

    >>> found = osbert.find_duplicates(["a good film", "the bad play", "a good film"], model="encoder")
    >>> found.duplicates, found.kept_lines.tolist(), found.largest[0].others
    (1, [1, 2], [3])
    """
    from osbert_lab.duplicates.find_duplicates import find_duplicates as run

    given = _read_vector_input(data, model, options, watch)
    return run(given, above=above, out=None if out is None else Path(out), watch=watch)


@takes_settings_of("osbert.runs.finetune.plan:every_call_schema")
def finetune_glue(
    *, model: str | Path, data: str | Path, out: str | Path, watch: Watch = ignore, **settings: Unpack[FinetuneKeywords]
) -> dict[str, float]:
    """Fine-tune a run for each set of GLUE in the folder `data`; return the official scores in per cent, by column.

    `data` has the sets' own folders: CoLA, SST-2, MRPC, ...; a missing one is reported by an event. `out`: the
    folder of the runs, each named for its task (`out/cola`), and of the table, glue.txt and glue.json. `settings` and
    `watch` are as for `finetune`. The same call resumes after a stop and repeats no finished set. Raises
    osbert.errors.UserError before any training for data that cannot be used, and at the end for a set that failed.

    >>> osbert.finetune_glue(model="encoder", data="glue", out="runs", epochs=8, batch=8, learning_rate=1e-2)
    {'CoLA': 100.0}
    """
    from osbert_lab.papers.glue_runs import finetune_glue as run

    return run(model=model, data=data, out=out, watch=watch, **settings)


@takes_settings_of("osbert.runs.file_options:EmbeddedOptions", "osbert.interop.opening:Opening")
def find_topics(
    data: str | Path | Sequence[str],
    *,
    out: str | Path,
    model: str | Path | None = None,
    topics: int = 0,
    seed: int = 0,
    watch: Watch = ignore,
    **options: Unpack[FindDuplicatesKeywords],
) -> TopicTally:
    """Cluster texts into topics with words, into the new folder `out`: rows.csv, topics.csv and report.html.

    `data`, `model` and `options` are as for `find_duplicates`. `topics`: their number; 0 for the number with the
    largest silhouette on a sample if that is at least 0.25, else a third of the square root of the number of texts,
    from 2 to 30. The result has `topics`, each with `size`, `words` and typical `texts`. `watch` is
    called with each event, such as a WorkProgress (osbert.runs.contract). Raises osbert.errors.UserError for
    data that cannot be read, and for more topics than texts.

    >>> found = osbert.find_topics("more.csv", model="encoder", out="topics", topics=2)
    >>> sum(topic.size for topic in found.topics) == found.rows
    True
    """
    from osbert_lab.topics.find_topics import find_topics as run

    return run(_read_vector_input(data, model, options, watch), out=Path(out), topics=topics, seed=seed, watch=watch)


@takes_settings_of(
    "osbert_lab.writing.settings:GivenOptions",
    "osbert.runs.file_options:EmbeddedTaskOptions",
    "osbert.interop.opening:Opening",
)
def generate(
    model: str | Path, file: str | Path, *, out: str | Path, watch: Watch = ignore, **options: Unpack[GenerateKeywords]
) -> GenerationTally:
    """Write the rows of a file with the text that a model generates for each to the file `out`; return counts.

    `out`: .csv, .tsv, .jsonl, .parquet, .xlsx or .md. `options`: those of `osbert generate`, such as beams=4, most=60
    and the column to read; trust and verify are as for `load`. `watch` is called with each event, such as a
    WorkProgress (osbert.runs.contract). For texts in memory: `load(model).generate`. Raises osbert.errors.UserError
    with every row that cannot be used.

    >>> counts = osbert.generate("writer", "more.csv", out="written.csv", most=3)
    >>> counts.pieces == 3 * counts.rows, Path("written.csv").read_text().splitlines()[0].count("generated")
    (True, 1)
    """
    from osbert.interop.hub import locate
    from osbert.runs.file_options import TextFile
    from osbert_lab.writing.row_file import generate_file

    writing, reading, opening = read_settings(generate, options)
    folder, texts = locate(model, watch=watch).path, TextFile(Path(file), reading)
    return generate_file(folder, texts, out=Path(out), writing=writing, opening=opening, watch=watch)


@takes_settings_of("osbert.runs.file_options:FileOptions", "osbert.interop.opening:Opening")
def training_rows(
    run: str | Path,
    texts: str | Sequence[str],
    *,
    rows: Any,
    label: str = "",
    count: int = 5,
    watch: Watch = ignore,
    **options: Unpack[TrainingRowsKeywords],
) -> list[TrainingRows]:
    """Return the training rows behind a fine-tuned run's prediction for a text, or for several that it reads together.

    For each score: the `count` nearest rows, and the rows that raised or lowered the score most, by error x state of
    the last layer. `rows`: a file with labels, or rows in memory as `finetune` takes them. `label`: take its score
    instead of the predicted one. `options`: the columns to read, as for `predict`; trust and verify are as for `load`.
    `watch` is called with each event, such as a WorkProgress (osbert.runs.contract). Raises
    osbert.errors.UserError for rows without a label, and for runs with several predictions per text.

    >>> [found] = osbert.training_rows("run", "the good film", rows="more.csv", count=2)
    >>> found.label, len(found.nearest), found.nearest[0].label
    ('pos', 2, 'pos')
    """
    from osbert.interop.hub import locate
    from osbert_lab.influence.training_rows import training_rows as compare_rows

    reading, opening = read_settings(training_rows, options)
    return compare_rows(
        locate(run, watch=watch).path,
        [texts] if isinstance(texts, str) else texts,
        rows=rows,
        label=label,
        count=count,
        options=reading,
        opening=opening,
        watch=watch,
    )


@takes_settings_of("osbert_lab.hard_negatives:MiningOptions", "osbert.interop.opening:Opening")
def mine(
    out: str | Path,
    *,
    model: str | Path | None = None,
    corpus: Any = None,
    queries: Any = None,
    qrels: Any = None,
    data: Any = None,
    watch: Watch = ignore,
    **options: Unpack[MineKeywords],
) -> MiningTally:
    """Write hard negatives of queries into the table `out`, for `finetune("contrastive")` and `finetune("rerank")`.

    They are documents that `model`, an encoder, or BM25 without one, ranks high without their being relevant. `corpus`,
    `queries`, `qrels`, `data`: as for `evaluate_retrieval`. `options`: those of `osbert mine`, such as negatives=2 and
    scores="reranker"; trust and verify are as for `load`. The result counts rows, negatives and the documents that may
    be relevant without a judgement; `review` is their table. `watch` is called with each event. Raises
    osbert.errors.UserError, before anything is computed, for invalid options and data.

    >>> pairs = [{"query": "good film", "positive": "a good film"}, {"query": "bad play", "positive": "the bad play"}]
    >>> found = osbert.mine("mined.jsonl", corpus={"1": "good", "2": "the play"}, data=pairs, negatives=1)
    >>> found.rows, found.negatives, found.review.name
    (2, 2, 'mined.review.jsonl')
    """
    from osbert.interop.hub import locate
    from osbert.runs.similarity.retrieval import RetrievalInput
    from osbert_lab.hard_negatives import mine_negatives

    mining, opening = read_settings(mine, options)
    return mine_negatives(
        RetrievalInput(corpus=corpus, queries=queries, qrels=qrels, data=data),
        out=Path(out),
        model=None if model is None else locate(model, watch=watch).path,
        options=mining,
        opening=opening,
        watch=watch,
    )


def _read_vector_input(
    data: str | Path | Sequence[str], model: str | Path | None, options: Mapping[str, Any], watch: Watch
) -> VectorInput:
    """Return texts with their vectors: a file of vectors, or texts that `model` embeds with `options`."""
    from osbert.interop.hub import locate
    from osbert_lab.vector_input import VectorInput

    reading, opening = read_settings(find_duplicates, options)
    return VectorInput(
        data=Path(data) if isinstance(data, str | Path) else data,
        model=None if model is None else locate(model, watch=watch).path,
        options=reading,
        opening=opening,
    )
