"""A corpus: the English in the docstrings of every installed library, read without importing any.

Source files are parsed, never run. The prose of each docstring is kept; doctests, tables, signatures, underlines, field
names, formulae and inline markup are removed. A paragraph that occurs several times is kept once. A core parses about
4 MB of source per second, so only a sample of a very large library is read.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import re
import sysconfig
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from osbert.processes import holding_interrupts
from osbert_lab.adaptation.general_text import is_prose

STANDARD_LIBRARY = "python"
PASSED_OVER = frozenset(
    ("test", "tests", "testing", "idle_test", "idlelib", "lib2to3", "__pycache__")  # not documentation
    + ("_vendor", "vendor", "vendored", "third_party", "extern", "externals", "pip")  # copies of other libraries
    + ("site-packages", "dist-packages", "osbert")  # read on their own; ourselves
)
LARGEST = 20_000_000
"""Most bytes of source read from one library; a larger one is sampled by the hash of its file names."""
ADDED = frozenset(("add_docstr", "add_newdoc", "_add_docstr"))  # how C functions get their docstrings, in Python source

_SECTIONS_DROPPED = re.compile(r"(examples?|references?|see also|doctests?|attributes|methods|usage)\s*:*\s*$", re.I)
_UNDERLINE = re.compile(r"\s*([-=~^*#_.+`'\"])\1{2,}[\s|+=-]*$")
_DIRECTIVE = re.compile(r"\s*\.\. ")
_KEPT_DIRECTIVE = re.compile(
    r"\s*\.\. (?:note|warning|important|tip|caution|versionadded|versionchanged)::\s*[\d.]*\s*", re.I
)
_DOCTEST = re.compile(r"\s*(>>>|\.\.\. |In \[|Out\[|\$ |#|@|def |class |import |from \w+ import)")
_FIELD = re.compile(r"\s*(?::\w[^:]*:|[-*+•]|\d+[.)])\s+")  # ":param x: ", "- ", "1. "
_PARAMETER = re.compile(r"\s*[`*]*\w[\w.,*` ]{0,60}(?:\s+:\s|\s*:\s*(?:int|str|bool|float|array|list|dict|callable)\b)")
_DEFINITION = re.compile(
    r"\s*[`*]*[\w.]+[`*]*(?:\s*\([^)]*\)\s*:(?:\s+|$)|(?:\[[^:]*\])?\s*:\s+(?=[A-Z]))"
)  # "name (type): what"
_HEADING = re.compile(r"\s*[A-Z]\w*(?: \w+)?\s*:\s*$")  # "Returns:"
_ROLE = re.compile(r":[\w:-]+:`+~?([^`<]*?)(?:\s*<[^>]*>)?`+")
_MARKDOWN_LINK = re.compile(r"\[([^\]]+)\]\([^)\s]*\)")
_LINK = re.compile(r"`([^`<]+?)\s*<[^>]*>`_{0,2}")
_FOOTNOTE = re.compile(r"\s*\[[\w., -]{1,16}\]_|\bhttps?://\S+")
_LITERAL = re.compile(r"(?<!\w)(`{1,2}|\*{1,2}|\|)(?=\S)(.+?)(?<=\S)\1_{0,2}(?!\w)")


@dataclass(frozen=True, slots=True)
class DocstringText:
    """The prose of one docstring, with its library and file."""

    library: str
    file: str
    text: str


def collect(*, processes: int | None = None, folders: Sequence[Path] | None = None) -> list[DocstringText]:
    """Return a passage for each docstring of the installed libraries that contains prose.

    Files are sorted by name, so the result depends only on the installation. `folders` replace the standard library and
    site-packages. A paragraph that occurred before, in any library, is left out.
    """
    files = _sample_files(_files(folders))
    paragraphs_seen: set[str] = set()
    passages = []
    # by spawn on every system and in every Python: what the default is depends on both
    with ProcessPoolExecutor(processes or os.cpu_count(), mp_context=get_context("spawn")) as pool:
        with holding_interrupts():
            file_texts = pool.map(_read, [file[0] for file in files], chunksize=16)
        for (_, library, name), texts in zip(files, file_texts):
            for text in texts:
                # Inherited docstrings repeat whole paragraphs; duplicates would leak between train and test files.
                fresh = [part for part in text.split("\n") if part not in paragraphs_seen]
                paragraphs_seen.update(fresh)
                if fresh:
                    passages.append(DocstringText(library, name, "\n".join(fresh)))
    return passages


def running_text(docstring: str) -> str:
    """Return the prose paragraphs of a docstring, one per line; "" if there are none."""
    paragraphs = (_plain(paragraph) for paragraph in _paragraphs(inspect.cleandoc(docstring)))
    return "\n".join(paragraph for paragraph in paragraphs if is_prose(paragraph))


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of a module's source in order, and those that it adds to C functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's invalid escapes are no concern of the reader's
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):  # a template, or a file for another Python
            return
    # An explicit stack instead of recursion: the nesting of strangers' sources is not bounded.
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node, clean=False) or ""
        elif isinstance(node, ast.Call):
            yield _find_docstring(node)
        # Reversed, since the stack pops from its end: docstrings come in source order.
        waiting.extend(reversed(list(_inner(node))))


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the child nodes that can have a docstring: statements of bodies, and calls that are statements."""
    for name in ("body", "orelse", "finalbody", "handlers"):
        for child in getattr(node, name, None) or ():
            value = getattr(child, "value", None)
            yield value if isinstance(child, ast.Expr) and isinstance(value, ast.Call) else child


