// Connect Four on 7 columns and 6 rows, as a Game. A move is a column, 0 on the left.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "games/game.hpp"

namespace alphazero {

namespace connect4 {

// Seven bits a column, the seventh always empty, so that shifts never run from a column into the next:
// bit = column * 7 + row, row 0 at the bottom (Tromp's and Pons's layout).
struct Board {
  std::uint64_t mover = 0;  // stones of the side to move
  std::uint64_t occupied = 0;

  std::uint64_t opponent() const { return mover ^ occupied; }
  bool operator==(const Board&) const = default;
};

inline bool has_four(std::uint64_t stones) {
  std::uint64_t fours = 0;
  for (const int direction : {1, 6, 7, 8}) {  // up, down to the right, right, up to the right
    const std::uint64_t pairs = stones & stones >> direction;
    fours |= pairs & pairs >> 2 * direction;
  }
  return fours != 0;
}

}  // namespace connect4

struct Connect4 {
  using State = connect4::Board;

  static constexpr std::string_view kName = "connect4";
  static constexpr int kBoardHeight = 6;
  static constexpr int kBoardWidth = 7;
  static constexpr int kNumBitPlanes = 2;     // ours, theirs
  static constexpr int kNumScalarPlanes = 2;  // second player to move; ones, which show the edges
  static constexpr int kHistory = 1;
  static constexpr int kPolicySize = 7;
  static constexpr int kMaxLegalMoves = 7;
  static constexpr int kMaxPlies = 42;
  static constexpr bool kAlternates = true;
  static constexpr int kNumSymmetries = 2;  // 1: left and right change places

  static State turned(const State& state, int symmetry);
  static Move turned_move(Move column, int symmetry) {
    return static_cast<Move>(symmetry == 0 ? column : kBoardWidth - 1 - column);
  }
  static bool can_turn(const State&) { return true; }
  static State initial() { return {}; }
  // A board as grid_text.hpp writes it: "7/7/7/7/7/3x3". The stones must be able to lie so.
  static State from_string(std::string_view text);
  static std::string to_string(const State& state);
  static void legal(const State& state, std::vector<Move>& moves);
  static void apply(State& state, Move column);
  static bool can_apply(const State& state, Move column);
  static std::uint64_t hash(const State& state);
  static int can_repeat(const State&) { return 0; }
  static Outcome terminal(FrameSpan<State> line);
  static void encode(FrameSpan<State> line, HistoryFill fill, std::uint8_t* packed);
  static int move_to_index(const State&, Move column) { return column < kPolicySize ? column : -1; }
  static Move index_to_move(const State&, int index) { return static_cast<Move>(index); }
  // Columns are "1" to "7", as in Pons's test sets.
  static std::string move_to_string(const State& state, Move column);
  static Move move_from_string(const State& state, std::string_view text);
  static bool first_player_to_move(const State& state);
};

static_assert(Game<Connect4>);

}  // namespace alphazero
