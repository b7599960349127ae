"""Finds the words of a text for people that do not come from the German catalogue."""

import re
from functools import cache
from string import Formatter

from keryx.core.texts import LANGUAGES

# Codes of pairing and of links.
_CODE = re.compile(r"\b[A-Z0-9]{8}\b")
_WORD = re.compile(r"(?<![/\w])[A-Za-zÄÖÜäöüß]{2,}(?!\w)")


def find_untranslated_words(text: str, *data: str) -> list[str]:
    """Return the words that are neither of a German text of the catalogue, nor of the `data` that the texts are filled with:
    names, and what people and agents said. Fields of a text are checked as well."""
    # Chats show code without its marks.
    text = " ".join(_CODE.sub("0", text).replace("`", "").split())
    for pattern in _list_patterns():
        text = pattern.sub(_keep_fields, text)
    known = {word.casefold() for item in data for word in _WORD.findall(item)}
    return [word for word in _WORD.findall(text) if word.casefold() not in known]


def _keep_fields(match: re.Match[str]) -> str:
    return f" {' '.join(filter(None, match.groups()))} "


def _bound(pattern: str, literals: str) -> str:
    """Return a pattern that does not begin or end within a word."""
    begin = r"(?<!\w)" if pattern[0] != "(" and literals[0].isalnum() else ""
    end = r"(?!\w)" if pattern[-1] != ")" and literals[-1].isalnum() else ""
    return f"{begin}{pattern}{end}"


@cache
def _list_patterns() -> list[re.Pattern[str]]:
    """Return how each German text looks, with a group for each field, the longest first."""
    found: dict[str, int] = {}
    for key, template in LANGUAGES["de"].items():
        own = LANGUAGES["en"].get(key, "") == template
        literals, pattern = "", ""
        for literal, name, spec, _ in Formatter().parse(" ".join(template.replace("`", "").split())):
            literals += literal
            pattern += re.escape(literal)
            forms = (spec or "").split("|")
            if name is not None and len(forms) > 1:
                plural = "|".join(re.escape(form).replace(r"\#", r"[\d.,]+") for form in forms)
                literals += forms[-1]
                pattern += f"(?:{plural})"
            elif name is not None:
                pattern += r"([\s\S]*?)"
        # A field at an edge stays in the text.
        pattern = re.sub(r"^(?:\(\[\\s\\S\]\*\?\))+|(?:\(\[\\s\\S\]\*\?\))+$", "", pattern)
        if _WORD.search(literals) and not own:
            found[_bound(pattern, literals)] = len(literals)
    return [re.compile(pattern, re.IGNORECASE) for pattern in sorted(found, key=lambda p: -found[p])]
