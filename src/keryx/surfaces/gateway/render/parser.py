"""Markdown to the tree."""

import re
from collections.abc import Iterator, Sequence

from markdown_it.token import Token

from keryx.surfaces.gateway.render import guard
from keryx.surfaces.gateway.render.tree import (
    Block,
    Bold,
    Break,
    Cell,
    Code,
    CodeBlock,
    Document,
    Heading,
    Image,
    Inline,
    Italic,
    Item,
    Link,
    List,
    Paragraph,
    Quote,
    Row,
    Rule,
    Strike,
    Table,
    Text,
    visible,
)

LONGEST_URL = 1000
"""A longer address is shown as text, so that it can be cut."""

_SCHEMES = re.compile(r"(https?|ftp|mailto|magnet):[^\s<>\"|`]+", re.IGNORECASE)
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}", re.ASCII)
_STYLES: dict[str, type[Bold] | type[Italic] | type[Strike]] = {"strong": Bold, "em": Italic, "s": Strike}
_PARSER = guard.parser()


def parse(markdown: str) -> Document:
    """The tree of any text at all. See `guard.clean` for the characters that are replaced."""
    return Document(tuple(_blocks(iter(_PARSER.parse(guard.clean(markdown))), "")))


def _blocks(tokens: Iterator[Token], end: str) -> Iterator[Block]:
    for token in tokens:
        match token.type:
            case _ if token.type == end:
                return
            case "paragraph_open":
                yield Paragraph(_content(tokens))
            case "heading_open":
                yield Heading(_content(tokens, "strong"), int(token.tag[1:]))
            case "blockquote_open":
                yield Quote(tuple(_blocks(tokens, "blockquote_close")))
            case "bullet_list_open":
                yield List(tuple(_items(tokens, "bullet_list_close", None)))
            case "ordered_list_open":
                yield List(tuple(_items(tokens, "ordered_list_close", int(token.attrs.get("start", 1)))))
            case "table_open":
                yield Table(tuple(_rows(tokens)))
            case "fence" | "code_block":
                yield CodeBlock(token.content.removesuffix("\n"), _language(token.info))
            case "hr":
                yield Rule()
            case _:
                raise AssertionError(f"unknown token {token.type}")


def _content(tokens: Iterator[Token], *inside: str) -> tuple[Inline, ...]:
    """The text between an opening token, which is read already, and its closing one."""
    inline = next(tokens)
    next(tokens)
    return _inlines(inline.children or [], *inside)


def _items(tokens: Iterator[Token], end: str, number: int | None) -> Iterator[Item]:
    for token in tokens:
        if token.type == end:
            return
        yield Item(tuple(_blocks(tokens, "list_item_close")), number)
        number = None if number is None else number + 1


def _rows(tokens: Iterator[Token]) -> Iterator[Row]:
    header = False
    for token in tokens:
        match token.type:
            case "table_close":
                return
            case "thead_open" | "thead_close":
                header = token.type == "thead_open"
            case "tr_open":
                yield Row(_cells(tokens), header)
            case _:
                pass


def _cells(tokens: Iterator[Token]) -> tuple[Cell, ...]:
    """The cells of a row up to the last that is not empty, and always one: missing cells cost nothing."""
    cells: list[Cell] = []
    filled = 1
    for token in tokens:
        if token.type == "tr_close":
            break
        cells.append(Cell(_content(tokens)))
        filled = len(cells) if cells[-1].children else filled
    return tuple(cells[:filled])


def _language(info: str) -> str:
    found = _LANGUAGE.match(info.strip())
    return found.group() if found else ""


def _inlines(tokens: Sequence[Token], *inside: str) -> tuple[Inline, ...]:
    """The inline tree, without recursion: a style within the same style adds nothing, so depth stays small."""
    stack: list[tuple[Token | None, list[Inline]]] = [(None, [])]
    open_tags = list(inside)
    for token in tokens:
        if token.nesting > 0:
            stack.append((None if token.tag in open_tags else token, []))
            open_tags.append(token.tag)
        elif token.nesting < 0:
            opener, children = stack.pop()
            open_tags.pop()
            stack[-1][1].extend(_close(opener, children))
        else:
            stack[-1][1].extend(_leaf(token, "a" in open_tags))
    return _merged(stack[0][1])


def _close(opener: Token | None, children: list[Inline]) -> Sequence[Inline]:
    if opener is None or (opener.tag != "a" and not children):
        return children
    if opener.tag == "a":
        return _reference(
            Link, _merged(children), str(opener.attrs.get("href", "")), opener.markup == "autolink"
        )
    return [_STYLES[opener.tag](_merged(children))]


def _leaf(token: Token, linked: bool) -> Sequence[Inline]:
    match token.type:
        case "softbreak" | "hardbreak":
            return [Break()]
        case "code_inline":
            return [Code(token.content)]
        case "image" if linked:
            return _inlines(token.children or [], "a")
        case "image":
            label = _inlines(token.children or [], "a")
            return _reference(Image, label, str(token.attrs.get("src", "")), False)
        case _:
            return [Text(token.content)] if token.content else []


def _reference(
    kind: type[Link] | type[Image], label: tuple[Inline, ...], url: str, auto: bool
) -> Sequence[Inline]:
    """A link that may be followed, or its text and address as text."""
    shown = "".join(map(visible, label))
    bare = auto or not shown or shown == url
    if len(url) <= LONGEST_URL and _SCHEMES.fullmatch(url):
        return [kind(label or (Text(url),), url, bare)]
    if bare or not url:
        return label or ((Text(url),) if url else ())
    return [*label, Text(f" ({url})")]


def _merged(nodes: Sequence[Inline]) -> tuple[Inline, ...]:
    merged: list[Inline] = []
    texts: list[str] = []
    for node in nodes:
        if isinstance(node, Text):
            texts.append(node.text)
            continue
        if texts:
            merged.append(Text("".join(texts)))
            texts = []
        merged.append(node)
    if texts:
        merged.append(Text("".join(texts)))
    return tuple(merged)
