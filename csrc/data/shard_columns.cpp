#include "data/shard_columns.hpp"

#include "games/error.hpp"

namespace alphazero {
namespace {

bool offsets_fit(std::span<const std::int32_t> offsets, std::size_t num_games, std::size_t size) {
  if (offsets.size() != num_games + 1 || offsets[0] < 0) return false;
  for (std::size_t game = 0; game < num_games; ++game) {
    if (offsets[game + 1] < offsets[game]) return false;
  }
  return static_cast<std::size_t>(offsets[num_games]) <= size;
}

}  // namespace

void ShardColumns::check() const {
  const bool fits = result_valid.size() == num_games() &&
                    offsets_fit(moves_offset, num_games(), moves.size()) &&
                    offsets_fit(fen_offset, num_games(), fen_bytes.size());
  if (!fits) throw GameError(name + ": offsets of its games do not fit its columns");
  for (std::size_t game = 0; game < num_games(); ++game) {
    if (result_valid[game] && (result[game] < -1 || result[game] > 1)) {
      throw GameError(name + ": game " + std::to_string(game) + ": result " + std::to_string(result[game]) +
                      "; wanted -1, 0 or 1");
    }
  }
}

}  // namespace alphazero
