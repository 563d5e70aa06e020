"""A corpus as a function: files of text, or corpora and weights in; a folder of token shards out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

from osbert.corpus.build import Build
from osbert.corpus.encode import PART
from osbert.corpus.mixture import Mixture
from osbert.corpus.shards import MANIFEST, Corpus, open_corpus
from osbert.corpus.state import BuildSettings, Filters, Language
from osbert.corpus.task_options import EXECUTORS, Executor, PendingTasks, TaskOptions, TaskPlan, cores  # noqa: F401
from osbert.errors import Problems, UserError
from osbert.extensions import require_extension
from osbert.files import disk_needed, require_folder, require_free, whole_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.tokenizers import read_any_tokenizer, write_any_tokenizer
from osbert.lock import claim
from osbert.reading.documents import DocumentOptions, Documents  # noqa: F401 - see CorpusSettings
from osbert.reading.encodings import Errors  # noqa: F401
from osbert.reading.inputs import find_inputs
from osbert.remote import FolderForm, display_path, local_copy, output_folder, reading_copies
from osbert.runs.contract import Notice, Watch, ignore
from osbert.terminal import format_count
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.words import Words

FORM = FolderForm(marker=MANIFEST, left_there=("shard-*",))
"""A corpus on an object store."""
OF_FILTERS = ("language", "quality", "near_duplicates")
"""Settings of filters, which only tasks apply."""


@dataclass(frozen=True, kw_only=True)
class CorpusSettings(DocumentOptions, TaskOptions):
    """How a corpus is built, and on how many processes or machines."""

    # The command line looks the types of inherited fields up in this module: Documents, Errors, Executor must be here.

    deduplicate: bool = False
    """Drop repeated lines, and documents that repeat an earlier document."""
    words: Words = "characters"
    """The unit of whole-word masking in Chinese: each character, the text between two spaces (segmented: words are
    separated by spaces), or the words that rjieba finds (pip install "osbert[chinese]")."""
    phrases: str = ""
    """Phrases that are one unit of whole-word masking each (ERNIE 1.0): a file with one in each line, the folder of a
    run of `tag`, which finds entities or chunks in the texts, capitals, for runs of capitalised words, or with --trust
    module:function, which gets a sentence and returns its phrases."""
    capitals: bool = False
    """Mark capitalised words, for the objective of capitals (ERNIE 2.0)."""
    workers: int | None = None
    """Processes that encode; by default all cores, if there is enough text. With --executor slurm or ray: parallel
    tasks; by default as many as the cluster has room for."""
    shard_tokens: int = 2**25
    """Most tokens in a shard. A build that is stopped loses at most one shard."""
    language: Language = ""
    """With --executor: keep only documents in this language, detected by its script and function words."""
    quality: bool = False
    """With --executor: leave out documents that do not look like prose (Gopher's rules)."""
    near_duplicates: bool = False
    """With --executor: leave out near duplicates of other documents (MinHash of word 5-grams)."""

    def build_settings(self) -> BuildSettings:
        """Return the settings that determine the corpus's content."""
        filters = Filters(language=self.language, quality=self.quality, near_duplicates=self.near_duplicates)
        return BuildSettings(
            reading=DocumentOptions(**{field.name: getattr(self, field.name) for field in fields(DocumentOptions)}),
            deduplicate=self.deduplicate,
            words=self.words,
            capitals=self.capitals,
            filters=filters if filters != Filters() else None,
            shard_tokens=self.shard_tokens,
        )

    def plan(self) -> TaskPlan | None:
        if not 0 < self.shard_tokens < 2**32 - 2**26:  # places within a shard are kept in 32 bits
            raise UserError(
                f"--shard-tokens must be from 1 to {2**32 - 2**26:,}, not {self.shard_tokens:,}.", code="invalid-value"
            )
        return super().plan()

    def needing_executor(self) -> list[str]:
        """Return the names of the given settings that need an executor: those of filters as well, but not workers."""
        given = [*super().needing_executor(), *(name for name in OF_FILTERS if getattr(self, name))]
        return [name for name in given if name != "workers"]


def build_corpus(
    files: Sequence[Path | str],
    *,
    tokenizer: Path,
    out: Path,
    settings: CorpusSettings | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> Corpus | None:
    """Build a corpus from files and folders into the folder `out`, or resume a stopped build; return it.

    `tokenizer`: a tokenizer's folder, or a vocab.txt. An `out` on an object store is uploaded when the corpus is
    finished. `watch` gets BuildProgress and Notice. Returns None while a cluster works on the tasks. Raises UserError
    for what cannot be read, all of it at once.
    """
    settings = settings or CorpusSettings()
    with output_folder(out, FORM, inputs=[*files, tokenizer]) as folder:
        plan = settings.plan()
        require_folder(folder.path)
        cutter = read_any_tokenizer(local_copy(tokenizer), opening)
        with claim(folder.path), reading_copies():
            work = _prepare_build(files, cutter, folder.path, settings, opening, watch)
            if work.report is not None:
                watch(Notice(f"{folder.path} is already finished, from the same files, tokenizer and settings."))
            elif work.state.shards:
                done = sum(shard["tokens"] for shard in work.state.shards)
                watch(Notice(f"Continuing after {len(work.state.shards)} finished shards ({done:,} tokens)."))
            size = sum(source.size for source in work.inputs)
            try:
                work.run(
                    # No more processes than parts of the input: starting one costs more than a small file.
                    workers=settings.workers or min(cores(), 1 + size // PART),
                    watch=watch,
                    begin=partial(write_any_tokenizer, cutter, folder.path),
                    encode=None
                    if plan is None
                    else partial(require_extension(EXECUTORS, "corpus", "--executor"), work, plan, watch),
                )
            except PendingTasks:
                where = plan.executor if plan else "local"
                again = "Give the same command again when they have ended."
                watch(Notice(f"The tasks have been submitted to {where}. {again}"))
                return None
    return open_corpus(out, whole=False)


def tokenizer_of(corpus: Corpus, opening: Opening = CAREFUL) -> AnyTokenizer:
    """Return the tokenizer in a corpus's folder. Raises UserError if the corpus was built with another one."""
    tokenizer = read_any_tokenizer(corpus.folder, opening)
    if tokenizer.fingerprint != corpus.fingerprint:
        raise UserError(
            f"{corpus.folder}: its tokenizer is not the one that the corpus was built with. Build the corpus again.",
            code="mismatched-tokenizer",
        )
    return tokenizer


def _prepare_build(
    files: Sequence[Path | str],
    tokenizer: AnyTokenizer,
    out: Path,
    settings: CorpusSettings,
    opening: Opening,
    watch: Watch,
) -> Build:
    """Return the build, with the phrases that --phrases names."""
    chosen = settings.build_settings()
    if not settings.phrases:
        return Build.prepare(files, tokenizer=tokenizer, folder=out, settings=chosen)
    inputs = find_inputs(files, without=out)
    phrase_search = require_extension("osbert.corpus.phrases", "search", "--phrases")
    phrases = phrase_search(
        source=settings.phrases, inputs=inputs, reading=chosen.reading, opening=opening, watch=watch
    )
    chosen = replace(chosen, phrases=phrases.find(out))
    work = Build.prepare(files, tokenizer=tokenizer, folder=out, settings=chosen)
    phrases.keep(out, chosen.phrases)
    return work


MIXTURE_FORM = FolderForm(marker=MANIFEST, left_there=("shard-*",), keeps_unfinished=False)
"""A mixture on an object store."""


def mix_corpora(corpora: Sequence[Path], *, weights: str | Sequence[float] = "", out: Path) -> Corpus:
    """Mix corpora into the folder `out`, without copying their text where the file system has hard links; return it.

    `weights`: one for each corpus, also as text ("3,1"), by which the tokens of an epoch are divided; none for equal
    ones; "tokens^0.7": the tokens of each to this power. Raises UserError, with all that is wrong, for weights that do
    not fit, for corpora not built alike, and for a full disk.
    """
    power = 0.0
    if isinstance(weights, str) and weights.startswith("tokens^"):
        power, weights = _numbers(weights.removeprefix("tokens^").replace(",", " ") or "nothing")[0], ()
        if not 0 <= power <= 1:
            raise UserError(f"tokens^{power:g}: the power is a number from 0 to 1.", code="invalid-value")
    numbers = _numbers(weights)
    _check(corpora, numbers)
    require_free(out)
    with (
        disk_needed(out, goes_on=""),
        output_folder(out, MIXTURE_FORM, inputs=corpora) as output,
        claim(output.path) as output_path,
        reading_copies(),
    ):
        require_free(output_path)
        opened = [Corpus.open(local_copy(folder)) for folder in corpora]
        each = numbers or [corpus.tokens**power for corpus in opened]
        mixture = Mixture(corpora=opened, fractions=[weight / sum(each) for weight in each])
        mixture.check()
        tokenizer = tokenizer_of(opened[0])
        with whole_folder(output_path) as folder:
            write_any_tokenizer(tokenizer, folder)
            mixture.write(folder)
    return open_corpus(out, whole=False)


def _numbers(weights: str | Sequence[float]) -> list[float]:
    if not len(weights):
        return []
    try:
        return [float(weight) for weight in (weights.split(",") if isinstance(weights, str) else weights)]
    except (TypeError, ValueError) as error:
        raise UserError(f"weights must be numbers, such as 3,1, not {weights!r:.80}.", code="invalid-value") from error


def _check(corpora: Sequence[Path], weights: Sequence[float]) -> None:
    problems = Problems(heading="These corpora cannot be mixed")
    if len(corpora) < 2:
        problems.add("give at least two corpora.", code="invalid-value")
    seen: dict[str, Path] = {}
    for folder in corpora:
        where = str(folder.resolve()) if folder.exists() else display_path(folder)
        if where in seen:
            problems.add(f"{folder} is given twice. Give it once, with a larger weight.", code="invalid-value")
        seen[where] = folder
    if weights and len(weights) != len(corpora):
        problems.add(
            f"there are {format_count(len(weights), 'weight')} for {len(corpora)} corpora: give one weight per corpus.",
            code="invalid-value",
        )
    for weight in weights:
        if not 0 < weight < math.inf:
            problems.add(f"the weight {weight} must be above 0.", code="invalid-value")
    problems.stop_if_any()
