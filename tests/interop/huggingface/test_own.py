"""Models that Hugging Face's transformers has none like: written under our own type, refused there, read here whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers

from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.models.contract import Learner
from refusals import refusal

CHANGES = [
    {"normalization": "pre"},
    {"biases": False},
    {"normalization": "pre", "biases": False, "positions": "rotary"},
    {"positions": "distances", "segment_scores": True},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_it_comes_back_bit_for_bit_and_is_refused_by_name_elsewhere(
    tmp_path: Path, make_learner: Callable[..., Learner], changes: dict[str, object]
) -> None:
    learner = make_learner(["mlm", "nsp"], **changes)
    for weight in learner.parameters():
        torch.nn.init.normal_(weight)
    huggingface.write_model(learner, tmp_path)
    with pytest.raises(ValueError, match="osbert"):
        transformers.AutoModel.from_pretrained(tmp_path)

    loaded = open_folder(tmp_path)
    assert loaded.backbone.architecture == learner.backbone.architecture
    again = make_learner(["mlm", "nsp"], **changes)
    report = open_folder(tmp_path).fill(again)
    assert report.problems == () and report.select_names("new") == ()
    for name, weight in learner.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name
        if name.startswith("backbone."):
            assert torch.equal(loaded.backbone.state_dict()[name.removeprefix("backbone.")], weight), name


def test_the_user_is_told_why(make_learner: Callable[..., Learner]) -> None:
    told = [huggingface.osbert_only_reason(make_learner([], **change).backbone.architecture) for change in CHANGES]
    assert "no model with normalization = pre" in told[0]
    assert "no model with biases = False" in told[1]
    assert "no model with normalization = pre and biases = False" in told[2]
    for positions in ("learned", "rotary"):
        assert not huggingface.osbert_only_reason(make_learner([], positions=positions).backbone.architecture)


@pytest.mark.parametrize(
    ("field", "value"), [("osbert_normalization", "both"), ("osbert_biases", None), ("osbert_positions", "relative")]
)
def test_a_choice_that_is_none_is_named(
    tmp_path: Path, make_learner: Callable[..., Learner], field: str, value: object
) -> None:
    huggingface.write_model(make_learner([], biases=False), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {field: value}))
    with refusal("unsupported-model", field, repr(value)):
        _ = open_folder(tmp_path).backbone
