"""Replaced-token detection: what the generator is asked and draws, what the discriminator sees, and its gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from osbert.data.batch import collate, halves
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.discriminator import sample_pieces
from osbert.objectives.replaced import ReplacedTokens
from osbert.text.document import Document

SHAPES = {
    "electra": {"embedding": 8, "pooling": "gelu"},
    "as wide": {},
    "fast": {"positions": "rotary", "neighbours": 2.0, "width": 32, "heads": 4},
    "modern": {"normalization": "pre", "biases": False, "gated": True, "positions": "rotary", "window": 4}
    | {"global_every": 2, "segments": 0, "head_biases": False},
    "shared blocks": {"distinct": 1, "embedding": 8},
    "fewer keys": {"width": 32, "heads": 8, "key_heads": 2, "positions": "rotary"},
}


@pytest.fixture(scope="module")
def raw(packer: Packer, text: list[Document]) -> Examples:
    return Examples.of([*packer.spans(text, np.random.default_rng(0))][:40])


@pytest.fixture(scope="module")
def examples(raw: Examples, packer: Packer) -> Examples:
    return ReplacedTokens().corrupt_all(raw, packer, Noise.at(0, np.arange(len(raw))))


def made(packer: Packer, **shape: object) -> Learner:
    """Return a learner without dropout whose generator never draws [MASK]."""
    torch.manual_seed(0)
    sizes = Architecture(layers=2, heads=2, width=16, vocabulary=len(packer.tokenizer), length=64, deviation=0.2)
    backbone = replace(sizes, dropout=0.0, attention_dropout=0.0, **shape).build()
    objective = ReplacedTokens()
    learner = Learner(backbone, {"replaced": objective.head(backbone)})
    learner.weights = {"replaced": objective.weight}
    learner.companions["generator"].heads["generator"].bias.data[packer.tokenizer.mask] = -1e9
    return learner


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_discriminator_reads_the_text_with_the_generators_pieces(
    raw: Examples, examples: Examples, packer: Packer, shape: dict[str, object]
) -> None:
    """No leak: no [MASK], nothing but the text elsewhere, and labels that say where the two differ."""
    learner, batch, text = made(packer, **shape), collate(examples), collate(raw)
    assert torch.equal(batch.records, text.records) and (batch.ids == packer.tokenizer.mask).any()
    seen, losses = learner.before(batch)
    assert losses.keys() == {"generator"} and seen.lengths == batch.lengths
    assert not (seen.ids == packer.tokenizer.mask).any()
    chosen = torch.zeros(len(batch.ids), dtype=torch.bool)
    chosen[batch.targets["generator"].index] = True
    assert torch.equal(seen.ids[~chosen], text.ids[~chosen])
    target = seen.targets["replaced"]
    assert torch.equal(target.index, torch.arange(len(batch.ids))) and target.count == batch.tokens
    assert torch.equal(target.labels, (seen.ids != text.ids).long())
    assert 0 < int(target.labels.sum()) <= int(chosen.sum())
    special = torch.isin(text.ids, torch.tensor([packer.tokenizer.cls, packer.tokenizer.sep]))
    assert not target.labels[special].any() and not chosen[special].any()


def test_what_is_drawn_as_it_was_counts_as_original(examples: Examples, packer: Packer) -> None:
    learner, batch = made(packer), collate(examples)
    asked = batch.targets["generator"]
    piece = int(asked.labels[0])
    learner.companions["generator"].heads["generator"].bias.data[piece] = 1e9
    seen, _ = learner.before(batch)
    assert (seen.ids[asked.index] == piece).all()
    assert torch.equal(seen.targets["replaced"].labels[asked.index], (asked.labels != piece).long())


def test_where_nothing_is_chosen_all_is_original(raw: Examples, packer: Packer) -> None:
    """Every token is one that is never chosen: nothing is drawn, and no number to draw by is a label."""
    special = replace(raw, special=np.ones_like(raw.special))
    batch = collate(ReplacedTokens().corrupt_all(special, packer, Noise.at(0, np.arange(len(raw)))))
    learner = made(packer)
    assert batch.targets.keys() == {"replaced"} and batch.targets["replaced"].labels.is_floating_point()
    seen, _ = learner.before(batch)
    labels = seen.targets["replaced"].labels
    assert torch.equal(seen.ids, batch.ids) and len(labels) == batch.tokens and not labels.any()
    losses = learner(batch)
    assert losses.keys() == {"replaced"} and float(losses["replaced"].ratios["share"][0]) == 0
    with pytest.raises(AssertionError):  # numbers are no labels
        learner.heads["replaced"](learner.states(batch), batch)


def test_no_gradient_reaches_the_generator_through_the_discriminator(examples: Examples, packer: Packer) -> None:
    """Its gradient is the same whatever the discriminator's weight; that of the shared tables is not."""
    learner, batch = made(packer, embedding=8), collate(examples)
    names = dict(learner.named_parameters())
    shared = {f"backbone.embeddings.{table}.weight" for table in ("pieces", "positions", "segments")}
    own = {name for name in names if name.startswith("companions.")}
    assert shared <= names.keys() and not any("pieces" in name for name in own)
    tables = learner.companions["generator"].backbone.embeddings
    for table in ("pieces", "positions", "segments"):
        assert getattr(tables, table) is getattr(learner.backbone.embeddings, table)
    found = {}
    for weight in (0.0, 50.0):
        learner.zero_grad()
        losses = learner(batch)
        assert (losses["generator"].weight, losses["replaced"].weight) == (1.0, 50.0)
        means = {name: loss.total / loss.count for name, loss in losses.items()}
        (means["generator"] + weight * means["replaced"]).backward()
        found[weight] = {name: part.grad.clone() for name, part in names.items() if part.grad is not None}
    for name in own:
        if not name.startswith("companions.generator.backbone.pooler."):
            assert torch.equal(found[0.0][name], found[50.0][name]) and found[0.0][name].any(), name
    for name in shared:
        assert not torch.allclose(found[0.0][name], found[50.0][name]), name


