// The search of a whole game: one tree, kept from move to move, that fills batches with its leaves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "games/game.hpp"
#include "games/line.hpp"
#include "search/evaluation_cache.hpp"
#include "search/game_tree.hpp"
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
  bool is_done = false;
  bool is_full = false;
};

// Two batches may be on their way at a time (`slot` 0 and 1). Every function may be called by any thread.
template <Game G>
class GameSearch {
 public:
  using State = typename G::State;
  static constexpr std::size_t kNumSlots = 2;

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
  enum class Walk : std::uint8_t { kFinished, kQueued, kCollision, kFull, kNoMove };

  void new_root(const State& state, std::uint8_t repetitions);
  bool descend(const Frame<State>& next);
  void make_searchable();
  void abandon();
  void release(std::uint32_t leaf);
  void free_slot(Batch& batch);
  Walk walk(Batch& batch, OwnedLeaves& leaves);
  std::uint32_t expand(std::uint32_t parent, GameEdge& edge, std::size_t depth);
  bool reach_end(GameNode& node, std::size_t depth);
  Walk enqueue(std::uint32_t id, bool is_made, Batch& batch, OwnedLeaves& leaves);
  bool make_edges(GameNode& node, const State& state);
  bool wins_at_once(std::uint32_t id, const State& state);
  void evaluate(std::uint32_t id, std::span<const float> logits, const float* wdl);
  void settle(std::uint32_t id, const float* wdl);
  bool is_done() const;

  mutable std::mutex mutex_;
  EngineSettings settings_;
  GameTree tree_;
  EvaluationCache cache_;
  std::uint32_t root_ = kNoNode;
  std::vector<Frame<State>> frames_;  // the line up to the root, then the walk under way
  std::size_t num_line_ = 0;          // of them of the line
  std::vector<Move> only_;            // that the root's visits looked at, ascending
  std::array<Batch, kNumSlots> batches_;
  std::vector<std::uint32_t> collisions_;
  bool is_full_ = false;
  std::uint64_t in_flight_ = 0;  // walks whose leaf waits
  std::uint64_t playouts_ = 0;
  std::uint64_t evaluations_ = 0;
  std::uint64_t cache_hits_ = 0;
  std::uint64_t depth_sum_ = 0;
  std::uint32_t deepest_ = 0;
  LegalIndices<G> moves_;  // of the position looked at last
  std::vector<std::uint8_t> packed_;
  std::vector<double> powered_;  // memory of evaluate
};

}  // namespace alphazero
