#include "search/game_search.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "games/all_games.hpp"
#include "search/selection.hpp"

namespace alphazero {
namespace {

// Walks of one gather() beside those for each leaf: many may end without the network.
constexpr std::size_t kWalksBeside = 256;
constexpr std::size_t kWalksPerLeaf = 8;
constexpr std::size_t kSweptPerGather = 4096;  // nodes of what was discarded
constexpr std::uint32_t kMostVisits = 4'000'000'000;

}  // namespace

template <Game G>
GameSearch<G>::GameSearch(const EngineSettings& settings)
    : settings_(settings), tree_(settings.tree_bytes), cache_(settings.cache_bytes) {
  frames_.push_back({G::initial(), 0});
  num_line_ = 1;
  new_root(frames_.back().state, 0);
}

template <Game G>
void GameSearch<G>::reset(const EngineSettings& settings) {
  const std::lock_guard lock(mutex_);
  abandon();
  for (Batch& batch : batches_) batch.keys.clear();  // another network's: nothing of them is kept
  if (settings.cache_bytes == settings_.cache_bytes) {
    cache_.clear();
  } else {
    cache_ = EvaluationCache(settings.cache_bytes);
  }
  settings_ = settings;
  tree_.set_limit(settings.tree_bytes);
  frames_.resize(num_line_);
  new_root(frames_.back().state, frames_.back().repetitions);
}

template <Game G>
void GameSearch<G>::new_root(const State& state, std::uint8_t repetitions) {
  tree_.clear();
  root_ = tree_.make_node(kNoNode);
  const Frame<State> frame{state, repetitions};
  GameNode& root = tree_.node(root_);
  root.state = NodeState::kOver;
  root.proven = G::terminal(FrameSpan<State>(&frame, 1)).value;
  make_searchable();
}

// Where the rules leave a move the root is searched, though the game may count as drawn: programs play on.
template <Game G>
void GameSearch<G>::make_searchable() {
  GameNode& root = tree_.node(root_);
  root.parent = kNoNode;
  if (root.state == NodeState::kWinsAtOnce || root.state == NodeState::kKnown) {  // a move is asked for
    root.state = NodeState::kNew;
    root.visits = 0;
    root.value_sum = root.draw_sum = 0.0;
  }
  if (root.state != NodeState::kOver && root.state != NodeState::kTwoFold) return;
  const std::int8_t proven = root.proven;
  root = GameNode{};
  moves_.list(frames_.back().state);
  if (!moves_.indices().empty()) return;
  root.state = NodeState::kOver;
  root.proven = proven;
}

template <Game G>
std::uint64_t GameSearch<G>::set_line(const Line<G>& line) {
  const std::lock_guard lock(mutex_);
  abandon();
  frames_.resize(num_line_);
  const FrameSpan<State> frames = line.frames();
  const bool goes_on = frames.size() >= num_line_ &&
                       std::equal(frames_.begin(), frames_.end(), frames.begin(),
                                  [](const auto& a, const auto& b) { return a.state == b.state; });
  bool is_kept = goes_on;
  for (std::size_t ply = num_line_; is_kept && ply < frames.size(); ++ply) is_kept = descend(frames[ply]);
  if (!is_kept) {
    frames_.assign(frames.begin(), frames.end());
    num_line_ = frames_.size();
    new_root(frames_.back().state, frames_.back().repetitions);
    only_.clear();
  }
  is_full_ = false;
  return tree_.node(root_).visits;
}

// To the root's child with this state; false where the tree has none.
template <Game G>
bool GameSearch<G>::descend(const Frame<State>& next) {
  GameNode& old = tree_.node(root_);
  std::uint32_t child = kNoNode;
  for (const GameEdge& edge : tree_.edges(old)) {
    if (edge.child == kNoNode) continue;
    State state = frames_.back().state;
    G::apply(state, edge.move);
    if (state == next.state) child = edge.child;
  }
  if (child == kNoNode) return false;
  for (GameEdge& edge : tree_.edges(old)) {
    if (edge.child == child) edge.child = kNoNode;
  }
  tree_.discard(root_);
  root_ = child;
  frames_.push_back(next);
  num_line_ = frames_.size();
  only_.clear();
  make_searchable();
  return true;
}

template <Game G>
void GameSearch<G>::begin(std::span<const Move> only) {
  const std::lock_guard lock(mutex_);
  std::vector<Move> moves(only.begin(), only.end());
  std::sort(moves.begin(), moves.end());
  if (moves != only_) {  // visits of other moves say nothing of a search of these
    abandon();
    frames_.resize(num_line_);
    new_root(frames_.back().state, frames_.back().repetitions);
    only_ = std::move(moves);
  }
  playouts_ = evaluations_ = cache_hits_ = depth_sum_ = 0;
  deepest_ = 0;
  is_full_ = false;
}

// The leaves of all batches are new again: their evaluations come too late for this tree.
template <Game G>
void GameSearch<G>::abandon() {
  for (Batch& batch : batches_) {
    for (std::uint32_t& leaf : batch.leaves) release(std::exchange(leaf, kNoNode));
  }
}

// The leaf of a batch does not wait for its evaluation any longer; kNoNode: it was abandoned before.
template <Game G>
void GameSearch<G>::release(std::uint32_t leaf) {
  if (leaf == kNoNode) return;
  tree_.node(leaf).state = NodeState::kNew;
  tree_.add_waiting(leaf, -1);
  --in_flight_;
}

template <Game G>
void GameSearch<G>::free_slot(Batch& batch) {
  batch.leaves.clear();
  batch.keys.clear();
  batch.is_taken = false;
}

template <Game G>
bool GameSearch<G>::is_done() const {
  const NodeState state = tree_.node(root_).state;
  if (state != NodeState::kEvaluated && state != NodeState::kOver) return false;  // its moves have no priors
  return root_proof(tree_, tree_.node(root_), only_).value != kUnproven;
}

template <Game G>
OwnedLeaves GameSearch<G>::gather(std::size_t slot, std::size_t most_leaves, std::uint64_t most_visits) {
  const std::lock_guard lock(mutex_);
  Batch& batch = batches_[slot];
  if (batch.is_taken) throw std::invalid_argument("the slot's leaves wait for their evaluation");
  OwnedLeaves leaves;
  batch.leaves.clear();
  batch.keys.clear();
  collisions_.clear();
  tree_.sweep(kSweptPerGather);
  const std::uint64_t most = std::min<std::uint64_t>(most_visits, kMostVisits);
  const std::size_t most_walks = kWalksBeside + kWalksPerLeaf * most_leaves;
  for (std::size_t walks = 0; walks < most_walks && batch.leaves.size() < most_leaves; ++walks) {
    if (tree_.node(root_).visits + in_flight_ >= most || collisions_.size() >= most_leaves || is_done())
      break;
    frames_.resize(num_line_);
    const Walk how = walk(batch, leaves);
    if (how == Walk::kFull) is_full_ = true;
    if (how == Walk::kFull || how == Walk::kNoMove) break;
  }
  frames_.resize(num_line_);
  for (const std::uint32_t id : collisions_) tree_.add_waiting(id, -1);
  batch.is_taken = !batch.leaves.empty();
  batch.legal_offset = leaves.legal_offset;
  evaluations_ += batch.leaves.size();
  return leaves;
}

template <Game G>
typename GameSearch<G>::Walk GameSearch<G>::walk(Batch& batch, OwnedLeaves& leaves) {
  std::uint32_t id = root_;
  bool is_made = false;
  for (std::size_t depth = 0;; ++depth) {
    GameNode& node = tree_.node(id);
    if (node.state == NodeState::kTwoFold && depth < node.plies) tree_.take_back_visits(id);
    if (node.state == NodeState::kTwoFold || (node.proven != kUnproven && id != root_)) {
      depth_sum_ += depth;
      deepest_ = std::max(deepest_, static_cast<std::uint32_t>(depth));
      ++playouts_;
      const bool is_decided = node.state != NodeState::kTwoFold;
      tree_.finish(id, is_decided ? node.proven : 0.0, is_decided && node.proven != 0 ? 0.0 : 1.0);
      return Walk::kFinished;
    }
    if (node.state == NodeState::kKnown) {
      depth_sum_ += depth;
      deepest_ = std::max(deepest_, static_cast<std::uint32_t>(depth));
      ++playouts_;
      tree_.finish(id, node.mean(), node.draw_sum / node.visits);
      return Walk::kFinished;
    }
    if (node.state == NodeState::kWaiting) {
      collisions_.push_back(id);
      tree_.add_waiting(id, 1);
      return Walk::kCollision;
    }
    if (node.state == NodeState::kNew) {
      const Walk how = enqueue(id, is_made, batch, leaves);
      if (how == Walk::kFull) return how;
      depth_sum_ += depth;
      deepest_ = std::max(deepest_, static_cast<std::uint32_t>(depth));
      ++playouts_;
      return how;
    }
    const std::size_t chosen = select_engine(tree_, node, id == root_, only_, settings_);
    if (chosen == node.num_edges) return Walk::kNoMove;
    GameEdge& edge = tree_.edges(node)[chosen];
    Frame<State> next{frames_.back().state, 0};
    G::apply(next.state, edge.move);
    frames_.push_back(next);
    const auto key_at = [this](std::size_t ply) { return G::hash(frames_[ply].state); };
    const int reach = G::can_repeat(next.state);
    if (reach >= 4) {  // no position comes back in less
      frames_.back().repetitions = count_repetitions(key_at, frames_.size() - 1, reach);
    }
    is_made = edge.child == kNoNode;
    if (is_made && expand(id, edge, depth + 1) == kNoNode) return Walk::kFull;
    id = edge.child;
  }
}

// Makes the child at the end of frames_; kNoNode: memory is full.
template <Game G>
std::uint32_t GameSearch<G>::expand(std::uint32_t parent, GameEdge& edge, std::size_t depth) {
  const std::uint32_t id = tree_.make_node(parent);
  if (id == kNoNode) return kNoNode;
  edge.child = id;
  tree_.node(id).keeps_turn = !passes_turn<G>(frames_[frames_.size() - 2].state, frames_.back().state);
  if (reach_end(tree_.node(id), depth)) tree_.prove_parents(id);
  return id;
}

// Marks a node whose game is over, or that repeats a position of the tree; true: its value is exact.
template <Game G>
bool GameSearch<G>::reach_end(GameNode& node, std::size_t depth) {
  const Frame<State>& frame = frames_.back();
  const Outcome outcome = moves_.look_at(frame);
  if (outcome.over()) {
    node.state = NodeState::kOver;
    node.proven = outcome.value;
    return true;
  }
  if (frame.repetitions == 0 || !settings_.two_fold_draws) return false;
  const std::uint64_t key = G::hash(frame.state);
  for (std::size_t back = 2; back <= depth; back += 2) {
    if (G::hash(frames_[frames_.size() - 1 - back].state) != key) continue;
    node.state = NodeState::kTwoFold;
    node.plies = static_cast<std::uint16_t>(std::min<std::size_t>(back, UINT16_MAX));
    break;
  }
  return false;
}

// Puts the node at the end of frames_ into the batch, or evaluates it from the cache. is_made: by this walk.
template <Game G>
typename GameSearch<G>::Walk GameSearch<G>::enqueue(std::uint32_t id, bool is_made, Batch& batch,
                                                    OwnedLeaves& leaves) {
  GameNode& node = tree_.node(id);
  const State& state = frames_.back().state;
  if (!is_made) moves_.list(state);
  if (!make_edges(node, state)) return Walk::kFull;
  if (wins_at_once(id, state) && id != root_) {
    node.state = NodeState::kWinsAtOnce;
    tree_.finish(id, 1.0, 0.0);
    return Walk::kFinished;
  }
  packed_.resize(packed_bytes<G>());
  const std::size_t shown = std::min<std::size_t>(frames_.size(), G::kHistory);
  G::encode(FrameSpan<State>(frames_).last(shown), settings_.fill, packed_.data());
  const InputKey key = key_of_leaf<G>(packed_, moves_.indices());
  const EvaluationCache::Found found = cache_.find(key, node.num_edges);
  if (found.wdl != nullptr) {
    ++cache_hits_;
    evaluate(id, found.logits, found.wdl);
    return Walk::kFinished;
  }
  batch.leaves.push_back(id);
  batch.keys.push_back(key);
  leaves.add(packed_, moves_.indices());
  node.state = NodeState::kWaiting;
  tree_.add_waiting(id, 1);
  ++in_flight_;
  return Walk::kQueued;
}

// Gives the node an edge for each of moves_, by ascending policy index; false: memory is full.
template <Game G>
bool GameSearch<G>::make_edges(GameNode& node, const State& state) {
  const std::span<const std::uint16_t> indices = moves_.indices();
  if (node.num_edges > 0) return true;
  if (!tree_.make_edges(node, indices.size())) return false;
  const std::span<GameEdge> edges = tree_.edges(node);
  for (std::size_t i = 0; i < edges.size(); ++i) edges[i].move = G::index_to_move(state, indices[i]);
  return true;
}

// Whether one of the node's moves ends the game as a win; if so it is walked, which proves the node.
template <Game G>
bool GameSearch<G>::wins_at_once(std::uint32_t id, const State& state) {
  if constexpr (RulesOutside<G>) return false;  // the walks find it
  for (GameEdge& edge : tree_.edges(tree_.node(id))) {
    if (id == root_ && !may_search(only_, edge.move)) continue;
    Frame<State> next{state, 0};
    G::apply(next.state, edge.move);
    if constexpr (requires { next.state.in_check(); }) {
      if (!next.state.in_check()) continue;
    }
    const Outcome outcome = G::terminal(FrameSpan<State>(&next, 1));
    const std::int8_t lost = passes_turn<G>(state, next.state) ? -1 : 1;  // for the other player
    if (!outcome.over() || outcome.value != lost) continue;
    if (edge.child == kNoNode) edge.child = tree_.make_node(id);
    if (edge.child == kNoNode) return false;
    GameNode& end = tree_.node(edge.child);
    end.keeps_turn = lost == 1;
    end.state = NodeState::kOver;
    end.proven = lost;
    tree_.prove_parents(edge.child);
    return true;
  }
  return false;
}

template <Game G>
void GameSearch<G>::evaluate(std::uint32_t id, std::span<const float> logits, const float* wdl) {
  GameNode& node = tree_.node(id);
  const std::span<GameEdge> edges = tree_.edges(node);
  make_priors(logits, settings_.policy_temperature, powered_,
              [edges](std::size_t place, float prior) { edges[place].prior = prior; });
  std::stable_sort(edges.begin(), edges.end(),
                   [](const GameEdge& a, const GameEdge& b) { return a.prior > b.prior; });
  node.state = NodeState::kEvaluated;
  const double value = static_cast<double>(wdl[0]) - static_cast<double>(wdl[2]);
  const bool is_value = std::isfinite(value) && std::isfinite(wdl[1]);
  tree_.finish(id, is_value ? value : 0.0, is_value ? wdl[1] : 1.0);
}

// The node's value is certain and needs no moves: further walks end there.
template <Game G>
void GameSearch<G>::settle(std::uint32_t id, const float* wdl) {
  tree_.node(id).state = NodeState::kKnown;
  tree_.finish(id, static_cast<double>(wdl[0]) - static_cast<double>(wdl[2]), wdl[1]);
}

template <Game G>
void GameSearch<G>::apply(std::size_t slot, std::span<const float> legal_logits, std::span<const float> wdl,
                          std::span<const std::uint8_t> exact) {
  const std::lock_guard lock(mutex_);
  Batch& batch = batches_[slot];
  const std::size_t rows = batch.legal_offset.size() - 1;
  if (wdl.size() != 3 * rows || (!exact.empty() && exact.size() != rows) ||
      legal_logits.size() != static_cast<std::size_t>(batch.legal_offset.back())) {
    throw std::invalid_argument("evaluations do not fit the leaves that wait");
  }
  for (std::size_t row = 0; row < batch.keys.size(); ++row) {
    const auto first = static_cast<std::size_t>(batch.legal_offset[row]);
    const auto last = static_cast<std::size_t>(batch.legal_offset[row + 1]);
    const std::span<const float> logits = legal_logits.subspan(first, last - first);
    const bool is_exact = !exact.empty() && exact[row] != 0;
    if (!is_exact) cache_.insert(batch.keys[row], logits, &wdl[3 * row]);
    const std::uint32_t leaf = batch.leaves[row];
    if (leaf == kNoNode) continue;
    release(leaf);
    if (is_exact && leaf != root_) {
      settle(leaf, &wdl[3 * row]);
    } else {
      evaluate(leaf, logits, &wdl[3 * row]);
    }
  }
  free_slot(batch);
}

template <Game G>
void GameSearch<G>::drop(std::size_t slot) {
  const std::lock_guard lock(mutex_);
  Batch& batch = batches_[slot];
  for (const std::uint32_t leaf : batch.leaves) release(leaf);
  free_slot(batch);
}

template <Game G>
double GameSearch<G>::cached_value(const Line<G>& line) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint8_t> packed(packed_bytes<G>());
  G::encode(line.frames(), settings_.fill, packed.data());
  std::vector<Move> moves;
  G::legal(line.state(), moves);
  const EvaluationCache::Found found = cache_.find(key_of_leaf<G>(packed, moves), moves.size());
  if (found.wdl == nullptr) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(found.wdl[0]) - static_cast<double>(found.wdl[2]);
}