def test_pieces_do_not_depend_on_how_a_step_is_cut_into_passes(examples: Examples, packer: Packer) -> None:
    learner, batch = made(packer).eval(), collate(examples)
    with torch.no_grad():
        whole, _ = learner.before(batch)
        parts = [learner.before(part)[0] for part in halves(batch)]
        torch.manual_seed(1)
        again, _ = learner.before(batch)
    assert torch.equal(whole.ids, again.ids)
    assert len(parts) == 2 and torch.equal(torch.cat([part.ids for part in parts]), whole.ids)


def test_a_look_at_figures_knows_how_rare_the_replaced_are(examples: Examples, packer: Packer) -> None:
    learner, batch = made(packer), collate(examples)
    loss = learner(batch)["replaced"]
    seen, _ = learner.before(batch)
    labels = seen.targets["replaced"].labels.bool()
    taken = learner.heads["replaced"].outputs(learner.states(seen), seen).squeeze(1) > 0
    expected = {
        "share": (labels.sum(), len(labels)),
        "precision": ((labels & taken).sum(), taken.sum()),
        "recall": ((labels & taken).sum(), labels.sum()),
    }
    assert {name: tuple(map(float, sums)) for name, sums in loss.ratios.items()} == {
        name: tuple(map(float, sums)) for name, sums in expected.items()
    }
    assert loss.hits is None


@pytest.mark.parametrize("shown", ["mask", "same"])
def test_of_the_chosen_85_percent_show_mask_and_none_a_random_piece(
    packer: Packer, text: list[Document], shown: str
) -> None:
    """Chi-square with one degree of freedom, at a fixed seed: 10.8 is exceeded once in a thousand."""
    raw = Examples.of([*packer.spans(text, np.random.default_rng(0))])
    found = ReplacedTokens().corrupt_all(raw, packer, Noise.at(3, np.arange(len(raw))))
    target = found.targets["generator"]
    ids = found.ids[target.index]
    hit = ids == (packer.tokenizer.mask if shown == "mask" else target.labels)
    share = 0.85 if shown == "mask" else 0.15
    assert ((ids == packer.tokenizer.mask) | (ids == target.labels)).all()
    expected = share * len(ids)
    assert len(ids) > 5_000 and (hit.sum() - expected) ** 2 / (expected * (1 - share)) < 10.8


def test_pieces_are_drawn_as_the_softmax_says(packer: Packer) -> None:
    """Chi-square over the vocabulary's frequent pieces, 20,000 draws by uniform numbers."""
    learner = made(packer, vocabulary=60)
    head = learner.companions["generator"].heads["generator"]
    head.bias.data.fill_(-1e9)
    head.bias.data[10:40] = torch.randn(30)
    hidden = torch.randn(1, 4)
    shares = head.scores(hidden).softmax(dim=1)[0].detach().double()
    rng = np.random.default_rng(0)
    numbers = torch.from_numpy(rng.random(20_000).astype(np.float32))
    pieces = sample_pieces(head, hidden.expand(len(numbers), -1), numbers)
    expected = len(numbers) * shares
    frequent = expected > 5
    counts = torch.bincount(pieces, minlength=len(shares))
    statistic = float(((counts - expected) ** 2 / expected)[frequent].sum())
    freedom = int(frequent.sum())
    assert freedom > 5 and abs(statistic - freedom) < 4 * (2 * freedom) ** 0.5


def test_numbers_at_both_ends_draw_pieces_that_can_be(packer: Packer) -> None:
    head = made(packer).companions["generator"].heads["generator"]
    head.bias.data.fill_(-1e9)
    head.bias.data[[7, 9]] = 0.0
    pieces = sample_pieces(head, torch.zeros(3, 4), torch.tensor([0.0, 0.75, 1.0 - 2**-24]))
    assert pieces.tolist() == [7, 9, 9]


@pytest.mark.parametrize(
    ("settings", "word"), [({"generator": 0.0}, "generator"), ({"generator": 1.5}, "1.5"), ({"rate": 0.0}, "rate")]
)
def test_impossible_settings_are_refused(settings: dict[str, float], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        ReplacedTokens(**settings)


def test_a_width_that_makes_no_generator_is_refused_in_words() -> None:
    sizes = Architecture(layers=1, heads=12, width=48, vocabulary=60, length=24)
    (objection,) = ReplacedTokens(generator=0.3).objections(sizes)
    assert "replaced.generator = 0.3" in objection and "14" in objection
    assert not list(ReplacedTokens(generator=1.0).objections(sizes))


def test_one_example_is_numbered_at_every_token(raw: Examples, packer: Packer) -> None:
    example: Example = ReplacedTokens().corrupt(raw[0], packer, np.random.default_rng(0))
    numbers = example.targets["replaced"].labels
    assert len(numbers) == len(example) and (numbers >= 0).all() and (numbers <= 1).all()
    assert len(np.unique(numbers)) == len(numbers)
