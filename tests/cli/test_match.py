"""`alphazero match`: every kind of player, books, clocks, PGN, tournaments, and what is refused."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import chess
import chess.pgn
import psutil
import pytest
import torch

from alphazero.cli.command_table import build_parser
from alphazero.cli.main import main
from alphazero.cli.playing.match import players_of
from alphazero.cli.playing.players import Lineup, limit_of, read_player, with_own_names
from alphazero.games.registry import make_line
from alphazero.machine.environment import START
from alphazero.network.inference.purpose import evaluator_for_self_play
from alphazero.network.weights.open_network import open_network
from alphazero.play.matches.limits import Limit, TimeControl
from alphazero.play.matches.players import Player
from alphazero.play.uci.protocol import centipawns
from alphazero.search.tree_search import SearchLimits, TreeSearch, TreeSettings
from tests.support.evaluation.small_nets import write_small_net
from tests.support.paths import SUPPORT

FAKE = f"{sys.executable} {SUPPORT / 'evaluation' / 'fake_engine.py'}"
SMALL = ["--maxmoves", "6", "--nodes", "2"]


@pytest.fixture(scope="module")
def chess_net(tmp_path_factory):
    return write_small_net(tmp_path_factory.mktemp("weights") / "chess.pt", "chess")


@pytest.fixture(scope="module")
def connect4_net(tmp_path_factory):
    return write_small_net(tmp_path_factory.mktemp("weights") / "connect4.pt", "connect4")


def games_in(path) -> list[chess.pgn.Game]:
    games = []
    with path.open() as file:
        while (game := chess.pgn.read_game(file)) is not None:
            assert not game.errors
            games.append(game)
    return games


def test_a_network_and_an_engine_play_from_the_balanced_book_into_pgn(chess_net, tmp_path, capsys) -> None:
    pgn = tmp_path / "match.pgn"
    argv = ["match", "--weights", chess_net, "--player", "name=fake", f"cmd={FAKE}", "option.Seed=3"]
    argv += ["--games", "4", "--concurrency", "4", "--pgn-out", str(pgn), "--json", *SMALL]
    assert main(argv) == 0
    score = json.loads(capsys.readouterr().out)
    assert score["players"] == [chess_net, "fake"] and sum(score["pairs"]) == 2
    games = games_in(pgn)
    assert len(games) == 4
    for game in games:
        assert {game.headers["White"], game.headers["Black"]} == {chess_net, "fake"}
        assert game.headers["TimeControl"] == "2 nodes" and game.headers["FEN"]
        mine, other = [node.comment for node in game.mainline()][:2]
        if game.headers["Black"] == chess_net:
            mine, other = other, mine
        assert re.fullmatch(r"[+-]\d+\.\d\d/0 \d\.\d{3}s, n=2", mine)
        assert re.fullmatch(r"\+0\.00/3 \d\.\d{3}s, n=77", other)
    # Pairs begin alike with sides reversed.
    by_round = {int(game.headers["Round"]): game for game in games}
    assert by_round[1].headers["FEN"] == by_round[2].headers["FEN"] != by_round[3].headers["FEN"]
    assert by_round[1].headers["White"] == by_round[2].headers["Black"]


def test_chess960_matches_are_games_that_python_chess_replays(chess_net, tmp_path, capsys) -> None:
    pgn, engine = tmp_path / "match.pgn", f"{FAKE} --chess960"
    argv = ["match", "--weights", chess_net, "--player", "name=fake", f"cmd={engine}", "random=0.3"]
    argv += ["--variant", "fischerandom", "--games", "20", "--pgn-out", str(pgn), "--maxmoves", "15"]
    argv += ["--nodes", "2", "--concurrency", "4", "--json"]
    assert main(argv) == 0
    score, games, castlings = json.loads(capsys.readouterr().out), games_in(pgn), 0
    points = 0.0
    for game in games:
        headers = game.headers
        assert headers["Variant"] == "Chess960"
        board = chess.Board(headers.get("FEN", chess.STARTING_FEN), chess960=True)
        assert board.chess960_pos() is not None
        for node in game.mainline():
            castlings += board.is_castling(node.move)
            board.push(board.parse_san(node.san()))
        outcome = board.outcome(claim_draw=True)
        if headers["Termination"] == "normal":
            assert outcome is not None and outcome.result() == headers["Result"]
        else:
            assert headers["Termination"] == "adjudication" and board.ply() == 30
            assert outcome is None and headers["Result"] == "1/2-1/2"
        of_white = {"1-0": 1.0, "1/2-1/2": 0.5, "0-1": 0.0}[headers["Result"]]
        points += of_white if headers["White"] == chess_net else 1 - of_white
    assert len(games) == 20 and castlings > 5
    assert points == sum(count * half / 2 for half, count in enumerate(score["pairs"]))
    starts = {int(game.headers["Round"]): game.board().chess960_pos() for game in games}
    assert (
        all(starts[number] == starts[number + 1] for number in range(1, 20, 2))
        and len({*starts.values()}) == 10
    )
    assert main(["data", "import", str(pgn), "--store", str(tmp_path / "store")]) == 0
    assert "20 games" in capsys.readouterr().out


def test_chess960_wants_an_engine_that_plays_it_and_its_own_openings(chess_net, connect4_net, capsys) -> None:
    def refused(*argv: str) -> str:
        assert main(["match", *argv, "--variant", "fischerandom", "--games", "2", *SMALL]) == 2
        return capsys.readouterr().err

    told = refused("--weights", chess_net, "--player", "name=fake", f"cmd={FAKE}")
    assert "player 'fake': has no option UCI_Chess960; expected an engine that plays Chess960" in told
    told = refused("--weights", chess_net, "--against", "random", "--opening-plies", "3")
    assert "--variant fischerandom and --opening-plies: expected one of the two" in told
    told = refused("--weights", connect4_net, "--against", "random")
    assert "--variant fischerandom: only for chess; this is connect4" in told


def test_a_tournament_has_a_table_with_ratings(chess_net, capsys) -> None:
    argv = [
        "match",
        "--weights",
        chess_net,
        "--player",
        "random",
        "--player",
        f"cmd='{FAKE}' name=fake nodes=1",
    ]
    argv += ["--games", "2", *SMALL]
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert re.search(r"rank +name +Elo +95 % +games +score +draws +ptnml", said)
    assert all(name in said for name in (chess_net, "random", "fake")) and "Bradley-Terry" in said
    assert main([*argv, "--tournament", "gauntlet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [meeting["players"][0] for meeting in found["meetings"]] == [chess_net] * 2
    assert [player["wins"] + player["draws"] + player["losses"] for player in found["standings"]] == [4, 2, 2]
    assert all(len(player["rating_95"]) == 2 for player in found["standings"])


def test_the_solver_does_not_lose_connect_four(connect4_net, capsys) -> None:
    argv = [
        "match",
        "--weights",
        connect4_net,
        "--against",
        "solver",
        "--games",
        "4",
        "--nodes",
        "4",
        "--json",
    ]
    assert main([*argv, "--opening-plies", "14", "--seed", "3"]) == 0
    pairs = json.loads(capsys.readouterr().out)["pairs"]
    # Whoever wins the position, the network takes no more of a pair than one game.
    assert pairs[3] == pairs[4] == 0 and sum(pairs) == 2


def test_a_player_that_plays_some_moves_at_random_is_weaker(capsys) -> None:
    argv = [
        "match",
        "--player",
        "solver",
        "--player",
        "solver random=0.9 name=drunk",
        "--opening-plies",
        "16",
    ]
    assert main([*argv, "--games", "40", "--json"]) == 0
    score = json.loads(capsys.readouterr().out)
    assert score["share"] > 0.6 and score["players"][1] == "drunk"


def test_a_match_with_a_test_prints_its_line_as_fastchess_does(capsys) -> None:
    argv = [
        "match",
        "--against",
        "solver",
        "--player",
        "random",
        "--sprt",
        "0",
        "100",
        "--opening-plies",
        "14",
    ]
    assert main([*argv, "--games", "400", "--rating-interval", "4"]) == 0
    captured = capsys.readouterr()
    line = r"LLR: -?\d+\.\d\d \(-?\d+\.\d%\) \(-2\.94, 2\.94\) \[0\.00, 100\.00\] nElo"
    assert re.search(line, captured.out) and "at least 100 nElo accepted (H1)" in captured.out
    figures = (
        r"\d+ games in \d+ pairs: \+\d+ =\d+ -\d+ \([\d.]+%\), Elo .*, nElo .*, LOS .*%, Ptnml\(0-2\) \["
    )
    assert re.search(figures, captured.err) and re.search(line, captured.err)


def test_three_failures_in_a_row_end_it_with_the_score_so_far_and_exit_code_2(chess_net, capsys) -> None:
    argv = ["match", "--player", f"cmd='{FAKE} --mode crash' name=bad nodes=1", "--against", "random"]
    assert main([*argv, "--games", "10"]) == 2
    captured = capsys.readouterr()
    assert "+2 =0 -0" in captured.out and "bad lost 3 by abandoned" in captured.out
    assert "Game 3 of 10 (random vs bad): 1-0 {Black disconnects (segmentation fault, or so)}" in captured.err
    assert "player 'bad' failed in 3 games in a row" in captured.err
    assert captured.err.count("loses the game") == 3


@pytest.mark.parametrize(
    ("sign", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_match_that_is_interrupted_tells_its_score_and_leaves_no_engine(tmp_path, sign, status) -> None:
    pids, pgn = tmp_path / "pids", tmp_path / "match.pgn"
    player = f"cmd='{FAKE} --mode deaf --pid-file {pids}' nodes=1 name=fake"
    argv = ["--against", "random", "--player", player, "--games", "2000", *SMALL, "--pgn-out", str(pgn)]
    match = psutil.Popen(
        [sys.executable, "-m", "alphazero", "match", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    deadline = time.monotonic() + 60
    while not (pgn.exists() and pgn.read_text().count("[Round ") > 2) and time.monotonic() < deadline:
        time.sleep(0.02)
    match.send_signal(sign)
    out, _ = match.communicate(timeout=60)
    assert match.returncode == status
    assert re.search(r"random against fake: \d+ games? in \d+ pairs?: \+\d+ =\d+ -\d+", out.decode())
    assert pids.read_text().split() and not any(
        psutil.pid_exists(int(pid)) for pid in pids.read_text().split()
    )
    assert len(games_in(pgn)) > 2


def resumed(tmp_path, *words: str) -> list[str]:
    """The words of a match with a state and a PGN file."""
    state = ["--resume", str(tmp_path / "match.json"), "--pgn-out", str(tmp_path / "match.pgn")]
    player = f"cmd='{FAKE} --delay 0.03' nodes=1 name=fake"
    return ["match", "--player", player, "--against", "random", "--games", "20", *SMALL, *state, *words]


def games_counted(path) -> int:
    """After the line with the settings, a line a game."""
    return path.read_text().count("\n") - 1 if path.exists() else 0


@pytest.mark.slow
def test_a_match_stopped_twice_and_continued_has_each_game_once(tmp_path, capsys) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    assert main([*resumed(whole), "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    state, pgn = tmp_path / "match.json", tmp_path / "match.pgn"
    for sign, status, games in ((signal.SIGINT, 130, 3), (signal.SIGKILL, -signal.SIGKILL, 8)):
        match = subprocess.Popen(
            [sys.executable, "-m", "alphazero", *resumed(tmp_path, "--concurrency", "2")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        deadline = time.monotonic() + 60
        while games_counted(state) < games and time.monotonic() < deadline:
            time.sleep(0.002)
        match.send_signal(sign)
        _, err = match.communicate(timeout=60)
        assert match.returncode == status, err
        assert games <= games_counted(state) < 20
        if sign == signal.SIGKILL:  # as if it had come while the last game was written
            newest = state.read_text().splitlines()[games_counted(state)].rpartition("\t")[0]
            begin = pgn.read_text().find(json.loads(newest)["pgn"])
            os.truncate(pgn, begin + 20 if begin >= 0 else pgn.stat().st_size)
        else:
            assert re.search(
                r"^continue with: .* match --player .* --resume .*match\.json", err.decode(), re.M
            )
    assert main([*resumed(tmp_path), "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found == expected and sum(found["pairs"]) == 10 and found["not_counted"] == 0
    assert re.search(r"match\.json: \d+ games of 20 played before\n", captured.err)
    moves = [
        {
            int(game.headers["Round"]): [move.uci() for move in game.mainline_moves()]
            for game in games_in(path)
        }
        for path in (pgn, whole / "match.pgn")
    ]
    assert len(games_in(pgn)) == 20 and moves[0] == moves[1]
    # All games are played: there is nothing to do but to print the result.
    assert main([*resumed(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == expected and len(games_in(pgn)) == 20


def test_a_match_continues_with_more_games_but_with_nothing_else_changed(
    tmp_path, monkeypatch, chess_net, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    weights = tmp_path / "net.pt"
    shutil.copy(chess_net, weights)

    def match(*words: str) -> int:
        state = ["--resume", str(tmp_path / "match.json")]
        players = ["--weights", str(weights), "--player", "name=x", f"cmd={FAKE}"]
        return main(["match", *players, *state, *SMALL, *words, "--json"])

    assert match("--games", "2") == 0
    assert match("--games", "4") == 0
    captured = capsys.readouterr()
    assert "2 games of 4 played before" in captured.err
    assert [sum(json.loads(line)["pairs"]) for line in captured.out.splitlines()] == [1, 2]
    Path("book.epd").write_text(chess.Board().epd() + "\n")
    for words, told in (
        (["--nodes", "3"], r"--nodes '3'; expected '2', with which this match was begun"),
        (["--seed", "1"], r"--seed '1'; expected '0'"),
        (["--tc", "1+1"], r"--tc '1\+1'; expected not given"),
        (["--openings", "book.epd"], r"--openings 'book\.epd'; expected not given"),
        (
            ["--draw", "movenumber=1", "movecount=1", "score=1"],
            r"--draw 'movenumber=1'; expected not given",
        ),
        (["--player", "random"], r"--player 'random'; expected not given"),
        (["--games", "2"], r"game 3: expected each game once, of 2"),
    ):
        assert match(*(words if "--games" in words else ["--games", "4", *words])) == 2
        said = capsys.readouterr().err
        assert re.search(f"--resume .*match\\.json: {told}", said) and said.count("\n") == 1
    write_small_net(weights, "chess", seed=7)
    assert match("--games", "4") == 2
    assert re.search(r"the content of .*net\.pt '.*'; expected '", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "a match of 0 players: expected W --against P"),
        (["--against", "random"], "no network was named: runs/ holds no run; expected W"),
        (["--player", "random", "--player", "cmd=sleep"], "cmd=.*expected a limit|sleep: expected a limit"),
        (["--player", "random", "--player", "name=x"], "--player x: expected one of cmd=PROGRAM"),
        (["--player", "random", "cmd=a"], "expected one of cmd=PROGRAM"),
        (["--player", "random", "nodse=1"], "'nodse=1': unknown key; did you mean nodes"),
        (["--player", "cmd=a", "nodes=0"], "nodes='0': expected a whole number from 1"),
        (["--player", "cmd=a", "proto=xboard"], "proto='xboard': expected uci"),
        (["--player", "weights=a", "option.X=1"], "option.X: expected only with cmd=PROGRAM"),
        (["--player", "name='x"], "No closing quotation"),
        (["--player", "random", "name=a\nb"], r"--player name='a\\nb': expected a name on one line"),
        (["--player", "random", "name=\x1b[31m"], r"--player name='\\x1b\[31m': expected a name on one line"),
        (["--player", "random", "name="], r"--player name='': expected a name on one line"),
        (["--player", "random", "random=2"], "random='2': expected a number from 0 to 1"),
        (
            ["--player", "random", "--player", "random", "--draw", "score=1"],
            "--draw score=1: expected movenum",
        ),
        (
            ["--player", "random", "--player", "random", "--resign", "movecount=3", "score=x"],
            "score='x': expect",
        ),
        (["--player", "random", "--player", "random", "--tc", "fast"], "--tc: 'fast': expected"),
        (["--player", "random", "--player", "random", "--openings", "no.epd"], "no.epd: cannot"),
        (
            ["--player", "random", "--player", "random", "--openings", "b.epd", "--opening-plies", "2"],
            "--openings and --opening-plies: expected one of the two",
        ),
        (
            ["--player", "random", "--player", "solver", "--pgn-out", "x.pgn"],
            "--pgn-out x.pgn: only for chess; this is connect4",
        ),
        (["--pgn-out", "x.pgn.gz"], "--pgn-out x.pgn.gz: expected a plain file, as games.pgn"),
        (["--resume", "x.json.zst"], "--resume x.json.zst: expected a plain file, as match.json"),
        (
            ["--player", "random", "--player", "solver", "--openings", "x.pgn"],
            "expected --opening-plies in con",
        ),
        (
            ["--player", "solver", "--player", "cmd=sleep", "nodes=1"],
            "sleep: plays chess, solver plays connect4",
        ),
        (
            ["--player", "random", "--player", "random", "--player", "random", "--sprt", "0", "5"],
            "--sprt with 3 players: expected two",
        ),
    ],
)
def test_what_cannot_be_played_is_one_line(argv, told, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)  # without runs, of which the newest would play
    assert main(["match", *argv]) == 2
    said = capsys.readouterr().err
    assert re.search(told, said) and said.count("\n") == 1


def test_players_are_read_in_one_word_or_many() -> None:
    words = ["name=sf", "cmd=stockfish", "args=--a 'b c'", "option.Threads=1", "tc=1+0.05", "timemargin=20"]
    expected = Player(
        "sf",
        "engine",
        "--player sf",
        command=("stockfish", "--a", "b c"),
        options={"Threads": "1"},
        limit=Limit(control=TimeControl(1, 0.05), margin_s=0.02),
    )
    assert read_player(words, "--player") == expected
    one = "name=sf cmd=stockfish 'args=--a \"b c\"' option.Threads=1 tc=1+0.05 timemargin=20"
    assert read_player([one], "--player") == expected
    assert read_player(["runs/x@12000"], "--player").weights == "runs/x@12000"
    assert read_player(["cmd=/usr/games/stockfish nodes=5"], "--player").name == "stockfish"
    assert read_player(["random"], "--against").kind == "random"
    assert read_player(["weights=a.pt nodes=5 name=five"], "--player").limit == Limit(nodes=5)


def test_nothing_is_a_shell(tmp_path) -> None:
    player = read_player(["cmd=sf; touch x && $(rm y) | z", "nodes=1"], "--player")
    assert player.command == ("sf;", "touch", "x", "&&", "$(rm", "y)", "|", "z")


def test_two_players_of_one_name_are_told_apart() -> None:
    players = [read_player(["random"], "--player")] * 3
    assert [player.name for player in with_own_names(players)] == ["random", "random (2)", "random (3)"]
    players = [read_player(["random", f"name={name}"], "--player") for name in ("a", "a (2)", "a")]
    assert [player.name for player in with_own_names(players)] == ["a", "a (2)", "a (3)"]


def test_a_name_that_comes_from_a_path_is_one_line_without_control_characters() -> None:
    (player,) = with_own_names([Player("run\n\x1b[31m\udcff", "weights")])
    assert player.name == "run\\n\\x1b[31m\\udcff"


def test_a_network_limited_by_nodes_plays_as_the_uci_engine(chess_net) -> None:
    args = build_parser("match").parse_args([chess_net, "--against", "random", "--nodes", "60"])
    lineup = Lineup(args, limit_of(vars(args)))
    engine = lineup.ready(lineup.settled(players_of(args)[0])).decide
    assert engine is not None
    line = make_line("chess")
    cpu = torch.device("cpu")
    evaluator = evaluator_for_self_play(open_network(chess_net, cpu, "W")[0], cpu, args.precision, 64)
    search = TreeSearch("chess", evaluator, TreeSettings(minibatch_size=32))
    try:
        for _ in range(3):
            search.set_line(line)
            best = search.search(SearchLimits(nodes=60)).best
            (found,) = engine({1: line})
            assert best is not None and found.score is not None
            assert (found.move, found.score.cp) == (line.move_to_text(best.move), centipawns(best.q))
            assert found.nodes == 60
            line.push(best.move)
            line.push(line.legal()[0])
    finally:
        search.close()


def test_a_mate_that_a_network_proves_is_a_mate_in_the_record(tmp_path, chess_net) -> None:
    book, pgn = tmp_path / "book.epd", tmp_path / "match.pgn"
    book.write_text("7k/8/6K1/8/8/8/Q7/8 w - -\n")  # Qa8 mates, as other queen moves do
    argv = ["match", "--weights", chess_net, "--against", "random", "--openings", str(book), "--games", "2"]
    assert main([*argv, "--nodes", "400", "--pgn-out", str(pgn)]) == 0
    first = next(game for game in games_in(pgn) if game.headers["White"] == chess_net)
    assert first.next().comment.startswith("+M1/0 ") and first.next().board().is_checkmate()


def test_a_network_on_a_clock_is_our_own_engine(chess_net) -> None:
    parser = build_parser("match")
    args = parser.parse_args(
        ["--weights", chess_net, "--against", "random", "--tc", "1+0.1", "--precision", "bf16"]
    )
    lineup = Lineup(args, limit_of(vars(args)))
    players = [lineup.settled(player) for player in players_of(args)]
    assert lineup.game_of(players) == "chess"
    player = players[0]
    assert lineup.ready(player) == player and str(player.limit) == "1+0.1"
    assert player.command[1:] == (
        *(START, "uci", "--weights", chess_net),
        *("--device", "auto", "--precision", "bf16"),
    )


@pytest.mark.slow
def test_a_searching_network_is_stronger_than_one_that_hardly_searches_by_the_test(
    connect4_net, capsys
) -> None:
    players = [f"weights={connect4_net} nodes=200 name=deep", f"weights={connect4_net} nodes=4 name=shallow"]
    argv = ["match", *(word for player in players for word in ("--player", player))]
    assert main([*argv, "--sprt", "0", "100", "--games", "1000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sprt"]["decision"] == "H1" and found["elo"] > 100
    assert main([*argv[:3], *argv[1:3], "--sprt", "0", "100", "--games", "2000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sprt"]["decision"] == "H0"
