"""The contracts of models: Backbone, a batch to states; Head, states to a loss; and the Learner that joins them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from torch import Tensor, nn

from osbert import components
from osbert.data.batch import Batch
from osbert.data.example import Example
from osbert.errors import UserError
from osbert.models.forms import PER_TOKEN, Form, Values
from osbert.models.generation.contract import CachedDecoder
from osbert.models.memory import Memory, Past
from osbert.models.pooling import Pooling
from osbert.models.sizes import DEFAULT_FAMILY as DEFAULT_FAMILY
from osbert.models.sizes import Direction as Direction
from osbert.models.sizes import Sizes as Sizes
from osbert.text.file_tokenizer import AnyTokenizer


@dataclass(frozen=True, kw_only=True)
class States:
    """What a backbone returns.

    `hidden` (N, D): the last layer, every token. `summary` (B, D): the state of the one token that stands for its
    sequence, the first as BERT's C, or the last (`Sizes.summary_is_last`); or the mean of all. `pooled` (B, D):
    tanh(dense(summary)), or another curve, on which next-sentence prediction and classification stand.
    """

    hidden: Tensor
    summary: Tensor
    pooled: Tensor


@dataclass(frozen=True, kw_only=True)
class HeadVectors:
    """What the heads of one layer make of the N tokens of a batch.

    `queries`, `keys`, `values` (N, H, K): as the heads compare and mix them, turned where positions turn them.
    `outputs` (H, K, D): what takes a head's mixed values into the layer's output, to which all heads are summed.
    `is_biased`: whether something is added to the products of queries and keys, as distances may be.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    outputs: Tensor
    is_biased: bool


@dataclass(frozen=True, kw_only=True)
class StepSize:
    """What a step's arithmetic follows from.

    `tokens` N; `pairs` P: the sum of squared lengths; `sequences` B; `labels`: how many, by objective; `read` R: the
    tokens whose last states are read, where the model makes use of that (`Backbone.readable`); `read_pairs` Q: the sum
    of lengths times tokens read. `local_pairs`: the sum over sequences of the tokens that each token sees in a local
    block, where the model has such. `source`: the size of what a decoder writes from, where there is one, and
    `cross_pairs` the sum over sequences of their tokens times those of their source. `remembered`: the tokens that a
    sequence sees of its past. `companions`: the sizes of the same step for the learner's companions.
    """

    tokens: int
    pairs: int
    sequences: int
    labels: Mapping[str, int]
    read: int
    read_pairs: int
    local_pairs: int = 0
    source: StepSize | None = None
    cross_pairs: int = 0
    remembered: int = 0
    companions: Mapping[str, StepSize] = field(default_factory=dict)

    @classmethod
    def of(cls, learner: Learner, batches: Iterable[Batch]) -> StepSize:
        """Return the size of some batches together, which may be several steps, for a learner."""
        batches = list(batches)
        sparse = all(head.sparse for head in learner.heads.values())
        read = read_pairs = 0
        lengths: list[int] = []
        labels: dict[str, int] = {}
        for batch in batches:
            lengths += batch.lengths
            few = learner.backbone.readable(batch) if sparse else None
            queries = batch.lengths if few is None else batch.reads
            read += sum(queries)
            read_pairs += sum(length * count for length, count in zip(batch.lengths, queries))
            for name, target in batch.targets.items():
                labels[name] = labels.get(name, 0) + len(target.labels)
        window = learner.backbone.architecture.window
        sources = [batch.source for batch in batches if batch.source is not None]
        seen = [length for source in sources for length in source.lengths]
        return cls(
            tokens=sum(lengths),
            pairs=sum(length * length for length in lengths),
            sequences=len(lengths),
            labels=labels,
            read=read,
            read_pairs=read_pairs,
            local_pairs=sum(length * min(length, 2 * window + 1) for length in lengths) if window else 0,
            source=cls.of(learner, sources) if sources else None,
            cross_pairs=sum(length * other for length, other in zip(lengths, seen)),
            remembered=0 if learner.memory is None else learner.memory.length,
            companions={
                name: cls.of(companion, [batch.with_targets(companion.heads) for batch in batches])
                for name, companion in learner.companions.items()
            },
        )


