"""Reports: one file that needs nothing else, and a verdict in words that the numbers bear out."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from osbert.objectives.mlm import MaskedLanguage
from osbert.objectives.nsp import NextSentence
from osbert.objectives.replaced import ReplacedTokens
from osbert.reports.page import Section, code, paragraph, pretraining_report, table, verdict, write_report
from osbert.reports.plot import Series, line_plot

FACTS = {"vocabulary": 1000, "unigram_entropy": 5.0, "recipe": "tiny", "documents": 12, "tokens": 3456, "osbert": "1"}

OBJECTIVES = {"mlm": MaskedLanguage(), "nsp": NextSentence(), "replaced": ReplacedTokens()}
FOUND = {
    "step": 1,
    "replaced.loss": 0.2,
    "replaced.share": 0.1,
    "replaced.precision": 0.8,
    "replaced.recall": 0.4,
}


def run_folder(folder: Path, lines: list[dict], **finished: object) -> Path:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "run.json").write_text(json.dumps({**FACTS, "finished": finished}))
    (folder / "recipe.toml").write_text('objectives = ["mlm"]\n\n[model]\nlayers = 2\n')
    return folder


LINES = [
    {"step": step, "loss": 6 - step / 50, "mlm.loss": 5.3 - step / 50, "mlm.accuracy": step / 200, "nsp.loss": 0.7,
     "nsp.accuracy": 0.6, "learning_rate": 0.1, "gradient_norm": 1.0, "tokens": step * 100, "seconds": step / 2,
     "tokens_per_second": 200.0, "loader_share": 0.01, "skipped_steps": 0}
    for step in range(1, 101)
] + [{"step": 100, "held_out.loss": 4.0, "held_out.mlm.loss": 3.35, "held_out.mlm.accuracy": 0.4}]  # fmt: skip


class Strict(HTMLParser):
    """Fails at tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_of_a_pretraining(tmp_path) -> None:
    path = pretraining_report(run_folder(tmp_path, LINES, processor="cpu fp32", parameters=12_345), OBJECTIVES)
    text = path.read_text()
    parser = Strict()
    parser.feed(text)
    assert parser.open == []
    assert f"ln V = {math.log(1000):.2f}" in text
    assert "unigram entropy of the corpus = 5.00" in text
    for words in ("MLM loss", "NSP loss", "Accuracy", "Learning rate", "Tokens a second", "MLM, held out"):
        assert words in text
    for words in ("12,345", "3,456", "cpu fp32", "layers = 2", "3.3500", "40.00%", "50 s"):
        assert words in text
    assert "the model uses context" in text
    assert not re.search(r"https?://|<script|src=", text)


def test_a_run_without_metrics_still_has_a_report(tmp_path) -> None:
    text = pretraining_report(run_folder(tmp_path, []), OBJECTIVES).read_text()
    assert "Nothing was measured." in text
    assert "nothing was measured" in text


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([{"step": 1, "mlm.loss": 3.0}], "training MLM loss is 3.00 nats, 2.00 below the unigram entropy of 5.00"),
        ([{"step": 1, "mlm.loss": 3.0}], "between about 20 pieces instead of 148"),
        ([{"step": 1, "mlm.loss": 3.0}, {"step": 1, "held_out.mlm.loss": 4.0}], "held-out MLM loss is 4.00"),
        ([{"step": 1, "mlm.loss": 3.0}, {"step": 1, "held_out.mlm.loss": 4.0}], "1.00 above the training loss"),
        ([{"step": 1, "mlm.loss": 4.95}], "knows at most which pieces are frequent"),
        ([{"step": 1, "mlm.loss": 6.0}], "knows at most which pieces are frequent"),
        ([{"step": 1, "mlm.loss": 7.0}], "no better than guessing"),
        ([{"step": 1, "nsp.accuracy": 0.52}], "52.0% of the training pairs: hardly better than a coin"),
        ([{"step": 1, "nsp.accuracy": 0.7}], ": better than a coin"),
        ([{"step": 1, "held_out.nsp.accuracy": 0.97}], "97.0% of the held-out pairs: well learnt"),
        ([{"step": 1, "skipped_steps": 4}], "4 steps were skipped"),
        ([{"step": 1, "generator.loss": 3.0}], "training generator loss is 3.00 nats, 2.00 below"),
        ([FOUND], "loss of replaced tokens is 0.200 nats; knowing that 10.0% are replaced gives 0.325"),
        ([FOUND], "finds 40.0% of replaced tokens, and 80.0% of what it takes for one is one"),
        ([{**FOUND, "held_out.replaced.share": 0.1, "held_out.replaced.recall": 0.4}], "finds 40.0%"),
        ([{**FOUND, "replaced.recall": 0.0}], "collapsed: it takes all tokens for original"),
        ([{**FOUND, "replaced.recall": 0.004}], "takes nearly all tokens for original"),
    ],
)
def test_verdicts(lines, words) -> None:
    assert words in " ".join(verdict(lines, FACTS, OBJECTIVES))


def test_a_report_put_together_by_hand(tmp_path) -> None:
    plot = line_plot([Series(name="a", points=[(0, 1), (1, 2)])], title="A")
    parts = [paragraph("x < y"), table([(1, "<b>")], head=("n", "what")), code("a & b"), plot]
    path = write_report(tmp_path / "r.html", "Title & more", [Section(heading="One", parts=parts)], lead="In <short>")
    text = path.read_text()
    for words in (
        "Title &amp; more",
        "x &lt; y",
        "<td>&lt;b&gt;</td>",
        "a &amp; b",
        "In &lt;short&gt;",
        "<th>what</th>",
    ):
        assert words in text
    for frame in ('<div class="wide"><table', '<div class="plots"><figure'):  # a wide table scrolls by itself
        assert text.count(frame) == text.count(frame.rpartition(">")[2]) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.html"]
