"""Texts that a hostile person would send, made to any size. Each is aimed at a parser that looks twice at the same characters, nests, or counts."""

from collections.abc import Callable, Mapping

# Repeated to the wanted size.
_UNITS = {
    "backslashes": "\\",
    "escaped quotes": '\\"',
    "double quotes": '"',
    "single quotes": "'",
    "backticks": "`",
    "runs of backticks": "` `` ``` ",
    "stars": "*",
    "stars and letters": "*a **a ",
    "strong and emphasis": "***a",
    "underscores": "_",
    "underscores and letters": "a_a__",
    "tildes": "~",
    "tildes and letters": "~~a ",
    "opening brackets": "[",
    "closing brackets": "]",
    "link openings": "[a](",
    "empty links": "[](",
    "nested links": "[a](b",
    "links": "[a](https://a.example/b) ",
    "link titles": '[a](<b> "',
    "image openings": "![",
    "nested images": "![a](",
    "image labels": "![[]",
    "reference links": "[a][",
    "reference definitions": "[a]: b\n",
    "open angles": "<",
    "tags": "<a ",
    "tag attributes": '<a b="',
    "html comments": "<!--",
    "declarations": "<!A ",
    "instructions": "<?",
    "cdata": "<![CDATA[",
    "closing tags": "</a",
    "autolinks": "<https://a.example/",
    "addresses": "https://a.example/ ",
    "address beginnings": "https://a",
    "address ends": "https://a.example/).",
    "www": "www.a.example.",
    "mail addresses": "a@b.example",
    "ampersands": "&",
    "entities": "&amp;",
    "unknown entities": "&a",
    "numeric entities": "&#x0;",
    "quote marks": ">",
    "nested quotes": "> ",
    "quotes of one line": "> a\n",
    "deeper quotes": ">\n>",
    "bullets": "- ",
    "bullets of one line": "- a\n",
    "numbers of a list": "1. ",
    "mixed lists": "* - + ",
    "loose list": "- a\n\n",
    "headings": "# ",
    "underlined headings": "a\n=\n",
    "rules": "- - -\n",
    "pipes": "|",
    "cells": "|a",
    "table rows": "|a|b|\n|-|-|\n",
    "escaped pipes": "\\|",
    "dashes": "-",
    "equals": "=",
    "colons": ":",
    "fences": "```\n",
    "named fences": "```a\n",
    "tilde fences": "~~~\n",
    "indented code": "    a\n",
    "tabs": "\t",
    "blanks": " ",
    "blanks before line ends": "  \n",
    "newlines": "\n",
    "carriage returns": "\r",
    "line separators": "\u2028",
    "one letter": "a",
    "words": "word ",
    "digits": "7",
    "numbers": "1e",
    "dots": ".",
    "slashes": "/",
    "at signs": "@",
    "hashes": "#",
    "dollars": "$",
    "parentheses": "(",
    "braces": "{",
    "open lists": "[1,",
    "open objects": '{"a":',
    "comment openings": "/*",
    "formulas": "$a$ ",
    "commands of formulas": r"$\hat\frac\sqrt{a}$ ",
    "powers": "$a^{b_{c}}$ ",
    "parts that open": "<details>",
    "summaries": "<details><summary>a</summary>",
    "spans of time": "try again in 1m 1",
    "slash commands": "/new ",
    "mentions": "@a ",
    "zero width": "\u200b",
    "zero width joiners": "\u200d",
    "joined emoji": "\U0001f468\u200d",
    "flags": "\U0001f1e6",
    "bidi controls": "\u202e\u202d",
    "combining marks": "\u0301",
    "letters with marks": "e\u0301\u0323",
    "long ligatures": "\ufdfa",
    "han": "\u6f22",
    "han and marks": "\u6f22\u3099",
    "jamo": "\u1100\u1161",
    "virama": "\u0915\u094d",
    "skin tones": "\U0001f44b\U0001f3fd",
    "tags of flags": "\U0001f3f4\U000e0067",
    "nul": "\0",
    "escape sequences": "\x1b[31m",
    "surrogates": "\ud800",
    "noncharacters": "\ufffe",
    "soft hyphens": "\u00ad",
    "full width": "\uff01",
}


