"""Padded gives the flat model's numbers and gradients, whatever the padding, in one's own training loop."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.inference.engine import load
from osbert.models import Padded, families
from osbert.models.architecture import Architecture
from osbert.models.contract import Backbone, Head, Learner, States, find_family
from osbert.models.forms import Features, Form
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead
from osbert.models.heads.tagging import TagHead
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.tag import Tag
from own_files import beside
from tiny_runs import TASKS, write_run

LENGTHS = (5, 9, 1, 9, 3)
WIDE = 11
SIZES = {"layers": 2, "heads": 2, "width": 16, "vocabulary": 50, "length": 24, "deviation": 0.3}
BACKBONES: dict[str, dict[str, object]] = {
    "bert": {},
    "rotary": {"positions": "rotary"},
    "left_to_right": {"direction": "left_to_right"},
    "pre": {"normalization": "pre"},
    "recurrent": {"recurrent": 1},
}


def backbone(name: str, monkeypatch: pytest.MonkeyPatch) -> Backbone:
    torch.manual_seed(0)
    if name == "toy_mean":
        beside(monkeypatch, families)
        return find_family(name).settings(vocabulary=50).build().eval()  # type: ignore[call-arg]
    return Architecture(**{**SIZES, **BACKBONES[name]}).build().eval()  # type: ignore[arg-type]


def examples(make_examples: Callable[..., list[Example]]) -> list[Example]:
    return make_examples(LENGTHS, seed=3)


def rectangle(rows: list[Example], side: str = "right") -> dict[str, Tensor]:
    """Return examples as padded columns (B, T), with ids and segments of padding that must not matter."""
    ids, segments = torch.full((len(rows), WIDE), 7), torch.ones(len(rows), WIDE, dtype=torch.long)
    mask = torch.zeros(len(rows), WIDE, dtype=torch.long)
    for place, row in enumerate(rows):
        columns = slice(0, len(row)) if side == "right" else slice(WIDE - len(row), WIDE)
        ids[place, columns], segments[place, columns] = torch.tensor(row.ids), torch.tensor(row.segments)
        mask[place, columns] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def flat_rows(values: Tensor, batch: Batch) -> list[Tensor]:
    """Return what a flat model gives, by record."""
    parts = values.split(list(batch.lengths))
    return [parts[place] for place in torch.argsort(batch.records).tolist()]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", [*BACKBONES, "toy_mean"])
def test_states_and_gradients_are_the_flat_models(
    name: str, side: str, make_examples: Callable[..., list[Example]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rows = backbone(name, monkeypatch), examples(make_examples)
    batch = collate(rows)
    flat = model(batch)
    columns = rectangle(rows, side)
    padded = Padded(model)(**columns)
    mask = columns["attention_mask"].bool()
    assert padded.states.shape == (len(rows), WIDE, model.architecture.width)
    assert not padded.states[~mask].any()
    for place, states in enumerate(flat_rows(flat.hidden, batch)):
        torch.testing.assert_close(padded.states[place, mask[place]], states, atol=2e-5, rtol=0)
    order = torch.argsort(batch.records)
    torch.testing.assert_close(padded.summary, flat.summary[order], atol=2e-5, rtol=0)
    torch.testing.assert_close(padded.pooled, flat.pooled[order], atol=2e-5, rtol=0)

    weight = torch.linspace(-1, 1, model.architecture.width)
    parameters = list(model.parameters())
    ours = torch.autograd.grad((padded.states @ weight).sum() + padded.pooled.sum(), parameters, allow_unused=True)
    theirs = torch.autograd.grad((flat.hidden @ weight).sum() + flat.pooled.sum(), parameters, allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["sequence", "tag", "mlm"])
def test_scores_of_a_head_come_by_row(
    kind: str, make_examples: Callable[..., list[Example]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = backbone("bert", monkeypatch)
    heads: dict[str, Callable[[], Head]] = {
        "sequence": lambda: Classify(labels=("a", "b", "c")).head(model),
        "tag": lambda: Tag(types=("A",)).head(model),
        "mlm": lambda: MaskedLanguageHead(model),
    }
    head = heads[kind]().eval()
    columns = rectangle(examples(make_examples))
    found = Padded(model, head)(**columns)
    mask = columns["attention_mask"].bool()
    assert found.scores is not None
    if kind == "sequence":
        assert isinstance(head, SequenceHead)
        torch.testing.assert_close(found.scores, head.linear(found.pooled), atol=2e-5, rtol=0)
        return
    assert isinstance(head, TagHead | MaskedLanguageHead)
    by_token = head.linear if isinstance(head, TagHead) else head.scores
    torch.testing.assert_close(found.scores[mask], by_token(found.states[mask]), atol=2e-5, rtol=0)
    assert not found.scores[~mask].any()
    one = Padded(model, head)(torch.tensor([[3]]))
    assert one.scores is not None
    assert one.scores.ndim == 3  # also where there are as many tokens as rows


@pytest.mark.parametrize("features", ["second-to-last", "sum-all", "concat-last-four"])
def test_a_head_on_features_reads_the_layers_that_it_was_trained_on(
    features: Features, make_examples: Callable[..., list[Example]]
) -> None:
    torch.manual_seed(0)
    model = Architecture(**{**SIZES, "layers": 4}).build()  # type: ignore[arg-type]
    learner = Learner(model, {"tag": Tag(types=("A",), features=features).head(model)}).eval()
    rows = examples(make_examples)
    head = learner.heads["tag"]
    assert isinstance(head, Head)
    columns, batch = rectangle(rows), collate([replace(row, targets={}) for row in rows])
    with torch.no_grad():
        flat = flat_rows(head.outputs(learner.states(batch), batch), batch)
        padded = Padded(model, head)(**columns).scores
    mask = columns["attention_mask"].bool()
    for place, scores in enumerate(flat):
        torch.testing.assert_close(padded[place, mask[place]], scores, atol=1e-4, rtol=0)
    one = Padded(model, head)(torch.tensor([[3], [4]])).scores
    assert one is not None
    assert one.ndim == 3


@pytest.mark.parametrize(("form", "shape"), [("tokens", (3, 1, 16)), ("sequence", (3, 16))])
def test_a_head_of_one_s_own_is_per_token_by_its_form(
    form: Form, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    class OwnHead(Head):
        def outputs(self, states: States, batch: Batch) -> Tensor:
            return states.hidden if form == "tokens" else states.pooled

    head = OwnHead()
    head.form = form
    scores = Padded(backbone("bert", monkeypatch), head)(torch.tensor([[3], [4], [5]])).scores
    assert scores is not None
    assert scores.shape == shape  # with one token a row there are as many tokens as rows


def test_mask_and_segments_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Padded(backbone("bert", monkeypatch))
    ids = torch.tensor([[2, 9, 3], [2, 8, 3]], dtype=torch.int32)
    whole = module(ids, torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, 3, dtype=torch.int32))
    torch.testing.assert_close(module(ids).states, whole.states)


def test_what_cannot_be_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module, ids = Padded(backbone("bert", monkeypatch)), torch.ones(2, 5, dtype=torch.long)
    with pytest.raises(ValueError, match=r"each be \(B, T\), not \(2, 5\), \(2, 4\), \(2, 5\)"):
        module(ids, ids[:, 1:])
    with pytest.raises(ValueError, match="each be"):
        module(ids[0])
    with pytest.raises(ValueError, match="every row needs a token"):
        module(ids, torch.tensor([[1] * 5, [0] * 5]))
    with pytest.raises(ValueError, match="every row needs a token"):
        module(ids[:0])
    with pytest.raises(ValueError, match="a row has 25 tokens, but the model reads at most 24"):
        module(torch.ones(1, 25, dtype=torch.long))


def test_it_learns_in_a_loop_of_ones_own(tmp_path: Path) -> None:
    module = Padded.load(write_run(tmp_path / "run", TASKS["classifier"]))
    assert not module.training
    module.train()
    ids = torch.tensor([[2, 5, 9, 3, 0], [2, 7, 9, 3, 0], [2, 10, 5, 9, 3]])
    labels = torch.tensor([1, 0, 1])
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(module(ids, (ids != 0).long()).scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    other = Padded.load(tmp_path / "run")
    other.load_state_dict(module.state_dict())
    with torch.no_grad():
        expected = module.eval()(ids).states
        torch.testing.assert_close(other(ids).states, expected)
        assert other.double()(ids).states.dtype == torch.float64


def test_a_loaded_one_gives_what_the_engine_gives(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TASKS["classifier"])
    engine, module = load(run), Padded.load(str(run))
    task = engine.fine_tuned
    assert isinstance(task, Classify)
    (example,) = task.encode(task.record_of(("a good film",)), engine.packer)
    with torch.no_grad():
        scores = module(torch.tensor(example.ids)[None]).scores
    (prediction,) = engine.predict(["a good film"])
    probabilities = torch.softmax(scores[0] / task.temperature, dim=0).tolist()
    assert probabilities == pytest.approx([prediction.probabilities[label] for label in task.labels], abs=2e-5)


def test_naming_the_room_loads_no_torch() -> None:
    code = "import sys, osbert.models; assert 'torch' not in sys.modules; osbert.models.Padded; osbert.models.nothing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith("module 'osbert.models' has no attribute 'nothing'")
