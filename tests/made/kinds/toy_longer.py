"""toy_longer: which of two texts has more words, with a record, a prediction, a head and a call of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Target
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.tasks import Prediction, Record, Source, Task
from osbert.tasks.edges import Edge, Field

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head


@dataclass(frozen=True, kw_only=True)
class Pair(Record):
    """Two texts, and the name of the pair."""

    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Comparison(Prediction):
    """Which text is longer, by what margin of scores, and the probability of each."""

    longer: str
    margin: float
    chances: dict[str, float]


class PairFiles(Source):
    """Reads train.tsv and dev.tsv of a folder."""

    task: Longer

    def records(self, split: str, problems: Problems) -> Iterator[Pair]:
        path = Path(self.task.data) / f"{split}.tsv"
        for number, line in enumerate(path.read_text().splitlines()):
            texts = tuple(line.split("\t"))
            if len(texts) != 2:
                problems.add(f"{path}, line {number + 1}: {len(texts)} texts instead of two.")
                continue
            label = self.task.sides[_words(texts[1]) > _words(texts[0])]
            yield dataclasses.replace(self.task.record_of(texts), number=number, label=label)


@dataclass(frozen=True, kw_only=True)
class Longer(Task):
    """Pairs of texts, a tab between them; train.tsv and dev.tsv in a folder."""

    form = "sequence"
    edge = Edge(
        kind="longer",
        call="compare-lengths",
        about="Two texts, of which one is longer.",
        action="Compare",
        request=(Field(name="first", about="A text."), Field(name="second", about="Another one.")),
        answer=(
            Field(name="longer", about="first or second."),
            Field(name="margin", type="number", about="By how much its score is higher."),
            Field(name="chances", type="probabilities"),
        ),
    )
    reader = PairFiles
    sample = '"a text" "and another one"'

    sides: tuple[str, ...] = ("first", "second")
    """What the two texts are called."""

    @property
    def criterion(self) -> str:
        return "accuracy"

    def record_of(self, texts: Sequence[str]) -> Pair:
        if len(texts) != 2:
            raise UserError(f"The run compares two texts, not {len(texts)}.")
        return Pair(number=0, texts=tuple(texts), key="-".join(text[:3] for text in texts))

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        first, second = (packer.run(text) for text in record.texts)
        example = packer.pair(first, second, record=record.number)
        if record.label is None:
            return [example]
        target = Target(labels=np.array([self.sides.index(record.label)]))
        return [dataclasses.replace(example, targets={self.name: target})]

    def head(self, backbone: Backbone) -> Head:
        import torch

        from osbert.models import contract
        from osbert.models.heads.predictions import classification_loss

        class LengthHead(contract.Head):
            """A score for each of the two texts."""

            form = "sequence"

            def __init__(self, target: str) -> None:
                super().__init__()
                self.target = target
                self.linear = torch.nn.Linear(backbone.architecture.width, 2)

            def outputs(self, states: Any, batch: Any) -> torch.Tensor:
                return self.linear(states.pooled)

            def forward(self, states: Any, batch: Any) -> contract.Loss:
                target = batch.targets[self.target]
                return classification_loss(self.outputs(states, batch)[target.index], target)

        return LengthHead(self.name)

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> Comparison:
        scores = np.asarray(outputs[0], np.float64)
        shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        longer = self.sides[int(scores.argmax())]
        return Comparison(
            value=longer, longer=longer, margin=float(abs(scores[0] - scores[1])),
            chances=dict(zip(self.sides, shares.tolist())),
        )  # fmt: skip

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        hits = [prediction.value == record.label for prediction, record in zip(predictions, records, strict=True)]
        return {"accuracy": float(np.mean(hits))}

    def export_metadata(self) -> dict[str, Any]:
        return {"labels": self.sides}


def _words(text: str) -> int:
    return len(text.split())
