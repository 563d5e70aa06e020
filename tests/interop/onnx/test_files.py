"""ONNX files: free batch and length, equal to transformers' model; damaged, foreign and newer ones are told apart."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from osbert.interop.huggingface.folders import write_model
from osbert.interop.onnx import files as onnx_files
from osbert.interop.onnx.files import OnnxGraph, find_hostile, open_onnx, write_onnx
from osbert.interop.onnx.padded import INPUTS, PaddedGraph
from osbert.models.contract import Learner
from refusals import refusal


@pytest.fixture(scope="module")
def learner(make_learner: Callable[..., Learner]) -> Learner:
    return make_learner(["tag"], width=128, feedforward=256, deviation=0.05)


@pytest.fixture(scope="module")
def paths(learner: Learner, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("onnx")
    for kind in ("fp32", "int8"):
        model = PaddedGraph(learner, "tag", pooler=True)
        write_onnx(model, folder / f"{kind}.onnx", int8=kind == "int8", learnt={"first": [0.1, -1e4]})
    return {path.stem: path for path in folder.iterdir()}


def run(opened: OnnxGraph, ids: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
    return opened.session.run(None, dict(zip(INPUTS, (ids, np.zeros_like(ids), mask))))


def test_any_rectangle_runs_and_gives_what_transformers_gives(
    learner: Learner, paths: dict[str, Path], tmp_path: Path
) -> None:
    write_model(learner, tmp_path)
    other = transformers.BertForTokenClassification.from_pretrained(tmp_path).eval()
    opened = open_onnx(paths["fp32"])
    assert opened.names == ("logits", "last_hidden_state", "pooler_output") and not opened.int8
    assert opened.learnt == {"first": [0.1, -1e4]}
    rng = np.random.default_rng(0)
    for rows, length in ((1, 1), (3, 24), (7, 2)):
        ids, mask = rng.integers(1, 60, (rows, length)), np.ones((rows, length), np.int64)
        mask[-1, (length + 1) // 2 :] = 0
        with torch.inference_mode():
            said = other(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)).logits.numpy()
        tokens = mask.astype(bool)
        np.testing.assert_allclose(run(opened, ids, mask)[0][tokens], said[tokens], atol=2e-5)


@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_a_graph_names_no_file_of_this_machine(paths: dict[str, Path], kind: str) -> None:
    content = paths[kind].read_bytes()
    assert b".py" not in content and str(Path(torch.__file__).parents[2]).encode() not in content


def test_bytes_are_fewer_and_nearly_as_good(paths: dict[str, Path]) -> None:
    small, whole = open_onnx(paths["int8"]), open_onnx(paths["fp32"])
    assert small.int8 and paths["int8"].stat().st_size < 0.45 * paths["fp32"].stat().st_size
    kinds = [node.op_type for node in onnx.load(paths["int8"]).graph.node]
    assert kinds.count("MatMulInteger") == 8, "four products in each of two layers; the pooler and the head are spared"
    ids = np.random.default_rng(0).integers(1, 60, (4, 24))
    for one, other in zip(run(small, ids, np.ones_like(ids)), run(whole, ids, np.ones_like(ids))):
        assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.99


@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_a_sequence_has_the_same_outputs_alone_and_beside_others(paths: dict[str, Path], kind: str) -> None:
    """The other sequences have larger numbers, and longer ones bring padding: neither changes a scale."""
    opened = open_onnx(paths[kind])
    ids, mask = np.random.default_rng(0).integers(1, 60, (6, 24)), np.ones((6, 24), np.int64)
    lengths = [24, 17, 9, 5, 2, 1]
    for row, length in enumerate(lengths):
        ids[row, length:] = mask[row, length:] = 0
    logits, states, pooled = run(opened, ids, mask)
    for row, length in enumerate(lengths):
        alone = run(opened, ids[row : row + 1, :length], mask[row : row + 1, :length])
        for one, other in zip(alone, (logits[row, :length], states[row, :length], pooled[row])):
            np.testing.assert_allclose(one[0], other, atol=1e-5)


def test_the_scale_of_a_row_is_its_largest_number(tmp_path: Path) -> None:
    """A product of rows of very different sizes, and of a row of 0, is as exact for each of them."""
    rng = np.random.default_rng(0)
    weight, rows = rng.normal(size=(64, 96)).astype(np.float32), rng.normal(size=(3, 4, 64)).astype(np.float32)
    rows *= 10.0 ** np.arange(-6, 6, dtype=np.float32).reshape(3, 4, 1)
    rows[1, 1] = 0
    shapes = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["a", "b", size])
              for name, size in (("x", 64), ("y", 96))]  # fmt: skip
    product = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    graph = helper.make_graph([product], "g", shapes[:1], shapes[1:], [onnx.numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx_files._quantize(model, tmp_path / "small.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "small.onnx"), providers=["CPUExecutionProvider"])
    [found] = session.run(None, {"x": rows})
    errors = np.abs(found - rows @ weight).max(axis=-1) / np.maximum(np.abs(rows).max(axis=-1), 1e-30)
    assert errors[1, 1] == 0 and errors.max() < 0.5


def changed(path: Path, to: Path, change: Callable[[onnx.ModelProto], object]) -> Path:
    model = onnx.load(path)
    change(model)
    to.write_bytes(model.SerializeToString())
    return to


def test_files_that_cannot_be_used(paths: dict[str, Path], tmp_path: Path) -> None:
    whole, to = paths["fp32"], tmp_path / "model.onnx"
    with refusal("missing-file"):
        open_onnx(to)
    to.write_bytes(whole.read_bytes()[:5000])
    with refusal("damaged-file", onnxruntime.__version__):
        open_onnx(to)
    with refusal("damaged-file", "99"):
        open_onnx(changed(whole, to, lambda model: setattr(model, "ir_version", 99)))
    with refusal("damaged-file", "99"):
        open_onnx(changed(whole, to, lambda model: setattr(model.opset_import[0], "version", 99)))
    with refusal("wrong-format"):
        open_onnx(changed(whole, to, lambda model: model.ClearField("metadata_props")))

    def newer(model: onnx.ModelProto) -> None:
        next(one for one in model.metadata_props if one.key == "osbert.form").value = "2"

    def damaged(model: onnx.ModelProto) -> None:
        next(one for one in model.metadata_props if one.key == "osbert.sizes").value = "5"

    with refusal("damaged-file"):
        open_onnx(changed(whole, to, damaged))
    with refusal("wrong-format", "2", "1"):
        open_onnx(changed(whole, to, newer))


def endless(model: onnx.ModelProto) -> None:
    """Add a loop whose condition stays true."""
    kinds = (("i", onnx.TensorProto.INT64), ("on", onnx.TensorProto.BOOL))
    inputs = [onnx.helper.make_tensor_value_info(name, kind, []) for name, kind in kinds]
    output = onnx.helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, [])
    body = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["on"], ["go"])], "body", inputs, [output])
    true = onnx.helper.make_tensor("true", onnx.TensorProto.BOOL, [], [True])
    model.graph.initializer.append(true)
    model.graph.node.append(onnx.helper.make_node("Loop", ["", "true"], [], body=body))


def within_several(model: onnx.ModelProto) -> None:
    attribute = model.graph.node[0].attribute.add(name="bodies", type=onnx.AttributeProto.GRAPHS)
    attribute.graphs.add(name="body")


def function(model: onnx.ModelProto) -> None:
    model.functions.add(name="f", domain="theirs")


def many(model: onnx.ModelProto) -> None:
    model.graph.node.extend([onnx.helper.make_node("Identity", ["x"], ["y"])] * 1000)


@pytest.mark.parametrize("change", [endless, within_several, function, many])
def test_a_graph_that_may_run_for_ever_is_refused_before_it_is_opened(
    change: Callable[[onnx.ModelProto], object],
    paths: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(onnxruntime, "InferenceSession", None)
    monkeypatch.setattr("osbert.interop.onnx.files.NODES", 2500)
    with refusal("wrong-format", "model.onnx"):
        open_onnx(changed(paths["fp32"], tmp_path / "model.onnx", change))


@given(st.binary(max_size=200) | st.binary(max_size=40).map(lambda part: b"\x3a" + bytes([len(part)]) + part))
def test_bytes_that_are_no_graph_are_found(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(content)
        with contextlib.suppress(ValueError):
            found = find_hostile(path)
            assert not found or content


def test_libraries_that_are_not_there(learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnxscript", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
        with refusal("missing-library", name):
            write_onnx(PaddedGraph(learner, "tag", pooler=True), tmp_path / "x.onnx", int8=False, learnt={})
        monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with refusal("missing-library"):
        open_onnx(tmp_path / "x.onnx")


def test_a_model_too_large_for_a_file(learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osbert.interop.onnx.files.LARGEST", 1000)
    with refusal("too-large", "2"):
        write_onnx(PaddedGraph(learner, "tag", pooler=True), tmp_path / "x.onnx", int8=False, learnt={})
    assert not list(tmp_path.iterdir())
