"""The page of `alphazero play --browser` in headless Chromium: games by clicks, drags, keys and text."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import chess
import pytest

from alphazero.play.net import Net, new_net
from alphazero.search.tree_search import SearchLimits
from alphazero.show.play_page.answers import GameAnswers
from alphazero.show.play_page.page import WATCH, play_page
from alphazero.show.play_page.server import PlayServer
from tests.show.report.test_browser import TEXTS, as_hex, browser, key  # noqa: F401
from tests.support.report.browser import Browser
from tests.support.report.contrast import contrast

ONE = SearchLimits(nodes=1)
EVIL = "<script>document.title='taken'</script><img src=x onerror=alert(1)>.pt"
# Where a square is on the screen.
MIDDLE = """
const board = document.querySelector('.playing');
const [height, width] = play.size();
const square = play.flipped ? height * width - 1 - arguments[0] : arguments[0];
const [x, y] = [(square % width + 0.5) * boards.unit, (Math.floor(square / width) + 0.5) * boards.unit];
const point = new DOMPoint(x, y).matrixTransform(board.getScreenCTM());
return [point.x, point.y];
"""


@contextlib.contextmanager
def opened(
    browser: Browser,  # noqa: F811
    *nets: Net,
    side: str = "first",
    start: str | None = None,
    limits: SearchLimits = ONE,
    names: tuple[str, ...] = ("net.pt",),
    width: int = 1400,
    refused: int = 0,
) -> Iterator[None]:
    """The page of a server of these networks. refused: how many requests it refuses within the block."""
    page = play_page(nets[0].game, names, side, limits, start)
    with contextlib.closing(GameAnswers(nets)) as answers, PlayServer(page, answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            browser.open(server.url, width)
            yield
            complaints = browser.complaints()
            assert len(complaints) == refused and all("400 (Bad Request)" in one for one in complaints)
        finally:
            browser.driver.get("about:blank")
            server.shutdown()
            thread.join()
            answers.close()
            for tree in answers._trees:
                tree.join(10)
            answers._trees.clear()  # the browser's connections keep the server, not the game's positions


def net_of(game: str) -> Net:
    return new_net(game, blocks=1, filters=8)


def move_pointer(browser: Browser, *squares: int, drag: bool = False) -> None:  # noqa: F811
    """Click squares one after the other, or drag from the first to the last."""
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    for number, square in enumerate(squares):
        x, y = browser.run(MIDDLE, square)
        actions = ActionBuilder(browser.driver)
        actions.pointer_action.move_to_location(int(x), int(y))
        if not drag or number == 0:
            actions.pointer_action.pointer_down()
        if not drag or number == len(squares) - 1:
            actions.pointer_action.pointer_up()
        actions.perform()


def squares_of(move: str) -> tuple[int, int]:
    parsed = chess.Move.from_uci(move)
    return chess.square_mirror(parsed.from_square), chess.square_mirror(parsed.to_square)


def press(browser: Browser, label: str) -> None:  # noqa: F811
    browser.run(
        "[...document.querySelectorAll('button')].find((e) => e.textContent === arguments[0]).click()", label
    )


def status(browser: Browser) -> str:  # noqa: F811
    return str(browser.run("return document.querySelector('.verdict').textContent"))


def wait_for_moves(browser: Browser, count: int) -> None:  # noqa: F811
    browser.wait(f"document.body.dataset.moves === '{count}' && document.body.dataset.busy === 'no'")


def test_a_game_of_connect_four_is_won_by_clicks(browser) -> None:  # noqa: F811
    with opened(browser, net_of("connect4")):
        assert browser.driver.current_url.endswith("/") and len(browser.run("return play.token")) > 20
        for turn in range(1, 22):
            # The first of the columns with which no answer wins at once, or which wins.
            move_pointer(browser, browser.run(GOOD_COLUMN))
            browser.wait(f"play.isOver() || (play.game.moves.length === {2 * turn} && !play.thinking)")
            if browser.run("return play.isOver()"):
                break
        browser.wait("document.querySelector('.verdict').textContent.startsWith('The game is over')")
        assert status(browser) == "The game is over: 1-0 (win)."
        assert browser.run("return document.querySelectorAll('.stone').length") == browser.run(
            "return play.game.moves.length"
        )


# A column that makes four, else one that keeps the other from it, else the middle.
GOOD_COLUMN = """
const cells = play.view.cells;
const at = (row, column) => (row < 0 || row > 5 || column < 0 || column > 6 ? '' : cells[row * 7 + column]);
const makesFour = (square, stone) => [[0, 1], [1, 0], [1, 1], [1, -1]].some(([down, right]) => {
  const run = (sign) => { let n = 0; const [r, c] = [Math.floor(square / 7), square % 7];
    while (at(r + sign * (n + 1) * down, c + sign * (n + 1) * right) === stone) n += 1; return n; };
  return run(1) + run(-1) >= 3;
});
const targets = play.view.legal.map((move) => move[3]);
const order = targets.slice().sort((a, b) => Math.abs(a % 7 - 3) - Math.abs(b % 7 - 3));
return order.find((one) => makesFour(one, 'x')) ?? order.find((one) => makesFour(one, 'o')) ?? order[0];
"""


def test_chess_by_drag_and_keys_and_text_with_promotion_and_undo(browser) -> None:  # noqa: F811
    with opened(browser, net_of("chess"), start="7k/4P3/8/8/8/8/8/K7 w - - 0 1", refused=1):
        move_pointer(browser, *squares_of("a1a2"), drag=True)
        wait_for_moves(browser, 2)
        press(browser, "Undo")
        wait_for_moves(browser, 0)
        move_pointer(browser, *squares_of("e7e8"))
        browser.wait("document.querySelectorAll('.promotion button').length === 4")
        assert browser.run("return document.querySelector('.promotion').textContent") == "e8=Q+e8=R+e8=Be8=N"
        browser.run("document.querySelectorAll('.promotion button')[1].click()")
        wait_for_moves(browser, 2)
        assert browser.run("return play.game.moves[0]") == "e7e8r"
        press(browser, "Undo")
        wait_for_moves(browser, 0)
        browser.run("document.querySelector('.playing').focus()")
        key(browser, "ARROW_RIGHT")  # the cursor comes to a1
        key(browser, "ENTER")
        assert browser.run("return document.querySelectorAll('.legal-target').length") == 3
        for name in ("ARROW_UP", "ARROW_RIGHT", "ENTER"):
            key(browser, name)
        wait_for_moves(browser, 2)
        assert browser.run("return play.game.moves[0]") == "a1b2"
        press(browser, "Undo")
        wait_for_moves(browser, 0)
        type_into(browser, "move", "e8=Q+")
        wait_for_moves(browser, 2)
        type_into(browser, "move", "Kh8")
        browser.wait("document.querySelector('[role=alert]')")
        assert "Kh8" in browser.run("return document.querySelector('[role=alert]').textContent")
        assert browser.run("return play.game.moves.length") == 2
        type_into(browser, "position", "8/8/8/8/8/5k2/5q2/7K w - - 0 1")
        browser.wait("document.querySelector('.verdict').textContent.startsWith('The game is over')")
        assert status(browser).startswith("The game is over: 1/2-1/2 (stalemate)")


def type_into(browser: Browser, field: str, text: str) -> None:  # noqa: F811
    from selenium.webdriver.common.keys import Keys

    element = browser.driver.find_element("css selector", f"[data-field={field}]")
    element.clear()
    element.send_keys(text, Keys.ENTER)


def test_the_second_player_sees_the_board_from_behind_and_is_given_a_hint(browser) -> None:  # noqa: F811
    with opened(browser, net_of("chess"), side="second", limits=SearchLimits(nodes=30)):
        wait_for_moves(browser, 1)
        assert browser.run("return document.querySelector('.coordinate').textContent") == "h"
        move_pointer(browser, *squares_of("e7e5"))
        wait_for_moves(browser, 3)
        press(browser, "Hint")
        browser.wait("document.querySelectorAll('.lines li').length === 5")
        assert browser.run("return document.querySelectorAll('.arrow').length") == 5
        assert "White wins" in browser.run(
            "return document.querySelector('.meter').getAttribute('aria-label')"
        )
        press(browser, "Resign")
        browser.wait("document.querySelector('.verdict').textContent.startsWith('The game is over')")
        assert status(browser) == "The game is over: 1-0 (resigned)."


def test_two_networks_are_watched_to_the_end_of_their_game(browser) -> None:  # noqa: F811
    nets = (net_of("tictactoe"), net_of("tictactoe"))
    with opened(browser, *nets, side=WATCH, names=("one.pt", EVIL)):
        browser.wait("document.querySelector('.verdict').textContent.startsWith('The game is over')")
        assert browser.run("return document.querySelector('h1').textContent").endswith(EVIL)
        assert browser.run("return document.title").endswith("alphazero play")


def test_rules_that_draw_their_board_are_played_by_buttons(browser, tmp_path: Path) -> None:  # noqa: F811
    with opened(browser, net_of_rules("nim.py:Nim(piles=3)", tmp_path)):
        assert browser.run("return document.querySelector('.drawing').textContent") == "a:1  b:2  c:3"
        press(browser, "c3")
        wait_for_moves(browser, 2)
        assert browser.run("return play.game.moves[0]") == "c3"


def net_of_rules(path: str, folder: Path) -> Net:
    from alphazero.games.registry import read_game
    from alphazero.play.net import load
    from tests.support.evaluation.small_nets import write_small_net
    from tests.support.paths import REPOSITORY

    name = read_game("--game", f"{REPOSITORY}/examples/{path}")
    return load(write_small_net(folder / "net.pt", name), device="cpu")


SNORT = "alpha_zero_general.py:Game(game=tests.support.games.snort_game.SnortGame)"


def test_rules_that_draw_a_board_of_signs_are_played_by_clicks(browser, tmp_path: Path) -> None:  # noqa: F811
    with opened(browser, net_of_rules(SNORT, tmp_path), side="second"):
        wait_for_moves(browser, 1)
        assert browser.run("return document.querySelectorAll('.stone').length") == 1
        assert browser.run("return document.querySelectorAll('.drawing, .chooser').length") == 0
        targets = browser.run("return play.view.legal.map((move) => move[3])")
        assert len(targets) == browser.run("return document.querySelectorAll('.legal-target').length") > 5
        move_pointer(browser, targets[-1])
        wait_for_moves(browser, 3)
        assert browser.run("return play.view.cells[arguments[0]]", targets[-1]) == "o"
        assert browser.run("return play.game.moves[1]") == str(targets[-1])  # a square, as it was clicked
        press(browser, "Hint")
        browser.wait("document.querySelectorAll('.arrow').length > 0")
        while not browser.run("return play.isOver()"):
            count = browser.run("return play.game.moves.length")
            move_pointer(browser, browser.run("return play.view.legal[0][3]"))
            drawn = f"document.body.dataset.moves === '{count + 2}' && document.body.dataset.busy === 'no'"
            browser.wait(f"play.isOver() || ({drawn})")
        assert status(browser).startswith("The game is over: ")


def test_a_peg_is_moved_to_where_it_jumps(browser, tmp_path: Path) -> None:  # noqa: F811
    with opened(browser, net_of_rules("pegs.py:Pegs", tmp_path)):
        move_pointer(browser, 3)  # d4, which may jump to the hole b4
        browser.wait("document.querySelectorAll('.chosen-square').length === 1")
        assert browser.run("return document.querySelectorAll('.legal-target').length") == 1
        move_pointer(browser, 1)
        wait_for_moves(browser, 1)
        assert browser.run("return play.game.moves") == ["d4l"]
        assert browser.run("return play.view.cells") == "xx..xxxxxxxxxxxx"
        move_pointer(browser, 11, 3, drag=True)
        wait_for_moves(browser, 2)
        assert browser.run("return play.view.cells") == "xx.xxxx.xxx.xxxx"
        press(browser, "Undo")
        wait_for_moves(browser, 1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_it_fits_and_has_contrast(browser, scheme: str, width: int) -> None:  # noqa: F811
    try:
        browser.scheme(scheme)
        with opened(browser, net_of("othello"), limits=SearchLimits(nodes=20), width=width):
            press(browser, "Hint")
            browser.wait("document.querySelectorAll('.lines li').length > 0")
            assert browser.run("return document.documentElement.scrollWidth") == width
            texts = browser.run(TEXTS)
            assert len(texts) > 10
            low = [(text, one) for text, *colours in texts if (one := contrast(*map(as_hex, colours))) < 4.5]
            assert low == []
    finally:
        browser.scheme("light")
