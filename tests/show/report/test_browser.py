"""The page in headless Chromium: nothing in the console, no request, every panel drawn, the board steps."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from alphazero.base.files import replacing
from alphazero.show.report.page import page_of
from alphazero.show.report.report import build
from tests.support.paths import FIXTURES
from tests.support.report.browser import Browser, require_browser
from tests.support.report.made_up_runs import step_line, supervised_run, write_run

PANELS = """
return [...document.querySelectorAll('section.panel')].map((panel) => ({
  name: panel.id.slice(6),
  kind: panel.dataset.kind || '',
  marks: Number(panel.dataset.marks),
  empty: panel.querySelector('.empty') ? panel.querySelector('.empty').textContent : '',
}));
"""
EVIL = "<script>document.title='taken'<\\script><img src=x onerror=alert(1)> $$x$$ @y{safe}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    require_browser()
    browser = Browser()
    yield browser
    browser.driver.quit()


def page(tmp_path: Path, *runs: Path) -> Path:
    """The page of these runs, in a file."""
    out = tmp_path / "report.html"
    with replacing(out) as file:
        file.write(page_of(build(runs)).encode())
    return out


def check(browser: Browser, width: int) -> dict[str, int]:
    """All that must hold of any page; the marks of each panel."""
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.run("return document.documentElement.scrollWidth") == width
    panels = browser.run(PANELS)
    for panel in panels:
        assert bool(panel["marks"]) != bool(panel["empty"]), panel
        if panel["marks"] and panel["kind"] in ("curves", "shares", "reliability"):
            assert browser.coloured_pixels(f"#panel-{panel['name']}") > 20, panel
    return {panel["name"]: panel["marks"] for panel in panels}


def press(browser: Browser, selector: str) -> None:
    browser.run("document.querySelector(arguments[0]).click()", selector)


def test_a_supervised_run_is_drawn_at_both_widths_and_its_game_steps(browser, tmp_path) -> None:
    run = supervised_run(tmp_path / "runs" / EVIL)
    browser.open(page(tmp_path, run.path), 1400)
    marks = check(browser, 1400)
    assert EVIL in browser.run("return document.querySelector('h1').textContent")
    assert browser.run("return document.title").startswith("<script>")
    for name in ("policy_loss", "reliability", "phases", "time_shares_0", "gpu_memory", "games", "wrong"):
        assert marks[name], name
    viewer = "[data-viewer]"
    places = []
    for _ in range(3):
        places.append(browser.run(f"return document.querySelector('{viewer}').dataset.ply"))
        press(browser, f"{viewer} button[title=forward]")
    assert places == ["0", "1", "2"]
    board = f"document.querySelector('{viewer} .board')"
    assert browser.run(f"return {board}.querySelectorAll('use').length") == 32
    assert browser.run(f"return {board}.querySelectorAll('.arrow').length") == 2
    # 1. e4 e5 2. Nf3
    assert browser.run(f"return {board}.getAttribute('aria-label')").endswith("PPPP.PPPRNBQKB.R")
    press(browser, f"{viewer} button[title='last position']")
    assert "ended 1-0" in browser.run(f"return document.querySelector('{viewer} .said').textContent")
    for switch in ("time-time", "log-log"):
        browser.run("document.body.dataset.drawn = 'no'")
        press(browser, f"[data-switch={switch}]")
        browser.wait("document.body.dataset.drawn === 'yes'")
    # Redrawn, the game is where it was.
    assert browser.run(f"return document.querySelector('{viewer}').dataset.ply") == "5"
    browser.resize(400)
    check(browser, 400)


def test_self_play_of_connect_four_and_a_comparison_are_drawn(browser, tmp_path) -> None:
    old = FIXTURES / "v0" / "selfplay"
    shutil.copytree(old, tmp_path / "again")
    browser.open(page(tmp_path, old, tmp_path / "again"), 1400)
    marks = check(browser, 1400)
    for name in ("plies", "results", "policy_entropy", "exact_truth", "openings", "games"):
        assert marks[name], name
    assert browser.run("return document.querySelectorAll('.chooser').length") == 3
    assert browser.run("return document.querySelectorAll('#panel-games .board circle').length") >= 42
    assert browser.run("return document.querySelectorAll('#panel-openings details').length") > 0


def test_a_single_point_is_visible_in_every_kind_of_panel(browser, tmp_path) -> None:
    lines = [
        step_line(1),
        {"kind": "validation", "step": 1, "policy_loss": 2.5},
        {"kind": "speed", "step": 1, "samples_per_s": 10.0, "samples_per_s_per_rank": 10.0, "minutes": 0.5},
        {"kind": "time_share", "step": 1, "compute": 0.9, "data_wait": 0.1},
    ]
    browser.open(page(tmp_path, write_run(tmp_path / "one", lines).path), 400)
    marks = check(browser, 400)
    assert marks["policy_loss"] == 2
    assert marks["time_shares_0"] == 2
