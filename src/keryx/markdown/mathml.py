"""TeX formulas to MathML: the constructs that answers of models use. A formula with anything else is not converted, so that it is shown as it was written."""

import re
from html import escape

# A longer formula is shown as it was written.
MAX_TEX_CHARS = 4_000
_MAX_DEPTH = 40
_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|\d+(?:\.\d+)?|\s+|.", re.DOTALL)

_LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε", "zeta": "ζ", "eta": "η",
    "theta": "θ", "vartheta": "ϑ", "iota": "ι", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π",
    "rho": "ρ", "varrho": "ϱ", "sigma": "σ", "varsigma": "ς", "tau": "τ", "upsilon": "υ", "phi": "ϕ", "varphi": "φ",
    "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π",
    "Sigma": "Σ", "Upsilon": "Υ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω", "infty": "∞", "ell": "ℓ", "hbar": "ℏ",
    "partial": "∂", "nabla": "∇", "emptyset": "∅", "varnothing": "∅", "aleph": "ℵ", "Re": "ℜ", "Im": "ℑ", "imath": "ı",
    "jmath": "ȷ", "wp": "℘", "top": "⊤", "bot": "⊥", "angle": "∠", "degree": "°",
    "square": "□", "Box": "□", "blacksquare": "■", "checkmark": "✓",
}  # fmt: skip
_OPERATORS = {
    "cdot": "⋅", "times": "×", "div": "÷", "pm": "±", "mp": "∓", "ast": "∗", "star": "⋆", "circ": "∘", "bullet": "∙",
    "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "ll": "≪", "gg": "≫", "approx": "≈", "sim": "∼",
    "simeq": "≃", "cong": "≅", "equiv": "≡", "propto": "∝", "to": "→", "rightarrow": "→", "leftarrow": "←", "gets": "←",
    "leftrightarrow": "↔", "Rightarrow": "⇒", "Leftarrow": "⇐", "Leftrightarrow": "⇔", "implies": "⟹", "iff": "⟺",
    "longrightarrow": "⟶", "longleftarrow": "⟵", "mapsto": "↦", "uparrow": "↑", "downarrow": "↓", "in": "∈", "notin": "∉",
    "ni": "∋", "subset": "⊂", "subseteq": "⊆", "supset": "⊃", "supseteq": "⊇", "cup": "∪", "cap": "∩", "setminus": "∖",
    "land": "∧", "wedge": "∧", "lor": "∨", "vee": "∨", "neg": "¬", "lnot": "¬", "forall": "∀", "exists": "∃",
    "nexists": "∄", "oplus": "⊕", "ominus": "⊖", "otimes": "⊗", "odot": "⊙", "perp": "⊥", "parallel": "∥", "mid": "∣",
    "vdash": "⊢", "models": "⊨", "prec": "≺", "succ": "≻", "preceq": "⪯", "succeq": "⪰", "ldots": "…", "dots": "…",
    "cdots": "⋯", "vdots": "⋮", "ddots": "⋱", "prime": "′", "langle": "⟨", "rangle": "⟩", "lfloor": "⌊", "rfloor": "⌋",
    "lceil": "⌈", "rceil": "⌉", "lvert": "|", "rvert": "|", "vert": "|", "lVert": "‖", "rVert": "‖", "Vert": "‖",
    "leqslant": "⩽", "geqslant": "⩾", "lesssim": "≲", "gtrsim": "≳", "hookrightarrow": "↪", "hookleftarrow": "↩",
    "rightharpoonup": "⇀", "leftharpoonup": "↼", "rightleftharpoons": "⇌", "dotsc": "…", "dotso": "…", "dotsb": "⋯",
    "dotsm": "⋯", "colon": ":", "triangleq": "≜", "coloneqq": "≔", "backslash": "∖", "therefore": "∴", "because": "∵", "dagger": "†",
    "{": "{", "}": "}", "|": "‖", "%": "%", "$": "$", "&": "&", "#": "#", "_": "_", "lbrace": "{", "rbrace": "}",
}  # fmt: skip
_SUMS = {
    "sum": "∑", "prod": "∏", "coprod": "∐", "bigcup": "⋃", "bigcap": "⋂", "bigoplus": "⨁", "bigotimes": "⨂",
    "bigvee": "⋁", "bigwedge": "⋀",
}  # fmt: skip
_INTEGRALS = {"int": "∫", "iint": "∬", "iiint": "∭", "oint": "∮"}
_FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
        "coth",
        "exp",
        "log",
        "ln",
        "lg",
        "det",
        "dim",
        "ker",
        "deg",
        "arg",
        "gcd",
        "hom",
        "Pr",
    ]
)
_LIMIT_FUNCTIONS = frozenset(["lim", "limsup", "liminf", "max", "min", "sup", "inf", "argmax", "argmin"])
_ACCENTS = {
    "hat": "^", "widehat": "^", "bar": "¯", "overline": "¯", "vec": "→", "overrightarrow": "→", "dot": "˙", "ddot": "¨",
    "tilde": "~", "widetilde": "~", "overbrace": "⏞",
}  # fmt: skip
_UNDERS = {"underline": "_", "underbrace": "⏟"}
_SPACES = {
    ",": "0.17em", ":": "0.22em", ">": "0.22em", ";": "0.28em", "!": "-0.17em", " ": "0.33em", "quad": "1em",
    "qquad": "2em", "~": "0.33em",
}  # fmt: skip
# The code points of the capital and the small A of each alphabet of letters, and of its 0.
_ALPHABETS = {
    "mathbf": (0x1D400, 0x1D41A, 0x1D7CE),
    "boldsymbol": (0x1D468, 0x1D482, 0x1D7CE),
    "bm": (0x1D468, 0x1D482, 0x1D7CE),
    "mathcal": (0x1D49C, 0x1D4B6, 0),
    "mathscr": (0x1D49C, 0x1D4B6, 0),
    "mathfrak": (0x1D504, 0x1D51E, 0),
    "mathbb": (0x1D538, 0x1D552, 0x1D7D8),
    "mathsf": (0x1D5A0, 0x1D5BA, 0x1D7E2),
    "mathtt": (0x1D670, 0x1D68A, 0x1D7F6),
}
# Letters that have had a code point of their own before the alphabets.
_OLDER_LETTERS = {
    0x1D49D: "ℬ", 0x1D4A0: "ℰ", 0x1D4A1: "ℱ", 0x1D4A3: "ℋ", 0x1D4A4: "ℐ", 0x1D4A7: "ℒ", 0x1D4A8: "ℳ", 0x1D4AD: "ℛ",
    0x1D4BA: "ℯ", 0x1D4BC: "ℊ", 0x1D4C4: "ℴ", 0x1D506: "ℭ", 0x1D50B: "ℌ", 0x1D50C: "ℑ", 0x1D515: "ℜ", 0x1D51D: "ℨ",
    0x1D53A: "ℂ", 0x1D53F: "ℍ", 0x1D545: "ℕ", 0x1D547: "ℙ", 0x1D548: "ℚ", 0x1D549: "ℝ", 0x1D551: "ℤ",
}  # fmt: skip
_TEXTS = frozenset(
    {"text", "textrm", "textbf", "textit", "texttt", "mbox", "mathrm", "operatorname", "operatorname*"}
)
_IGNORED = frozenset(
    [
        "displaystyle",
        "textstyle",
        "limits",
        "nolimits",
        "big",
        "Big",
        "bigg",
        "Bigg",
        "bigl",
        "bigr",
        "Bigl",
        "Bigr",
        "biggl",
        "biggr",
        "Biggl",
        "Biggr",
        "nonumber",
        "notag",
        "hline",
        "rm",
    ]
)
_FENCES = {
    "matrix": ("", ""), "pmatrix": ("(", ")"), "bmatrix": ("[", "]"), "Bmatrix": ("{", "}"), "vmatrix": ("|", "|"),
    "Vmatrix": ("‖", "‖"), "cases": ("{", ""), "array": ("", ""), "aligned": ("", ""), "align": ("", ""),
    "align*": ("", ""), "gathered": ("", ""), "split": ("", ""), "equation": ("", ""), "equation*": ("", ""),
    "smallmatrix": ("", ""),
}  # fmt: skip
_CELL_ENDS = ("&", "\\\\", "\\end")
_ALIGNED = frozenset({"aligned", "align", "align*", "split"})


