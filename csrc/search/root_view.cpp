#include "search/root_view.hpp"

#include <algorithm>

namespace alphazero {
namespace {

constexpr std::size_t kLongestPv = 256;

void rank(const GameTree& tree, const GameNode& node, std::span<const Move> only,
          std::vector<const GameEdge*>& ranked) {
  ranked.clear();
  for (const GameEdge& edge : tree.edges(node)) {
    if (may_search(only, edge.move)) ranked.push_back(&edge);
  }
  const auto preferred = [&tree](const GameEdge* a, const GameEdge* b) {
    static const GameNode unknown;
    const GameNode& left = a->child == kNoNode ? unknown : tree.node(a->child);
    const GameNode& right = b->child == kNoNode ? unknown : tree.node(b->child);
    const auto group = [](const GameNode& child) {
      const std::int8_t proven = child.proven_before();
      return proven == 1 ? 0 : proven == -1 ? 2 : 1;
    };
    if (group(left) != group(right)) return group(left) < group(right);
    if (group(left) == 0 && left.plies != right.plies) return left.plies < right.plies;
    if (group(left) == 2 && left.plies != right.plies) return left.plies > right.plies;
    if (left.visits != right.visits) return left.visits > right.visits;
    if (left.visits > 0 && left.before(left.mean()) != right.before(right.mean())) {
      return left.before(left.mean()) > right.before(right.mean());
    }
    return a->prior > b->prior;
  };
  std::stable_sort(ranked.begin(), ranked.end(), preferred);
}

void follow(const GameTree& tree, std::uint32_t id, std::vector<Move>& pv) {
  std::vector<const GameEdge*> ranked;
  while (pv.size() < kLongestPv) {
    const GameNode& node = tree.node(id);
    if (node.state != NodeState::kEvaluated && node.state != NodeState::kWinsAtOnce) return;
    rank(tree, node, {}, ranked);
    const GameEdge* best = ranked.empty() ? nullptr : ranked.front();
    if (best == nullptr || best->child == kNoNode || tree.node(best->child).visits == 0) {
      // A proven line goes to its end: the child that proves it may not have been visited itself.
      if (best == nullptr || best->child == kNoNode || tree.node(best->child).proven == kUnproven) return;
    }
    pv.push_back(best->move);
    id = best->child;
  }
}

RootMove root_move(const GameTree& tree, const GameNode& root, const GameEdge& edge, bool with_line) {
  RootMove seen;
  seen.move = edge.move;
  seen.prior = edge.prior;
  seen.q = root.visits > 0 ? root.mean() : 0.0;
  seen.d = root.visits > 0 ? root.draw_sum / root.visits : 0.0;
  if (with_line) seen.pv.push_back(edge.move);
  if (edge.child == kNoNode) return seen;
  const GameNode& child = tree.node(edge.child);
  seen.visits = child.visits;
  const Proof proof = tree.proof_of(edge);
  seen.proven = proof.value;
  seen.plies = proof.plies;
  if (proof.value != kUnproven) {
    seen.q = proof.value;
    seen.d = proof.value == 0 ? 1.0 : 0.0;
  } else if (child.visits > 0) {
    seen.q = child.before(child.mean());
    seen.d = child.draw_sum / child.visits;
  }
  if (with_line) follow(tree, edge.child, seen.pv);
  return seen;
}

}  // namespace

Proof root_proof(const GameTree& tree, const GameNode& root, std::span<const Move> only) {
  if (only.empty() || root.state != NodeState::kEvaluated) return root.proof();
  return tree.proof_by_moves(root, only);
}

std::vector<RootMove> root_moves(const GameTree& tree, const GameNode& root, std::span<const Move> only,
                                 std::size_t num_lines) {
  std::vector<const GameEdge*> ranked;
  rank(tree, root, only, ranked);
  std::vector<RootMove> moves;
  for (const GameEdge* edge : ranked) moves.push_back(root_move(tree, root, *edge, moves.size() < num_lines));
  return moves;
}

}  // namespace alphazero
