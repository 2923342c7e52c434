// The walks of GameSearch: from the root to a leaf, and what becomes of the leaf.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "games/all_games.hpp"
#include "search/game_search.hpp"
#include "search/selection.hpp"

namespace alphazero {
namespace {

// Walks of one gather() beside those for each leaf: many may end without the network.
constexpr std::size_t kWalksBeside = 256;
constexpr std::size_t kWalksPerLeaf = 8;
constexpr int kLooksBeforeYield = 64;

}  // namespace

// Fills the batch to its limits, or until nothing is left to do.
template <Game G>
void GameSearch<G>::fill(Batch& batch, OwnedLeaves& leaves, const Limits& limits, LeafReader<G>& reader) {
  const auto look = [&](Leaf<G>& leaf) { look_with(reader, leaf); };
  num_walks_ = 0;
  try {
    for (bool waits_for_looks = false;;) {
      const bool may_go_on = may_walk(batch, limits);
      const std::size_t looked_at = queue_->num_waiting();
      if (looked_at == 0) waits_for_looks = false;
      Walk how = Walk::kAgain;
      if (looked_at > 0 &&
          (waits_for_looks || !may_go_on || looked_at >= limits.ahead || queue_->is_ready())) {
        how = conclude(queue_->take(look), batch, leaves);
      } else if (may_go_on) {
        how = walk();
        waits_for_looks = how == Walk::kAgain;
      } else {
        return;
      }
      if (how == Walk::kFull) is_full_ = true;
      if (how == Walk::kFull || how == Walk::kNoMove) return;
    }
  } catch (...) {
    take_back();
    throw;
  }
}

// Looks at leaves for the thread that walks, until it is done.
template <Game G>
void GameSearch<G>::help(LeafReader<G>& reader, const std::atomic<bool>& is_over) {
  const auto look = [&](Leaf<G>& leaf) { look_with(reader, leaf); };
  for (int idle = 0; !is_over; idle = queue_->help(look) ? 0 : idle + 1) {
    if (idle > kLooksBeforeYield) std::this_thread::yield();
  }
}

template <Game G>
void GameSearch<G>::look_with(LeafReader<G>& reader, Leaf<G>& leaf) const {
  reader.look(leaf, only_, settings_);
  if (!leaf.ends()) cache_.expect(leaf.key);
}

template <Game G>
bool GameSearch<G>::may_walk(const Batch& batch, const Limits& limits) const {
  return num_walks_ < kWalksBeside + kWalksPerLeaf * limits.leaves &&
         batch.leaves.size() + queue_->num_waiting() < limits.leaves && collisions_.size() < limits.leaves &&
         tree_.node(root_).visits + in_flight_ < limits.visits && !is_done();
}

template <Game G>
typename GameSearch<G>::Walk GameSearch<G>::walk() {
  const bool is_certain = queue_->num_waiting() == 0;  // nothing before can be taken back
  std::uint32_t id = root_;
  path_.clear();
  while (true) {
    GameNode& node = tree_.node(id);
    const bool is_new_again = node.state == NodeState::kTwoFold && path_.size() < node.plies;
    const bool is_exact = node.state == NodeState::kTwoFold || node.state == NodeState::kKnown ||
                          (node.proven != kUnproven && id != root_);
    if (is_exact && !is_certain) return Walk::kAgain;
    if (is_new_again) {
      tree_.take_back_visits(id);
    } else if (is_exact) {
      ++num_walks_;
      finish_walk(id, path_.size());
      return Walk::kFinished;
    }
    if (node.state == NodeState::kWaiting) {
      ++num_walks_;
      collisions_.push_back(id);
      tree_.add_waiting(id, 1);
      if (!is_certain) ahead_.push_back({id, nullptr, true});
      return Walk::kCollision;
    }
    if (node.state == NodeState::kNew) {
      look_at(id, nullptr);
      return Walk::kQueued;
    }
    const std::size_t chosen = select_engine(tree_, node, id == root_, only_, settings_);
    if (chosen == node.num_edges) return is_certain ? Walk::kNoMove : Walk::kAgain;
    GameEdge& edge = tree_.edges(node)[chosen];
    path_.push_back(edge.move);
    if (edge.child == kNoNode) {
      if (!is_certain && !tree_.has_spare_node()) return Walk::kAgain;
      edge.child = tree_.make_node(id);
      if (edge.child == kNoNode) return Walk::kFull;
      if (id != root_) bring_largest(tree_.edges(node).subspan(chosen + 1));
      look_at(edge.child, &edge);
      return Walk::kQueued;
    }
    id = edge.child;
  }
}

template <Game G>
void GameSearch<G>::count_walk(std::size_t depth) {
  depth_sum_ += depth;
  deepest_ = std::max(deepest_, static_cast<std::uint32_t>(depth));
  ++playouts_;
}

// At a node whose value is known.
template <Game G>
void GameSearch<G>::finish_walk(std::uint32_t id, std::size_t depth) {
  const GameNode& node = tree_.node(id);
  count_walk(depth);
  if (node.state == NodeState::kTwoFold) {
    tree_.finish(id, 0.0, 1.0);
  } else if (node.proven != kUnproven) {
    tree_.finish(id, node.proven, node.proven != 0 ? 0.0 : 1.0);
  } else {
    tree_.finish(id, node.mean(), node.draw_sum / node.visits);
  }
}

// Has the leaf at the end of path_ looked at; until then it waits as if for the network.
template <Game G>
void GameSearch<G>::look_at(std::uint32_t id, GameEdge* made) {
  ++num_walks_;
  tree_.node(id).state = NodeState::kWaiting;
  tree_.add_waiting(id, 1);
  ++in_flight_;
  ahead_.push_back({id, made, false});
  queue_->push([&](Leaf<G>& leaf) {
    leaf.path = path_;
    leaf.is_made = made != nullptr;
  });
}

// The oldest leaf that was looked at: it waits for the network, or has a value.
template <Game G>
typename GameSearch<G>::Walk GameSearch<G>::conclude(Leaf<G>& leaf, Batch& batch, OwnedLeaves& leaves) {
  const auto [id, made, is_collision] = ahead_.front();
  ahead_.pop_front();
  GameNode& node = tree_.node(id);
  if (leaf.is_made) node.keeps_turn = leaf.keeps_turn;
  if (leaf.ends()) {
    take_back();
    release(id);
    node.state = leaf.outcome.over() ? NodeState::kOver : NodeState::kTwoFold;
    node.plies = leaf.two_fold;
    if (leaf.outcome.over()) node.proven = leaf.outcome.value;
    tree_.prove_parents(id);
    finish_walk(id, leaf.path.size());
    return Walk::kFinished;
  }
  if (!make_edges(node, leaf)) {
    take_back();
    release(id);
    return Walk::kFull;
  }
  if (leaf.winning != kNoPlace) {
    take_back();
    if (prove_win(id, leaf) && id != root_) {
      release(id);
      node.state = NodeState::kWinsAtOnce;
      count_walk(leaf.path.size());
      tree_.finish(id, 1.0, 0.0);
      return Walk::kFinished;
    }
  }
  count_walk(leaf.path.size());
  const EvaluationCache::Found found = cache_.find(leaf.key, node.num_edges);
  if (found.wdl != nullptr) {
    take_back();
    release(id);
    ++cache_hits_;
    set_priors(id, found.logits, powered_[0]);
    evaluate(id, found.wdl);
    return Walk::kFinished;
  }
  batch.leaves.push_back(id);
  batch.keys.push_back(leaf.key);
  leaves.add(leaf.packed, leaf.indices);
  while (!ahead_.empty() && ahead_.front().is_collision) ahead_.pop_front();
  return Walk::kQueued;
}

// All walks after the last one that was concluded.
template <Game G>
void GameSearch<G>::take_back() {
  queue_->cancel();
  for (; !ahead_.empty(); ahead_.pop_back()) {
    const Ahead& walked = ahead_.back();
    --num_walks_;
    if (walked.is_collision) {
      tree_.add_waiting(walked.id, -1);
      collisions_.pop_back();
      continue;
    }
    release(walked.id);
    if (walked.made == nullptr) continue;
    walked.made->child = kNoNode;
    tree_.undo_node(walked.id);
  }
}

// Gives the node an edge for each legal move, by ascending policy index; false: memory is full.
template <Game G>
bool GameSearch<G>::make_edges(GameNode& node, const Leaf<G>& leaf) {
  if (node.num_edges > 0) return true;
  if (!tree_.make_edges(node, leaf.moves.size())) return false;
  const std::span<GameEdge> edges = tree_.edges(node);
  for (std::size_t i = 0; i < edges.size(); ++i) edges[i].move = leaf.moves[i];
  return true;
}

// Walks the move that ends the game as a win, which proves the node; false: memory is full.
template <Game G>
bool GameSearch<G>::prove_win(std::uint32_t id, const Leaf<G>& leaf) {
  GameEdge& edge = tree_.edges(tree_.node(id))[leaf.winning];
  if (edge.child == kNoNode) edge.child = tree_.make_node(id);
  if (edge.child == kNoNode) return false;
  GameNode& end = tree_.node(edge.child);
  end.keeps_turn = leaf.winner_moves;
  end.state = NodeState::kOver;
  end.proven = leaf.winner_moves ? 1 : -1;
  tree_.prove_parents(edge.child);
  return true;
}

#define ALPHAZERO_INSTANTIATE(G) template class GameSearch<G>;
ALPHAZERO_ALL_GAMES(ALPHAZERO_INSTANTIATE)
#undef ALPHAZERO_INSTANTIATE

}  // namespace alphazero
