"""Makes the documentation site of docs/, the READMEs, the examples and the code: the hook of mkdocs.yml."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import code_map  # mkdocs has this folder on the path while it loads a hook
import reference
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    "README.md": "index.md",
    "README.zh.md": "index.zh.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files of the repository that are pages of the site, by their names there."""
UNSEARCHED = ("changelog.md", "map.md")
"""Pages that the search leaves out: long lists, which would be among the results of nearly every word."""


def on_config(config: Any) -> Any:
    """Fill in the parts of the navigation that the code decides: the verbs and the examples."""
    verbs = [{"All verbs": "reference/commands/index.md"}]
    for words in reference.every_verb():
        verbs.append({" ".join(words): f"reference/commands/{'-'.join(words)}.md"})
    filled = {"VERBS": verbs, "EXAMPLES": [f"examples/{path.stem}.md" for path in examples()]}
    config.nav = _filled(config.nav, filled)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are no files of docs/: the READMEs, the code map, the examples and the reference."""
    for name, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, "map.md", content=code_map.page(ROOT)))
    for page, text in reference.pages().items():
        files.append(File.generated(config, page, content=text))
    for path in examples():
        page = example_page(path) if path.suffix == ".py" else notebook_page(path)
        files.append(File.generated(config, f"examples/{path.stem}.md", content=page))
    return files


def on_page_markdown(markdown: str, page: Any, **context: Any) -> str:
    """Lead links to files of the repository to their pages on the site, at any depth; keep lists out of the search.

    The files of the measurements have no pages: their names stay.
    """
    if page.file.src_uri in UNSEARCHED:
        page.meta["search"] = {"exclude": True}
    up = "../" * page.file.src_uri.count("/")
    markdown = re.sub(r"\[([^\]]+)\]\((?:\.\./)?benchmarks/[^)]*\)", r"\1", markdown).replace("](../docs/", "](docs/")
    for name, target in OUTSIDE.items():
        markdown = re.sub(rf"\]\((\.\./)?{re.escape(name)}\b", f"]({up}{target}", markdown)
    return re.sub(r"(\]\(|src=\")docs/", rf"\g<1>{up}", markdown).replace("[LICENSE](LICENSE)", "LICENSE")


def on_page_content(html: str, page: Any, **context: Any) -> None:
    """Raise PluginError if a page of the reference lacks a public method or property of one of its classes."""
    names = [name for path, name in reference.shown_classes() if path == page.file.src_uri]
    anchors = [f"{name}.{member}" for name in names for member in reference.members(name)]
    if missing := [anchor for anchor in anchors if f'id="{anchor}"' not in html]:
        raise PluginError(f"{page.file.src_uri} lacks {', '.join(missing)}: give each a docstring.")


@event_priority(-200)  # after the plugin offline has written the index as a script
def on_post_build(config: Any) -> None:
    """Raise PluginError if the search needs another server, or has a page that it should leave out."""
    site = Path(config.site_dir)
    for name in ("index.html", "reference/python.html"):
        if remote := re.findall(r'<script[^>]* src="(https?:[^"]*)"', (site / name).read_text(encoding="utf-8")):
            raise PluginError(f"{name} loads {', '.join(remote)}: keep scripts in docs/.")
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8").removeprefix("var __index = ")
    pages = {entry["location"].partition("#")[0] for entry in json.loads(index)["docs"]}
    if searched := {page.replace(".md", ".html") for page in UNSEARCHED} & pages:
        raise PluginError(f"the search has {', '.join(sorted(searched))}")


def examples() -> list[Path]:
    """Return the notebooks and scripts of examples/ that no tutorial shows, the notebooks first."""
    tutorials = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "tutorials").glob("*.md"))
    shown = {ROOT / "examples" / name for name in re.findall(r"<!-- script (\S+) -->", tutorials)}
    every = [path for ending in ("ipynb", "py") for path in sorted((ROOT / "examples").glob(f"*.{ending}"))]
    return [path for path in every if path not in shown]


def example_page(path: Path) -> str:
    """Return the page of a script: what it does, how to call it, and its code without the docstring."""
    text = path.read_text(encoding="utf-8")
    opening = ast.get_docstring(ast.parse(text)) or ""
    code = re.sub(r'^""".*?"""\n+', "", text, count=1, flags=re.DOTALL)
    title = path.stem.replace("_", " ").capitalize()
    return f"# {title}\n\n{opening}\n\nThe tests run this script, `examples/{path.name}`.\n\n```python\n{code}```\n"


def notebook_page(path: Path) -> str:
    """Return the page of a notebook: its text, its code and the outputs that are stored in it."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            forms = output.get("data", {"text/plain": output.get("text", [])})
            shown = "".join(forms.get("text/html", ()))
            parts.append(shown or f"```text\n{''.join(forms['text/plain']).rstrip()}\n```")
    parts.append(f"The tests run this notebook, `examples/{path.name}`.\n")
    return "\n\n".join(parts)


def _filled(nav: Any, parts: dict[str, Any]) -> Any:
    """Return a navigation with its placeholders replaced."""
    if isinstance(nav, list):
        return [_filled(one, parts) for one in nav]
    if isinstance(nav, dict):
        return {title: _filled(one, parts) for title, one in nav.items()}
    return parts.get(nav, nav)
