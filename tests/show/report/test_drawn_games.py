"""The report of games whose rules draw their positions: as these draw them, bounded, and never as HTML."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alphazero.data.store.store import GameStore
from alphazero.games.outside import names
from alphazero.games.outside.use import rules_of
from alphazero.games.registry import read_game
from alphazero.run.validation_record import WrongPosition
from alphazero.show.report.games import wrong_positions
from alphazero.show.report.page import json_of, page_of
from alphazero.show.report.report import build
from tests.show.report.test_browser import TEXTS, as_hex, browser, check, key, page, ply, press  # noqa: F401
from tests.support.report.contrast import contrast
from tests.support.report.drawn_runs import BOXES, EVIL, boxes_with, drawn_run, with_drawing
from tests.support.report.made_up_runs import record_of

SIZE_2 = f"{BOXES}:Boxes(size=2)"


def body_of(path: Path) -> dict[str, Any]:
    body: dict[str, Any] = build([path]).to_json()["runs"][0]
    return body


def moves_of(path: Path) -> list[list[int]]:
    """Of the stored games, the newest first."""
    return [
        view.moves[begin:end].tolist()
        for view in GameStore.open(path / "games").shards
        for begin, end in zip(view.moves_offset[:-1], view.moves_offset[1:], strict=True)
    ][::-1]


def states_of(game: str, moves: list[int]) -> list[Any]:
    """By the rules themselves, one after each move."""
    rules = rules_of(game)
    states = [rules.start]
    for move in moves:
        states.append(rules.copy(states[-1]))
        states[-1].apply_action(move)
    return states


@pytest.mark.parametrize("game", [SIZE_2, "openspiel:tic_tac_toe"])
def test_positions_are_as_the_rules_draw_them_and_values_are_the_first_players(
    game: str, tmp_path: Path
) -> None:
    if game.startswith("openspiel:"):
        pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    run = drawn_run(tmp_path / "run", game)
    body = body_of(run.path)
    assert len(body["games"]) == 8 and not body["no_games"] and body["openings"]
    for shown, moves in zip(body["games"], moves_of(run.path), strict=False):
        states = states_of(read_game("--game", game), moves)
        assert [frame["drawing"] for frame in shown["frames"]] == [str(state).rstrip() for state in states]
        texts = [
            state.action_to_string(state.current_player(), move)
            for state, move in zip(states, moves, strict=False)
        ]
        assert [frame["move"][0] for frame in shown["frames"][1:]] == texts
        assert {"1-0": 1, "0-1": -1, "1/2-1/2": 0}[shown["result"]] == states[-1].returns()[0]
        players = [state.current_player() == 0 for state in states[:-1]]
        assert [frame["first_to_move"] for frame in shown["frames"][:-1]] == players
    # A search that has proven who wins says so of whoever moves.
    sure = [
        (frame["value"], shown["result"])
        for shown in body["games"]
        for frame in shown["frames"]
        if abs(frame.get("value") or 0) == 1
    ]
    assert sure and all(result == ("1-0" if value > 0 else "0-1") for value, result in sure)


def test_a_hostile_drawing_is_text_and_is_cut(tmp_path: Path) -> None:
    game = with_drawing(
        tmp_path, f"{EVIL!r} + chr(27) + '[2J' + chr(10) + 'x' * 500 + (chr(10) + 'y') * 10_000"
    )
    report = build([drawn_run(tmp_path / "run", game).path])
    page_text = page_of(report)
    drawing = report.to_json()["runs"][0]["games"][0]["frames"][1]["drawing"]
    rows = drawing.split("\n")
    assert rows[0] == f"{EVIL}?[2J" and rows[1] == "x" * 117 + "..."
    assert len(rows) == 61 and rows[-1].startswith("... ")
    assert page_text.count("<script>document.title") == page_text.count("<img src=x") == 0
    assert len(page_text) - len(page_text.replace(json_of(report), "")) < 2_000_000
    data = page_text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert json.loads(data) == report.to_json()


def test_without_the_rules_there_is_a_line_why(tmp_path: Path, monkeypatch) -> None:
    run = drawn_run(tmp_path / "run", SIZE_2)
    monkeypatch.setattr(names, "_named", {})
    body = body_of(run.path)
    assert body["games"] == [] and body["no_openings"] == body["no_games"]
    assert body["no_games"].endswith("expected --game 'PATH/boxes.py:Boxes(size=2)'")


def test_moves_with_equal_texts_are_told_apart_by_their_numbers(tmp_path: Path) -> None:
    game = boxes_with(tmp_path, ('return f"e{action}"', 'return f"e{min(action, 9)}"'))
    run = drawn_run(tmp_path / "run", game)
    for shown, moves in zip(body_of(run.path)["games"], moves_of(run.path), strict=False):
        drawn = [str(state) for state in states_of(read_game("--game", game), moves)]
        assert [frame["drawing"] for frame in shown["frames"]] == drawn
        seen = [frame["move"][0] for frame in shown["frames"][1:]]
        late = [move for move in moves if move > 8]
        assert [text for text in seen if text in ("9", "10", "11")] == [str(move) for move in late[:-1]]


def test_rules_that_no_longer_fit_the_games_cost_these_only(tmp_path: Path, monkeypatch) -> None:
    run = drawn_run(tmp_path / "run", boxes_with(tmp_path))
    fails = ("        return f\"{''.join", "        raise KeyError('oops')\n        return f\"{''.join")
    monkeypatch.setattr(names, "_named", {})
    read_game("--game", boxes_with(tmp_path, fails))
    body = body_of(run.path)
    assert body["games"] == [] and "KeyError: 'oops'" in body["no_games"]
    monkeypatch.setattr(names, "_named", {})
    read_game("--game", boxes_with(tmp_path, ("if not is_drawn]", "if not is_drawn and edge < 3]")))
    body = body_of(run.path)
    assert body["games"] == [] and "cannot be replayed" in body["no_games"]


def test_the_worst_positions_of_a_validation_are_drawn_too() -> None:
    game = read_game("--game", SIZE_2)
    wrong = WrongPosition("policy", "4,2", "e5", 0.01, (("e0", 0.6), ("e99", 0.3)), 0.5, -1.0)
    (shown,) = wrong_positions(game, replace(record_of(10), wrong=(wrong,)))
    assert shown["drawing"] == str(states_of(game, [4, 2])[-1])
    assert (shown["target"], shown["policy"]) == (["e5", -1, -1, 0.01], [["e0", -1, -1, 0.6]])


@pytest.mark.slow
def test_a_page_of_drawn_games_steps_and_shows_text_as_text(browser, tmp_path) -> None:  # noqa: F811
    game = with_drawing(tmp_path, f"{EVIL!r} + chr(10) + str(sum(self.drawn)) + '  lines & more'")
    run = drawn_run(tmp_path / "run", game)
    place = "document.querySelector('[data-viewer] pre.drawing')"
    try:
        for scheme, width in (("light", 1400), ("dark", 400)):
            browser.scheme(scheme)
            browser.open(page(tmp_path, run.path), width)
            assert check(browser, width)["games"] == 8
            assert browser.run("return document.title") == "run - alphazero report"
            texts = browser.run(TEXTS)
            low = [text for text, *both in texts if contrast(*map(as_hex, both)) < 4.5]
            assert any("lines & more" in text or EVIL[:20] in text for text, *_ in texts) and low == []
        assert browser.run(f"return getComputedStyle({place}).fontFamily").endswith("monospace")
        press(browser, "[data-viewer] button[title='first position']")
        for number in range(3):
            assert browser.run(f"return {place}.textContent") == f"{EVIL}\n{number}  lines & more"
            press(browser, "[data-viewer] button[title=forward]")
        browser.run("document.querySelector('[data-viewer]').focus()")
        key(browser, "LEFT")
        assert ply(browser) == "2" and browser.run(f"return {place}.textContent").endswith("2  lines & more")
    finally:
        browser.scheme("light")
