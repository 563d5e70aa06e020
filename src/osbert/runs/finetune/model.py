"""The encoder that fine-tuning starts from: its newly initialised layers, and which of its weights are trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.evaluation.score import refuse_long
from osbert.interop.folder import Folder, open_folder
from osbert.interop.huggingface import names
from osbert.interop.huggingface.folders import Report, fill_heads
from osbert.interop.opening import CAREFUL, Opening
from osbert.models.adapting.additions import add_adapters, add_recurrent, adjust_sizes, draw_pieces
from osbert.models.adapting.tuning import Factors, add_low_rank, freeze_lowest, learn_only, merge, trainable_modules
from osbert.models.contract import Backbone, Head, Learner, Sizes
from osbert.models.heads.colbert import ColbertHead
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.heads.splade import SpladeHead
from osbert.models.random_numbers import fix_seed
from osbert.objectives.left_to_right import LeftToRight
from osbert.runs.finetune.settings import RANKS, FinetuneSettings
from osbert.tasks import Record, Task
from osbert.text.file_tokenizer import AnyTokenizer, for_tasks


@dataclass(frozen=True, kw_only=True)
class StartingModel:
    """The encoder that fine-tuning starts from, its folder, and remarks on the folder's files.

    `tokenizer`: the folder's, with added pieces that a task needs. `language`: the head that predicts next pieces, for
    an auxiliary loss and for generation; None if neither is used. `new`: whether all weights are newly initialised.
    """

    source: Folder
    backbone: Backbone
    tokenizer: AnyTokenizer
    language: Head | None = None
    remarks: tuple[str, ...] = ()
    new: bool = False

    def trained_task(self, task: Task) -> Task | None:
        """Return the task of the folder's run if `task` goes on with its head (`Task.head_settings`), else None."""
        trained = self.source.task if task.head_settings and not self.new else None
        return trained if type(trained) is type(task) else None

    def fill_reused(self, heads: Mapping[str, Head], tasks: Iterable[Task]) -> None:
        """Fill the heads of the tasks that go on with the head of the folder's run. Raises UserError for damaged ones.

        The order of the random numbers does not change: the heads are drawn before.
        """
        reused = {task.name: heads[task.name] for task in tasks if self.trained_task(task)}
        if reused:
            rows = fill_heads(self.source.tensors, Learner(self.backbone, reused))
            self.source.release()
            Report(rows=tuple(rows)).require_complete(str(self.source))
        for name, head in heads.items() if not self.new else ():
            if isinstance(head, ColbertHead) and (model := self.source.sentences) and (tokens := model.token_vectors):
                head.projection.weight.data.copy_(torch.from_numpy(tokens.projection))
            if isinstance(head, SpladeHead):
                rows = fill_heads(self.source.tensors, Learner(self.backbone, {name: head}))
                self.source.release()
                if any(row.status == "new" for row in rows):
                    raise UserError(
                        f"{self.source} has no head that predicts masked pieces, of which sparse vectors are made: "
                        "take a model with one, or train dense vectors (--pooling mean).",
                        code="unsupported-model",
                    )


@dataclass(frozen=True, kw_only=True)
class ModelReader:
    """The tokenizer of a model and its longest sequence, known before the weights are read."""

    tokenizer: AnyTokenizer
    length: int

    @classmethod
    def of(cls, model: Path) -> ModelReader:
        """Return the reader of the model in a folder. Its hashes are compared later, when the weights are read.

        Raises UserError if its config or its tokenizer cannot be read.
        """
        folder = open_folder(model, CAREFUL.again)
        return cls(tokenizer=for_tasks(folder.tokenizer), length=folder.architecture.length)

    def check(self, task: Task, records: Mapping[str, Sequence[Record]]) -> None:
        """Raise UserError that lists every record that does not fit, if the task does not allow truncation.

        `records`: by split: "train" and "dev" of a fine-tuning, "test" of a prediction.
        """
        read = [
            record
            for split, split_records in records.items()
            for record in split_records
            if split != "train" or not task.lacks(record)
        ]
        refuse_long(task, read, Packer(tokenizer=self.tokenizer, length=min(task.length, self.length)))


