"""Wrong words, options, files and models of a command are reported in one message, before anything is downloaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import terminal
from hub_server import Hub, hub_on_localhost

NAME = "someone/encoder"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_on_localhost(tmp_path, monkeypatch) as running:
        running.repositories[NAME] = {"config.json": b"{}", "model.safetensors": b""}
        yield running


def words_of(verb: str, model: str, file: str, folder: Path) -> tuple[list[str], list[str], list[str]]:
    """Return the words of a verb, an option whose value a check refuses, and one whose value is no number or name."""
    out = str(folder / "out")
    return {
        "predict": (["predict", model, "--file", file], ["--abstain", "2"], ["--top-k", "many"]),
        "evaluate": (["evaluate", model, "--data", file], ["--out", "out.pdf"], ["--split", "dv"]),
        "embed": (["embed", model, file], ["--out", "out.pdf"], ["--out", "out.npz", "--pooling", "men"]),
        "finetune": (
            ["finetune", "classify", "--model", model, "--data", file, "--out", out],
            ["--epochs", "many"],
            ["--epoch", "2"],
        ),
    }[verb]


def codes_of(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, set[str]]:
    """Return the exit status of a command, and the codes of its one error object."""
    status = terminal.run(*words, "--json")
    [line] = capsys.readouterr().err.splitlines()
    return status, {*json.loads(line)["codes"]}


@pytest.mark.parametrize("verb", ["predict", "evaluate", "embed", "finetune"])
def test_a_wrong_option_file_and_model_are_in_one_message(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    folder = tmp_path / "no-model"
    folder.mkdir()
    for model, code in (("someone/other", "unknown-model"), (str(folder), "not-a-model"), (NAME, "")):
        words, checked, parsed = words_of(verb, model, str(tmp_path / "nothing.csv"), tmp_path)
        refused = "unknown-output-format" if "out.pdf" in checked else "invalid-value"
        assert codes_of(capsys, *words, *checked) == (1, {refused, "missing-file", code} - {""}), (model, checked)
        status, codes = codes_of(capsys, *words, *parsed)
        usage = "unknown-setting" if verb == "finetune" else "usage"
        assert (status, codes) == (1 if verb == "finetune" else 2, {usage, "missing-file", code} - {""}), (
            model,
            parsed,
        )
    # The model that there is was not downloaded for a command that cannot begin.
    assert not any("/resolve/" in path for _, path, *_ in hub.requests)


def test_wrong_words_are_listed_before_a_model_is_fetched(
    hub: Hub, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, codes = codes_of(capsys, "evaluate", NAME, "--data", str(table), "--split", "dv", "--nothing", "1")
    assert (status, codes) == (2, {"usage"})
    # A verb whose options are not checked with its files parses its words first, too.
    assert codes_of(capsys, "export", NAME, "--to", "nothing") == (2, {"usage"})
    assert not any("/resolve/" in path for _, path, *_ in hub.requests)
    words = ("evaluate", "someone/other", "--data", str(table), "--nothing", "1")
    assert codes_of(capsys, *words) == (2, {"usage", "unknown-model"})


def test_words_are_taken_where_pydantic_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """cyclopts lets pydantic check the arguments where it is loaded, as by the server."""
    pytest.importorskip("pydantic", reason="needs the extra serve")
    (tmp_path / "no-model").mkdir()
    words = ["embed", str(tmp_path / "no-model"), str(tmp_path / "nothing.csv"), "--out", str(tmp_path / "out.npz")]
    assert codes_of(capsys, *words) == (1, {"missing-file", "not-a-model"})


@pytest.mark.parametrize(
    "verb", ["score", pytest.param("generate", marks=pytest.mark.lab), "explain", "compare", "search"]
)
def test_other_verbs_report_wrong_words_files_and_models_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    (tmp_path / "no-model").mkdir()
    model, file, out = str(tmp_path / "no-model"), str(tmp_path / "nothing.csv"), str(tmp_path / "out.csv")
    words = {
        "score": [model, "--file", file, "--out", out],
        "generate": [model, "--file", file, "--out", out],
        "explain": [model, "--file", file, "--out", str(tmp_path / "out")],
        "compare": [model, model, "--data", file],
        "search": [file, "--model", model, "--file", file, "--out", out],
    }[verb]
    assert codes_of(capsys, verb, *words) == (1, {"missing-file", "not-a-model"})
    assert codes_of(capsys, verb, *words, "--nothing", "1") == (2, {"usage", "missing-file", "not-a-model"})


@pytest.mark.parametrize("verb", ["corpus build", "corpus mix", "corpus show", "tokenizer train", "tokenizer extend"])
def test_verbs_on_texts_report_wrong_words_options_and_files_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    file, folder, out = str(tmp_path / "nothing.txt"), str(tmp_path / "nothing"), str(tmp_path / "out")
    words, option, code = {
        "corpus build": ([file, "--tokenizer", folder, "--out", out], ["--workers", "0"], "invalid-value"),
        "corpus mix": ([folder, folder, "--out", out], [], "missing-file"),
        "corpus show": ([folder], ["--masks", "-1"], "invalid-value"),
        "tokenizer train": ([file, "--out", out], ["--sentinels", "-1"], "invalid-value"),
        "tokenizer extend": ([folder, file, "--out", out], [], "missing-file"),
    }[verb]
    assert codes_of(capsys, *verb.split(), *words, *option) == (1, {"missing-file", code})
    if verb != "corpus show":  # which takes unknown words as settings of a recipe
        assert codes_of(capsys, *verb.split(), *words, *option, "--nothing", "1") == (
            2,
            {"usage", "missing-file", code},
        )


@pytest.mark.lab
def test_a_distillation_reports_settings_files_and_teacher_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no-model").mkdir()
    words = [
        "distil",
        str(tmp_path / "no-model"),
        "--data",
        str(tmp_path / "nothing.csv"),
        "--out",
        str(tmp_path / "o"),
    ]
    assert codes_of(capsys, *words, "--epoch", "2") == (1, {"unknown-setting", "missing-file", "not-a-model"})
    excluded = {"options-exclude-each-other", "missing-file", "not-a-model"}
    assert codes_of(capsys, *words, "--tuning", "lora") == (1, excluded)
    assert codes_of(capsys, *words, "--layers", "1", "--student", str(tmp_path / "no-model")) == (1, excluded)


def test_a_missing_option_is_reported_with_what_else_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no-model").mkdir()
    model, file = str(tmp_path / "no-model"), str(tmp_path / "nothing.csv")
    found = codes_of(capsys, "finetune", "classify", "--model", model, "--data", file, "--epochs", "many")
    assert found == (2, {"usage", "invalid-value", "missing-file", "not-a-model"})
    # Two missing options, beside a file that is there.
    assert codes_of(capsys, "finetune", "classify", "--data", __file__) == (2, {"usage"})
    terminal.run("finetune", "classify", "--data", __file__, "--modell", model)
    message = capsys.readouterr().err
    assert "--out" in message and "--model" in message and "\0" not in message
    assert codes_of(capsys, "embed", model, file) == (2, {"usage", "missing-file", "not-a-model"})
    assert codes_of(capsys, "corpus", "build", file, "--tokenizer", file) == (2, {"usage", "missing-file"})
