"""Discord markup: its dialect of Markdown, with text that looks like markup escaped. Mentions that an agent writes with an id stay mentions."""

import re
from collections.abc import Iterable

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import parse, plain, tree
from keryx.markdown.plain import MARKS, TextLine, surround
from keryx.markdown.split import LengthLimit, has_visible_text, split_document

# A message of a bot may have 2000 characters.
LIMIT = LengthLimit(2000, LengthUnit.CHARACTERS)
_MAX_HEADING_LEVEL = 3
_ZERO_WIDTH_SPACE = "\u200b"
_SPECIAL = re.compile(r"[\\*_~`|\[\]]|<(?!@!?\d+>|#\d+>)")
# What makes a heading, a list, small text or a quotation at the beginning of a line.
_LINE_START = re.compile(r"^(\s*\d*)(#{1,3}(?=\s)|-(?=[\s#])|\+(?=\s)|>|(?<=\d)[.)](?=\s))", re.MULTILINE)
_BACKTICKS = re.compile(r"`(?=`)")
_CODE = re.compile(r"(```.*?```|``.*?``|`[^`]*`)", re.DOTALL)
_LANGUAGE = re.compile(r"[A-Za-z0-9+#.-]{1,32}\Z")


def render_parts(markdown: str, limit: LengthLimit = LIMIT) -> list[str]:
    """Return the parts in order; none if the text shows nothing."""
    parts = split_document(
        parse(markdown), lambda part: (render(part), part), lambda part: limit.fill_ratio(part[0])
    )
    # The fence of a code block without text would be shown.
    return [text for text, part in parts if has_visible_text(plain.render(part))]


def render(document: tree.DocumentNode) -> str:
    """Return the whole document as one part of any length."""
    return _DiscordWriter().write(document).rstrip()


def escape(text: str, *, line_start: bool = True) -> str:
    """Return a text that Discord shows as it is. `line_start` says that it begins a line."""
    escaped = _SPECIAL.sub(r"\\\g<0>", text)
    head, newline, rest = ("", "", escaped) if line_start else escaped.partition("\n")
    return head + newline + _LINE_START.sub(r"\1\\\2", rest)


def split_code(text: str) -> list[str]:
    """Return the pieces of a rendered text: ordinary text and code alternate, and the first piece is ordinary text."""
    return _CODE.split(text)


class _DiscordWriter(plain.PlainWriter):
    bullet = "-"
    marks = MARKS

    def write_paragraph(self, children: Iterable[tree.Inline]) -> list[TextLine]:
        text = self.write_inlines(children, line_start=True).removesuffix("\n")
        return [TextLine(line) for line in text.split("\n")]

    def write_heading(self, heading: tree.HeadingNode) -> list[TextLine]:
        """Discord has three levels of headings; a deeper one is bold."""
        text = self.write_inlines(heading.children).replace("\n", " ").strip()
        if heading.level > _MAX_HEADING_LEVEL:
            return [TextLine(surround(text, self.marks[tree.BoldNode]))]
        return [TextLine(f"{'#' * heading.level} {text}" if text else "")]

    def write_code_block(self, lines: Iterable[str], lang: str = "") -> list[TextLine]:
        text = "\n".join(lines).replace("```", f"`{_ZERO_WIDTH_SPACE}`{_ZERO_WIDTH_SPACE}`")
        # A backtick at the end would be read as a part of the fence.
        text += _ZERO_WIDTH_SPACE if text.endswith("`") else ""
        fence = f"```{lang if _LANGUAGE.match(lang) else ''}"
        return [TextLine(line, True) for line in f"{fence}\n{text}\n```".split("\n")]

    def write_quote(self, lines: Iterable[TextLine]) -> list[TextLine]:
        """Discord has no quotations within quotations, and no code fences that keep their mark."""
        return [TextLine(text if text.startswith("> ") else f"> {text}") for text, _ in lines]

    def write_inlines(self, children: Iterable[tree.Inline], *, line_start: bool = False) -> str:
        text = ""
        for node in children:
            if isinstance(node, tree.TextNode):
                text += escape(node.text, line_start=text.endswith("\n") if text else line_start)
            else:
                text += self.write_inline(node)
        return text

    def escape(self, text: str) -> str:
        return escape(text, line_start=False)

    def write_code(self, text: str) -> str:
        if not has_visible_text(text):
            return text
        if "`" not in text:
            return f"`{text}`"
        return f"`` {_BACKTICKS.sub(f'`{_ZERO_WIDTH_SPACE}', text)} ``"

    def write_link(self, node: tree.LinkNode | tree.ImageNode) -> str:
        """Return a web address as a link, and any other address after the text: Discord has no links to it."""
        if not node.web:
            return super().write_link(node)
        if node.bare and not node.more and node.url == tree.visible_text(node):
            return node.url
        address = node.url.replace("(", "%28").replace(")", "%29")
        label = self.write_inlines(node.children).replace("\n", " ")
        return f"[{label}]({address})" if has_visible_text(label) else address
