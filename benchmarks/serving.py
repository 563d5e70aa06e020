"""osbert serve against the same model behind a plain FastAPI handler: requests a second and their time, under load.

python benchmarks/serving.py [--run RUN] [--recipe bert-small] [--texts FILE] [--clients 64] [--seconds 60]

The plain handlers call `Engine.predict` for each request, one in FastAPI's threads (def), one in its loop (async def).
"onnxruntime" is the exported model behind the same dynamic batching, `osbert serve` of the export; it is left out where
the extra onnx is not installed. Without --run the model is a classifier of the recipe's size with random weights,
without --texts the texts are words of its vocabulary, 5 to 45 a text. Servers run one after the other; the load comes
from a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from osbert.runs.export import export
from osbert.runs.settings import ExportSettings
from serving_load import Loading, Server, serving
from serving_models import make_bodies, make_run

PLAIN = ("threads", "loop")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a classifier")
    parser.add_argument("--recipe", default="bert-small")
    parser.add_argument("--texts", type=Path, help="a text a line")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warmup", type=float, default=5.0)
    parser.add_argument("--options", default="", help="of osbert serve, such as '--workers 2'")
    parser.add_argument("--plain", choices=PLAIN, help=argparse.SUPPRESS)  # this process is that server
    chosen = parser.parse_args()
    if chosen.plain:
        serve_plainly(chosen.run, chosen.plain)
        return
    with tempfile.TemporaryDirectory() as name:
        run = chosen.run or make_run(Path(name) / "run", chosen.recipe)
        bodies = make_bodies(Path(name) / "bodies", run, chosen.texts)
        print(f"{run.name if chosen.run else chosen.recipe}, {chosen.clients} clients, {chosen.seconds:g} s each")
        print(f"{'server':24} {'requests/s':>10} {'p50':>9} {'p95':>9} {'p99':>9}   ends")
        found = {}
        for kind in PLAIN:
            with plain(run, kind) as server:
                found[f"plain, {kind}"] = measured(server, bodies, chosen)
        with serving([run], *chosen.options.split()) as server:
            found["osbert serve"] = measured(server, bodies, chosen)
        if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx"):
            with serving([exported(run, Path(name) / "exported")], *chosen.options.split()) as server:
                found["onnxruntime"] = measured(server, bodies, chosen)
        for side, one in found.items():
            times = " ".join(f"{one[share] * 1000:6.0f} ms" for share in ("p50", "p95", "p99"))
            print(f"{side:24} {rate(one):10.1f} {times}   {json.dumps(one['ends'])}")
    if "onnxruntime" in found:
        print(f"{rate(found['osbert serve']) / rate(found['onnxruntime']):.2f} times the requests/s of onnxruntime")
    best = max((found[f"plain, {kind}"] for kind in PLAIN), key=rate)
    print(f"{rate(found['osbert serve']) / rate(best):.2f} times the requests/s of the better plain one")


def exported(run: Path, folder: Path) -> Path:
    """Export a run, with its weights in fp32, and return the folder."""
    return export(run, out=folder, settings=ExportSettings(unchecked=True)).folder


def measured(server: Server, bodies: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return what came of the load, after a while that does not count."""
    Loading(server.url, bodies, seconds=chosen.warmup, clients=chosen.clients).result()
    return Loading(server.url, bodies, seconds=chosen.seconds, clients=chosen.clients).result()


def rate(found: dict[str, Any]) -> float:
    return found["ends"].get("200", 0) / found["seconds"]


@contextmanager
def plain(run: Path, kind: str) -> Iterator[Server]:
    server = Server([__file__, "--run", str(run), "--plain", kind])
    try:
        yield server
    finally:
        server.kill()


def serve_plainly(run: Path, kind: str) -> None:
    """Serve as one would without thinking of it: a model, a handler, a request at a time."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    from osbert.inference.engine import load

    class Asked(BaseModel):
        texts: list[str]

    engine = load(run)
    app = FastAPI()

    def answer(asked: Asked) -> dict[str, Any]:
        predictions = engine.predict(asked.texts)
        return {"predictions": [{"label": one.value, "probabilities": dict(one.probabilities)} for one in predictions]}

    async def answer_in_loop(asked: Asked) -> dict[str, Any]:
        return answer(asked)

    for handler in (answer, answer_in_loop):  # the names of types are of this function, where FastAPI does not look
        handler.__annotations__["asked"] = Asked
    app.post("/v1/predict")(answer if kind == "threads" else answer_in_loop)
    door = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{door.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[door])


if __name__ == "__main__":
    sys.exit(main())
