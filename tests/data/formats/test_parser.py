"""The PGN parser on hand-made text, and on every reference game against python-chess."""

import bz2
import gzip
import io
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import chess
import chess.pgn
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphazero._core import ChessPosition, PgnGames, PgnText, last_game_begin, parse_pgn

RESULTS = {"1-0": 1, "0-1": -1, "1/2-1/2": 0, "*": None}


@dataclass(frozen=True)
class Game:
    """One game as the parser gives it: final FEN, moves as UCI, result."""

    number: int
    fen: str
    moves: tuple[str, ...]
    result: int | None


def parse(text: str | bytes) -> PgnGames:
    raw = text.encode() if isinstance(text, str) else text
    return parse_pgn(raw, 0, len(raw))


def column(text: PgnText) -> list[str | None]:
    """A text column as Python sees it."""
    raw, offset = bytes(text.bytes), text.offset
    return [raw[offset[i] : offset[i + 1]].decode() if valid else None for i, valid in enumerate(text.valid)]


def games_of(parsed: PgnGames) -> list[Game]:
    """Each game replayed by our rules."""
    games = []
    for i, fen in enumerate(column(parsed.start_fen)):
        position, moves = ChessPosition(fen), []
        for move in parsed.moves[parsed.moves_offset[i] : parsed.moves_offset[i + 1]].tolist():
            moves.append(position.uci(move, chess960=bool(parsed.is_chess960[i])))
            position.push(move)
        result = int(parsed.result[i]) if parsed.result_valid[i] else None
        games.append(Game(int(parsed.game[i]), position.fen(), tuple(moves), result))
    return games


def moves_of(text: str | bytes) -> list[str]:
    """The moves of the only game, spaces between."""
    parsed = parse(text)
    assert not parsed.quarantined, parsed.quarantined[0].reason
    return [" ".join(game.moves) for game in games_of(parsed)]


HEADER = '[Event "x"]\n\n'
OPENING = "e2e4 e7e5 g1f3"


@pytest.mark.parametrize(
    "movetext",
    [
        "1. e4 e5 2. Nf3",
        "1.e4 e5 2.Nf3 *",
        "1 e4 e5 2 Nf3 1-0",
        "1. e4 1... e5 2. Nf3",
        "1.e4 1...e5 2.Nf3",
        "e4 e5 Nf3 0-1",
        "e2e4 e7e5 g1f3 1/2-1/2",
        "1. e2-e4 e7-e5 2. Ng1-f3",
        "1. e4! e5?? 2. Nf3!? $14 $1",
        "1. e4 ! e5 +/- 2. Nf3 = *",
        "1. e4$1e5$2 2. Nf3",
        "{ before } 1. e4 { one } { two } e5 {over\nlines\n\n} 2. Nf3 { after } 1-0 { and after }",
        "1. e4{glued}e5{glued}2. Nf3",
        "1. e4 { a { in it } e5 2. Nf3",
        "1. e4 { ( ; % [Event in it } e5 2. Nf3",
        "1. e4 ; to the end { of the line\n e5 2. Nf3",
        "1. e4\n% an escaped line { with anything 1-0\ne5 2. Nf3",
        "1. e4 (1. d4 d5 (1... Nf6 {deep )} 2. c4) 2. c4) 1... e5 (1... c5) (1... e6) 2. Nf3",
        "1. e4 (1. e5 illegal -- nonsense) e5 2. Nf3",
        "1. e4 (1. d4 ; comment with )\n) e5 2. Nf3",
        "1. e4\r\ne5\r\n2. Nf3\r\n1-0\r\n",
        "1.\te4\te5\t2.\tNf3",
        "1. e4 e5 2. Nf3\n\n1-0",
        "1. e4 e5\n\n\n2. Nf3",
        "1. e4 e5 2. Nf3 " + "{" + "x" * 100_000 + "}" + " " * 100_000 + "*",
    ],
)
def test_three_plies_are_read_from(movetext: str):
    assert moves_of(HEADER + movetext) == [OPENING]
    assert moves_of(movetext) == [OPENING], "without headers"
    assert moves_of("\ufeff" + HEADER + movetext) == [OPENING], "with a byte order mark"


