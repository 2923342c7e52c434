#include "games/chess/lc0_encoding.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace alphazero::chess {
namespace {

static_assert(std::endian::native == std::endian::little, "packed positions are little-endian");

constexpr int kNumPlainMoves = 1792;
constexpr Bitboard kFull = ~Bitboard{0};

// Both directions of the policy index, moves seen by the mover.
struct PolicyTable {
  std::array<Move, kNumPolicyMoves> move_of{};
  std::array<std::int16_t, std::size_t{5} * 4096> index_of{};  // by promotion * 4096 + to * 64 + from
};

constexpr bool queen_or_knight_reaches(int from, int to) {
  const int files = std::max((to & 7) - (from & 7), (from & 7) - (to & 7));
  const int ranks = std::max((to >> 3) - (from >> 3), (from >> 3) - (to >> 3));
  if (from == to) return false;
  return files == 0 || ranks == 0 || files == ranks || files + ranks == 3;
}

constexpr PolicyTable make_policy_table() {
  PolicyTable table;
  for (std::int16_t& index : table.index_of) index = -1;
  int index = 0;
  const auto add = [&](int from, int to, int promotion) {
    const Move move = make_move(from, to, promotion);
    table.move_of[index] = move;
    table.index_of[move] = static_cast<std::int16_t>(index++);
  };
  for (int from = 0; from < 64; ++from) {
    for (int to = 0; to < 64; ++to) {
      if (queen_or_knight_reaches(from, to)) add(from, to, kNoPromotion);
    }
  }
  for (int file = 0; file < 8; ++file) {
    for (int to_file = std::max(file - 1, 0); to_file <= std::min(file + 1, 7); ++to_file) {
      for (const int promotion : {kToQueen, kToRook, kToBishop}) add(48 + file, 56 + to_file, promotion);
      const int plain = make_move(48 + file, 56 + to_file);
      table.index_of[plain | kToKnight << 12] = table.index_of[plain];
    }
  }
  return table;
}

// The plain moves from one square have consecutive indices, by where they go.
struct PlainMoves {
  std::array<Bitboard, 64> reach{};
  std::array<std::uint16_t, 64> first{};
};

constexpr PlainMoves make_plain_moves() {
  PlainMoves plain;
  std::uint16_t index = 0;
  for (int from = 0; from < 64; ++from) {
    plain.first[from] = index;
    for (int to = 0; to < 64; ++to) {
      if (!queen_or_knight_reaches(from, to)) continue;
      plain.reach[from] |= Bitboard{1} << to;
      ++index;
    }
  }
  return plain;
}

constexpr PlainMoves kPlain = make_plain_moves();
constexpr PolicyTable kPolicy = make_policy_table();
static_assert(kPolicy.move_of[kNumPlainMoves] == make_move(48, 56, kToQueen));
static_assert(kPolicy.move_of[kNumPolicyMoves - 1] == make_move(55, 63, kToBishop));

// Ranks swapped in both squares of a move.
constexpr Move flip_ranks(Move move) { return move ^ (56 | 56 << 6); }

// The board of `position` as bit planes seen by `viewer`.
void write_position(const Position& position, Color viewer, bool repeated, Bitboard* planes) {
  for (const int side : {0, 1}) {
    const Color color = static_cast<Color>(viewer ^ side);
    for (int type = kPawn; type <= kKing; ++type) {
      const Bitboard pieces = position.pieces(color, static_cast<PieceType>(type));
      planes[side * 6 + type] = viewer == kWhite ? pieces : __builtin_bswap64(pieces);
    }
  }
  planes[12] = repeated ? kFull : 0;
}

// In the planes of the first position seen by `viewer`: the pawn that made the double step goes back.
void undo_double_step(const Position& first, Color viewer, Bitboard* planes) {
  const int square = first.en_passant() ^ (viewer == kWhite ? 0 : 56);  // seen by the viewer
  const bool ours = square < 32;                                        // on the viewer's third rank
  const int stands = ours ? square + 8 : square - 8;
  const int came_from = ours ? square - 8 : square + 8;
  planes[ours ? 0 : 6] ^= Bitboard{1} << stands | Bitboard{1} << came_from;
}

bool is_standard_start(const Position& position) {
  static const std::uint64_t key = Position::initial().key();
  return position.key() == key;
}

// How many positions before the first one are shown.
std::size_t num_filled(const Position& first, HistoryFill fill, std::size_t missing) {
  if (fill == HistoryFill::kNo)
    return first.en_passant() == kNoSquare ? 0 : std::min<std::size_t>(missing, 1);
  return is_standard_start(first) ? 0 : missing;
}

}  // namespace

