"""One text has the same lines, links, code and styles on the page, in exported files and in chats."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest

from keryx.engine.export import html_document
from keryx.markdown import email_html, html, matrix_html, parse, plain, telegram_entities

CORPUS = {
    "line breaks": "one\ntwo  \nthree\\\nfour\n\nfive",
    "bare address": "see https://x.org/a_b, and (http://y.org/?a=1&b=2).",
    "links": "[text](https://x.org/a) <https://y.org> [mail](mailto:a@x.org) [file](docs/a.md)",
    "titled link": '[text](https://x.org "a title")',
    "pictures": "before ![a cat](https://x.org/cat.png) ![](https://x.org/dog.png) after!",
    "linked picture": "[![badge](https://x.org/b.svg)](https://x.org/ci)",
    "refused": "[a](javascript:alert(1)) ![b](data:image/png;base64,xx)",
    "styles": "**bold** *italic* ~~gone~~ `code` ***both***",
    "code": "```python title=x\nif a < b:\n\n    print('<&>')\n```\n\n    indented\n",
    "no language": "~~~\nplain\n~~~",
    "table": "| a | b |\n|---|:-:|\n| 1 | https://x.org |\n| 2 |\n| 3 | 4 | 5 |",
    "lists": "- a\n- b\n  1. c\n  2. d\n- e",
    "loose list": "3. a\n\n4. b\n\n   c",
    "quotation": "> a\n> b\n>\n> - c\n\nd",
    "heading": "# Title **bold**\n\ntext\n\nUnder\n=====",
    "rule": "a\n\n---\n\nb",
    "html": "<b>a</b> <script>x</script> &amp; <!-- c -->",
    "reference": "[a]: https://x.org/ref\n\n[a]",
    "controls": "a\x00b\x1bc\r\nd\u2028e",
    "unicode": "請看https://x.org/a。 👨‍👩‍👧‍👦 שלום",
    "nesting": ">" * 40 + " deep",
}


@dataclass
class Structure:
    text: str = ""
    links: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    code: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    bold: str = ""
    italic: str = ""
    struck: str = ""


@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS.keys())
def test_page_export_and_matrix_show_the_same(text: str) -> None:
    page = read_html(html.render(text))
    (part,) = matrix_html.render_parts(text)
    assert read_html(html_document.render_markdown(text)) == page
    assert read_html(part.formatted_body) == page
    (mail,) = email_html.render_parts(text)
    assert read_html(mail.html) == page


@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS.keys())
def test_page_and_telegram_show_the_same(text: str) -> None:
    page, (part,) = read_html(html.render(text)), telegram_entities.render_parts(text)
    chat = read_entities(part)
    if "|--" in text:
        # Telegram has no tables: they are code in columns.
        chat.code, page.links = [], []
    assert (chat.links, chat.code) == ([link for link in page.links if link[1].startswith("http")], page.code)
    assert (chat.bold, chat.italic, chat.struck) == (page.bold, page.italic, page.struck)
    assert squeeze(re.sub(r"\(mailto:[^)]*\)", "", part.text)) == squeeze(page.text)
    assert squeeze(page.text) in squeeze(part.plain) or page.links


@pytest.mark.parametrize("text", ["one\ntwo", "a\n\nb\nc", "- a\n  b\n- c"])
def test_lines_end_in_the_same_places(text: str) -> None:
    lines = plain.render(parse(text)).replace("• ", "").split("\n")
    for markup in (html.render(text), html_document.render_markdown(text)):
        shown = re.sub(r"<br>|</p>|</li>", "\n", markup)
        assert [line for line in re.sub(r"<[^>]+>", "", shown).split("\n") if line] == [
            line.strip() for line in lines if line
        ]


def squeeze(text: str) -> str:
    """The text without white space and without the marks that HTML shows by elements."""
    return re.sub(r"[\s•|─┼>—]|\d\. ", "", re.sub(r"\d\. ", "", text))


def read_html(markup: str) -> Structure:
    structure = Structure()
    opened: list[tuple[str, dict[str, str | None]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag in ("br", "hr"):
                structure.text += "\n"
                return
            opened.append((tag, dict(attrs)))
            if tag == "a":
                structure.links.append(("", opened[-1][1]["href"] or ""))
            if tag == "code" and any(name == "pre" for name, _ in opened):
                structure.code.append(("", ""))

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop()[0] == tag

        def handle_data(self, data: str) -> None:
            tags = dict(opened)
            if not tags:
                assert data == "\n"
                return
            structure.text += data
            if "a" in tags:
                text, url = structure.links.pop()
                structure.links.append((text + data, url))
            if "pre" in tags:
                language = tags["pre"].get("data-language") or (tags["code"].get("class") or "")
                structure.code.append((language.removeprefix("language-"), structure.code.pop()[1] + data))
                return
            structure.bold += data if {"strong", "h1"} & tags.keys() else ""
            structure.italic += data if "em" in tags else ""
            structure.struck += data if {"s", "del"} & tags.keys() else ""

    Reader().feed(markup)
    return structure


def read_entities(part: telegram_entities.TelegramText) -> Structure:
    structure, units = Structure(part.text), part.text.encode("utf-16-le")
    for entity in part.entities:
        text = units[entity.offset * 2 : (entity.offset + entity.length) * 2].decode("utf-16-le")
        match entity.type:
            case "text_link":
                structure.links.append((text, entity.url or ""))
            case "pre":
                structure.code.append((entity.language or "", f"{text}\n"))
            case "bold":
                structure.bold += text
            case "italic":
                structure.italic += text
            case "strikethrough":
                structure.struck += text
            case _:
                pass
    return structure
