"""The attention of one text as one HTML file: the server's own scripts, and the numbers as deflated bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osbert.reports.page import Section, paragraph, write_report

BROWSER = Path(__file__).parent / "browser"
"""The script that draws both the file and the server's page."""
SCRIPTS = (
    "elements",
    "attention_numbers",
    "attention_surfaces",
    "attention_pictures",
    "attention_grid",
    "attention_controls",
    "attention_view",
)
"""Modules in an order in which each comes after those that it imports."""
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
    """Write a page of what a text attends to, from what `TextAttention.record` gives; return the path."""
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
    """Return the modules as one script, which needs no import, and draws what is on the page."""
    modules = [(BROWSER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    joined = "\n".join(re.sub(r"^import .*;\n", "", text, flags=re.MULTILINE) for text in modules)
    joined = re.sub(r"^export ", "", joined, flags=re.MULTILINE)
    return f"(() => {{\n{joined}\n{START}\n}})();\n"
