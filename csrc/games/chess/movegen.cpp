// All legal moves of a position, listed or only counted, and perft.
//
// Moves come out legal: pinned pieces stay on the line of their pin, everything else lands where it
// ends a check, the king avoids what the enemy attacks once the king is lifted off the board.
#include <algorithm>

#include "games/chess/attacks.hpp"
#include "games/chess/position.hpp"

namespace alphazero::chess {

namespace {

// More than 16 pieces of whatever kind can have: 15 queens of 27 moves each and a king.
constexpr int kMoveCapacity = 512;

// What the generator hands its moves to.
class MoveWriter {
 public:
  explicit MoveWriter(Move* out) : out_(out) {}
  void piece(int from, Bitboard targets) {
    while (targets) *out_++ = make_move(from, pop_lowest(targets));
  }
  // Pawn moves by target: each came from `to - step`.
  void pawns(int step, Bitboard targets) {
    while (targets) {
      const int to = pop_lowest(targets);
      *out_++ = make_move(to - step, to);
    }
  }
  void promotions(int step, Bitboard targets) {
    while (targets) {
      const int to = pop_lowest(targets);
      for (int promotion = kToKnight; promotion <= kToQueen; ++promotion) {
        *out_++ = make_move(to - step, to, promotion);
      }
    }
  }
  Move* end() const { return out_; }

 private:
  Move* out_;
};

class MoveCounter {
 public:
  void piece(int, Bitboard targets) { total_ += count(targets); }
  void pawns(int, Bitboard targets) { total_ += count(targets); }
  void promotions(int, Bitboard targets) { total_ += 4 * count(targets); }
  int total() const { return total_; }

 private:
  int total_ = 0;
};

class TargetWriter {
 public:
  explicit TargetWriter(std::array<Bitboard, 64>& targets) : targets_(targets) {}
  void piece(int from, Bitboard targets) { targets_[from] |= targets; }
  void pawns(int step, Bitboard targets) {
    while (targets) {
      const int to = pop_lowest(targets);
      targets_[to - step] |= bit(to);
    }
  }
  void promotions(int step, Bitboard targets) { pawns(step, targets); }

