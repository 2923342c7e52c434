// The nodes and edges of one search tree, in memory that is used again from move to move.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "games/game.hpp"

namespace alphazero {

constexpr std::uint32_t kNoNode = UINT32_MAX;
constexpr std::int8_t kUnproven = 2;  // else -1, 0 or 1

// A legal move of a node. Values are from the point of view of that node's mover.
struct Edge {
  double value_sum = 0.0;         // of the finished simulations
  float prior = 0.0F;             // 0 until the node is evaluated
  std::uint32_t visits = 0;       // finished simulations
  std::uint32_t child = kNoNode;  // made by the first simulation
  std::uint16_t waiting = 0;      // simulations that wait for an evaluation
  Move move = 0;
  std::uint16_t index = 0;  // in the policy; ascending within a node
  std::int8_t proven = kUnproven;

  std::uint32_t total() const { return visits + waiting; }
};

template <typename State>
struct Node {
  State state;
  double value = 0.0;     // the network's W - L for the mover
  double draw = 0.0;      // the network's D
  double draw_sum = 0.0;  // the network's D, and that of every simulation that went further
  std::uint32_t parent = kNoNode;
  std::uint32_t first_edge = 0;
  std::uint16_t num_edges = 0;  // none where the game is over
  std::uint16_t parent_edge = 0;
  std::uint8_t repetitions = 0;
  std::int8_t proven = kUnproven;
  bool is_evaluated = false;
};

// Nodes in order of creation: a parent stands before its children, in nodes and in edges. Node 0 is the root.
template <Game G>
class Tree {
 public:
  using State = typename G::State;

  void clear() {
    nodes_.clear();
    edges_.clear();
  }

  bool empty() const { return nodes_.empty(); }
  std::size_t size() const { return nodes_.size(); }
  std::size_t num_edges() const { return edges_.size(); }
  Node<State>& node(std::uint32_t id) { return nodes_[id]; }
  const Node<State>& node(std::uint32_t id) const { return nodes_[id]; }
  Node<State>& root() { return nodes_[0]; }
  const Node<State>& root() const { return nodes_[0]; }

  std::span<Edge> edges(const Node<State>& node) {
    return std::span(edges_).subspan(node.first_edge, node.num_edges);
  }
  std::span<const Edge> edges(const Node<State>& node) const {
    return std::span(edges_).subspan(node.first_edge, node.num_edges);
  }

  // Makes a node without edges; the new one is the last. References to other nodes die.
  std::uint32_t add_node(const State& state, std::uint8_t repetitions, std::uint32_t parent,
                         std::uint16_t parent_edge) {
    const auto id = static_cast<std::uint32_t>(nodes_.size());
    Node<State>& made = nodes_.emplace_back();
    made.state = state;
    made.repetitions = repetitions;
    made.parent = parent;
    made.parent_edge = parent_edge;
    made.first_edge = static_cast<std::uint32_t>(edges_.size());
    if (parent != kNoNode) edges(nodes_[parent])[parent_edge].child = id;
    return id;
  }

  // Gives the last node one more edge. References to other edges die.
  void add_edge(Move move, int index) {
    Edge& edge = edges_.emplace_back();
    edge.move = move;
    edge.index = static_cast<std::uint16_t>(index);
    ++nodes_.back().num_edges;
  }

  // Makes `root` the root and forgets all that is not below it.
  void keep_subtree(std::uint32_t root) {
    new_id_.assign(nodes_.size(), kNoNode);
    std::uint32_t kept = 0;
    std::uint32_t kept_edges = 0;
    for (std::uint32_t id = root; id < nodes_.size(); ++id) {
      const std::uint32_t parent = nodes_[id].parent;
      if (id != root && (parent < root || new_id_[parent] == kNoNode)) continue;
      Node<State> moved = nodes_[id];
      std::copy_n(edges_.begin() + moved.first_edge, moved.num_edges, edges_.begin() + kept_edges);
      moved.first_edge = kept_edges;
      moved.parent = id == root ? kNoNode : new_id_[parent];
      kept_edges += moved.num_edges;
      if (id != root) edges(nodes_[moved.parent])[moved.parent_edge].child = kept;
      nodes_[kept] = moved;
      new_id_[id] = kept++;
    }
    nodes_.resize(kept);
    edges_.resize(kept_edges);
  }

 private:
  std::vector<Node<State>> nodes_;
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> new_id_;  // memory of keep_subtree
};

}  // namespace alphazero
