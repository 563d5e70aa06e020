"""The head of soft pieces: masked pieces by their ids and by a teacher's probabilities, and the teacher's states."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.errors import UserError
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL
from osbert.models.contract import Backbone, Learner, Loss, States
from osbert.models.fast.linear import Linear
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert_lab.distillation.heads import Teacher, soft_divergence
from osbert_lab.distillation.layers import fewer_layers, select_layers
from osbert_lab.distillation.soft_pieces import SoftPieces


def open_teacher(folder: Path) -> Teacher:
    """Return the pretrained encoder in a folder as a teacher. Raises UserError if it has no masked-language head."""
    model = open_folder(folder, CAREFUL)
    heads = {name: head for name, head in model.heads.items() if isinstance(head, MaskedLanguageHead)}
    if model.task is not None or not heads:
        raise UserError(
            f"{folder} has no masked-language head, whose probabilities a student learns. Give a pretrained encoder as "
            "--teacher; a fine-tuned one teaches by osbert distil.",
            code="unsupported-model",
        )
    name = next(iter(heads))
    teacher = Teacher(Learner(model.backbone, {name: heads[name]}), name)
    model.release()
    return teacher


class SoftPiecesHead(MaskedLanguageHead):
    """A masked-language head that learns from a teacher, too; the losses are those of `SoftPieces`.

    Sums over all tokens are multiplied by the rate of masked ones, since the loss is divided by the number of these.
    """

    beside = ("map.",)

    def __init__(self, backbone: Backbone, settings: SoftPieces, *, teacher: Teacher | None) -> None:
        """Stand on `backbone`; without a `teacher` the loss is that of the masked pieces."""
        super().__init__(backbone, target=settings.name)
        self.settings = settings
        self.teacher = teacher
        self.student = (backbone,)  # in tuples they are not registered again
        if teacher is None:
            return
        self.sparse = not (settings.states or settings.attentions)
        width, wanted = backbone.architecture.width, teacher.learner.backbone.architecture.width
        self.map = Linear(width, wanted) if settings.states and width != wanted else None

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the weighted sum of the losses in nats, and the hits on the true pieces."""
        if self.teacher is None:
            return super().forward(states, batch)
        settings, target = self.settings, batch.targets[self.target]
        scores = self.outputs(states, batch).float()  # (M, V)
        hard = functional.cross_entropy(scores, target.labels, reduction="sum")
        soft = soft_divergence(scores, self._teacher_scores(batch, target.index), settings.temperature).sum()
        total = (1 - settings.soft) * hard + settings.soft * soft
        if settings.states:
            total = total + settings.states * settings.rate * self._state_distance(states, batch)
        if settings.attentions:
            total = total + settings.attentions * settings.rate * self._attention_divergence(batch)
        hits = (scores.detach().argmax(dim=1) == target.labels).sum()
        return Loss(total=total, count=target.count, hits=hits)

    def _teacher_scores(self, batch: Batch, index: Tensor) -> Tensor:
        """Return the teacher's scores (M, V) of the tokens `index` (M,)."""
        assert self.teacher is not None
        head = self.teacher.learner.heads[self.teacher.name]
        assert isinstance(head, MaskedLanguageHead)
        hidden = self.teacher.states(batch).hidden[index]
        with torch.no_grad():
            return head.scores(hidden).float()

    def _state_distance(self, states: States, batch: Batch) -> Tensor:
        """Return the sum over tokens of 1 - the cosine of the last states of both models."""
        assert self.teacher is not None
        hidden = states.hidden if self.map is None else self.map(states.hidden)
        wanted = self.teacher.states(batch).hidden
        return (1 - functional.cosine_similarity(hidden.float(), wanted.float(), dim=1)).sum()

    def _attention_divergence(self, batch: Batch) -> Tensor:
        """Return the sum over tokens of KL(teacher, student) of their attention weights, a mean over layers and heads.

        Layer i of the student is compared with the layer of the teacher that it would start with.
        """
        assert self.teacher is not None
        student, teacher = self.student[0], self.teacher.learner.backbone
        training = student.training
        student.eval()  # without dropout; gradients flow
        student_layers = list(student.weights(batch))
        student.train(training)
        with torch.no_grad():
            teacher_layers = list(teacher.weights(batch))
        count = len(student_layers)
        chosen = select_layers(teacher, count) if count < len(teacher_layers) else range(count)
        divergences = [
            torch.xlogy(wanted, wanted / weights.clamp_min(1e-9)).sum(-1).mean(0).sum()  # (H, T, T) -> ()
            for layer, others in zip(student_layers, (teacher_layers[number] for number in chosen), strict=True)
            for weights, wanted in zip(layer, others, strict=True)
        ]
        return torch.stack(divergences).sum() / count

    def copy_teacher(self) -> None:
        """Copy the teacher's embeddings, evenly spaced layers, and head into the student."""
        assert self.teacher is not None
        student, teacher = self.student[0], self.teacher.learner.backbone
        layers = student.architecture.layers
        source = fewer_layers(teacher, layers) if layers < teacher.architecture.layers else teacher
        student.load_state_dict(source.state_dict())
        head = self.teacher.learner.heads[self.teacher.name]
        self.load_state_dict(head.state_dict(), strict=False)
