// Tic-tac-toe as a Game: small enough to test everything by counting. A move is a square, row * 3 + column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "games/game.hpp"

namespace alphazero {

namespace tictactoe {

// bit = row * 3 + column, row 0 at the bottom.
struct Board {
  std::uint16_t mover = 0;  // stones of the side to move
  std::uint16_t opponent = 0;

  std::uint16_t occupied() const { return mover | opponent; }
  bool operator==(const Board&) const = default;
};

bool has_three(std::uint16_t stones);

}  // namespace tictactoe

struct TicTacToe {
  using State = tictactoe::Board;

  static constexpr std::string_view kName = "tictactoe";
  static constexpr int kBoardHeight = 3;
  static constexpr int kBoardWidth = 3;
  static constexpr int kNumBitPlanes = 2;     // ours, theirs
  static constexpr int kNumScalarPlanes = 2;  // second player to move; ones, which show the edges
  static constexpr int kHistory = 1;
  static constexpr int kPolicySize = 9;
  static constexpr int kMaxLegalMoves = 9;
  static constexpr int kMaxPlies = 9;
  static constexpr bool kAlternates = true;
  // A mirror image where bit 2 is set, after as many quarter turns as bits 0 and 1 say.
  static constexpr int kNumSymmetries = 8;

  static State turned(const State& state, int symmetry);
  static Move turned_move(Move square, int symmetry);
  static bool can_turn(const State&) { return true; }
  static State initial() { return {}; }
  // A board as grid_text.hpp writes it: "3/1x1/3".
  static State from_string(std::string_view text);
  static std::string to_string(const State& state);
  static void legal(const State& state, std::vector<Move>& moves);
  static void apply(State& state, Move square);
  static bool can_apply(const State& state, Move square);
  static std::uint64_t hash(const State& state);
  static int can_repeat(const State&) { return 0; }
  static Outcome terminal(FrameSpan<State> line);
  static void encode(FrameSpan<State> line, HistoryFill fill, std::uint8_t* packed);
  static int move_to_index(const State&, Move square) { return square < kPolicySize ? square : -1; }
  static Move index_to_move(const State&, int index) { return static_cast<Move>(index); }
  // Squares are "a1" (bottom left) to "c3".
  static std::string move_to_string(const State& state, Move square);
  static Move move_from_string(const State& state, std::string_view text);
  static bool first_player_to_move(const State& state);
};

static_assert(Game<TicTacToe>);

}  // namespace alphazero
