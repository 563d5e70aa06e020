"""The search of the documentation site on a page opened from the disk, where a frame stands in for its worker."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import Browser, expect

ROOT = Path(__file__).resolve().parents[3]
PAGE = """<!doctype html><body><p></p><script src="iframe-worker.js"></script><script>
const worker = new Worker("worker.js");
worker.addEventListener("message", ({ data }) => { document.querySelector("p").textContent = data.text; });
worker.postMessage({ text: "asked" });
</script>"""
WORKER = """addEventListener("message", async ({ data }) => {
  await importScripts("part.js");
  postMessage({ text: `${data.text}, ${answer}, ${"IFrameWorker" in parent}` });
});"""


def test_a_worker_runs_in_a_frame_on_a_page_from_the_disk(browser: Browser, tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs" / "iframe-worker.js", tmp_path)
    for name, text in (("index.html", PAGE), ("worker.js", WORKER), ("part.js", 'const answer = "answered";')):
        (tmp_path / name).write_text(text)
    page = browser.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    expect(page.locator("p")).to_have_text("asked, answered, true")
    page.close()
