// Othello on 8 by 8 squares, as a Game. A move is a square, or a pass where no square can be taken.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "games/game.hpp"

namespace alphazero {

namespace othello {

// bit = row * 8 + column: a1 is bit 0, h8 bit 63. A pass leaves the stones and turns the player, so who moves
// does not follow from their number.
struct Board {
  std::uint64_t mover = 0;  // stones of the side to move
  std::uint64_t opponent = 0;
  bool first_moves = true;

  std::uint64_t occupied() const { return mover | opponent; }
  bool operator==(const Board&) const = default;
};

// Squares that the mover may take.
std::uint64_t targets(std::uint64_t mover, std::uint64_t opponent);
// The opponent's stones that turn over when the mover takes the square.
std::uint64_t flips(std::uint64_t mover, std::uint64_t opponent, int square);

}  // namespace othello

struct Othello {
  using State = othello::Board;

  static constexpr std::string_view kName = "othello";
  static constexpr int kBoardHeight = 8;
  static constexpr int kBoardWidth = 8;
  static constexpr int kNumBitPlanes = 2;     // ours, theirs
  static constexpr int kNumScalarPlanes = 2;  // second player to move; ones, which show the edges
  static constexpr int kHistory = 1;
  static constexpr Move kPass = 64;
  static constexpr int kPolicySize = 65;
  static constexpr int kMaxLegalMoves = 60;  // all but the four squares in the middle, which are never empty
  static constexpr int kMaxPlies = 120;      // 60 stones, and never two passes in a row
  static constexpr bool kAlternates = true;
  static constexpr int kNumSymmetries = 8;

  static State turned(const State& state, int symmetry);
  static Move turned_move(Move move, int symmetry);
  static bool can_turn(const State&) { return true; }
  static State initial();
  // A board as grid_text.hpp writes it and who moves: "8/8/8/3xo3/3ox3/8/8/8 x". Ranks from 8 to 1.
  static State from_string(std::string_view text);
  static std::string to_string(const State& state);
  static void legal(const State& state, std::vector<Move>& moves);
  static void apply(State& state, Move move);
  static bool can_apply(const State& state, Move move);
  static std::uint64_t hash(const State& state);
  static int can_repeat(const State&) { return 0; }
  static Outcome terminal(FrameSpan<State> line);
  static void encode(FrameSpan<State> line, HistoryFill fill, std::uint8_t* packed);
  static int move_to_index(const State&, Move move) { return move < kPolicySize ? move : -1; }
  static Move index_to_move(const State&, int index) { return static_cast<Move>(index); }
  // "a1" to "h8", "pass".
  static std::string move_to_string(const State& state, Move move);
  static Move move_from_string(const State& state, std::string_view text);
  static bool first_player_to_move(const State& state) { return state.first_moves; }
};

static_assert(Game<Othello>);

}  // namespace alphazero
