"""One tree for a whole game: exact numbers of visits, batches, what is kept, proofs, limits, stopping."""

import time
from dataclasses import replace

import chess
import numpy as np
import pytest

import alphazero._core as _core
from alphazero.games.registry import game_names, make_line
from alphazero.search.snapshot import Snapshot
from alphazero.search.tree_search import SearchLimits, TreeSearch, TreeSettings
from tests.support.games.mates import forces_mate
from tests.support.search.driving import line_of
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluation, MadeUpEvaluator
from tests.support.uci.driving import SlowEvaluator

ALONE = TreeSettings(minibatch_size=1, in_flight=1)


class Noting(MadeUpEvaluator):
    """Notes every position that it was asked for."""

    def __init__(self, game: str, batch_size: int) -> None:
        super().__init__(game, batch_size)
        self.asked: list[bytes] = []
        self.sizes: list[int] = []

    def submit(self, packed, legal_index, legal_offset):
        self.asked += [row.tobytes() for row in packed]
        self.sizes.append(len(packed))
        return super().submit(packed, legal_index, legal_offset)


class Blank(MadeUpEvaluator):
    """Knows nothing: equal priors, no value."""

    def submit(self, packed, legal_index, legal_offset):
        wdl = np.tile(np.array([0.25, 0.5, 0.25], np.float32), (len(packed), 1))
        return MadeUpEvaluation(np.zeros(len(legal_index), np.float32), wdl)


def searched(line, nodes: int, evaluator=None, settings: TreeSettings = ALONE, **more) -> Snapshot:
    tree = TreeSearch(line.NAME, evaluator or MadeUpEvaluator(line.NAME, 8), settings)
    tree.set_line(line)
    found = tree.search(SearchLimits(nodes=nodes), **more)
    tree.close()
    return found


@pytest.mark.parametrize("game", game_names())
@pytest.mark.parametrize("settings", [ALONE, TreeSettings(), TreeSettings(minibatch_size=3)])
def test_a_number_of_nodes_is_met_exactly(game: str, settings: TreeSettings) -> None:
    for nodes in (1, 2, 37, 300):
        found = searched(make_line(game), nodes, settings=settings)
        assert found.nodes == nodes or found.is_done
        assert sum(move.visits for move in found.moves) == found.nodes - 1
        assert found.best is not None and found.best.text in (
            make_line(game).move_to_text(move) for move in make_line(game).legal()
        )
        assert sum(move.share for move in found.moves) == pytest.approx(1)


@pytest.mark.parametrize("settings", [ALONE, TreeSettings(), TreeSettings(in_flight=1)])
def test_a_search_is_a_function_of_line_and_nodes(settings: TreeSettings) -> None:
    line = line_of("chess", moves="e2e4 c7c5")
    once, again = (replace(searched(line, 400, settings=settings), seconds=0.0) for _ in range(2))
    assert once == again


def test_batches_are_filled_and_no_position_is_sent_twice() -> None:
    evaluator = Noting("chess", 16)
    searched(make_line("chess"), 1500, evaluator, TreeSettings())
    assert max(evaluator.sizes) == 16
    assert len(set(evaluator.asked)) == len(evaluator.asked)
    assert len(evaluator.sizes) < 1500 / 6


def test_formulas_are_those_of_lc0() -> None:
    """The visits of a root whose children are all leaves, by a plain count of the formulas."""

    class Fixed(MadeUpEvaluator):
        def submit(self, packed, legal_index, legal_offset):
            made = super().submit(packed, legal_index, legal_offset)
            for row in range(len(packed)):
                made.wdl[row] = (0.5, 0.2, 0.3)
            made.legal_logits[:] = np.linspace(0, 1, len(made.legal_logits), dtype=np.float32)
            return made

    line = line_of("chess", start="7k/8/8/8/8/8/8/K6R b - - 0 1", moves="")
    found = searched(line, 4, Fixed("chess", 1))
    logits = np.linspace(0, 1, len(found.moves))
    priors = np.exp(logits / 1.359) / np.exp(logits / 1.359).sum()
    by_index = sorted(found.moves, key=lambda move: line.move_to_index(move.move))
    assert [move.prior for move in by_index] == pytest.approx(priors)
    # Each child is worth -0.2 to the root; the root itself 0.2.
    sums, visits = np.zeros(len(priors)), np.zeros(len(priors))
    for total in range(1, 4):
        c = 1.745 + 3.894 * np.log((total + 38739) / 38739)
        mean = (0.2 + sums.sum()) / total
        first_play = mean - 0.33 * np.sqrt(priors[visits > 0].sum())
        value = np.where(visits > 0, sums / np.maximum(visits, 1), first_play)
        chosen = np.argmax(value + c * np.sqrt(max(total - 1, 1)) * priors / (1 + visits))
        sums[chosen] -= 0.2
        visits[chosen] += 1
    assert [move.visits for move in by_index] == visits.tolist()


