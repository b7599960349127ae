# Pygments has types for a part of itself only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Style: the look of an exported page, light and dark, in one sheet that is part of the file."""

from pygments.formatters import HtmlFormatter

_SHEET = """
:root { color-scheme: light dark; --bg: #f6f7f9; --card: #fff; --ink: #1c2128; --soft: #5c6672; --line: #dfe3e8;
  --mine: #e7f0fe; --mine-line: #c8dcfb; --accent: #2559b8; --code: #f3f4f7; --warn: #9a5b00; }
@media (prefers-color-scheme: dark) { :root { --bg: #111418; --card: #1a1f26; --ink: #e3e7ec; --soft: #97a1ad;
  --line: #2c333c; --mine: #17283f; --mine-line: #26406a; --accent: #86b1ff; --code: #12161b; --warn: #e3a94f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 16px/1.6 system-ui, sans-serif; }
main { max-width: 54rem; margin: 0 auto; padding: 2rem 1rem 5rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .75rem; overflow-wrap: anywhere; }
article { margin-bottom: 4rem; }
article + article { border-top: 1px solid var(--line); padding-top: 2.5rem; }
dl { display: flex; flex-wrap: wrap; gap: .15rem 1.5rem; margin: 0 0 2rem; font-size: .85rem; color: var(--soft); }
dl div { display: flex; gap: .4rem; }
dt::after { content: ":"; }
dd { margin: 0; color: var(--ink); overflow-wrap: anywhere; }
nav { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: .75rem 1.25rem; margin-bottom: 3rem; }
nav ol { margin: 0; padding-left: 1.5rem; }
nav span { color: var(--soft); font-size: .85rem; }
a { color: var(--accent); }
.m { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: .6rem 1rem .75rem;
  margin: 0 0 .9rem; overflow-wrap: anywhere; unicode-bidi: isolate; }
.m.user { background: var(--mine); border-color: var(--mine-line); margin-left: 3rem; }
.m.assistant { margin-right: 3rem; }
.m.tool { margin-right: 3rem; border-style: dashed; }
.m.notice { background: none; border: none; color: var(--soft); text-align: center; font-size: .9rem; }
.m.notice header { justify-content: center; }
.m.undone > div { opacity: .5; text-decoration: line-through; }
.m header { display: flex; flex-wrap: wrap; gap: .5rem; align-items: baseline; font-size: .82rem; color: var(--soft);
  margin-bottom: .15rem; }
.m header b { color: var(--ink); font-weight: 600; unicode-bidi: isolate; }
.m header a { color: inherit; text-decoration: none; margin-left: auto; }
.mark { color: var(--warn); border: 1px solid currentColor; border-radius: 99px; padding: 0 .5rem; font-size: .75rem; }
.m p { margin: .4rem 0; white-space: pre-line; }
.m pre { background: var(--code); border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; overflow-x: auto;
  font: .86rem/1.5 ui-monospace, monospace; margin: .5rem 0; }
.m pre.plain { white-space: pre-wrap; }
.m code { font: .9em ui-monospace, monospace; background: var(--code); border-radius: 4px; padding: .1em .3em; }
.m pre code { background: none; padding: 0; font-size: 1em; }
.m blockquote { margin: .5rem 0; padding-left: 1rem; border-left: 3px solid var(--line); color: var(--soft); }
.m table { border-collapse: collapse; display: block; overflow-x: auto; }
.m th, .m td { border: 1px solid var(--line); padding: .3rem .6rem; }
.m h1, .m h2, .m h3, .m h4, .m h5, .m h6 { font-size: 1.05rem; margin: .8rem 0 .3rem; }
details { margin: .4rem 0; font-size: .92rem; }
summary { cursor: pointer; color: var(--soft); }
summary b { color: var(--ink); font-family: ui-monospace, monospace; font-weight: 600; }
.chip { display: inline-block; border: 1px solid var(--line); border-radius: 8px; padding: .15rem .6rem; font-size: .88rem; }
.fold { border-top: 1px dashed var(--line); color: var(--soft); text-align: center; font-size: .85rem; margin: 1.75rem 0; padding-top: .3rem; }
.fold details { text-align: left; }
footer { color: var(--soft); font-size: .8rem; text-align: center; }
@media (max-width: 40rem) { .m.user { margin-left: 0; } .m.assistant, .m.tool { margin-right: 0; } }
@media print { body { background: none; } .m { break-inside: avoid-page; } }
"""


def sheet() -> str:
    """The whole sheet. Colours of code follow the reader's choice of light or dark."""
    light = _code("default")
    dark = _code("github-dark")
    return f"{_SHEET}{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def _code(style: str) -> str:
    formatter = HtmlFormatter[str](style=style, nobackground=True)
    rules = str(formatter.get_style_defs(".hl")).splitlines()
    return "\n".join(rule for rule in rules if rule.startswith(".hl ."))
