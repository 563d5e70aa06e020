"""Events and results as JSON: `--json` prints one per line, and scripts can log them.

An event or a result is a dataclass; its JSON object has its fields. A class whose fields hold more than a reader can
use, such as weights or every prediction, names in `reported` the attributes that stand for it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from osbert.remote import display_path


def plain(value: Any) -> Any:
    """Return a value as JSON types: NaN and infinities become None, paths and other objects become strings.

    >>> from pathlib import Path
    >>> plain({"loss": float("nan"), "folder": Path("run"), "shape": (2, 3)})
    {'loss': None, 'folder': 'run', 'shape': [2, 3]}
    """
    # Strings return here, before the test for sequences, which they would pass.
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence | Set) and not isinstance(value, bytes):
        return [plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # an array or a number of numpy's
        return plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in json_keys(type(value))}
    return display_path(value) if isinstance(value, Path) else str(value)


def json_keys(kind: type) -> tuple[str, ...]:
    """Return the keys of a dataclass's JSON object: its `reported`, else its fields.

    >>> from osbert.runs.events import TrainingStart
    >>> json_keys(TrainingStart)
    ('processor', 'done', 'steps')
    """
    named: tuple[str, ...] | None = getattr(kind, "reported", None)
    return tuple(field.name for field in dataclasses.fields(kind)) if named is None else named


def event_name(kind: type) -> str:
    """Return the name of a class of events in JSON.

    >>> from osbert.runs.events import TrainingStart
    >>> event_name(TrainingStart)
    'training-start'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind.__name__).lower()


def event_line(event: Any, name: str = "") -> str:
    r"""Return an event as one line of JSON; `name`: its name, by default its `event`, or derived from its class.

    >>> from osbert.runs.contract import Notice
    >>> event_line(Notice("2 rows\nare empty"))
    '{"event": "notice", "text": "2 rows\\nare empty", "warning": false}'
    """
    content = plain(event)
    fields = content if isinstance(content, dict) else {"value": content}
    name = name or getattr(event, "event", event_name(type(event)))
    # allow_nan=False: "NaN" is not JSON. `plain` has replaced them all by now.
    return json.dumps({"event": name, **fields}, ensure_ascii=False, allow_nan=False)
