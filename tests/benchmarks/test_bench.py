"""The table of `make bench`: every stage's script exists, and ratios are read from lines as the scripts print them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

LINES = {
    "encoding": ("osbert int8 : openvino int8  1.21 times as fast (1.10 to 1.30)", "openvino int8", 1.21),
    "search": (
        "  semantic_search       0.012 s      504 MB  ratio   0.25  1.000 of osbert's rows",
        "semantic_search",
        0.25,
    ),
    "tokenizer": (
        "osbert encode_bytes, 2 processes             20.1 (19.0 to 21.0)        3.8 times",
        "tokenizers",
        3.8,
    ),
    "corpus": ("median: tokenizers 4.40 MB/s, osbert corpus build 9.10 MB/s, ratio 2.07", "tokenizers", 2.07),
    "pretraining": ("compiled bf16 (best)       4,000    3.20     900   0.80", "compiled bf16", 3.2),
    "finetuning": ("| mrpc | best | 81.00 | +0.50 | 20 | 0.50 |", "best", 2.0),
    "serving": ("1.50 times the requests/s of onnxruntime", "onnxruntime", 1.5),
}


@pytest.fixture
def bench(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("bench")


def test_every_stage_has_its_script_and_reads_its_ratios(bench: ModuleType) -> None:
    assert LINES.keys() == bench.STAGES.keys()
    for name, (line, opponent, ratio) in LINES.items():
        stage = bench.STAGES[name]
        assert (bench.FOLDER / stage.command.split()[0]).is_file()
        ((_, side, times),) = stage.rows(f"a line before\n{line}\nosbert   1.00\n")
        assert side.startswith(opponent)
        assert times == pytest.approx(ratio)


def test_osbert_s_own_sides_are_no_opponents(bench: ModuleType) -> None:
    own = "  osbert faiss          0.670 s    4,076 MB  ratio   5.60  0.650 of osbert's rows\n"
    assert not list(bench.STAGES["search"].rows(own))


def test_a_stage_without_its_data_says_so_and_losses_are_marked(bench: ModuleType, tmp_path: Path) -> None:
    rows, reason = bench.measure(bench.STAGES["corpus"], tmp_path)
    assert not rows and "reviews" in reason
    text = bench.table({"corpus": (rows, reason), "serving": ([("requests", "onnxruntime", 0.58)], "")})
    assert reason in text and "0.58 (slower)" in text
