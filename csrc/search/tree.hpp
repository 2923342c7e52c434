// The nodes of one search tree, in memory that is used again from move to move.
//
// Most edges are never walked. A node keeps of each legal move a policy index and a prior; counts and values
// exist for the walked ones alone, which lie together, so that a choice among them reads little memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "games/game.hpp"
#include "search/edges.hpp"

namespace alphazero {

struct alignas(64) Node {
  double value = 0.0;         // the network's W - L for the mover
  double draw_sum = 0.0;      // the network's D, and that of every simulation that went further
  double walked_prior = 0.0;  // the sum of the walked edges' priors, in their order
  std::uint32_t visits = 0;   // of all edges
  std::uint32_t parent = kNoNode;
  std::uint32_t first_edge = 0;
  std::uint32_t first_walked = 0;
  std::uint32_t waiting = 0;               // in all edges
  float draw = 0.0F;                       // the network's D
  float best_prior = 0.0F;                 // of best_unwalked
  std::uint16_t best_unwalked = kNoPlace;  // the edge with the largest prior, the first of several
  std::uint16_t num_edges = 0;             // none where the game is over
  std::uint16_t num_walked = 0;
  std::uint16_t sibling = 0;  // edge_to's: no more than its number among the parent's walked edges
  std::int8_t proven = kUnproven;
  bool is_evaluated = false;

  std::uint32_t total() const { return visits + waiting; }
};
static_assert(sizeof(Node) == 64, "a cache line");

// Nodes in order of creation: a parent stands before its children, in nodes and in edges. Node 0 is the root.
template <Game G>
class Tree {
 public:
  using State = typename G::State;
  static_assert(RulesOutside<G> || G::kPolicySize <= 1 << 12, "expected places that fit WalkedEdge::place");

  void clear() {
    nodes_.clear();
    frames_.clear();
    index_.clear();
    prior_.clear();
    log_prior_.clear();
    walked_.clear();
  }

  bool empty() const { return nodes_.empty(); }
  std::size_t size() const { return nodes_.size(); }
  Node& node(std::uint32_t id) { return nodes_[id]; }
  const Node& node(std::uint32_t id) const { return nodes_[id]; }
  Node& root() { return nodes_[0]; }
  const Node& root() const { return nodes_[0]; }
  const Frame<State>& frame(std::uint32_t id) const { return frames_[id]; }
  const State& state(std::uint32_t id) const { return frames_[id].state; }

  // Of each legal move, in ascending order.
  std::span<const std::uint16_t> policy_indices(const Node& node) const {
    return {index_.data() + node.first_edge, node.num_edges};
  }
  Move move(std::uint32_t id, std::size_t place) const {
    return G::index_to_move(state(id), index_[nodes_[id].first_edge + place]);
  }
  // kPriorOfWalked for the edges in walked(). Who changes one calls find_best_unwalked.
  std::span<float> priors(const Node& node) { return {prior_.data() + node.first_edge, node.num_edges}; }
  std::span<const float> priors(const Node& node) const {
    return {prior_.data() + node.first_edge, node.num_edges};
  }
  // The logarithms of all priors, walked or not, once they are made.
  std::span<double> make_log_priors(const Node& node) {
    log_prior_.resize(index_.size());
    return {log_prior_.data() + node.first_edge, node.num_edges};
  }
  std::span<const double> log_priors(const Node& node) const {
    return {log_prior_.data() + node.first_edge, node.num_edges};
  }
  // By ascending place.
  std::span<WalkedEdge> walked(const Node& node) { return {walked_.at(node.first_walked), node.num_walked}; }
  std::span<const WalkedEdge> walked(const Node& node) const {
    return {walked_.at(node.first_walked), node.num_walked};
  }
  // The edge that leads to a node other than the root. Siblings that were walked since the last call may have
  // moved it further back.
  WalkedEdge& edge_to(std::uint32_t id) {
    Node& child = nodes_[id];
    const std::span<WalkedEdge> edges = walked(nodes_[child.parent]);
    while (edges[child.sibling].child != id) ++child.sibling;
    return edges[child.sibling];
  }
  std::uint16_t place_in_parent(std::uint32_t id) const {
    const auto edges = walked(nodes_[nodes_[id].parent]);
    return std::ranges::find(edges, id, &WalkedEdge::child)->place;
  }

