"""Chess rules on positions worked out by hand: FEN, keys, castling, en passant, SAN, UCI, dead positions."""

import pytest

from alphazero._core import ChessLine, ChessPosition, GameError

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"


def after(*sans: str, fen: str | None = None) -> ChessPosition:
    """The position after these SAN moves."""
    position = ChessPosition(fen)
    for san in sans:
        position.push_san(san)
    return position


def square(name: str) -> int:
    return ord(name[0]) - ord("a") + 8 * (int(name[1]) - 1)


def test_no_position_has_more_moves_than_buffers_hold():
    """Petrovic 1964: eight promotions and every piece at its best."""
    most = ChessPosition("R6R/3Q4/1Q4Q1/4Q3/2Q4Q/Q4Q2/pp1Q4/kBNN1KB1 w - - 0 1")
    assert len(most.legal_moves()) == ChessLine.MAX_LEGAL_MOVES == 218


@pytest.mark.parametrize(
    "fen",
    [
        "7k/PPPPPPPP/8/8/8/8/8/KQRRBBNN b - - 0 1",
        "kqqqqqqq/qqrrbbnn/8/8/8/8/8/7K w - - 0 1",
        "7k/8/8/8/8/8/NNN5/KNNNNNNN w - - 0 1",
    ],
)
def test_a_position_at_the_limit_of_promotions_is_read(fen: str):
    assert ChessPosition(fen).fen() == fen


def test_the_default_is_the_standard_start():
    position = ChessPosition()
    assert position.fen() == START
    assert position == ChessPosition(START)
    assert len(position.legal_moves()) == 20
    assert (position.turn, position.halfmove_clock, position.fullmove_number) == (True, 0, 1)
    assert not position.in_check()


def test_moves_are_from_to_promotion_bits():
    assert ChessPosition().parse_san("e4") == square("e2") | square("e4") << 6
    promoting = ChessPosition("8/P6k/8/8/8/8/8/K7 w - - 0 1")
    numbers = {promoting.parse_san(f"a8={letter}") >> 12: letter for letter in "NBRQ"}
    assert numbers == {1: "N", 2: "B", 3: "R", 4: "Q"}
    castling = ChessPosition("4k3/8/8/8/8/8/8/4K2R w K - 0 1")
    assert castling.parse_san("O-O") == square("e1") | square("h1") << 6


def test_a_copy_lives_its_own_life():
    position = ChessPosition()
    copy = position.copy()
    copy.push_san("d4")
    assert position.fen() == START
    assert copy != position


def test_counters_follow_the_rules():
    position = after("Nf3", "Nf6", "Ng1")
    assert position.fen() == "rnbqkb1r/pppppppp/5n2/8/8/8/PPPPPPPP/RNBQKBNR b KQkq - 3 2"
    position.push_san("d5")
    assert (position.halfmove_clock, position.fullmove_number, position.turn) == (0, 3, True)


def test_counters_stop_where_a_fen_may_have_them():
    position = ChessPosition("4k3/8/8/8/8/8/8/4K3 w - - 32766 32767")
    for uci in ("e1e2", "e8e7", "e2e1", "e7e8"):
        position.push_uci(uci)
        assert ChessPosition(position.fen()) == position
    assert (position.halfmove_clock, position.fullmove_number) == (32767, 32767)


