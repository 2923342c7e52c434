// Stored games against the rules: is every move of every game legal, and every policy in order?
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/shard_columns.hpp"
#include "games/game.hpp"

namespace alphazero {

struct IllegalGame {
  std::int64_t game;  // row
  std::int64_t ply;   // from 0; 0 as well where the start is no position
  std::string reason;
};

// What the rules say of each game's last position, an entry a game.
struct RuledEnds {
  std::vector<std::uint8_t> termination;    // Termination
  std::vector<std::int8_t> result;          // +1: the first player won; 0 where the game is not over
  std::vector<std::uint8_t> first_to_move;  // 1: it is the first player's turn
};

// N games of the game G: game g has moves[moves_offset[g], moves_offset[g + 1]) and starts at the text
// fen_bytes[fen_offset[g], fen_offset[g + 1]), the usual start if that is empty. Offsets have N + 1
// entries, ascend, and end within their arrays. search: null, or has passed its check. The first game that
// breaks the rules, if any. ends: filled where it is not null; then a move after the end of a game breaks the
// rules too.
template <Game G>
std::optional<IllegalGame> find_illegal_game(std::span<const Move> moves,
                                             std::span<const std::int32_t> moves_offset,
                                             std::span<const char> fen_bytes,
                                             std::span<const std::int32_t> fen_offset,
                                             const SearchColumns* search, RuledEnds* ends = nullptr);

}  // namespace alphazero
