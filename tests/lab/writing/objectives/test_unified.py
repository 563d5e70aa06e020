"""Unified prediction: the mix of the modes, who sees whom in each, what is predicted, and transformers as a check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.models.architecture import Architecture
from osbert.models.contract import Backbone, Learner
from osbert.models.families.transformer import Transformer
from osbert.text.document import Document
from osbert_lab.writing.modes import SEGMENTS, SOURCE, TARGET, source_of, with_target
from osbert_lab.writing.objectives.unified import UnifiedLanguage
from unique import pairs

MODES = tuple(SEGMENTS)
SIZES = Architecture(
    layers=2, heads=2, width=16, vocabulary=60_000, length=64, segments=6, dropout=0.0, attention_dropout=0.0
)


def only(mode: str, **settings: Any) -> UnifiedLanguage:
    return UnifiedLanguage(**{**dict.fromkeys(MODES, 0.0), mode: 1.0, **settings})


def mode_of(example: Example) -> str:
    return next(mode for mode, segments in SEGMENTS.items() if example.segments[-1] in segments)


def model(**changes: Any) -> Backbone:
    torch.manual_seed(0)
    backbone: Backbone = replace(SIZES, deviation=0.3, **changes).build()
    return backbone.eval()


@pytest.fixture(scope="module")
def mixed(packer: Packer, text: list[Document]) -> list[Example]:
    return [example for seed in range(3) for example in pairs(UnifiedLanguage(), text, packer, seed)]


def test_modes_are_drawn_by_the_mix(mixed: list[Example]) -> None:
    """Chi-square with three degrees of freedom, at a fixed seed: 16.3 is exceeded once in a thousand."""
    counts = np.array([sum(mode_of(example) == mode for example in mixed) for mode in MODES])
    expected = np.array([2, 1, 1, 2]) / 6 * len(mixed)
    assert len(mixed) > 2_000 and ((counts - expected) ** 2 / expected).sum() < 16.3
    shares = {name: (float(found[:-1]), wanted) for name, found, wanted in UnifiedLanguage().rates(mixed)}
    assert shares["mode both"][1] == "33.33%" and sum(found for found, _ in shares.values()) == pytest.approx(100, 0.01)


def test_a_sequence_is_one_stretch_of_a_document_parted_where_its_mode_has_two_texts(
    packer: Packer, text: list[Document], mixed: list[Example]
) -> None:
    home = {int(piece): number for number, document in enumerate(text) for piece in document.ids}
    for example in mixed:
        segments = SEGMENTS[mode_of(example)]  # type: ignore[index]
        pieces = example.ids[~example.special]
        assert np.diff(pieces).tolist() == [1] * (len(pieces) - 1)  # its second text goes on where the first ends
        assert home[int(pieces[0])] == home[int(pieces[-1])]
        assert len(example) <= packer.length and example.special.sum() == 1 + len(segments)
        assert sorted(set(example.segments.tolist())) == list(segments)
        assert (np.diff(example.segments) >= 0).all()
    joined = pairs(only("left_to_right"), text, packer)
    truncated = sum(example.truncated for example in joined)
    assert sum((~example.special).sum() for example in joined) + truncated == sum(len(one.ids) for one in text)


def states(backbone: Backbone, example: Example) -> Tensor:
    with torch.no_grad():
        return backbone(collate([example])).hidden


def sight(example: Example, mode: str) -> np.ndarray[Any, Any]:
    """Return the published mask (n, n) of a mode, queries in rows (microsoft/unilm, figure 1)."""
    n = len(example)
    lower = np.tril(np.ones((n, n), bool))
    if mode == "sequence_to_sequence":
        source = int((example.segments == SOURCE).sum())
        return lower | (np.arange(n) < source)[None]
    return {"both": np.ones((n, n), bool), "left_to_right": lower, "right_to_left": lower.T}[mode]


@pytest.mark.parametrize("prediction", ["masked", "shifted"])
@pytest.mark.parametrize("mode", MODES)
def test_no_state_depends_on_what_its_mode_hides(
    mode: str, prediction: str, packer: Packer, text: list[Document]
) -> None:
    """Another piece at a place leaves the states that do not see it as they are, to the bit, and changes the others."""
    objective, backbone = only(mode, prediction=prediction), model()
    raw = Examples.of(pairs(objective, text[:3], packer)[:2])
    for example in objective.corrupt_all(raw, packer, Noise.at(0, np.arange(2))):
        visible, before = sight(example, mode), states(backbone, example)
        for place in (1, len(example) // 2, len(example) - 1):
            ids = example.ids.copy()
            ids[place] += 7
            same = (states(backbone, replace(example, ids=ids)) == before).all(dim=1).numpy()
            assert (same == ~visible[:, place]).all()


def test_a_bert_with_six_segments_and_the_published_masks_gives_the_same(packer: Packer, text: list[Document]) -> None:
    transformers = pytest.importorskip("transformers")
    from osbert.interop.huggingface import configs
    from osbert.interop.huggingface.folders import to_huggingface

    backbone = model(vocabulary=500)
    config, tensors = to_huggingface(Learner(backbone, {}))
    assert config == configs.config(backbone.architecture) | {"architectures": ["BertModel"]}
    theirs = transformers.BertModel(transformers.BertConfig(**config)).eval()
    assert theirs.config.type_vocab_size == 6
    theirs.load_state_dict(tensors)
    objective = UnifiedLanguage()
    drawn = objective.corrupt_all(Examples.of(pairs(objective, text, packer)[:60]), packer, Noise.at(0, np.arange(60)))
    found = {mode_of(example): replace(example, ids=example.ids % 500) for example in drawn}
    assert set(found) == set(MODES)
    for mode, example in found.items():
        with torch.no_grad():
            expected = theirs(
                input_ids=torch.from_numpy(example.ids)[None].long(),
                token_type_ids=torch.from_numpy(example.segments)[None].long(),
                attention_mask=torch.from_numpy(sight(example, mode))[None, None],
            ).last_hidden_state[0]
        torch.testing.assert_close(states(backbone, example), expected, rtol=0, atol=2e-5)


def test_sequences_of_all_modes_in_one_batch_are_each_as_alone(packer: Packer, text: list[Document]) -> None:
    objective, backbone = UnifiedLanguage(), model()
    raw = Examples.of(pairs(objective, text, packer)[:12])
    drawn = [
        replace(one, record=row)
        for row, one in enumerate(objective.corrupt_all(raw, packer, Noise.at(0, np.arange(12))))
    ]
    batch = collate(drawn)
    with torch.no_grad():
        together = backbone(batch).hidden.split(list(batch.lengths))
    for row, hidden in zip(batch.records.tolist(), together, strict=True):
        torch.testing.assert_close(hidden, states(backbone, drawn[row]), rtol=0, atol=1e-5)


def test_masks_are_as_many_as_set_and_the_end_of_a_target_is_among_them(packer: Packer, text: list[Document]) -> None:
    objective = only("sequence_to_sequence", rate=0.3)
    raw = Examples.of(pairs(objective, text, packer))
    found = objective.corrupt_all(raw, packer, Noise.at(0, np.arange(len(raw))))
    target = found.targets["unified"]
    assert target.index is not None
    assert (target.labels == raw.ids[target.index]).all()
    assert target.counts.tolist() == np.maximum(1, np.rint(raw.lengths * 0.3)).astype(int).tolist()
    chosen = np.zeros(len(raw.ids), bool)
    chosen[target.index] = True
    last = raw.starts + raw.lengths - 1
    others = raw.special.copy()
    others[last] = False
    assert not chosen[others].any()
    share, rate = chosen[last].mean(), len(target.labels) / (~others).sum()
    assert abs(share - rate) < 4 * np.sqrt(rate / len(last))  # as often as any other piece
    for mode in ("both", "left_to_right", "right_to_left"):
        objective = only(mode, rate=0.3)
        raw = Examples.of(pairs(objective, text[:30], packer))
        index = objective.corrupt_all(raw, packer, Noise.at(0, np.arange(len(raw)))).targets["unified"].index
        assert not raw.special[index].any()


@pytest.mark.parametrize("unit", ["pieces", "words"])
def test_without_sources_a_share_of_the_target_is_masked(packer: Packer, text: list[Document], unit: str) -> None:
    objective = only("sequence_to_sequence", rate=0.7, sources=False, mask=1.0, random=0.0, unit=unit)
    raw = Examples.of(pairs(objective, text, packer))
    found = objective.corrupt_all(raw, packer, Noise.at(0, np.arange(len(raw))))
    target = found.targets["unified"]
    assert (found.segments[target.index] == TARGET).all()
    own = np.add.reduceat((raw.segments == TARGET).astype(int), raw.starts)
    if unit == "pieces":
        assert target.counts.tolist() == np.maximum(1, np.rint(own * 0.7)).astype(int).tolist()
    assert 0.6 < raw.special[target.index].sum() / len(raw) < 0.8  # the end is masked like any other piece


@pytest.mark.parametrize("mode", MODES)
def test_shifted_every_piece_has_a_label_where_the_one_before_it_is(
    mode: str, packer: Packer, text: list[Document]
) -> None:
    objective = only(mode, prediction="shifted")
    raw = Examples.of(pairs(objective, text[:20], packer))
    found = objective.corrupt_all(raw, packer, Noise.at(0, np.arange(len(raw))))
    if mode == "both":
        assert found.targets["unified"].counts.tolist() == np.maximum(1, np.rint(raw.lengths * 0.15)).tolist()
        return
    assert np.array_equal(found.ids, raw.ids)
    for example in found:
        target, n = example.targets["unified"], len(example)
        source = int((example.segments == SOURCE).sum())
        index, shift = {
            "left_to_right": (np.arange(n - 2), 1),
            "right_to_left": (np.arange(2, n), -1),
            "sequence_to_sequence": (np.arange(source - 1, n - 1), 1),
        }[mode]
        assert np.array_equal(target.index, index) and np.array_equal(target.labels, example.ids[index + shift])


def test_labels_of_masked_and_shifted_sequences_lie_side_by_side(packer: Packer, text: list[Document]) -> None:
    objective = UnifiedLanguage(prediction="shifted")
    raw = Examples.of(pairs(objective, text, packer)[:40])
    found = objective.corrupt_all(raw, packer, Noise.at(0, np.arange(40)))
    for row, example in enumerate(found):
        alone = only(mode_of(example), prediction="shifted")
        one = alone.corrupt_all(raw[row : row + 1], packer, Noise(Noise.at(0, np.arange(40)).seeds[row : row + 1]))[0]
        for found_part, part in zip(vars(example.targets["unified"]).values(), vars(one.targets["unified"]).values()):
            assert np.array_equal(found_part, part)


def test_a_source_is_cut_before_its_target_and_both_say_so(packer: Packer) -> None:
    small = replace(packer, length=12)
    ids = np.arange(10, 20)
    source = source_of(ids, small, most=6)
    assert source.ids.tolist() == [2, 10, 11, 12, 13, 3] and source.truncated == 6 and source.order is None
    whole = with_target(source, np.arange(30, 40), small)
    assert whole.ids.tolist() == [2, 10, 11, 12, 13, 3, 30, 31, 32, 33, 34, 3] and whole.truncated == 11
    assert whole.order is not None and whole.order.tolist() == [0] * 6 + [1, 2, 3, 4, 5, 6]
    assert whole.segments.tolist() == [SOURCE] * 6 + [TARGET] * 6
    assert np.flatnonzero(whole.special).tolist() == [0, 5, 11]
    assert with_target(source, ids[:2], small, closed=False).ids.tolist() == [2, 10, 11, 12, 13, 3, 10, 11]


def test_what_cannot_be_is_refused() -> None:
    for mix in ({"both": -1.0}, dict.fromkeys(MODES, 0.0), {"both": float("inf")}):
        with pytest.raises(ValueError, match="both, left_to_right"):
            UnifiedLanguage(**mix)  # type: ignore[arg-type]
    assert not list(UnifiedLanguage().objections(SIZES))
    for setting, value in {"segments": 5, "direction": "left_to_right", "recurrent": 1}.items():
        [objection] = UnifiedLanguage().objections(replace(SIZES, **{setting: value}))  # type: ignore[arg-type]
        assert f"model.{setting}" in objection
    assert isinstance(SIZES.empty(), Transformer)
