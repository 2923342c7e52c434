// Many searches that advance together: their leaves make the batches of a network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/worker_pool.hpp"
#include "games/game.hpp"
#include "search/search.hpp"

namespace alphazero {

// What is searched. Both functions are called by several threads at once, for different slots.
template <Game G>
class SearchDriver {
 public:
  virtual ~SearchDriver() = default;
  // Begins the slot's next search; false: there is nothing left to do.
  virtual bool next(std::size_t slot, Search<G>& search) = 0;
  // The slot's search is done.
  virtual void finish(std::size_t slot, Search<G>& search) = 0;
};

// Positions that wait for the network: B rows, K legal moves over all of them. The memory is the pool's,
// until the group's next step.
struct LeafBatch {
  std::span<const std::uint8_t> packed;        // [B, packed_bytes]
  std::span<const std::int32_t> legal_index;   // [K], ascending within a row
  std::span<const std::int32_t> legal_offset;  // [B + 1]
  std::size_t num_rows() const { return legal_offset.size() - 1; }
};

// Slots in groups, a search in each slot. While the network evaluates one group's leaves another group may
// step; steps of one pool must not overlap.
template <Game G>
class SearchPool {
 public:
  // leaves: the most that one search may wait for. num_threads: at least 1, the caller is one of them. Throws
  // std::invalid_argument where a group's batch could have more legal moves than its offsets can count.
  SearchPool(std::size_t slots_per_group, std::size_t num_groups, std::size_t leaves, int num_threads,
             HistoryFill fill);

  // Takes the evaluations of the group's last batch (none the first time), and goes on until every slot waits
  // again or has nothing left to do. An empty batch: the group is done.
  LeafBatch step(std::size_t group, std::span<const float> legal_logits, std::span<const float> wdl,
                 SearchDriver<G>& driver);

  std::size_t num_groups() const { return groups_.size(); }
  std::size_t batch_rows(std::size_t group) const { return groups_[group].rows; }
  std::size_t batch_legal(std::size_t group) const { return groups_[group].legal_offset.back(); }
  // Finished simulations, and positions given out for evaluation, since construction.
  std::uint64_t num_simulations() const;
  std::uint64_t num_evaluations() const { return num_evaluations_; }

 private:
  struct Slot {
    Search<G> search;
    bool is_busy = false;
  };
  // A slot's place in the batch, and the legal moves of each leaf in it. They lie apart from the searches:
  // one thread lays the batch out, and would wait for each search in another core's cache.
  struct Place {
    std::uint32_t first_row = 0;
    std::uint32_t num_leaves = 0;
  };
  struct Group {
    std::vector<Slot> slots;
    std::vector<Place> places;
    std::vector<std::int32_t> num_legal;  // [slots, leaves]
    std::size_t rows = 0;
    std::vector<std::uint8_t> packed;
    std::vector<std::int32_t> legal_index;
    std::vector<std::int32_t> legal_offset{0};
  };

  void run_slot(std::size_t index, std::size_t number, Group& group, std::span<const float> legal_logits,
                std::span<const float> wdl, SearchDriver<G>& driver);
  void write_slot(std::size_t index, Group& group);
  void lay_out(Group& group);

  std::vector<Group> groups_;
  std::size_t slots_per_group_;
  std::size_t leaves_;
  HistoryFill fill_;
  WorkerPool workers_;
  std::uint64_t num_evaluations_ = 0;
};

}  // namespace alphazero