class Backbone(nn.Module):
    """Batch -> States. It knows no loss and no objective; `Sizes.build` makes it.

    The one public class of a file in models/families/. It is made from its family's settings alone.
    """

    settings: ClassVar[type[Sizes]]
    """The class of the family's settings."""
    architecture: Sizes
    attends: ClassVar[bool] = False
    """Whether the family has attention, whose weights `weights` gives."""

    @property
    def stack(self) -> Sequence[nn.Module]:
        """Return its modules from the bottom up: the embeddings first, then the block of each layer."""
        raise NotImplementedError

    @property
    def mixers(self) -> Sequence[nn.Module]:
        """Return the module of each layer that joins what its heads put out (N, H * K); for families that attend."""
        raise NotImplementedError

    @property
    def above(self) -> Sequence[nn.Module]:
        """Return its modules above the stack that a fine-tuning always trains, such as the pooler."""
        return []

    @property
    def embedding(self) -> nn.Embedding | None:
        """Return the table of piece embeddings (V, D'), to which the masked-LM head is tied, or None."""
        raise NotImplementedError

    def share_tables(self, owner: Self) -> None:
        """Use the embedding tables of `owner`, for whose settings `Sizes.narrowed` gave this one's, as its own."""
        raise NotImplementedError

    def read_vocabulary(self, tokenizer: AnyTokenizer) -> None:
        """Take from a tokenizer how the pieces are spelt, for families that read characters; others need nothing."""

    def initialise(self) -> None:
        """Draw all weights afresh, from torch's global generator."""
        raise NotImplementedError

    def forward(self, batch: Batch, read: Tensor | None = None) -> States:
        """Return the last layer's states; with `read` (R,), as `readable` gives, those of the other tokens are NaN."""
        raise NotImplementedError

    def continued(self, batch: Batch, past: Past, read: Tensor | None = None) -> tuple[States, Past]:
        """Return what `forward` does of sequences with a past, and the past of those that follow on them."""
        raise NotImplementedError

    def layers(self, batch: Batch) -> Iterator[Tensor]:
        """Yield layers + 1 states (N, D): the embedding output, then each block's."""
        raise NotImplementedError

    def weights(self, batch: Batch, states: Iterable[Tensor] | None = None) -> Iterator[list[Tensor]]:
        """Yield each layer's attention weights, (H, T, T) a sequence, queries in rows; for families that attend.

        `states`: those of `layers`, where they were computed already.
        """
        raise NotImplementedError

    def head_vectors(self, batch: Batch, states: Iterable[Tensor] | None = None) -> Iterator[HeadVectors]:
        """Yield what each layer's heads make of the tokens, for families that attend; `states` as for `weights`."""
        raise NotImplementedError

    def decoder(self, head: Head) -> CachedDecoder | None:
        """Return what writes texts with this backbone and a head that predicts pieces, None where it cannot."""
        return None

    def read_as_query(self, piece: int) -> None:
        """Read tokens of the piece [MASK] as unseen in batches that have no others, where that is how it predicts."""
        return

    def readable(self, batch: Batch) -> Tensor | None:
        """Return the tokens (R,) that suffice when only labelled tokens and summaries are read, or None for all."""
        return None

    def summaries(self, batch: Batch) -> Tensor:
        """Return the index (B,) of each sequence's summary token in the batch (see `States`)."""
        return batch.starts

    def flops(self, size: StepSize) -> int:
        """Return the FLOPs of one forward pass over a step of some size; its weights may be on "meta"."""
        return 2 * size.tokens * sum(matrix_weights(module) for module in self.stack[1:])


