"""Splits source code into tokens for colouring: a short list of languages, each read in one pass.

The time is linear for any text, because each pattern follows four rules. Repetitions are possessive, so nothing is tried twice. A comment or
string that is never closed reaches to the end of its line or of the code, so no search for an end fails. What may follow a token is looked
at for a few characters only. Words are found in sets, not by alternatives."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import islice
from typing import NamedTuple

# Longer code is one token without a kind.
MAX_CODE_CHARS = 20_000
MAX_TOKENS = 6_000

_WORD = r"(?P<word>[^\W\d]\w*+)"
_NUMBER = (
    r"(?P<number>0[xX][\da-fA-F_]++\w*+|0[bBoO][\d_]++\w*+"
    r"|\d[\d_]*+(?:\.\d[\d_]*+)?+(?:[eE][+-]?+\d++)?+\w*+%?+)"
)
_LINE_STRING = r'"(?:[^"\\\n]++|\\.)*+"?+'
_LINE_CHARACTERS = r"'(?:[^'\\\n]++|\\.)*+'?+"
_STRING = r'"(?:[^"\\]++|\\.)*+"?+'
_CHARACTERS = r"'(?:[^'\\]++|\\.)*+'?+"
_TRIPLE_STRING = r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?+'
_TRIPLE_CHARACTERS = r"'''(?:[^'\\]++|\\.|'(?!''))*+(?:''')?+"
_BACKTICKS = r"`(?:[^`\\]++|\\.)*+`?+"
_RAW_BACKTICKS = r"`[^`]*+`?+"
_SLASH_COMMENT = r"//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?+"
_HASH_COMMENT = r"\#[^\n]*+"
_SPACED_HASH_COMMENT = r"(?<!\S)\#[^\n]*+"
_VARIABLE = r"\$(?:\w++|\{[^}\n]*+\}?+|\([\w.-]*+\)|[?!\#$@*<^+-])"
_ANNOTATION = r"@[^\W\d][\w.]*+"


class CodeTokenKind(StrEnum):
    KEYWORD = "keyword"
    NAME = "name"
    STRING = "string"
    NUMBER = "number"
    COMMENT = "comment"
    DELETED = "deleted"
    INSERTED = "inserted"


class CodeToken(NamedTuple):
    # None for text without a colour.
    kind: CodeTokenKind | None
    text: str


_KINDS: Mapping[str, CodeTokenKind] = {kind.value: kind for kind in CodeTokenKind}


@dataclass(frozen=True, slots=True)
class _Language:
    # Its groups are named for kinds of tokens; `word` is looked up in the sets, and `inner` is read by the pattern below.
    pattern: str
    keywords: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    # The word after one of these is a name.
    definers: frozenset[str] = frozenset()
    ignores_case: bool = False
    inner: str = ""


def scan(code: str, language: str) -> list[CodeToken]:
    """Return the tokens, whose texts joined are the code. Code that is too long or of an unknown language is one token,
    and so is what follows the first `MAX_TOKENS`."""
    name = _ALIASES.get(language.lower(), language.lower())
    tokens: list[CodeToken] = []
    end = 0
    if name in _LANGUAGES and len(code) <= MAX_CODE_CHARS:
        for kind, start, stop in islice(_find_tokens(name, code), MAX_TOKENS):
            if start > end:
                tokens.append(CodeToken(None, code[end:start]))
            tokens.append(CodeToken(kind, code[start:stop]))
            end = stop
    if end < len(code):
        tokens.append(CodeToken(None, code[end:]))
    return tokens


def _find_tokens(name: str, code: str) -> Iterator[tuple[CodeTokenKind, int, int]]:
    """Yield the tokens that have a kind, with their positions."""
    language = _LANGUAGES[name]
    pattern, inner = _compile_patterns(name)
    keywords, names, definers = language.keywords, language.names, language.definers
    defining, end = False, 0
    for found in islice(pattern.finditer(code), MAX_TOKENS):
        start, stop = found.span()
        group = found.lastgroup or ""
        if group == "word":
            word = found.group().lower() if language.ignores_case else found.group()
            if word in keywords:
                yield CodeTokenKind.KEYWORD, start, stop
            elif word in names or (defining and code[end:start].isspace()):
                yield CodeTokenKind.NAME, start, stop
            defining, end = word in definers, stop
        elif group == "inner":
            for part in inner.finditer(code, start, stop):
                yield _KINDS[part.lastgroup or ""], *part.span()
        else:
            defining = False
            yield _KINDS[group], start, stop


@cache
def _compile_patterns(name: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    language = _LANGUAGES[name]
    flags = re.DOTALL | re.MULTILINE
    return re.compile(language.pattern, flags), re.compile(language.inner, flags)


def _join(*, comment: str = "", string: str = "", name: str = "", keyword: str = "") -> str:
    """Return the pattern of a language with words and numbers."""
    groups = {"comment": comment, "keyword": keyword, "string": string, "name": name}
    return "|".join(
        [*(f"(?P<{group}>{pattern})" for group, pattern in groups.items() if pattern), _WORD, _NUMBER]
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_C_STRINGS = f"{_LINE_STRING}|{_LINE_CHARACTERS}"
_TEXT_BLOCKS = f"{_TRIPLE_STRING}|{_C_STRINGS}"
_PREPROCESSOR = r"^[ \t]*+\#[ \t]*+[a-z]++"
_SHELL_STRINGS = rf"{_STRING}|'[^']*+'?+"
_CODE_DEFINERS = _words(
    "class struct interface enum trait type fn func fun function def module namespace object record protocol package"
)
_C_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register return short "
    "signed sizeof static struct switch typedef union unsigned void volatile while bool true false NULL "
)
_JAVASCRIPT = _Language(
    _join(comment=_SLASH_COMMENT, string=f"{_LINE_STRING}|{_LINE_CHARACTERS}|{_BACKTICKS}", name=_ANNOTATION),
    _words(
        "abstract any as async await boolean break case catch class const continue debugger declare default delete do else enum export extends "
        "false finally for from function get if implements import in infer instanceof interface is keyof let namespace never new null number of "
        "override private protected public readonly return satisfies set static string super switch symbol this throw true try type typeof "
        "undefined unknown var void while with yield"
    ),
    _words(
        "Array Boolean Date Error JSON Map Math Number Object Promise Proxy Reflect RegExp Set String Symbol WeakMap console document fetch "
        "globalThis module process require window"
    ),
    _CODE_DEFINERS,
)
_SHELL = _Language(
    _join(comment=_SPACED_HASH_COMMENT, string=_SHELL_STRINGS, name=rf"{_VARIABLE}|(?<!\S)--?+[\w-]++"),
    _words(
        "and begin break case continue do done elif else end esac fi for function if in local not or return select set switch then time until "
        "while export readonly declare unset trap exec source alias"
    ),
    _words(
        "awk cat cd chmod chown cp curl docker echo eval exit find git grep head kill kubectl ls make mkdir mv npm pip printf ps pwd python read rm "
        "sed shift sleep sort ssh string sudo systemctl tail tar tee test touch tr uniq wc wget xargs"
    ),
    _words("function"),
)
_MARKUP = _Language(
    r"(?P<comment><!--(?:[^-]++|-(?!->))*+(?:-->)?+)"
    r"""|(?P<inner><[/!?]?+[A-Za-z](?:[^"'<>]++|"[^"]*+"?+|'[^']*+'?+)*+>?+)|(?P<number>&\#?+\w++;)""",
    inner=r"""(?P<keyword><[/!?]?+[\w:.-]++|[/?]?+>)|(?P<string>"[^"]*+"?+|'[^']*+'?+)|(?P<name>[\w:@.-]++)""",
)
_LANGUAGES: Mapping[str, _Language] = {
    "python": _Language(
        _join(
            comment=_HASH_COMMENT,
            string="[rRbBfFuU]{0,2}+"
            rf"(?:{_TRIPLE_STRING}|{_TRIPLE_CHARACTERS}|{_LINE_STRING}|{_LINE_CHARACTERS})",
            name=rf"(?<!\S){_ANNOTATION}",
        ),
        _words(
            "False None True and as assert async await break case class continue def del elif else except finally for from global if import in "
            "is lambda match nonlocal not or pass raise return try type while with yield"
        ),
        _words(
            "abs all any bool bytearray bytes callable classmethod cls complex dict dir divmod enumerate filter float format frozenset getattr "
            "hasattr hash id input int isinstance issubclass iter len list map max min next object open ord pow print property range repr reversed "
            "round self set setattr slice sorted staticmethod str sum super tuple vars zip Exception KeyError RuntimeError TypeError ValueError"
        ),
        _CODE_DEFINERS,
    ),
    "javascript": _JAVASCRIPT,
    "json": _Language(
        rf"(?P<comment>{_SLASH_COMMENT})|(?P<name>{_LINE_STRING}(?=[ \t]{{0,8}}+:))|(?P<string>{_LINE_STRING})"
        rf"|{_WORD}|{_NUMBER}",
        _words("true false null"),
    ),
    "shell": _SHELL,
    # A transcript: the lines after a prompt are commands.
    "console": _Language(
        r"(?P<inner>^(?:[\w@:~/.\[\]()-]{1,80}+ ?+)?+[$#%>] [^\n]*+|^(?:>>>|\.\.\.) [^\n]*+)",
        inner=r"^(?P<comment>(?:[\w@:~/.\[\]()-]{1,80}+ ?+)?+[$#%>] |(?:>>>|\.\.\.) )"
        rf"|(?P<string>{_SHELL_STRINGS})|(?P<name>{_VARIABLE}|(?<!\S)--?+[\w-]++)",
    ),
    "markup": _MARKUP,
    "css": _Language(
        _join(
            comment=_SLASH_COMMENT,
            string=f"{_LINE_STRING}|{_LINE_CHARACTERS}",
            keyword=r"@[\w-]++|![a-z]++",
            name=r"(?<![\w-])[\w-]++(?=:)|\#[\w-]++|\.[A-Za-z_][\w-]*+",
        ),
    ),
    "sql": _Language(
        _join(
            comment=r"--[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?+",
            string=r"'(?:[^']++|'')*+'?+",
            name=r'"[^"\n]*+"?+|`[^`\n]*+`?+|[@:$]\w++',
        ),
        _words(
            "add all alter and any as asc begin between by cascade case check column commit conflict constraint create cross current_date "
            "current_timestamp database default delete desc distinct do drop else end except exists explain false fetch first for foreign from full "
            "function grant group having if ilike in index inner insert intersect into is join key lateral left like limit natural not nothing null "
            "nulls of offset on or order outer over partition primary recursive references returning revoke right rollback row rows schema select "
            "set table temp temporary then to transaction trigger true truncate union unique update using values view when where window with"
        ),
        _words(
            "avg bigint blob boolean bytea cast char coalesce count date decimal float int integer interval json jsonb lower max min now numeric real "
            "round serial smallint substr sum text time timestamp timestamptz trim upper uuid varchar"
        ),
        ignores_case=True,
    ),
    "go": _Language(
        _join(comment=_SLASH_COMMENT, string=f"{_C_STRINGS}|{_RAW_BACKTICKS}"),
        _words(
            "break case chan const continue default defer else fallthrough false for func go goto if import interface iota map nil package range return "
            "select struct switch true type var"
        ),
        _words(
            "any append bool byte cap close copy delete error float32 float64 int int16 int32 int64 int8 len make new panic print println recover rune "
            "string uint uint16 uint32 uint64 uint8"
        ),
        _CODE_DEFINERS,
    ),
    "rust": _Language(
        # A quotation mark of one side only is a lifetime.
        _join(
            comment=_SLASH_COMMENT,
            string=rf"""b?+{_STRING}|b?+'(?:[^'\\\n]|\\[^\n][^'\n]{{0,10}}+)'|r\#{{1,3}}+"(?:[^"]++|"(?!\#))*+(?:"\#++)?+""",
            name=r"'\w++|\#!?+\[[^\]\n]*+\]?+|(?<!\w)\w++!(?=[\[({])",
        ),
        _words(
            "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self "
            "static struct super trait true type unsafe use where while"
        ),
        _words(
            "Box Err None Ok Option Rc Result Some String Vec Arc HashMap bool char f32 f64 i128 i16 i32 i64 i8 isize str u128 u16 u32 u64 u8 usize"
        ),
        _CODE_DEFINERS,
    ),
    "c": _Language(
        _join(comment=_SLASH_COMMENT, string=_C_STRINGS, keyword=_PREPROCESSOR),
        _words(
            _C_WORDS
            + "alignas catch class co_await co_return co_yield concept constexpr decltype delete explicit export final friend mutable namespace new "
            "noexcept nullptr operator override private protected public requires template this throw try typename using virtual"
        ),
        _words(
            "size_t ssize_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t std string vector map printf malloc free"
        ),
        _CODE_DEFINERS,
    ),
    "java": _Language(
        _join(comment=_SLASH_COMMENT, string=_TEXT_BLOCKS, name=_ANNOTATION),
        _words(
            "abstract assert boolean break byte case catch char class const continue default do double else enum extends false final finally float for if "
            "implements import instanceof int interface long native new null package permits private protected public record return sealed short static "
            "super switch synchronized this throw throws transient true try var void volatile while yield"
        ),
        _words("Boolean Double Integer List Long Map Object Optional Set String System"),
        _CODE_DEFINERS,
    ),
    "csharp": _Language(
        _join(
            comment=_SLASH_COMMENT,
            string=rf"[$@]{{0,2}}+(?:{_TRIPLE_STRING}|{_LINE_STRING})|{_LINE_CHARACTERS}",
            keyword=_PREPROCESSOR,
        ),
        _words(
            "abstract as async await base bool break byte case catch char checked class const continue decimal default delegate do double else enum event "
            "explicit extern false finally fixed float for foreach get global goto if implicit in init int interface internal is lock long nameof namespace "
            "new null object operator out override params private protected public readonly record ref required return sbyte sealed set short sizeof static "
            "string struct switch this throw true try typeof uint ulong unchecked unsafe ushort using var virtual void volatile when where while with yield"
        ),
        _words("Console DateTime Dictionary Exception Guid IEnumerable List String Task"),
        _CODE_DEFINERS,
    ),
    "kotlin": _Language(
        _join(comment=_SLASH_COMMENT, string=_TEXT_BLOCKS, name=_ANNOTATION),
        _words(
            "abstract actual as break by case catch class companion const constructor continue crossinline data def do else enum expect extends false final "
            "finally for forSome fun get given if implicit import in infix init inline inner interface internal is lateinit lazy match new null object open "
            "operator out override package private protected public return sealed set super suspend this throw trait true try type typealias using val var "
            "vararg when where while with yield"
        ),
        _words(
            "Any Array Boolean Char Double Either Float Future Int List Long Map Nothing Option Seq Set Some String Unit println"
        ),
        _CODE_DEFINERS,
    ),
    "swift": _Language(
        _join(
            comment=_SLASH_COMMENT, string=f"{_TRIPLE_STRING}|{_LINE_STRING}", name=rf"{_ANNOTATION}|\#\w++"
        ),
        _words(
            "actor any as associatedtype async await break case catch class continue default defer deinit do else enum extension fallthrough false "
            "fileprivate final for func get guard if import in indirect init inout internal is lazy let mutating nil nonisolated open operator override "
            "private protocol public repeat required rethrows return self Self set some static struct subscript super switch throw throws true try typealias "
            "unowned var weak where while"
        ),
        _words(
            "Any Array Bool Character Dictionary Double Error Float Int Optional Result Set String UInt Void print"
        ),
        _CODE_DEFINERS,
    ),
    "ruby": _Language(
        _join(
            comment=r"^=begin(?:[^\n]++|\n(?!=end))*+(?:\n=end[^\n]*+)?+|" + _HASH_COMMENT,
            string=f"{_STRING}|{_CHARACTERS}",
            name=r"@{1,2}+\w++|\$\w++|(?<![:\w]):\w++[?!]?+",
        ),
        _words(
            "BEGIN END alias and attr_accessor attr_reader attr_writer begin break case class def defined? do else elsif end ensure extend false for if in "
            "include lambda module next nil not or private proc protected public raise redo require require_relative rescue retry return self super then true "
            "undef unless until when while yield"
        ),
        _words("Array Hash Integer String Struct Symbol new p print puts"),
        _CODE_DEFINERS,
    ),
    "php": _Language(
        _join(
            comment=rf"{_SLASH_COMMENT}|\#(?!\[)[^\n]*+",
            string=f"{_STRING}|{_CHARACTERS}",
            keyword=r"<\?(?:php|=)?+|\?>",
            name=r"\$\w++|\#\[[^\]\n]*+\]?+",
        ),
        _words(
            "abstract and array as break callable case catch class clone const continue declare default do echo else elseif empty enum extends false final "
            "finally fn for foreach function global goto if implements include include_once instanceof insteadof interface isset list match namespace new "
            "null or print private protected public readonly require require_once return self static switch throw trait true try unset use var while xor yield"
        ),
        _words("bool count explode float implode int mixed object string strlen void"),
        _CODE_DEFINERS,
    ),
    "lua": _Language(
        _join(
            comment=r"--\[\[(?:[^\]]++|\](?!\]))*+(?:\]\])?+|--[^\n]*+",
            string=rf"{_C_STRINGS}|\[\[(?:[^\]]++|\](?!\]))*+(?:\]\])?+",
        ),
        _words(
            "and break do else elseif end false for function goto if in local nil not or repeat return then true until while"
        ),
        _words(
            "ipairs math next pairs pcall print require self setmetatable string table tonumber tostring type"
        ),
        _CODE_DEFINERS,
    ),
    "yaml": _Language(
        rf"(?P<comment>{_SPACED_HASH_COMMENT})"
        r"|(?P<name>^[ \t]*+(?:-[ ]++)*+[\w./$-]++(?=:))"
        r"""|(?P<string>(?<![\w"'])(?:"(?:[^"\\\n]++|\\.)*+"?+|'[^'\n]*+'?+))"""
        r"|(?P<keyword>^(?:---|\.\.\.)|[&*!][\w!/-]++)"
        rf"|{_WORD}|{_NUMBER}",
        _words("true false null yes no on off"),
    ),
    "toml": _Language(
        r"(?P<comment>[#;][^\n]*+)|(?P<keyword>^[ \t]*+\[[^\]\n]*+\]{0,2}+)"
        r"|(?P<name>^[ \t]*+[\w.-]++(?=[ \t]{0,40}+[=:]))"
        rf"|(?P<string>{_TRIPLE_STRING}|{_TRIPLE_CHARACTERS}|{_LINE_STRING}|(?<!\w){_LINE_CHARACTERS})"
        rf"|{_WORD}|{_NUMBER}",
        _words("true false yes no on off inf nan"),
    ),
    "diff": _Language(
        r"(?P<keyword>^(?:diff |index |\+\+\+ |--- |Index: |rename |new file |deleted file )[^\n]*+)"
        r"|(?P<name>^@@[^\n]*+)|(?P<inserted>^\+[^\n]*+)|(?P<deleted>^-[^\n]*+)"
    ),
    "dockerfile": _Language(
        _join(comment=_SPACED_HASH_COMMENT, string=_SHELL_STRINGS, name=rf"{_VARIABLE}|(?<!\S)--?+[\w-]++"),
        _words(
            "add arg as cmd copy entrypoint env expose from healthcheck label maintainer onbuild run shell stopsignal user volume workdir"
        ),
        ignores_case=True,
    ),
    "makefile": _Language(
        _join(
            comment=_SPACED_HASH_COMMENT,
            string=_C_STRINGS,
            name=rf"{_VARIABLE}|^[\w.%/-]++(?=[ \t]{{0,8}}+(?:[?+:!]?+=|:))",
        ),
        _words("define else endef endif export ifdef ifeq ifndef ifneq include override unexport vpath"),
    ),
    "markdown": _Language(
        r"(?P<keyword>^\#{1,6}+[ \t][^\n]*+|^[ \t]*+(?:[*+-]|\d{1,9}+[.)])(?=[ \t]))"
        r"|(?P<comment>^[ \t]*+>[^\n]*+|<!--(?:[^-]++|-(?!->))*+(?:-->)?+)"
        r"|(?P<string>^[ \t]*+```[^\n]*+|`[^`\n]*+`?+)|(?P<name>\[[^\]\n]*+\]?+)"
    ),
}
_ALIASES: Mapping[str, str] = {
    alias: name
    for name, aliases in {
        "python": "py python3 py3 pyi",
        "javascript": "js jsx mjs cjs typescript ts tsx node",
        "json": "jsonc json5 jsonl",
        "shell": "bash sh zsh fish ksh shell-script",
        "console": "shell-session shellsession bash-session sh-session terminal",
        "markup": "html xml svg xhtml htm vue svelte rss",
        "css": "scss less sass",
        "sql": "postgresql postgres sqlite mysql plpgsql",
        "go": "golang",
        "rust": "rs",
        "c": "h c++ cpp cc cxx hpp hxx objc objective-c arduino",
        "csharp": "c# cs",
        "kotlin": "kt kts scala sc groovy gradle",
        "ruby": "rb rake",
        "php": "php3 php4 php5 php8",
        "yaml": "yml",
        "toml": "ini cfg conf properties editorconfig dotenv",
        "diff": "patch udiff",
        "dockerfile": "docker containerfile",
        "makefile": "make mk mf",
        "markdown": "md mdown",
    }.items()
    for alias in aliases.split()
}
