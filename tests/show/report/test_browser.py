"""The page in headless Chromium: nothing in the console, no request, every panel drawn, the board steps."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from alphazero.base.files import replacing
from alphazero.show.report.page import page_of
from alphazero.show.report.report import build
from tests.support.paths import FIXTURES
from tests.support.report.browser import Browser, require_browser
from tests.support.report.contrast import contrast
from tests.support.report.made_up_runs import step_line, supervised_run, write_run

PANELS = """
return [...document.querySelectorAll('section.panel')].map((panel) => ({
  name: panel.id.slice(6),
  kind: panel.dataset.kind || '',
  marks: Number(panel.dataset.marks),
  label: panel.querySelector('.chart') ? panel.querySelector('.chart').getAttribute('aria-label') : '',
}));
"""
# What scrolls sideways, beside tables in boxes of their own.
SIDEWAYS = """
const text = (one) => one.outerHTML.slice(0, 200);
return [...document.querySelectorAll('*')].filter((one) =>
  one.scrollWidth > one.clientWidth + 1 && ['auto', 'scroll'].includes(getComputedStyle(one).overflowX)
  && !(one.matches('.scroll') && one.firstElementChild.matches('table'))).map(text);
"""
# Tables in which the rows do not begin below each other.
CROOKED = """
const left = (cell) => Math.round(cell.getBoundingClientRect().left);
const starts = (table) => new Set([...table.rows].map((row) => left(row.cells[0])));
return [...document.querySelectorAll('table.plain')]
  .filter((table) => table.offsetWidth && starts(table).size > 1).map((table) => table.innerText);
"""
# Every element with a text of its own: its colour, and the one behind it.
TEXTS = """
const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
const ground = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const [r, g, b, a = 1] = rgb(getComputedStyle(one).backgroundColor);
    if (a === 1) return [r, g, b];
  }
  return [255, 255, 255];
};
const isText = (node) => node.nodeType === 3 && node.data.trim();
return [...document.body.querySelectorAll('*')].filter((one) => !one.closest('svg, script, option')
  && one.getClientRects().length && [...one.childNodes].some(isText))
  .map((one) => [one.textContent.slice(0, 60), rgb(getComputedStyle(one).color).slice(0, 3), ground(one)]);
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
    assert browser.run(SIDEWAYS) == []
    assert browser.run(CROOKED) == []
    for panel in panels:
        assert panel["marks"], panel
        if panel["kind"] in ("curves", "shares", "reliability"):
            assert browser.coloured_pixels(f"#panel-{panel['name']}") > 20, panel
            title = browser.run(f"return document.querySelector('#panel-{panel['name']} h3').firstChild.data")
            assert panel["label"].startswith(title), panel
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
    settings = (
        "[...document.querySelectorAll('details')].find((one) => one.textContent.startsWith('Command'))"
    )
    browser.run(f"{settings}.open = true")
    for switch in ("time-time", "log-log"):
        browser.run("document.body.dataset.drawn = 'no'")
        browser.run("document.querySelector(arguments[0]).focus()", f"[data-switch={switch}]")
        press(browser, f"[data-switch={switch}]")
        browser.wait("document.body.dataset.drawn === 'yes'")
        assert browser.run("return document.activeElement.dataset.switch") == switch
    assert browser.run(f"return [{settings}.open, document.querySelectorAll('details[open]').length]") == [
        True,
        1,
    ]
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
    assert browser.run("return document.querySelectorAll('.chooser').length") == 2
    missing = browser.run("return document.querySelector('.missing').textContent")
    for title in ("Where it is most wrong", "Elo over checkpoints", "GPU utilisation"):
        assert missing.count(title) == 2  # in the line, and with the reason
    assert "No validation" in missing
    names = "return [...document.querySelectorAll('.runs td:first-child')].map((one) => one.textContent)"
    assert browser.run(names) == ["selfplay", "again"]
    assert browser.run("return document.querySelectorAll('#panel-games .board circle').length") >= 42
    assert browser.run("return document.querySelectorAll('#panel-openings details').length") > 0


@pytest.mark.slow
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


