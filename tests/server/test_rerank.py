"""POST /v1/rerank: documents in the order of their scores; what does not fit of them is cut, and said."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import osbert
import tiny_runs
from osbert.interop.opening import Opening
from osbert.server.calls.models import ModelFolder
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker
from osbert.tasks.kinds.rerank import Rerank

DOCUMENTS = ["a bad play", "good " * 40, "fine actor", "a bad play"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a reranker with random weights."""
    return tiny_runs.write_run(tmp_path_factory.mktemp("rerank") / "run", Rerank())


def asked(run: Path, **values: Any) -> Any:
    """Return what a worker answers."""
    worker = Worker(Orders(runs=[ModelFolder("ranker", run)], device="cpu", opening=Opening(verify=False)))
    now = time.monotonic()
    (answer,) = worker.take_in([Dispatch(1, "rerank", values, now, now + 60)]) or worker.work().answers
    return answer


def test_documents_are_ranked_as_by_predict(run: Path) -> None:
    answer = asked(run, query="good film", documents=DOCUMENTS, model=None, pieces=False)
    (said,) = osbert.load(run).predict([("good film", *DOCUMENTS)])
    ranking = [one.item() for one in said.ranked]  # type: ignore[attr-defined]
    reply = json.loads(answer.body)
    assert [one["index"] for one in reply["ranking"]] == [one["index"] for one in ranking]
    assert [one["score"] for one in reply["ranking"]] == pytest.approx([one["score"] for one in ranking], abs=1e-5)
    assert reply["truncated"] == said.truncated == 40 - (24 - 3 - 2)
    assert "windows" not in reply


def test_a_document_without_text_is_refused_by_its_field(run: Path) -> None:
    answer = asked(run, query="good", documents=["a", " "], model=None, pieces=False)
    assert answer.status == 422 and json.loads(answer.body)["error"]["field"] == "documents[1]"
