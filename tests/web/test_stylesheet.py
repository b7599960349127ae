"""The style sheet keeps its scales: sizes of text, spaces in steps of four, one radius, colours with a name."""

import re
from importlib import resources

import pytest

_CSS = (resources.files("keryx.surfaces.web") / "static" / "keryx.css").read_text("utf-8")
_RULES = re.sub(r"/\*.*?\*/", "", _CSS, flags=re.DOTALL)
# Letters of 16 px are one rem, until a person chooses another size.
_SIZES = {12: "0.75rem", 13: "0.8125rem", 15: "0.9375rem", 18: "1.125rem", 24: "1.5rem"}
_SPACE = re.compile(r"^(?:padding|margin|gap|row-gap|column-gap)(?:-[a-z-]+)?$")


def declarations(name: str) -> list[str]:
    return [value.strip() for found, value in _declared() if re.fullmatch(name, found)]


def _declared() -> list[tuple[str, str]]:
    return re.findall(r"(?<=[{;\s])(-{0,2}[a-z][a-z0-9-]*)\s*:\s*([^;{}]+)(?=[;}])", _RULES)


def test_text_has_five_sizes() -> None:
    assert {size: declarations(f"--size-{size}") for size in _SIZES} == {
        size: [rem] for size, rem in _SIZES.items()
    }
    allowed = {
        *(f"var(--size-{size})" for size in _SIZES),
        "0",
        # Browsers of phones zoom into fields with smaller letters.
        "max(16px, 1rem) !important",
        # What a person chose.
        "87.5%",
        "115%",
        "130%",
    }
    assert set(declarations("font-size")) - allowed == set()
    assert not [v for v in declarations("font") if re.search(r"\d(?:px|em|rem)", v)]


def test_spaces_are_steps_of_four() -> None:
    wrong = [
        (name, value)
        for name, value in _declared()
        if _SPACE.match(name)
        for length in re.findall(r"-?(\d*\.?\d+)px", value)
        if float(length) % 4
    ]
    # A tab lies over the line below it.
    assert [w for w in wrong if w != ("margin-bottom", "-1px")] == []


def test_corners_have_one_radius() -> None:
    # Marks of less than 16 px would be circles with it.
    # A sheet stands on the edge of the window.
    sheet = "var(--radius) var(--radius) 0 0"
    allowed = {"var(--radius)", sheet, "var(--round)", "50%", "0", "2px"}
    assert set(declarations("border-radius")) - allowed == set()
    assert declarations("--radius") == ["6px"]


@pytest.mark.parametrize("name", ["background", "background-color", "border", "border-color", "color"])
def test_colours_are_named_once_for_light_and_dark(name: str) -> None:
    painted = [v for v in declarations(name) if re.search(r"#[0-9a-f]{3}|rgb|hsl|oklch", v)]
    # A code is read by a camera, which needs black on white in both colours.
    assert [v for v in painted if "light-dark(" not in v and v not in ("#000", "#fff")] == []
