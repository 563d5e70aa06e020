"""What every objective in the folder keeps to: light, repeatable, valid examples, and a head that learns from them."""

from __future__ import annotations

import dataclasses
import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np
import pytest
import torch

from osbert import components
from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.data.examples import COLUMNS, Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner, Sizes
from osbert.models.forms import Form
from osbert.objectives import Objective
from osbert.objectives.mlm import MaskedLanguage
from osbert.text.document import Document
from osbert.text.tokenizer import SPECIALS, Tokenizer

NAMES = [name for name in components.names("objectives") if name != "soft_pieces"]
"""All but the one that needs a teacher (tests/lab/distillation)."""
VOCABULARY = 300


@pytest.fixture(params=NAMES)
def objective(request: pytest.FixtureRequest) -> Objective:
    """Return each objective with its usual settings."""
    return components.find("objectives", request.param, base=Objective)()


@pytest.fixture(scope="module")
def packer() -> Packer:
    pieces = [f"w{number}" if number % 3 else f"##w{number}" for number in range(VOCABULARY - len(SPECIALS))]
    # Words by which an objective finds its pairs.
    pieces[1:36:3] = [
        "but",
        "and",
        "so",
        "then",
        "yet",
        "still",
        "however",
        "therefore",
        "thus",
        "besides",
        "also",
        "indeed",
    ]
    return Packer(tokenizer=Tokenizer([*SPECIALS, *pieces]), length=48)


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    rng, found = np.random.default_rng(0), []
    for _ in range(12):
        bounds = np.concatenate([[0], np.cumsum(rng.integers(1, 30, size=rng.integers(2, 20)))])
        ids = rng.integers(len(SPECIALS), VOCABULARY, size=bounds[-1]).astype(np.uint16)
        words = (ids - len(SPECIALS)) % 3 > 0
        found.append(Document(ids=ids, sentences=bounds, words=words, capitals=words & (rng.random(len(ids)) < 0.3)))
    return found


def laid_out(objective: Objective, documents: list[Document], packer: Packer, seed: int = 0) -> Examples:
    """Return the sequences of the documents for this objective alone."""
    rng = np.random.default_rng(seed)
    found = objective.examples(documents, packer, rng)
    return Examples.of([*(packer.spans(documents, rng) if found is None else found)])


def examples(objective: Objective, documents: list[Document], packer: Packer, seed: int = 0) -> Sequence[Example]:
    """Return what the loader makes of the documents with this objective alone."""
    sequences = laid_out(objective, documents, packer, seed)
    return objective.corrupt_all(sequences, packer, Noise.at(seed, np.arange(len(sequences))))


def text(objective: Objective, example: Example) -> np.ndarray[Any, Any]:
    """Return the pieces of an example as they were before any was masked."""
    ids = example.ids.copy()
    if isinstance(objective, MaskedLanguage):
        target = example.targets[objective.pieces]
        ids[target.index] = target.labels
    return ids


def without_queries(example: Example) -> Example:
    """Return an example without its unseen tokens, which are after its text."""
    if example.unseen is None:
        return example
    assert (np.diff(example.unseen.astype(int)) >= 0).all()
    columns = {name: getattr(example, name) for name in COLUMNS}
    seen = {name: None if column is None else column[~example.unseen] for name, column in columns.items()}
    return dataclasses.replace(example, **seen)


def plain(example: Example) -> list[Any]:
    """Return everything an example holds as plain values."""
    columns = [example.ids, example.segments, example.words, example.special]
    columns += [example.order, example.positions, example.unseen]
    targets = {
        name: [None if part is None else part.tolist() for part in (target.labels, target.index, target.weights)]
        for name, target in example.targets.items()
    }
    return [[None if column is None else column.tolist() for column in columns], targets, example.truncated]


def test_there_are_objectives() -> None:
    assert {"mlm", "nsp", "sentence_order", "left_to_right", "replaced", "same_text"} <= set(NAMES)


@pytest.mark.lab
def test_the_lab_adds_objectives() -> None:
    writing = {"spans", "denoise", "fragment", "unified", "translation"}
    others = {"both_ways", "capitals", "document_words", "reorder", "distance", "dialogue", "permuted"}
    assert writing | others | {"span_boundary", "word_order"} <= set(NAMES)


def test_it_is_frozen_has_keyword_settings_with_help_and_is_named_for_its_file(objective: Objective) -> None:
    assert objective.name == type(objective).__module__.rpartition(".")[2]
    for field in dataclasses.fields(objective):
        assert field.kw_only
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(objective, field.name, getattr(objective, field.name))
    assert type(objective)() == objective


def test_it_can_be_pickled_and_stays_equal(objective: Objective) -> None:
    again = pickle.loads(pickle.dumps(objective))
    assert again == objective
    assert again.name == objective.name


