"""Wikipedia dumps: running text alone, page by page, and what is damaged is told with its place."""

from __future__ import annotations

import bz2
import re
import tracemalloc
from collections.abc import Iterator
from html import escape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.corpus.build import Build
from osbert.corpus.state import STATE, BuildSettings, BuildState
from osbert.reading.documents import read_chunks
from osbert_lab.wikipedia import read_articles, running_text
from refusals import refusal

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
  <siteinfo><namespaces><namespace key="0" /><namespace key="6">Datei</namespace>
  <namespace key="14">Kategorie</namespace></namespaces></siteinfo>
"""
TAIL = "</mediawiki>\n"


def page(title: str, text: str, *, namespace: int = 0, more: str = "", model: str = "wikitext") -> str:
    return (
        f"  <page><title>{escape(title)}</title><ns>{namespace}</ns><id>1</id>{more}<revision><id>2</id>"
        f'<model>{model}</model><text xml:space="preserve">{escape(text)}</text></revision></page>\n'
    )


def texts(path: Path, **settings: str) -> list[str]:
    return [chunk.text for chunk in read_chunks([path], **settings)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("A plain line.\n\nAnother.", "A plain line.\nAnother."),
        ("'''Bold''' and ''italic'' and '''''both''''', O'Neill's.", "Bold and italic and both, O'Neill's."),
        ("The [[river]] and [[River Thames|its source]].", "The river and its source."),
        ("[[:Category:Rivers|All rivers]] and [[wikt:ford|fords]] run[[s]].", "All rivers and fords runs."),
        ("[[File:a.jpg|thumb|left|A [[boat]] at [[Oxford|town]].]]Text.", "Text."),
        ("Text.\n[[Category:Rivers]]\n[[de:Fluss]]", "Text."),
        ("See [http://a.example/b the page] and [https://c.example].", "See the page and ."),
        ("Before {{Infobox|a={{b|c}}|d=[[e]]}} after.", "Before after."),
        ("Born {{date|1850}} (; {{lang|de|x}}) here.", "Born here."),
        ('Top\n{| class="x"\n! head\n|-\n| a || {{b}}\n{|\n| inner\n|}\n|}\nBottom', "Top\nBottom"),
        ("{{box|\n{| \n| a\n|}}}\nText.", "Text."),
        ("== Heading ==\nText.\n=== Other ===", "Text."),
        ("Text:\n* one\n# two\n: three\n; four\n----\nEnd.", "Text:\nEnd."),
        ("Fact.<ref>A book, {{p|3}}.</ref><ref name=\"a\" /> More.<ref name='b'>x</ref>", "Fact. More."),
        ("Let <math>x < y</math> hold.<br/>So <sub>2</sub>.", "Let hold. So 2."),
        ("<gallery>\nFile:a.jpg|b\n</gallery>Text.", "Text."),
        ('<div class="x"><span>Kept</span></div>, <!-- not\nthis -->this.', "Kept, this."),
        ("<ul><li>list</li></ul><table><tr><td>cell</td></tr></table>Text.", "Text."),
        ("A &amp; B&nbsp;C &ndash; D &lt; E", "A & B C – D < E"),
        ("__NOTOC__Text with 3 < 4 and 5 > 2.", "Text with 3 < 4 and 5 > 2."),
        ("An {{unclosed template [[and link stay.", "An unclosed template and link stay."),
        ("An <ref>unclosed note, }} and ]] and |} go.", "An unclosed note, and and go."),
        ("\n\n{{only|a}}\n* list", ""),
    ],
)  # fmt: skip
def test_only_running_text_is_left(wikitext: str, text: str) -> None:
    assert running_text(wikitext) == text


PARTS = (
    "{{", "}}", "{|", "|}", "[[", "]]", "[[File:", "|", "''", "'''", "<ref>", "</ref>", "<ref/>", "<!--", "-->",
    "<math>", "</math>", "<div a='b'>", "\n", "\n* ", "\n== ", "==", "[http://x ", "]", "word", "Word.", " ", "{", "}",
    "[", "__TOC__", "<", ">",
)  # fmt: skip


@given(st.lists(st.sampled_from(PARTS), max_size=40).map("".join))
def test_no_markup_is_left(wikitext: str) -> None:
    text = running_text(wikitext)
    assert not re.search(r"\{\{|\}\}|\{\||\|\}|\[\[|\]\]|''|</?[a-zA-Z][^<>\n]*>|__[A-Z]+__", text)
    assert not [line for line in text.split("\n") if line.startswith(("*", "#", ":", ";", "=", "|", "!"))]
    assert text == text.strip()
    assert "\n\n" not in text


@given(st.lists(st.text("abc .,", min_size=1).map(str.strip).filter(bool), max_size=5).map("\n".join))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert running_text(text) == "\n".join(re.sub(" +", " ", line) for line in text.split("\n"))


@pytest.fixture
def dump() -> str:
    return "".join([
        HEAD,
        page("Fluss", "Ein [[Fluss]] & mehr.\n[[Datei:a.jpg|Bild]]\n[[Kategorie:Wasser]]"),
        page("Diskussion", "Nicht dies.", namespace=1),
        page("Bach", "Nicht dies.", more='<redirect title="Fluss" />'),
        page("Modul", "return 1", model="Scribunto"),
        page("Liste", "* nur\n* Punkte"),
        page("See", "Ein See.\n\nZweiter Absatz."),
        TAIL,
    ])  # fmt: skip


@pytest.mark.parametrize("form", ["plain", "bz2", "multistream"])
def test_a_dump_gives_its_articles(tmp_path: Path, dump: str, form: str) -> None:
    data = dump.encode()
    path = tmp_path / ("pages-articles.xml" if form == "plain" else f"pages-articles-{form}.xml.bz2")
    third = len(data) // 3
    streams = [data] if form == "bz2" else [data[:third], data[third : 2 * third], data[2 * third :]]
    path.write_bytes(data if form == "plain" else b"".join(map(bz2.compress, streams)))
    assert texts(path) == ["Ein Fluss & mehr.", "Ein See.\nZweiter Absatz."]
    assert [chunk.opens for chunk in read_chunks([path])] == [True, True]


def test_in_a_dump_without_namespace_numbers_titles_tell(tmp_path: Path, dump: str) -> None:
    """As dumps were until 2012."""
    spaces = '<namespace key="-1">Spezial</namespace><namespace key="1">Benutzer Diskussion</namespace></namespaces>'
    more = page("Benutzer_Diskussion:A", "Nicht dies.") + page("Mitte: ein Wort", "Doch dies.")
    dump = dump.replace("</namespaces>", spaces).replace(TAIL, more + TAIL)
    dump = dump.replace("<title>Diskussion<", "<title>kategorie:Wasser<")
    path = tmp_path / "old.xml"
    path.write_text(re.sub("<ns>.*?</ns>", "", dump))
    assert texts(path) == ["Ein Fluss & mehr.", "Ein See.\nZweiter Absatz.", "Doch dies."]


def test_the_last_revision_counts(tmp_path: Path) -> None:
    old = "<revision><model>wikitext</model><text>Old.</text></revision>"
    path = tmp_path / "history.xml"
    path.write_text(HEAD + page("A", "New.", more=old) + TAIL)
    assert texts(path) == ["New."]


@pytest.mark.parametrize(
    ("damage", "refused"),
    [
        (lambda data: data[: len(data) - 40], ("wrong-format", "dump.xml", "line 14, column 15", "5 pages")),
        (lambda data: data.replace(b"<title>See", b"<title>S<e"), ("wrong-format", "dump.xml", "5 pages", "Liste")),
        (lambda data: b"<html><body/></html>", ("wrong-format", "dump.xml", "<html>")),
        (lambda data: data.replace(b"Zweiter", b"\xff\xfe"), ("wrong-encoding", "dump.xml", "utf-8")),
    ],
)  # fmt: skip
def test_a_damaged_dump_is_told_with_the_place(tmp_path: Path, dump: str, damage, refused: tuple[str, ...]) -> None:
    path = tmp_path / "dump.xml"
    path.write_bytes(damage(dump.encode()))
    with refusal(*refused):
        texts(path)


def test_a_cut_archive_keeps_what_was_read(tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osbert.corpus.build.PORTION", 5_000)
    monkeypatch.setattr("osbert.reading.encodings.BLOCK", 1 << 14)
    pages = "".join(page(str(number), f"The river {number} runs. " * 200) for number in range(60))
    streams = [bz2.compress(part.encode()) for part in (HEAD, pages, pages, TAIL)]
    path = tmp_path / "dump.xml.bz2"
    path.write_bytes(b"".join(streams)[:-100])
    settings = BuildSettings(shard_tokens=10_000)
    build = Build.prepare([path], tokenizer=tokenizer, folder=tmp_path / "corpus", settings=settings)
    with refusal("damaged-file", "dump.xml.bz2"):
        build.run()
    state = BuildState.load(tmp_path / "corpus")
    assert (tmp_path / "corpus" / STATE).is_file()
    assert state is not None
    assert state.shards


def test_memory_does_not_grow_with_the_dump() -> None:
    def blocks(pages: int) -> Iterator[str]:
        yield HEAD
        for number in range(pages):
            yield page(str(number), "The [[river]] runs.\n" * 100)
        yield TAIL

    peaks = []
    for pages in (20, 200):
        tracemalloc.start()
        assert sum(1 for _ in read_articles(blocks(pages), "dump")) == pages
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_a_page_without_an_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osbert_lab.wikipedia.LONGEST_PAGE", 1000)
    monkeypatch.setattr("osbert_lab.wikipedia.FEED", 100)
    with refusal("too-large", "1,000", "1", "A"):
        list(read_articles([HEAD + page("A", "Text.") + page("B", "x" * 2000)], "dump"))
