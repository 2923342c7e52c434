// A shard of the game store as C++ sees it: views into memory that somebody else owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace alphazero {

// Columns of alphazero/data/store.py's ShardView; G games.
struct ShardColumns {
  std::string name;  // for messages
  std::span<const std::uint16_t> moves;
  std::span<const std::int32_t> moves_offset;  // [G + 1]
  std::span<const std::int8_t> result;         // [G] +1: the first player won
  std::span<const bool> result_valid;          // [G]
  std::span<const std::uint8_t> fen_bytes;
  std::span<const std::int32_t> fen_offset;  // [G + 1]

  std::size_t num_games() const { return result.size(); }

  std::span<const std::uint16_t> moves_of(std::size_t game) const {
    return moves.subspan(moves_offset[game], moves_offset[game + 1] - moves_offset[game]);
  }

  // Empty: the usual start.
  std::string_view start_of(std::size_t game) const {
    const std::size_t size = fen_offset[game + 1] - fen_offset[game];
    return {reinterpret_cast<const char*>(fen_bytes.data()) + fen_offset[game], size};
  }

  // Throws GameError unless every game lies within the columns and known results are -1, 0 or 1.
  void check() const;
};

}  // namespace alphazero
