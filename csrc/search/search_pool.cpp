#include "search/search_pool.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <string>

#include "games/all_games.hpp"

namespace alphazero {
namespace {

constexpr std::size_t kSlotsPerTask = 8;  // enough work that threads seldom meet at the counter
constexpr std::int32_t kToEvaluate = 0;   // a leaf whose row is not known yet

// Leaves of a group, all of its slots waiting.
std::size_t checked_leaves(std::size_t slots, std::size_t leaves, int max_legal_moves) {
  const auto most = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() / max_legal_moves);
  if (leaves == 0 || slots > most / leaves) {
    throw std::invalid_argument(std::to_string(slots) + " slots of " + std::to_string(leaves) +
                                " leaves; expected 1 to " + std::to_string(most) + " leaves");
  }
  return slots * leaves;
}

}  // namespace

template <Game G>
SearchPool<G>::SearchPool(std::size_t slots_per_group, std::size_t num_groups, std::size_t leaves,
                          int num_threads, HistoryFill fill, DividedCache* cache)
    : groups_(num_groups),
      slots_per_group_(slots_per_group),
      leaves_(leaves),
      fill_(fill),
      cache_(cache),
      workers_(num_threads) {
  const std::size_t num_leaves = checked_leaves(slots_per_group, leaves, G::kMaxLegalMoves);
  for (Group& group : groups_) {
    group.slots.resize(slots_per_group);
    group.places.resize(slots_per_group);
    group.leaves.resize(num_leaves);
    if (cache_ != nullptr) {
      group.keys.resize(num_leaves);
      group.known.resize(num_leaves * known_floats());
    }
    group.packed.resize(num_leaves * packed_bytes<G>());
    group.legal_index.resize(num_leaves * G::kMaxLegalMoves);
    group.legal_offset.reserve(num_leaves + 1);
  }
}

template <Game G>
LeafBatch SearchPool<G>::step(std::size_t number, std::span<const float> legal_logits,
                              std::span<const float> wdl, SearchDriver<G>& driver) {
  Group& group = groups_[number];
  if (wdl.size() != 3 * group.rows || legal_logits.size() != batch_legal(number)) {
    throw std::invalid_argument("evaluations do not fit the batch given out");
  }
  const std::size_t num_tasks = (group.slots.size() + kSlotsPerTask - 1) / kSlotsPerTask;
  const auto each_task = [&](auto&& act) {
    workers_.run(num_tasks, [&](std::size_t task, int) {
      act(task * kSlotsPerTask, std::min((task + 1) * kSlotsPerTask, group.slots.size()));
    });
  };
  // While the slots run the cache is only read.
  if (cache_ != nullptr) {
    workers_.run(workers_.num_workers(),
                 [&](std::size_t share, int) { keep(group, share, legal_logits, wdl); });
  }
  each_task([&](std::size_t begin, std::size_t end) {
    run_slots(begin, end, number, {legal_logits, wdl}, driver);
  });
  lay_out(group);
  each_task([&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) write_legal(i, group);
  });
  num_evaluations_ += group.rows;
  return {std::span(group.packed).first(group.rows * packed_bytes<G>()),
          std::span(group.legal_index).first(group.legal_offset.back()), group.legal_offset};
}

// Puts the evaluations of the group's last batch into the parts of the cache that are this worker's share.
template <Game G>
void SearchPool<G>::keep(const Group& group, std::size_t share, std::span<const float> legal_logits,
                         std::span<const float> wdl) {
  for (std::size_t index = 0; index < group.places.size(); ++index) {
    for (std::size_t leaf = 0; leaf < group.places[index].num_leaves; ++leaf) {
      const std::size_t at = index * leaves_ + leaf;
      const Leaf& waiting = group.leaves[at];
      if (waiting.row == kKnown) continue;
      const std::size_t part = cache_->part_of(group.keys[at]);
      if (part % workers_.num_workers() != share) continue;
      const std::span<const float> logits =
          legal_logits.subspan(group.legal_offset[waiting.row], waiting.num_legal);
      cache_->part(part).insert(group.keys[at], logits, wdl.data() + 3 * waiting.row);
    }
  }
}

// The searches that wait take turns at their next round, for each of them waits for memory much of the time.
// Whatever else there is to do is done for one slot after the other: the driver is called in their order.
template <Game G>
void SearchPool<G>::run_slots(std::size_t begin, std::size_t end, std::size_t number,
                              const Evaluations& evaluations, SearchDriver<G>& driver) {
  Group& group = groups_[number];
  std::array<std::size_t, kSlotsPerTask> walking;
  std::array<bool, kSlotsPerTask> has_walked{};
  std::size_t num_walking = 0;
  for (std::size_t i = begin; i < end; ++i) group.slots[i].search.prefetch_path();
  for (std::size_t i = begin; i < end; ++i) {
    if (group.places[i].num_leaves == 0) continue;
    apply_leaves(i, group, evaluations);
    group.slots[i].search.begin_round();
    has_walked[i - begin] = true;
    walking[num_walking++] = i;
  }
  while (num_walking > 0) {
    std::size_t still = 0;
    for (std::size_t k = 0; k < num_walking; ++k) {
      walking[still] = walking[k];
      still += group.slots[walking[k]].search.step_round() ? 1 : 0;
    }
    num_walking = still;
  }
  for (std::size_t i = begin; i < end; ++i) {
    run_slot(i, number * slots_per_group_ + i, group, has_walked[i - begin], evaluations, driver);
  }
}

