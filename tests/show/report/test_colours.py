"""The colours of a page in both schemes: text has contrast, and white pieces are seen on light squares."""

import re
from itertools import product

import pytest

from alphazero.show.report.picture import CURVES
from tests.support.paths import REPOSITORY
from tests.support.report.contrast import contrast

STYLE = (REPOSITORY / "alphazero" / "show" / "report" / "assets" / "style.css").read_text()
SCHEMES = dict(zip(("light", "dark"), re.findall(r":root \{([^}]*)\}", STYLE), strict=True))
TEXT = ("ink", "soft", "accent", "good", "bad")
GROUNDS = ("ground", "card")


def colours_of(scheme: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", SCHEMES[scheme]))


def test_both_schemes_name_the_same_colours_and_no_other_rule_has_one() -> None:
    assert colours_of("light").keys() == colours_of("dark").keys()
    rest = STYLE
    for rules in SCHEMES.values():
        rest = rest.replace(rules, "")
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?![^;{]*\{)", re.sub(r"/\*.*?\*/", "", rest))
    assert set(re.findall(r"(?<![\w-])color: ([^;]+);", rest)) <= {
        *(f"var(--{name})" for name in TEXT),
        "inherit",
    }


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_has_a_contrast_of_four_and_a_half_to_one(scheme) -> None:
    colours = colours_of(scheme)
    for text, ground in [*product(TEXT, GROUNDS), *product(("ink", "soft"), ("chosen",))]:
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_curves_and_the_focus_have_a_contrast_of_three_to_one(scheme) -> None:
    colours = colours_of(scheme)
    names = [name for name in colours if name.startswith("curve-")]
    assert len(names) == 10
    for name in (*names, "accent"):
        assert contrast(colours[name], colours["card"]) >= 3, name


@pytest.mark.parametrize("scheme", SCHEMES)
def test_white_pieces_are_seen_on_light_squares_and_black_ones_on_dark(scheme) -> None:
    colours = colours_of(scheme)
    light, dark = colours["light-square"], colours["dark-square"]
    assert contrast("#ffffff", light) >= 1.5
    assert contrast(light, dark) >= 1.5
    assert contrast("#000000", dark) >= 4.5


def test_the_picture_has_the_colours_of_the_page() -> None:
    light = colours_of("light")
    assert [light[f"curve-{number}"] for number in range(10)] == list(CURVES)


def test_contrast_is_as_the_guidelines_define_it() -> None:
    # WCAG 2.1: 21 at most; #767676 on white is known as the lightest grey that passes 4.5.
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)
    assert contrast("#777777", "#ffffff") < 4.5
