// The rules that choose the edge that a simulation walks, and what a finished search says: PUCT, Gumbel and
// the engine's (docs/search.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "search/game_tree.hpp"
#include "search/settings.hpp"
#include "search/tree.hpp"

namespace alphazero {

// A node as PUCT looks at it; the spans are Tree's.
struct PuctNode {
  const Node& node;
  std::span<const WalkedEdge> walked;
  std::span<const float> priors;
  bool is_root = false;
};

// The edge to walk: its place among the node's edges; where it leads, if it was walked before.
struct Choice {
  std::uint16_t place = 0;
  std::uint32_t child = kNoNode;
};

// The node's mean value: its own evaluation and all finished simulations.
double mean_value(double own_value, std::span<const Edge> edges);

// PUCT. The root's playouts are forced where `force` says so.
Choice select_puct(const PuctNode& node, const SearchSettings& settings, bool force);
// Visits as shares, pruned of forced playouts if there were any.
void puct_policy(std::span<const Edge> edges, std::int8_t root_proven, const SearchSettings& settings,
                 bool forced, std::vector<double>& policy);

// Gumbel. Sequential halving looks at edges with schedule[i] visits in simulation i.
void halving_schedule(int considered, int simulations, std::vector<int>& schedule);

// A node as Gumbel's rules look at it while they walk; the spans are Tree's.
struct GumbelNode {
  const Node& node;
  std::span<const WalkedEdge> walked;
  std::span<const double> log_priors;
};

// l(a) of an edge with this prior.
double log_prior(float prior);

class Gumbel {
 public:
  Choice select_root(const GumbelNode& node, std::span<const double> noise, int considered_visits,
                     const SearchSettings& settings);
  Choice select_inner(const GumbelNode& node, const SearchSettings& settings);
  void policy(double own_value, std::span<const Edge> edges, std::int8_t root_proven,
              const SearchSettings& settings, std::vector<double>& policy);
  std::size_t best_edge(double own_value, std::span<const Edge> edges, std::span<const double> noise,
                        std::int8_t root_proven, const SearchSettings& settings);

 private:
  void score(double own_value, std::span<const Edge> edges, const SearchSettings& settings);
  void score(const GumbelNode& node, const SearchSettings& settings);

  std::vector<double> score_;  // l(a) + sigma(a): scratch memory of the rules for one tree
};

// The engine: the first of the edges with the largest score; their number where none may be walked. At the
// root only these moves (none: all).
std::size_t select_engine(const GameTree& tree, const GameNode& node, bool is_root,
                          std::span<const Move> only, const EngineSettings& settings);

// May an edge of a root with this proof be played?
inline bool is_allowed(const Edge& edge, std::int8_t root_proven) {
  if (root_proven == kUnproven) return edge.proven != -1;
  return root_proven == -1 || edge.proven == root_proven;
}

inline std::uint32_t visits_of(const Edge& edge) { return edge.visits; }
inline std::uint32_t visits_of(const WalkedEdge& edge) { return edge.visits(); }

// What an edge that was walked is worth: exact where its child is proven.
inline double edge_value(const Edge& edge) {
  return edge.proven != kUnproven ? edge.proven : edge.value_sum / edge.visits;
}
inline double edge_value(const WalkedEdge& edge) {
  if (edge.proven != kUnproven) return edge.proven;
  return edge.waiting == 0 ? edge.puct_value : edge.value_sum / edge.visits();  // the same, divided before
}

}  // namespace alphazero
