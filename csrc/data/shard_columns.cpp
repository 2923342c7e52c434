#include "data/shard_columns.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace alphazero {
namespace {

bool offsets_fit(std::span<const std::int32_t> offsets, std::size_t num_games, std::size_t size) {
  if (offsets.size() != num_games + 1 || offsets[0] < 0) return false;
  for (std::size_t game = 0; game < num_games; ++game) {
    if (offsets[game + 1] < offsets[game]) return false;
  }
  return static_cast<std::size_t>(offsets[num_games]) <= size;
}

template <typename T>
void check_notes(const std::string& name, const EntryColumn<T>& column,
                 std::span<const std::int32_t> moves_offset) {
  const std::size_t num_games = moves_offset.size() - 1;
  const bool fits = offsets_fit(column.offset, num_games, column.values.size()) &&
                    (column.bits.empty() || column.bits.size() >= (column.values.size() + 7) / 8);
  if (!fits) throw GameError(name + ": offsets of its evaluations do not fit its columns");
  for (std::size_t game = 0; game < num_games; ++game) {
    const std::int32_t entries = column.offset[game + 1] - column.offset[game];
    if (entries != 0 && entries != moves_offset[game + 1] - moves_offset[game]) {
      throw GameError(name + ": game " + std::to_string(game) + ": expected one evaluation per ply");
    }
  }
}

[[noreturn]] void fail_changed(const std::string& name) {
  throw GameError(name +
                  ": the file was written to while it was in use; expected a store that never changes");
}

}  // namespace

Part part_of(const std::string& name, std::int64_t begin, std::int64_t end, std::size_t size) {
  if (begin < 0 || end < begin || static_cast<std::size_t>(end) > size) fail_changed(name);
  return {static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)};
}

int ShardColumns::result_of(std::size_t game) const {
  const int value = result[game];
  if (value < -1 || value > 1) fail_changed(name);
  return value;
}

std::pair<std::span<const std::uint16_t>, std::span<const std::uint16_t>> SearchColumns::policy_of(
    const std::string& name, std::size_t game, std::size_t ply) const {
  const Part offsets =
      part_of(name, policy_offset_offset[game], policy_offset_offset[game + 1], policy_offset.size());
  const Part shares =
      part_of(name, policy_move_offset[game], policy_move_offset[game + 1], policy_move.size());
  if (ply + 1 >= offsets.size) fail_changed(name);
  const std::uint32_t* offset = policy_offset.data() + offsets.begin + ply;
  const Part part = part_of(name, offset[0], offset[1], shares.size);
  return {policy_move.subspan(shares.begin + part.begin, part.size),
          policy_prob.subspan(shares.begin + part.begin, part.size)};
}

std::size_t SearchColumns::place_of(const std::string& name, std::size_t game, std::size_t ply) const {
  const Part part = part_of(name, ply_offset[game], ply_offset[game + 1], root_q.size());
  if (ply >= part.size) fail_changed(name);
  return part.begin + ply;
}

void ShardColumns::check() const {
  const bool fits = result_valid.size() == num_games() &&
                    offsets_fit(moves_offset, num_games(), moves.size()) &&
                    offsets_fit(fen_offset, num_games(), fen_bytes.size());
  if (!fits) throw GameError(name + ": offsets of its games do not fit its columns");
  for (std::size_t game = 0; game < num_games(); ++game) {
    if (result_valid[game] && (result[game] < -1 || result[game] > 1)) {
      throw GameError(name + ": game " + std::to_string(game) + ": result " + std::to_string(result[game]) +
                      "; expected -1, 0 or 1");
    }
  }
  if (search) search->check(name, moves_offset);
  if (evals) evals->check(name, moves_offset);
}

void EvalColumns::check(const std::string& name, std::span<const std::int32_t> moves_offset) const {
  check_notes(name, centipawns, moves_offset);
  check_notes(name, mate, moves_offset);
  check_notes(name, source, moves_offset);
}

void SearchColumns::check(const std::string& name, std::span<const std::int32_t> moves_offset) const {
  const std::size_t num_games = moves_offset.size() - 1;
  const bool fits = root_q.size() == root_d.size() && policy_move.size() == policy_prob.size() &&
                    offsets_fit(ply_offset, num_games, root_q.size()) &&
                    offsets_fit(policy_offset_offset, num_games, policy_offset.size()) &&
                    offsets_fit(policy_move_offset, num_games, policy_move.size());
  if (!fits) throw GameError(name + ": offsets of its searches do not fit its columns");
  const auto length = [](std::span<const std::int32_t> offset, std::size_t game) {
    return static_cast<std::size_t>(offset[game + 1] - offset[game]);
  };
  for (std::size_t game = 0; game < num_games; ++game) {
    const std::size_t entries = length(ply_offset, game);
    if (entries == 0) continue;
    const std::size_t plies = length(moves_offset, game);
    const auto offsets =
        policy_offset.subspan(policy_offset_offset[game], length(policy_offset_offset, game));
    if (entries != plies || offsets.size() != plies + 1) {
      throw GameError(name + ": game " + std::to_string(game) + ": expected one search per ply");
    }
    if (!std::is_sorted(offsets.begin(), offsets.end()) ||
        offsets.back() > length(policy_move_offset, game)) {
      throw GameError(name + ": game " + std::to_string(game) + ": policy offsets do not fit its policies");
    }
  }
}

}  // namespace alphazero