@pytest.mark.parametrize("text", ["e8=Q", "e8Q", "e8(Q)", "e8=Q+", "e8q", "e7e8q", "e7e8=Q"])
def test_a_promotion_is_read_from(text: str):
    header = '[FEN "k7/4P3/8/8/8/8/8/K7 w - - 0 1"]\n[SetUp "1"]\n\n'
    assert moves_of(f"{header}1. {text} Kb7 *") == ["e7e8q a8b7"]
    assert moves_of(f"{header}1. {text}") == ["e7e8q"]


@pytest.mark.parametrize("text", ["O-O", "0-0", "O-O+", "e1g1", "Kg1"])
def test_castling_is_read_from(text: str):
    header = '[FEN "5k2/8/8/8/8/8/8/4K2R w K - 0 1"]\n\n'
    parsed = parse(f"{header}1. {text} *")
    if text == "Kg1":
        (quarantined,) = parsed.quarantined
        assert "'Kg1'" in quarantined.reason
    else:
        assert games_of(parsed)[0].moves == ("e1g1",)
        assert games_of(parsed)[0].fen == "5k2/8/8/8/8/8/8/5RK1 b - - 1 1"


def test_queen_side_castling_with_zeros_is_no_result():
    header = '[FEN "6k1/8/8/8/8/8/8/R3K3 w Q - 0 1"]\n\n'
    assert moves_of(f"{header}1. 0-0-0 Kg7 0-1") == ["e1c1 g8g7"]


def test_en_passant_marks_are_passed_over():
    text = "1. e4 a6 2. e5 d5 3. exd6 e.p. Qxd6 4. Nf3 *"
    assert moves_of(text) == ["e2e4 a7a6 e4e5 d7d5 e5d6 d8d6 g1f3"]


def test_headers_become_columns():
    parsed = parse(
        '[Event "Cup \\"A\\" C:\\\\x"]\n[Site "?"]\n[Date "2024.01.??"]\n[White "J\u00f6rg"]\n[Black "?"]\n'
        '[Result "0-1"]\n[WhiteElo "2850"]\n[BlackElo "?"]\n[Termination "time forfeit"]\n\n1. e4 0-1\n'
    )
    assert column(parsed.event) == ['Cup "A" C:\\x']
    assert column(parsed.date) == ["2024.01.??"]
    assert column(parsed.white) == ["J\u00f6rg"]
    assert column(parsed.black) == [None]
    assert column(parsed.termination) == ["time forfeit"]
    assert parsed.white_elo.value.tolist() == [2850]
    assert parsed.black_elo.valid.tolist() == [0]


def test_latin_1_headers_become_utf_8():
    assert column(parse('[White "J\u00f6rg"]\n\n*'.encode("latin-1")).white) == ["J\u00f6rg"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('[White "a" ]', "a"),
        ('[White  "a"]   ', "a"),
        ('[ White  "a" ]', "a"),
        ('   [White "a"]', "a"),
        ('[White "The "Big" One"]', 'The "Big" One'),
        ('[White "no end', "no end"),
        ('[White "C:\\"]', "C:\\"),
        ('[White "a]b"]', "a]b"),
        ('[White "a"] [Black "b"]', "a"),
        ('[White ""]', None),
    ],
)
def test_a_tag_is_read_from(line: str, wanted: str | None):
    assert column(parse(f'[Event "x"]\n{line}\n[Date "y"]\n\n1. e4 *').white) == [wanted]


def test_a_header_line_that_is_no_tag_is_passed_over():
    assert moves_of('[Event "x"]\n[White]\n[Black b]\n\n1. e4 e5 *') == ["e2e4 e7e5"]


