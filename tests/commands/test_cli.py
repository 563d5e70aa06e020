"""The command line as a user meets it: help, versions, wrong usage and readable errors, in real processes."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys

import pytest

import osbert
import terminal
from osbert import cli
from osbert.console.verbs import VerbPackage, group_by_purpose, verb_packages
from osbert.errors import Problems, nearest
from osbert.options import FIRST
from refusals import refusal


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "osbert", *arguments], capture_output=True, text=True, timeout=60)


def all_verbs() -> list[str]:
    """Return the first words of all commands, each once."""
    return [*{name[0]: None for package in verb_packages() for name in package.names()}]


def test_help_names_every_verb() -> None:
    result = run("--help")
    assert result.returncode == 0
    for verb in all_verbs():
        assert verb in result.stdout


def test_help_groups_verbs_by_what_one_wants(capsys: pytest.CaptureFixture[str]) -> None:
    """A new verb has a place in PURPOSES; the groups, and the verbs in them, stand in its order."""
    placed = [verb for verbs in group_by_purpose(verb_packages()).values() for verb in verbs]
    assert sorted(placed) == sorted(all_verbs())
    cli.application(["--help"]).help_print()
    shown = capsys.readouterr().out
    places = [shown.index(f"─ {purpose} ─") for purpose in group_by_purpose(verb_packages())]
    assert places == sorted(places)
    places = [shown.index(f"│ {verb} ") for verb in placed]
    assert places == sorted(places)


@pytest.mark.parametrize("package", verb_packages(), ids=lambda package: package.package)
def test_every_verb_has_help(package: VerbPackage) -> None:
    """Each verb's file exists, imports, and explains its options."""
    app = cli.application()
    below = {verb for verb, _ in package.subverbs.items()}
    for words in [name for name in package.names() if name[0] not in below or len(name) == 1]:
        node = app
        for word in words:
            node = node[word]
        assert node.default_command is not None
        assert node.default_command.__doc__


def test_subverbs_have_help_and_their_verb_keeps_its_own() -> None:
    for package, verb in [(each, verb) for each in verb_packages() for verb in each.subverbs]:
        app = cli.application([verb])[verb]
        alone = getattr(importlib.import_module(package.module((verb,))), verb)
        assert app.default_command is not None and app.default_command.__doc__ == alone.__doc__
        for below in package.subverbs[verb]:
            assert app[below].default_command is not None and app[below].default_command.__doc__


def test_version() -> None:
    assert run("--version").stdout.strip() == osbert.__version__


def test_an_unknown_verb_exits_with_2() -> None:
    result = run("pretain")
    assert result.returncode == 2
    assert "pretain" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_a_misspelt_option_is_seen_even_where_settings_are_taken() -> None:
    result = run("pretrain", "cpu", "--corpsu", "corpus", "--out", "run")
    assert result.returncode == 2
    assert "--corpus" in result.stderr and "--corpsu" in result.stderr
    result = run("corpus", "mix", "--out")
    assert result.returncode == 2
    assert "Did you mean" not in result.stderr


def test_the_old_way_to_name_columns_says_the_new_one() -> None:
    result = run("predict", ".", "--file", "in.csv", "--columns", "question=frage,choices=b+c")
    assert result.returncode == 2
    assert "--columns.question frage" in result.stderr


def test_a_verbs_settings_are_options_in_its_help() -> None:
    shown = run("finetune", "classify", "--help")
    assert shown.returncode == 0
    for words in ("─ classify ─", "--classify.length", "─ training ─", "--training.epochs"):
        assert words in shown.stdout


def test_every_command_that_takes_settings_has_them_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*words: str) -> str:
        return str(terminal.told(capsys, *words, "--help").output)

    assert "Fine-tune an encoder" in shown("finetune", "nonesuch")
    with_lab = (["plan", "bert-tiny"], ["bench", "bert-tiny"]) if importlib.util.find_spec("osbert_lab") else ()
    for words in (*with_lab, ["corpus", "show", "corpus", "--recipe", "bert-tiny"]):
        told = shown(*words)
        assert "─ nsp ─" in told and "--training.steps" in told
    assert "─ nsp ─" not in shown("pretrain", "roberta-base")


def test_an_error_is_one_readable_line_and_status_1(tmp_path) -> None:
    result = run("corpus", "show", str(tmp_path / "nowhere"))
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert "nowhere" in result.stderr
    assert "Traceback" not in result.stderr


def test_what_the_system_refuses_is_told_without_a_traceback(tmp_path) -> None:
    text, blocked = tmp_path / "a.txt", tmp_path / "file"
    text.write_text("A sentence. Another one.\n" * 50)
    blocked.write_text("in the way")
    result = run("tokenizer", "train", str(text), "--out", str(blocked / "tokenizer"))
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


def test_problems_tells_all_at_once_and_counts_the_rest() -> None:
    problems = Problems(heading="table.csv cannot be used", limit=2)
    for line in range(5):
        problems.add(f"line {line}: bad")
    with refusal("refused", "table.csv", "0", "1", "3"):
        problems.stop_if_any()


def test_no_problems_pass() -> None:
    problems = Problems(heading="fine")
    problems.stop_if_any()
    assert problems.count == 0


def test_nearest_names_a_close_word_only() -> None:
    assert nearest("learning_rat", ["learning_rate", "layers"]) == " Did you mean 'learning_rate'?"
    assert nearest("zzz", ["learning_rate"]) == ""


def test_the_help_of_finetune_shows_ten_settings_first() -> None:
    """They stand above the tables of settings and nowhere else; a task without one of them shows the others."""
    for task, count in {"classify": 10, "tag": 8}.items():
        verb = cli.application(["finetune", task, "--help"])["finetune"]
        options = [*verb.assemble_argument_collection()]
        first = [one.names[-1] for one in options if one.parameter.group[0].name == FIRST]
        assert len(first) == len({*first}) == count
        assert first[:3] == ["--epochs", "--batch", "--learning-rate"]
