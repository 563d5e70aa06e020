"""Each family is analysed: its heads where it has them, its geometry and a probe; what does not apply says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import osbert
from osbert import components
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.contract import Backbone, Learner
from osbert.text.tokenizer import SPECIALS, Tokenizer

LENGTH = 24
TAGS = {"film": "NOUN", "play": "NOUN", "actor": "NOUN", "good": "ADJ", "bad": "ADJ", "poor": "ADJ"}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "XLNet": ("transformer", {"positions": "distances", "query_vector": True, "segment_scores": True}),
    "DeBERTa": ("transformer", {"positions": "disentangled", "buckets": 4, "farthest": 8}),
    "ERNIE": ("transformer", {"tasks": 3}),
    "BART": ("pair", {}),
    "ELMo": ("bilm", {"cells": 32, "characters": 4, "filters": 64}),
    "CoVe": ("translator", {}),
    "word2vec": ("static", {}),
}
WITHOUT_ATTENTION = ("ELMo", "CoVe", "word2vec")


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trees of eight words, nouns and adjectives at random, in two parts."""
    folder = tmp_path_factory.mktemp("trees")
    rng = np.random.default_rng(0)
    for part in ("train", "dev"):
        words = rng.choice([*TAGS], (25, 8))
        rows = (
            "".join(f"{n}\t{word}\t_\t{TAGS[word]}\t_\t_\t{n - 1}\tdep\t_\t_\n" for n, word in enumerate(one, 1)) + "\n"
            for one in words
        )
        (folder / f"{part}.conllu").write_text("".join(rows))
    return folder


@pytest.mark.parametrize("name", FAMILIES)
def test_heads_geometry_and_a_probe(name: str, trees: Path, tmp_path: Path) -> None:
    family, settings = FAMILIES[name]
    kind: type[Backbone] = components.find("models.families", family, base=Backbone)
    tokenizer = Tokenizer([*SPECIALS, *TAGS])
    torch.manual_seed(0)
    sizes = kind.settings().replace(vocabulary=len(tokenizer), width=16, length=LENGTH, **settings)
    if hasattr(sizes, "heads"):
        sizes = sizes.replace(layers=2, heads=2)
    write_model(Learner(sizes.build().eval(), {}), tmp_path / "model")
    write_tokenizer(tokenizer, tmp_path / "model", length=LENGTH)
    found = osbert.analyse(
        tmp_path / "model", data=trees, out=tmp_path / "out", only="heads,geometry,tags", shortest=3, device="cpu"
    )
    layers = sizes.layers + 1
    assert [one.where["layer"] for one in found.figures["tags"] if one.name == "tags"] == [*range(layers)]
    assert [one.where["layer"] for one in found.figures["geometry"] if one.name == "mean_cosine"] == [*range(layers)]
    reasons = [note for note in found.notes if note.startswith("heads: ")]
    if name in WITHOUT_ATTENTION:
        assert reasons and "heads" not in found.figures
    else:
        assert not reasons and found.figure("layer_entropy", layer=2).n == 50
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<figure") == page.count('<p class="soft">') > 0
