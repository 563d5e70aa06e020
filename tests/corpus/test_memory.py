from __future__ import annotations

import subprocess
import sys

import pytest

# Reads a file chunk by chunk and prints the characters read and by how many bytes that raised the process's peak.
SCRIPT = """
import resource, sys
from pathlib import Path
from osbert.reading.documents import read_chunks
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
def read(path):
    return sum(len(chunk.text) for chunk in read_chunks([Path(path)], documents=sys.argv[3], errors="replace"))
read(sys.argv[1])
before = peak()
print(read(sys.argv[2]), peak() - before)
"""
SIZE = 150_000_000


@pytest.mark.parametrize(
    ("name", "documents"), [("a.txt", "file"), ("a.txt", "blank-line"), ("a.txt", "line"), ("a.txt.zst", "line")]
)
def test_a_huge_line_does_not_raise_memory(tmp_path, name, documents):
    pytest.importorskip("resource")
    import zstandard

    line = b"The river runs past the old houses and nobody knows why. "
    small, large = tmp_path / f"small-{name}", tmp_path / name
    for path, size in ((small, 4_000_000), (large, SIZE)):
        with open(path, "wb") as raw:
            file = zstandard.ZstdCompressor(level=1).stream_writer(raw) if name.endswith(".zst") else raw
            for number in range(size // (len(line) * 10_000)):
                # Numbers, so that it unpacks to less than a thousand times its size: more is refused.
                file.write(b"".join(line[:-9] + b"%08d " % (number * 10_000 + row) for row in range(10_000)))
            file.close()
    command = [sys.executable, "-c", SCRIPT, str(small), str(large), documents]
    characters, grown = map(int, subprocess.run(command, capture_output=True, check=True, text=True).stdout.split())
    assert characters > SIZE * 0.99
    assert grown < 8_000_000
