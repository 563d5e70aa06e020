"""How large the page of a long text's attention is, and how fast it draws: 12 layers of 12 heads over 512 tokens.

    python benchmarks/attention_page.py --text TEXT [--model FOLDER] [--chromium PATH]

The model is one of 6 layers of 12 heads; its maps are taken twice for 12 layers. Beside it stands noise, which no
compression makes smaller. The time of the first picture is from the opening of the file to the table of the strongest
beside the drawn picture. A hover's is from the pointer's event until behind the frame that shows it, up to 17 ms of
which are the wait for that frame: median and largest of 200 in each picture.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, sync_playwright

import osbert
from osbert.analysis.attention import TextAttention

TOKENS = 512
HOVERS = """async () => {
  const canvas = document.querySelector(".attention canvas");
  const taken = [];
  for (let i = 0; i < 200; i++) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [5 + (i * 37) % (box.width - 10), (i * 53) % Math.min(box.height, 600)];
    const begin = performance.now();
    canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + x, clientY: box.top + y, bubbles: true}));
    await new Promise(requestAnimationFrame);
    await new Promise((shown) => setTimeout(shown)); // a task behind the frame
    taken.push(performance.now() - begin);
  }
  taken.sort((a, b) => a - b);
  return [taken[100], taken[199]];
}"""


def doubled(found: TextAttention) -> TextAttention:
    """Return attention with every layer twice."""
    columns = {name: np.concatenate([getattr(found, name)] * 2) for name in ("weights", "norms", "queries", "keys")}
    return dataclasses.replace(found, **columns)


def noise(found: TextAttention) -> TextAttention:
    """Return attention of the same sizes that is an exponential variable in each place."""
    weights = np.random.default_rng(0).standard_exponential(found.weights.shape, dtype=np.float32)
    weights /= weights.sum(axis=-1, keepdims=True)
    return dataclasses.replace(found, weights=weights)


def measured(found: TextAttention, folder: Path, browser: Browser) -> dict[str, Any]:
    begin = time.perf_counter()
    path = found.save(folder / "attention.html")
    said: dict[str, Any] = {"written_s": time.perf_counter() - begin, "megabytes": path.stat().st_size / 1e6}
    page = browser.new_context(offline=True, viewport={"width": 1280, "height": 900}).new_page()
    begin = time.perf_counter()
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_selector(".attention tbody td")
    said["first_picture_s"] = time.perf_counter() - begin
    for view in ("lines", "map", "grid", "neurons"):
        page.locator(f"input[value={view}]").check(force=True)
        page.wait_for_timeout(8000 if view == "grid" else 1000)
        said[f"hover_{view}_ms"] = page.evaluate(HOVERS)
    page.context.close()
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    model = osbert.load(given.model)
    model.packer = dataclasses.replace(model.packer, length=TOKENS)
    found = doubled(model.attention(given.text.read_text(encoding="utf-8")[: 12 * TOKENS]))
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        browser = play.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
        for name, one in (("text", found), ("noise", noise(found))):
            print(json.dumps({"of": name, "shape": one.weights.shape, **measured(one, Path(folder), browser)}))
        browser.close()


if __name__ == "__main__":
    main()
