"""Printing: control characters are escaped on a terminal, data elsewhere, and no text is one too many."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from osbert import terminal
from osbert.cli import main
from osbert.terminal import Screen, guard_streams, one_line, open_console, printable

NASTY = "\x1b[2J\r\x08\x07\x9b\x7f\u202eevil"


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_controls_and_turns_of_direction_are_escaped_and_nothing_else() -> None:
    assert printable(NASTY) == r"\x1b[2J\r\x08\x07\x9b\x7f\u202eevil"
    hidden = "\u200e\u200f\u061c\u2028\u2029\U000e0000\U000e0041\U000e007f"
    assert printable(hidden) == hidden.encode("unicode_escape").decode()
    assert printable("a\tb\nc é 世界 שלום 👍🏽") == "a\tb\nc é 世界 שלום 👍🏽"


def test_a_label_is_a_part_of_one_line() -> None:
    every = "".join(map(chr, range(0x3000)))
    assert len(one_line(f"{every}\t").splitlines()) == 1 and "\t" not in one_line(every)
    assert one_line("pos\nerror: x\r\n") == r"pos\nerror: x\r\n"
    assert one_line("世界 שלום \x1b") == "世界 שלום \x1b"  # a stream to a terminal escapes the rest


def test_a_screen_is_its_stream_but_for_controls(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    guard_streams()
    guard_streams()
    assert isinstance(sys.stdout, Screen) and sys.stdout.isatty()
    print("label:", NASTY, end="")
    sys.stdout.writelines(["\x1b"])
    assert stream.getvalue() == rf"label: {printable(NASTY)}\x1b"


def test_rich_keeps_its_own_controls_and_escapes_those_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    guard_streams()
    console = open_console(width=200)
    table = Table("a wide column")
    table.add_row("\x1b[2J")
    console.print(table)
    console.print("\x1b[2J\x9bevil", markup=False, highlight=False)
    console.print("[bold]plain[/bold] \x1b]0;title", highlight=False)
    shown = stream.getvalue()
    assert shown.count(r"\x1b[2J") == 2 and r"\x9bevil" in shown and r"\x1b]0;title" in shown
    assert "\x1b[1mplain\x1b[0m" in shown and "\x1b[2J" not in shown and "\x9b" not in shown


def test_what_is_no_terminal_gets_data(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    guard_streams()
    print(NASTY, end="")
    open_console(file=stream, width=200).print("\x9bx", end="")
    assert stream.getvalue() == NASTY + "\x9bx"


def test_file_names_that_are_not_utf_8_and_other_encodings_are_printed(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9\xff"
    for encoding in ("utf-8", "ascii"):
        command = [sys.executable, "-m", "osbert", "predict", os.fsdecode(name), "世"]
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        assert done.returncode == 1 and b"Traceback" not in done.stderr
        assert rb"caf\udce9\udcff" in done.stderr


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate memory: you tried"),
        OSError(12, "Cannot allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
    ],
)
def test_memory_that_runs_out_is_a_message(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("osbert.inference.engine.load", fail)
    assert main(["predict", ".", "text"]) == 1
    assert "memory ran out" in capsys.readouterr().err


def test_other_faults_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("osbert.inference.engine.load", fail)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        main(["predict", ".", "text"])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems know no limit of addresses")
def test_a_limit_of_memory_is_a_message(tmp_path: Path) -> None:
    command = f"ulimit -v 400000; exec {sys.executable} -m osbert predict {tmp_path} x"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "memory ran out" in done.stderr and "Traceback" not in done.stderr


def test_a_panic_of_a_native_library_is_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    panic = type("PanicException", (BaseException,), {})

    def fail(*_: object, **__: object) -> None:
        raise panic("index out of bounds")

    monkeypatch.setattr("osbert.inference.engine.load", fail)
    assert main(["predict", ".", "text"]) == 1
    assert "index out of bounds" in capsys.readouterr().err


def test_the_pattern_holds_every_control_character() -> None:
    assert all(terminal._CONTROLS.search(chr(code)) for code in [*range(9), *range(11, 32), *range(127, 160)])
