// Many searches that advance together: their leaves make the batches of a network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/worker_pool.hpp"
#include "games/game.hpp"
#include "search/evaluation_cache.hpp"
#include "search/leaves.hpp"
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

// Slots in groups, a search in each slot. While the network evaluates one group's leaves another group may
// step; steps of one pool must not overlap.
template <Game G>
class SearchPool {
 public:
  // leaves: the most that one search may wait for. num_threads: at least 1, the caller is one of them. Throws
  // std::invalid_argument where a group's batch could have more legal moves than its offsets can count.
  // cache: evaluations by the network that evaluates, which the pool reads and adds to; null is none. It
  // changes what is given out for evaluation, not what the searches find.
  SearchPool(std::size_t slots_per_group, std::size_t num_groups, std::size_t leaves, int num_threads,
             HistoryFill fill, DividedCache* cache = nullptr);

  // Takes the evaluations of the group's last batch (none the first time), and continues until every slot
  // waits again or has nothing left to do. An empty batch: the group is done. The batch's memory is the
  // pool's, until the group's next step.
  LeafBatch step(std::size_t group, std::span<const float> legal_logits, std::span<const float> wdl,
                 SearchDriver<G>& driver);

  std::size_t num_groups() const { return groups_.size(); }
  std::size_t batch_legal(std::size_t group) const { return groups_[group].legal_offset.back(); }
  // Since construction: finished simulations, positions given out for evaluation, and positions whose
  // evaluation the cache knew.
  std::uint64_t num_simulations() const;
  std::uint64_t num_evaluations() const { return num_evaluations_; }
  std::uint64_t num_cached() const { return num_cached_; }

 private:
  struct Slot {
    Search<G> search;
    bool is_busy = false;
  };
  // What one thread must know of a slot and of its leaves to lay the batch out. It lies apart from the
  // searches, for that thread would wait for each search in another core's cache.
  struct Place {
    std::uint32_t num_leaves = 0;  // that wait
    std::uint32_t num_cached = 0;  // found in the cache since the last batch
  };
  struct Leaf {
    std::int32_t num_legal = 0;
    std::int32_t row = kKnown;  // of the batch
  };
  static constexpr std::int32_t kKnown = -1;  // no row: the evaluation is in Group::known
  static std::size_t known_floats() { return 3 + static_cast<std::size_t>(G::kMaxLegalMoves); }
  struct Group {
    std::vector<Slot> slots;
    std::vector<Place> places;
    std::vector<Leaf> leaves;    // [slots, leaves]
    std::vector<InputKey> keys;  // [slots, leaves], where there is a cache
    std::vector<float> known;  // [slots, leaves, known_floats()]: win, draw, loss and logits of known leaves
    std::size_t rows = 0;
    std::vector<std::uint8_t> packed;  // [slots, leaves, bytes]; once laid out, a batch's rows without gaps
    std::vector<std::int32_t> legal_index;
    std::vector<std::int32_t> legal_offset{0};
  };

  void keep(const Group& group, std::size_t share, std::span<const float> legal_logits,
            std::span<const float> wdl);
  struct Evaluations {
    std::span<const float> legal_logits;
    std::span<const float> wdl;
  };

  void run_slots(std::size_t begin, std::size_t end, std::size_t number, const Evaluations& evaluations,
                 SearchDriver<G>& driver);
  void run_slot(std::size_t index, std::size_t number, Group& group, bool has_walked,
                const Evaluations& evaluations, SearchDriver<G>& driver);
  void apply_leaves(std::size_t index, Group& group, const Evaluations& evaluations);
  bool look_up(std::size_t index, Group& group);
  void lay_out(Group& group);
  void write_legal(std::size_t index, Group& group);

  std::vector<Group> groups_;
  std::size_t slots_per_group_;
  std::size_t leaves_;
  HistoryFill fill_;
  DividedCache* cache_;
  WorkerPool workers_;
  std::uint64_t num_evaluations_ = 0;
  std::uint64_t num_cached_ = 0;
};

}  // namespace alphazero
