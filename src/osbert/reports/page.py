"""Reports as one self-contained HTML file: of a pretraining run, or from any sections."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.files import write_text
from osbert.objectives.contract import Answers, Objective
from osbert.reports.plot import Mark, Point, Series, line_plot, smooth
from osbert.training.run_folder import RunFolder
from osbert.training.tracking import BEFORE, GENERAL, HELD_OUT, NAME, duration, read_lines

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1d2433; --soft: #5f6b7f; --grid: #e6e9ef; --mark: #b54708;
  --c0: #2563eb; --c1: #c2410c; --c2: #047857; --c3: #7c3aed; --c4: #b91c6c; --c5: #57606a; }
@media (prefers-color-scheme: dark) { :root { --page: #12161d; --ink: #e4e8ef; --soft: #98a2b3; --grid: #2a313c;
  --mark: #f5a35c; --c0: #7aa7ff; --c1: #ff9b6a; --c2: #4fd1a1; --c3: #b79cff; --c4: #ff8ac2; --c5: #a9b4c0; } }
* { box-sizing: border-box; }
body { background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; max-width: 880px;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
a { color: var(--c0); } .lead { font-size: 1.05rem; } .soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; font-size: .92rem; overflow-wrap: normal; } td, th { padding: .3rem
  .8rem .3rem 0; border-bottom: 1px solid var(--grid); text-align: left; vertical-align: top; } td + td {
  font-variant-numeric: tabular-nums; } pre { overflow-x: auto; font-size: .85rem; padding: .8rem; border: 1px solid
  var(--grid); overflow-wrap: normal; }
.wide { overflow-x: auto; margin: 1rem 0; } td:first-child { min-width: 5.5rem; }
.long { min-width: min(70vw, 17rem); } .interval { white-space: nowrap; } th { vertical-align: bottom; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: .4rem 1.6rem; }
figure.plot { margin: .5rem 0; max-width: 480px; } figure.plot svg { width: 100%; height: auto; display: block; }
figcaption { font-size: .88rem; line-height: 1.35; margin-bottom: .3rem; }
.key { color: var(--soft); margin-left: .7em; white-space: nowrap; } .key::before { content: ""; display: inline-block;
  width: .8em; height: .8em; margin-right: .35em; border-radius: 2px; vertical-align: -.08em; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg .tick, svg .note { fill: var(--soft); }
svg .note { text-anchor: middle; } svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--grid); } svg .mark { stroke: var(--mark); stroke-dasharray: 5 4; }
svg .words { fill: var(--mark); } svg .line, svg .dots, svg .faint { fill: none; stroke-width: 2; }
svg .median { stroke: var(--ink); stroke-width: 1.5; } svg .whisker { stroke-width: 2; }
svg .hollow { fill: none; stroke-width: 1.5; } svg .faint { stroke-width: 1; opacity: .35; }
svg .aim { fill: transparent; } svg .aim:hover { fill: var(--soft); fill-opacity: .35; }
svg .number { font-size: 11px; }
""" + "".join(
    f"svg .c{n} {{ stroke: var(--c{n}); }} .k{n}::before {{ background: var(--c{n}); }} svg .dot.c{n}, svg .bar.c{n}, "
    f"svg .cell.c{n} {{ fill: var(--c{n}); stroke: none; }} svg .cell.c{n} {{ stroke: var(--grid); }}\n"
    for n in range(6)
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""The content security policy: inline style only, and the one script whose hash `write_report` adds."""
LONG_CELL = 20
"""Characters above which a cell of a table counts as long."""
INTERVAL = re.compile(r"[-+]?[\d.,]+%? (?:\([-+]?[\d.,]+%? )?to [-+]?[\d.,]+%?\)?")
"""A number with its interval, or an interval, in a cell; such a cell is never wrapped."""
END = "\n</body>\n</html>\n"
"""The end of every page."""
RATIOS = (".share", ".precision", ".recall")
"""Suffixes of the figures of an objective with rare positive labels."""
OTHERS = {BEFORE: "corpus before", GENERAL: "general text"}
"""Names of the texts that were measured besides the held-out text of the own corpus."""
COLLAPSED = 0.01
"""Recall below which such an objective has only learnt that its positive labels are rare."""
MetricLines = Sequence[Mapping[str, Any]]
"""The lines of a metrics.jsonl."""
Objectives = Mapping[str, Objective]
"""Objectives by name."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and its content as HTML (`paragraph`, `table`, `code`, a plot).

    `style` and `script`: those of its parts; a page includes each once.
    """

    heading: str
    parts: Sequence[str]
    style: str = ""
    script: str = ""

    @property
    def name(self) -> str:
        """Return the id of the section in the page."""
        return "-".join(re.findall(r"\w+", self.heading.lower()))

    def html(self) -> str:
        """Return it as HTML: pictures side by side if there is room, tables in a scrolling frame."""
        parts = []
        for pictures, group in groupby(self.parts, key=lambda part: part.startswith("<figure")):
            group_parts = list(group)
            if pictures:
                parts.append('<div class="plots">' + "\n".join(group_parts) + "</div>")
            else:
                parts += [
                    f'<div class="wide">{part}</div>' if part.startswith("<table") else part for part in group_parts
                ]
        heading = f"<h2>{escape(self.heading)}</h2>"
        return f'<section id="{escape(self.name)}">' + "\n".join([heading, *parts]) + "</section>"


def write_report(path: Path, title: str, sections: Iterable[Section], *, lead: str = "") -> Path:
    """Write a report as one HTML file atomically; `lead`: its summary in plain words. Returns the path."""
    sections = list(sections)
    body = [f"<h1>{escape(title)}</h1>"]
    if lead:
        body.append(f'<p class="lead">{escape(lead)}</p>')
    body += [section.html() for section in sections]
    script = "".join(dict.fromkeys([section.script for section in sections]))
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"{POLICY}; script-src 'sha256-{allowed}'" if script else POLICY
    body += [f"<script>{script}</script>"] if script else []
    style = STYLE + "".join(dict.fromkeys([section.style for section in sections]))
    head = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n<body>\n'
    )
    write_text(path, head + "\n".join(body) + END)
    return path


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def table(rows: Iterable[Sequence[object]], *, head: Sequence[str] = ()) -> str:
    """Return a table of plain values and Links."""
    lines = [_line("th", head)] if head else []
    return f"<table>{''.join(lines + [_line('td', row) for row in rows])}</table>"


@dataclass(frozen=True)
class Link:
    """A cell of a table with a link to a page in the same folder."""

    target: str
    text: str


def code(text: str) -> str:
    """Return preformatted text in a fixed-width font."""
    return f"<pre>{escape(text)}</pre>"


def _line(tag: str, values: Sequence[object]) -> str:
    """Return a line; a long cell gets a minimum width, since a narrow page would break it after each word."""
    cells = ""
    for value in values:
        if isinstance(value, Link):
            cells += f'<{tag}><a href="{escape(value.target)}">{escape(value.text)}</a></{tag}>'
            continue
        look = ' class="long"' if len(str(value)) > LONG_CELL else ""
        look = ' class="interval"' if INTERVAL.fullmatch(str(value)) else look
        cells += f"<{tag}{look}>{escape(str(value))}</{tag}>"
    return f"<tr>{cells}</tr>"


def pretraining_report(folder: Path, objectives: Objectives) -> Path:
    """Write report.html into the run folder of a pretraining, from its metrics.jsonl, recipe.toml and run.json.

    `objectives`: its objectives by name; each declares the baseline of its figures.
    """
    lines = read_lines(folder / NAME)
    facts = RunFolder(folder).facts
    settings = recipe.read(folder / "recipe.toml")
    sections = [
        Section(heading="Curves", parts=list(_curves(lines, facts, objectives))),
        Section(heading="Figures", parts=[table(_figures(lines, facts))]),
        Section(heading="Settings", parts=[code(recipe.dump(settings))]),
    ]
    title = f"Pretraining: {facts.get('recipe', folder.name)}"
    return write_report(folder / "report.html", title, sections, lead=" ".join(verdict(lines, facts, objectives)))


def curve(lines: Iterable[Mapping[str, Any]], name: str) -> list[Point]:
    """Return the points (step, value) of a figure in the lines of a metrics.jsonl."""
    return [(line["step"], line[name]) for line in lines if line.get(name) is not None]


def training_curves(lines: MetricLines, name: str, *, label: str, color: int = 0) -> list[Series]:
    """Return the smoothed training curve with the raw one faint behind it, and held-out curves if there are any."""
    points = curve(lines, name)
    window = max(1, len(points) // 25)
    curves = [Series(name=label, points=smooth(points, window=window), color=color)]
    if window > 1:
        curves.append(Series(name=label, points=points, look="faint", color=color))
    held_out = curve(lines, f"held_out.{name}")
    if held_out:
        curves.append(Series(name=f"{label}, held out", points=held_out, look="dots", color=color + 1))
    for offset, (of, words) in enumerate(OTHERS.items(), 2):
        if points := curve(lines, f"{of}.{name}"):
            curves.append(Series(name=f"{label}, {words}", points=points, look="dots", color=(color + offset) % 6))
    return curves


def verdict(lines: MetricLines, facts: Mapping[str, Any], objectives: Objectives) -> list[str]:
    """Return sentences on the final figures."""
    sentences = []
    entropy, chance = facts.get("unigram_entropy"), math.log(facts.get("vocabulary") or 1)
    pieces = _answering("pieces", objectives)
    for name in pieces:
        loss, where = _final(lines, f"{name}.loss")
        if loss is not None and entropy:
            figure = f"The {where} {_title(name)} loss is {loss:.2f} nats"
            sentences.append(_piece_verdict(figure, loss, entropy, chance))
    for name, objective in _answering("pair", objectives).items():
        accuracy, where = _final(lines, f"{name}.accuracy")
        if accuracy is not None:
            skill = "hardly better than a coin" if accuracy < 0.55 else "better than a coin"
            skill = "well learnt" if accuracy >= 0.9 else skill
            title = objective.title or _title(name)
            sentences.append(f"{title} is right in {accuracy:.1%} of the {where} pairs: {skill}.")
    for name, objective in _answering("rare", objectives).items():
        sentences += _rare_verdict(lines, name, objective.title or _title(name))
    for name, objective in _answering("others", objectives).items():
        loss, where = _final(lines, f"{name}.loss")
        accuracy, _ = _final(lines, f"{name}.accuracy")
        if loss is not None:
            right = "" if accuracy is None else f", and {accuracy:.1%} of its answers are right"
            sentences.append(f"The {where} loss of {objective.title or _title(name)} is {loss:.2f}{right}.")
    sentences += _compare_texts(lines, pieces)
    if ended := facts.get("finished", {}).get("ended"):
        sentences.append(ended)
    if skipped := _last(lines, "skipped_steps"):
        sentences.append(f"{skipped:,} steps were skipped because a loss or gradient was not finite.")
    return sentences or ["Nothing was measured."]


def _answering(kind: Answers, objectives: Objectives) -> dict[str, Objective]:
    """Return the losses with this kind of labels, by name, with their objective."""
    return {
        name: objective
        for objective in objectives.values()
        for name, answers in objective.losses().items()
        if answers == kind
    }


def _compare_texts(lines: MetricLines, pieces: Objectives) -> Iterable[str]:
    """Yield a sentence on each held-out loss that is far above that of training, and on the changes on other texts.

    `pieces`: the objectives whose labels are pieces, by the name of their loss.
    """
    for name, objective in pieces.items():
        if course := objective.course():  # the two losses cannot be compared
            yield f"In the course of the run {course}."
            continue
        training, held_out = _last(lines, f"{name}.loss"), _last(lines, f"held_out.{name}.loss")
        if training is not None and held_out is not None and held_out - training > 0.3:
            yield f"The held-out loss is {held_out - training:.2f} above the training loss: it overfits."
    for key in dict.fromkeys([key for line in lines for key in line]):
        of, _, name = key.partition(".")
        if of not in OTHERS or name.count(".") != 1 or not name.endswith(".loss"):
            continue
        here, other_curve = curve(lines, f"{HELD_OUT}.{name}"), curve(lines, f"{of}.{name}")
        if here and other_curve:
            where = "on the one before" if of == BEFORE else "on general text"
            yield (
                f"From the first step to the last the held-out {name.removesuffix('.loss')} loss went from "
                f"{here[0][1]:.2f} to {here[-1][1]:.2f} on this corpus, and from {other_curve[0][1]:.2f} to "
                f"{other_curve[-1][1]:.2f} {where}."
            )


def _title(objective: str) -> str:
    return objective.upper() if len(objective) <= len("MLM") else objective.replace("_", "-")


def _piece_verdict(figure: str, loss: float, entropy: float, chance: float) -> str:
    if loss < 0.97 * entropy:
        return (
            f"{figure}, {entropy - loss:.2f} below the unigram entropy of {entropy:.2f}: the model uses context. "
            f"It hesitates between about {math.exp(loss):,.0f} pieces instead of {math.exp(entropy):,.0f}."
        )
    if loss < chance:
        return (
            f"{figure}, not below the unigram entropy of {entropy:.2f}: so far the model knows at most which pieces "
            "are frequent. It needs more steps, or another learning rate."
        )
    return f"{figure}, no better than guessing (ln V = {chance:.2f}): the training has not begun to work, or diverged."


def _rare_verdict(lines: MetricLines, name: str, title: str) -> Iterable[str]:
    """Yield sentences on an objective with rare positive labels, whose accuracy is high without any learning."""
    loss, where = _final(lines, f"{name}.loss")
    positive_rate, recall, precision = (
        _final(lines, f"{name}.{figure}")[0] for figure in ("share", "recall", "precision")
    )
    if loss is None or not positive_rate:
        return
    guess = -sum(part * math.log(part) for part in (positive_rate, 1 - positive_rate) if part)
    yield (
        f"The {where} loss of {title} is {loss:.3f} nats; knowing that {positive_rate:.1%} are replaced gives "
        f"{guess:.3f}."
    )
    if not recall or recall < COLLAPSED:
        yield (
            f"It has collapsed: it takes {'all' if not recall else 'nearly all'} tokens for original. It needs more "
            "steps, a lower learning rate or, where the generator is too good, a narrower one."
        )
    elif precision is not None:
        yield f"It finds {recall:.1%} of {title}, and {precision:.1%} of what it takes for one is one."


def _curves(lines: MetricLines, facts: Mapping[str, Any], objectives: Objectives) -> Iterable[str]:
    pieces, pairs = _answering("pieces", objectives), _answering("pair", objectives)
    ignorance = []  # losses of knowing nothing, and of knowing how frequent each piece is
    if vocabulary := facts.get("vocabulary"):
        ignorance.append(Mark(value=math.log(vocabulary), label=f"ln V = {math.log(vocabulary):.2f}"))
    if entropy := facts.get("unigram_entropy"):
        ignorance.append(Mark(value=entropy, label=f"unigram entropy of the corpus = {entropy:.2f}"))
    keys = dict.fromkeys([key for line in lines for key in line if key.endswith(".loss")])
    names = [key.removesuffix(".loss") for key in keys if key.partition(".")[0] not in (HELD_OUT, *OTHERS)]
    for name in names:
        coin = [Mark(value=math.log(2), label="a coin = ln 2")] if name in pairs else []
        marks = ignorance if name in pieces else coin
        curves = training_curves(lines, f"{name}.loss", label=_title(name))
        yield line_plot(curves, marks=marks, title=f"{_title(name)} loss (nats)")
    accuracies = []
    for index, name in enumerate(names):
        accuracies += training_curves(lines, f"{name}.accuracy", label=_title(name), color=2 * index % 6)
    yield line_plot([series for series in accuracies if series.points], title="Accuracy", percent=True)
    for name in _answering("rare", objectives):
        rate_curves = [
            part
            for index, figure in enumerate(("precision", "recall", "share"))
            for part in training_curves(lines, f"{name}.{figure}", label=figure, color=2 * index)
        ]
        yield line_plot([part for part in rate_curves if part.points], title=f"{_title(name)}: found", percent=True)
    for key, title in (
        ("learning_rate", "Learning rate"),
        ("gradient_norm", "Gradient norm, before clipping"),
        ("tokens_per_second", "Tokens a second"),
    ):
        yield line_plot([Series(name="", points=curve(lines, key))], title=title)


def _figures(lines: MetricLines, facts: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    finished = facts.get("finished", {})
    for name, value in (
        ("Parameters", finished.get("parameters")),
        ("Steps", _last(lines, "step")),
        ("Tokens seen", _last(lines, "tokens")),
        ("Corpus documents", facts.get("documents")),
        ("Corpus tokens", facts.get("tokens")),
        ("Vocabulary", facts.get("vocabulary")),
        *((f"Held-out tokens of {part}", tokens) for part, tokens in finished.get("held_out", [])),
    ):
        if value is not None:
            yield name, f"{value:,}"
    last = {key: value for line in lines for key, value in line.items() if value is not None}
    for key, value in last.items():
        if key.endswith((".loss", ".accuracy", *RATIOS)):
            value_text = f"{value:.4f}" if key.endswith(".loss") else f"{value:.2%}"
            words = key.replace(f"{BEFORE}.", "held-out (corpus before) ").replace(f"{HELD_OUT}.", "held-out ")
            words = words.replace(f"{GENERAL}.", "general text ")
            yield f"Final {words.replace('.', ' ')}", value_text
    if "seconds" in last:
        yield "Time in training steps", duration(last["seconds"])
        yield "Tokens a second", f"{last['tokens'] / max(last['seconds'], 1e-9):,.0f}"
        yield "Share of it waiting for data", f"{last['loader_share']:.1%}"
    yield "Processor", str(finished.get("processor", "?"))
    yield "osbert", str(facts.get("osbert", "?"))


def _final(lines: MetricLines, name: str) -> tuple[float | None, str]:
    """Return the last held-out value, else the last one of training, and the name of its source."""
    value = _last(lines, f"held_out.{name}")
    return (value, "held-out") if value is not None else (_last(lines, name), "training")


def _last(lines: MetricLines, name: str) -> Any:
    return next((line[name] for line in reversed(lines) if line.get(name) is not None), None)