def test_the_tree_is_kept_where_the_game_goes_on() -> None:
    tree = TreeSearch("chess", MadeUpEvaluator("chess", 8))
    line = make_line("chess")
    tree.set_line(line)
    found = tree.search(SearchLimits(nodes=600))
    best = found.best
    assert best is not None and len(best.pv) >= 2
    line.push(best.pv[0])
    kept = tree.set_line(line)
    assert kept == best.visits
    line.push(best.pv[1])  # the opponent's reply
    kept = tree.set_line(line)
    assert 0 < kept < best.visits
    assert tree.set_line(line) == kept  # the same line once more
    again = tree.search(SearchLimits(nodes=700))
    assert again.nodes == 700 and again.playouts == 700 - kept
    assert tree.set_line(line_of("chess", moves="a2a3")) == 0
    tree.close()


def test_a_kept_tree_says_what_a_new_one_says_of_the_same_positions() -> None:
    """Repetitions and clocks are of the whole line: every evaluation is that of a tree made anew."""
    evaluator = Noting("chess", 1)
    shuffle = "g1f3 g8f6 f3g1 f6g8 g1f3"
    tree = TreeSearch("chess", evaluator, replace(ALONE, cache_mb=0))
    line = make_line("chess")
    for text in shuffle.split():
        tree.set_line(line)
        tree.search(SearchLimits(nodes=40))
        line.push_text(text)
    tree.set_line(line)
    tree.search(SearchLimits(nodes=200))
    tree.close()
    # What the network was shown is what lines of play of the same moves are encoded as.
    fresh = Noting("chess", 1)
    searched(line, 200, fresh, replace(ALONE, cache_mb=0))
    known = set(evaluator.asked)
    assert len([packed for packed in fresh.asked if packed in known]) > 100


def test_history_and_clock_are_part_of_what_is_evaluated() -> None:
    """The same board by another way is another input, and has another evaluation."""
    repeated = line_of("chess", moves="g1f3 g8f6 f3g1 f6g8")
    for line in (repeated, make_line("chess")):
        evaluator = Noting("chess", 1)
        searched(line, 1, evaluator)
        assert evaluator.asked == [line.packed().tobytes()]
    assert repeated.packed().tobytes() != make_line("chess").packed().tobytes()


def test_the_cache_answers_for_exactly_the_same_input() -> None:
    evaluator = Noting("chess", 4)
    tree = TreeSearch("chess", evaluator, ALONE)
    first, other = line_of("chess", moves="e2e4"), line_of("chess", moves="d2d4")
    tree.set_line(first)
    tree.search(SearchLimits(nodes=100))
    asked = len(evaluator.asked)
    tree.set_line(other)
    tree.search(SearchLimits(nodes=50))
    tree.set_line(first)  # its tree is gone, its evaluations are not
    again = tree.search(SearchLimits(nodes=100))
    assert again.cache_hits == 100 and len(evaluator.asked) == asked + 50
    tree.forget()
    tree.search(SearchLimits(nodes=100))
    assert len(evaluator.asked) == asked + 150
    tree.close()


