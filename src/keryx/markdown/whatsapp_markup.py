"""WhatsApp markup: `*bold*`, `_italic_`, `~strike~`, code, lists and quotations within one text."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import parse, plain, tree
from keryx.markdown.plain import TextLine
from keryx.markdown.split import LengthLimit, has_visible_text, split_document

LIMIT = LengthLimit(4096, LengthUnit.UTF16)
# WhatsApp has no way to escape a character, but a mark before this invisible space does not begin a style.
ESCAPE = "\u200b"
_FENCE = "```"
_BOLD, _ITALIC, _STRIKE = "*", "_", "~"
_STYLES = (_BOLD, _ITALIC, _STRIKE)
# A mark that WhatsApp would take for the beginning of a style: not after a letter or digit, and before something.
_MARK = re.compile(r"(?<![^\W_])([*_~`])(?=[^\s*_~`])")
# What WhatsApp would take for a quotation or a list at the beginning of a line.
_LINE_MARK = re.compile(r"([>*-])(?= )")


def render_parts(markdown: str, limit: LengthLimit = LIMIT) -> list[str]:
    """Return the parts in order; none if the text shows nothing."""
    return [
        part for part in split_document(parse(markdown), render, limit.fill_ratio) if has_visible_text(part)
    ]


def render(document: tree.DocumentNode) -> str:
    """Return the whole document as one part of any length."""
    return _WhatsAppWriter().write(document).rstrip()


@dataclass(frozen=True, slots=True)
class _StyledRun:
    """A stretch of text on one line, with its styles."""

    text: str
    styles: frozenset[str] = frozenset()
    # Markup or code, which is not escaped.
    raw: bool = False


class _WhatsAppWriter(plain.PlainWriter):
    bullet = "-"

    def write_paragraph(self, children: Iterable[tree.Inline]) -> list[TextLine]:
        """Return the lines of a paragraph. A style does not go on in the next line, so it is closed and opened again."""
        lines: list[list[_StyledRun]] = [[]]
        for run in _collect_runs(children, frozenset()):
            first, *rest = run.text.split("\n")
            lines[-1].append(replace(run, text=first))
            lines.extend([replace(run, text=text)] for text in rest)
        if len(lines) > 1 and not any(run.text for run in lines[-1]):
            lines.pop()
        written = [_write_styles(line, _STYLES, before="", after="") for line in lines]
        return [TextLine(ESCAPE + line if _LINE_MARK.match(line) else line) for line in written]

    def write_heading(self, heading: tree.HeadingNode) -> list[TextLine]:
        return self.write_paragraph((tree.BoldNode(heading.children),))

    def write_code_block(self, lines: Iterable[str], lang: str = "") -> list[TextLine]:
        code = list(lines)
        if not any(map(has_visible_text, code)):
            return [TextLine(line) for line in code]
        safe = (line.replace(_FENCE, ESCAPE.join(_FENCE)) for line in code)
        return [TextLine(line, True) for line in (_FENCE, *safe, _FENCE)]

    def write_quote(self, lines: Iterable[TextLine]) -> list[TextLine]:
        return [TextLine(f"> {line.text}".rstrip()) for line in lines]


def _collect_runs(children: Iterable[tree.Inline], styles: frozenset[str]) -> list[_StyledRun]:
    runs: list[_StyledRun] = []
    for node in children:
        match node:
            case tree.TextNode():
                runs.append(_StyledRun(node.text, styles))
            case tree.BreakNode():
                runs.append(_StyledRun("\n", styles))
            case tree.CodeNode():
                # Code is plain text if it has a mark in it or none fits around it.
                raw = bool(node.text.strip()) and "`" not in node.text and "\n" not in node.text
                runs.append(_StyledRun(f"`{node.text}`" if raw else node.text, styles, raw=raw))
            case tree.BoldNode():
                runs += _collect_runs(node.children, styles | {_BOLD})
            case tree.ItalicNode():
                runs += _collect_runs(node.children, styles | {_ITALIC})
            case tree.StrikeNode():
                runs += _collect_runs(node.children, styles | {_STRIKE})
            case tree.LinkNode() | tree.ImageNode() if node.bare:
                runs.append(_StyledRun(tree.visible_text(node), styles, raw=True))
            case tree.LinkNode() | tree.ImageNode():
                runs += _collect_runs(node.children, styles)
                if not node.more:
                    # WhatsApp makes the address a link by itself.
                    runs += [_StyledRun(" ("), _StyledRun(node.url, raw=True), _StyledRun(")")]
            case _:
                assert_never(node)
    return runs


def _write_styles(runs: Sequence[_StyledRun], styles: Sequence[str], *, before: str, after: str) -> str:
    """Return the runs of a line with the marks of these styles. `before` and `after` are the characters around it."""
    if not styles:
        return "".join(run.text if run.raw else _MARK.sub(rf"\1{ESCAPE}", run.text) for run in runs)
    mark, *inner = styles
    groups: list[list[_StyledRun]] = []
    for run in runs:
        if groups and (mark in groups[-1][0].styles) == (mark in run.styles):
            groups[-1].append(run)
        else:
            groups.append([run])
    text = ""
    for index, group in enumerate(groups):
        following = groups[index + 1][0].text[:1] if index + 1 < len(groups) else after
        preceding = text[-1:] or before
        body = _write_styles(group, inner, before=preceding, after=following)
        text += _wrap(body, mark, preceding, following) if mark in group[0].styles else body
    return text


def _wrap(body: str, mark: str, before: str, after: str) -> str:
    """Put marks around a text. WhatsApp shows marks as they are if they touch a letter or digit outside, or a space
    inside, so spaces stay outside, and a style within a word is left out."""
    core = body.strip()
    if not core:
        return body
    start = body.index(core)
    head, tail = body[:start], body[start + len(core) :]
    if (not head and before.isalnum()) or (not tail and after.isalnum()):
        return body
    return f"{head}{mark}{core}{mark}{tail}"