@pytest.mark.parametrize(
    ("fen", "message"),
    [
        ("", "0 fields, expected 4 to 6"),
        (START + " w", "more than 6 fields, expected 4 to 6"),
        ("8/8/8/8/8/8/8 w - -", "ends after 7 ranks and 8 files, expected 8 ranks of 8 files"),
        ("k7/8/8/8/8/8/8/K7/8 w - -", "more than 8 ranks, expected 8"),
        ("k7/8/8/8/8/8/8/K8 w - -", "rank 1 has more than 8 files, expected 8"),
        ("k7/8/8/7/8/8/8/K7 w - -", "rank 5 has 7 files, expected 8"),
        ("k7/8/44/8/8/8/8/K7 w - -", "two digits in a row, expected one"),
        ("k7/8/8/8/8/8/8/X7 w - -", "character 'X', expected one of pnbrqkPNBRQK, 1-8, /"),
        ("k7/8/8/8/8/8/8/8 w - -", "white has 0 kings, expected 1"),
        ("kk6/8/8/8/8/8/8/K7 w - -", "black has 2 kings, expected 1"),
        ("k7/8/8/8/NNNNNNNN/NNNNNNNN/8/K7 w - -", "white has 17 pieces, expected at most 16"),
        ("k7/pppppppp/p7/8/8/8/8/K7 w - -", "black has 9 pawns, expected at most 8"),
        (
            "QQQQ3Q/5Q2/Q6Q/2Q5/Q5Q1/3Q4/1Q4QQ/1K2k3 w - -",
            "board: white has 14 pawns and promoted pieces (beyond 2 knights, 2 bishops, 2 rooks and 1 queen)"
            ", expected at most 8",
        ),
        ("k7/pppppppp/nnn5/8/8/8/8/K7 w - -", "black has 9 pawns and promoted pieces"),
        ("k7/8/8/8/8/8/8/K6p w - -", "black has 1 pawns on the first or last rank, expected 0"),
        ("k7/8/8/8/8/8/8/K7 white - -", "side to move 'white': expected 'w' or 'b'"),
        ("k6R/8/8/8/8/8/8/K7 w - -", "side to move 'w': it could take the king"),
        ("k7/8/8/8/8/8/8/K7 w KX -", "castling 'KX': expected '-' or at most two of KQA-H"),
        ("k7/8/8/8/8/8/8/K7 w kK -", "castling 'kK': expected"),
        ("k7/8/8/8/8/8/8/K7 w - e9", "en passant 'e9': expected '-' or a square"),
        ("k7/8/8/8/8/8/8/K7 w - - -1 1", "half-move clock '-1': expected a number from 0 to 32767"),
        ("k7/8/8/8/8/8/8/K7 w - - 0 99999", "move number '99999': expected a number from 0 to 32767"),
        ("k7/8/8/8/8/8/8/K7\x00 w - -", "character '?', expected"),
    ],
)
def test_a_bad_fen_is_refused_by_field_value_and_wanted(fen: str, message: str):
    with pytest.raises(GameError) as error:
        ChessPosition(fen)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        # Fields may be missing; move number 0 is 1.
        ("k7/8/8/8/8/8/8/K7 b - -", "k7/8/8/8/8/8/8/K7 b - - 0 1"),
        ("k7/8/8/8/8/8/8/K7 b - - 7", "k7/8/8/8/8/8/8/K7 b - - 7 1"),
        ("  k7/8/8/8/8/8/8/K7\tb - - 7 0\n", "k7/8/8/8/8/8/8/K7 b - - 7 1"),
        # Promoted pieces may be marked.
        ("k7/8/8/8/8/8/8/KQ~6 b - -", "k7/8/8/8/8/8/8/KQ6 b - - 0 1"),
        # Shredder-FEN is written as X-FEN; inner rooks keep their file.
        ("r3k2r/8/8/8/8/8/8/R3K2R w HAha - 0 1", "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"),
        ("4k3/8/8/8/8/8/8/RR2K1RR w GB - 0 1", "4k3/8/8/8/8/8/8/RR2K1RR w GB - 0 1"),
        ("4k3/8/8/8/8/8/8/RR2K1RR w KB - 0 1", "4k3/8/8/8/8/8/8/RR2K1RR w KB - 0 1"),
        # Rights without king or rook in place are dropped.
        ("4k3/8/8/8/8/8/4K3/R6R w KQkq - 0 1", "4k3/8/8/8/8/8/4K3/R6R w - - 0 1"),
        ("4k3/8/8/8/8/8/8/R3K3 w KQ - 0 1", "4k3/8/8/8/8/8/8/R3K3 w Q - 0 1"),
        # En passant squares without a legal capture are dropped: no capturer, no pawn, capturer pinned.
        (
            "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1",
            "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1",
        ),
        ("4k3/8/8/4P3/8/8/8/4K3 w - d6 0 1", "4k3/8/8/4P3/8/8/8/4K3 w - - 0 1"),
        ("8/8/8/K2pP2r/8/8/8/4k3 w - d6 0 1", "8/8/8/K2pP2r/8/8/8/4k3 w - - 0 1"),
        ("4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 1", "4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 1"),
    ],
)
def test_fen_is_written_in_one_way(given: str, written: str):
    assert ChessPosition(given).fen() == written


def test_en_passant_counts_in_key_and_fen_only_if_it_is_legal():
    quiet = after("e4")
    assert quiet.fen().split()[3] == "-"
    assert quiet.key == ChessPosition("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1").key
    offered = after("e4", "a6", "e5", "d5")
    assert offered.fen().split()[3] == "d6"
    assert "e5d6" in offered.legal_uci()
    without = ChessPosition(offered.fen().replace("d6", "-"))
    assert "e5d6" not in without.legal_uci()
    assert offered.key != without.key
    offered.push_san("exd6")
    assert offered.fen() == "rnbqkbnr/1pp1pppp/p2P4/8/8/8/PPPP1PPP/RNBQKBNR b KQkq - 0 3"


