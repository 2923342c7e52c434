#include "search/game_search.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "games/all_games.hpp"

namespace alphazero {
namespace {

constexpr std::size_t kSweptPerGather = 4096;  // nodes of what was discarded
constexpr std::uint32_t kMostVisits = 4'000'000'000;
constexpr std::size_t kAheadPerThread = 8;
// Of leaves: for less work no thread is woken.
constexpr std::size_t kFewestShared = 16;

void sort_by_prior(std::span<GameEdge> edges) {
  std::stable_sort(edges.begin(), edges.end(),
                   [](const GameEdge& a, const GameEdge& b) { return a.prior > b.prior; });
}

}  // namespace

template <Game G>
GameSearch<G>::GameSearch(const EngineSettings& settings)
    : settings_(settings), tree_(settings.tree_bytes), cache_(settings.cache_bytes) {
  frames_.push_back({G::initial(), 0});
  start_threads();
  new_root(frames_.back().state, 0);
}

template <Game G>
void GameSearch<G>::start_threads() {
  const int threads = RulesOutside<G> ? 1 : std::max(1, settings_.threads);
  if (workers_ == nullptr || workers_->num_workers() != threads) {
    workers_ = std::make_unique<WorkerPool>(threads);
    queue_ = std::make_unique<LeafQueue<G>>(threads == 1 ? 1 : kAheadPerThread * threads);
    readers_.resize(threads);
    powered_.resize(threads);
  }
  show_line();
}

// To the threads that look at leaves.
template <Game G>
void GameSearch<G>::show_line() {
  for (LeafReader<G>& reader : readers_) reader.set_line(frames_);
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
  start_threads();
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
  if (root.state == NodeState::kEvaluated) sort_by_prior(tree_.edges(root));
  if (root.state == NodeState::kWinsAtOnce || root.state == NodeState::kKnown) {  // a move is asked for
    root.state = NodeState::kNew;
    root.visits = 0;
    root.value_sum = root.draw_sum = 0.0;
  }
  if (root.state != NodeState::kOver && root.state != NodeState::kTwoFold) return;
  const std::int8_t proven = root.proven;
  root = GameNode{};
  std::vector<Move> moves;
  G::legal(frames_.back().state, moves);
  if (!moves.empty()) return;
  root.state = NodeState::kOver;
  root.proven = proven;
}

template <Game G>
std::uint64_t GameSearch<G>::set_line(const Line<G>& line) {
  const std::lock_guard lock(mutex_);
  abandon();
  const FrameSpan<State> frames = line.frames();
  const bool goes_on = frames.size() >= frames_.size() &&
                       std::equal(frames_.begin(), frames_.end(), frames.begin(),
                                  [](const auto& a, const auto& b) { return a.state == b.state; });
  bool is_kept = goes_on;
  for (std::size_t ply = frames_.size(); is_kept && ply < frames.size(); ++ply)
    is_kept = descend(frames[ply]);
  if (!is_kept) {
    frames_.assign(frames.begin(), frames.end());
    new_root(frames_.back().state, frames_.back().repetitions);
    only_.clear();
  }
  show_line();
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

// Calls task(number, worker) for each number, on all threads where that is worth it.
template <Game G>
template <typename Task>
void GameSearch<G>::share(std::size_t num_tasks, const Task& task) {
  if (num_tasks >= kFewestShared && readers_.size() > 1) {
    workers_->run(num_tasks, task);
  } else {
    for (std::size_t number = 0; number < num_tasks; ++number) task(number, 0);
  }
}

template <Game G>
OwnedLeaves GameSearch<G>::gather(std::size_t slot, std::size_t most_leaves, std::uint64_t most_visits) {
  const std::lock_guard lock(mutex_);
  Batch& batch = batches_[slot];
  if (batch.is_taken) throw std::invalid_argument("the slot's leaves wait for their evaluation");
  OwnedLeaves leaves;
  leaves.packed.reserve(most_leaves * packed_bytes<G>());
  batch.leaves.clear();
  batch.keys.clear();
  collisions_.clear();
  tree_.sweep(kSweptPerGather);
  Limits limits{most_leaves, std::min<std::uint64_t>(most_visits, kMostVisits), 1};
  if (readers_.size() > 1 && most_leaves >= kFewestShared) {
    limits.ahead = kAheadPerThread * readers_.size();
    std::atomic<bool> is_over{false};
    workers_->run(readers_.size(), [&](std::size_t task, int worker) {
      if (task > 0) {
        help(readers_[worker], is_over);
        return;
      }
      try {
        fill(batch, leaves, limits, readers_[worker]);
      } catch (...) {
        is_over = true;
        throw;
      }
      is_over = true;
    });
  } else {
    fill(batch, leaves, limits, readers_[0]);
  }
  for (const std::uint32_t id : collisions_) tree_.add_waiting(id, -1);
  batch.is_taken = !batch.leaves.empty();
  batch.legal_offset = leaves.legal_offset;
  evaluations_ += batch.leaves.size();
  return leaves;
}

template <Game G>
void GameSearch<G>::set_priors(std::uint32_t id, std::span<const float> logits, std::vector<double>& memory) {
  const std::span<GameEdge> edges = tree_.edges(tree_.node(id));
  make_priors(logits, settings_.policy_temperature, memory,
              [edges](std::size_t place, float prior) { edges[place].prior = prior; });
  if (id == root_) {
    sort_by_prior(edges);
  } else {
    bring_largest(edges);
  }
}

// Of a node whose edges have their priors.
template <Game G>
void GameSearch<G>::evaluate(std::uint32_t id, const float* wdl) {
  tree_.node(id).state = NodeState::kEvaluated;
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
  const auto logits_of = [&](std::size_t row) {
    const auto first = static_cast<std::size_t>(batch.legal_offset[row]);
    return legal_logits.subspan(first, static_cast<std::size_t>(batch.legal_offset[row + 1]) - first);
  };
  const auto is_exact = [&](std::size_t row) { return !exact.empty() && exact[row] != 0; };
  const auto is_settled = [&](std::size_t row) { return is_exact(row) && batch.leaves[row] != root_; };
  share(batch.keys.size(), [&](std::size_t row, int worker) {
    if (batch.leaves[row] == kNoNode || is_settled(row)) return;
    set_priors(batch.leaves[row], logits_of(row), powered_[worker]);
  });
  for (std::size_t row = 0; row < batch.keys.size(); ++row) {
    if (!is_exact(row)) cache_.insert(batch.keys[row], logits_of(row), &wdl[3 * row]);
    const std::uint32_t leaf = batch.leaves[row];
    if (leaf == kNoNode) continue;
    release(leaf);
    if (is_settled(row)) {
      settle(leaf, &wdl[3 * row]);
    } else {
      evaluate(leaf, &wdl[3 * row]);
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
  return {visits, playouts_, mean_depth(), is_done() || visits >= kMostVisits, is_full_};
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
  seen.mean_depth = mean_depth();
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