@pytest.mark.parametrize(
    ("fen", "mate", "nodes"),
    [
        ("6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", 1, 100),
        ("kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1", 2, 5000),
        ("2bqkbn1/2pppp2/np2N3/r3P1p1/p2N2B1/5Q2/PPPPKPP1/RNB2r2 w KQkq - 0 1", 2, 20000),
        ("r5rk/5p1p/5R2/4B3/8/8/7P/7K w - - 0 1", 3, 40000),
        ("k7/8/1K6/8/8/8/8/7R b - - 0 1", -1, 100),
    ],
)
@pytest.mark.parametrize("evaluator", [Blank("chess", 8), MadeUpEvaluator("chess", 8)])
def test_mates_are_proven_by_any_network_and_their_length_is_true(
    fen: str, mate: int, nodes: int, evaluator: MadeUpEvaluator
) -> None:
    if abs(mate) > 2 and not isinstance(evaluator, Blank):
        return  # values at random lead away from it for longer than a test may take
    line = make_line("chess", fen)
    found = searched(line, nodes, evaluator, TreeSettings())
    assert found.is_done and found.best is not None and found.mate == found.best.mate is not None
    assert (found.mate > 0) == (mate > 0) and abs(found.mate) >= abs(mate)
    assert forces_mate(line, found.mate)
    # The line of play is the proven one: it ends in mate, after as many moves as were told.
    assert (
        len(found.best.pv)
        == found.best.plies
        == (2 * mate - 1 if mate > 0 else -2 * mate) + 2 * (abs(found.mate) - abs(mate))
    )
    for move in found.best.pv:
        line.push(move)
    assert line.outcome().termination == _core.Termination.WIN


def test_every_mate_that_is_told_is_forced() -> None:
    rng = np.random.default_rng(5)
    told = 0
    for _ in range(60):
        board = chess.Board(None)
        pieces = "KkQRp" if rng.integers(2) else "KkRRn"
        for piece, square in zip(pieces, rng.permutation(64), strict=False):
            board.set_piece_at(int(square), chess.Piece.from_symbol(piece))
        if not board.is_valid() or not any(board.legal_moves):
            continue
        line = make_line("chess", board.fen())
        found = searched(line, 400, settings=TreeSettings())
        for move in found.moves[:1]:
            if move.mate is not None and abs(move.mate) <= 2:
                told += 1
                assert forces_mate(line, move.mate), str(line)
    assert told >= 5


def test_proofs_of_other_games_have_a_length_too() -> None:
    line = line_of("connect4", moves="4 1 4 1 4 1")
    found = searched(line, 50)
    assert found.proven == 1 and found.plies == 1 and found.best is not None and found.best.text == "4"


def test_only_the_moves_asked_for_are_searched() -> None:
    line = line_of("chess", start="6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1")
    only = tuple(line.text_to_move(text) for text in ("a1a2", "g1f1"))
    tree = TreeSearch("chess", MadeUpEvaluator("chess", 8))
    tree.set_line(line)
    found = tree.search(SearchLimits(nodes=200, moves=only))
    assert {move.move for move in found.moves} == set(only) and found.nodes == 200
    free = tree.search(SearchLimits(nodes=400))  # the tree stays, the filter goes
    assert free.best is not None and free.best.text == "a1a8" and free.mate == 1
    tree.close()


def test_lines_of_play_are_told_for_as_many_moves_as_asked() -> None:
    line = make_line("chess")
    found = searched(line, 500, num_lines=3)
    lengths = [len(move.pv) for move in found.moves]
    assert all(lengths[:3]) and not any(lengths[3:])
    visits = [move.visits for move in found.moves]
    assert visits == sorted(visits, reverse=True)
    for move in found.moves[:3]:
        copy = line.copy()
        for text in move.pv_texts:
            copy.push_text(text)


def test_stop_does_not_wait_for_the_network() -> None:
    evaluator = SlowEvaluator(4, 0.0)
    tree = TreeSearch("chess", evaluator)
    line = make_line("chess")
    tree.set_line(line)
    tree.search(SearchLimits(nodes=50))
    evaluator.seconds = 1.5
    tree.start(SearchLimits())
    time.sleep(0.2)
    began = time.monotonic()
    tree.stop()
    assert tree.wait() and tree.snapshot().nodes == 50
    # A new line and a new search begin while the network is still at the old batch.
    line.push_text("e2e4")
    tree.set_line(line)
    tree.start(SearchLimits(seconds=0.05))
    while not tree.wait(1.0):
        pass
    assert time.monotonic() - began < 0.2
    tree.close()


