#include "games/tictactoe/tictactoe.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "games/grid_text.hpp"
#include "games/square_board.hpp"

namespace alphazero {
namespace {

using tictactoe::has_three;

constexpr std::uint16_t kFullBoard = 0777;
constexpr std::array<std::uint16_t, 8> kLines = {0007, 0070, 0700, 0111, 0222, 0444, 0421, 0124};

}  // namespace

bool tictactoe::has_three(std::uint16_t stones) {
  for (const std::uint16_t line : kLines) {
    if ((stones & line) == line) return true;
  }
  return false;
}

Move TicTacToe::turned_move(Move square, int symmetry) {
  return static_cast<Move>(turned_square(square, kBoardWidth, symmetry));
}

TicTacToe::State TicTacToe::turned(const State& state, int symmetry) {
  State turned;
  for (Move square = 0; square < kPolicySize; ++square) {
    const Move to = turned_move(square, symmetry);
    turned.mover |= static_cast<std::uint16_t>((state.mover >> square & 1) << to);
    turned.opponent |= static_cast<std::uint16_t>((state.opponent >> square & 1) << to);
  }
  return turned;
}

TicTacToe::State TicTacToe::from_string(std::string_view text) {
  const Grid grid = parse_grid_of_turns(text, kBoardHeight, kBoardWidth);
  State state{static_cast<std::uint16_t>(grid.first), static_cast<std::uint16_t>(grid.second)};
  if (!first_player_to_move(state)) std::swap(state.mover, state.opponent);
  if (has_three(state.mover)) {
    throw GameError("board '" + std::string(text) + "': the side to move already has three in a row");
  }
  return state;
}

std::string TicTacToe::to_string(const State& state) {
  const bool first_moves = first_player_to_move(state);
  const Grid grid = first_moves ? Grid{state.mover, state.opponent} : Grid{state.opponent, state.mover};
  return format_grid(grid, kBoardHeight, kBoardWidth);
}

void TicTacToe::legal(const State& state, std::vector<Move>& moves) {
  moves.clear();
  if (has_three(state.opponent)) return;
  for (Move square = 0; square < kPolicySize; ++square) {
    if (can_apply(state, square)) moves.push_back(square);
  }
}

void TicTacToe::apply(State& state, Move square) {
  const std::uint16_t moved = static_cast<std::uint16_t>(state.mover | 1 << square);
  state = {state.opponent, moved};
}

bool TicTacToe::can_apply(const State& state, Move square) {
  return square < kPolicySize && (state.occupied() >> square & 1) == 0;
}

std::uint64_t TicTacToe::hash(const State& state) {
  // Which stones are the first player's follows from their number.
  return mix64(std::uint64_t{state.mover} | std::uint64_t{state.opponent} << 16);
}

Outcome TicTacToe::terminal(FrameSpan<State> line) {
  const State& state = line.back().state;
  if (has_three(state.opponent)) return {Termination::kWin, -1};
  if (state.occupied() == kFullBoard) return {Termination::kBoardFull, 0};
  return {};
}

void TicTacToe::encode(FrameSpan<State> line, HistoryFill, std::uint8_t* packed) {
  const State& state = line.back().state;
  const std::uint64_t planes[kNumBitPlanes] = {state.mover, state.opponent};
  std::memcpy(packed, planes, sizeof planes);
  packed[sizeof planes] = first_player_to_move(state) ? 0 : 1;
  packed[sizeof planes + 1] = 1;
}

std::string TicTacToe::move_to_string(const State&, Move square) {
  return {static_cast<char>('a' + square % 3), static_cast<char>('1' + square / 3)};
}

Move TicTacToe::move_from_string(const State& state, std::string_view text) {
  const bool is_square =
      text.size() == 2 && text[0] >= 'a' && text[0] <= 'c' && text[1] >= '1' && text[1] <= '3';
  if (!is_square) throw GameError("'" + std::string(text) + "': expected a square from a1 to c3");
  const Move square = static_cast<Move>((text[1] - '1') * 3 + text[0] - 'a');
  if (!can_apply(state, square) || has_three(state.opponent)) {
    throw GameError("'" + std::string(text) + "': no legal move in '" + to_string(state) + "'");
  }
  return square;
}

bool TicTacToe::first_player_to_move(const State& state) { return std::popcount(state.occupied()) % 2 == 0; }

}  // namespace alphazero