def test_en_passant_that_opens_the_rank_of_the_king_is_no_capture():
    position = ChessPosition("8/2p5/8/KP5r/8/8/8/7k b - - 0 1")
    position.push_san("c5")
    assert position.fen().split()[3] == "-"
    assert "b5c6" not in position.legal_uci()


def test_keys_repeat_with_the_position_and_change_with_the_rights():
    start = ChessPosition()
    assert after("Nf3", "Nf6", "Ng1", "Ng8").key == start.key
    walked = after("e4", "e5", "Ke2", "Ke7", "Ke1", "Ke8")
    assert walked.fen().split()[:3] == [*after("e4", "e5").fen().split()[:2], "-"]
    assert walked.key != after("e4", "e5").key
    # The same position by another way has the same key; counters do not matter, equality has them.
    one, other = after("Nf3", "d5", "e3"), after("e3", "d5", "Nf3")
    assert one.key == other.key
    assert one != other


def test_castling_needs_rights_room_and_safety():
    assert {"e1g1", "e1c1"} <= set(ChessPosition("4k3/8/8/8/8/8/8/R3K2R w KQ - 0 1").legal_uci())
    attacked_path = set(ChessPosition("4kr2/8/8/8/8/8/8/R3K2R w KQ - 0 1").legal_uci())
    assert "e1g1" not in attacked_path
    assert "e1c1" in attacked_path
    in_check = ChessPosition("4k3/4r3/8/8/8/8/8/R3K2R w KQ - 0 1")
    assert not {"e1g1", "e1c1"} & set(in_check.legal_uci())
    # The rook may pass an attacked square, the king may not.
    assert "e1c1" in ChessPosition("1r2k3/8/8/8/8/8/8/R3K3 w Q - 0 1").legal_uci()
    assert "e1c1" not in ChessPosition("4k3/8/8/8/8/8/8/RN2K3 w Q - 0 1").legal_uci()


def test_a_captured_rook_takes_its_right_along():
    position = after("Rxh8+", fen="r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1")
    assert position.fen() == "r3k2R/8/8/8/8/8/8/R3K3 b Qq - 0 1"


def test_chess960_castling_is_king_takes_rook():
    position = ChessPosition("4k3/8/8/8/8/8/8/1RK4R w KQ - 0 1")
    assert set(position.legal_uci(chess960=True)) >= {"c1b1", "c1h1"}
    assert after("O-O-O", fen=position.fen()).fen() == "4k3/8/8/8/8/8/8/2KR3R b - - 1 1"
    assert after("O-O", fen=position.fen()).fen() == "4k3/8/8/8/8/8/8/1R3RK1 b - - 1 1"
    # The rook was a shield against a1.
    assert "c1b1" not in ChessPosition("4k3/8/8/8/8/8/8/rRK5 w Q - 0 1").legal_uci(chess960=True)
    # King and rook change places.
    assert after("O-O", fen="4k3/8/8/8/8/8/8/5KR1 w K - 0 1").fen() == "4k3/8/8/8/8/8/8/5RK1 b - - 1 1"


def test_uci_castling_is_two_steps_or_king_takes_rook():
    position = ChessPosition("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1")
    castle = position.parse_uci("e1g1")
    assert position.parse_uci("e1h1") == castle
    assert (position.uci(castle), position.uci(castle, chess960=True)) == ("e1g1", "e1h1")
    fischer = ChessPosition("4k3/8/8/8/8/8/8/4KR2 w K - 0 1")
    assert fischer.uci(fischer.parse_san("O-O")) == "e1f1"


@pytest.mark.parametrize(
    ("fen", "texts", "uci"),
    [
        (START, ["Nf3", "Nf3!?", "Nf3+", "Ngf3", "N1f3", "Ng1f3", "Ng1-f3", "g1f3"], "g1f3"),
        (START, ["e4", "e2e4", "e2-e4", "Pe4", "e4!", "e4="], "e2e4"),
        ("4k3/8/8/8/8/8/8/4K2R w K - 0 1", ["O-O", "0-0", "o-o", "OO", "O-O+", "e1g1", "e1h1"], "e1g1"),
        ("4k3/8/8/8/8/8/8/R3K3 w Q - 0 1", ["O-O-O", "0-0-0", "OOO", "O-O-O!!"], "e1c1"),
        ("4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 1", ["exd6", "exd6e.p.", "exd6 e.p.", "exd6ep", "ed6"], "e5d6"),
        (
            "8/P6k/8/8/8/8/8/K7 w - - 0 1",
            ["a8=Q", "a8Q", "a8(Q)", "a8/Q", "a8=q", "a8=Q+", "a7a8q", "a7-a8=Q"],
            "a7a8q",
        ),
        ("1n5k/P7/8/8/8/8/8/K7 w - - 0 1", ["axb8=N", "ab8N", "axb8=N#", "a7xb8=N"], "a7b8n"),
        ("4k3/8/8/8/4r3/8/4K3/R6R w - - 0 1", ["Kf3", "Ke2f3"], "e2f3"),
        # The other knight is pinned: nothing needs telling apart.
        ("4k3/8/8/8/1b6/2N5/8/4K1N1 w - - 0 1", ["Ne2", "Nge2"], "g1e2"),
    ],
)
def test_san_is_read_as_pgn_files_write_it(fen: str, texts: list[str], uci: str):
    position = ChessPosition(fen)
    assert {text: position.uci(position.parse_san(text)) for text in texts} == dict.fromkeys(texts, uci)