template <Game G>
SearchProgress GameSearch<G>::progress() const {
  const std::lock_guard lock(mutex_);
  const std::uint32_t visits = tree_.node(root_).visits;
  return {visits, playouts_, is_done() || visits >= kMostVisits, is_full_};
}

template <Game G>
SearchView GameSearch<G>::view(std::size_t num_lines) const {
  const std::lock_guard lock(mutex_);
  const GameNode& root = tree_.node(root_);
  SearchView seen;
  seen.nodes = root.visits;
  seen.playouts = playouts_ - std::min(playouts_, in_flight_);
  seen.evaluations = evaluations_;
  seen.cache_hits = cache_hits_;
  seen.mean_depth = playouts_ > 0 ? static_cast<double>(depth_sum_) / static_cast<double>(playouts_) : 0.0;
  seen.deepest = deepest_;
  const Proof proof = root_proof(tree_, root, only_);
  seen.proven = proof.value;
  seen.plies = proof.plies;
  if (seen.proven != kUnproven) {
    seen.root_q = seen.proven;
    seen.root_d = seen.proven == 0 ? 1.0 : 0.0;
  } else if (root.visits > 0) {
    seen.root_q = root.mean();
    seen.root_d = root.draw_sum / root.visits;
  }
  seen.is_done = is_done() || root.visits >= kMostVisits;
  seen.is_full = is_full_;
  seen.cache_per_mille = cache_.fill_per_mille();
  seen.tree_nodes = tree_.num_nodes();
  seen.tree_bytes = tree_.used_bytes();
  if (root.state != NodeState::kEvaluated) return seen;
  seen.moves = root_moves(tree_, root, only_, num_lines);
  return seen;
}

#define ALPHAZERO_INSTANTIATE(G) template class GameSearch<G>;
ALPHAZERO_ALL_GAMES(ALPHAZERO_INSTANTIATE)
#undef ALPHAZERO_INSTANTIATE

}  // namespace alphazero