def test_as_it_comes_it_is_the_same_all_through_a_run(objective: Objective) -> None:
    assert all(objective.at(done) is objective for done in (0.0, 0.5, 1.0))
    assert not objective.course()


@pytest.mark.parametrize("name", NAMES)
def test_its_data_side_imports_no_torch(name: str) -> None:
    module = components.find("objectives", name, base=Objective).__module__
    program = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_it_does_the_same_with_the_same_generator(
    objective: Objective, documents: list[Document], packer: Packer
) -> None:
    one, same, other = ([plain(e) for e in examples(objective, documents, packer, seed)] for seed in (0, 0, 1))
    assert one == same and (one != other or objective.name == "translation")  # which draws nothing


def test_its_examples_are_valid(objective: Objective, documents: list[Document], packer: Packer) -> None:
    found = examples(objective, documents, packer)
    assert found
    for corrupted in found:
        example = without_queries(corrupted.source or corrupted)
        n = len(example)
        assert 3 <= n <= packer.length
        columns = (example.ids, example.segments, example.words, example.special)
        assert {column.shape for column in columns} == {(n,)}
        assert example.ids.min() >= 0 and example.ids.max() < VOCABULARY
        assert example.special[0] and example.ids[0] == packer.tokenizer.cls
        assert example.special[-1] and (text(objective, example)[example.special][1:] == packer.tokenizer.sep).all()
        assert not example.words[example.special].any()
        assert example.order is None or example.order.shape == (n,)
        assert set(corrupted.targets) == {objective.name, *objective.companions}
        target, n = corrupted.targets[objective.name], len(corrupted)
        assert target.labels.ndim == 1 and len(target.labels)
        assert target.weights is None or target.weights.shape == target.labels.shape
        if target.index is None:
            assert len(target.labels) == 1
        else:
            assert target.index.shape == target.labels.shape
            assert target.index.min() >= 0 and target.index.max() < n
        assert plain(pickle.loads(pickle.dumps(corrupted))) == plain(corrupted)


def test_many_are_corrupted_as_each_would_be_alone(
    objective: Objective, documents: list[Document], packer: Packer
) -> None:
    sequences = laid_out(objective, documents, packer)
    noise = Noise.at(1, np.arange(len(sequences)))
    together = objective.corrupt_all(sequences, packer, noise)
    for row in range(len(sequences)):
        alone = objective.corrupt_all(sequences[row : row + 1], packer, Noise(noise.seeds[row : row + 1]))
        assert plain(together[row]) == plain(alone[0])


def test_one_can_be_corrupted_too(objective: Objective, documents: list[Document], packer: Packer) -> None:
    for example in laid_out(objective, documents, packer):
        one, same, other = (objective.corrupt(example, packer, np.random.default_rng(seed)) for seed in (0, 0, 1))
        assert plain(one) == plain(same)
        assert one.source or [len(without_queries(found)) for found in (one, other)] == [len(example)] * 2
        assert set(one.targets) == {objective.name, *objective.companions}


def test_a_corrupt_that_would_be_passed_over_is_refused() -> None:
    with pytest.raises(TypeError, match="Implement corrupt_all"):

        class Louder(MaskedLanguage):
            def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
                return example


def transformer(length: int) -> Architecture:
    return Architecture(layers=1, heads=2, width=16, vocabulary=VOCABULARY, length=length)


def fitting(objective: Objective, *, length: int) -> Sizes:
    """Return a small encoder that the objective has nothing against."""
    sizes = transformer(length)
    variants: list[dict[str, Any]] = [{}, {"direction": "left_to_right"}, {"segments": 6}]
    choices: list[Sizes] = [dataclasses.replace(sizes, **variant) for variant in variants]
    if importlib.util.find_spec("osbert_lab"):
        from osbert_lab.recurrent.bilm_architecture import BilmArchitecture
        from osbert_lab.recurrent.translator_architecture import TranslatorArchitecture
        from osbert_lab.writing.pair_architecture import PairArchitecture

        choices.append(PairArchitecture(**dataclasses.asdict(sizes)))
        choices.append(PairArchitecture(**dataclasses.asdict(sizes) | {"reading": "both", "summary": "last"}))
        choices.append(BilmArchitecture(width=16, cells=12, filters=64, vocabulary=VOCABULARY, length=length))
        choices.append(TranslatorArchitecture(width=16, vocabulary=VOCABULARY, length=length))
    return next(choice for choice in choices if not list(objective.objections(choice)))


def test_it_objects_to_an_encoder_in_words_and_its_head_refuses_the_same(objective: Objective) -> None:
    sizes = fitting(objective, length=8)
    assert not list(objective.objections(sizes))
    for change in ({"direction": "both"}, {"direction": "left_to_right"}, {"recurrent": 1}):
        other = dataclasses.replace(sizes if isinstance(sizes, Architecture) else transformer(8), **change)
        objections = list(objective.objections(other))
        assert all("model." in objection for objection in objections)
        if objections:
            with pytest.raises(ValueError, match="model"):
                objective.head(other.empty())