@pytest.mark.parametrize(
    ("header", "terminator", "wanted"),
    [
        ("1-0", "1-0", 1),
        ("0-1", "", -1),
        ("1/2-1/2", "*", 0),
        ("*", "1-0", 1),
        ("*", "*", None),
        ("", "0-1", -1),
        ("", "", None),
        ("1-0", "0-1", 1),  # the header wins, as in python-chess
    ],
)
def test_results_come_from_the_header_or_else_from_the_end(header: str, terminator: str, wanted: int | None):
    tag = f'[Result "{header}"]\n' if header else ""
    parsed = parse(f'[Event "x"]\n{tag}\n1. e4 {terminator}\n')
    assert [game.result for game in games_of(parsed)] == [wanted]


def test_a_result_against_mate_on_the_board_is_kept_and_noted():
    mate = "1. f3 e5 2. g4 Qh4#"
    parsed = parse(
        f'[Event "a"]\n[Result "1-0"]\n\n{mate} 1-0\n\n[Event "b"]\n[Result "0-1"]\n\n{mate} 0-1\n'
    )
    assert parsed.result.tolist() == [1, -1]
    assert parsed.contradiction.tolist() == [1, 0]


BOUNDARIES = {
    "an empty line": '[Event "a"]\n\n1. e4 1-0\n\n[Event "b"]\n\n1. d4 0-1\n',
    "no empty line": '[Event "a"]\n1. e4 1-0\n[Event "b"]\n1. d4 0-1\n',
    "no result": '[Event "a"]\n\n1. e4\n\n[Event "b"]\n\n1. d4\n',
    "no headers": "1. e4 1-0\n\n1. d4 0-1\n",
    "no headers, one line": "1. e4 1-0 1. d4 0-1",
    "no Event": '[White "a"]\n\n1. e4 1-0\n\n[White "b"]\n\n1. d4 0-1\n',
    "a byte order mark in the middle": '[Event "a"]\n\n1. e4 1-0\n\n\ufeff[Event "b"]\n\n1. d4 0-1\n',
    "carriage returns alone": '[Event "a"]\r\r1. e4 1-0\r\r[Event "b"]\r\r1. d4 0-1\r',
    "indented headers": ' [Event "a"]\n\n 1. e4 1-0\n\n [Event "b"]\n\n 1. d4 0-1\n',
    "empty line with blanks": '[Event "a"]\n\n1. e4 1-0\n \t \n[Event "b"]\n\n1. d4 0-1\n',
    "an empty line within the headers": '[Event "a"]\n\n'
    '[White "a"]\n\n1. e4 1-0\n\n[Event "b"]\n\n[White "b"]\n\n1. d4',
}


@pytest.mark.parametrize("name", BOUNDARIES)
def test_two_games_are_told_apart_by(name: str):
    assert moves_of(BOUNDARIES[name]) == ["e2e4", "d2d4"]


def test_games_without_moves_are_games():
    text = (
        '[Event "a"]\n[Result "*"]\n\n*\n\n[Event "b"]\n\n[Event "c"]\n\n{ no moves }\n\n[Event "d"]\n\n1-0\n'
    )
    parsed = parse(text)
    assert [game.result for game in games_of(parsed)] == [None, None, None, 1]
    assert parsed.games_read == 4


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff", "{ a comment }", "; a comment\n% escape", "\x00 \n"])
def test_text_without_a_game_has_no_games(text: str):
    assert parse(text).games_read == 0


def test_fischer_random_castles_king_takes_rook():
    text = (
        '[Event "x"]\n[Variant "fischerandom"]\n'
        '[FEN "4k3/8/8/8/8/8/8/1R3K1R w BH - 0 1"]\n\n1. O-O-O Ke7 0-1\n'
    )
    parsed = parse(text)
    assert parsed.is_chess960.tolist() == [1]
    assert games_of(parsed)[0].moves == ("f1b1", "e8e7")
    board = chess.Board("4k3/8/8/8/8/8/8/1R3K1R w BH - 0 1", chess960=True)
    board.push_san("O-O-O")
    board.push_san("Ke7")
    assert games_of(parsed)[0].fen == board.fen()


@pytest.mark.parametrize("variant", ["normal", "Standard", "chess", "From Position", "", "?"])
def test_standard_chess_goes_by_many_names(variant: str):
    parsed = parse(f'[Event "x"]\n[Variant "{variant}"]\n\n1. e4 *')
    assert (parsed.games_read, parsed.is_chess960.tolist()) == (1, [0])


