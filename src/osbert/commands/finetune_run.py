"""Fine-tuning from the checked records to the finished run: epochs, scores after each, the best weights kept."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from osbert.commands.finetune_rows import Lessons, Part
from osbert.commands.finetune_tuning import RANKS, Kind, changes, prepare
from osbert.errors import Problems, UserError
from osbert.evaluation.compare import sortable
from osbert.interop.huggingface import read_encoder, write_model
from osbert.interop.tokenizer_files import write_tokenizer
from osbert.interop.tuned_files import keep_tuned
from osbert.interop.weight_files import read_file, write_tensors
from osbert.models.adapters import Adapter
from osbert.models.features import VECTORS
from osbert.models.heads import Head, Learner
from osbert.models.recurrent import Recurrent
from osbert.models.transformer import Transformer
from osbert.text.tokenizer import Tokenizer
from osbert.training.optimizer import OptimizerSettings
from osbert.training.processor import Precision
from osbert.training.progress import Progress
from osbert.training.trainer import Trainer, TrainingSettings


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings:
    """How long and how fine-tuning goes. The defaults are of the grid that works everywhere (appendix A.3)."""

    epochs: int = 3
    """Passes over the training rows."""
    batch: int = 32
    """Records in one optimiser step, with all their sequences."""
    micro_tokens: int = 4096
    """Most tokens in one pass through the model; a step with more is split, with the same gradient."""
    seed: int = 0
    """Decides the new weights, the order of the rows and the dropout."""
    dropout: float = 0.1
    """Share dropped in training, in the whole encoder and before the task's layer; it stays as in pretraining."""
    recurrent: int = 0
    """Layers of a bidirectional LSTM put on top of the encoder (Table 5, + BiLSTM), with fresh weights where it has not
    as many; 0 leaves it as it is. Give them a higher learning rate than 3e-5, or many epochs."""
    tuning: Kind = "full"
    """What learns besides the task's layer: the full encoder; adapters put into its blocks (Houlsby et al. 2019); or
    changes of low rank of its query and value matrices (lora, Hu et al. 2021). Of adapters and lora only what was tuned
    is kept, a few megabytes; the run folder then needs the model that it was tuned on."""
    rank: int = 0
    """Width of the adapters, or rank of the changes; 0 for 64 and 8."""
    merge: bool = False
    """Write a whole model, which needs no other folder, also where adapters or lora were tuned."""
    frozen: int = 0
    """Lowest layers that do not learn, nor do the embeddings; 0 for none."""
    precision: Precision = "auto"
    """Precision of matrix products in training; auto is bf16 where the processor has it. Scores are always fp32."""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto is a GPU where there is one."""
    log_every: int = 10
    """Steps between two lines of metrics.jsonl and of progress."""
    checkpoint_every: int = 500
    """Steps between two checkpoints."""

    def __post_init__(self) -> None:
        """Refuse numbers that make no run."""
        counts = ("epochs", "batch", "micro_tokens", "log_every", "checkpoint_every")
        none = ("seed", "recurrent", "rank", "frozen")
        for name, least in (*((count, 1) for count in counts), *((count, 0) for count in none)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {self.dropout}")
        idle = ("rank", "merge") if self.tuning == "full" else ("frozen",)
        for name in idle:
            if getattr(self, name):
                raise ValueError(f"{name} = {getattr(self, name)} does nothing with tuning = {self.tuning}")

    @property
    def adapters(self) -> int:
        """Return the width of the adapters that are tuned, 0 where none are."""
        return (self.rank or RANKS["adapters"]) if self.tuning == "adapters" else 0

    def training(self, steps_per_epoch: int) -> TrainingSettings:
        """Return the trainer's settings."""
        return TrainingSettings(
            steps=self.epochs * steps_per_epoch,
            precision=self.precision,
            device=self.device,
            seed=self.seed,
            log_every=self.log_every,
            checkpoint_every=self.checkpoint_every,
            evaluate_every=0,
            keep=1,
        )


