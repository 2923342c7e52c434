#include "search/game_search/root_view.hpp"

namespace alphazero {
namespace {

constexpr std::size_t kLongestPv = 256;

void rank(const NodeStore& store, const GameNode& node, std::span<const Move> only,
          std::vector<const GameEdge*>& ranked) {
  ranked.clear();
  for (const GameEdge& edge : store.edges(node)) {
    if (may_search(only, edge.move)) ranked.push_back(&edge);
  }
  const auto preferred = [&store](const GameEdge* a, const GameEdge* b) {
    static const GameNode unknown;
    const GameNode& left = a->child == kNoNode ? unknown : store.node(a->child);
    const GameNode& right = b->child == kNoNode ? unknown : store.node(b->child);
    const auto group = [](const GameNode& child) {
      return child.proven == -1 ? 0 : child.proven == 1 ? 2 : 1;
    };
    if (group(left) != group(right)) return group(left) < group(right);
    if (group(left) == 0 && left.plies != right.plies) return left.plies < right.plies;
    if (group(left) == 2 && left.plies != right.plies) return left.plies > right.plies;
    if (left.visits != right.visits) return left.visits > right.visits;
    if (left.visits > 0 && left.mean() != right.mean()) return left.mean() < right.mean();
    return a->prior > b->prior;
  };
  std::stable_sort(ranked.begin(), ranked.end(), preferred);
}

void follow(const NodeStore& store, std::uint32_t id, std::vector<Move>& pv) {
  std::vector<const GameEdge*> ranked;
  while (pv.size() < kLongestPv) {
    const GameNode& node = store.node(id);
    if (node.state != NodeState::kEvaluated && node.state != NodeState::kWinsAtOnce) return;
    rank(store, node, {}, ranked);
    const GameEdge* best = ranked.empty() ? nullptr : ranked.front();
    if (best == nullptr || best->child == kNoNode || store.node(best->child).visits == 0) {
      // A proven line goes to its end: the child that proves it may not have been visited itself.
      if (best == nullptr || best->child == kNoNode || store.node(best->child).proven == kUnproven) return;
    }
    pv.push_back(best->move);
    id = best->child;
  }
}

RootMove root_move(const NodeStore& store, const GameNode& root, const GameEdge& edge, bool with_line) {
  RootMove told;
  told.move = edge.move;
  told.prior = edge.prior;
  told.q = root.visits > 0 ? root.mean() : 0.0;
  told.d = root.visits > 0 ? root.draw_sum / root.visits : 0.0;
  if (with_line) told.pv.push_back(edge.move);
  if (edge.child == kNoNode) return told;
  const GameNode& child = store.node(edge.child);
  told.visits = child.visits;
  if (child.proven != kUnproven) {
    told.proven = static_cast<std::int8_t>(-child.proven);
    told.plies = child.proven == 0 ? std::uint16_t{0} : static_cast<std::uint16_t>(child.plies + 1);
    told.q = told.proven;
    told.d = told.proven == 0 ? 1.0 : 0.0;
  } else if (child.visits > 0) {
    told.q = -child.mean();
    told.d = child.draw_sum / child.visits;
  }
  if (with_line) follow(store, edge.child, told.pv);
  return told;
}

}  // namespace

Proof root_proof(const NodeStore& store, const GameNode& root, std::span<const Move> only) {
  if (only.empty() || root.state != NodeState::kEvaluated) return {root.proven, root.plies};
  std::int8_t best = -1;
  std::uint16_t shortest = 0, longest = 0;
  bool all_proven = true;
  for (const GameEdge& edge : store.edges(root)) {
    if (!may_search(only, edge.move)) continue;
    const std::int8_t of_child = edge.child == kNoNode ? kUnproven : store.node(edge.child).proven;
    if (of_child == kUnproven) {
      all_proven = false;
      continue;
    }
    const auto value = static_cast<std::int8_t>(-of_child);
    const auto length = static_cast<std::uint16_t>(store.node(edge.child).plies + 1);
    best = std::max(best, value);
    if (value == 1) shortest = shortest == 0 ? length : std::min(shortest, length);
    if (value == -1) longest = std::max(longest, length);
  }
  const std::int8_t proven = best == 1 || all_proven ? best : kUnproven;
  return {proven, proven == 1 ? shortest : proven == -1 ? longest : std::uint16_t{0}};
}

std::vector<RootMove> root_moves(const NodeStore& store, const GameNode& root, std::span<const Move> only,
                                 std::size_t num_lines) {
  std::vector<const GameEdge*> ranked;
  rank(store, root, only, ranked);
  std::vector<RootMove> moves;
  for (const GameEdge* edge : ranked)
    moves.push_back(root_move(store, root, *edge, moves.size() < num_lines));
  return moves;
}

}  // namespace alphazero
