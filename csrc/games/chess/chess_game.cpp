#include "games/chess/chess_game.hpp"

#include "base/error.hpp"
#include "games/chess/notation.hpp"

namespace alphazero {

using namespace chess;

namespace {

// Every rule for pawns but the safety of the king: a pawn that moves otherwise could leave an en passant
// square with a piece on it, or stand on a back rank.
bool pawn_may_move(const Position& state, Move move) {
  const int from = from_square(move);
  const int to = to_square(move);
  const Color us = state.side_to_move();
  const int forward = us == kWhite ? 8 : -8;
  if ((to < 8 || to >= 56) != (promotion_of(move) != kNoPromotion)) return false;
  const Bitboard target = Bitboard{1} << to;
  if (to == from + forward) return (state.occupied() & target) == 0;
  if (to == from + 2 * forward) {
    const Bitboard path = target | Bitboard{1} << (from + forward);
    return from >> 3 == (us == kWhite ? 1 : 6) && (state.occupied() & path) == 0;
  }
  const int side_step = to - from - forward;
  const bool is_capture = (side_step == 1 && (from & 7) != 7) || (side_step == -1 && (from & 7) != 0);
  return is_capture && (to == state.en_passant() || (state.occupied() & target) != 0);
}

}  // namespace

bool Chess::can_apply(const State& state, Move move) {
  const Square from = from_square(move);
  const Square to = to_square(move);
  const Color us = state.side_to_move();
  const Bitboard ours = state.pieces(us);
  if ((ours >> from & 1) == 0 || promotion_of(move) > kToQueen) return false;
  if (to == state.king(kWhite) || to == state.king(kBlack)) return false;
  // Castling alone moves two pieces to squares that the move does not name.
  if ((ours >> to & 1) != 0) return state.is_castling(move) && state.is_legal(move);
  if ((state.pieces(us, kPawn) >> from & 1) != 0) return pawn_may_move(state, move);
  return promotion_of(move) == kNoPromotion;
}

Outcome Chess::terminal(FrameSpan<State> line, bool has_legal_move) {
  const Frame<State>& last = line.back();
  if (!has_legal_move) {
    if (last.state.in_check()) return {Termination::kWin, -1};
    return {Termination::kStalemate, 0};
  }
  if (last.repetitions >= 2) return {Termination::kRepetition, 0};
  if (last.state.halfmove_clock() >= 100) return {Termination::kFiftyMoves, 0};
  if (last.state.insufficient_material()) return {Termination::kInsufficientMaterial, 0};
  return {};
}

std::string Chess::move_to_string(const State& state, Move move) { return to_uci(state, move); }

Move Chess::move_from_string(const State& state, std::string_view text) {
  const Move move = parse_uci(state, text);
  if (move == 0) {
    throw GameError("'" + std::string(text) + "': no legal move in '" + state.fen() +
                    "'; expected UCI such as e2e4, e7e8q, e1g1");
  }
  return move;
}

}  // namespace alphazero
