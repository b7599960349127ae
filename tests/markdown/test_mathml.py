"""Formulas: common TeX becomes MathML, money stays money, and what is not known is shown as it was written."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.markdown import html, mathml, parse, plain, tree


def draw(tex: str, *, display: bool = False) -> str:
    """The MathML of a formula without the element around it and without rows, which group but do not show."""
    drawn = mathml.convert(tex, display=display)
    assert drawn is not None, tex
    return re.sub(r"</?math[^>]*>|</?mrow>", "", drawn)


@pytest.mark.parametrize(
    ("tex", "expected"),
    [
        ("x", "<mi>x</mi>"),
        ("3.14", "<mn>3.14</mn>"),
        ("x_i^2", "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>"),
        ("x^12", "<msup><mi>x</mi><mn>1</mn></msup><mn>2</mn>"),
        (r"\frac12", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
        (r"\sqrt[3]{x}", "<mroot><mi>x</mi><mn>3</mn></mroot>"),
        ("f'", "<msup><mi>f</mi><mo>′</mo></msup>"),
        (r"\alpha \le \beta", "<mi>α</mi><mo>≤</mo><mi>β</mi>"),
        (r"\mathbb{R}", "<mi>ℝ</mi>"),
        (r"\mathbf{v}", "<mi>𝐯</mi>"),
        (r"\text{if } x < 0", "<mtext>if </mtext><mi>x</mi><mo>&lt;</mo><mn>0</mn>"),
        (r"\sin x", '<mi mathvariant="normal">sin</mi><mi>x</mi>'),
        (r"\left( x \right.", '<mo stretchy="true">(</mo><mi>x</mi>'),
        (r"\hat{x}", '<mover><mi>x</mi><mo stretchy="true">^</mo></mover>'),
        (r"\{1\}", "<mo>{</mo><mn>1</mn><mo>}</mo>"),
        (r"\sum_{i}", "<msub><mo>∑</mo><mi>i</mi></msub>"),
        (r"a \not= b", "<mi>a</mi><mo>≠</mo><mi>b</mi>"),
        (
            r"\begin{cases} 1 & x \\ 0 \end{cases}",
            '<mo stretchy="true">{</mo><mtable class="cases"><mtr><mtd><mn>1</mn></mtd><mtd><mi>x</mi></mtd></mtr>'
            "<mtr><mtd><mn>0</mn></mtd></mtr></mtable>",
        ),
    ],
)
def test_common_tex_becomes_mathml(tex: str, expected: str) -> None:
    assert draw(tex) == expected


def test_limits_of_a_sum_stand_above_and_below_it_on_a_line_of_its_own() -> None:
    assert draw(r"\sum_1^n", display=True) == "<munderover><mo>∑</mo><mn>1</mn><mi>n</mi></munderover>"
    assert draw(r"\int_0^1", display=True) == "<msubsup><mo>∫</mo><mn>0</mn><mn>1</mn></msubsup>"


@pytest.mark.parametrize(
    "tex",
    [r"\unknown{x}", "x^", "{x", "x}", r"\frac{1}", r"\begin{pmatrix} 1", r"\begin{tikz}\end{tikz}", "a_b_c", r"\left( x",
     r"\text{a \b}", "", *(f"\\{name}" * 300 + " x" for name in ("hat", "underline", "sqrt", "boxed", "frac1")), "{" * 100 + "}" * 100, "x" * 5000, "&", r"\right)"],
)  # fmt: skip
def test_what_is_not_known_is_not_converted(tex: str) -> None:
    assert mathml.convert(tex, display=False) is None


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        ("so $x$ and $y$.", ["x", "y"]),
        (r"so \(x\) and \[y\].", ["x", "y"]),
        ("$$\nx\n+ y\n= z\n$$", ["\nx\n+ y\n= z\n"]),
        ("- item\n\n  $$\n  x\n  $$", ["\nx\n"]),
        ("it costs $5 or $10", []),
        ("US$5 (AU$7)", []),
        (r"\$5 and \$6", []),
        ("`$x$`", []),
        ("$ x $", []),
        ("$x", []),
        ("$$\n\nx", []),
    ],
)
def test_where_formulas_are(text: str, formulas: list[str]) -> None:
    found: list[str] = []

    def walk(node: tree.Node) -> None:
        if isinstance(node, tree.MathNode):
            found.append(node.tex)
        for child in tree.child_nodes(node):
            walk(child)

    walk(parse(text))
    assert found == formulas


def test_a_formula_that_is_not_known_keeps_every_character_everywhere() -> None:
    text = r"see $\foo{a_1 * b_2}$ and \(\bar \baz\)"
    assert html.render(text) == f"<p>{text}</p>\n"
    assert plain.render(parse(text)) == text


def test_formulas_carry_no_markup_of_their_own() -> None:
    page = html.render(r"$\text{<script>alert(1)</script>} < x$ and $<img src=x onerror=alert(1)>$")
    assert "<script" not in page and "<img" not in page


@given(st.text(st.sampled_from("x12^_{}\\&$ '()[]<>") | st.characters()))
def test_any_formula_is_converted_to_balanced_elements_or_not_at_all(tex: str) -> None:
    drawn = mathml.convert(tex, display=True)
    opened: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Reader().feed(drawn or "")
    assert not opened


@pytest.mark.parametrize(
    ("tex", "wanted"),
    [
        (r"a \leqslant b", "<mo>⩽</mo>"),
        (
            r"\abs{x}",
            '<mrow><mo stretchy="true">|</mo><mrow><mi>x</mi></mrow><mo stretchy="true">|</mo></mrow>',
        ),
        (r"\xrightarrow[b]{a}", "<munderover>"),
        (r"\xrightarrow{a}", '<mover><mo stretchy="true">→</mo>'),
        (r"\sum_{\substack{a \\ b}} c", "<mtr><mtd><mi>a</mi></mtd></mtr><mtr><mtd><mi>b</mi></mtd></mtr>"),
        (r"\textcolor{red}{x} + \color{blue} y", "<mi>x</mi>"),
        (r"x = 1 \tag{2}", "<mtext>(2)</mtext>"),
        (r"\begin{array}{c} \hline a \\ \hline b \end{array}", "<mtd><mi>b</mi></mtd>"),
        (r"\mathit{ab} \checkmark \square", "<mi>ab</mi><mi>✓</mi><mi>□</mi>"),
    ],
)
def test_commands_of_packages_that_models_use_are_converted(tex: str, wanted: str) -> None:
    assert wanted in (mathml.convert(tex, display=True) or "")


def test_an_unfinished_stack_or_arrow_is_not_converted() -> None:
    for tex in (r"\substack{a \\", r"\xrightarrow[b", r"\abs", r"\tag"):
        assert mathml.convert(tex, display=False) is None
