"""Serves a model over HTTP, asks it, and stops it: python examples/serve_model.py MODEL TEXT..."""

from __future__ import annotations

import json
import subprocess
import sys
from urllib.request import Request, urlopen

COMMAND = [sys.executable, "-m", "osbert", "serve", "--port", "0"]
"""`osbert serve` at a free port, which it prints."""


def ask(url: str, **fields: object) -> dict:
    """Return the answer to a call, or to a GET where there are no fields."""
    headers = {"content-type": "application/json"}
    body = json.dumps(fields).encode() if fields else None
    with urlopen(Request(url, body, headers), timeout=60) as answer:
        return json.load(answer)


def main(model: str, *texts: str) -> None:
    """Print the kind of the model, and for each text the label, or the length of its vector if it has no labels."""
    with subprocess.Popen([*COMMAND, f"served={model}"], stdout=subprocess.PIPE, text=True) as server:
        try:
            url = next(line.strip() for line in server.stdout or () if line.startswith("http"))
            (kind,) = (found["kind"] for found in ask(f"{url}/v1/models")["models"])
            print(f"{kind}: {url} is its page")
            if kind == "classify":
                for text, found in zip(texts, ask(f"{url}/v1/predict", texts=texts)["predictions"]):
                    print(f"{found['label']}  {found['probabilities'][found['label']]:.1%}  {text}")
            else:
                for text, vector in zip(texts, ask(f"{url}/v1/embed", texts=texts)["vectors"]):
                    print(f"a vector of {len(vector)}  {text}")
        finally:
            server.terminate()  # it answers what it has accepted, then it ends


if __name__ == "__main__":
    main(*sys.argv[1:])