def test_the_standard_start_given_as_a_fen_is_no_start_fen():
    assert column(parse(f'[FEN "{chess.STARTING_FEN}"]\n\n1. e4 *').start_fen) == [None]


@pytest.mark.parametrize(
    ("text", "kind", "line", "ply", "reason"),
    [
        ("1. e4 e5\n2. Nf9 Nc6", "MOVE", 3, 2, "illegal or unreadable move 'Nf9'"),
        ("1. e4 e5 2. Bb6", "MOVE", 2, 2, "illegal or unreadable move 'Bb6'"),
        ("1. e4 e5 2. Nf9 d4 3. a3", "MOVE", 2, 3, "illegal or unreadable move 'Nf9'"),
        ("1. e4 d5 2. ed Qxd5", "MOVE", 2, 2, "illegal or unreadable move 'ed'"),
        ("1. e4 e5 2. Sf3", "MOVE", 2, 2, "illegal or unreadable move 'Sf3'"),
        ("1. e4 e5 2. \u2658f3", "MOVE", 2, 2, "illegal or unreadable move '\u2658f3'"),
        ("no game at all", "MOVE", 2, 0, "illegal or unreadable move 'all'"),
        ("1. e4 -- 2. d4", "NULL_MOVE", 2, 1, "null move '--'"),
        ("1. e4\n\n\nZ0 2. d4", "NULL_MOVE", 5, 1, "null move 'Z0'"),
        ("1. e4 0000", "NULL_MOVE", 2, 1, "null move '0000'"),
        ("1. e4 { no end\n 1-0\n", "OPEN_COMMENT", 2, 1, "a comment without '}'"),
        ("1. e4 (1. d4 1-0\n", "OPEN_VARIATION", 2, 1, "a variation without ')'"),
        ("1. e4 \x07\xffe5", "MOVE", 2, 1, "illegal or unreadable move ' \xffe5'"),
    ],
)
def test_a_game_with_a_fault_is_put_aside_and_the_next_is_read(
    text: str, kind: str, line: int, ply: int, reason: str
):
    next_game = '\n\n[Event "next"]\n\n1. d4 d5 1-0\n'
    parsed = parse(f'[Event "x"]\n{text}{next_game}')
    assert [" ".join(game.moves) for game in games_of(parsed)] == ["d2d4 d7d5"]
    assert parsed.game.tolist() == [1]
    (fault,) = parsed.quarantined
    assert (fault.game, fault.fault.name, fault.line + 1, fault.ply) == (0, kind, line, ply)
    assert fault.reason == reason


@pytest.mark.parametrize(
    ("tag", "kind", "words"),
    [
        ('[Variant "atomic"]', "VARIANT", "variant 'atomic' is not supported"),
        ('[FEN "8/8/8/8/8/8/8/8 w - - 0 1"]', "FEN", "FEN '8/8/8/8/8/8/8/8 w - - 0 1': "),
        ('[FEN "nonsense"]', "FEN", "FEN 'nonsense': 1 fields, expected 4 to 6"),
        ('[FEN "6k1/8/8/8/8/8/QQQQQQQ1/KQQQ4 w - - 0 1"]', "FEN", "FEN '6k1/8/8/8/8/8/QQQQQQQ1/KQQQ4 w "),
    ],
)
def test_a_game_that_cannot_be_set_up_is_put_aside(tag: str, kind: str, words: str):
    (fault,) = parse(f'\n[Event "x"]\n{tag}\n\n1. e4 *').quarantined
    assert (fault.fault.name, fault.line + 1, fault.ply) == (kind, 3, 0)
    assert fault.reason.startswith(words)
    assert fault.reason.count("FEN") <= 1  # quoted once