  // Tells the processor that a walk comes to this node: its parts lie apart, and it waits for them at once.
  void prefetch(std::uint32_t id) const {
    const char* const frame = reinterpret_cast<const char*>(frames_.data() + id);
    __builtin_prefetch(frame);
    __builtin_prefetch(frame + sizeof(Frame<State>) - 1);
    prefetch_node(id);
  }
  void prefetch_node(std::uint32_t id) const { __builtin_prefetch(nodes_.data() + id); }
  void prefetch_edges(const Node& node, bool are_logs_read) const {
    const char* const walked_edges = reinterpret_cast<const char*>(walked_.at(node.first_walked));
    for (std::size_t byte = 0; byte < sizeof(WalkedEdge) * node.num_walked; byte += 64) {
      __builtin_prefetch(walked_edges + byte);
    }
    if (are_logs_read && node.num_walked > 0) {  // the first walk makes them
      const char* const logs = reinterpret_cast<const char*>(log_prior_.data() + node.first_edge);
      for (std::size_t byte = 0; byte < sizeof(double) * node.num_edges; byte += 64) {
        __builtin_prefetch(logs + byte);
      }
      return;
    }
    if (node.best_unwalked == kNoPlace) return;
    const char* const all_priors = reinterpret_cast<const char*>(prior_.data() + node.first_edge);
    for (std::size_t byte = 0; byte < sizeof(float) * node.num_edges; byte += 64) {
      __builtin_prefetch(all_priors + byte);
    }
    __builtin_prefetch(index_.data() + node.first_edge + node.best_unwalked);
  }

  // Every edge of a node, in ascending order of policy index; name_moves sets their moves, which no rule asks
  // for.
  void list_edges(std::uint32_t id, std::vector<Edge>& edges) const {
    const Node& node = nodes_[id];
    edges.resize(node.num_edges);
    for (std::size_t place = 0; place < edges.size(); ++place) {
      edges[place] = Edge();
      edges[place].prior = prior_[node.first_edge + place];
      edges[place].index = index_[node.first_edge + place];
    }
    for (const WalkedEdge& walked_edge : walked(node)) {
      Edge& edge = edges[walked_edge.place];
      edge.value_sum = walked_edge.value_sum;
      edge.prior = walked_edge.prior;
      edge.visits = walked_edge.visits();
      edge.child = walked_edge.child;
      edge.waiting = walked_edge.waiting;
      edge.proven = static_cast<std::int8_t>(walked_edge.proven);
    }
  }

  void name_moves(std::uint32_t id, std::span<Edge> edges) const {
    for (Edge& edge : edges) edge.move = G::index_to_move(state(id), edge.index);
  }

  // Makes a node without edges; the new one is the last. References to nodes, frames and edges die.
  std::uint32_t add_node(const Frame<State>& frame, std::uint32_t parent, std::uint16_t parent_edge) {
    const auto id = static_cast<std::uint32_t>(nodes_.size());
    frames_.push_back(frame);
    Node& made = nodes_.emplace_back();
    made.parent = parent;
    made.first_edge = static_cast<std::uint32_t>(index_.size());
    if (parent != kNoNode) made.sibling = add_walked(nodes_[parent], parent_edge, id);
    return id;
  }

  // Gives the last node its legal moves, by ascending policy index.
  void add_edges(std::span<const std::uint16_t> indices) {
    index_.insert(index_.end(), indices.begin(), indices.end());
    prior_.resize(index_.size());
    nodes_.back().num_edges = static_cast<std::uint16_t>(indices.size());
  }

  void find_best_unwalked(Node& node) const {
    node.best_unwalked = kNoPlace;
    node.best_prior = kPriorOfWalked;
    const std::span<const float> all = priors(node);
    for (std::size_t place = 0; place < all.size(); ++place) {
      if (all[place] > node.best_prior) {
        node.best_prior = all[place];
        node.best_unwalked = static_cast<std::uint16_t>(place);
      }
    }
  }

 private:
  void sum_walked_priors(Node& node) const {
    node.walked_prior = 0.0;
    for (const WalkedEdge& edge : walked(node)) node.walked_prior += edge.prior;
  }

  // Returns its number among the walked edges.
  std::uint16_t add_walked(Node& node, std::uint16_t place, std::uint32_t child) {
    node.first_walked = walked_.grow(node.first_walked, node.num_walked);
    WalkedEdge* const edges = walked_.at(node.first_walked);
    std::uint16_t number = node.num_walked++;
    for (; number > 0 && edges[number - 1].place > place; --number) edges[number] = edges[number - 1];
    float& prior = prior_[node.first_edge + place];
    edges[number] = WalkedEdge();
    edges[number].prior = prior;
    edges[number].child = child;
    edges[number].place = place;
    prior = kPriorOfWalked;
    if (number + 1 == node.num_walked) {
      node.walked_prior += edges[number].prior;  // as the sum over all of them does last
    } else {
      sum_walked_priors(node);
    }
    if (place == node.best_unwalked) find_best_unwalked(node);
    return number;
  }

  std::vector<Node> nodes_;
  std::vector<Frame<State>> frames_;  // the position of each node
  std::vector<std::uint16_t> index_;  // of all nodes' edges, as are the priors
  std::vector<float> prior_;
  std::vector<double> log_prior_;
  WalkedBlocks walked_;
};

}  // namespace alphazero
