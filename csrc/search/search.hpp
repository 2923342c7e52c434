// The search of one position: simulations until their leaves need the network, evaluations in, a result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "games/game.hpp"
#include "games/line.hpp"
#include "search/leaves.hpp"
#include "search/selection.hpp"
#include "search/settings.hpp"
#include "search/tree.hpp"

namespace alphazero {

// What a finished search says of its root. Values are the mover's.
struct SearchResult {
  Move move = 0;               // to play
  std::vector<double> policy;  // a share of each legal move, by ascending policy index
  double root_q = 0.0;         // W - L
  double root_d = 0.0;         // chance of a draw
  // Their like for the move with the largest share of the policy, and of the network without a search.
  double best_q = 0.0, best_d = 0.0;
  double orig_q = 0.0, orig_d = 0.0;
  std::uint32_t visits = 0;
  std::int8_t proven = kUnproven;
};

// One search at a time; memory is kept from one to the next. Not for use by two threads at once.
template <Game G>
class Search {
 public:
  using State = typename G::State;

  Search();
  ~Search();

  // Begins with a new tree at the end of the line, where the game must not be over.
  void start(const Line<G>& line, const SearchSettings& settings);

  // Noise for the root's edges, in their order: a Dirichlet sample for PUCT (used where noise_epsilon > 0),
  // Gumbel(0, 1) for Gumbel. At most once a search, before the first collect().
  void set_noise(std::span<const double> noise);

  // Simulations until the round is over; how many leaves wait for evaluation. 0: the search is done.
  std::size_t collect();
  // collect() in small steps, so that several searches can take turns: a step asks for the memory that the
  // next one reads, and another search runs until it is there. False: the round is over.
  void begin_round();
  bool step_round();

  // The leaf-th of those that wait: its packed position, and its legal moves by ascending policy index.
  void write_position(std::size_t leaf, HistoryFill fill, std::uint8_t* packed);
  std::span<const std::uint16_t> legal_indices(std::size_t leaf) const {
    return tree_.policy_indices(tree_.node(leaves_[leaf]));
  }

  // Asks for the nodes that apply() will change.
  void prefetch_path() const {
    for (const std::uint32_t id : path_) tree_.prefetch_node(id);
    if (!leaves_.empty()) tree_.prefetch_node(leaves_[0]);
  }
  // The evaluation of the leaf-th; in order, all before the next collect(). wdl: win, draw, loss.
  void apply(std::size_t leaf, const float* legal_logits, const float* wdl);

  bool is_done() const;
  const Tree<G>& tree() const { return tree_; }
  // In ascending order of policy index, as they are now; they hold until the next call.
  std::span<const Edge> root_edges() const;
  std::uint64_t num_simulations() const { return num_simulations_; }  // since construction
  std::size_t num_waiting() const { return leaves_.size(); }

  // Of a finished search. `draw` in [0, 1) picks the move from the policy raised to 1 / temperature (PUCT;
  // the largest share at temperature 0).
  SearchResult result(double temperature, double draw);

 private:
  std::uint32_t make_node(const Frame<State>& frame, std::uint32_t parent, std::uint16_t parent_edge);
  bool begin_walk();
  bool end_walk(std::uint32_t leaf);
  Choice select(std::uint32_t id);
  std::uint32_t expand(std::uint32_t parent, std::uint16_t edge);
  double edge_draw(const Edge& edge) const;
  std::uint8_t repetitions_of(const State& state) const;
  void finish(std::uint32_t leaf, double value, double draw, bool was_waiting);
  void prove_parents(std::uint32_t child);
  bool has_dirichlet_noise() const;

  SearchSettings settings_;
  Tree<G> tree_;
  Gumbel gumbel_;
  std::vector<double> noise_;
  std::vector<int> schedule_;
  std::vector<std::uint64_t> line_keys_;                 // of the game's positions up to the root
  std::vector<Frame<State>> line_frames_;                // the newest of them, at most G::kHistory
  std::vector<std::uint32_t> path_;                      // nodes of the simulation under way, the root first
  bool is_walking_ = false;                              // a round is under way
  bool may_choose_ = false;                              // the edges of the path's last node were asked for
  std::vector<std::uint32_t> leaves_;                    // nodes that wait
  LegalIndices<G> legal_;                                // of the newest node
  std::array<Frame<State>, G::kHistory> encode_frames_;  // memory of write_position
  std::vector<double> powered_;                          // memory of result
  mutable std::vector<Edge> root_edges_;                 // memory of root_edges
  std::uint64_t num_simulations_ = 0;
};

}  // namespace alphazero