// index: the slot's in its group; number: among all. has_walked: its round is over, and not looked at yet.
template <Game G>
void SearchPool<G>::run_slot(std::size_t index, std::size_t number, Group& group, bool has_walked,
                             const Evaluations& evaluations, SearchDriver<G>& driver) {
  Slot& slot = group.slots[index];
  Place& place = group.places[index];
  while (true) {
    if (!has_walked) {
      apply_leaves(index, group, evaluations);
      place.num_leaves = 0;
      if (!slot.is_busy && !driver.next(number, slot.search)) return;
      slot.is_busy = true;
      slot.search.collect();
    }
    has_walked = false;
    place.num_leaves = static_cast<std::uint32_t>(slot.search.num_waiting());
    if (place.num_leaves == 0) {
      driver.finish(number, slot.search);
      slot.is_busy = false;
    } else if (!look_up(index, group)) {
      return;
    }
  }
}

// In order, whether the network has just evaluated a leaf or the cache knew it.
template <Game G>
void SearchPool<G>::apply_leaves(std::size_t index, Group& group, const Evaluations& evaluations) {
  Slot& slot = group.slots[index];
  for (std::size_t leaf = 0; leaf < group.places[index].num_leaves; ++leaf) {
    const std::size_t at = index * leaves_ + leaf;
    const std::int32_t row = group.leaves[at].row;
    if (row == kKnown) {
      const float* known = group.known.data() + at * known_floats();
      slot.search.apply(leaf, known + 3, known);
    } else {
      slot.search.apply(leaf, evaluations.legal_logits.data() + group.legal_offset[row],
                        evaluations.wdl.data() + 3 * row);
    }
  }
}

// Writes the slot's leaves down; true: the cache knows the evaluations of all of them. What it knows is
// copied, for it may be overwritten before the others come.
template <Game G>
bool SearchPool<G>::look_up(std::size_t index, Group& group) {
  Slot& slot = group.slots[index];
  Place& place = group.places[index];
  std::uint32_t num_known = 0;
  for (std::size_t leaf = 0; leaf < place.num_leaves; ++leaf) {
    const std::size_t at = index * leaves_ + leaf;
    std::uint8_t* packed = group.packed.data() + at * packed_bytes<G>();
    slot.search.write_position(leaf, fill_, packed);
    Leaf& waiting = group.leaves[at];
    const std::size_t num_legal = slot.search.legal_indices(leaf).size();
    waiting = {static_cast<std::int32_t>(num_legal), kToEvaluate};
    if (cache_ == nullptr) continue;
    InputKey& key = group.keys[at];
    key = key_of_leaf<G>({packed, packed_bytes<G>()}, slot.search.legal_indices(leaf));
    const EvaluationCache::Found found = cache_->find(key, num_legal);
    if (found.wdl == nullptr || known_floats() < 3 + num_legal) continue;
    float* known = group.known.data() + at * known_floats();
    std::copy_n(found.wdl, 3, known);
    std::copy(found.logits.begin(), found.logits.end(), known + 3);
    waiting.row = kKnown;
    ++num_known;
  }
  place.num_cached += num_known;
  return num_known == place.num_leaves;
}

// Gives the leaves that the network is to evaluate their rows of the batch.
template <Game G>
void SearchPool<G>::lay_out(Group& group) {
  group.rows = 0;
  group.legal_offset.assign(1, 0);
  for (std::size_t index = 0; index < group.places.size(); ++index) {
    Place& place = group.places[index];
    if (place.num_cached > 0) {  // what is not written stays in the other cores' caches
      num_cached_ += place.num_cached;
      place.num_cached = 0;
    }
    for (std::size_t at = index * leaves_; at < index * leaves_ + place.num_leaves; ++at) {
      Leaf& leaf = group.leaves[at];
      if (leaf.row == kKnown) continue;
      const std::size_t row = group.rows++;
      leaf.row = static_cast<std::int32_t>(row);
      if (row != at) {  // rows move towards the beginning only
        std::copy_n(group.packed.data() + at * packed_bytes<G>(), packed_bytes<G>(),
                    group.packed.data() + row * packed_bytes<G>());
      }
      group.legal_offset.push_back(group.legal_offset.back() + leaf.num_legal);
    }
  }
  // No position has more moves than kMaxLegalMoves says; were one to, its moves would have a place all the
  // same.
  const auto num_moves = static_cast<std::size_t>(group.legal_offset.back());
  if (num_moves > group.legal_index.size()) group.legal_index.resize(num_moves);
}

template <Game G>
void SearchPool<G>::write_legal(std::size_t index, Group& group) {
  for (std::size_t leaf = 0; leaf < group.places[index].num_leaves; ++leaf) {
    const std::int32_t row = group.leaves[index * leaves_ + leaf].row;
    if (row == kKnown) continue;
    std::ranges::copy(group.slots[index].search.legal_indices(leaf),
                      group.legal_index.data() + group.legal_offset[row]);
  }
}

template <Game G>
std::uint64_t SearchPool<G>::num_simulations() const {
  std::uint64_t sum = 0;
  for (const Group& group : groups_) {
    for (const Slot& slot : group.slots) sum += slot.search.num_simulations();
  }
  return sum;
}

#define ALPHAZERO_INSTANTIATE(G) template class SearchPool<G>;
ALPHAZERO_ALL_GAMES(ALPHAZERO_INSTANTIATE)
#undef ALPHAZERO_INSTANTIATE

}  // namespace alphazero
