// A record of lc0's training data (V6, V7): its layout on disk, and boards in it.
//
// Source: lc0 src/trainingdata/trainingdata_v6.h and trainingdata_v7.h; what the fields mean:
// trainingdata.cc.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "games/chess/lc0_encoding.hpp"
#include "games/chess/position.hpp"

namespace alphazero::lc0 {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

constexpr std::uint32_t kVersion6 = 6;
constexpr std::uint32_t kVersion7 = 7;
constexpr std::uint32_t kClassicalInput = 1;  // 112 planes as lc0_encoding.hpp has them
constexpr float kIllegal = -1.0F;             // probability of a move that is not legal
constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
constexpr double kFixedPoint = 65535.0;  // a probability of 1 in the store

// Bits of `invariance_info` in input format 1.
constexpr std::uint8_t kBestIsProven = 1 << 3;
constexpr std::uint8_t kTooLong = 1 << 4;
constexpr std::uint8_t kAdjudicated = 1 << 5;
constexpr std::uint8_t kNotTrainedOn = 1 << 6;  // the rescorer's mark; lc0 itself never sets it

#pragma pack(push, 1)
struct Record {
  std::uint32_t version;
  std::uint32_t input_format;
  std::array<float, chess::kNumPolicyMoves> probabilities;
  std::array<std::uint64_t, std::size_t{chess::kEncodedPositions} * chess::kPlanesPerPosition> planes;
  std::array<std::uint8_t, 4> castling;  // us queen side, us king side, them queen side, them king side
  std::uint8_t black_to_move;
  std::uint8_t rule50;
  std::uint8_t invariance_info;
  std::uint8_t dummy;
  float root_q, best_q, root_d, best_d, root_m, best_m;  // all values are the mover's
  float plies_left;
  float result_q, result_d;
  float played_q, played_d, played_m;
  float orig_q, orig_d, orig_m;  // of the network without a search; may be NaN
  std::uint32_t visits;
  std::uint16_t played_idx, best_idx;
  float policy_kld;
  float q_st;
};

struct Record7 : Record {
  float d_st;
  std::uint16_t opp_played_idx, next_played_idx;  // 65535: none
  std::array<float, 8> reserved;
};
#pragma pack(pop)
static_assert(sizeof(Record) == 8356);
static_assert(sizeof(Record7) == 8396);

// Bits of each byte in the opposite order: files on disk count from the other side.
constexpr std::uint64_t reversed_files(std::uint64_t plane) {
  plane = (plane >> 1 & 0x5555555555555555U) | (plane & 0x5555555555555555U) << 1;
  plane = (plane >> 2 & 0x3333333333333333U) | (plane & 0x3333333333333333U) << 2;
  return (plane >> 4 & 0x0F0F0F0F0F0F0F0FU) | (plane & 0x0F0F0F0F0F0F0F0FU) << 4;
}

// Pieces as a record's planes hold them, seen by one side: our P N B R Q K, their P N B R Q K.
using Board = std::array<std::uint64_t, 12>;

// The board of `position` as a record of `viewer` has it.
inline Board board_of(const chess::Position& position, chess::Color viewer) {
  Board board;
  for (std::size_t plane = 0; plane < board.size(); ++plane) {
    const auto color = static_cast<chess::Color>(viewer ^ static_cast<int>(plane / 6));
    const chess::Bitboard pieces = position.pieces(color, static_cast<chess::PieceType>(plane % 6));
    board[plane] = reversed_files(viewer == chess::kWhite ? pieces : __builtin_bswap64(pieces));
  }
  return board;
}

// The same board seen by the other side.
inline Board other_side(const Board& board) {
  Board turned;
  for (std::size_t plane = 0; plane < board.size(); ++plane) {
    turned[plane] = __builtin_bswap64(board[(plane + 6) % 12]);
  }
  return turned;
}

}  // namespace alphazero::lc0