def find_family(name: str) -> type[Backbone]:
    """Return the Backbone of a family, by the name of its file in models/families/.

    Raises UserError when there is none, and when its settings have another family's name.
    """
    family: type[Backbone] = components.find("models.families", name, base=Backbone)
    if family.settings.family != name:
        raise UserError(
            f"models/families/{name}.py: its settings have the family '{family.settings.family}'. Write '{name}'.",
            code="invalid-component",
        )
    return family


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A summed loss and the count it is a mean over, so that uneven micro-batches add up exactly.

    `total` (): the sum. `count`: how many labels (or the sum of their weights). `hits` (): how many were predicted
    rightly, or None where right and wrong make no sense. `weight`: the factor of the mean in what a step minimises.
    `ratios`: further figures by name, each as two sums (), the numerator and the denominator.
    """

    total: Tensor
    count: float
    hits: Tensor | None = None
    weight: float = 1.0
    ratios: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


class FrozenStates(Protocol):
    """Gives states of a backbone that does not learn, which can be kept on disk."""

    def __call__(self, batch: Batch) -> States:
        """Return the states of a batch."""
        ...

    def keep(self, folder: Path, examples: Iterable[Example]) -> Path:
        """Compute the states of some sequences, write them to a file in `folder` and return its path."""
        ...


class Head(nn.Module):
    """States -> outputs -> Loss.

    A head of a form reads the states that `Form` names and not the batch, so that it can be exported. Others have a
    class for it where its parameters are those of one layer, `linear`, apart from those of `beside`.
    """

    form: Form = ""
    """The form of its outputs."""
    values: Values = "classes"
    """What its outputs are."""
    pooling: Pooling | None = None
    """How a head of the form vectors makes a text's vector of its states; such a run is a sentence model."""
    beside: tuple[str, ...] = ()
    """How the names of parameters begin that the outputs do not depend on, such as a CRF's, which decoding reads."""
    sparse: bool = False
    """Whether the loss reads no states but those of the labelled tokens and the summaries; training is then faster."""
    frozen: FrozenStates | None = None
    """What gives it states of a frozen encoder, in place of the backbone's; it is then the learner's only head."""

    @property
    def companions(self) -> Mapping[str, Learner]:
        """Return the models that it trains beside the backbone, by name, which the learner holds for it."""
        return {}

    def before(self, batch: Batch) -> tuple[Batch, Mapping[str, Loss]]:
        """Return the batch that the backbone reads in place of `batch`, and the losses of the companions by name."""
        return batch, {}

    @property
    def per_token(self) -> bool:
        """Return whether the scores are per token (N, K). By default the form says so."""
        return self.form in PER_TOKEN

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the scores that decoding reads."""
        raise NotImplementedError

    def every(self, states: States, batch: Batch) -> Tensor:
        """Return the scores from the backbone's states; those of a language head at every token, not only labelled."""
        return self.outputs(states if self.frozen is None else self.frozen(batch), batch)

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed loss over this objective's targets in the batch."""
        raise NotImplementedError

    def learnt(self) -> dict[str, list[Any]]:
        """Return what decoding needs of it beside its outputs, such as a CRF's transitions, as plain numbers."""
        return {}

    def flops(self, labels: int) -> int:
        """Return the FLOPs of one forward pass over so many labels."""
        return 2 * labels * matrix_weights(self)


class Learner(nn.Module):
    """A backbone and its heads by objective name: one pass over the tokens, one loss an objective.

    `weights`: the weights of losses that are not 1, by objective name. `companions`: the models that heads train beside
    the backbone (ELECTRA's generator), by name; tables that they share with it are the backbone's. `memory`: what is
    kept of the streams that its batches continue, None without; a checkpoint holds it, and a model's folder does not.
    """

    def __init__(self, backbone: Backbone, heads: Mapping[str, Head]) -> None:
        """Join a backbone with heads."""
        super().__init__()
        self.backbone = backbone
        self.heads: Mapping[str, Head] = nn.ModuleDict(heads)  # type: ignore[assignment]
        companions = {name: one for head in heads.values() for name, one in head.companions.items()}
        self.companions: Mapping[str, Learner] = nn.ModuleDict(companions)  # type: ignore[assignment]
        self.weights: Mapping[str, float] = {}
        self.memory: Memory | None = None

    def before(self, batch: Batch) -> tuple[Batch, dict[str, Loss]]:
        """Return the batch that the backbone reads, and the losses of the companions."""
        losses: dict[str, Loss] = {}
        for head in self.heads.values():
            batch, found = head.before(batch)
            losses |= found
        return batch, losses

    def states(self, batch: Batch, read: Tensor | None = None) -> States:
        """Return the states that the heads read; `read` as in `Backbone.forward`."""
        for head in self.heads.values():
            if head.frozen is not None:
                return head.frozen(batch)
        if self.memory is not None:
            states, past = self.backbone.continued(batch, self.memory.of(batch.records), read)
            self.memory.keep(batch.records, past)
            return states
        return self.backbone(batch, read)

    def forward(self, batch: Batch) -> dict[str, Loss]:
        """Return the loss of each objective and companion; one without targets in this batch is left out."""
        batch, losses = self.before(batch)
        sparse = all(head.sparse for head in self.heads.values())
        states = self.states(batch, self.backbone.readable(batch) if sparse else None)
        losses |= {name: head(states, batch) for name, head in self.heads.items() if name in batch.targets}
        for name in self.weights.keys() & losses.keys():
            losses[name] = dataclasses.replace(losses[name], weight=self.weights[name])
        return losses


def matrix_weights(module: nn.Module) -> int:
    """Return how many weights of a module are in matrices."""
    return sum(weight.numel() for weight in module.parameters() if weight.ndim == 2)
