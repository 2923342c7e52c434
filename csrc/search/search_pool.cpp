#include "search/search_pool.hpp"

#include <algorithm>
#include <stdexcept>

#include "games/chess/chess_game.hpp"
#include "games/connect4/connect4.hpp"
#include "games/tictactoe/tictactoe.hpp"

namespace alphazero {
namespace {

constexpr std::size_t kSlotsPerTask = 8;  // enough work that threads seldom meet at the counter

}  // namespace

template <Game G>
SearchPool<G>::SearchPool(std::size_t slots_per_group, std::size_t num_groups, std::size_t leaves,
                          int num_threads, HistoryFill fill)
    : groups_(num_groups), slots_per_group_(slots_per_group), fill_(fill), workers_(num_threads) {
  for (Group& group : groups_) {
    group.slots.resize(slots_per_group);
    group.packed.resize(slots_per_group * leaves * packed_bytes<G>());
    group.legal_index.resize(slots_per_group * leaves * G::kMaxLegalMoves);
    group.legal_offset.reserve(slots_per_group * leaves + 1);
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
  const auto each_slot = [&](auto&& act) {
    workers_.run(num_tasks, [&](std::size_t task, int) {
      const std::size_t end = std::min((task + 1) * kSlotsPerTask, group.slots.size());
      for (std::size_t i = task * kSlotsPerTask; i < end; ++i) act(i, group.slots[i]);
    });
  };
  each_slot([&](std::size_t i, Slot& slot) {
    run_slot(number * slots_per_group_ + i, slot, group, legal_logits, wdl, driver);
  });
  lay_out(group);
  each_slot([&](std::size_t, Slot& slot) { write_slot(slot, group); });
  num_evaluations_ += group.rows;
  return {std::span(group.packed).first(group.rows * packed_bytes<G>()),
          std::span(group.legal_index).first(group.legal_offset.back()), group.legal_offset};
}

template <Game G>
void SearchPool<G>::run_slot(std::size_t number, Slot& slot, const Group& group,
                             std::span<const float> legal_logits, std::span<const float> wdl,
                             SearchDriver<G>& driver) {
  for (std::size_t leaf = 0; leaf < slot.num_leaves; ++leaf) {
    const std::size_t row = slot.first_row + leaf;
    slot.search.apply(leaf, legal_logits.data() + group.legal_offset[row], wdl.data() + 3 * row);
  }
  while (true) {
    if (!slot.is_busy && !driver.next(number, slot.search)) {
      slot.num_leaves = 0;
      return;
    }
    slot.is_busy = true;
    slot.num_leaves = slot.search.collect();
    if (slot.num_leaves > 0) return;
    driver.finish(number, slot.search);
    slot.is_busy = false;
  }
}

// Where each slot's leaves go in the batch.
template <Game G>
void SearchPool<G>::lay_out(Group& group) {
  group.rows = 0;
  group.legal_offset.assign(1, 0);
  for (Slot& slot : group.slots) {
    slot.first_row = group.rows;
    group.rows += slot.num_leaves;
    for (std::size_t leaf = 0; leaf < slot.num_leaves; ++leaf) {
      const auto num_legal = static_cast<std::int32_t>(slot.search.num_legal(leaf));
      group.legal_offset.push_back(group.legal_offset.back() + num_legal);
    }
  }
}

template <Game G>
void SearchPool<G>::write_slot(Slot& slot, Group& group) {
  for (std::size_t leaf = 0; leaf < slot.num_leaves; ++leaf) {
    const std::size_t row = slot.first_row + leaf;
    slot.search.write_position(leaf, fill_, group.packed.data() + row * packed_bytes<G>());
    slot.search.write_legal(leaf, group.legal_index.data() + group.legal_offset[row]);
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

template class SearchPool<Chess>;
template class SearchPool<Connect4>;
template class SearchPool<TicTacToe>;

}  // namespace alphazero