def repeat(unit: str) -> Callable[[int], str]:
    """Return a maker of texts that consist of one unit."""
    return lambda size: (unit * (size // len(unit) + 1))[:size]


def _around(before: str, unit: str, after: str) -> Callable[[int], str]:
    """Return a maker of texts with one beginning and one end."""
    return lambda size: before + repeat(unit)(max(0, size - len(before) - len(after))) + after


def _nest(opening: str, closing: str) -> Callable[[int], str]:
    """Return a maker of texts in which each opening has its end."""

    def build(size: int) -> str:
        depth = size // (len(opening) + len(closing))
        return opening * depth + closing * depth

    return build


def _build_table(size: int) -> str:
    columns = max(1, size // 8)
    return f"{'|a' * columns}|\n{'|-' * columns}|\n{'|b' * columns}|\n"


def _build_wide_table(size: int) -> str:
    """A header with many columns, and many rows with one cell."""
    columns = max(1, size // 8)
    return f"{'|a' * columns}|\n{'|-' * columns}|\n" + "|b\n" * columns


def _build_empty_rows(size: int) -> str:
    """As many columns as a table may have, and as many rows as fit, without cells."""
    return f"{'|a' * 100}|\n{'|-' * 100}|\n" + "|\n" * (size // 2)


def _build_rising_backticks(size: int) -> str:
    return " ".join("`" * count for count in range(1, int((2 * size) ** 0.5)))[:size]


def _build_rising_marks(size: int) -> str:
    return " ".join("*" * count + "a" for count in range(1, int((2 * size) ** 0.5)))[:size]


_MADE: dict[str, Callable[[int], str]] = {
    "nested brackets": _nest("[", "]"),
    "nested links with ends": _nest("[", "](b)"),
    "nested images with ends": _nest("![", "](b)"),
    "nested strong": _nest("**a ", " b**"),
    "nested emphasis": _nest("*a ", " b*"),
    "nested parentheses in an address": lambda size: f"[a](b{_nest('(', ')')(size)})",
    "nested lists of JSON": _nest("[", "]"),
    "nested objects of JSON": lambda size: '{"a":' * (size // 6) + "1" + "}" * (size // 6),
    "deep bullets": lambda size: "".join("  " * depth + "- a\n" for depth in range(int(size**0.5))),
    "deep quotes": lambda size: "".join("> " * depth + "a\n" for depth in range(int(size**0.5))),
    "a table with many columns": _build_table,
    "a table with a wide header": _build_wide_table,
    "a wide table of empty rows": _build_empty_rows,
    "a row with many cells": lambda size: "|a|\n|-|\n" + "|b" * (size // 2),
    "rising backticks": _build_rising_backticks,
    "rising stars": _build_rising_marks,
    "an unclosed fence": _around("```python\n", "a = 'b'  # c\n", ""),
    "an unclosed fence of quotes": _around("```js\n", '"', ""),
    "an unclosed link": _around("[", "a", ""),
    "an unclosed address": _around("[a](", "b", ""),
    "an unclosed title": _around('[a](b "', "c", ""),
    "an unclosed tag": _around("<a ", "b=c ", ""),
    "an unclosed comment": _around("<!-- ", "- ", ""),
    "an unclosed code span": _around("`", "a ", ""),
    "a long word": _around("", "a", " b"),
    "a long address": _around("https://a.example/", "b", ""),
    "a long address of brackets": _around("https://a.example/", "(", ""),
    "a long address that ends in dots": _around("https://a.example/", ".", ""),
    "a long number": _around("", "9", ""),
    "a long line and a short one": _around("", "a b ", "\nc"),
    "a command with a long argument": _around("/title ", "a ", ""),
    "a long mention": _around("@", "a", ""),
}
TEXTS: Mapping[str, Callable[[int], str]] = {
    **{name: repeat(unit) for name, unit in _UNITS.items()},
    **_MADE,
}
"""Makers of texts by name. Each takes the number of characters and returns about as many."""

# Code for which highlighters that go back over the text need exponential or quadratic time, by the name of the language.
CODE: Mapping[str, Callable[[int], str]] = {
    "fish": _around('"', "\\", ""),
    "scala": _around('"', "\\", ""),
    "rego": _around('"', "\\", ""),
    "smithy": _around('"', "\\", ""),
    "chapel": _around('"', "\\", ""),
    "autohotkey": repeat("\n"),
    "rst": repeat("* a\n"),
    "python": repeat("'''\\"),
    "javascript": repeat("`${"),
    "json": repeat('{"'),
    "html": repeat("<a b='"),
    "css": repeat("a-a{"),
    "sql": repeat("'--"),
    "rust": repeat("'a1e"),
    "yaml": repeat("- a: &"),
    "toml": repeat('[a."'),
    "perl": repeat("qq{"),
    "ruby": repeat("%q(<<A"),
    "lua": repeat("--[[]"),
    "markdown": repeat("[`<!--"),
    "console": repeat("a@b "),
    "makefile": repeat("$(a"),
    "c++": repeat('R"a(/*'),
}


def build_fence(language: str, size: int) -> str:
    """Return a message with hostile code of about this size."""
    return f"```{language}\n{CODE[language](size)}\n```"


def _number_lines(form: str) -> Callable[[int], str]:
    """A maker of lines that have their number in them, each time another node."""

    def make(size: int) -> str:
        lines: list[str] = []
        while sum(map(len, lines)) < size:
            lines.append(form.replace("#", str(len(lines))))
        return "".join(lines)[:size]

    return make


# Formulas, each in one pair of dollar signs.
FORMULAS: Mapping[str, Callable[[int], str]] = {
    name: repeat(unit)
    for name, unit in {
        "accents": r"\hat",
        "lines": r"\underline",
        "roots": r"\sqrt",
        "roots with degrees": r"\sqrt[\sqrt",
        "fractions": r"\frac",
        "fractions of digits": r"\frac1",
        "groups": "{",
        "powers": "a^",
        "groups of powers": "a^{b_",
        "primes": "a'",
        "fences": r"\left(",
        "environments": r"\begin{matrix}",
        "cells": r"\begin{cases}a&",
        "boxes": r"\boxed",
        "stacks": r"\overset",
        "texts": r"\text{",
        "letters": r"\mathbf{a}",
        "digits": "7",
        "blanks": " ",
        "unknown": r"\a",
    }.items()
}

# Aimed at the layout of diagrams: many nodes, long edges, circles and crossings.
DIAGRAMS: Mapping[str, Callable[[int], str]] = {
    "a long chain": _number_lines("n# --> n#x\nn#x --> n#\n"),
    "all to one": _number_lines("n# --> a\n"),
    "one to all": _number_lines("a -->|text| n#\n"),
    "long edges": _number_lines("n# --> n#a --> n#b --> z\n"),
    "open texts of links": _number_lines("a -- text # "),
    "links without ends": _number_lines("a --"),
    "many in a row": _number_lines("n# & "),
    "frames": _number_lines("loop #\na->>b: x\n"),
    "notes": _number_lines("Note over a,b: # \n"),
    "slices": _number_lines('"#" : 1\n'),
}


def build_messages(size: int) -> list[str]:
    """Return every text, piece of code, formula and diagram, each at this size."""
    diagrams = [
        f"```mermaid\n{kind}\n{make(size)}\n```"
        for kind in ("flowchart TD", "sequenceDiagram")
        for make in DIAGRAMS.values()
    ]
    formulas = [f"$${make(min(size, 3_900))}$$" for make in FORMULAS.values()]
    texts = [make(size) for make in TEXTS.values()]
    return [*texts, *(build_fence(language, size) for language in CODE), *formulas, *diagrams]
