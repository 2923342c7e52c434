// Chess as a Game: the rules of position.hpp, lc0's encoding, the order in which games end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "games/chess/lc0_encoding.hpp"
#include "games/chess/position.hpp"
#include "games/game.hpp"

namespace alphazero {

struct Chess {
  using State = chess::Position;

  static constexpr std::string_view kName = "chess";
  static constexpr int kBoardHeight = 8;
  static constexpr int kBoardWidth = 8;
  static constexpr int kNumBitPlanes = chess::kEncodedPositions * chess::kPlanesPerPosition;
  static constexpr int kNumScalarPlanes = 8;
  static constexpr int kHistory = chess::kEncodedPositions;
  static constexpr int kPolicySize = chess::kNumPolicyMoves;
  // Petrovic 1964, the most that 8 promotions allow; from_fen refuses boards with more.
  static constexpr int kMaxLegalMoves = 218;
  static constexpr int kMaxPlies = 11800;  // fifty moves end every game before move 5,900
  static constexpr bool kAlternates = true;
  static constexpr int kNumSymmetries = 2;  // 1: left and right swapped

  static State turned(const State& state, int symmetry) { return symmetry == 0 ? state : state.mirrored(); }
  static Move turned_move(Move move, int symmetry) {
    return symmetry == 0 ? move : static_cast<Move>(move ^ chess::make_move(7, 7));
  }
  // Castling alone knows left from right.
  static bool can_turn(const State& state) { return state.castling_rooks() == 0; }
  static State initial() { return State::initial(); }
  static State from_string(std::string_view fen) { return State::from_fen(fen); }
  static std::string to_string(const State& state) { return state.fen(); }
  static void legal(const State& state, std::vector<Move>& moves) { state.legal_moves(moves); }
  static void apply(State& state, Move move) { state.apply(move); }
  static bool can_apply(const State& state, Move move);
  static std::uint64_t hash(const State& state) { return state.key(); }
  static int can_repeat(const State& state) { return state.halfmove_clock(); }

  // Checkmate and stalemate, then threefold repetition, fifty moves, insufficient material.
  static Outcome terminal(FrameSpan<State> line) {
    return terminal(line, line.back().state.has_legal_move());
  }
  static Outcome terminal(FrameSpan<State> line, bool has_legal_move);
  using MayWin = chess::CheckingMoves;  // no mate without check

  static void encode(FrameSpan<State> line, HistoryFill fill, std::uint8_t* packed) {
    chess::encode_planes(line, fill, packed);
  }
  static int move_to_index(const State& state, Move move) {
    return chess::policy_index(move, state.side_to_move());
  }
  static void legal_indices(const State& state, std::vector<std::uint16_t>& indices) {
    chess::legal_policy_indices(state, indices);
  }
  static Move index_to_move(const State& state, int index) { return chess::policy_move(state, index); }

  // UCI; castling is e1g1 from the standard squares, else king takes rook. Both are read.
  static std::string move_to_string(const State& state, Move move);
  static Move move_from_string(const State& state, std::string_view text);

  static bool first_player_to_move(const State& state) { return state.side_to_move() == chess::kWhite; }
};

static_assert(Game<Chess>);

}  // namespace alphazero
