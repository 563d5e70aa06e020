"""A kind of task is one file: a toy kind is trained, served, exported and published with no other file changed."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import osbert
import tiny_runs
from osbert import components, recipe
from osbert.commands.convert import convert
from osbert.commands.export import export
from osbert.commands.finetune import finetune
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.folders import write_model
from osbert.interop.onnx.padded import PaddedGraph
from osbert.interop.opening import Opening
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.predictions import NumberHead
from osbert.server.access import Hosts, Keys
from osbert.server.call_table import CALLS, all_calls
from osbert.server.calls.models import ModelFolder, kinds
from osbert.server.http import Service, application
from osbert.server.limits import ServerLimits
from osbert.server.metrics import ServerMetrics
from osbert.server.wire import Dispatch, Orders, WorkerLoadError
from osbert.server.worker import Worker
from osbert.tasks import Task
from osbert.tasks import kinds as folder_of_kinds
from osbert.tasks.edges import Edge, Field
from own_files import beside
from refusals import refusal

TOY = "toy_longer"
PAIRS = [("a good film .", "bad"), ("the actor", "a bad play the film plays ."), ("fine", "the good play .")]


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the folder of kinds have one file more."""
    beside(monkeypatch, folder_of_kinds)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of the toy kind."""
    place = tmp_path_factory.mktemp("toy")
    with pytest.MonkeyPatch.context() as patch:
        beside(patch, folder_of_kinds)
        rng = random.Random(0)
        (place / "data").mkdir()
        for split, count in (("train", 24), ("dev", 8)):
            texts = [" ".join(rng.choices(tiny_runs.WORDS, k=rng.randrange(1, 8))) for _ in range(2 * count)]
            rows = [f"{one}\t{other}\n" for one, other in zip(texts[::2], texts[1::2])]
            (place / "data" / f"{split}.tsv").write_text("".join(rows))
        encoder = tiny_runs.write_run(place / "encoder", None)
        settings = ("--epochs", "2", "--batch", "8", "--learning-rate", "0.01", "--precision", "fp32")
        finetune(TOY, *settings, model=encoder, data=place / "data", out=place / "run")
    return place / "run"


def test_it_is_trained_and_predicts(trained: Path) -> None:
    for prediction in osbert.load(trained).predict(PAIRS):
        assert prediction.longer in ("first", "second") and prediction.margin >= 0  # type: ignore[attr-defined]


class _Pool:
    """A pool whose only worker is in this process."""

    ready, problem = True, ""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        report = worker.ready()
        self.models, self.edges = report.models, report.edges
        self.pending: dict[int, Any] = {}

    def admit(self) -> None: ...

    def forget(self, pending: Any) -> None: ...

    def submit(self, call: str, values: dict[str, Any], deadline: float) -> Any:
        now = time.monotonic()
        (answer,) = self.worker.take_in([Dispatch(1, call, values, now, now + 60)]) or self.worker.work().answers
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(answer)
        return SimpleNamespace(answer=done, body=[answer.body])


async def _asked(worker: Worker, *requests: tuple[str, dict[str, Any] | None]) -> list[httpx.Response]:
    pool: Any = _Pool(worker)
    service = Service(pool=pool, limits=ServerLimits(characters=50), metrics=ServerMetrics(), keys=Keys())
    transport = httpx.ASGITransport(app=application(service, hosts=Hosts(names=(), origins=())))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return [await (client.get(path) if body is None else client.post(path, json=body)) for path, body in requests]


def test_it_is_served_with_its_own_fields(trained: Path) -> None:
    worker = Worker(Orders(runs=[ModelFolder("toy", trained)], device="cpu"))
    path, (first, second) = "/v1/compare-lengths", PAIRS[0]
    good = {"first": first, "second": second}
    models, described, answer, *others = asyncio.run(
        _asked(
            worker, ("/v1/models", None), ("/openapi.json", None), (path, {**good, "pieces": True}),
            (path, {"first": first}), (path, {**good, "third": "a"}), (path, {**good, "second": " "}),
            (path, {**good, "second": "a" * 51}), ("/v1/predict", {"texts": ["a"]}), ("/v1/embed", {"texts": ["a"]}),
        )
    )  # fmt: skip
    (model,) = models.json()["models"]
    assert (model["kind"], model["fields"]) == ("longer", ["first", "second"])
    assert [field["name"] for field in model["call"]["answer"]] == ["longer", "margin", "chances"]
    (said,) = osbert.load(trained).predict(PAIRS[:1])
    body = answer.json()
    assert body["longer"] == said.longer and body["model"] == "toy"  # type: ignore[attr-defined]
    assert body["margin"] == pytest.approx(said.margin, abs=1e-5)  # type: ignore[attr-defined]
    assert body["chances"] == pytest.approx(said.chances, abs=1e-5)  # type: ignore[attr-defined]
    assert body["pieces"][0][0][0] == "[CLS]"
    assert [one.status_code for one in others] == [422, 422, 422, 413, 404, 200]
    assert [one.json()["error"]["field"] for one in others[:4]] == ["second", "third", "second", "second"]
    schema = described.json()
    post = schema["paths"][path]["post"]
    assert post["summary"] == "Two texts, of which one is longer."
    request = post["requestBody"]["content"]["application/json"]["schema"]
    assert request["required"] == ["first", "second"] and request["properties"]["first"]["description"] == "A text."
    answered = schema["components"]["schemas"]["CompareLengthsAnswer"]["properties"]
    assert answered["margin"]["type"] == "number" and answered["longer"]["type"] == "string"
    assert "longer" in schema["components"]["schemas"]["Model"]["properties"]["kind"]["enum"]


def test_it_is_exported(trained: Path, tmp_path: Path) -> None:
    export(trained, to="onnx", out=tmp_path / "exported")
    told, exported = (osbert.load(folder).predict(PAIRS) for folder in (trained, tmp_path / "exported"))
    for one, other in zip(told, exported, strict=True):
        assert one.value == other.value
        assert one.chances == pytest.approx(other.chances, abs=1e-4)  # type: ignore[attr-defined]


def test_it_is_published_and_read_back(trained: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    convert(trained, tmp_path / "theirs", to="huggingface")
    convert(tmp_path / "theirs", tmp_path / "back", to="osbert")
    engine = osbert.load(trained)
    examples = [
        example
        for pair in PAIRS
        for example in engine.fine_tuned.encode(engine.fine_tuned.record_of(pair), engine.packer)
    ]
    said = engine.backend.outputs(engine.fine_tuned, examples, tokens=100)
    for folder in (trained, tmp_path / "theirs"):
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        assert model.config.id2label == {0: "first", 1: "second"}
        for example, scores in zip(examples, said, strict=True):
            ids, segments = (torch.tensor(column)[None].long() for column in (example.ids, example.segments))
            with torch.no_grad():
                logits = model(input_ids=ids, token_type_ids=segments).logits[0]
            np.testing.assert_allclose(logits.numpy(), scores, atol=2e-5)
    again = osbert.load(tmp_path / "back")
    assert [one.value for one in again.predict(PAIRS)] == [one.value for one in engine.predict(PAIRS)]
    assert again.fine_tuned.name == TOY


class _Deep(NumberHead):
    """A head with a layer more than others' classes have."""

    def __init__(self, backbone: Any, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        self.inner = torch.nn.Linear(backbone.architecture.width, backbone.architecture.width)

    def outputs(self, states: Any, batch: Any) -> torch.Tensor:
        return self.linear(torch.tanh(self.inner(states.pooled)))


def test_a_head_that_others_have_no_class_for_is_kept_for_osbert_alone(tmp_path: Path) -> None:
    backbone = Architecture(layers=1, heads=2, width=16, vocabulary=20, length=12).build()
    learner = Learner(backbone, {"deep": _Deep(backbone, target="deep")}).eval()
    write_model(learner, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "osbert"
    again = Learner(backbone, {"deep": _Deep(backbone, target="deep")})
    open_folder(tmp_path).fill(again).require_complete("deep")
    for name, tensor in learner.heads.state_dict().items():
        assert torch.equal(tensor, again.heads.state_dict()[name])
    ids = torch.randint(0, 20, (2, 5))
    scores, *_ = PaddedGraph(learner, "deep", pooler=False)(ids, torch.zeros_like(ids), torch.ones_like(ids))
    assert scores.shape == (2, 1)


def test_a_dotted_name_is_served_only_where_it_is_trusted(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "made"))
    folder = shutil.copytree(trained, tmp_path / "dotted")
    table = recipe.read(folder / "recipe.toml")
    (folder / "recipe.toml").write_text(recipe.dump({**table, "task": f"kinds.{TOY}"}))
    runs = [ModelFolder("toy", folder)]
    with pytest.raises(WorkerLoadError) as stopped:
        Worker(Orders(runs=runs, device="cpu", opening=Opening(verify=False)))
    assert stopped.value.failed.code == "untrusted-code"
    worker = Worker(Orders(runs=runs, device="cpu", opening=Opening(trust=True, verify=False)))
    assert "compare-lengths" in worker.calls
    sys.modules.pop(f"kinds.{TOY}", None)


@pytest.mark.parametrize("name", [*components.names("tasks"), TOY])
def test_every_kind_declares_its_edges(name: str) -> None:
    kind: type[Task] = components.find("tasks", name, base=Task)
    task = kind(**{field: ("a", "b") for field in ("labels", "types") if field in kind.__dataclass_fields__})
    head = task.head(Architecture(layers=1, heads=2, width=16, vocabulary=20, length=12).build())
    assert head.form == kind.form or (head.form == "" and kind.published_outputs is None)  # "": no class, no export
    assert head.values == kind.values
    assert kind.edge is not None and task.request_fields
    assert kind.edge.call in ("", *CALLS) or kind.edge.is_own


def test_declarations_that_cannot_be_are_refused() -> None:
    text, number = Field(name="text"), Field(name="number", type="number")
    with pytest.raises(ValueError, match="must declare call, request and answer"):
        Edge(kind="x", call="x", request=(text,))
    with pytest.raises(ValueError, match="number must be of the type text"):
        Edge(kind="x", call="x", request=(number,), answer=(number,))
    with pytest.raises(ValueError, match="lower-case letters"):
        Edge(kind="x", call="X/y")
    own = Edge(kind="x", call="x", request=(text,), answer=(number,))
    assert [name for name in all_calls([own, own]) if not name.startswith("/")] == [*CALLS, "x"]
    for edge, refused in (
        (dataclasses.replace(own, call="predict"), ("invalid-component", "predict")),
        (dataclasses.replace(own, answer=(text,)), ("invalid-component", "x")),
        (Edge(kind="y", call="y"), ("invalid-component", "y")),
    ):
        with refusal(*refused):
            all_calls([own, edge])
    assert "classify" in kinds() and "longer" in kinds()