@dataclass(frozen=True, kw_only=True)
class FinetuneOptimizer(OptimizerSettings):
    """AdamW, with the learning rate and warm-up of fine-tuning (appendix A.3)."""

    learning_rate: float = 3e-5
    """Learning rate at its peak, after the warm-up; 5e-5, 3e-5 and 2e-5 are the usual ones."""
    warmup: float = 0.1
    """Share of the steps in which the learning rate climbs."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """How an epoch ended: mean training loss, scores on the development rows, and whether it is the best so far.

    `collapsed`: the one answer that all these rows got although their labels differ; "" where all is well.
    """

    epoch: int
    step: int
    loss: float
    metrics: dict[str, float]
    best: bool
    seconds: float
    collapsed: str = ""


@dataclass(frozen=True, kw_only=True)
class Model:
    """Where fine-tuning starts from, and what was odd about it."""

    folder: Path
    backbone: Transformer
    tokenizer: Tokenizer
    remarks: tuple[str, ...] = ()


def read_model(
    folder: Path, *, from_scratch: bool, seed: int, dropout: float, recurrent: int = 0, adapters: int = 0
) -> Model:
    """Return the encoder in a folder, with this dropout; `from_scratch` keeps its sizes and draws fresh weights.

    `recurrent`: layers of a bidirectional LSTM on top; `adapters`: width of adapters in its blocks. They are fresh
    unless the encoder has such; 0 for its own. Raises UserError when the folder is no encoder, its vocabulary does not
    fit, or it cannot bear such layers.
    """
    with seeded(seed + 1):  # a pooler that has to be new must not have the first numbers of the head, drawn from `seed`
        encoder = read_encoder(folder)
    own = encoder.backbone.architecture
    sizes = replace(
        own,
        dropout=dropout,
        attention_dropout=dropout,
        recurrent=recurrent or own.recurrent,
        adapters=adapters or own.adapters,
    )
    try:
        backbone = sizes.empty()
    except ValueError as error:
        raise UserError(f"{folder} cannot be fine-tuned so: {error}.") from error
    if from_scratch:
        with seeded(seed):
            return Model(folder=folder, backbone=sizes.build(), tokenizer=encoder.tokenizer)
    remarks = encoder.report.remarks
    if sizes.recurrent != own.recurrent:
        with seeded(seed + 2):  # the head's and the pooler's seeds are others
            encoder.backbone.recurrent = Recurrent(sizes)
        remarks += (f"the bidirectional LSTM on top starts afresh (recurrent = {sizes.recurrent})",)
    if sizes.adapters != own.adapters:
        with seeded(seed + 3):
            for block in encoder.backbone.blocks:
                block.attention_adapter, block.feedforward_adapter = Adapter(sizes), Adapter(sizes)
        remarks += (f"adapters of width {sizes.adapters} in its blocks start afresh",)
    backbone.load_state_dict(encoder.backbone.state_dict(), assign=True)
    return Model(folder=folder, backbone=backbone, tokenizer=encoder.tokenizer, remarks=remarks)


class Finetuning:
    """One run: `for event in run()` trains, yielding Progress after a step and Epoch after an epoch; `finish` saves."""

    def __init__(
        self, *, model: Model, rows: Lessons, settings: FinetuneSettings, optimizer: OptimizerSettings, folder: Path
    ) -> None:
        """Make the learner.

        Raises UserError when the rows are pairs and the model has but one segment, and when a head on a frozen encoder
        does not go with the settings or with other tasks.
        """
        self.rows = rows
        self.folder = folder
        if model.backbone.architecture.segments == 1 and rows.pairs:
            raise UserError(
                "These are pairs of texts, and the model was trained without a second segment (segments = 1). Take "
                "another model, or put both texts into one column."
            )
        with seeded(settings.seed):
            heads = rows.heads(model.backbone)
            check_frozen(heads, settings)
            rank = settings.rank or RANKS[settings.tuning]
            prepare(model.backbone, settings.tuning, rank=rank, frozen=settings.frozen)
        self.settings = settings
        self.start = model.folder
        self.learner = Learner(model.backbone, heads)
        self.loader = rows.loader(batch=settings.batch, micro_tokens=settings.micro_tokens, seed=settings.seed)
        training = settings.training(self.loader.steps_per_epoch)
        self.trainer = Trainer(self.learner, self.loader, optimizer, training, folder)
        self.trainer.memory |= {"epochs": [], "losses": [], "learnt": {}}

    @property
    def epochs(self) -> list[Epoch]:
        """Return the epochs that are over, those before a resumption included."""
        return [Epoch(**entry) for entry in self.trainer.memory["epochs"]]

    @property
    def best(self) -> Epoch:
        """Return the best epoch so far; of equal ones the last."""
        return [epoch for epoch in self.epochs if epoch.best][-1]

    @property
    def parts(self) -> list[Part]:
        """Return the task, or the tasks, with what was learnt from the best epoch's predictions."""
        return self.rows.parts(self.trainer.memory["learnt"])

    def prepare(self) -> str:
        """Work out what is worked out once, in the run's folder, and return in words what was; `tidy` removes it.

        Raises OSError when the disk is full.
        """
        return self.rows.prepare(self.learner, self.folder)

    def run(self) -> Iterator[Progress | Epoch]:
        """Train to the end, yielding what happened."""
        memory = self.trainer.memory
        for progress in self.trainer.run():
            if not progress.skipped:
                memory["losses"].append(progress.loss)
            yield progress
            if self.ends_epoch(progress):
                epoch = self._evaluate(progress)
                memory["epochs"].append(asdict(epoch))
                memory["losses"].clear()
                yield epoch

    def ends_epoch(self, progress: Progress) -> bool:
        """Return whether an Epoch follows; between the two there is no place to stop, or it would never be scored."""
        return progress.step % self.loader.steps_per_epoch == 0

    def finish(self) -> None:
        """Write the best epoch's weights as the run's model; what it takes to do so again stays until `tidy`."""
        path = self._weights(self.best.epoch)
        self.learner.load_state_dict(read_file(path))
        self.learner.to("cpu")
        backbone = self.learner.backbone
        low_rank = changes(backbone) if self.settings.tuning == "lora" else {}
        for part in self.parts:
            folder, head = self.folder / part.folder, self.learner.heads[part.task.name]
            assert isinstance(head, Head)
            write_model(Learner(backbone, {part.task.name: head}), folder, **part.task.published())
            sizes = backbone.architecture
            write_tokenizer(self.rows.tokenizer, folder, length=sizes.length, segments=sizes.segments)
            if self.settings.tuning != "full" and not self.settings.merge:
                keep_tuned(folder, self.start, low_rank)

    def tidy(self) -> None:
        """Remove what only training needs, checkpoints included, once the run is noted as finished."""
        for pattern in ("best-epoch-*.safetensors", VECTORS):
            for path in self.folder.glob(pattern):
                path.unlink()
        shutil.rmtree(self.trainer.checkpoints.folder, ignore_errors=True)

    def _evaluate(self, progress: Progress) -> Epoch:
        losses = self.trainer.memory["losses"]
        result = self.rows.score(self.learner)
        metrics = result.metrics
        wanted = self.rows.criterion
        before = [epoch for epoch in self.epochs if epoch.best]
        number = progress.step // self.loader.steps_per_epoch
        best = not before or sortable(metrics[wanted]) >= sortable(before[-1].metrics[wanted])
        if best:
            self.trainer.memory["learnt"] = self.rows.learnt(result.predictions)
            write_tensors(self.learner.state_dict(), self._weights(number))
            # If the process dies now, the last checkpoint still refers to the best one of its own time: that stays.
            saved = max(self.trainer.checkpoints.steps(), default=0)
            needed = [epoch for epoch in before if epoch.step <= saved][-1:]
            for earlier in before:
                if earlier not in needed:
                    self._weights(earlier.epoch).unlink(missing_ok=True)
        loss = sum(losses) / max(len(losses), 1)
        return Epoch(
            epoch=number,
            step=progress.step,
            loss=loss,
            metrics=metrics,
            best=best,
            seconds=progress.seconds,
            collapsed=self.rows.collapsed(result.predictions),
        )

    def _weights(self, epoch: int) -> Path:
        return self.folder / f"best-epoch-{epoch}.safetensors"


def check_frozen(heads: Mapping[str, Head], settings: FinetuneSettings) -> None:
    """Raise UserError when a head on a frozen encoder (`Head.frozen`) has company that would have it learn."""
    name = next((name for name, head in heads.items() if head.frozen), None)
    if name is None:
        return
    problems = Problems(heading=f"{name} stands on an encoder that does not learn (--features)")
    if len(heads) > 1:
        others = ", ".join(other for other in heads if other != name)
        problems.add(f"Others ({others}) cannot share it: fine-tune {name} by itself, or leave --features out.")
    idle = {"tuning": settings.tuning != "full", "frozen": settings.frozen, "recurrent": settings.recurrent}
    for setting in (setting for setting, given in idle.items() if given):
        problems.add(f"--{setting} {getattr(settings, setting)} does nothing there: leave it out.")
    problems.stop_if_any()


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw torch's random numbers from a seed inside the block, and leave the caller's as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