void encode_planes(FrameSpan<Position> line, HistoryFill fill, std::uint8_t* packed) {
  std::array<Bitboard, kEncodedPositions * kPlanesPerPosition> planes;
  const Position& current = line.back().state;
  const Color us = current.side_to_move();
  const std::size_t known = std::min<std::size_t>(line.size(), kEncodedPositions);
  Bitboard* out = planes.data();
  for (std::size_t back = 0; back < known; ++back, out += kPlanesPerPosition) {
    const Frame<Position>& frame = line[line.size() - 1 - back];
    write_position(frame.state, us, frame.repetitions > 0, out);
  }
  const Position& first = line.front().state;
  const std::size_t missing = kEncodedPositions - known;
  const std::size_t filled = missing == 0 ? 0 : num_filled(first, fill, missing);
  for (std::size_t i = 0; i < filled; ++i, out += kPlanesPerPosition) {
    write_position(first, us, false, out);
    if (first.en_passant() != kNoSquare) undo_double_step(first, us, out);
  }
  std::fill(out, planes.data() + planes.size(), Bitboard{0});
  std::memcpy(packed, planes.data(), sizeof planes);

  const Color them = static_cast<Color>(us ^ 1);
  std::uint8_t* bytes = packed + sizeof planes;
  bytes[0] = current.can_castle(us, false);
  bytes[1] = current.can_castle(us, true);
  bytes[2] = current.can_castle(them, false);
  bytes[3] = current.can_castle(them, true);
  bytes[4] = us == kBlack;
  bytes[5] = static_cast<std::uint8_t>(std::min(current.halfmove_clock(), 255));
  bytes[6] = 0;
  bytes[7] = 1;
}

int policy_index(Move move, Color mover) {
  const Move seen = mover == kWhite ? move : flip_ranks(move);
  return seen < kPolicy.index_of.size() ? kPolicy.index_of[seen] : -1;
}

void legal_policy_indices(const Position& position, std::vector<std::uint16_t>& indices) {
  indices.clear();
  std::array<Bitboard, 64> targets;
  if (!position.legal_targets(targets)) return;
  const Color us = position.side_to_move();
  const int flip = us == kWhite ? 0 : 56;
  const auto seen = [&](Bitboard board) { return us == kWhite ? board : __builtin_bswap64(board); };
  constexpr std::size_t kCapacity = 512;  // more than 16 pieces of whatever kind can have
  std::array<std::uint16_t, kCapacity> buffer;
  std::uint16_t* out = buffer.data();
  for (Bitboard ours = seen(position.pieces(us)); ours != 0; ours &= ours - 1) {
    const int from = std::countr_zero(ours);
    const Bitboard reach = kPlain.reach[from];
    const int first = kPlain.first[from];
    for (Bitboard to = seen(targets[from ^ flip]); to != 0; to &= to - 1) {
      *out++ = static_cast<std::uint16_t>(first + std::popcount(reach & ((to & -to) - 1)));
    }
  }
  constexpr Bitboard kSeventhRank = Bitboard{0xff} << 48;
  for (Bitboard pawns = seen(position.pieces(us, kPawn)) & kSeventhRank; pawns != 0; pawns &= pawns - 1) {
    const int from = std::countr_zero(pawns);
    for (Bitboard to = seen(targets[from ^ flip]); to != 0; to &= to - 1) {
      for (const int promotion : {kToQueen, kToRook, kToBishop}) {
        *out++ =
            static_cast<std::uint16_t>(kPolicy.index_of[make_move(from, std::countr_zero(to), promotion)]);
      }
    }
  }
  indices.assign(buffer.data(), out);
}

Move policy_move(const Position& position, int index) {
  const Move seen = kPolicy.move_of[index];
  const Move move = position.side_to_move() == kWhite ? seen : flip_ranks(seen);
  const bool plain_promotion = index < kNumPlainMoves && to_square(seen) >= 56 && from_square(seen) >= 48 &&
                               from_square(seen) < 56 && position.type_on(from_square(move)) == kPawn;
  return plain_promotion ? static_cast<Move>(move | kToKnight << 12) : move;
}

std::string policy_move_text(int index) {
  const Move move = kPolicy.move_of[index];
  std::string text;
  for (const int square : {from_square(move), to_square(move)}) {
    text += static_cast<char>('a' + (square & 7));
    text += static_cast<char>('1' + (square >> 3));
  }
  if (promotion_of(move) != kNoPromotion) text += " nbrq"[promotion_of(move)];
  return text;
}

}  // namespace alphazero::chess
