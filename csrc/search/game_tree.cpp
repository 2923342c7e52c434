#include "search/game_tree.hpp"

#include <cassert>
#include <limits>

namespace alphazero {
namespace {

constexpr std::size_t kNodesWhenShort = 4096;  // swept at a time where memory is short

}  // namespace

void GameTree::add_waiting(std::uint32_t leaf, std::int32_t count) {
  for (std::uint32_t id = leaf; id != kNoNode; id = node(id).parent) {
    node(id).waiting += static_cast<std::uint32_t>(count);
  }
}

void GameTree::take_back_visits(std::uint32_t id) {
  GameNode& old = node(id);
  for (std::uint32_t at = old.parent; at != kNoNode; at = node(at).parent) {
    node(at).visits -= old.visits;
    node(at).draw_sum -= old.visits;
  }
  const std::uint32_t parent = old.parent;
  const bool keeps_turn = old.keeps_turn;
  old = GameNode{};
  old.parent = parent;
  old.keeps_turn = keeps_turn;
}

void GameTree::finish(std::uint32_t leaf, double value, double draw) {
  for (std::uint32_t id = leaf; id != kNoNode; id = node(id).parent) {
    GameNode& visited = node(id);
    if (visited.proven != kUnproven) {  // it keeps its value whatever comes in from below
      value = visited.proven;
      draw = visited.proven == 0;
    }
    visited.value_sum += value;
    visited.draw_sum += draw;
    ++visited.visits;
    value = visited.before(value);
  }
}

void GameTree::prove_parents(std::uint32_t child) {
  for (std::uint32_t id = node(child).parent; id != kNoNode; id = node(id).parent) {
    const Proof proof = proof_by_moves(node(id), {});
    if (proof.value == kUnproven || proof == node(id).proof()) return;
    set_proven(id, proof);
  }
}

// All visits of the node count as its exact value, there and above.
void GameTree::set_proven(std::uint32_t id, Proof proof) {
  GameNode& decided = node(id);
  decided.proven = proof.value;
  decided.plies = proof.plies;
  double value = static_cast<double>(proof.value) * decided.visits - decided.value_sum;
  const double draw = (proof.value == 0 ? 1.0 : 0.0) * decided.visits - decided.draw_sum;
  decided.value_sum += value;
  decided.draw_sum += draw;
  const GameNode* below = &decided;
  for (std::uint32_t at = decided.parent; at != kNoNode && node(at).proven == kUnproven;
       at = node(at).parent) {
    value = below->before(value);
    node(at).value_sum += value;
    node(at).draw_sum += draw;
    below = &node(at);
  }
}

Proof GameTree::proof_of(const GameEdge& edge) const {
  if (edge.child == kNoNode) return {};
  const GameNode& child = node(edge.child);
  if (child.proven == kUnproven) return {};
  const int plies = child.proven == 0 ? 0 : child.plies + 1;
  return {child.proven_before(), static_cast<std::uint16_t>(plies)};
}

Proof GameTree::proof_by_moves(const GameNode& node, std::span<const Move> only) const {
  ProofOfMoves moves;
  for (const GameEdge& edge : edges(node)) {
    if (may_search(only, edge.move)) moves.add(proof_of(edge));
  }
  return moves.of_node();
}

std::uint32_t GameTree::make_node(std::uint32_t parent) {
  while (free_nodes_.empty() && !garbage_.empty()) sweep(kNodesWhenShort);
  std::uint32_t id = kNoNode;
  if (!free_nodes_.empty()) {
    id = free_nodes_.back();
    free_nodes_.pop_back();
    node(id) = GameNode{};
  } else {
    if ((next_node_ & kNodeMask) == 0 && next_node_ >> kNodeBits == node_blocks_.size()) {
      constexpr std::size_t kBlock = std::size_t{1} << kNodeBits;
      if (!has_room(kBlock * sizeof(GameNode)) || next_node_ > kNoNode - kBlock) return kNoNode;
      node_blocks_.push_back(std::make_unique<GameNode[]>(kBlock));
      used_bytes_ += kBlock * sizeof(GameNode);
    }
    id = next_node_++;
  }
  node(id).parent = parent;
  ++num_nodes_;
  return id;
}

bool GameTree::make_edges(GameNode& node, std::size_t count) {
  assert(node.num_edges == 0);
  if (count == 0) return true;
  const std::size_t size = (count + kSizeStep - 1) / kSizeStep;
  std::uint32_t first = 0;
  bool is_made = take_free_edges(size, first);
  while (!is_made && !garbage_.empty()) {
    sweep(kNodesWhenShort);
    is_made = take_free_edges(size, first);
  }
  if (!is_made && !take_new_edges(size, first)) return false;
  node.first_edge = first;
  node.num_edges = static_cast<std::uint16_t>(count);
  for (GameEdge& edge : edges(node)) edge = GameEdge{};
  return true;
}

// Of this size, or a larger one that is cut.
bool GameTree::take_free_edges(std::size_t size, std::uint32_t& first) {
  for (std::size_t larger = size; larger < kNumSizes; ++larger) {
    std::vector<std::uint32_t>& free = free_edges_[larger];
    if (free.empty()) continue;
    first = free.back();
    free.pop_back();
    if (larger > size) put_back(first + static_cast<std::uint32_t>(size * kSizeStep), larger - size);
    return true;
  }
  return false;
}

// Of the last block; what is left there and too small is free for others.
bool GameTree::take_new_edges(std::size_t size, std::uint32_t& first) {
  constexpr std::size_t kBlock = std::size_t{1} << kEdgeBits;
  const std::size_t edges = size * kSizeStep;
  const std::uint64_t end = std::uint64_t{edge_blocks_.size()} << kEdgeBits;
  if (next_edge_ + edges > end) {
    if (!has_room(kBlock * sizeof(GameEdge)) || end + kBlock > std::numeric_limits<std::uint32_t>::max())
      return false;
    const std::size_t left = (end - next_edge_) / kSizeStep;
    if (left > 0) put_back(static_cast<std::uint32_t>(next_edge_), left);
    edge_blocks_.push_back(std::make_unique<GameEdge[]>(kBlock));
    used_bytes_ += kBlock * sizeof(GameEdge);
    next_edge_ = end;
  }
  first = static_cast<std::uint32_t>(next_edge_);
  next_edge_ += edges;
  return true;
}

void GameTree::put_back(std::uint32_t first, std::size_t size) {
  while (size >= kNumSizes) {
    free_edges_[kNumSizes - 1].push_back(first);
    first += static_cast<std::uint32_t>((kNumSizes - 1) * kSizeStep);
    size -= kNumSizes - 1;
  }
  if (size > 0) free_edges_[size].push_back(first);
}

void GameTree::free_edges(GameNode& node) {
  if (node.num_edges == 0) return;
  put_back(node.first_edge, (node.num_edges + kSizeStep - 1) / kSizeStep);
  node.num_edges = 0;
}

void GameTree::sweep(std::size_t most_nodes) {
  for (std::size_t swept = 0; swept < most_nodes && !garbage_.empty(); ++swept) {
    const std::uint32_t id = garbage_.back();
    garbage_.pop_back();
    GameNode& dead = node(id);
    for (const GameEdge& edge : edges(dead)) {
      if (edge.child != kNoNode) garbage_.push_back(edge.child);
    }
    free_edges(dead);
    free_nodes_.push_back(id);
    --num_nodes_;
  }
}

void GameTree::clear() {
  node_blocks_.clear();
  edge_blocks_.clear();
  next_node_ = 0;
  next_edge_ = 0;
  free_nodes_.clear();
  for (std::vector<std::uint32_t>& free : free_edges_) free.clear();
  garbage_.clear();
  num_nodes_ = 0;
  used_bytes_ = 0;
}

}  // namespace alphazero
