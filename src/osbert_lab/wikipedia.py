"""Extracts the articles of Wikipedia dumps: prose only, without lists, tables and headings (section 3.1 of the paper).

`pages-articles` XML is read page by page, in memory that does not grow with the dump. Redirects and pages outside the
article namespace are skipped. Wikitext is not parsed: whatever is not prose is removed, and links become the text that
they show. Templates are removed without expansion.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from osbert.errors import UserError

LONGEST_PAGE = 1 << 26
"""Most characters of XML in a page."""
FEED = 1 << 16
"""Number of characters passed to the parser at a time."""

ARTICLES = "0"
"""The key of the article namespace."""
FILES, CATEGORIES, MEDIA = 6, 14, -2
"""The keys of the namespaces whose links show no text."""
WITHOUT_TEXT = frozenset({"file", "image", "media", "category"})
"""The English names of these namespaces, which every wiki accepts besides its own."""

# Elements that go with their content; of all others the tags go and the content stays.
_ELEMENTS = (
    "ref|references|math|chem|ce|gallery|table|ul|ol|dl|h[1-6]|pre|syntaxhighlight|source|timeline|score|imagemap|hiero"
    "|graph|mapframe|maplink|templatestyles|categorytree|inputbox|section|noinclude|includeonly"
)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_ELEMENT = re.compile(rf"<(?P<close>/?)(?P<kind>{_ELEMENTS})\b[^<>]*?(?P<empty>/?)>", re.IGNORECASE)
_BRACES = re.compile(r"(?P<open>\{\{|\{\|)|\}\}|\|\}(?:(?!\})|(?=\}\}(?!\})))")
_LINK = re.compile(r"(\[\[|\]\])")
_OTHER_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*:")
_ADDRESS = re.compile(r"\[(?:https?:|ftp:|mailto:|//)[^\s\]]*[^\S\n]*([^\]\n]*)\]", re.IGNORECASE)
_BREAK = re.compile(r"<br\b[^<>]*>", re.IGNORECASE)
_LEFT = re.compile(r"</?[a-zA-Z][^<>\n]*>|\[{2,}|\]{2,}|\{{2,}|\}{2,}|\{\||\|\}|'{2,}|__[A-Z]+__")
_EMPTY_BRACKETS = re.compile(r"[^\S\n]*\([\s,;:]*\)")
_SPACES = re.compile(r"[^\S\n]+")
_NOT_RUNNING = ("*", "#", ":", ";", "=", "|", "!", "----")


def read_articles(blocks: Iterable[str], name: str) -> Iterator[str]:
    """Yield the prose of each article of a dump, which comes in blocks; articles without any are skipped.

    Raises UserError, with the line and the last page, if the XML is damaged or incomplete or is not a dump.
    """
    parser: XMLPullParser[Element] = XMLPullParser(("start", "end"))
    pages = _Pages(name)
    try:
        for block in blocks:
            for start in range(0, len(block), FEED):
                parser.feed(block[start : start + FEED])
                yield from pages.pop_articles(parser)
                pages.count_characters(FEED)
        parser.close()
        yield from pages.pop_articles(parser)
    except ParseError as error:
        line, column = error.position
        raise UserError(
            f"{name}: line {line:,}, column {column + 1:,} is not well-formed XML ({error.msg.partition(':')[0]}), "
            f"{pages.place()}. The dump is damaged or incomplete: download it again, or remove it from the inputs.",
            code="wrong-format",
        ) from error


class _Pages:
    """Takes finished pages from the parser and clears them, so that the tree never holds more than one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root: Element | None = None
        self.count = 0
        self.title = ""
        self.waiting = 0
        self.without_text = set(WITHOUT_TEXT)
        self.namespaces: set[str] = set()

    def pop_articles(self, parser: XMLPullParser[Element]) -> Iterator[str]:
        """Yield the text of each article that the parser has completed."""
        for event, element in cast(Iterator[tuple[str, Element]], parser.read_events()):
            tag = _tag(element)
            if self.root is None:
                self.root = element
                if tag != "mediawiki":
                    raise UserError(
                        f"{self.name}: not a Wikipedia dump: its first element is <{tag}>, not <mediawiki>.",
                        code="wrong-format",
                    )
            elif event == "end" and tag == "namespace":
                if element.get("key") != ARTICLES and element.text:
                    self.namespaces.add(element.text.lower())
                if element.get("key") in (str(FILES), str(CATEGORIES), str(MEDIA)) and element.text:
                    self.without_text.add(element.text.lower())
            elif event == "end" and tag == "page":
                text = self._article(element)
                self.root.clear()
                self.waiting = 0
                if text:
                    yield text

    def count_characters(self, characters: int) -> None:
        """Count the characters since the last page. Raises UserError if no page can be that long."""
        self.waiting += characters
        if self.waiting > LONGEST_PAGE:
            raise UserError(
                f"{self.name}: a page of more than {LONGEST_PAGE:,} characters, {self.place()}.", code="too-large"
            )

    def place(self) -> str:
        """Describe how far the dump was read."""
        return f"after {self.count:,} pages" + (f", the last of them '{self.title}'" if self.count else "")

    def _article(self, page: Element) -> str:
        fields = {_tag(child): child for child in page}
        self.count += 1
        self.title = (fields["title"].text or "") if "title" in fields else ""
        if "redirect" in fields or "revision" not in fields or not self._of_articles(fields.get("ns")):
            return ""
        revision = {_tag(child): child.text or "" for child in fields["revision"]}
        if revision.get("model", "wikitext") != "wikitext":
            return ""
        return running_text(revision.get("text", ""), without_text=self.without_text)

    def _of_articles(self, number: Element | None) -> bool:
        """Return whether the current page is an article: by namespace number, or in old dumps by title."""
        if number is not None:
            return (number.text or "").strip() == ARTICLES
        prefix, colon, _ = self.title.partition(":")
        return not colon or prefix.strip().replace("_", " ").lower() not in self.namespaces


