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
  if (search) check_search();
}

// A game has either nothing of a search or an entry for each ply, and policies within its own part.
void ShardColumns::check_search() const {
  const SearchColumns& known = *search;
  const std::size_t games = num_games();
  const bool fits = known.root_q.size() == known.root_d.size() &&
                    known.policy_move.size() == known.policy_prob.size() &&
                    offsets_fit(known.ply_offset, games, known.root_q.size()) &&
                    offsets_fit(known.policy_offset_offset, games, known.policy_offset.size()) &&
                    offsets_fit(known.policy_move_offset, games, known.policy_move.size());
  if (!fits) throw GameError(name + ": offsets of its searches do not fit its columns");
  const auto length = [](std::span<const std::int32_t> offset, std::size_t game) {
    return static_cast<std::size_t>(offset[game + 1] - offset[game]);
  };
  for (std::size_t game = 0; game < games; ++game) {
    const std::size_t plies = length(known.ply_offset, game);
    const std::size_t entries = length(known.policy_offset_offset, game);
    const std::size_t moves_of_policies = length(known.policy_move_offset, game);
    bool is_whole = plies == 0 ? entries == 0 : plies == moves_of(game).size() && entries == plies + 1;
    const std::uint32_t* offset = known.policy_offset.data() + known.policy_offset_offset[game];
    for (std::size_t i = 0; is_whole && i + 1 < entries; ++i) is_whole = offset[i] <= offset[i + 1];
    if (is_whole && entries > 0) is_whole = offset[entries - 1] <= moves_of_policies;
    if (!is_whole)
      throw GameError(name + ": game " + std::to_string(game) + ": its searches are not one a ply");
  }
}

}  // namespace alphazero
