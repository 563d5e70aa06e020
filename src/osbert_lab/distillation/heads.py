"""Distillation: losses against a teacher's softened outputs (Hinton et al. 2015) and its states (Sanh et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Head, Learner, Loss, States
from osbert.models.fast.linear import Linear
from osbert.models.forms import Values
from osbert.models.heads.grouped import log_softmax_within


class Teacher:
    """A learner with fixed weights. Two losses on one batch cost one forward pass."""

    def __init__(self, learner: Learner, name: str) -> None:
        """Use the outputs of the head `name` of `learner`."""
        self.learner = learner.requires_grad_(False).eval()
        self.name = name
        self._last: tuple[Batch, States] | None = None

    def states(self, batch: Batch) -> States:
        """Return the states of a batch, without dropout and gradients. The last batch's are cached."""
        # By identity: two heads of one step are called with the same batch.
        if self._last is None or self._last[0] is not batch:
            with torch.no_grad():
                self._last = batch, self.learner.to(batch.ids.device).states(batch)
        return self._last[1]

    def outputs(self, batch: Batch) -> Tensor:
        """Return the outputs of the head, (B, K) or (N, K)."""
        with torch.no_grad():
            return self.learner.heads[self.name].outputs(self.states(batch), batch)


def soft_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return T^2 KL(softmax(teacher / T), softmax(student / T)) (...) of logits (..., K) (Hinton et al. 2015).

    The square keeps the size of the gradients, which the temperature T divides by T^2.
    """
    student, teacher = (functional.log_softmax(logits / temperature, dim=-1) for logits in (student, teacher))
    return functional.kl_div(student, teacher, reduction="none", log_target=True).sum(-1) * temperature**2


class SoftTargetHead(Head):
    """The divergence of a head's outputs from a teacher's, both at a temperature T (Hinton et al. 2015, section 2).

    T^2 times the Kullback-Leibler divergence of softmax(student / T) from softmax(teacher / T): of a sequence, of each
    token with a target, or of a span's start and end over the tokens. For multi-label outputs it is the mean divergence
    of the sigmoids, for numbers the squared error. The head has no weights.
    """

    def __init__(self, head: Head, *, values: Values, target: str, temperature: float, teacher: Teacher | None) -> None:
        """Compare the outputs of `head`, of the kind `values`, on sequences with targets `target`.

        Without a `teacher` the labels of the targets are its outputs, K consecutive ones for each sequence; with one
        the labels are not used.
        """
        super().__init__()
        self.sparse = head.sparse and not head.per_token  # states of tokens without a target would be NaN
        self.span = head.form == "span"
        self.kind: Values = values
        self.target = target
        self.temperature = temperature
        self.teacher = teacher
        self.compared = (head,)  # in a tuple it is not registered again

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the outputs of the student's head."""
        return self.compared[0].outputs(states, batch)

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed divergence."""
        target = batch.targets[self.target]
        student_outputs = self.outputs(states, batch).float()
        if self.teacher is None:
            assert target.weights is not None  # of K labels; their sum is the weight of the sequence
            teacher_outputs, weights = (
                column.view(-1, student_outputs.shape[1]) for column in (target.labels, target.weights)
            )  # (M, K)
            each = self._divergence(student_outputs[target.index[:: student_outputs.shape[1]]], teacher_outputs)  # (M,)
            return Loss(total=(each * weights.sum(1)).sum(), count=target.count)
        teacher_outputs = self.teacher.outputs(batch).float()
        if self.span:
            return Loss(total=self._of_spans(student_outputs, teacher_outputs, batch).sum(), count=target.count)
        return Loss(
            total=self._divergence(student_outputs[target.index], teacher_outputs[target.index]).sum(),
            count=target.count,
        )

    def _divergence(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Return the divergences (M,) of outputs (M, K) from the teacher's."""
        if self.kind == "numbers":
            return (student - teacher).square().mean(1)
        if self.kind == "labels":
            # A sigmoid is a softmax over the logits (x, 0).
            student, teacher = (
                torch.stack([logits, torch.zeros_like(logits)], dim=-1) for logits in (student, teacher)
            )  # (M, K, 2)
        each = soft_divergence(student, teacher, self.temperature)
        return each.mean(1) if self.kind == "labels" else each

    def _of_spans(self, student: Tensor, teacher: Tensor, batch: Batch) -> Tensor:
        """Return the terms (N, 2) of the divergences of starts and ends, distributions over a sequence's tokens."""
        tokens = torch.arange(len(student), device=student.device)
        rows = torch.searchsorted(batch.starts, tokens, right=True) - 1  # (N,): the sequence of each token
        # Columns: the student's start and end, the teacher's start and end.
        scores = torch.cat([student, teacher], dim=1) / self.temperature
        logs, _ = log_softmax_within(scores, rows, len(batch.lengths))
        return functional.kl_div(logs[:, :2], logs[:, 2:], reduction="none", log_target=True) * self.temperature**2


class StateHead(Head):
    """1 - the cosine of a token's last state and the teacher's, averaged over the tokens of a sequence.

    States of another width than the teacher's are first mapped to it by a linear layer, which is not kept (Jiao et al.
    2019, equation 8).
    """

    def __init__(self, backbone: Backbone, *, target: str, teacher: Teacher) -> None:
        """Compare the states of `backbone` with those of `teacher` on sequences with targets `target`."""
        super().__init__()
        self.target = target
        self.teacher = teacher
        width, teacher_width = backbone.architecture.width, teacher.learner.backbone.architecture.width
        self.map = None if width == teacher_width else Linear(width, teacher_width)

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the states (N, D) as wide as the teacher's."""
        return states.hidden if self.map is None else self.map(states.hidden)

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the sum over sequences."""
        student_states, teacher_states = self.outputs(states, batch).float(), self.teacher.states(batch).hidden.float()
        apart = 1 - functional.cosine_similarity(student_states, teacher_states, dim=-1)  # (N,)
        lengths = torch.tensor(batch.lengths, device=apart.device)
        # Each sequence adds the mean over its tokens.
        total = (apart / lengths.repeat_interleave(lengths)).sum()
        return Loss(total=total, count=batch.targets[self.target].count)