@pytest.mark.parametrize(
    ("movetext", "skipped"),
    [
        ("1. e4 1\u2026 e5 2. Nf3", 1),
        ("1. e4 1\u2026e5 2. Nf3", 0),
        ("1. e4 e5 # (D) 2. Nf3 D", 1),
        ("1. e4 $1$13 e5 +/- \u00b1 \u221e N D TN 2. Nf3 \u2212+", 6),
        ("1. e4\u00b1 e5 dbl 2. Nf3 \u2013", 2),
        ("1. e4 <b>e5</b> <i> 2. <b>Nf3</b>", 1),
        ("1. e4 hello e5 2. Nf3", 1),
        ("1. e4 1... hello e5 2. Nf3 \u00bd-\u00bd", 2),
        ("1. e4 e5 2. Nf3 0:1", 1),
    ],
)
def test_a_word_that_is_no_move_is_skipped_and_counted(movetext: str, skipped: int):
    text = HEADER + movetext
    assert moves_of(text) == [OPENING]
    assert parse(text).skipped == skipped
    ((_, plies, _, errors),) = python_chess_games(text.encode())
    assert plies == 3 and not errors


def test_glyphs_of_windows_are_skipped_as_well():
    text = (HEADER + "1. e4 1\u2026e5 \u00b1 2. Nf3\u2013 \u00bd-\u00bd").encode("cp1252")
    assert moves_of(text) == [OPENING]
    assert parse(text).skipped == 2


@pytest.mark.parametrize(
    ("header", "wanted"), [("0:1", -1), ("1:0", 1), ("\u00bd-\u00bd", 0), ("\u00bd:\u00bd", 0)]
)
def test_results_in_other_writings_are_read(header: str, wanted: int):
    (game,) = games_of(parse(f'[Result "{header}"]\n\n1. e4 {header}\n'))
    assert (game.result, game.moves) == (wanted, ("e2e4",))


def test_a_long_offending_word_is_quoted_in_part():
    (fault,) = parse("1. " + "N" * 1000).quarantined
    assert len(fault.reason) < 150


def test_a_missing_brace_costs_one_game():
    text = '[Event "a"]\n\n1. e4 { open\n\n[Event "b"]\n\n1. d4 { closed } d5 1-0\n'
    parsed = parse(text)
    assert [game.moves for game in games_of(parsed)] == [("d2d4", "d7d5")]
    assert [fault.fault.name for fault in parsed.quarantined] == ["OPEN_COMMENT"]


def test_a_header_in_a_comment_is_a_comment():
    assert moves_of('[Event "a"]\n\n1. e4 {\n[Event "b"]\n} e5 *\n') == ["e2e4 e7e5"]


PIECES = [
    '[Event "', '"]\n', "\n\n", "{", "}", "(", ")", ";", "%", "1. ", "e4 ", "Nf6 ", "1-0 ", "*", "$3", "--",
    "\\", '"', "[", "]", "\r\n", '[Event "x"]\n', "\n", " ", "\ufeff",
    '[FEN "4k3/8/8/8/8/8/8/4K3 w - - 0 1"]\n',
]  # fmt: skip


def contents(parsed: PgnGames, first_game: int = 0, first_line: int = 0) -> tuple[object, ...]:
    faults = [
        (q.game + first_game, q.line + first_line, q.ply, q.fault.name, q.reason) for q in parsed.quarantined
    ]
    rows = list(
        zip(
            (parsed.game + first_game).tolist(),
            [tuple(game.moves) for game in games_of(parsed)],
            parsed.result.tolist(),
            column(parsed.event),
            column(parsed.start_fen),
            strict=True,
        )
    )
    return rows, faults, parsed.games_read + first_game, parsed.lines + first_line


def assert_cuts_change_nothing(raw: bytes) -> None:
    """Text read in two pieces, cut where any of its beginnings says, reads as in one."""
    whole = contents(parse(raw))
    seen = set()
    for size in range(1, len(raw)):
        cut = last_game_begin(raw[:size])
        if cut in seen:
            continue
        seen.add(cut)
        left, right = parse(raw[:cut]), parse(raw[cut:])
        rows, faults, _, _ = contents(left)
        more_rows, more_faults, games, lines = contents(right, left.games_read, left.lines)
        assert (rows + more_rows, faults + more_faults, games, lines) == whole


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
@settings(max_examples=300, deadline=None)
def test_where_text_is_cut_changes_nothing(text: str):
    assert_cuts_change_nothing(text.encode())


