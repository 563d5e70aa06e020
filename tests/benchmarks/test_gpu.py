"""The hour on a GPU, in small on the CPU: stages, their time, and what they leave behind."""

from __future__ import annotations

import importlib.util
import json
import lzma
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.lab  # the benchmarks measure its models too
WORDS = ("joy", "grief", "rain", "music", "war", "love")


@pytest.fixture
def gpu(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("gpu")


@pytest.fixture
def stage(gpu: ModuleType, tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Run a stage on the CPU; return its status and what is in its JSON."""

    def run(name: str, *more: str) -> tuple[int, dict[str, Any]]:
        words = [name, "--device", "cpu", "--small", "--out", str(tmp_path / "out"), "--ready", str(tmp_path), *more]
        status = gpu.main(words)
        return status, json.loads((tmp_path / "out" / f"{name}.json").read_text())

    return run


def rows(folder: Path, name: str) -> list[list[str]]:
    """Return the cells of a stage's table, without its head."""
    lines = [line for line in (folder / "out" / f"{name}.md").read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


class FakeSide:
    """A side of pretraining that computes nothing; `broken` fails to get warm, `dying` fails in its first round."""

    def __init__(self, case: object, name: str, options: dict[str, Any], **_: Any) -> None:
        self.name = name
        self.rounds: list[dict[str, float]] = []
        self.process = self
        self.ended = False

    def poll(self) -> None:
        return None

    @property
    def warm(self) -> dict[str, float]:
        if self.name == "sdpa bf16 compiled":
            raise RuntimeError("it does not compile")
        return {"single": 0.5, "warming": 20.5}

    def run(self, seconds: float) -> None:
        if self.name == "default":
            raise RuntimeError("memory ran out")
        self.rounds.append({"rate": 300.0 if self.name == "osbert" else 100.0, "peak": 7000.0, "above": 7000.0})

    def median(self, name: str) -> float:
        return self.rounds[0][name]

    def end(self) -> None:
        self.ended = True


@pytest.mark.parametrize("name", ["tests", "base", "large", "encoding"])
def test_a_stage_without_time_starts_nothing_and_says_so(gpu, stage, script, monkeypatch, name: str) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("something was started")

    pretraining, encoding = script("gpu_pretraining"), script("gpu_encoding")
    monkeypatch.setattr(pretraining, "Side", start)
    monkeypatch.setattr(encoding, "make_model", start)
    monkeypatch.setattr(gpu, "_lines", start)
    status, found = stage(name, "--seconds", "0")
    assert status == gpu.UNFINISHED == 3
    assert not found["measurements"] and found["left_out"] and found["seconds"] == 0


def test_the_stages_fit_into_22_minutes_and_each_into_9(gpu) -> None:
    assert [*gpu.STAGES] == ["tests", "base", "large", "encoding"]
    assert max(stage.seconds for stage in gpu.STAGES.values()) <= 9 * 60
    assert sum(stage.seconds for stage in gpu.STAGES.values()) <= 22 * 60
    assert all((gpu.ROOT / name).is_file() for name in gpu.TESTS)


def test_what_is_measured_is_kept_at_once_whatever_comes_after(gpu, tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "out"

    def measure(account: Any, chosen: object) -> None:
        account.add(["one", "1"], value=1)
        assert json.loads((out / "tests.json").read_text())["measurements"][0]["value"] == 1
        kept = account.add(["two", "2"], value=2)
        account.change(kept, ["two", "3"], value=3)
        assert rows(tmp_path, "tests") == [["one", "1"], ["two", "3"]]
        raise ValueError("then it broke")

    monkeypatch.setitem(gpu.STAGES, "tests", gpu.Stage(run=measure, seconds=9, header=("what", "figure")))
    with pytest.raises(ValueError, match="then it broke"):
        gpu.main(["tests", "--device", "cpu", "--out", str(out), "--ready", str(tmp_path)])
    found = json.loads((out / "tests.json").read_text())
    assert [one.get("value") for one in found["measurements"]] == [1, 3, None]
    assert found["measurements"][2]["error"] == "ValueError: then it broke"
    assert sorted(path.name for path in out.iterdir()) == ["tests.json", "tests.log", "tests.md"]


def test_sides_that_fail_cost_no_other(stage, script, tmp_path: Path, monkeypatch) -> None:
    pretraining = script("gpu_pretraining")
    made: list[FakeSide] = []
    monkeypatch.setattr(pretraining, "Side", lambda *a, **b: made.append(FakeSide(*a, **b)) or made[-1])
    monkeypatch.setattr(pretraining, "groups", lambda chosen: [pretraining.TOGETHER, *zip(pretraining.OTHERS)])
    monkeypatch.setattr(pretraining, "SIZES", {"L1H64": (1, 64)})  # all rounds, as of the sizes of a GPU
    monkeypatch.setattr(pretraining, "look_up_peak", lambda name: 1e12)
    status, found = stage("base", "--seconds", "1000")
    assert status == 1 and all(side.ended for side in made)
    assert [row[:4] for row in rows(tmp_path, "base")] == [
        ["L1H64, 16", "osbert", "300", "1.00"],
        ["L1H64, 16", "sdpa bf16", "100", "3.00"],
    ]
    assert rows(tmp_path, "base")[0][5:] == ["7,000", "20"]  # compiling is told apart
    errors = [one["error"] for one in found["measurements"] if "error" in one]
    assert errors == [
        "L1H64, 16, sdpa bf16 compiled: it does not compile",
        *["L1H64, 16, default: memory ran out"] * 5,
    ]


def test_pretraining_in_small(stage, tmp_path: Path) -> None:
    status, found = stage("base", "--seconds", "500")
    assert status == 0, (tmp_path / "out" / "base.log").read_text()
    assert [row[:2] for row in rows(tmp_path, "base")] == [["L1H64, 16", "osbert"]]
    for one in found["measurements"]:
        assert one["rate"] > 0 and one["memory_mb"] > 0 and len(one["rounds"]) == 1 and one["warming"] > 0
    assert found["machine"]["torch"].startswith("torch 2.")


def test_a_side_that_does_not_answer_in_time_is_ended(script) -> None:
    speed = script("pretraining_speed")
    case = speed.Case(size="L1H64", length=16, device="cpu", tokens=64)
    side = speed.Side(case, "osbert", {}, left=lambda: 0.0)
    with pytest.raises(RuntimeError, match="osbert failed"):
        assert side.warm
    side.end()
    assert side.process.poll() == -9


def test_encoding_in_small(stage, tmp_path: Path, capfd) -> None:
    status, found = stage("encoding", "--seconds", "500")
    assert status == 0
    table = rows(tmp_path, "encoding")
    assert [row[1] for row in table] == ["plain fp32", "osbert bf16", "best bf16", "osbert fp32"]
    assert all(float(row[2].replace(",", "")) > 0 and float(row[5]) > 0.99 for row in table)
    assert all(one["texts"] == 24 and len(one["seconds"]) == 5 for one in found["measurements"])


def test_writing_in_small(stage, tmp_path: Path) -> None:
    status, found = stage("generation", "--seconds", "500")
    assert status == 0
    table = rows(tmp_path, "generation")
    assert [row[:2] for row in table] == [["2", "1"], ["1", "2"]]
    assert all(one["ratio"] > 0 and len(one["seconds"]) == 1 for one in found["measurements"])


def test_flex_attention_in_small(stage, tmp_path: Path) -> None:
    status, found = stage("flex", "--seconds", "500")
    assert status == 0
    assert [row[:2] for row in rows(tmp_path, "flex")] == [["16", "sdpa"], ["16", "flex"]]
    assert all(one["distance"] < 0.05 for one in found["measurements"])


@pytest.fixture
def texts(script: Callable[[str], ModuleType], tmp_path: Path) -> Path:
    """Data in the form of the real ones, packed for the stages of recipes."""
    data = tmp_path / "data"
    lines = [f"A film of {a} and {b}. It was {a} to see, and {b} to hear." for a in WORDS for b in WORDS]
    pairs = [f"{a} films\ta film of {b}" for a in WORDS for b in WORDS]
    files = {
        "SST-2": ["sentence\tlabel", *(f"{line}\t{number % 2}" for number, line in enumerate(lines))],
        "MRPC": ["Quality\t#1 String\t#2 String", *(f"{number % 2}\t{pair}" for number, pair in enumerate(pairs))],
        "RTE": ["sentence1\tsentence2\tlabel", *(f"{pair}\t{'not_' * (len(pair) % 2)}entailment" for pair in pairs)],
    }
    for task, table in files.items():
        (data / "glue" / task).mkdir(parents=True)
        for name in ("msr_paraphrase_train.txt",) if task == "MRPC" else ("train.tsv", "dev.tsv", "test.tsv"):
            (data / "glue" / task / name).write_text("\n".join(table[:30]) + "\n")
    (data / "text").mkdir()
    documents = "".join(json.dumps({"text": line}) + "\n" for line in lines * 4)
    (data / "text" / "reviews.jsonl.xz").write_bytes(lzma.compress(documents.encode()))
    packed = tmp_path / "texts"
    assert script("gpu_texts").pack(data, packed, vocabulary=100)
    return packed


def test_recipes_and_their_scores_in_small(stage, tmp_path: Path, texts: Path) -> None:
    for name in ("recipe-paper", "recipe-fast"):
        status, found = stage(name, "--seconds", "500")
        assert status == 0, (tmp_path / "out" / f"{name}.log").read_text()
        [row], [one] = rows(tmp_path, name), found["measurements"]
        assert (
            row[0].startswith(name.replace("recipe", "bert")) and row[2] == "2" and row[4] == f"{one['mlm.loss']:.3f}"
        )
        assert (tmp_path / "recipes" / name.replace("recipe", "bert") / "model.safetensors").is_file()
    status, found = stage("recipe-scores", "--seconds", "500")
    assert status == 0 and len(found["measurements"]) == 2
    for row, one in zip(rows(tmp_path, "recipe-scores"), found["measurements"]):
        assert one["side"] == row[0] and row[1] == "1" and [*one["scores"]] == ["SST-2", "MRPC", "RTE"]
        assert [float(cell) for cell in row[2:]] == [
            round(100 * one["scores"][task][0][kind], 1)
            for task, kind in (("SST-2", "accuracy"), ("MRPC", "accuracy"), ("MRPC", "f1/1"), ("RTE", "accuracy"))
        ]


def test_recipes_that_fail_or_have_no_time_say_so(gpu, stage, script, tmp_path: Path, texts: Path, monkeypatch) -> None:
    recipes = script("gpu_recipes")
    status, found = stage("recipe-scores", "--seconds", "500")
    assert status == gpu.UNFINISHED and len(found["left_out"]) == 2  # nothing was pretrained
    monkeypatch.setattr(recipes, "AFTER", 499.9)
    status, found = stage("recipe-fast", "--seconds", "500")
    assert status == 1 and found["measurements"][0]["error"].endswith("was not done in time")
    monkeypatch.setattr(recipes, "AFTER", 0)
    monkeypatch.setattr(recipes, "FEW", "--no-such-option 1")
    status, found = stage("recipe-fast", "--seconds", "500")
    assert status == 1 and "no-such-option" in found["measurements"][0]["error"]
    shutil.rmtree(texts)
    status, found = stage("recipe-fast", "--seconds", "500")
    assert status == 1 and "make gpu-ready" in found["measurements"][0]["error"]


@pytest.mark.parametrize("name", ["generation", "flex", "recipe-paper", "recipe-fast", "recipe-scores"])
def test_a_further_stage_without_time_starts_nothing(gpu, stage, name: str) -> None:
    status, found = stage(name, "--seconds", "0")
    assert status == gpu.UNFINISHED
    assert not found["measurements"] and found["left_out"]
    assert gpu.MORE[name].seconds <= 9 * 60


def test_packages_that_lack_are_taken_from_the_wheels_and_no_others(gpu, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    for name in ("zz_missing", "torch", "pytest"):
        with zipfile.ZipFile(tmp_path / "wheels" / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", "")
    assert gpu.provide(tmp_path) == ["zz_missing"]
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["zz_missing"]
    assert str(tmp_path / "site") in sys.path and importlib.util.find_spec("zz_missing")


def test_tests_are_counted_and_ended_in_time(gpu, tmp_path: Path, stage, monkeypatch) -> None:
    good, bad, slow = (tmp_path / f"test_{name}.py" for name in ("good", "bad", "slow"))
    skip = '@pytest.mark.skip(reason="no GPU")\n'
    good.write_text(f"import pytest\ndef test_a(): pass\n{skip}def test_b(): pass\n{skip}def test_c(): pass\n")
    bad.write_text("def test_a(): assert 1 == 2\ndef test_b(): pass\n")
    slow.write_text("import time\ndef test_a(): time.sleep(600)\n")
    monkeypatch.setattr(gpu, "TESTS", (str(good), str(bad)))
    status, found = stage("tests", "--seconds", "300")
    assert status == 1
    assert [row[1:4] for row in rows(tmp_path, "tests")] == [["1", "0", "2"], ["1", "1", "0"]]
    assert "1 failed, 0 broke" in found["measurements"][1]["error"]
    monkeypatch.setattr(gpu, "TESTS", (str(slow), str(good)))
    status, found = stage("tests", "--seconds", "1")
    assert status == 1 and found["left_out"] == [str(good)]
    assert found["measurements"][0]["error"] == "time was up before the tests had ended"


def test_wheels_are_made_ready(script, tmp_path: Path, monkeypatch, capsys) -> None:
    ready = script("gpu_ready")
    ran: list[list[str]] = []

    def download(command: list[str], **_: object) -> None:
        ran.append(command)
        folder = Path(command[command.index("--dest") + 1])
        assert folder.is_dir() and not [*folder.iterdir()]
        (folder / "some-1.0-py3-none-any.whl").write_bytes(b"0" * 1000)

    monkeypatch.setattr(ready.subprocess, "run", download)
    words = ["--out", str(tmp_path), "--data", str(tmp_path / "none")]
    assert ready.main([*words, "--python", "3.12"]) == 0
    assert ready.main(words) == 0  # a second time begins anew
    assert "--only-binary=:all:" in ran[0] and ran[0][ran[0].index("--python-version") + 1] == "3.12"
    assert not [word for word in ran[0] if word.startswith("torch")]
    monkeypatch.setattr(ready, "LARGEST", 999)
    assert ready.main(words) == 1
    assert "1 wheels" in (said := capsys.readouterr().out) and "no texts" in said
