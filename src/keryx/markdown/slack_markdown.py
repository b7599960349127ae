"""Markdown as Slack takes it in `markdown` blocks and streams. A text that fits stays as it is written; a longer one is split on its tree and written anew, with everything escaped that only looks like markup."""

import re

from keryx.markdown import clean_text, parse, tree
from keryx.markdown.markdown_writer import MarkdownWriter
from keryx.markdown.split import LengthLimit, has_visible_text, split_document

# These notify a whole channel. An answer must not, even if the model was asked to.
_BROADCAST_PATTERN = re.compile(r"<!(here|channel|everyone|subteam)(?:\^[^<>|\s]*)?(?:\|@?([^<>\n]*))?>")
_ENTITY_PATTERN = re.compile(r"&(?=#?\w+;)")
_BACKSLASH_PATTERN = re.compile(r"\\(?=[!-/:-@\[-`{-~]|\Z)")
_EMPHASIS_PATTERN = re.compile(r"\*|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~|`")
_TAG_PATTERN = re.compile(r"<(?=[A-Za-z/!?@#])")


def render_parts(markdown: str, limit: LengthLimit) -> list[str]:
    """Return the parts in order; none if the text shows nothing. While a text grows within the limit, each version begins
    with the one before, so that a stream can show it."""
    text = _BROADCAST_PATTERN.sub(lambda found: f"@{found[2] or found[1]}", clean_text(markdown))
    text = text.lstrip("\n").rstrip()
    if limit.fill_ratio(text) <= 1:
        return [text] if has_visible_text(text) else []
    return [part for part in split_document(parse(text), render, limit.fill_ratio) if has_visible_text(part)]


def render(document: tree.DocumentNode) -> str:
    """Return Markdown that has the tree of the document, apart from white space and the rest of cut tables."""
    return _SlackWriter().write(document)


def escape_mrkdwn(text: str) -> str:
    """Return a text without mentions and links, for fields that take Slack's own markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class _SlackWriter(MarkdownWriter):
    def escape(self, text: str) -> str:
        text = _BACKSLASH_PATTERN.sub(r"\\\\", text)
        text = _EMPHASIS_PATTERN.sub(r"\\\g<0>", text)
        text = _TAG_PATTERN.sub(r"\\<", text).replace("](", "]\\(")
        return _ENTITY_PATTERN.sub("&amp;", text)

    def write_link(self, node: tree.LinkNode | tree.ImageNode) -> str:
        text = tree.visible_text(node)
        if node.bare:
            # It may have been cut.
            return text
        label = self.escape(text).replace("[", "\\[").replace("]", "\\]")
        url = f"<{node.url}>" if re.search(r"[\s()]", node.url) else node.url
        return f"[{label or node.url}]({url})"