class _UnknownTex(Exception):
    """The formula has something that is not converted."""


def convert(tex: str, *, display: bool) -> str | None:
    """Return a formula as MathML, or None if it has something that is not known."""
    if len(tex) > MAX_TEX_CHARS:
        return None
    parser = _Parser(_TOKEN.findall(tex.strip()), display)
    try:
        row = parser.parse_row(())
    except _UnknownTex:
        return None
    return f'<math display="{"block" if display else "inline"}">{row}</math>' if row else None


def _operator(text: str, *, stretchy: bool = False) -> str:
    return f'<mo stretchy="true">{escape(text)}</mo>' if stretchy else f"<mo>{escape(text)}</mo>"


def _style(letter: str, alphabet: str) -> str:
    capital, small, zero = _ALPHABETS[alphabet]
    if letter.isascii() and letter.isalpha():
        code = capital + ord(letter) - ord("A") if letter.isupper() else small + ord(letter) - ord("a")
        return _OLDER_LETTERS.get(code, chr(code))
    return chr(zero + int(letter)) if zero and letter.isascii() and letter.isdigit() else letter


class _Parser:
    """A recursive descent over the tokens. Raises `_UnknownTex` for everything that it does not know."""

    def __init__(self, tokens: list[str], display: bool) -> None:
        self._tokens = tokens
        self._at = 0
        self._display = display
        self._depth = 0

    def parse_row(self, ends: tuple[str, ...]) -> str:
        """Return all until one of the ends, which is not taken."""
        out: list[str] = []
        while (token := self._peek()) not in ends:
            if not token:
                if ends:
                    raise _UnknownTex
                break
            out.append(self._parse_scripted())
        return "".join(out)

    def _peek(self) -> str:
        """Return the next token that is not white space, or an empty text at the end."""
        while self._at < len(self._tokens) and self._tokens[self._at].isspace():
            self._at += 1
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, wanted: str) -> None:
        if self._take() != wanted:
            raise _UnknownTex

    def _parse_scripted(self) -> str:
        """Return an atom with its superscript and subscript."""
        name = self._peek().removeprefix("\\")
        known = self._peek().startswith("\\") and (
            name in _SUMS or name in _LIMIT_FUNCTIONS or name in ("underbrace", "overbrace")
        )
        around = known and (self._display or name.endswith("brace"))
        base = "<mrow></mrow>" if self._peek() in ("^", "_", "'") else self._parse_atom()
        below = above = ""
        while (token := self._peek()) in ("^", "_", "'", "\\limits", "\\nolimits"):
            self._take()
            if token == "'":
                primes = "′"
                while self._peek() == "'":
                    self._take()
                    primes += "′"
                above += _operator(primes)
            elif token == "^":
                above += self._parse_argument()
            elif token == "_" and not below:
                below = self._parse_argument()
            elif token == "_":
                raise _UnknownTex
        match bool(below), bool(above):
            case True, True:
                tag = "munderover" if around else "msubsup"
                return f"<{tag}>{base}{below}<mrow>{above}</mrow></{tag}>"
            case True, False:
                tag = "munder" if around else "msub"
                return f"<{tag}>{base}{below}</{tag}>"
            case False, True:
                tag = "mover" if around else "msup"
                return f"<{tag}>{base}<mrow>{above}</mrow></{tag}>"
            case _:
                return base

    def _parse_argument(self) -> str:
        """Return a group, or the one atom that stands for it."""
        token = self._peek()
        if token in ("", "}", "^", "_", "&", "\\\\"):
            raise _UnknownTex
        if token[0].isdigit():
            # Without braces it is one digit: `x^12` is a square followed by a 2.
            self._tokens[self._at] = token[1:]
            self._at += not token[1:]
            return f"<mn>{token[0]}</mn>"
        return self._parse_atom()

    def _parse_group(self) -> str:
        self._expect("{")
        row = self.parse_row(("}",))
        self._take()
        return f"<mrow>{row}</mrow>"

    def _parse_atom(self) -> str:
        # All nesting passes through this method.
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _UnknownTex
        atom = self._parse_group() if self._peek() == "{" else self._parse_token(self._take())
        self._depth -= 1
        return atom

    def _parse_token(self, token: str) -> str:
        if token.startswith("\\") and len(token) > 1:
            return self._parse_command(token[1:])
        if token[0].isdigit():
            return f"<mn>{escape(token)}</mn>"
        if token.isalpha():
            return f"<mi>{escape(token)}</mi>"
        if token in ("}", "&", "#", "%", "$", "\\"):
            raise _UnknownTex
        if token == "~":
            return f'<mspace width="{_SPACES[token]}"></mspace>'
        return _operator({"-": "−", "*": "∗"}.get(token, token))

    def _parse_command(self, name: str) -> str:
        if name in _LETTERS:
            return f"<mi>{_LETTERS[name]}</mi>"
        if name in _OPERATORS:
            return _operator(_OPERATORS[name])
        if name in _SUMS or name in _INTEGRALS:
            return _operator(_SUMS.get(name) or _INTEGRALS[name])
        if name in _FUNCTIONS or name in _LIMIT_FUNCTIONS:
            return f'<mi mathvariant="normal">{name}</mi>'
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"></mspace>'
        if name in _IGNORED:
            return ""
        if name in _TEXTS:
            text = self._read_text()
            return (
                f"<mtext>{escape(text)}</mtext>"
                if name != "mathrm"
                else f'<mi mathvariant="normal">{escape(text)}</mi>'
            )
        if name in _ALPHABETS:
            return f"<mi>{escape(''.join(_style(letter, name) for letter in self._read_text()))}</mi>"
        if name in _ACCENTS:
            return f"<mover>{self._parse_argument()}{_operator(_ACCENTS[name], stretchy=True)}</mover>"
        if name in _UNDERS:
            return f"<munder>{self._parse_argument()}{_operator(_UNDERS[name], stretchy=True)}</munder>"
        return self._parse_construct(name)

    def _parse_construct(self, name: str) -> str:
        match name:
            case "frac" | "dfrac" | "tfrac" | "cfrac":
                return f"<mfrac>{self._parse_argument()}{self._parse_argument()}</mfrac>"
            case "binom":
                fraction = (
                    f'<mfrac linethickness="0">{self._parse_argument()}{self._parse_argument()}</mfrac>'
                )
                return f"<mrow>{_operator('(')}{fraction}{_operator(')')}</mrow>"
            case "sqrt" if self._peek() == "[":
                self._take()
                degree = self.parse_row(("]",))
                self._take()
                return f"<mroot>{self._parse_argument()}<mrow>{degree}</mrow></mroot>"
            case "sqrt":
                return f"<msqrt>{self._parse_argument()}</msqrt>"
            case "left":
                return self._parse_fenced()
            case "begin":
                return self._parse_environment(self._read_text())
            case "stackrel" | "overset":
                above, base = self._parse_argument(), self._parse_argument()
                return f"<mover>{base}{above}</mover>"
            case "underset":
                below, base = self._parse_argument(), self._parse_argument()
                return f"<munder>{base}{below}</munder>"
            case "pmod":
                return f"<mrow>{_operator('(')}<mtext>mod </mtext>{self._parse_argument()}{_operator(')')}</mrow>"
            case "bmod":
                return "<mo>mod</mo>"
            case "not" if self._peek() in ("=", "\\in", "\\subset", "\\equiv"):
                return _operator({"=": "≠", "\\in": "∉", "\\subset": "⊄", "\\equiv": "≢"}[self._take()])
            case "boxed" | "mathop" | "mathrel" | "mathbin" | "mathord":
                return self._parse_argument()
            case "mathit":
                return f"<mi>{escape(self._read_text())}</mi>"
            case "abs" | "norm":
                sign = _operator("|" if name == "abs" else "‖", stretchy=True)
                return f"<mrow>{sign}{self._parse_argument()}{sign}</mrow>"
            case "textcolor":
                self._read_text()
                return self._parse_argument()
            case "color":
                self._read_text()
                return ""
            case "tag":
                return f'<mspace width="2em"></mspace><mtext>({escape(self._read_text())})</mtext>'
            case "substack":
                return self._parse_substack()
            case "xrightarrow" | "xleftarrow":
                return self._parse_long_arrow("→" if name == "xrightarrow" else "←")
            case _:
                raise _UnknownTex

    def _parse_substack(self) -> str:
        """Return the lines of a group below each other."""
        self._expect("{")
        rows: list[str] = []
        while True:
            rows.append(f"<mtr><mtd>{self.parse_row(('}', chr(92) * 2))}</mtd></mtr>")
            if self._take() == "}":
                return f'<mtable class="matrix">{"".join(rows)}</mtable>'

    def _parse_long_arrow(self, sign: str) -> str:
        below = ""
        if self._peek() == "[":
            self._take()
            below = f"<mrow>{self.parse_row((']',))}</mrow>"
            self._take()
        arrow, above = _operator(sign, stretchy=True), self._parse_argument()
        return (
            f"<munderover>{arrow}{below}{above}</munderover>" if below else f"<mover>{arrow}{above}</mover>"
        )

    def _parse_fenced(self) -> str:
        """Return what is between `\\left` and `\\right` with both signs, which grow with it."""
        first = self._parse_fence()
        row = self.parse_row(("\\right",))
        self._take()
        return f"<mrow>{first}{row}{self._parse_fence()}</mrow>"

    def _parse_fence(self) -> str:
        token = self._take()
        if token == ".":
            return ""
        sign = _OPERATORS.get(token[1:]) if token.startswith("\\") else token if token in "()[]|/<>" else None
        if not sign:
            raise _UnknownTex
        return _operator({"<": "⟨", ">": "⟩"}.get(sign, sign), stretchy=True)

    def _parse_environment(self, name: str) -> str:
        if name not in _FENCES:
            raise _UnknownTex
        if name == "array":
            self._read_text()
        rows: list[str] = []
        cells: list[str] = []
        while True:
            cells.append(f"<mtd>{self.parse_row(_CELL_ENDS)}</mtd>")
            end = self._take()
            if end == "&":
                continue
            rows.append(f"<mtr>{''.join(cells)}</mtr>")
            cells = []
            if end == "\\end":
                break
            if self._peek() == "\\end":
                self._take()
                break
        if self._read_text() != name:
            raise _UnknownTex
        first, last = _FENCES[name]
        kind = "lines" if name in _ALIGNED else "cases" if name == "cases" else "matrix"
        table = f'<mtable class="{kind}">{"".join(rows)}</mtable>'
        opening = _operator(first, stretchy=True) if first else ""
        closing = _operator(last, stretchy=True) if last else ""
        return f"<mrow>{opening}{table}{closing}</mrow>"

    def _read_text(self) -> str:
        """Return what is between braces as it is."""
        self._expect("{")
        start = self._at
        depth = 1
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            depth += (token == "{") - (token == "}")
            self._at += 1
            if not depth:
                text = "".join(self._tokens[start : self._at - 1])
                if "\\" in text or "{" in text:
                    raise _UnknownTex
                return text
        raise _UnknownTex
