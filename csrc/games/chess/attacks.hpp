// Where pieces go: compile-time tables and sliding attacks, free of any initialisation at run time.
//
// Sliders use hyperbola quintessence (o ^ (o - 2r), https://www.chessprogramming.org/Hyperbola_Quintessence)
// on files and diagonals and a table of first-rank attacks on ranks: 2.5 KiB of tables that stay in the
// first-level cache beside the data of the loader, where magic bitboards would take 840 KiB.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "games/chess/position.hpp"

namespace alphazero::chess {

constexpr Bitboard bit(int square) { return Bitboard{1} << square; }
constexpr int lowest(Bitboard board) { return std::countr_zero(board); }
constexpr int count(Bitboard board) { return std::popcount(board); }
// Removes the lowest square from `board` and returns it.
constexpr int pop_lowest(Bitboard& board) {
  const int square = lowest(board);
  board &= board - 1;
  return square;
}

constexpr int file_of(int square) { return square & 7; }
constexpr int rank_of(int square) { return square >> 3; }
constexpr Color opposite(Color color) { return static_cast<Color>(color ^ 1); }

constexpr Bitboard kFileA = 0x0101010101010101;
constexpr Bitboard kFileH = kFileA << 7;
constexpr Bitboard kRank1 = 0xff;
constexpr Bitboard file_mask(int file) { return kFileA << file; }
constexpr Bitboard rank_mask(int rank) { return kRank1 << 8 * rank; }
constexpr Bitboard back_rank(Color color) { return color == kWhite ? kRank1 : rank_mask(7); }

namespace tables {

struct Step {
  int file;
  int rank;
};

constexpr bool on_board(int file, int rank) { return file >= 0 && file < 8 && rank >= 0 && rank < 8; }

// Squares met from `square` in direction `step`, to the edge.
constexpr Bitboard ray(int square, Step step) {
  Bitboard result = 0;
  int file = file_of(square) + step.file;
  int rank = rank_of(square) + step.rank;
  for (; on_board(file, rank); file += step.file, rank += step.rank) result |= bit(rank * 8 + file);
  return result;
}

template <std::size_t N>
constexpr std::array<Bitboard, 64> leaper(const std::array<Step, N>& steps) {
  std::array<Bitboard, 64> result{};
  for (int square = 0; square < 64; ++square) {
    for (const Step step : steps) {
      const int file = file_of(square) + step.file;
      const int rank = rank_of(square) + step.rank;
      if (on_board(file, rank)) result[square] |= bit(rank * 8 + file);
    }
  }
  return result;
}

inline constexpr std::array<Bitboard, 64> kKnight =
    leaper(std::array<Step, 8>{{{1, 2}, {2, 1}, {2, -1}, {1, -2}, {-1, -2}, {-2, -1}, {-2, 1}, {-1, 2}}});
inline constexpr std::array<Bitboard, 64> kKing =
    leaper(std::array<Step, 8>{{{0, 1}, {1, 1}, {1, 0}, {1, -1}, {0, -1}, {-1, -1}, {-1, 0}, {-1, 1}}});
inline constexpr std::array<std::array<Bitboard, 64>, 2> kPawn = {
    leaper(std::array<Step, 2>{{{-1, 1}, {1, 1}}}), leaper(std::array<Step, 2>{{{-1, -1}, {1, -1}}})};

// The lines through a square, without the square itself.
struct Lines {
  Bitboard file = 0;
  Bitboard diagonal = 0;
  Bitboard anti_diagonal = 0;
};

constexpr std::array<Lines, 64> make_lines() {
  std::array<Lines, 64> result{};
  for (int square = 0; square < 64; ++square) {
    result[square].file = ray(square, {0, 1}) | ray(square, {0, -1});
    result[square].diagonal = ray(square, {1, 1}) | ray(square, {-1, -1});
    result[square].anti_diagonal = ray(square, {-1, 1}) | ray(square, {1, -1});
  }
  return result;
}
inline constexpr std::array<Lines, 64> kLines = make_lines();

// Attacks on a rank by file and the six inner squares of its occupancy (edges never block anything).
constexpr std::array<std::array<std::uint8_t, 8>, 64> make_rank_attacks() {
  std::array<std::array<std::uint8_t, 8>, 64> result{};
  for (int inner = 0; inner < 64; ++inner) {
    for (int file = 0; file < 8; ++file) {
      int attacks = 0;
      for (const int direction : {-1, 1}) {
        for (int to = file + direction; to >= 0 && to < 8; to += direction) {
          attacks |= 1 << to;
          if (inner << 1 & 1 << to) break;
        }
      }
      result[inner][file] = static_cast<std::uint8_t>(attacks);
    }
  }
  return result;
}
inline constexpr auto kRankAttacks = make_rank_attacks();

// Squares strictly between two squares of one line; empty if they are on none.
constexpr std::array<std::array<Bitboard, 64>, 64> make_between() {
  std::array<std::array<Bitboard, 64>, 64> result{};
  for (int from = 0; from < 64; ++from) {
    for (int file_step = -1; file_step <= 1; ++file_step) {
      for (int rank_step = -1; rank_step <= 1; ++rank_step) {
        if (file_step == 0 && rank_step == 0) continue;
        Bitboard passed = 0;
        int file = file_of(from) + file_step;
        int rank = rank_of(from) + rank_step;
        for (; on_board(file, rank); file += file_step, rank += rank_step) {
          result[from][rank * 8 + file] = passed;
          passed |= bit(rank * 8 + file);
        }
      }
    }
  }
  return result;
}
inline constexpr auto kBetween = make_between();

// Both directions of one line at once; `mask` is the line without `square`.
constexpr Bitboard hyperbola(int square, Bitboard occupied, Bitboard mask) {
  const Bitboard blockers = occupied & mask;
  const Bitboard up = blockers - bit(square);
  const Bitboard down = __builtin_bswap64(__builtin_bswap64(blockers) - bit(square ^ 56));
  return (up ^ down) & mask;
}

}  // namespace tables

constexpr Bitboard knight_attacks(int square) { return tables::kKnight[square]; }
constexpr Bitboard king_attacks(int square) { return tables::kKing[square]; }
// Squares a pawn of `color` on `square` attacks; also where pawns of the other colour attack it from.
constexpr Bitboard pawn_attacks(Color color, int square) { return tables::kPawn[color][square]; }
constexpr Bitboard between(int from, int to) { return tables::kBetween[from][to]; }

constexpr Bitboard bishop_attacks(int square, Bitboard occupied) {
  const tables::Lines& lines = tables::kLines[square];
  return tables::hyperbola(square, occupied, lines.diagonal) |
         tables::hyperbola(square, occupied, lines.anti_diagonal);
}

constexpr Bitboard rook_attacks(int square, Bitboard occupied) {
  const int shift = square & 56;
  const Bitboard rank = tables::kRankAttacks[occupied >> shift >> 1 & 63][file_of(square)];
  return tables::hyperbola(square, occupied, tables::kLines[square].file) | rank << shift;
}

constexpr Bitboard queen_attacks(int square, Bitboard occupied) {
  return bishop_attacks(square, occupied) | rook_attacks(square, occupied);
}

// `type` is knight to king (pawns need a colour).
constexpr Bitboard piece_attacks(PieceType type, int square, Bitboard occupied) {
  switch (type) {
    case kKnight:
      return knight_attacks(square);
    case kBishop:
      return bishop_attacks(square, occupied);
    case kRook:
      return rook_attacks(square, occupied);
    case kQueen:
      return queen_attacks(square, occupied);
    case kKing:
      return king_attacks(square);
    default:
      return 0;
  }
}

}  // namespace alphazero::chess
