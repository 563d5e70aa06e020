"""Records of annotation tools, each with the same two entities of the same text, and files of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TEXT = "EU rejects German call"
Rows = Sequence[Mapping[str, Any]]


def lines(folder: Path, rows: Rows, name: str = "in.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def array(folder: Path, rows: Sequence[Any], name: str = "in.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=2))
    return path


ENTITIES: dict[str, list[dict[str, Any]]] = {
    "doccano, labels": [{"id": 1, "text": TEXT, "labels": [[0, 2, "ORG"], [11, 17, "MISC"]]}],
    "doccano, annotations": [
        {
            "id": 1,
            "text": TEXT,
            "annotations": [
                {"id": 3, "label": "ORG", "start_offset": 0, "end_offset": 2, "user": 1},
                {"id": 4, "label": "MISC", "start_offset": 11, "end_offset": 17, "user": 1},
            ],
            "meta": {},
            "annotation_approver": None,
        }
    ],
    "doccano, new": [{"id": 1, "text": TEXT, "label": [[11, 17, "MISC"], [0, 2, "ORG"]], "Comments": []}],
    "doccano, relations": [
        {
            "id": 1,
            "text": TEXT,
            "relations": [{"id": 9, "from_id": 1, "to_id": 2, "type": "rejects"}],
            "entities": [
                {"id": 1, "label": "ORG", "start_offset": 0, "end_offset": 2},
                {"id": 2, "label": "MISC", "start_offset": 11, "end_offset": 17},
            ],
        }
    ],
    "Prodigy": [
        {
            "text": TEXT,
            "tokens": [{"text": "EU", "start": 0, "end": 2, "id": 0}],
            "spans": [
                {"start": 0, "end": 2, "label": "ORG", "token_start": 0, "token_end": 0},
                {"start": 11, "end": 17, "label": "MISC"},
            ],
            "answer": "accept",
            "_input_hash": 1,
            "_task_hash": 2,
        }
    ],
    "Label Studio": [
        {
            "id": 7,
            "data": {"text": TEXT, "source": "x"},
            "annotations": [
                {"was_cancelled": True, "result": []},
                {
                    "was_cancelled": False,
                    "result": [
                        {
                            "value": {"start": 0, "end": 2, "text": "EU", "labels": ["ORG"]},
                            "from_name": "ner",
                            "to_name": "words",
                            "type": "labels",
                        },
                        {
                            "value": {"start": 11, "end": 17, "text": "German", "labels": ["MISC"]},
                            "from_name": "ner",
                            "to_name": "words",
                            "type": "labels",
                        },
                    ],
                },
            ],
            "predictions": [],
        }
    ],
    "Label Studio, JSON-MIN": [
        {
            "id": 7,
            "text": TEXT,
            "label": [
                {"start": 0, "end": 2, "text": "EU", "labels": ["ORG"]},
                {"start": 11, "end": 17, "text": "German", "labels": ["MISC"]},
            ],
            "annotator": 1,
            "annotation_id": 5,
            "lead_time": 3.2,
        }
    ],
    "spaCy, to_json": [
        {
            "text": TEXT,
            "ents": [{"start": 0, "end": 2, "label": "ORG"}, {"start": 11, "end": 17, "label": "MISC"}],
            "tokens": [{"id": 0, "start": 0, "end": 2}],
        }
    ],
    "spaCy, version 2": [
        {
            "id": 0,
            "paragraphs": [
                {
                    "raw": TEXT,
                    "sentences": [
                        {
                            "tokens": [
                                {"id": place, "orth": word, "ner": tag}
                                for place, (word, tag) in enumerate(
                                    zip(TEXT.split(), ["U-ORG", "O", "U-MISC", "O"], strict=True)
                                )
                            ]
                        }
                    ],
                }
            ],
        }
    ],
}