 private:
  std::array<Bitboard, 64>& targets_;
};

struct Pin {
  int square;
  Bitboard line;  // where the pinned piece may stand: from beside the king to the pinner
};

// Checks and pins of the side to move.
struct KingDanger {
  Bitboard checkers = 0;
  Bitboard pinned = 0;
  std::array<Pin, 8> pins;  // one a direction at most
  int num_pins = 0;
};

template <Color Us>
KingDanger find_king_danger(const Position& position, int king) {
  constexpr Color kThem = opposite(Us);
  KingDanger danger;
  const Bitboard enemies = position.pieces(kThem);
  const Bitboard queens = position.pieces(kQueen);
  danger.checkers = enemies & ((knight_attacks(king) & position.pieces(kKnight)) |
                               (pawn_attacks(Us, king) & position.pieces(kPawn)));
  // Sliders that would see the king if our own pieces were not there.
  Bitboard snipers = enemies & ((bishop_attacks(king, enemies) & (position.pieces(kBishop) | queens)) |
                                (rook_attacks(king, enemies) & (position.pieces(kRook) | queens)));
  while (snipers) {
    const int sniper = pop_lowest(snipers);
    const Bitboard shield = between(king, sniper) & position.pieces(Us);
    if (!shield) {
      danger.checkers |= bit(sniper);
    } else if (!(shield & (shield - 1))) {
      danger.pinned |= shield;
      danger.pins[danger.num_pins++] = {lowest(shield), between(king, sniper) | bit(sniper)};
    }
  }
  return danger;
}

template <Color Color_>
constexpr Bitboard shift_up(Bitboard board) {
  return Color_ == kWhite ? board << 8 : board >> 8;
}
// Towards file a and towards file h, one rank up.
template <Color Color_>
constexpr Bitboard shift_up_a(Bitboard board) {
  return shift_up<Color_>((board & ~kFileA) >> 1);
}
template <Color Color_>
constexpr Bitboard shift_up_h(Bitboard board) {
  return shift_up<Color_>((board & ~kFileH) << 1);
}

// Squares the enemy attacks once our king is lifted off (it cannot hide behind itself).
template <Color Them>
Bitboard attacked_squares(const Position& position, Bitboard occupied) {
  const Bitboard pawns = position.pieces(Them, kPawn);
  Bitboard attacked = shift_up_a<Them>(pawns) | shift_up_h<Them>(pawns) | king_attacks(position.king(Them));
  const Bitboard queens = position.pieces(Them, kQueen);
  Bitboard knights = position.pieces(Them, kKnight);
  while (knights) attacked |= knight_attacks(pop_lowest(knights));
  Bitboard diagonal = position.pieces(Them, kBishop) | queens;
  while (diagonal) attacked |= bishop_attacks(pop_lowest(diagonal), occupied);
  Bitboard straight = position.pieces(Them, kRook) | queens;
  while (straight) attacked |= rook_attacks(pop_lowest(straight), occupied);
  return attacked;
}

template <Color Us, typename Sink>
void king_moves(const Position& position, int king, Sink& sink) {
  Bitboard targets = king_attacks(king) & ~position.pieces(Us);
  if (targets) targets &= ~attacked_squares<opposite(Us)>(position, position.occupied() ^ bit(king));
  sink.piece(king, targets);
}

// Moves of `pawns` (some or one) that land on `allowed`, en passant aside.
template <Color Us, typename Sink>
void pawn_moves(const Position& position, Bitboard pawns, Bitboard allowed, Sink& sink) {
  constexpr int kUp = Us == kWhite ? 8 : -8;
  constexpr Bitboard kThirdRank = rank_mask(Us == kWhite ? 2 : 5);
  constexpr Bitboard kLastRank = back_rank(opposite(Us));
  const Bitboard empty = ~position.occupied();
  const Bitboard captures = position.pieces(opposite(Us)) & allowed;
  const Bitboard single = shift_up<Us>(pawns) & empty;
  const Bitboard twice = shift_up<Us>(single & kThirdRank) & empty & allowed;
  const Bitboard towards_a = shift_up_a<Us>(pawns) & captures;
  const Bitboard towards_h = shift_up_h<Us>(pawns) & captures;
  const Bitboard ahead = single & allowed;
  sink.pawns(kUp, ahead & ~kLastRank);
  sink.pawns(2 * kUp, twice);
  sink.pawns(kUp - 1, towards_a & ~kLastRank);
  sink.pawns(kUp + 1, towards_h & ~kLastRank);
  if ((ahead | towards_a | towards_h) & kLastRank) {
    sink.promotions(kUp, ahead & kLastRank);
    sink.promotions(kUp - 1, towards_a & kLastRank);
    sink.promotions(kUp + 1, towards_h & kLastRank);
  }
}

template <Color Us, typename Sink>
void en_passant_moves(const Position& position, Sink& sink) {
  const Square target = position.en_passant();
  if (target == kNoSquare) return;
  Bitboard capturers = pawn_attacks(opposite(Us), target) & position.pieces(Us, kPawn);
  while (capturers) {
    const auto from = static_cast<Square>(pop_lowest(capturers));
    if (position.is_safe(from, target)) sink.piece(from, bit(target));
  }
}

// Pieces that no pin holds, landing on `allowed`.
template <Color Us, typename Sink>
void free_piece_moves(const Position& position, Bitboard pinned, Bitboard allowed, Sink& sink) {
  const Bitboard occupied = position.occupied();
  const Bitboard free = ~pinned;
  pawn_moves<Us>(position, position.pieces(Us, kPawn) & free, allowed, sink);
  Bitboard knights = position.pieces(Us, kKnight) & free;
  while (knights) {
    const int from = pop_lowest(knights);
    sink.piece(from, knight_attacks(from) & allowed);
  }
  Bitboard bishops = position.pieces(Us, kBishop) & free;
  while (bishops) {
    const int from = pop_lowest(bishops);
    sink.piece(from, bishop_attacks(from, occupied) & allowed);
  }
  Bitboard rooks = position.pieces(Us, kRook) & free;
  while (rooks) {
    const int from = pop_lowest(rooks);
    sink.piece(from, rook_attacks(from, occupied) & allowed);
  }
  Bitboard queens = position.pieces(Us, kQueen) & free;
  while (queens) {
    const int from = pop_lowest(queens);
    sink.piece(from, queen_attacks(from, occupied) & allowed);
  }
}

// A pinned piece has moves only when there is no check: no square ends a check on another line.
template <Color Us, typename Sink>
void pinned_piece_moves(const Position& position, const KingDanger& danger, Sink& sink) {
  for (int i = 0; i < danger.num_pins; ++i) {
    const Pin pin = danger.pins[i];
    const PieceType type = position.type_on(static_cast<Square>(pin.square));
    if (type == kPawn) {
      pawn_moves<Us>(position, bit(pin.square), pin.line, sink);
    } else {
      sink.piece(pin.square, piece_attacks(type, pin.square, position.occupied()) & pin.line);
    }
  }
}

template <Color Us, typename Sink>
void castling_moves(const Position& position, int king, Sink& sink) {
  Bitboard rooks = position.castling_rooks() & back_rank(Us);
  while (rooks) {
    const auto rook = static_cast<Square>(pop_lowest(rooks));
    if (position.is_castling_legal(rook)) sink.piece(king, bit(rook));
  }
}

template <Color Us, typename Sink>
void generate_for(const Position& position, Sink& sink) {
  const int king = position.king(Us);
  const KingDanger danger = find_king_danger<Us>(position, king);
  king_moves<Us>(position, king, sink);
  en_passant_moves<Us>(position, sink);
  const Bitboard allowed = ~position.pieces(Us);
  if (!danger.checkers) {
    free_piece_moves<Us>(position, danger.pinned, allowed, sink);
    pinned_piece_moves<Us>(position, danger, sink);
    castling_moves<Us>(position, king, sink);
  } else if (!(danger.checkers & (danger.checkers - 1))) {
    const Bitboard answer = between(king, lowest(danger.checkers)) | danger.checkers;
    free_piece_moves<Us>(position, danger.pinned, allowed & answer, sink);
  }
}

// Whether there is no check and a pawn that no pin holds has an empty square ahead: a move that most
// positions have, and that is found at a fraction of the price of all moves.
template <Color Us>
bool can_push_pawn(const Position& position) {
  const KingDanger danger = find_king_danger<Us>(position, position.king(Us));
  const Bitboard free_pawns = position.pieces(Us, kPawn) & ~danger.pinned;
  return !danger.checkers && (shift_up<Us>(free_pawns) & ~position.occupied()) != 0;
}

template <typename Sink>
void generate(const Position& position, Sink& sink) {
  if (position.side_to_move() == kWhite) {
    generate_for<kWhite>(position, sink);
  } else {
    generate_for<kBlack>(position, sink);
  }
}

}  // namespace

void Position::legal_moves(std::vector<Move>& moves) const {
  std::array<Move, kMoveCapacity> buffer;
  MoveWriter writer(buffer.data());
  generate(*this, writer);
  moves.assign(buffer.data(), writer.end());
}

int Position::num_legal_moves() const {
  MoveCounter counter;
  generate(*this, counter);
  return counter.total();
}

bool Position::legal_targets(std::array<Bitboard, 64>& targets) const {
  for (Bitboard ours = pieces(side_); ours != 0;) targets[pop_lowest(ours)] = 0;
  TargetWriter writer(targets);
  generate(*this, writer);
  Bitboard all = 0;
  for (Bitboard ours = pieces(side_); ours != 0;) all |= targets[pop_lowest(ours)];
  return all != 0;
}

bool Position::has_legal_move() const {
  const bool can_push = side_ == kWhite ? can_push_pawn<kWhite>(*this) : can_push_pawn<kBlack>(*this);
  return can_push || num_legal_moves() > 0;
}

std::uint64_t perft(const Position& position, int depth) {
  if (depth <= 0) return 1;
  if (depth == 1) return static_cast<std::uint64_t>(position.num_legal_moves());
  std::array<Move, kMoveCapacity> buffer;
  MoveWriter writer(buffer.data());
  generate(position, writer);
  std::uint64_t total = 0;
  for (const Move* move = buffer.data(); move != writer.end(); ++move) {
    Position child = position;
    child.apply(*move);
    total += perft(child, depth - 1);
  }
  return total;
}

}  // namespace alphazero::chess
