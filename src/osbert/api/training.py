"""From texts to models: vocabularies, corpora, pretraining, adapting and fine-tuning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.files import user_path
from osbert.runs.contract import Watch, ignore
from osbert.signatures import takes_settings_of

if TYPE_CHECKING:
    from typing import Unpack

    from osbert.corpus.shards import Corpus
    from osbert.keywords import (
        BuildCorpusKeywords,
        ExtendTokenizerKeywords,
        FinetuneKeywords,
        PretrainKeywords,
        TrainTokenizerKeywords,
    )
    from osbert.runs.finetune.finetune import FinetuneRun
    from osbert.runs.pretrain.pretraining import EncoderRun
    from osbert.tasks import Task
    from osbert.text.file_tokenizer import AnyTokenizer
    from osbert.text.tokenizer import Tokenizer


@takes_settings_of("osbert.runs.tokenizer:VocabularySettings")
def train_tokenizer(
    texts: str | Path | Iterable[str | Path],
    *,
    out: str | Path,
    watch: Watch = ignore,
    **settings: Unpack[TrainTokenizerKeywords],
) -> AnyTokenizer:
    """Train a vocabulary on texts, or on files and folders, into the folder `out`; return its tokenizer.

    `texts`: strings, or paths; a string that names a file is a path. `settings`: `kind` ("wordpiece", "bpe",
    "unigram" or "words"), `vocabulary` (30522), `lowercase` (True except for "bpe") and all others that
    `osbert tokenizer train` takes. `watch` is called with each event (`watch=print` shows them).
    Raises osbert.errors.UserError for unreadable input and unknown settings.

    >>> texts = ["The cat sat on the mat.", "The dog ran to the cat."] * 10
    >>> tokenizer = osbert.train_tokenizer(texts, out="vocabulary", vocabulary=60)
    >>> tokenizer.tokens(tokenizer.encode("the cat ran"))
    ['the', 'cat', 'ran']
    >>> tokenizer = osbert.train_tokenizer(texts, out="bytes", kind="bpe", vocabulary=300)
    >>> tokenizer.tokens(tokenizer.encode("The cat ran"))
    ['The', 'Ġcat', 'Ġran']
    """
    from osbert import recipe
    from osbert.runs import tokenizer

    chosen = recipe.settings(tokenizer.VocabularySettings, settings)
    return tokenizer.train_tokenizer(texts, out=user_path(out), settings=chosen, watch=watch)


@takes_settings_of("osbert.runs.tokenizer:ExtensionSettings")
def extend_tokenizer(
    folder: str | Path,
    texts: str | Path | Iterable[str | Path],
    *,
    out: str | Path,
    watch: Watch = ignore,
    **settings: Unpack[ExtendTokenizerKeywords],
) -> Tokenizer:
    """Add whole words of another domain to the vocabulary in `folder`, into the folder `out`; return its tokenizer.

    The old pieces keep their ids, so `pretrain(origin=...)` can train an encoder further. `settings`: `pieces` (at most
    1000), `minimum` (10 occurrences) and all others of `osbert tokenizer extend`; the rest as for `train_tokenizer`.

    >>> old = osbert.train_tokenizer(["The cat sat on the mat."] * 10, out="vocabulary", vocabulary=60)
    >>> new = osbert.extend_tokenizer("vocabulary", ["The cats sat on cats."] * 10, out="extended", pieces=1)
    >>> new.vocabulary[len(old):]
    ('cats',)
    """
    from osbert import recipe
    from osbert.runs import tokenizer

    chosen = recipe.settings(tokenizer.ExtensionSettings, settings)
    return tokenizer.extend_tokenizer(user_path(folder), texts, out=user_path(out), settings=chosen, watch=watch)


@takes_settings_of("osbert.runs.corpus:CorpusSettings")
def build_corpus(
    files: str | Path | Sequence[str | Path],
    *,
    tokenizer: str | Path,
    out: str | Path,
    trust: bool = False,
    watch: Watch = ignore,
    **settings: Unpack[BuildCorpusKeywords],
) -> Corpus | None:
    """Build the corpus that `pretrain` reads from files and folders of text, into the folder `out`; return it.

    The same call resumes a stopped build. `settings`: `documents`, `deduplicate`, `workers` and all others of
    `osbert corpus build`. `trust`: import the function that `phrases` names. Returns None while a cluster works on the
    tasks. With several workers a script must call it below `if __name__ == "__main__":`, as with every use of
    multiprocessing.

    >>> characters = Path("text.txt").write_text("The cat sat. It ran.\\n\\nThe dog ran. It sat.\\n\\n" * 100)
    >>> tokenizer = osbert.train_tokenizer("text.txt", out="vocabulary", vocabulary=60)
    >>> corpus = osbert.build_corpus("text.txt", tokenizer="vocabulary", out="corpus")
    >>> corpus.documents, corpus.sentences
    (200, 400)
    """
    from osbert import recipe
    from osbert.interop.opening import Opening
    from osbert.runs import corpus

    chosen = recipe.settings(corpus.CorpusSettings, settings)
    paths = [files] if isinstance(files, str | Path) else files
    return corpus.build_corpus(
        paths,
        tokenizer=user_path(tokenizer),
        out=user_path(out),
        settings=chosen,
        opening=Opening(trust=trust),
        watch=watch,
    )


def mix_corpora(corpora: Sequence[str | Path], *, weights: str | Sequence[float] = (), out: str | Path) -> Corpus:
    r"""Mix corpora by weights into the folder `out`, which `pretrain` reads like any corpus; return it.

    An epoch has as many tokens as all corpora together, divided among them by `weights`, by default equally;
    with weights="tokens^0.7" by their tokens to this power. It reads a small corpus several times; of a large one it
    reads a part, and the next epoch goes on there. No text is copied where the file system has hard links.

    >>> for name in ("web", "law"):
    ...     _ = Path(f"{name}.txt").write_text("The cat sat. It ran.\n\nThe dog ran. It sat.\n\n" * 100)
    >>> tokenizer = osbert.train_tokenizer("web.txt", out="vocabulary", vocabulary=60)
    >>> for name in ("web", "law"):
    ...     _ = osbert.build_corpus(f"{name}.txt", tokenizer="vocabulary", out=name)
    >>> [(part.name, part.fraction) for part in osbert.mix_corpora(["web", "law"], weights=[3, 1], out="mixed").parts]
    [('web', 0.75), ('law', 0.25)]
    """
    from osbert.runs import corpus

    return corpus.mix_corpora([user_path(folder) for folder in corpora], weights=weights, out=user_path(out))


@takes_settings_of("osbert.runs.pretrain.settings:every_schema")
def pretrain(
    recipe: str | Path = "",
    *,
    corpus: str | Path,
    out: str | Path,
    origin: str | PathLike[str] | None = None,
    trust: bool = False,
    watch: Watch = ignore,
    **settings: Unpack[PretrainKeywords],
) -> EncoderRun:
    """Pretrain an encoder on a corpus by a recipe, into the run folder `out`; return the run.

    `recipe`: a TOML file, or the name of a packaged one, such as "cpu" and "bert-base". `origin`: the folder of an
    encoder that is trained further. `trust`: import the code that a recipe file names. `settings`: any of the recipe,
    by its full name (`training_seed`), or its last part if that is unambiguous (`steps`). `watch` is called with each
    event, in the thread that trains. The same call resumes a run that was stopped, also by Ctrl-C, and gives the same
    weights. Raises osbert.errors.UserError for unreadable input and unknown settings.

    >>> characters = Path("text.txt").write_text("The cat sat. It ran.\\n\\nThe dog ran. It sat.\\n\\n" * 100)
    >>> tokenizer = osbert.train_tokenizer("text.txt", out="vocabulary", vocabulary=60)
    >>> corpus = osbert.build_corpus("text.txt", tokenizer="vocabulary", out="corpus")
    >>> sizes = {"layers": 1, "width": 16, "heads": 2, "data_length": 32}
    >>> run = osbert.pretrain("cpu", corpus="corpus", out="encoder", steps=2, batch=8, **sizes)
    >>> run.metrics["step"], run.metrics["held_out.mlm.loss"] > 0
    (2, True)
    """
    from osbert.interop.hub import locate
    from osbert.interop.opening import Opening
    from osbert.runs.pretrain import pretraining

    request = pretraining.PretrainRequest(
        recipe=str(recipe),
        settings=settings,
        corpus=user_path(corpus),
        out=user_path(out),
        origin=None if origin is None else locate(origin, watch=watch).path,
        opening=Opening(trust=trust),
    )
    return pretraining.pretrain(request, watch=watch)


@takes_settings_of("osbert.runs.finetune.plan:every_call_schema")
def finetune(
    task: str | Task | Sequence[str | Task],
    /,
    *,
    model: str | PathLike[str],
    data: Any,
    out: str | Path,
    watch: Watch = ignore,
    **settings: Unpack[FinetuneKeywords],
) -> FinetuneRun:
    """Fine-tune an encoder on a task, or on several together, into the run folder `out`; return the run.

    `task`: a name such as "classify" or "sst2", a Task, or a list of these. `data`: a file; a folder with files
    called train.*, dev.* and test.*; or rows in memory: a list of dicts or of tuples such as (text, label), a pandas or
    polars DataFrame, a datasets.Dataset, or a dict of these by split. Of several tasks: a mapping from their names, or
    a folder that holds those of each. `dev`, one of the settings: a file or rows for development, in place of its own.
    `settings`: any setting of `osbert finetune`, by its last part (epochs=4, learning_rate=3e-5, text="body") or its
    full name (**{"training.epochs": 4}); of several tasks one's own has its name before it. `from_scratch=True` draws
    new weights; `trust` and `verify` are those of `load`.

    Nothing is printed. `watch` is called with each event: Notice (osbert.runs.contract), each step's Progress, each
    Epoch. A run that was stopped (Ctrl-C: KeyboardInterrupt) goes on when the same call is made again.

    The run has `metrics`, the best epoch's scores on the development rows; `errors`, the wrong predictions for them,
    largest error first; `predict(texts)`; and `model`, an Engine as from `load`. Raises osbert.errors.UserError for
    problems that the user can fix, such as a misspelt setting, an unknown label, or another run in `out`.

    >>> rows = [("a good film", "pos"), ("the bad play", "neg")] * 20
    >>> settings = {"epochs": 8, "batch": 8, "learning_rate": 1e-2}
    >>> run = osbert.finetune("classify", model="encoder", data=rows, out="classifier", **settings)
    >>> run.metrics["accuracy"], run.errors
    (1.0, [])
    >>> [prediction.value for prediction in run.predict(["the bad film", "a good play"])]
    ['neg', 'pos']
    """
    from osbert.runs.finetune.finetune import finetune as run

    return run(task, model=model, data=data, out=user_path(out), watch=watch, **settings)
