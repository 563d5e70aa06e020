"""Photograph a run's report and the server's page for the READMEs: python tools/screenshots.py RUN "TEXT" FOLDER.

It starts `osbert serve RUN`, asks the page about the text and why, and writes FOLDER/report.png and FOLDER/page.png.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, sync_playwright

SIZE = {"width": 760, "height": 820}


def photograph(browser: Browser, run: Path, text: str, address: str, folder: Path) -> None:
    """Write both pictures."""
    page = browser.new_page(viewport=SIZE)
    page.goto((run / "report.html").resolve().as_uri())
    page.screenshot(path=folder / "report.png")
    page.goto(f"{address}/#text?{urlencode({'model': run.name, 'text': text})}")
    page.get_by_role("button", name="Classify").click()
    page.get_by_role("button", name=re.compile("Why")).first.click()
    page.get_by_role("button", name="Stop").wait_for(state="hidden", timeout=120_000)
    page.screenshot(path=folder / "page.png")


def main() -> None:
    """Serve the run, photograph, and end the server."""
    run, text, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("OSBERT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    port = "8765"
    server = subprocess.Popen(
        [sys.executable, "-m", "osbert", "serve", str(run), "--port", port], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        for line in server.stdout:
            print(line, end="")
            if port in line:
                break
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            photograph(browser, run, text, f"http://127.0.0.1:{port}", folder)
            browser.close()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