def test_seconds_and_depth_end_a_search() -> None:
    tree = TreeSearch("chess", MadeUpEvaluator("chess", 8))
    tree.set_line(make_line("chess"))
    began = time.monotonic()
    timed = tree.search(SearchLimits(seconds=0.2))
    assert 0.15 < time.monotonic() - began < 1.0 and timed.nodes > 10
    tree.set_line(line_of("chess", moves="e2e4"))
    assert tree.search(SearchLimits(depth=3)).depth >= 3
    tree.close()


def test_a_full_tree_ends_the_search_and_says_so() -> None:
    tree = TreeSearch("chess", MadeUpEvaluator("chess", 32), TreeSettings(tree_mb=1))
    line = make_line("chess")
    tree.set_line(line)
    found = tree.search(SearchLimits(nodes=20_000))
    assert found.is_full and found.nodes < 20_000 and found.tree_bytes <= 2**20
    assert found.best is not None
    # What is no longer below the root makes room.
    line.push(found.best.move)
    kept = tree.set_line(line)
    more = tree.search(SearchLimits(nodes=kept + 100))
    assert more.nodes == kept + 100 and not more.is_full and more.tree_bytes <= 2**20
    tree.close()


def test_what_the_network_fails_with_is_raised_and_the_tree_goes_on() -> None:
    class Failing(MadeUpEvaluator):
        fails = True

        def submit(self, packed, legal_index, legal_offset):
            if self.fails:
                raise RuntimeError("out of memory")
            return super().submit(packed, legal_index, legal_offset)

    evaluator = Failing("chess", 8)
    tree = TreeSearch("chess", evaluator)
    tree.set_line(make_line("chess"))
    with pytest.raises(RuntimeError, match="out of memory"):
        tree.search(SearchLimits(nodes=10))
    evaluator.fails = False
    assert tree.search(SearchLimits(nodes=10)).nodes == 10
    tree.close()


def test_numbers_that_are_none_break_nothing() -> None:
    class Broken(MadeUpEvaluator):
        def submit(self, packed, legal_index, legal_offset):
            made = super().submit(packed, legal_index, legal_offset)
            made.wdl[:] = np.nan
            made.legal_logits[:] = np.nan
            return made

    found = searched(make_line("chess"), 100, Broken("chess", 8), TreeSettings())
    assert found.nodes == 100 and found.best is not None


def test_a_position_that_counts_as_drawn_is_searched_where_moves_are_left() -> None:
    line = line_of("chess", moves="g1f3 g8f6 f3g1 f6g8 g1f3 g8f6 f3g1 f6g8")
    assert line.outcome().over
    found = searched(line, 50)
    assert found.nodes == 50 and found.best is not None
    mated = line_of("chess", moves="f2f3 e7e5 g2g4 d8h4")
    over = searched(mated, 50)
    assert over.moves == () and over.proven == -1 and over.is_done


def repeats(packed: bytes) -> bool:
    """Whether the network was shown a position that stood on the board before (lc0's plane 12)."""
    return any(packed[8 * 12 : 8 * 13])


def test_a_repetition_within_the_tree_is_a_draw_until_its_first_half_is_played() -> None:
    kings_alone = "7k/7p/7P/8/8/7p/7P/K7 w - - 0 1"
    start = line_of("chess", start=kings_alone)
    evaluator = Noting("chess", 1)
    searched(start, 500, evaluator, replace(ALONE, two_fold_draws=False))
    assert any(map(repeats, evaluator.asked))
    evaluator = Noting("chess", 1)
    tree = TreeSearch("chess", evaluator, ALONE)
    line = start.copy()
    for text in ("a1b1", "h8g8", "b1a1"):
        tree.set_line(line)
        tree.search(SearchLimits(nodes=500))
        assert text != "a1b1" or not any(map(repeats, evaluator.asked))
        line.push_text(text)
    tree.set_line(line)
    evaluator.asked.clear()
    back = line.text_to_move("g8h8")
    tree.search(SearchLimits(nodes=500, moves=(back,)))
    # The first half is no longer in the tree: a position like any other, with its repetition in the planes.
    assert any(map(repeats, evaluator.asked))
    found = tree.search(SearchLimits(nodes=550))
    assert found.nodes == 550 == 1 + sum(move.visits for move in found.moves)
    tree.close()