def running_text(wikitext: str, *, without_text: Iterable[str] = WITHOUT_TEXT) -> str:
    """Return the paragraphs of a page without markup, one on each line.

    `without_text`: lower-case names of the namespaces whose links show no text.
    """
    text = _COMMENT.sub("", wikitext)
    text = _without(text, _elements(text))
    text = _without(text, _braces(text))
    text = _replace_links(text, frozenset(without_text))
    text = _BREAK.sub(" ", _ADDRESS.sub(r"\1", text))
    while (thinner := _LEFT.sub("", text)) != text:
        text = thinner
    lines = (line.strip() for line in text.split("\n"))
    text = "\n".join(line for line in lines if line and not line.startswith(_NOT_RUNNING))
    text = _SPACES.sub(" ", _EMPTY_BRACKETS.sub("", html.unescape(text)))
    return "\n".join(line for line in map(str.strip, text.split("\n")) if line)


class _Mark(NamedTuple):
    """The begin or the end of something to remove; `kind` pairs them."""

    kind: str
    opens: bool
    start: int
    end: int


def _elements(text: str) -> Iterator[_Mark]:
    for match in _ELEMENT.finditer(text):
        kind = match["kind"].lower()
        yield _Mark(kind, not match["close"], *match.span())
        if match["empty"] and not match["close"]:
            yield _Mark(kind, False, match.end(), match.end())


def _braces(text: str) -> Iterator[_Mark]:
    for match in _BRACES.finditer(text):
        yield _Mark("table" if "|" in match[0] else "template", match["open"] is not None, *match.span())


def _without(text: str, marks: Iterable[_Mark]) -> str:
    """Return the text without what is between paired marks, nested or not; of unpaired marks only the mark goes."""
    opened: list[_Mark] = []
    waiting: dict[str, int] = {}
    gone: list[tuple[int, int]] = []
    for mark in marks:
        gone.append((mark.start, mark.end))
        if mark.opens:
            opened.append(mark)
            waiting[mark.kind] = waiting.get(mark.kind, 0) + 1
        elif waiting.get(mark.kind):
            # Marks of other kinds that were opened inside are unpaired: only the marks themselves go.
            while (last := opened.pop()).kind != mark.kind:
                waiting[last.kind] -= 1
            waiting[mark.kind] -= 1
            gone.append((last.start, mark.end))
    pieces = []
    position = 0
    for start, end in sorted(gone):
        if start >= position:
            pieces.append(text[position:start])
        position = max(position, end)
    return "".join([*pieces, text[position:]])


def _replace_links(text: str, without_text: frozenset[str]) -> str:
    """Return the text with each link replaced by the text that it shows; captions of files are removed."""
    opened: list[list[str]] = [[]]
    for part in _LINK.split(text):
        if part == "[[":
            opened.append([])
        elif part == "]]":
            if len(opened) > 1:
                link = "".join(opened.pop())
                opened[-1].append(_link_text(link, without_text))
        else:
            opened[-1].append(part)
    return "".join(piece for pieces in opened for piece in pieces)


def _link_text(link: str, without_text: frozenset[str]) -> str:
    target, bar, label = link.partition("|")
    prefix, colon, _ = target.partition(":")
    if colon and prefix.strip().lower() in without_text:
        return ""
    if bar:
        return label.rpartition("|")[2]
    return "" if _OTHER_LANGUAGE.match(target) else target.removeprefix(":")


def _tag(element: Element) -> str:
    """Return the name of an element without its XML namespace, which differs between versions of dumps."""
    return element.tag.rpartition("}")[2]
