"""Makes ready what `make gpu` needs on a machine with a GPU and no network: wheels of packages it may lack, and texts.

    python tools/gpu_ready.py [--out build/gpu] [--python 3.12] [--data ../shared/data]

That machine has torch, transformers, tokenizers, safetensors, numpy, scipy and scikit-learn; of these nothing is
downloaded. The others' wheels, for Linux on x86-64, go into OUT/wheels with all that they need themselves. There
benchmarks/gpu.py takes out of them only what is missing. A corpus and tables of GLUE go into OUT/texts (gpu_texts.py),
if the data are in --data or $OSBERT_DATA; all other texts, tokenizers and models are made there from nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import gpu_texts

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cyclopts>=4", "zstandard>=0.22", "pytest>=8.2", "hypothesis>=6.100")
"""What osbert and its tests import, less what the machine has in any case."""
DATA = Path(os.environ.get("OSBERT_DATA", ROOT.parent / "shared" / "data"))
LARGEST = 54 * 2**20
"""Bytes that both folders may have, to travel easily: 64 MiB with the code."""


def download(wheels: Path, python: str) -> None:
    """Put the wheels of PACKAGES, and of what they need, into a fresh folder."""
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir(parents=True)
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 17)] + ["manylinux2014_x86_64"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", str(wheels)]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    command += [word for name in platforms for word in ("--platform", name)]
    subprocess.run([*command, *PACKAGES], check=True)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--python", default="3.12", help="the Python of the machine with the GPU")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with text/ and glue/")
    chosen = parser.parse_args(words)
    shutil.rmtree(chosen.out / "site", ignore_errors=True)  # what was taken out of other wheels
    download(chosen.out / "wheels", chosen.python)
    found = sorted((chosen.out / "wheels").glob("*.whl"))
    size = sum(path.stat().st_size for path in found)
    print(f"{len(found)} wheels, {size / 2**20:.1f} MiB, in {chosen.out / 'wheels'}")
    texts = chosen.out / "texts"
    if gpu_texts.pack(chosen.data, texts):
        print(f"texts, {gpu_texts.size(texts) / 2**20:.1f} MiB, in {texts}")
        size += gpu_texts.size(texts)
    else:
        print(f"no texts, so no recipes: {chosen.data} lacks {gpu_texts.TEXT}, or GLUE's {', '.join(gpu_texts.GLUE)}")
    if size > LARGEST:
        print(f"error: that is over {LARGEST / 2**20:.0f} MiB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
