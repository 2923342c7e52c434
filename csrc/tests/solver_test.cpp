// The Connect Four solver under the sanitizers: against plain minimax on late positions, mirrored, after
// moves.
#include "games/connect4/solver.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "games/connect4/connect4.hpp"
#include "games/connect4/parity.hpp"
#include "tests/require.hpp"

namespace {

using namespace alphazero;
using connect4::Board;
using connect4::has_four;
using connect4::kSquares;
using connect4::Solver;
using testing::require;

using Random = std::mt19937_64;

// A random game cut off with `num_stones` on the board, not over, in which the same columns mirrored are
// legal.
Board random_board(Random& random, int num_stones) {
  while (true) {
    Board board = Connect4::initial();
    std::vector<Move> moves;
    for (int ply = 0; ply < num_stones; ++ply) {
      Connect4::legal(board, moves);
      if (moves.empty()) break;
      Connect4::apply(board, moves[random() % moves.size()]);
    }
    if (std::popcount(board.occupied) == num_stones && !has_four(board.opponent())) return board;
  }
}

// The definition, word for word: without window, table or order.
int minimax(const Board& board) {
  const int num_stones = std::popcount(board.occupied);
  std::vector<Move> moves;
  Connect4::legal(board, moves);
  if (moves.empty()) return 0;
  int best = -kSquares;
  for (const Move move : moves) {
    Board next = board;
    Connect4::apply(next, move);
    best = std::max(best, has_four(next.opponent()) ? (kSquares + 1 - num_stones) / 2 : -minimax(next));
  }
  return best;
}

Board mirrored(const Board& board) {
  Board result;
  for (int column = 0; column < Connect4::kBoardWidth; ++column) {
    const int there = (Connect4::kBoardWidth - 1 - column) * connect4::kColumnBits;
    result.mover |= (board.mover >> column * connect4::kColumnBits & connect4::kColumn) << there;
    result.occupied |= (board.occupied >> column * connect4::kColumnBits & connect4::kColumn) << there;
  }
  return result;
}

int sign(int score) { return (score > 0) - (score < 0); }

// One MiB: entries of earlier positions are in the way of later ones all the time.
void test_equals_minimax(Random& random, int& num_bounds) {
  Solver solver(1);
  for (int round = 0; round < 2000; ++round) {
    const Board board = random_board(random, 31 + static_cast<int>(random() % 11));
    const int score = minimax(board);
    const std::string where = Connect4::to_string(board);
    require(solver.outcome(board) == sign(score), where + ": outcome");
    require(solver.score(board) == score, where + ": score");
    const std::uint64_t wins = connect4::winning_squares(board.mover, board.occupied);
    if ((wins & connect4::playable(board.occupied)) != 0) continue;
    const std::uint64_t threats = connect4::winning_squares(board.opponent(), board.occupied);
    const int bound = connect4::bound_by_parity(board.mover, board.occupied, threats);
    require(score <= bound, where + ": bound by parity");
    num_bounds += bound < connect4::kNoBound;
  }
}

// The game over the free squares, played out: each in turn takes one, the leader first; no pairs are made.
bool is_held_in_play(std::uint64_t leader, std::uint64_t free) {
  if (has_four(leader)) return false;
  for (std::uint64_t left = free; left != 0; left &= left - 1) {
    const std::uint64_t taken = left & -left, rest = free ^ taken;
    bool has_answer = false;
    for (std::uint64_t answers = rest; answers != 0 && !has_answer; answers &= answers - 1) {
      has_answer = is_held_in_play(leader | taken, rest ^ (answers & -answers));
    }
    if (!has_answer) return false;
  }
  return true;
}

void test_free_squares(Random& random) {
  int num_held = 0;
  for (int round = 0; round < 200000; ++round) {
    std::uint64_t sure = random() & random() & connect4::kBoard, free = 0;
    const int num_free = 2 + 2 * static_cast<int>(random() % 3);
    while (std::popcount(free) < num_free) free |= std::uint64_t{1} << random() % 49 & connect4::kBoard;
    sure &= ~free;
    if (!connect4::is_held(sure, free)) continue;
    num_held += has_four(sure | free);
    require(is_held_in_play(sure, free), "free squares " + std::to_string(free));
  }
  require(num_held > 200, "free squares that hold by pairs alone: " + std::to_string(num_held));
}

void test_moves_and_mirror(Random& random) {
  Solver solver(4);
  for (int round = 0; round < 40; ++round) {
    const Board board = random_board(random, 20 + static_cast<int>(random() % 20));
    const std::string where = Connect4::to_string(board);
    const int score = solver.score(board);
    require(Solver(1).score(mirrored(board)) == score, where + ": mirrored");
    const Solver::Values scores = solver.move_scores(board), outcomes = solver.move_outcomes(board);
    int best = -kSquares;
    for (Move column = 0; column < Connect4::kBoardWidth; ++column) {
      if (!Connect4::can_apply(board, column)) {
        require(scores[column] == Solver::kIllegal && outcomes[column] == Solver::kIllegal, where + ": full");
        continue;
      }
      require(outcomes[column] == sign(scores[column]), where + ": outcome of a move");
      best = std::max(best, scores[column]);
    }
    require(best == score, where + ": the best move has the position's score");
  }
}

}  // namespace

int main() {
  Random random(20);
  int num_bounds = 0;
  test_equals_minimax(random, num_bounds);
  require(num_bounds > 200, "parity bounds many positions: " + std::to_string(num_bounds));
  test_free_squares(random);
  test_moves_and_mirror(random);
  std::puts("solver: ok");
}
