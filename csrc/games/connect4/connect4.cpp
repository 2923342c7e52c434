#include "games/connect4/connect4.hpp"

#include <bit>
#include <cstring>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "games/grid_text.hpp"

namespace alphazero {
namespace {

using connect4::has_four;

constexpr int kColumnBits = 7;
constexpr std::uint64_t kBottomRow = 0x40810204081;  // bits 0, 7, 14 ... 42
constexpr std::uint64_t kColumn = 0x3F;
constexpr std::uint64_t kAllSquares = kBottomRow * kColumn;

// Column-major stones of connect4::Board as bit = row * 7 + column.
std::uint64_t to_rows(std::uint64_t stones) {
  std::uint64_t rows = 0;
  for (int column = 0; column < Connect4::kBoardWidth; ++column) {
    // Bit i of the column goes to bit 7 i: six copies 6 bits apart, of which the i-th gives its bit i.
    const std::uint64_t column_bits = stones >> (column * kColumnBits) & kColumn;
    rows |= (column_bits * 0x41041041 & 0x810204081) << column;
  }
  return rows;
}

std::uint64_t from_rows(std::uint64_t rows) {
  std::uint64_t stones = 0;
  for (int column = 0; column < Connect4::kBoardWidth; ++column) {
    for (int row = 0; row < Connect4::kBoardHeight; ++row) {
      stones |= (rows >> (row * Connect4::kBoardWidth + column) & 1) << (column * kColumnBits + row);
    }
  }
  return stones;
}

}  // namespace

Connect4::State Connect4::turned(const State& state, int symmetry) {
  if (symmetry == 0) return state;
  State mirrored;
  for (int column = 0; column < kBoardWidth; ++column) {
    const int from = column * kColumnBits;
    const int to = (kBoardWidth - 1 - column) * kColumnBits;
    mirrored.mover |= (state.mover >> from & kColumn) << to;
    mirrored.occupied |= (state.occupied >> from & kColumn) << to;
  }
  return mirrored;
}

Connect4::State Connect4::from_string(std::string_view text) {
  const Grid grid = parse_grid_of_turns(text, kBoardHeight, kBoardWidth);
  const std::uint64_t first = from_rows(grid.first);
  const std::uint64_t second = from_rows(grid.second);
  const bool first_moves = std::popcount(first) == std::popcount(second);
  const State state{first_moves ? first : second, first | second};
  // A column without gaps plus its bottom bit is a single bit.
  if (((state.occupied + kBottomRow) & state.occupied) != 0) {
    throw GameError("board '" + std::string(text) + "': a stone hangs in the air");
  }
  if (has_four(state.mover)) {
    throw GameError("board '" + std::string(text) + "': the side to move already has four in a row");
  }
  return state;
}

std::string Connect4::to_string(const State& state) {
  const bool first_moves = first_player_to_move(state);
  const std::uint64_t mover = to_rows(state.mover);
  const std::uint64_t opponent = to_rows(state.opponent());
  return format_grid(first_moves ? Grid{mover, opponent} : Grid{opponent, mover}, kBoardHeight, kBoardWidth);
}

void Connect4::legal(const State& state, std::vector<Move>& moves) {
  moves.clear();
  if (has_four(state.opponent())) return;
  for (Move column = 0; column < kBoardWidth; ++column) {
    if (can_apply(state, column)) moves.push_back(column);
  }
}

void Connect4::apply(State& state, Move column) {
  state.mover = state.opponent();
  state.occupied |= state.occupied + (std::uint64_t{1} << (column * kColumnBits));
}

bool Connect4::can_apply(const State& state, Move column) {
  if (column >= kBoardWidth) return false;
  return (state.occupied >> (column * kColumnBits + kBoardHeight - 1) & 1) == 0;
}

std::uint64_t Connect4::hash(const State& state) {
  // mover + occupied + bottom row names a board (Pons); mixing is one to one.
  return mix64(state.mover + state.occupied + kBottomRow);
}

Outcome Connect4::terminal(FrameSpan<State> line) {
  const State& state = line.back().state;
  if (has_four(state.opponent())) return {Termination::kWin, -1};
  if (state.occupied == kAllSquares) return {Termination::kBoardFull, 0};
  return {};
}

void Connect4::encode(FrameSpan<State> line, HistoryFill, std::uint8_t* packed) {
  const State& state = line.back().state;
  const std::uint64_t planes[kNumBitPlanes] = {to_rows(state.mover), to_rows(state.opponent())};
  std::memcpy(packed, planes, sizeof planes);
  packed[sizeof planes] = first_player_to_move(state) ? 0 : 1;
  packed[sizeof planes + 1] = 1;
}

std::string Connect4::move_to_string(const State&, Move column) { return std::to_string(column + 1); }

Move Connect4::move_from_string(const State& state, std::string_view text) {
  const bool is_column = text.size() == 1 && text[0] >= '1' && text[0] <= '7';
  if (!is_column) throw GameError("'" + std::string(text) + "': expected a column from 1 to 7");
  const Move column = static_cast<Move>(text[0] - '1');
  if (!can_apply(state, column) || has_four(state.opponent())) {
    throw GameError("'" + std::string(text) + "': no legal move in '" + to_string(state) + "'");
  }
  return column;
}

bool Connect4::first_player_to_move(const State& state) { return std::popcount(state.occupied) % 2 == 0; }

}  // namespace alphazero