def test_its_head_gives_a_finite_loss_and_gradients(
    objective: Objective, documents: list[Document], packer: Packer
) -> None:
    torch.manual_seed(0)
    backbone = fitting(objective, length=packer.length).build()
    head = objective.head(backbone)
    assert head.form in get_args(Form)
    objective.begin(head, np.arange(VOCABULARY))
    learner = Learner(backbone, {objective.name: head})
    batch = collate(examples(objective, documents, packer)[:8])
    losses = learner(batch)
    assert set(losses) == {objective.name, *objective.companions} == {objective.name, *head.companions}
    for name, loss in losses.items():
        assert loss.count == batch.targets[name].count
        assert loss.hits is None or 0 <= int(loss.hits) <= len(batch.targets[name].labels)
        assert torch.isfinite(loss.total)
        for above, below in loss.ratios.values():
            assert 0 <= float(above) <= float(below) <= len(batch.targets[name].labels)
    sum(loss.total / loss.count for loss in losses.values()).backward()
    heads = [head, *(part.heads[name] for name, part in head.companions.items())]
    parameters = [found for one in heads for found in one.named_parameters()]
    for name, parameter in [*parameters, ("pieces", next(backbone.stack[0].parameters()))]:
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


MODES = ("both", "left_to_right", "right_to_left", "sequence_to_sequence")
HIDING: dict[str, dict[str, Any]] = {"denoise": {"infilling": 0.0, "masking": 1.0}}
"""The settings of objectives that write whole texts with which nothing of a text is read."""
VARIANTS = [
    *((name, HIDING.get(name, {})) for name in NAMES if name != "word_order"),  # its answers stand in the text
    *(("mlm", {"unit": "words"}), ("mlm", {"unit": "ngrams", "rate": 0.4})),
    *(
        ("unified", {**dict.fromkeys(MODES, 0.0), mode: 1.0, "prediction": prediction})
        for mode in MODES
        for prediction in ("masked", "shifted")
        if "unified" in NAMES
    ),
]


def scored(learner: Learner, example: Example) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the labels (M,) of a corrupted example and their scores (M, ...), of the companions and of the encoder."""
    raw = collate([example])
    with torch.no_grad():
        batch, _ = learner.before(raw)
        for one, read in (*((companion, raw) for companion in learner.companions.values()), (learner, batch)):
            ((name, head),) = one.heads.items()
            target, outputs = read.targets[name], head.outputs(one.states(read), read)
            # Heads that score every token are compared at the labelled ones.
            every = target.per_token and len(outputs) == read.tokens
            yield target.labels, outputs[target.index] if every else outputs


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_no_score_depends_on_what_it_is_to_predict(
    name: str, settings: dict[str, Any], documents: list[Document], packer: Packer
) -> None:
    """The leak test: another piece in the raw text, with the same noise, changes a label but not a bit of its scores.

    Pieces that stay or are replaced at random at a predicted position may be seen there: all of them are masked here.
    Scores must, on the other hand, depend on some piece of the text.
    """
    kind = components.find("objectives", name, base=Objective)
    known = {field.name for field in dataclasses.fields(kind)}
    objective = kind(**settings, **({"mask": 1.0, "random": 0.0} if "mask" in known else {}))
    torch.manual_seed(0)
    sizes = dataclasses.replace(fitting(objective, length=packer.length), layers=2, deviation=0.3)
    backbone = sizes.build()
    learner = Learner(backbone, {name: objective.head(backbone)}).eval()
    rng = np.random.default_rng(0)
    sequences = laid_out(objective, documents, packer)
    noise = Noise.at(0, np.arange(len(sequences)))
    relabelled = moved = 0
    for row in rng.choice(len(sequences), min(6, len(sequences)), replace=False).tolist():
        own, raw = Noise(noise.seeds[row : row + 1]), sequences[row]
        before = list(scored(learner, objective.corrupt_all(Examples.of([raw]), packer, own)[0]))
        for place in rng.permutation(np.flatnonzero(~raw.special))[:8].tolist():
            ids = raw.ids.copy()
            ids[place] += 3 if ids[place] + 3 < VOCABULARY else -3  # which is the first of a word if this one is
            changed = objective.corrupt_all(Examples.of([dataclasses.replace(raw, ids=ids)]), packer, own)[0]
            for (labels, scores), (others, again) in zip(before, scored(learner, changed), strict=True):
                new = labels != others
                assert torch.equal(scores[new], again[new])
                relabelled += int(new.sum())
                moved += int((scores != again).any())
    assert moved
    assert relabelled or objective.pairs or objective.answers == "others"  # whose labels do not follow from the text
