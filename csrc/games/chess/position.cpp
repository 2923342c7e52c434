// Making moves and asking about them one at a time; listing them is movegen.cpp, text is fen.cpp.
#include "games/chess/position.hpp"

#include "games/chess/attacks.hpp"
#include "games/chess/zobrist.hpp"

namespace alphazero::chess {

using zobrist::kKeys;

namespace {

constexpr Bitboard kDarkSquares = 0xaa55aa55aa55aa55;

constexpr std::uint64_t castling_key(Bitboard rooks) {
  std::uint64_t key = 0;
  while (rooks) key ^= kKeys.castling_rook[pop_lowest(rooks)];
  return key;
}

}  // namespace

Position Position::initial() {
  static const Position start = from_fen("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1");
  return start;
}

void Position::place(Color color, PieceType type, Square square) {
  by_type_[type] |= bit(square);
  by_color_[color] |= bit(square);
}

Position Position::mirrored() const {
  const auto files_swapped = [](Bitboard squares) {
    squares = (squares >> 1 & 0x5555555555555555) | (squares & 0x5555555555555555) << 1;
    squares = (squares >> 2 & 0x3333333333333333) | (squares & 0x3333333333333333) << 2;
    return (squares >> 4 & 0x0F0F0F0F0F0F0F0F) | (squares & 0x0F0F0F0F0F0F0F0F) << 4;
  };
  Position swapped = *this;
  for (Bitboard& pieces : swapped.by_type_) pieces = files_swapped(pieces);
  for (Bitboard& pieces : swapped.by_color_) pieces = files_swapped(pieces);
  swapped.castling_rooks_ = 0;
  if (en_passant_ != kNoSquare) swapped.en_passant_ = en_passant_ ^ 7;
  swapped.key_ = swapped.compute_key();
  return swapped;
}

std::uint64_t Position::compute_key() const {
  std::uint64_t key = side_ == kBlack ? kKeys.black_to_move : 0;
  for (const Color color : {kWhite, kBlack}) {
    for (int type = kPawn; type <= kKing; ++type) {
      Bitboard rest = pieces(color, static_cast<PieceType>(type));
      while (rest) key ^= kKeys.piece[color][type][pop_lowest(rest)];
    }
  }
  key ^= castling_key(castling_rooks_);
  if (en_passant_ != kNoSquare) key ^= kKeys.en_passant[file_of(en_passant_)];
  return key;
}

Bitboard Position::attackers(Square square, Color color, Bitboard occupied_squares) const {
  const Bitboard diagonal = by_type_[kBishop] | by_type_[kQueen];
  const Bitboard straight = by_type_[kRook] | by_type_[kQueen];
  return by_color_[color] &
         ((knight_attacks(square) & by_type_[kKnight]) | (king_attacks(square) & by_type_[kKing]) |
          (pawn_attacks(opposite(color), square) & by_type_[kPawn]) |
          (bishop_attacks(square, occupied_squares) & diagonal) |
          (rook_attacks(square, occupied_squares) & straight));
}

bool Position::in_check() const { return attackers(king(side_), opposite(side_), occupied()) != 0; }

bool Position::is_safe(Square from, Square to) const {
  Bitboard removed = bit(from);
  if (to == en_passant_ && by_type_[kPawn] & bit(from)) removed |= bit(to ^ 8);
  const Bitboard occupied_after = (occupied() & ~removed) | bit(to);
  const Square king_after = by_type_[kKing] & bit(from) ? to : king(side_);
  return !(attackers(king_after, opposite(side_), occupied_after) & ~removed & ~bit(to));
}

void Position::offer_en_passant(Square target) {
  en_passant_ = target;  // is_safe asks for it
  Bitboard capturers = pawn_attacks(opposite(side_), target) & pieces(side_, kPawn);
  while (capturers) {
    if (is_safe(static_cast<Square>(pop_lowest(capturers)), target)) return;
  }
  en_passant_ = kNoSquare;
}

bool Position::can_castle(Color color, bool king_side) const {
  const Bitboard rooks = castling_rooks_ & by_color_[color];
  const Bitboard below_king = bit(king(color)) - 1;
  return (king_side ? rooks & ~below_king : rooks & below_king) != 0;
}

bool Position::is_castling_legal(Square rook) const {
  if (!(castling_rooks_ & by_color_[side_] & bit(rook))) return false;
  const Square from = king(side_);
  const int base = side_ == kWhite ? 0 : 56;
  const auto king_to = static_cast<Square>(base + (rook < from ? 2 : 6));
  const int rook_to = base + (rook < from ? 3 : 5);
  const Bitboard others = occupied() ^ bit(from) ^ bit(rook);
  Bitboard king_path = between(from, king_to) | bit(from);
  const Bitboard path = king_path | between(rook, rook_to) | bit(king_to) | bit(rook_to);
  if (others & path) return false;
  const Color them = opposite(side_);
  // While the king walks the rook stands where it was; on arrival the rook has jumped (Chess960: it
  // may have shielded the king).
  while (king_path) {
    if (attackers(static_cast<Square>(pop_lowest(king_path)), them, others | bit(rook))) return false;
  }
  return !attackers(king_to, them, others | bit(rook_to));
}

bool Position::is_capture(Move move) const {
  const Square to = to_square(move);
  return by_color_[opposite(side_)] & bit(to) ||
         (to == en_passant_ && by_type_[kPawn] & bit(from_square(move)));
}

bool Position::is_legal(Move move) const {
  const Square from = from_square(move);
  const Square to = to_square(move);
  const Promotion promotion = promotion_of(move);
  const Bitboard own = by_color_[side_];
  if (!(own & bit(from)) || promotion > kToQueen) return false;
  const PieceType piece = type_on(from);
  if (own & bit(to)) return piece == kKing && promotion == kNoPromotion && is_castling_legal(to);
  if (piece != kPawn) {
    if (promotion != kNoPromotion || !(piece_attacks(piece, from, occupied()) & bit(to))) return false;
    return is_safe(from, to);
  }
  const int up = side_ == kWhite ? 8 : -8;
  const bool last_rank = (bit(to) & back_rank(opposite(side_))) != 0;
  if ((promotion != kNoPromotion) != last_rank) return false;
  if (pawn_attacks(side_, from) & bit(to)) {
    return (by_color_[opposite(side_)] & bit(to) || to == en_passant_) && is_safe(from, to);
  }
  const bool single = to == from + up;
  const bool twice =
      to == from + 2 * up && rank_of(from) == (side_ == kWhite ? 1 : 6) && !(occupied() & bit(from + up));
  return (single || twice) && !(occupied() & bit(to)) && is_safe(from, to);
}

void Position::castle(Color us, Square from, Square rook) {
  const int base = us == kWhite ? 0 : 56;
  const int king_to = base + (rook < from ? 2 : 6);
  const int rook_to = base + (rook < from ? 3 : 5);
  // Both leave before either arrives: in Chess960 one may land where the other stood.
  by_type_[kKing] = (by_type_[kKing] ^ bit(from)) | bit(king_to);
  by_type_[kRook] = (by_type_[kRook] ^ bit(rook)) | bit(rook_to);
  by_color_[us] = (by_color_[us] ^ bit(from) ^ bit(rook)) | bit(king_to) | bit(rook_to);
  const auto& keys = kKeys.piece[us];
  key_ ^= keys[kKing][from] ^ keys[kKing][king_to] ^ keys[kRook][rook] ^ keys[kRook][rook_to];
}

void Position::apply(Move move) {
  const Square from = from_square(move);
  const Square to = to_square(move);
  const Color us = side_;
  const Color them = opposite(us);
  const PieceType piece = type_on(from);
  const Bitboard from_to = bit(from) | bit(to);
  const Square passed = en_passant_;

  key_ ^= kKeys.black_to_move;
  if (passed != kNoSquare) key_ ^= kKeys.en_passant[file_of(passed)];
  en_passant_ = kNoSquare;
  halfmove_clock_ += halfmove_clock_ < kMaxCounter;
  fullmove_number_ += us == kBlack && fullmove_number_ < kMaxCounter;
  side_ = them;

  Bitboard lost_rights = castling_rooks_ & from_to;
  if (piece == kKing) lost_rights |= castling_rooks_ & back_rank(us);
  if (lost_rights) {
    key_ ^= castling_key(lost_rights);
    castling_rooks_ ^= lost_rights;
  }

  if (by_color_[us] & bit(to)) {
    castle(us, from, to);
    return;
  }
  if (by_color_[them] & bit(to)) {
    const PieceType captured = type_on(to);
    by_type_[captured] ^= bit(to);
    by_color_[them] ^= bit(to);
    key_ ^= kKeys.piece[them][captured][to];
    halfmove_clock_ = 0;
  }
  by_color_[us] ^= from_to;
  by_type_[piece] ^= from_to;
  key_ ^= kKeys.piece[us][piece][from] ^ kKeys.piece[us][piece][to];
  if (piece != kPawn) return;

  halfmove_clock_ = 0;
  if (const Promotion promotion = promotion_of(move)) {  // kToKnight is kKnight, and so on
    by_type_[kPawn] ^= bit(to);
    by_type_[promotion] ^= bit(to);
    key_ ^= kKeys.piece[us][kPawn][to] ^ kKeys.piece[us][promotion][to];
  } else if (to == passed) {
    const int victim = to ^ 8;
    by_type_[kPawn] ^= bit(victim);
    by_color_[them] ^= bit(victim);
    key_ ^= kKeys.piece[them][kPawn][victim];
  } else if ((from ^ to) == 16) {
    offer_en_passant(static_cast<Square>((from + to) / 2));
    if (en_passant_ != kNoSquare) key_ ^= kKeys.en_passant[file_of(to)];
  }
}

CheckingMoves::CheckingMoves(const Position& position) : position_(position) {
  const Color us = position.side_to_move();
  const Square target = position.king(opposite(us));
  const Bitboard occupied = position.occupied();
  const Bitboard diagonal = bishop_attacks(target, occupied);
  const Bitboard straight = rook_attacks(target, occupied);
  checks_ = {
      pawn_attacks(opposite(us), target), knight_attacks(target), diagonal, straight, diagonal | straight, 0};
  // Castling moves a rook, en passant takes a piece off another square; whatever stands next to a line of
  // sight may open it.
  unmasking_ = ((diagonal | straight) & position.pieces(us)) | position.pieces(us, kKing);
  if (position.en_passant() != kNoSquare) unmasking_ |= position.pieces(us, kPawn);
}

bool Position::insufficient_material() const {
  if (by_type_[kPawn] | by_type_[kRook] | by_type_[kQueen]) return false;
  const Bitboard knights = by_type_[kKnight];
  const Bitboard bishops = by_type_[kBishop];
  // A knight helps a mate against any other minor piece; bishops of one square colour never mate.
  if (knights) return !bishops && count(knights) == 1;
  return !(bishops & kDarkSquares) || !(bishops & ~kDarkSquares);
}

}  // namespace alphazero::chess