@pytest.mark.parametrize(
    ("fen", "texts"),
    [
        (START, ["", "e", "Nf", "e5", "Nd2", "Ke2", "O-O", "Qxd4", "Nf3=Q", "--", "Z0", "0000", "e2e4q"]),
        (START, ["i9", "N-f3-", "Nxx3", "Nf3f3f3", "xd5", "=", "()", "e4(Q)", "a1a1", "\x00", "Nf\u00e9"]),
        ("4k3/8/8/8/8/8/8/RR2K3 w - - 0 1", ["O-O-O", "0-0-0-0", "O-", "-O-O"]),
        # Two rooks can go there; a pinned one cannot.
        ("4k3/8/8/8/8/4K3/8/R6R w - - 0 1", ["Rd1", "Rd2"]),
        ("4k3/4r3/8/8/8/8/4R3/4K3 w - - 0 1", ["Rd2", "e2d2"]),
        ("8/P6k/8/8/8/8/8/K7 w - - 0 1", ["a8", "a8=K", "a8=P", "a7a8", "a8(Q", "a8=", "Ka8=Q"]),
    ],
)
def test_text_that_is_no_legal_move_is_refused(fen: str, texts: list[str]):
    position = ChessPosition(fen)
    for text in texts:
        with pytest.raises(GameError, match="a legal move"):
            position.parse_san(text)


def test_san_tells_moves_apart_as_the_pgn_standard_says():
    by_file = ChessPosition("4k3/8/8/8/8/4K3/8/R6R w - - 0 1")
    assert by_file.san(by_file.parse_uci("a1d1")) == "Rad1"
    by_rank = ChessPosition("R3k3/8/8/8/8/8/8/R3K3 b - - 0 1")
    by_rank.push_san("Kf7")
    assert by_rank.san(by_rank.parse_uci("a1a4")) == "R1a4"
    by_both = ChessPosition("8/7k/8/8/8/Q1Q5/8/Q3K3 w - - 0 1")
    assert by_both.san(by_both.parse_uci("a3b2")) == "Qa3b2"
    mate = after("f3", "e5", "g4")
    assert mate.san(mate.parse_uci("d8h4")) == "Qh4#"


@pytest.mark.parametrize("move", [0, 65535, 12 | 36 << 6, 12 | 28 << 6 | 4 << 12, 60 | 52 << 6])
def test_a_number_that_is_no_legal_move_is_refused(move: int):
    position = ChessPosition()
    assert not position.is_legal(move)
    for use in (position.push, position.san, position.uci):
        with pytest.raises(GameError, match=f"move '{move}': .*rnbqkbnr"):
            use(move)
    assert position.fen() == START


def test_mate_and_stalemate_leave_no_moves():
    mated = after("f3", "e5", "g4", "Qh4#")
    assert mated.in_check()
    assert mated.legal_moves() == []
    stalemated = ChessPosition("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1")
    assert not stalemated.in_check()
    assert stalemated.legal_moves() == []


@pytest.mark.parametrize(
    ("pieces", "dead"),
    [
        ("", True),
        ("N", True),
        ("n", True),
        ("B", True),
        ("NN", False),  # a helpmate exists
        ("Nn", False),
        ("NB", False),
        ("Nb", False),
        ("B1B", True),  # one square colour
        ("B1b", True),
        ("Bb", False),
        ("BB", False),
        ("P", False),
        ("r", False),
        ("Q", False),
    ],
)
def test_material_that_cannot_mate_is_known(pieces: str, dead: bool):
    rest = 8 - sum(int(c) if c.isdigit() else 1 for c in pieces)
    rank = pieces + (str(rest) if rest else "")
    assert ChessPosition(f"7k/8/8/{rank}/8/8/8/7K w - - 0 1").insufficient_material() is dead
