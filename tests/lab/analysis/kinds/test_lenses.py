"""What each layer would predict: the head on its states, below the model's own top, and the last layer through both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import osbert
from osbert.data.batch import micro_batches
from osbert.data.example import Example
from osbert.inference.engine import Engine, load
from osbert.inference.pieces import language_model
from osbert_lab.analysis.lens import AffineLens, layer_states, read_out
from osbert_lab.analysis.predicted_part import with_predicted_part
from osbert_lab.analysis.tuned_lens import TunedLens
from tiny_runs import write_run

TEXT = "the good film . a bad play . the poor actors ."


def made(folder: Path, **sizes: object) -> Engine:
    return load(write_run(folder, None, masks=True, layers=3, **sizes), device="cpu")


def masked_part(engine: Engine, fraction: float) -> Example | None:
    example = engine.packer.single(*engine.packer.run(TEXT))
    return with_predicted_part(example, "mlm", fraction, np.random.default_rng(0), mask=engine.tokenizer.mask)


@pytest.mark.parametrize("sizes", [{}, {"normalization": "pre"}, {"distinct": 1}])
def test_a_layer_is_read_as_if_the_models_top_stood_on_it(tmp_path: Path, sizes: dict[str, object]) -> None:
    engine = made(tmp_path / "run", **sizes)
    language = language_model(engine)
    backbone = engine.learner.backbone
    example = masked_part(engine, 0.4)
    assert example is not None
    [(labels, states, tokens)] = layer_states(language, [example])
    target = example.targets["mlm"]
    assert target.index is not None and target.labels.tolist() == labels.tolist() and tokens == len(example)
    assert (example.ids[target.index] == engine.tokenizer.mask).all()
    [batch] = micro_batches([example], 100)
    with torch.inference_mode():
        expected = [one[torch.from_numpy(target.index)] for one in backbone.layers(batch)]
        if sizes.get("normalization") == "pre":
            expected[:-1] = [backbone.norm(one) for one in expected[:-1]]
        top = backbone(batch).hidden[torch.from_numpy(target.index)]
    assert states == pytest.approx(torch.stack(expected).numpy(), abs=1e-5)
    assert states[-1] == pytest.approx(top.numpy(), abs=1e-5)


def test_the_last_layer_predicts_what_fills_a_mask(tmp_path: Path) -> None:
    engine = made(tmp_path / "run")
    language = language_model(engine)
    example = engine.packer.single(*engine.packer.run(TEXT))
    masked = masked_part(engine, 0.01)
    assert masked is not None
    (place,) = masked.targets["mlm"].index
    words = engine.tokenizer.tokens(example.ids[1:-1].tolist())
    words[place - 1] = "[MASK]"
    [fills] = engine.fill(" ".join(words), top=100)
    [(_, states, _)] = layer_states(language, [masked])
    (piece,), (entropy,), (divergence,) = read_out(language, [states[-1]])
    assert engine.tokenizer.tokens(piece.tolist()) == [fills[0].piece]
    assert entropy[0] == pytest.approx(-sum(one.probability * np.log(one.probability) for one in fills), abs=1e-4)
    assert divergence[0] == pytest.approx(0, abs=1e-6)


def test_an_affine_lens_finds_an_affine_map_and_begins_at_the_identity() -> None:
    rng = np.random.default_rng(0)
    states = rng.standard_normal((400, 6))
    last = states @ rng.standard_normal((6, 6)) + 3
    assert AffineLens(states, last, strength=1e-9)(states) == pytest.approx(last, abs=1e-5)
    assert AffineLens.fit(states, last)(states) == pytest.approx(last, abs=0.1)
    assert AffineLens(states, last, strength=1e9)(states) == pytest.approx(states + (last - states).mean(0), abs=1e-5)


def test_a_tuned_lens_is_nearer_to_the_predictions_than_the_map_that_it_starts_at(tmp_path: Path) -> None:
    language = language_model(made(tmp_path / "run"))
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    torch.nn.init.normal_(language.head.pieces)  # predictions that are sure of something
    width = language.learner.backbone.architecture.width
    last = rng.standard_normal((600, width)).astype(np.float32)
    states = np.tanh(last @ rng.standard_normal((width, width)).astype(np.float32))  # no affine map leads back
    start, lens = AffineLens.fit(states[:400], last[:400]), TunedLens.train(language, states[:400], last[:400])
    again = TunedLens.train(language, states[:400], last[:400])
    assert (again.weight == lens.weight).all() and (again.bias == lens.bias).all()
    _, _, divergences = read_out(language, [start(states[400:]), lens(states[400:]), last[400:]])
    assert divergences[1].mean() < 0.99 * divergences[0].mean()


@pytest.mark.parametrize("direction", ["both", "left_to_right"])
def test_the_report_has_the_figures_of_each_layer(tmp_path: Path, direction: str) -> None:
    folder = write_run(tmp_path / "run", None, masks=True, layers=2, direction=direction)
    (tmp_path / "text.txt").write_text(f"{TEXT}\n\n" * 100)
    found = osbert.analyse(folder, data=tmp_path / "text.txt", out=tmp_path / "out", device="cpu")
    ends = ("", "_tuned")
    last = [found.figure(f"lens_right{end}", layer=2) for end in ends]
    assert last[0] == replace(last[1], name="lens_right") and 40 <= last[0].n <= 800
    assert all(found.figure(f"lens_agrees{end}", layer=2).value == 1 for end in ends)
    assert all(0 <= found.figure(f"lens_settled{end}").value <= 2 for end in ends)
    assert found.figure("lens_divergence_tuned", layer=0).value < found.figure("lens_divergence", layer=0).value
    assert found.figure("lens_entropy", layer=1).baselines["all pieces alike"] == pytest.approx(np.log(16), rel=1e-5)
    assert "How a prediction settles" in (tmp_path / "out" / "report.html").read_text()
