#include "search/backup.hpp"

#include <cstddef>

namespace alphazero {
namespace {

// All visits that the node had count as its exact value, there and above.
void set_proven(NodeStore& store, std::uint32_t id, Proof proof) {
  GameNode& node = store.node(id);
  node.proven = proof.value;
  node.plies = proof.plies;
  double value = static_cast<double>(proof.value) * node.visits - node.value_sum;
  const double draw = (proof.value == 0 ? 1.0 : 0.0) * node.visits - node.draw_sum;
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
    const Proof proof = store.proof_by_moves(store.node(id), {});
    if (proof.value == kUnproven || proof == store.node(id).proof()) return;
    set_proven(store, id, proof);
  }
}

}  // namespace alphazero
