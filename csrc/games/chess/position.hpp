// A chess position: placement, rights, counters; legal moves, make, FEN. Chess960 throughout.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "games/game.hpp"

namespace alphazero::chess {

using Bitboard = std::uint64_t;  // bit = rank * 8 + file, a1 = 0, h8 = 63
using Square = std::uint8_t;
constexpr Square kNoSquare = 64;

enum Color : std::uint8_t { kWhite = 0, kBlack = 1 };
enum PieceType : std::uint8_t { kPawn = 0, kKnight, kBishop, kRook, kQueen, kKing, kNoPiece };
enum Promotion : std::uint8_t { kNoPromotion = 0, kToKnight, kToBishop, kToRook, kToQueen };

constexpr Move make_move(int from, int to, int promotion = kNoPromotion) {
  return static_cast<Move>(from | to << 6 | promotion << 12);
}
constexpr Square from_square(Move move) { return move & 63; }
constexpr Square to_square(Move move) { return move >> 6 & 63; }
constexpr Promotion promotion_of(Move move) { return static_cast<Promotion>(move >> 12); }

// The half-move clock and the move number stop here, in a FEN and in play.
constexpr std::uint16_t kMaxCounter = 32767;

class Position {
 public:
  // Empty board, white to move; use initial() or from_fen().
  Position() = default;

  static Position initial();
  // FEN with four to six fields; castling as KQkq, X-FEN or Shredder-FEN. Throws GameError naming the
  // field, the value got and the value expected for text that is no position, or one that cannot be
  // played: not one king a side, more than 16 pieces or 8 pawns a side, pawns on the back ranks, more
  // pieces of a kind than 8 pawns can have become, the side to move able to take the king. Play keeps it
  // so, and that bounds the legal moves (Chess::kMaxLegalMoves). As python-chess does when it writes a FEN,
  // castling rights without king and rook in place and en passant squares without a legal capture are
  // dropped.
  static Position from_fen(std::string_view fen);
  // As python-chess's board.fen(): en passant only when a legal capture exists; castling as KQkq
  // where the rook is the outermost, else X-FEN file letters (python-chess: en_passant="legal").
  std::string fen() const;

  // Clears `moves` and fills it with all legal moves, in a fixed order that depends on the position alone.
  void legal_moves(std::vector<Move>& moves) const;
  int num_legal_moves() const;  // without listing them
  // Where each piece of the side to move can go, by the square it stands on; the king also to the rooks that
  // he may castle with. Nothing is written of other squares. False: no move is legal.
  bool legal_targets(std::array<Bitboard, 64>& targets) const;
  bool has_legal_move() const;
  bool is_legal(Move move) const;  // any 16 bits
  void apply(Move move);           // must be legal
  // Files a to h swapped with h to a; nobody may castle then.
  Position mirrored() const;
  bool in_check() const;
  bool insufficient_material() const;  // as python-chess's is_insufficient_material()

  // Zobrist key over placement, side, castling rights, and en passant only when a legal capture
  // exists (python-chess's transposition key). Equal keys = repeated position.
  std::uint64_t key() const { return key_; }

  Color side_to_move() const { return side_; }
  int halfmove_clock() const { return halfmove_clock_; }
  int fullmove_number() const { return fullmove_number_; }
  Bitboard pieces(Color color, PieceType type) const { return by_color_[color] & by_type_[type]; }
  Bitboard pieces(Color color) const { return by_color_[color]; }
  Bitboard pieces(PieceType type) const { return by_type_[type]; }
  Bitboard occupied() const { return by_color_[0] | by_color_[1]; }
  PieceType type_on(Square square) const {
    // Free of branches: what stands on a square is not predictable.
    const auto on = [&](PieceType type) { return static_cast<unsigned>(by_type_[type] >> square & 1); };
    const unsigned empty = ~occupied() >> square & 1;
    return static_cast<PieceType>(on(kKnight) + 2 * on(kBishop) + 3 * on(kRook) + 4 * on(kQueen) +
                                  5 * on(kKing) + 6 * empty);
  }
  Square king(Color color) const {
    return static_cast<Square>(std::countr_zero(by_color_[color] & by_type_[kKing]));
  }
  // Rooks that may still castle, both colours.
  Bitboard castling_rooks() const { return castling_rooks_; }
  bool can_castle(Color color, bool king_side) const;  // the right alone, whatever stands between
  // The square behind the last double push if it can legally be captured there, else kNoSquare.
  Square en_passant() const { return en_passant_; }
  bool is_castling(Move move) const {  // king takes own rook
    return by_color_[side_] >> to_square(move) & 1 && by_type_[kKing] >> from_square(move) & 1;
  }
  bool is_capture(Move move) const;

  // Pieces of `color` that attack `square`, were `occupied` the occupied squares.
  Bitboard attackers(Square square, Color color, Bitboard occupied) const;
  // Whether a move that the pieces can make (castling aside) leaves the own king out of check.
  bool is_safe(Square from, Square to) const;
  // Whether the king of the side to move may castle with the rook on `rook`, now.
  bool is_castling_legal(Square rook) const;

  bool operator==(const Position&) const = default;

 private:
  void place(Color color, PieceType type, Square square);
  void read_board(std::string_view fen, std::string_view field);
  void check_material(std::string_view fen) const;
  void read_castling(std::string_view fen, std::string_view field);
  void read_en_passant(std::string_view fen, std::string_view field);
  Bitboard castling_rights_in_place(Bitboard rooks) const;
  void offer_en_passant(Square target);  // kept only if the side to move can legally capture there
  void append_castling(std::string& text) const;
  std::uint64_t compute_key() const;
  void castle(Color us, Square from, Square rook);  // placement and its part of the key

  std::array<Bitboard, 6> by_type_{};
  std::array<Bitboard, 2> by_color_{};
  Bitboard castling_rooks_ = 0;
  std::uint64_t key_ = 0;
  std::uint16_t halfmove_clock_ = 0;
  std::uint16_t fullmove_number_ = 1;
  Square en_passant_ = kNoSquare;
  Color side_ = kWhite;
};

// Which moves of a position can give check: false only for one that does not.
class CheckingMoves {
 public:
  explicit CheckingMoves(const Position& position);
  bool operator()(Move move) const {
    const Bitboard from = Bitboard{1} << from_square(move);
    return promotion_of(move) != kNoPromotion || (from & unmasking_) != 0 ||
           (checks_[position_.type_on(from_square(move))] >> to_square(move) & 1) != 0;
  }

 private:
  const Position& position_;
  std::array<Bitboard, 6> checks_{};  // by kind of piece: where it gives check
  Bitboard unmasking_ = 0;            // pieces whose moves may give check in another way
};

// Leaves of the tree of legal moves `depth` plies deep.
std::uint64_t perft(const Position& position, int depth);

}  // namespace alphazero::chess