def read_model(
    folder: Path,
    settings: FinetuneSettings,
    *,
    from_scratch: bool = False,
    writes: bool = False,
    opening: Opening = CAREFUL,
) -> StartingModel:
    """Return the encoder in a folder, with the settings' dropout; `from_scratch`: with newly initialised weights.

    `writes`: whether the task generates text, which needs the language head.

    Recurrent layers and adapters of the settings are newly initialised unless the encoder has them. A tokenizer without
    special tokens around a text, such as GPT's, gets such pieces, and the encoder gets embeddings for them. Raises
    UserError if the folder holds no encoder, its vocabulary does not fit, its family has no such layers, or an
    auxiliary loss would predict pieces that the model sees.
    """
    seed, source = settings.seed, open_folder(folder, opening)
    with fix_seed(seed + 1):  # a new pooler must not repeat the random numbers of the head, drawn from `seed`
        source_backbone = source.backbone
    before = source.tokenizer  # read now: one that does not fit is refused before anything is laid out
    tokenizer = for_tasks(before)
    sizes = source_backbone.architecture
    if tokenizer is not before:
        sizes = sizes.replace(vocabulary=max(sizes.vocabulary, len(tokenizer)))
    sizes, backbone = _build_empty(folder, sizes, settings)
    remarks, learner = [*source.report.new_weights, *source.remarks], Learner(source_backbone, {})
    if settings.auxiliary or writes:  # before there are new pieces, for which the stored head has no rows
        with fix_seed(seed + 5):
            name = LeftToRight().name
            learner = Learner(source_backbone, {name: MaskedLanguageHead(source_backbone, target=name)})
            report = Report(rows=tuple(fill_heads({} if from_scratch else source.tensors, learner)))
        remarks += [remark for remark in (*report.new_weights, *report.remarks) if remark not in remarks]
    if tokenizer is not before:
        with fix_seed(seed + 4):
            draw_pieces(learner, len(before), len(tokenizer) - len(before))
        new = " ".join(tokenizer.tokens(range(len(before), len(tokenizer))))
        remarks.append(f"the tokenizer puts nothing around a text: the pieces {new} are added, newly initialised")
    source.release()
    if from_scratch:
        with fix_seed(seed):
            backbone = sizes.build()
        backbone.read_vocabulary(tokenizer)
    else:
        # Each part has its own seed: the head is drawn from `seed`, a new pooler from the next one.
        for number, add in enumerate((add_recurrent, add_adapters), start=2):
            with fix_seed(seed + number):
                remarks += filter(None, [add(source_backbone, sizes)])
        backbone.load_state_dict(source_backbone.state_dict(), assign=True)
    language = None
    for head in learner.heads.values():
        with fix_seed(seed + 5):  # it shares the embeddings of this backbone, not those of `source_backbone`
            language = MaskedLanguageHead(backbone, target=LeftToRight().name)
        language.load_state_dict(head.state_dict())
    return StartingModel(
        source=source,
        backbone=backbone,
        tokenizer=tokenizer,
        language=language,
        remarks=tuple(remarks) if not from_scratch else (),
        new=from_scratch,
    )


def _build_empty(folder: Path, base_sizes: Sizes, settings: FinetuneSettings) -> tuple[Sizes, Backbone]:
    """Return the encoder's settings for fine-tuning, and the encoder without weights. Raises UserError."""
    try:
        width = (settings.rank or RANKS["adapters"]) if settings.tuning == "adapters" else 0
        sizes = adjust_sizes(base_sizes, dropout=settings.dropout, recurrent=settings.recurrent, adapters=width)
        backbone = sizes.empty()
    except ValueError as error:
        raise UserError(
            f"{folder} cannot be fine-tuned with these settings: {error}.", code="unsupported-model"
        ) from error
    if settings.auxiliary and not sizes.causal:
        raise UserError(
            f"--auxiliary {settings.auxiliary:g} predicts each next piece, but in {folder} tokens attend to later ones "
            f"(direction = {sizes.direction}, recurrent = {settings.recurrent}). Use a left-to-right model, such as "
            "GPT, or remove --auxiliary.",
            code="unsupported-model",
        )
    return sizes, backbone


def prepare_tuning(backbone: Backbone, settings: FinetuneSettings) -> None:
    """Freeze or add weights for a kind of tuning. LoRA matrices are initialised from torch's random generator.

    Raises UserError if more layers are to be frozen than the encoder has.
    """
    if settings.tuning == "adapters":
        learn_only(backbone, trainable_modules(backbone))
    elif settings.tuning == "none":
        learn_only(backbone, ())
    elif settings.tuning == "lora":
        learn_only(backbone, add_low_rank(backbone, settings.rank or RANKS["lora"]))
    else:
        try:
            freeze_lowest(backbone, settings.frozen)
        except ValueError as error:
            raise UserError(f"--frozen {settings.frozen}: {error}.", code="invalid-value") from error


def describe_tuning(backbone: Backbone) -> str:
    """Describe how many of the encoder's weights are trained; "" if all are."""
    weights = [(weight.numel(), weight.requires_grad) for weight in backbone.parameters()]
    whole, learning = sum(count for count, _ in weights), sum(count for count, learns in weights if learns)
    fraction = f"{learning:,} of the encoder's {whole:,} weights learn ({learning / whole:.1%})"
    return "" if learning == whole else fraction


def merge_low_rank(backbone: Backbone) -> dict[str, Factors]:
    """Merge the LoRA changes into the matrices; return the changes by the names of their tensors."""
    stored = names.backbone(backbone.architecture)
    return {
        matrix: change
        for module, factors in merge(backbone).items()
        for parameter, matrices in stored.items()
        for matrix in matrices
        for name, change in factors.items()
        if parameter.startswith(f"{module}.") and matrix.endswith(f".{name}.weight")
    }