def test_where_the_small_files_are_cut_changes_nothing(shared_data: Path):
    for name in ("chessbase-empty-line", "uci-moves", "utf8-bom", "cutechess-fischerrandom"):
        assert_cuts_change_nothing((shared_data / "pgn_small" / f"{name}.pgn").read_bytes())


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_without_harm(raw: bytes):
    parsed = parse(raw)
    assert parsed.games_read == len(parsed.result) + len(parsed.quarantined)


def test_text_out_of_range_is_refused():
    with pytest.raises(IndexError, match="within the text"):
        parse_pgn(b"1. e4", 0, 6)


# --- python-chess as the judge ---


def python_chess_games(text: bytes) -> Iterator[tuple[str, int, int | None, list[Exception]]]:
    """Final FEN, plies, result and errors of each game."""
    logging.getLogger("chess.pgn").setLevel(logging.CRITICAL)
    handle = io.StringIO(text.decode("utf-8-sig", errors="replace"))
    while (game := chess.pgn.read_game(handle)) is not None:
        end = game.end()
        plies = end.ply() - game.ply()
        yield end.board().fen(), plies, RESULTS[game.headers.get("Result", "*")], game.errors


def assert_agrees_with_python_chess(path: Path) -> tuple[int, int]:
    """Compare every game of a file; returns games and plies."""
    raw = path.read_bytes()
    text = (
        gzip.decompress(raw)
        if path.suffix == ".gz"
        else bz2.decompress(raw)
        if path.suffix == ".bz2"
        else raw
    )
    parsed = parse(text)
    ours = {game.number: (game.fen, len(game.moves), game.result) for game in games_of(parsed)}
    faulty = {fault.game for fault in parsed.quarantined}
    num_games = num_plies = 0
    for number, (fen, plies, result, errors) in enumerate(python_chess_games(text)):
        if errors:
            assert number in faulty, f"{path.name}, game {number + 1}: python-chess found {errors[0]}"
        else:
            assert ours.get(number) == (fen, plies, result), f"{path.name}, game {number + 1}"
        num_games, num_plies = num_games + 1, num_plies + plies
    assert num_games == parsed.games_read
    return num_games, num_plies


def test_the_small_files_agree_with_python_chess(shared_data: Path):
    paths = sorted((shared_data / "pgn_small").iterdir())
    counts = [assert_agrees_with_python_chess(path) for path in paths]
    assert tuple(map(sum, zip(*counts, strict=True))) == (150, 20728)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_tournament_files_agree_with_python_chess(shared_data: Path):
    paths = sorted((shared_data / "pgn").iterdir()) + sorted((shared_data / "pgn_val").iterdir())
    counts = [assert_agrees_with_python_chess(path) for path in paths]
    assert tuple(map(sum, zip(*counts, strict=True))) == (5488, 772175)


@pytest.mark.parametrize(
    "piece",
    [
        '[A "x"]',  # tags of one line: half a megabyte took 46 s
        '[A "\\"]',
        *('[A "x', '[A "" "" '),
        '{\n\n[Event "x"]\n',  # comments without an end
        "{ ",
        "(",
        '(\n[A "x"]\n',
        "[a ",
        '[FEN "x"]\n\n',
    ],
)
def test_the_time_is_linear_whatever_the_text_is(piece: str):
    text = piece.encode() * (2_000_000 // len(piece))
    begin = time.process_time()
    parse_pgn(text, 0, len(text))
    last_game_begin(text)
    assert time.process_time() - begin < 5  # some 0.1 s; quadratic it would be minutes


def test_where_a_value_ends_does_not_depend_on_the_tags_before_it():
    first = b'[White "a\\"] [Black "b\\" ]x [Event "c"] [Date "d\\"]\n\n1. e4 *\n'
    text = first + b'[White "e\\"] [Black "f]\n\n1. e4 *\n'
    games = parse_pgn(text, 0, len(text))
    found = [bytes(column.bytes) for column in (games.white, games.black)]
    assert found == [b'a"] [Black "b" ]x [Event "ce\\', b"f]"]
