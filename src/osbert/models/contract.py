"""The contracts of models: Backbone, a batch to states; Head, states to a loss; the Learner of both; and decoders."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor, nn
from torch.utils._pytree import register_dataclass
from torch.utils.checkpoint import checkpoint

from osbert import components
from osbert.data.batch import Batch, passes
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.errors import UserError
from osbert.models.forms import PER_TOKEN, Form, Values
from osbert.models.memory import Memory, Past
from osbert.models.sizes import DEFAULT_FAMILY as DEFAULT_FAMILY
from osbert.models.sizes import Direction as Direction
from osbert.models.sizes import Sizes as Sizes
from osbert.text.file_tokenizer import AnyTokenizer


@dataclass(frozen=True, kw_only=True)
class States:
    """The output of a backbone.

    `hidden` (N, D): the last layer's state of every token. `summary` (B, D): one state per sequence, that of the first
    token (BERT's C) or the last (`Sizes.summary_is_last`), or the mean of all. `pooled` (B, D):
    tanh(dense(summary)), or another activation, the input of next-sentence prediction and classification.
    """

    hidden: Tensor
    summary: Tensor
    pooled: Tensor


@dataclass(frozen=True, kw_only=True)
class HeadVectors:
    """The vectors of the attention heads of one layer for the N tokens of a batch.

    `queries`, `keys`, `values` (N, H, K): with rotary positions applied, if any. `outputs` (H, K, D): the projection of
    each head's output into the layer's output, the sum over heads. `is_biased`: whether the products of queries
    and keys get a bias, as for distances.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    outputs: Tensor
    is_biased: bool


@dataclass(frozen=True, kw_only=True)
class StepSize:
    """The quantities that determine the FLOPs of a step.

    `tokens` N; `pairs` P: the sum of squared lengths; `sequences` B; `labels`: their number by objective; `read` R: the
    tokens whose last states are read, if the model skips the others (`Backbone.readable`); `read_pairs` Q: the sum of
    lengths times tokens read. `local_pairs`: the sum over tokens of the keys in a local block, if there are any.
    `source`: the size of the sources of an encoder-decoder, and `cross_pairs`: the sum of lengths times source lengths.
    `remembered`: tokens of the past that a sequence attends to. `companions`: the sizes for the learner's companions.
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
        """Return the total size of `batches`, which may be several steps, for a learner."""
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
        # A local block sees at most 2 * window + 1 keys, and not more than the sequence has.
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
    """Batch -> States, independent of objectives and losses; made by `Sizes.build` from its family's settings.

    It is the one public class of a file in models/families/.
    """

    settings: ClassVar[type[Sizes]]
    """The class of the family's settings."""
    architecture: Sizes
    attends: ClassVar[bool] = False
    """Whether the family has attention, so that `weights` and `head_vectors` work."""

    @property
    def stack(self) -> Sequence[nn.Module]:
        """Return its modules from the bottom up: the embeddings first, then the block of each layer."""
        raise NotImplementedError

    @property
    def mixers(self) -> Sequence[nn.Module]:
        """Return each layer's output projection of attention, from (N, H * K); for families with attention."""
        raise NotImplementedError

    @property
    def above(self) -> Sequence[nn.Module]:
        """Return the modules above the stack, such as the pooler, which every fine-tuning trains."""
        return []

    @property
    def embedding(self) -> nn.Embedding | None:
        """Return the table of piece embeddings (V, D'), to which the masked-LM head is tied, or None."""
        raise NotImplementedError

    def share_tables(self, owner: Self) -> None:
        """Share the embedding tables of `owner`, from whose settings `Sizes.narrow` made those of this backbone."""
        raise NotImplementedError

    def read_vocabulary(self, tokenizer: AnyTokenizer) -> None:
        """Set the spelling of pieces from a tokenizer, in families that read characters; others do nothing."""

    def initialise(self) -> None:
        """Initialise all weights with torch's global generator."""
        raise NotImplementedError

    def forward(self, batch: Batch, read: Tensor | None = None) -> States:
        """Return the last layer's states. With `read` (R,), from `readable`, the states of all other tokens are NaN."""
        raise NotImplementedError

    def forward_with_past(self, batch: Batch, past: Past, read: Tensor | None = None) -> tuple[States, Past]:
        """Return the states as `forward`, but with attention to the past of the sequences, and their new past."""
        raise NotImplementedError

    def layers(self, batch: Batch) -> Iterator[Tensor]:
        """Yield layers + 1 states (N, D): the embedding output, then each block's."""
        raise NotImplementedError

    def weights(self, batch: Batch, states: Iterable[Tensor] | None = None) -> Iterator[list[Tensor]]:
        """Yield each layer's attention weights, (H, T, T) a sequence, queries in rows; for families with attention.

        `states`: the result of `layers`, if already computed.
        """
        raise NotImplementedError

    def head_vectors(self, batch: Batch, states: Iterable[Tensor] | None = None) -> Iterator[HeadVectors]:
        """Yield each layer's queries, keys, values and output matrices; for families with attention, as `weights`."""
        raise NotImplementedError

    def writes(self, head: Head) -> bool:
        """Return whether texts can be written piece by piece with a head that predicts pieces."""
        return False

    def read_as_query(self, piece: int) -> None:
        """Treat tokens of `piece` ([MASK]) as unseen, in models that predict unseen tokens; others do nothing."""
        return

    def readable(self, batch: Batch) -> Tensor | None:
        """Return the tokens (R,) to compute if only labelled tokens and summaries are read; None for all."""
        return None

    def summaries(self, batch: Batch) -> Tensor:
        """Return the index (B,) of each sequence's summary token in the batch (see `States`)."""
        return batch.starts

    def flops(self, size: StepSize) -> int:
        """Return the FLOPs of one forward pass over a step of this size; the weights may be on "meta"."""
        return 2 * size.tokens * sum(matrix_weights(module) for module in self.stack[1:])


def find_family(name: str) -> type[Backbone]:
    """Return the Backbone of a family, by the name of its file in models/families/.

    Raises UserError if there is none, or its settings have another family's name.
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
    """A summed loss and the count of its mean, so that micro-batches of different size add up exactly.

    `total` (): the sum. `count`: the number of labels (or the sum of their weights). `hits` (): the number of correct
    predictions, or None if that is not defined. `weight`: the factor of the mean in the loss of a step.
    `ratios`: further figures by name, each as two sums (), the numerator and the denominator.
    """

    total: Tensor
    count: float
    hits: Tensor | None = None
    weight: float = 1.0
    ratios: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


# Before torch 2.13 sharded training finds no tensors in other dataclasses, and misses that a backward pass begins.
register_dataclass(Loss)


class FrozenStates(Protocol):
    """Computes states of a frozen backbone, which can be cached on disk."""

    def __call__(self, batch: Batch) -> States:
        """Return the states of a batch."""
        ...

    def keep(self, folder: Path, examples: Iterable[Example]) -> Path:
        """Compute the states of `examples`, write them to a file in `folder` and return its path."""
        ...


class Head(nn.Module):
    """States -> outputs -> Loss.

    A head with a form reads the states that `Form` names and not the batch, so it can be exported. It has a class in
    other libraries if its parameters, apart from those of `beside`, are those of one layer `linear`.
    """

    form: Form = ""
    """The form of its outputs."""
    values: Values = "classes"
    """The kind of its outputs."""
    pooling: str | None = None
    """The pooling of a head of the form vectors; a run with one is a sentence model."""
    dimensions: tuple[int, ...] = ()
    """To how many numbers the vectors of such a head are trained to be cut."""
    beside: tuple[str, ...] = ()
    """Prefixes of parameters that the loss and decoding use, not the outputs, such as those of a CRF."""
    sparse: bool = False
    """Whether the loss reads only the states of labelled tokens and summaries, which makes training faster."""
    frozen: FrozenStates | None = None
    """The frozen encoder whose states it reads instead of the backbone's; it is then the learner's only head."""

    @property
    def companions(self) -> Mapping[str, Learner]:
        """Return the models that it trains beside the backbone, by name; the learner owns them."""
        return {}

    def note_rows(self, rows: Examples) -> None:
        """See all training sequences before the first step, to learn what a step alone does not show."""

    def begin_step(self, done: float) -> None:
        """Prepare for the next step, after a fraction of the run's steps; most heads learn the same in all."""

    def before(self, batch: Batch) -> tuple[Batch, Mapping[str, Loss]]:
        """Return the batch for the backbone, made from `batch`, and the losses of the companions by name."""
        return batch, {}

    @property
    def per_token(self) -> bool:
        """Return whether the scores are per token (N, K). By default it depends on the form."""
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

    def compare(self, outputs: Tensor, batch: Batch) -> Loss:
        """Return the loss from the outputs of all sequences of a step, which it compares (`Batch.pass_tokens`)."""
        raise NotImplementedError

    def decoding_values(self) -> dict[str, list[Any]]:
        """Return the values that decoding needs beside the outputs, such as a CRF's transitions, as plain numbers."""
        return {}

    def flops(self, labels: int) -> int:
        """Return the FLOPs of one forward pass for this number of labels."""
        return 2 * labels * matrix_weights(self)


class Learner(nn.Module):
    """A backbone and its heads by objective name: one pass over the tokens, one loss for each objective.

    `weights`: the weights of losses that are not 1, by objective name. `companions`: the models that heads train beside
    the backbone (ELECTRA's generator), by name; tables that they share with it are the backbone's. `memory`: the
    cached states of streams, or None; checkpoints include it, model folders do not.
    """

    def __init__(self, backbone: Backbone, heads: Mapping[str, Head]) -> None:
        super().__init__()
        self.backbone = backbone
        self.heads: Mapping[str, Head] = nn.ModuleDict(heads)  # type: ignore[assignment]
        companions = {name: companion for head in heads.values() for name, companion in head.companions.items()}
        self.companions: Mapping[str, Learner] = nn.ModuleDict(companions)  # type: ignore[assignment]
        self.weights: Mapping[str, float] = {}
        self.memory: Memory | None = None

    def before(self, batch: Batch) -> tuple[Batch, dict[str, Loss]]:
        """Return the batch that the backbone reads, and the losses of the companions."""
        losses: dict[str, Loss] = {}
        for head in self.heads.values():
            batch, head_losses = head.before(batch)
            losses |= head_losses
        return batch, losses

    def states(self, batch: Batch, read: Tensor | None = None) -> States:
        """Return the states that the heads read; `read` as in `Backbone.forward`."""
        for head in self.heads.values():
            if head.frozen is not None:
                return head.frozen(batch)
        if self.memory is not None:
            states, past = self.backbone.forward_with_past(batch, self.memory.of(batch.records), read)
            self.memory.keep(batch.records, past)
            return states
        return self.backbone(batch, read)

    def forward(self, batch: Batch) -> dict[str, Loss]:
        """Return the loss of each objective and companion that has targets in this batch."""
        batch, losses = self.before(batch)
        heads = {name: head for name, head in self.heads.items() if name in batch.targets}
        if batch.pass_tokens and len(parts := passes(batch)) > 1:
            # Gradient caching (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited
            # Setup"): of each pass the outputs alone are kept. The backward pass computes it again, with the same
            # random numbers, so memory holds one pass, and the gradient is that of the whole batch.
            # Each has a backward pass of its own, so that gradients of tables add up pass by pass.
            start = torch.zeros((), device=batch.ids.device, requires_grad=True)
            outputs = [checkpoint(self._outputs, part.ids, part, [*heads], start, use_reentrant=True) for part in parts]
            losses |= {name: heads[name].compare(torch.cat(rows), batch) for name, rows in zip(heads, zip(*outputs))}
        else:
            states = self.states(batch, self._readable(batch))
            losses |= {name: head(states, batch) for name, head in heads.items()}
        for name in self.weights.keys() & losses.keys():
            losses[name] = dataclasses.replace(losses[name], weight=self.weights[name])
        return losses

    def _readable(self, batch: Batch) -> Tensor | None:
        """Return the tokens to compute; None for all, unless every head allows to skip some."""
        sparse = all(head.sparse for head in self.heads.values())
        return self.backbone.readable(batch) if sparse else None

    def _outputs(self, ids: Tensor, batch: Batch, names: Sequence[str], start: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of some heads in a pass; `ids` are the batch's, by which torch knows the device.

        `start` is 0 and has a gradient, so that outputs have one whose weights are all frozen.
        """
        states = self.states(batch, self._readable(batch))
        return tuple(self.heads[name].outputs(states, batch) + start for name in names)


def matrix_weights(module: nn.Module) -> int:
    """Return the number of weights of a module in matrices, which is half its FLOPs per token."""
    return sum(weight.numel() for weight in module.parameters() if weight.ndim == 2)
