"""Writes keywords.pyi of each package, the settings of the public functions for type checkers: `make keywords`."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union

import osbert
from osbert.corpus.task_options import TaskOptions
from osbert.extensions import extensions
from osbert.inference.engine import Engine
from osbert.interop.opening import Opening
from osbert.runs.file_options import TextOptions
from osbert.runs.finetune.settings import FinetuneSettings
from osbert.signatures import SettingsSignature, keywords
from osbert.training.optimizer import OptimizerSettings

SOURCE = Path(__file__).resolve().parent.parent / "src"
SHARED: Mapping[str, type] = {
    "OpeningKeywords": Opening,
    "TextKeywords": TextOptions,
    "TaskKeywords": TaskOptions,
    "OptimizerKeywords": OptimizerSettings,
    "TrainingKeywords": FinetuneSettings,
}
"""Classes of settings that several functions have, and the names of their keywords."""
ROWS = {"dev": "Any"}
"""Settings that also take rows in memory."""
_OPENING = '''"""The keywords of the public functions, for type checkers and editors: written by `make keywords`."""

'''
_IMPORTS = {
    "Mapping": "collections.abc",
    "Sequence": "collections.abc",
    "Path": "pathlib",
    "Any": "typing",
    "Literal": "typing",
    "TypedDict": "typing",
}


def texts() -> dict[Path, str]:
    """Return each file as it should be."""
    core = {f"osbert.{name}": getattr(osbert, name) for name in osbert.__all__}
    core |= {f"Engine.{name}": getattr(Engine, name) for name in dir(Engine) if not name.startswith("_")}
    shared = {name: _type_texts(keywords([schema])) for name, schema in SHARED.items()}
    classes, users = _classes(core)
    users |= {name: [f"{schema.__module__}.{schema.__name__}"] for name, schema in SHARED.items()}
    files = {SOURCE / "osbert" / "keywords.pyi": _file(shared | classes, users)}
    if importlib.util.find_spec("osbert_lab"):
        lab = importlib.import_module("osbert_lab")
        functions = {f"osbert.{name}": getattr(lab, name) for name in lab.__all__}
        functions |= {f"Engine.{name}": call.load() for name, call in extensions("osbert.inference.calls").items()}
        in_lab, users = _classes(functions)
        files[SOURCE / "osbert_lab" / "keywords.pyi"] = _file(
            {name: fields for name, fields in in_lab.items() if name not in classes}, users, core=shared | classes
        )
    return files


def _classes(functions: Mapping[str, Any]) -> tuple[dict[str, dict[str, str]], dict[str, list[str]]]:
    """Return the classes that functions name, the smallest first, with their fields, and the functions of each."""
    classes: dict[str, dict[str, str]] = {}
    users: dict[str, list[str]] = {}
    for name, function in functions.items():
        signature = getattr(function, "__signature__", None)
        if isinstance(signature, SettingsSignature):
            *_, settings = signature.plain.parameters.values()
            [keywords_class] = re.findall(r"Unpack\[(\w+)\]", str(settings.annotation))
            fields = _type_texts(signature.settings)
            assert classes.setdefault(keywords_class, fields) == fields, f"two functions differ in {keywords_class}"
            users.setdefault(keywords_class, []).append(name)
    return dict(sorted(classes.items(), key=lambda item: len(item[1]))), users


def _file(
    classes: Mapping[str, Mapping[str, str]],
    users: Mapping[str, list[str]],
    core: Mapping[str, Mapping[str, str]] = types.MappingProxyType({}),
) -> str:
    """Return the text of a file. What an earlier class has, or one of the `core`, a class inherits."""
    blocks, earlier, imported = [], dict(core), set()
    for name, whole in classes.items():
        fields, bases = dict(whole), []
        for base in sorted(earlier, key=lambda base: -len(earlier[base])):
            if earlier[base].items() <= fields.items():
                bases.append(base)
                fields = {key: kind for key, kind in fields.items() if key not in earlier[base]}
        earlier[name] = whole
        imported |= core.keys() & {*bases}
        opening = f"class {name}({', '.join(bases or ['TypedDict'])}, total=False):"
        document = f'    """Settings of {" and ".join(users[name])}."""'
        lines = [f"    {key}: {kind}" for key, kind in fields.items()]
        blocks.append("\n".join(["\n", opening, document, *([""] if lines else []), *lines, ""]))
    text = "".join(blocks)
    needed = [name for name in _IMPORTS if re.search(rf"\b{name}\b", text)]
    modules = dict.fromkeys(_IMPORTS[name] for name in needed)
    imports = [f"from {module} import {', '.join(n for n in needed if _IMPORTS[n] == module)}\n" for module in modules]
    if imported:
        imports += ["\n", f"from osbert.keywords import {', '.join(sorted(imported))}\n"]
    return _OPENING + "".join(imports) + text


def _type_texts(settings: Mapping[str, tuple[Any, Any]]) -> dict[str, str]:
    return {name: ROWS.get(name) or " | ".join(dict.fromkeys(_types(kind))) for name, (kind, _) in settings.items()}


def _types(kind: Any) -> Iterator[str]:
    """Yield what a caller may give for a setting of this type, as text."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        for argument in arguments:
            yield from _types(argument)
    elif origin is tuple:
        yield from ("str", f"Sequence[{' | '.join(_types(arguments[0]))}]")  # a text has commas between its parts
    elif origin is Literal:
        quoted = [f'"{argument}"' if isinstance(argument, str) else repr(argument) for argument in arguments]
        yield f"Literal[{', '.join(quoted)}]"
    elif origin is not None:
        yield f"Mapping[{', '.join(' | '.join(_types(argument)) for argument in arguments)}]"
    elif kind is Path:
        yield from ("str", "Path")
    else:
        yield {type(None): "None", Any: "Any"}.get(kind) or kind.__name__


def main() -> int:
    """Write the files."""
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
        subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", path], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