def _find_docstring(call: ast.Call) -> str:
    """Return the docstring that a call such as `add_docstr(torch.abs, "...")` gives to a C function; "" for other
    calls."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in ADDED:
        return ""
    # The docstring may be concatenated or formatted: take the longest string constant below the arguments.
    texts = [
        node.value
        for argument in call.args[1:]
        for node in ast.walk(argument)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return max(texts, key=len, default="")


def _files(folders: Sequence[Path] | None) -> Iterator[tuple[Path, str, str]]:
    """Yield (path, library, name) for each source file to read."""
    paths = sysconfig.get_paths()
    roots = (
        [(folder, "") for folder in folders]
        if folders is not None
        else [(Path(paths["stdlib"]), STANDARD_LIBRARY), *((Path(paths[kind]), "") for kind in ("purelib", "platlib"))]
    )
    seen = set()
    for root, library in roots:
        for folder, inner, names in os.walk(root):
            # Assigning to the slice prunes the walk: os.walk descends only into the folders left in this list.
            inner[:] = sorted(name for name in inner if name not in PASSED_OVER and not name.endswith("-info"))
            for path in (Path(folder, name) for name in names if name.endswith(".py")):
                relative = path.relative_to(root)
                if path not in seen and not path.name.startswith(("test_", "_pytest")):
                    seen.add(path)
                    owner = library or relative.parts[0].removesuffix(".py")
                    yield path, owner, f"{owner}:{relative.as_posix()}"


def _by_hash(file: tuple[Path, str, str]) -> bytes:
    return hashlib.sha256(file[2].encode()).digest()


def _sample_files(files: Iterable[tuple[Path, str, str]]) -> list[tuple[Path, str, str]]:
    """Return the files sorted by name; of each library a sample of at most LARGEST bytes."""
    room: dict[str, int] = defaultdict(lambda: LARGEST)
    selection = []
    for file in sorted(files, key=_by_hash):
        path, library, _ = file
        room[library] -= path.stat().st_size
        if room[library] >= 0:
            selection.append(file)
    return sorted(selection)


def _read(path: Path) -> list[str]:
    """Return the prose of each docstring of a file; [] if it cannot be read as UTF-8."""
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return [text for docstring in docstrings(source) if (text := running_text(docstring))]


def _paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs as single lines, without doctests, directives, headings and sections without prose."""
    paragraph: list[str] = []
    skipped_beyond = -1  # lines indented deeper than this are left out; -1: none are
    lines = [*_without_doctests(text.expandtabs(4).split("\n")), ""]
    for line, following in zip(lines, [*lines[1:], ""]):
        indent = len(line) - len(line.lstrip())
        if line.strip() and skipped_beyond >= 0:
            # A dropped section at indentation 0 has its body at 0 too, so only the next section heading ends it.
            if indent > skipped_beyond or (skipped_beyond == 0 and not _starts_section(line, following)):
                continue
            skipped_beyond = -1
        prose, starts = _line(line, following)
        if (starts or not prose) and paragraph:
            yield " ".join(paragraph)
            paragraph = []
        if prose:
            paragraph.append(prose)
        skipped_beyond = max(skipped_beyond, _skip_from(line, following, indent))


def _without_doctests(lines: list[str]) -> Iterator[str]:
    """Yield the lines, with doctests blanked: from the prompt to the next blank line."""
    inside = False
    for line in lines:
        inside = bool(line.strip()) and (inside or line.lstrip().startswith(">>>"))
        yield "" if inside else line


def _starts_section(line: str, following: str) -> bool:
    return bool(_UNDERLINE.match(following)) or bool(re.match(r"[A-Z][\w ]{2,20}:$", line))


def _skip_from(line: str, following: str, indent: int) -> int:
    """Return the indentation beyond which the lines that follow are skipped because of this line; -1 for none."""
    if _SECTIONS_DROPPED.match(line.strip()) and (_UNDERLINE.match(following) or line.rstrip().endswith(":")):
        return indent
    if _DIRECTIVE.match(line) and not _KEPT_DIRECTIVE.match(line):
        return indent + 1
    return indent + 1 if line.rstrip().endswith("::") and not _KEPT_DIRECTIVE.match(line) else -1


def _line(line: str, following: str) -> tuple[str, bool]:
    """Return the prose part of a line, and whether it starts a new paragraph."""
    if not line.strip() or _UNDERLINE.match(line) or _UNDERLINE.match(following) or _DOCTEST.match(line):
        return "", True
    if _HEADING.match(line):
        return "", True
    if directive := _KEPT_DIRECTIVE.match(line):
        return line[directive.end() :].strip(), True
    if _DIRECTIVE.match(line):
        return "", True
    if field := _FIELD.match(line) or _DEFINITION.match(line):
        return line[field.end() :].strip(), True
    if _PARAMETER.match(line):
        return "", True
    return line.strip(), False


def _plain(paragraph: str) -> str:
    """Return a paragraph without inline markup."""
    # Roles and links come before literals: their backquotes would otherwise match as plain literals.
    paragraph = _ROLE.sub(r"\1", paragraph)
    paragraph = _MARKDOWN_LINK.sub(r"\1", paragraph)
    paragraph = _LINK.sub(r"\1", paragraph)
    paragraph = _FOOTNOTE.sub("", paragraph)
    paragraph = _LITERAL.sub(r"\2", paragraph)
    return " ".join(paragraph.split())
