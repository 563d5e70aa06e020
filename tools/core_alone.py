"""Copies the core, without osbert_lab and its tests, and makes an environment in which its tests run.

    python tools/core_alone.py build/core

The environment takes its libraries from the one that runs this script; osbert is installed from the copy.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAB = ("src/osbert_lab/", "tests/lab/", "tests/structure/")
"""What is left out; tests/structure is about the whole repository."""


def main() -> None:
    """Copy the tracked files of the core and install them."""
    target = Path(sys.argv[1]).resolve()
    shutil.rmtree(target, ignore_errors=True)
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listing.stdout.splitlines():
        if not name.startswith(LAB) and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    project = target / "pyproject.toml"
    tables = re.split(r"(?m)^(?=\[)", project.read_text(encoding="utf-8"))
    kept = [table for table in tables if not re.search(r'= "osbert_lab[.:]', table)]
    project.write_text(re.sub(r"(?m)^osbert_lab = .*\n", "", "".join(kept)), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target / ".venv")], check=True)
    python = target / ".venv" / "bin" / "python"
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(target / ".venv")}))
    # A path in a .pth file is searched, but the .pth files in it are not read: those make osbert_lab importable.
    (purelib / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "-e", str(target)]
    subprocess.run(pip, check=True)


if __name__ == "__main__":
    main()
