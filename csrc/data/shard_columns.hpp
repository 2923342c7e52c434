// A shard of the game store as C++ sees it: views into memory that somebody else owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace alphazero {

// Entries [begin, end) of a column of `size` entries. The columns are mapped files, which another process may
// have written to since check(): then GameError, naming `name`, and no memory beyond the column is read.
struct Part {
  std::size_t begin;
  std::size_t size;
};
Part part_of(const std::string& name, std::int64_t begin, std::int64_t end, std::size_t size);

// What a search knew of the plies of a shard's games (alphazero/data/store/columns.py, SearchView). A
// game that no search made has no entries: game g owns [ply_offset[g], ply_offset[g + 1]) of root_q and
// root_d, and likewise of the others. Its ply i has the policy [policy_offset[at + i], policy_offset[at + i +
// 1]) of its own part of policy_move and policy_prob, at = policy_offset_offset[g].
struct SearchColumns {
  std::span<const std::int32_t> ply_offset;            // [G + 1]
  std::span<const float> root_q;                       // W - L for the side to move
  std::span<const float> root_d;                       // chance of a draw
  std::span<const std::int32_t> policy_offset_offset;  // [G + 1]
  std::span<const std::uint32_t> policy_offset;
  std::span<const std::int32_t> policy_move_offset;  // [G + 1]
  std::span<const std::uint16_t> policy_move;
  std::span<const std::uint16_t> policy_prob;  // 1 / 65535

  // Was this game made by a search?
  bool has_game(std::size_t game) const { return ply_offset[game + 1] > ply_offset[game]; }

  // The policy of a ply of such a game: moves and their shares; empty where nothing was searched.
  // Throws GameError, naming the shard, where it changed since check().
  std::pair<std::span<const std::uint16_t>, std::span<const std::uint16_t>> policy_of(const std::string& name,
                                                                                      std::size_t game,
                                                                                      std::size_t ply) const;

  // Where root_q and root_d of a ply of such a game stand; throws as policy_of does.
  std::size_t place_of(const std::string& name, std::size_t game, std::size_t ply) const;

  // Throws GameError, naming the shard, unless each game has either nothing or an entry for each of its
  // plies, and every policy lies within its game's part. moves_offset: [G + 1], of the shard.
  void check(const std::string& name, std::span<const std::int32_t> moves_offset) const;
};

// A column of lists whose entries may be null (alphazero/data/store/columns.py, ListView): game g owns
// values[offset[g], offset[g + 1]), an entry a ply, or none at all.
template <typename T>
struct EntryColumn {
  std::span<const std::int32_t> offset;  // [G + 1]
  std::span<const T> values;
  std::span<const std::uint8_t> bits;  // bit i from the lowest: entry i is known; none at all: all are

  // Throws GameError, naming the shard, where it changed since check().
  std::optional<T> at(const std::string& name, std::size_t game, std::size_t ply) const {
    const Part part = part_of(name, offset[game], offset[game + 1], values.size());
    if (ply >= part.size) return std::nullopt;
    const std::size_t place = part.begin + ply;
    const bool is_known = bits.empty() || (bits[place / 8] >> (place % 8) & 1) != 0;
    return is_known ? std::optional<T>(values[place]) : std::nullopt;
  }
};

// What annotations and engines' comments said of the plies of a shard's games (docs/data_format.md): all of
// the position after the move and for the first player.
struct EvalColumns {
  static constexpr std::uint8_t kEngineSource = 2;

  EntryColumn<std::int32_t> centipawns;
  EntryColumn<std::int16_t> mate;
  EntryColumn<std::uint8_t> source;

  // Throws GameError, naming the shard, unless each game has nothing or an entry for each of its plies.
  void check(const std::string& name, std::span<const std::int32_t> moves_offset) const;
};

// Columns of alphazero/data/store/store.py's ShardView; G games.
struct ShardColumns {
  std::string name;  // for messages
  std::span<const std::uint16_t> moves;
  std::span<const std::int32_t> moves_offset;  // [G + 1]
  std::span<const std::int8_t> result;         // [G] +1: the first player won
  std::span<const bool> result_valid;          // [G]
  std::span<const std::uint8_t> fen_bytes;
  std::span<const std::int32_t> fen_offset;  // [G + 1]
  std::optional<SearchColumns> search;
  std::optional<EvalColumns> evals = {};

  std::size_t num_games() const { return result.size(); }

  // These throw GameError where the shard changed since check().
  std::span<const std::uint16_t> moves_of(std::size_t game) const {
    const Part part = part_of(name, moves_offset[game], moves_offset[game + 1], moves.size());
    return moves.subspan(part.begin, part.size);
  }

  // Empty: the usual start.
  std::string_view start_of(std::size_t game) const {
    const Part part = part_of(name, fen_offset[game], fen_offset[game + 1], fen_bytes.size());
    return {reinterpret_cast<const char*>(fen_bytes.data()) + part.begin, part.size};
  }

  int result_of(std::size_t game) const;  // -1, 0 or 1

  // Throws GameError unless every game lies within the columns and known results are -1, 0 or 1.
  void check() const;
};

}  // namespace alphazero
