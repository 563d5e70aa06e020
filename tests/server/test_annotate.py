"""/v1/annotate: the windows that a long text was read in; what is no JSON is refused, not changed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from osbert.server.call_table import CALLS
from osbert.server.calls.models import ModelFolder
from osbert.server.calls.schemas import Refusal, parse
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker

pytestmark = pytest.mark.lab


def record(text: str, number: int) -> dict[str, object]:
    """Return a record as Prodigy writes it."""
    return {"text": text, "_input_hash": number, "_task_hash": number, "spans": [], "answer": "accept"}


def test_the_windows_of_long_texts_are_counted(runs: dict[str, Path]) -> None:
    worker = Worker(Orders(runs=[ModelFolder("tagger", runs["tagger"])], device="cpu"))

    def windows(call: str, **fields: object) -> object:
        asked = parse(CALLS[call].request, json.dumps(fields).encode()).model_dump()
        (answer,) = worker.take_in([Dispatch(1, call, asked, 0.0, math.inf)]) or worker.work().answers
        assert answer.status == 200, answer.body
        return json.loads(answer.body).get("windows")

    for texts in (["good film"], ["good film", "good film " * 30]):
        records = [record(text, number) for number, text in enumerate(texts)]
        assert windows("annotate", records=records) == windows("tag", texts=texts)


@pytest.mark.parametrize("number", ["NaN", "Infinity"])
def test_numbers_that_json_has_not_are_refused(number: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse(CALLS["annotate"].request, b'{"records": [{"text": "a", "score": %s}]}' % number.encode())
    assert refused.value.status == 422 and refused.value.field == "body"
