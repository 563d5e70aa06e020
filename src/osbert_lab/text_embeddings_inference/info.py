"""GET /info and POST / of text-embeddings-inference (TEI): the first served model and its answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

import osbert
from osbert.server.http import Service, describe_responses
from osbert_lab.text_embeddings_inference.contract import TEIError

PATHS = {"embedding": "/embed", "classifier": "/predict", "reranker": "/rerank"}
"""The path whose call POST / is, by the type of the first model."""
PIPELINES = {"tag": "/token-classification", "span": "/question-answering", "pretraining": "/inference"}
"""The same by the kind of the first model, for kinds that TEI has no type for."""


def add_info(app: FastAPI, service: Service) -> None:
    """Add GET /info to the server, and POST /, as clients of the Inference API ask a server without a path."""

    @app.post("/", include_in_schema=False)
    async def answer_first(request: Request) -> Response:
        first = service.pool.models[0]
        (kind,) = model_info(first, {}, "")["model_type"]
        return await service.answer(PIPELINES.get(first["kind"]) or PATHS[kind], request)

    @app.get("/info", responses=describe_responses(dict[str, Any], 401, error=TEIError))
    async def info(request: Request) -> Response:
        service.check_key(request)
        limits = {
            "max_concurrent_requests": service.limits.queue,
            "max_batch_tokens": service.limits.batch_tokens,
            "max_client_batch_size": service.limits.texts,
        }
        content = model_info(service.pool.models[0], limits, osbert.__version__)
        return service.response(200, [json.dumps(content, ensure_ascii=False).encode()])


def model_info(facts: Mapping[str, Any], limits: Mapping[str, int], version: str) -> dict[str, Any]:
    """Return what GET /info answers, of the first served model.

    `facts`: its entry in /v1/models. `limits`: the server's, by TEI's names.
    """
    names = facts.get("labels") or []
    labels = {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
    ranks = any(field["type"] == "ranking" for field in facts.get("call", {}).get("answer", ()))
    kinds: dict[str, Any] = {"embedding": {"pooling": facts.get("pooling", "mean")}}
    kinds = {"classifier": labels} if names else {"reranker": labels} if ranks else kinds
    return {
        "model_id": facts["name"],
        "served_model_name": facts["name"],
        "model_type": kinds,
        **limits,
        "max_input_length": facts["length"],
        "auto_truncate": False,
        "version": version,
    }
