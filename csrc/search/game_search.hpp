// The search of a whole game: one tree, kept from move to move, that fills batches with its leaves.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/worker_pool.hpp"
#include "games/game.hpp"
#include "games/line.hpp"
#include "search/evaluation_cache.hpp"
#include "search/game_tree.hpp"
#include "search/leaf.hpp"
#include "search/leaf_queue.hpp"
#include "search/leaves.hpp"
#include "search/root_view.hpp"
#include "search/settings.hpp"

namespace alphazero {

// The search as it stands. The best move comes first; only moves that may be searched are there.
struct SearchView {
  std::vector<RootMove> moves;
  std::uint64_t nodes = 0;        // visits of the root: its own evaluation and every finished walk since
  std::uint64_t playouts = 0;     // of these, made since begin()
  std::uint64_t evaluations = 0;  // by the network, since begin()
  std::uint64_t cache_hits = 0;
  double mean_depth = 0.0;    // plies of a playout
  std::uint32_t deepest = 0;  // plies of the longest
  double root_q = 0.0;
  double root_d = 0.0;
  std::int8_t proven = kUnproven;  // the root, of the moves that may be searched
  std::uint16_t plies = 0;
  bool is_done = false;  // proven, or without a move
  bool is_full = false;  // the memory limit is reached
  int cache_per_mille = 0;
  std::uint64_t tree_nodes = 0;
  std::uint64_t tree_bytes = 0;
};

struct SearchProgress {
  std::uint64_t nodes = 0;     // as in SearchView
  std::uint64_t playouts = 0;  // begun since begin()
  double mean_depth = 0.0;
  bool is_done = false;
  bool is_full = false;
};

// kNumSlots batches may be on their way at a time. Every function may be called by any thread.
//
// One thread walks, all threads look at the leaves that it reaches. It walks further as if each were to
// wait for the network; where one does not, the walks after it are taken back. So the tree is that of one
// thread.
template <Game G>
class GameSearch {
 public:
  using State = typename G::State;
  static constexpr std::size_t kNumSlots = 4;

  explicit GameSearch(const EngineSettings& settings);

  // The position to search is the end of this line. What is known of it stays where the line is that of
  // before with more moves; else the tree begins anew. Batches on their way are abandoned: what they bring is
  // kept in the cache. Returns the visits that are kept.
  std::uint64_t set_line(const Line<G>& line);
  // Begins a search of that position: counters to 0, at the root only these moves (none: all legal ones). A
  // search of other moves than before begins with a new tree; evaluations stay in the cache.
  void begin(std::span<const Move> only);
  // Forgets the tree and the cache: new settings, a new network.
  void reset(const EngineSettings& settings);

  // Walks until a batch has `most_leaves`, or the root would have more than `most_visits` visits, or nothing
  // is left to do. The slot is taken where there are leaves; throws std::invalid_argument where it was
  // before.
  OwnedLeaves gather(std::size_t slot, std::size_t most_leaves, std::uint64_t most_visits);
  // The slot's evaluations: logits of its legal moves, win, draw, loss of each row. Frees the slot. exact:
  // rows whose win, draw, loss are certain (tablebases), or empty: none is.
  void apply(std::size_t slot, std::span<const float> legal_logits, std::span<const float> wdl,
             std::span<const std::uint8_t> exact = {});
  // Frees the slot without them.
  void drop(std::size_t slot);

  // The network's own value (W - L, for the side to move) of the end of a line; NaN where the cache lacks it.
  double cached_value(const Line<G>& line) const;
  SearchProgress progress() const;
  // num_lines: moves that come with their line of play.
  SearchView view(std::size_t num_lines) const;

 private:
  struct Batch {
    bool is_taken = false;
    std::vector<std::uint32_t> leaves;  // kNoNode: abandoned
    std::vector<InputKey> keys;
    std::vector<std::int32_t> legal_offset{0};
  };
  // A walk that may be taken back: one that ended at a leaf which is being looked at, or a later one.
  struct Ahead {
    std::uint32_t id = kNoNode;  // where it ended
    GameEdge* made = nullptr;    // whose child it made; null: the node was there
    bool is_collision = false;   // the node waits for the network
  };
  // kAgain: only possible once nothing can be taken back.
  enum class Walk : std::uint8_t { kFinished, kQueued, kCollision, kFull, kNoMove, kAgain };
  struct Limits {
    std::size_t leaves = 0;
    std::uint64_t visits = 0;
    std::size_t ahead = 1;  // leaves that are looked at meanwhile
  };

  void start_threads();
  void show_line();
  void new_root(const State& state, std::uint8_t repetitions);
  bool descend(const Frame<State>& next);
  void make_searchable();
  void abandon();
  void release(std::uint32_t leaf);
  void free_slot(Batch& batch);
  template <typename Task>
  void share(std::size_t num_tasks, const Task& task);
  void fill(Batch& batch, OwnedLeaves& leaves, const Limits& limits, LeafReader<G>& reader);
  void help(LeafReader<G>& reader, const std::atomic<bool>& is_over);
  void look_with(LeafReader<G>& reader, Leaf<G>& leaf) const;
  bool may_walk(const Batch& batch, const Limits& limits) const;
  Walk walk();
  void count_walk(std::size_t depth);
  void finish_walk(std::uint32_t id, std::size_t depth);
  void look_at(std::uint32_t id, GameEdge* made);
  Walk conclude(Leaf<G>& leaf, Batch& batch, OwnedLeaves& leaves);
  void take_back();
  bool make_edges(GameNode& node, const Leaf<G>& leaf);
  bool prove_win(std::uint32_t id, const Leaf<G>& leaf);
  void set_priors(std::uint32_t id, std::span<const float> logits, std::vector<double>& memory);
  void evaluate(std::uint32_t id, const float* wdl);
  void settle(std::uint32_t id, const float* wdl);
  bool is_done() const;
  double mean_depth() const {
    return playouts_ > 0 ? static_cast<double>(depth_sum_) / static_cast<double>(playouts_) : 0.0;
  }

  mutable std::mutex mutex_;
  EngineSettings settings_;
  GameTree tree_;
  EvaluationCache cache_;
  std::uint32_t root_ = kNoNode;
  std::vector<Frame<State>> frames_;  // the line up to the root
  std::vector<Move> only_;            // that the root's visits looked at, ascending
  std::array<Batch, kNumSlots> batches_;
  std::vector<std::uint32_t> collisions_;
  // By thread.
  std::unique_ptr<WorkerPool> workers_;
  std::vector<LeafReader<G>> readers_;
  std::vector<std::vector<double>> powered_;  // memory of set_priors
  std::unique_ptr<LeafQueue<G>> queue_;       // leaves of ahead_
  std::deque<Ahead> ahead_;                   // begins with a leaf
  std::vector<Move> path_;                    // of the walk under way
  std::size_t num_walks_ = 0;                 // of gather()
  bool is_full_ = false;
  std::uint64_t in_flight_ = 0;  // walks whose leaf waits
  std::uint64_t playouts_ = 0;
  std::uint64_t evaluations_ = 0;
  std::uint64_t cache_hits_ = 0;
  std::uint64_t depth_sum_ = 0;
  std::uint32_t deepest_ = 0;
};

}  // namespace alphazero
