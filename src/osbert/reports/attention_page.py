"""The attention of one text as a self-contained HTML file: scripts of the server, and numbers as deflated bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osbert.reports.page import Section, paragraph, write_report

BROWSER = Path(__file__).parent / "browser"
"""Folder of the scripts that draw this file and the page of the server."""
SCRIPTS = (
    "elements",
    "attention_numbers",
    "attention_surfaces",
    "attention_pictures",
    "attention_grid",
    "attention_controls",
    "attention_view",
)
"""Modules in an order in which each follows those that it imports."""
CAUTION = (
    "Attention is what each head mixes, not why the model answers as it does (Jain and Wallace 2019; Wiegreffe and "
    "Pinter 2019). For that see osbert explain."
)

PLAIN = (
    "How much each head takes from one word, the key, into another, the query: the weights of a query sum to 100%. "
    "Choose layers, heads and words; the pictures follow."
)
START = """const found = (id) => document.getElementById(id);
attentionView(found("attention"), JSON.parse(found("attention-data").textContent));"""


def write_attention(path: Path, record: Mapping[str, Any], name: str) -> Path:
    """Write a page of attention from `TextAttention.record`; return the path."""
    # A text may hold </script>, and JSON has another way to write that letter.
    data = json.dumps(record, ensure_ascii=False).replace("<", "\\u003c")
    parts = [
        paragraph(PLAIN),
        '<div id="attention"></div>',
        f'<script type="application/json" id="attention-data">{data}</script>',
        "<noscript><p>The pictures need JavaScript, which is switched off here.</p></noscript>",
    ]
    style = (BROWSER / "attention.css").read_text(encoding="utf-8")
    section = Section(heading="What the heads attend to", parts=parts, style=style, script=script())
    return write_report(path, f"Attention of {name}", [section], lead=CAUTION)


def script() -> str:
    """Return the modules as one script without imports, which draws the page when it is loaded."""
    modules = [(BROWSER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    # Joined in one scope, the modules need neither import nor export.
    joined = "\n".join(re.sub(r"^import .*;\n", "", text, flags=re.MULTILINE) for text in modules)
    joined = re.sub(r"^export ", "", joined, flags=re.MULTILINE)
    return f"(() => {{\n{joined}\n{START}\n}})();\n"
