#include "search/game_search/backup.hpp"

#include <algorithm>
#include <cstddef>

namespace alphazero {
namespace {

bool prove(NodeStore& store, GameNode& parent) {
  bool all_proven = true;
  std::int8_t best = -1;
  std::uint16_t shortest = UINT16_MAX, longest = 0;
  for (const GameEdge& edge : store.edges(parent)) {
    if (edge.child == kNoNode || store.node(edge.child).proven == kUnproven) {
      all_proven = false;
      continue;
    }
    const GameNode& child = store.node(edge.child);
    best = std::max(best, static_cast<std::int8_t>(-child.proven));
    if (child.proven == -1) shortest = std::min(shortest, child.plies);
    if (child.proven == 1) longest = std::max(longest, child.plies);
  }
  if (best != 1 && !all_proven) return false;
  const std::uint16_t plies = best == 1 ? shortest + 1 : best == -1 ? longest + 1 : 0;
  if (parent.proven == best && parent.plies == plies) return false;
  parent.proven = best;
  parent.plies = plies;
  return true;
}

void set_proven(NodeStore& store, std::uint32_t id, std::int8_t proven, std::uint16_t plies) {
  GameNode& node = store.node(id);
  node.proven = proven;
  node.plies = plies;
  double value = static_cast<double>(proven) * node.visits - node.value_sum;
  const double draw = (proven == 0 ? 1.0 : 0.0) * node.visits - node.draw_sum;
  node.value_sum += value;
  node.draw_sum += draw;
  for (std::uint32_t at = node.parent; at != kNoNode; at = store.node(at).parent) {
    GameNode& above = store.node(at);
    if (above.proven != kUnproven) break;
    value = -value;
    above.value_sum += value;
    above.draw_sum += draw;
  }
}

}  // namespace

void add_waiting(NodeStore& store, std::uint32_t leaf, std::int32_t count) {
  for (std::uint32_t id = leaf; id != kNoNode; id = store.node(id).parent) {
    store.node(id).waiting += static_cast<std::uint32_t>(count);
  }
}

void take_back_visits(NodeStore& store, std::uint32_t id) {
  const std::uint32_t visits = store.node(id).visits;
  for (std::uint32_t at = store.node(id).parent; at != kNoNode; at = store.node(at).parent) {
    store.node(at).visits -= visits;
    store.node(at).draw_sum -= visits;
  }
  GameNode& node = store.node(id);
  const std::uint32_t parent = node.parent;
  node = GameNode{};
  node.parent = parent;
}

void finish(NodeStore& store, std::uint32_t leaf, double value, double draw) {
  for (std::uint32_t id = leaf; id != kNoNode; id = store.node(id).parent) {
    GameNode& node = store.node(id);
    // What is proven keeps its value whatever still comes in from below.
    node.value_sum += node.proven != kUnproven ? node.proven : value;
    node.draw_sum += node.proven != kUnproven ? static_cast<double>(node.proven == 0) : draw;
    ++node.visits;
    if (node.proven != kUnproven) {
      value = node.proven;
      draw = node.proven == 0;
    }
    value = -value;
  }
}

void prove_parents(NodeStore& store, std::uint32_t child) {
  for (std::uint32_t id = store.node(child).parent; id != kNoNode; id = store.node(id).parent) {
    GameNode& node = store.node(id);
    if (!prove(store, node)) return;
    set_proven(store, id, node.proven, node.plies);
  }
}

}  // namespace alphazero