def key(browser: Browser, name: str) -> None:
    """A key as a person presses it, wherever the focus is."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    ActionChains(browser.driver).send_keys(getattr(Keys, name)).perform()


def click(browser: Browser, selector: str) -> None:
    """As a person clicks, below the header that stays."""
    browser.run("document.querySelector(arguments[0]).scrollIntoView({ block: 'center' })", selector)
    browser.driver.find_element("css selector", selector).click()


def ply(browser: Browser) -> str:
    return str(browser.run("return document.querySelector('[data-viewer]').dataset.ply"))


@pytest.mark.slow
def test_keys_step_through_the_game_after_a_jump_to_it(browser, tmp_path) -> None:
    out = page(tmp_path, supervised_run(tmp_path / "one").path)
    browser.open(out, 1400)
    key(browser, "RIGHT")
    assert ply(browser) == "0"  # the game is not in view
    browser.driver.find_element("css selector", "nav a[href='#games']").click()
    browser.wait("document.querySelector('[data-viewer]').getBoundingClientRect().top < innerHeight")
    for name, expected in (("RIGHT", "1"), ("RIGHT", "2"), ("LEFT", "1")):
        key(browser, name)
        assert ply(browser) == expected
    press(browser, "[data-viewer] button[title='forward']")
    browser.run("document.querySelector('[data-viewer]').focus()")
    key(browser, "END")
    assert ply(browser) == "5"
    # Where an arrow has another meaning, it keeps it.
    browser.run("document.querySelector('[data-viewer] select').focus()")
    key(browser, "LEFT")
    assert ply(browser) == "5"
    browser.driver.get("about:blank")
    browser.driver.get(f"{out.as_uri()}#games")
    browser.wait("document.body.dataset.drawn === 'yes'")
    browser.wait("window.scrollY > 0")
    key(browser, "RIGHT")
    assert ply(browser) == "1"


@pytest.mark.parametrize("has_clipboard", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_position_and_a_command_are_copied_with_or_without_a_clipboard(
    browser, tmp_path, has_clipboard
) -> None:
    browser.open(page(tmp_path, supervised_run(tmp_path / "one").path), 1400)
    browser.run(
        """
        window.copied = [];
        const takes = arguments[0] ? { writeText: async (text) => window.copied.push(text) } : undefined;
        Object.defineProperty(navigator, 'clipboard', { value: takes, configurable: true });
        document.addEventListener('copy', () => window.copied.push(document.activeElement.value));
    """,
        has_clipboard,
    )
    click(browser, ".wrong .copier")
    browser.wait("document.querySelector('.wrong .copier').textContent === 'Copied'")
    click(browser, ".next-steps .copier")
    browser.wait("window.copied.length === 2")
    position, command = browser.run("return window.copied")
    assert position == "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
    shown = browser.run(
        "return [...document.querySelectorAll('.next-steps code')].map((one) => one.textContent)"
    )
    assert command in shown
    assert browser.run("return document.activeElement.className") == "copier"
    browser.wait("document.querySelector('.wrong .copier').textContent === 'Copy FEN'")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast_in_both_schemes_and_charts_follow(browser, tmp_path, scheme) -> None:
    runs = [supervised_run(tmp_path / name).path for name in ("one", "two")]
    config = json.loads((runs[1] / "config.json").read_text())
    config["training"].update(
        dict.fromkeys(("steps", "batch_size", "validation_interval", "log_interval"), 7)
    )
    (runs[1] / "config.json").write_text(json.dumps(config))
    try:
        browser.scheme("dark" if scheme == "light" else "light")
        browser.open(page(tmp_path, *runs), 1400)
        before = browser.run(
            "return document.querySelector('#panel-policy_loss .chip line').getAttribute('stroke')"
        )
        browser.run("document.body.dataset.drawn = 'no'")
        browser.scheme(scheme)  # while the page is open
        browser.wait("document.body.dataset.drawn === 'yes'")
        browser.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        texts = browser.run(TEXTS)
        assert len(texts) > 200
        low = [(text, one) for text, *colours in texts if (one := contrast(*map(as_hex, colours))) < 4.5]
        assert low == []
        after = browser.run(
            "return document.querySelector('#panel-policy_loss .chip line').getAttribute('stroke')"
        )
        assert before != after
        check(browser, 1400)
    finally:
        browser.scheme("light")


def as_hex(colour: list[float]) -> str:
    return "#" + "".join(f"{round(part):02x}" for part in colour)


@pytest.mark.slow
def test_what_has_the_focus_is_seen(browser, tmp_path) -> None:
    browser.open(page(tmp_path, supervised_run(tmp_path / "one").path), 1400)
    for _ in range(3):
        key(browser, "TAB")
        style = browser.run(
            "const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth]"
        )
        assert style == ["solid", "2px"]


@pytest.mark.slow
def test_paper_is_light_in_the_dark_scheme_too(browser, tmp_path) -> None:
    try:
        browser.scheme("dark")
        browser.open(page(tmp_path, supervised_run(tmp_path / "one").path), 1400)
        assert (
            browser.run("return getComputedStyle(document.querySelector('.card')).backgroundColor")
            == "rgb(23, 30, 41)"
        )
        browser.scheme("dark", medium="print")
        assert (
            browser.run("return getComputedStyle(document.querySelector('.card')).backgroundColor")
            == "rgb(255, 255, 255)"
        )
        assert "invert" in browser.run("return getComputedStyle(document.querySelector('.chart')).filter")
    finally:
        browser.scheme("light")
