#include "search/search.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <stdexcept>
#include <string>

#include "games/all_games.hpp"

namespace alphazero {

template <Game G>
Search<G>::Search() = default;

template <Game G>
Search<G>::~Search() = default;

template <Game G>
void Search<G>::start(const Line<G>& line, const SearchSettings& settings) {
  if (settings.leaves > kMostLeaves) {
    throw std::invalid_argument(std::to_string(settings.leaves) + " leaves; expected at most " +
                                std::to_string(kMostLeaves));
  }
  settings_ = settings;
  noise_.clear();
  leaves_.clear();
  const FrameSpan<State> frames = line.frames();
  line_keys_.clear();
  for (const Frame<State>& frame : frames) line_keys_.push_back(G::hash(frame.state));
  const auto shown = std::min<std::size_t>(frames.size(), G::kHistory);
  line_frames_.assign(frames.end() - static_cast<std::ptrdiff_t>(shown), frames.end());
  tree_.clear();
  make_node(frames.back(), kNoNode, 0);
  if (settings_.algorithm == SearchAlgorithm::kGumbel) {
    settings_.leaves = 1;
    const int num_edges = tree_.root().num_edges;
    noise_.assign(num_edges, 0.0);
    halving_schedule(std::min(settings_.considered, num_edges), settings_.simulations, schedule_);
  }
}

template <Game G>
void Search<G>::set_noise(std::span<const double> noise) {
  assert(noise.size() == tree_.root().num_edges && !tree_.root().is_evaluated);
  noise_.assign(noise.begin(), noise.end());
}

template <Game G>
bool Search<G>::has_dirichlet_noise() const {
  return settings_.algorithm == SearchAlgorithm::kPuct && settings_.noise_epsilon > 0.0 && !noise_.empty();
}

// Edges in ascending order of policy index; none where the game is over.
template <Game G>
std::uint32_t Search<G>::make_node(const Frame<State>& frame, std::uint32_t parent,
                                   std::uint16_t parent_edge) {
  const std::uint32_t id = tree_.add_node(frame, parent, parent_edge);
  const Outcome outcome = legal_.look_at(frame);
  if (outcome.over()) {
    Node& node = tree_.node(id);
    node.proven = outcome.value;
    node.draw_sum = outcome.value == 0 ? 1.0 : 0.0;
    return id;
  }
  tree_.add_edges(legal_.indices());
  return id;
}

template <Game G>
std::span<const Edge> Search<G>::root_edges() const {
  tree_.list_edges(0, root_edges_);
  tree_.name_moves(0, root_edges_);
  return root_edges_;
}

template <Game G>
bool Search<G>::is_done() const {
  const Node& root = tree_.root();
  if (!leaves_.empty()) return false;
  if (root.proven != kUnproven) return true;
  return root.is_evaluated && root.total() >= static_cast<std::uint32_t>(settings_.simulations);
}

template <Game G>
std::size_t Search<G>::collect() {
  begin_round();
  while (step_round()) {
  }
  return leaves_.size();
}

template <Game G>
void Search<G>::begin_round() {
  assert(leaves_.empty());
  const Node& root = tree_.root();
  if (root.proven == kUnproven && !root.is_evaluated) {
    leaves_.push_back(0);
    is_walking_ = false;
    return;
  }
  begin_walk();
}

// False: the search is done.
template <Game G>
bool Search<G>::begin_walk() {
  const Node& root = tree_.root();
  path_.assign(1, 0);
  may_choose_ = false;
  is_walking_ = root.proven == kUnproven && root.total() < static_cast<std::uint32_t>(settings_.simulations);
  return is_walking_;
}

template <Game G>
bool Search<G>::step_round() {
  if (!is_walking_) return false;
  const std::uint32_t id = path_.back();
  const Node& node = tree_.node(id);
  if (!may_choose_) {
    if (node.proven != kUnproven) {
      finish(id, node.proven, node.proven == 0 ? 1.0 : 0.0, false);
      return begin_walk();
    }
    if (!node.is_evaluated) return is_walking_ = false;  // the simulation is called off
    tree_.prefetch_edges(node, settings_.algorithm == SearchAlgorithm::kGumbel);
    return may_choose_ = true;
  }
  const Choice choice = select(id);
  if (choice.child == kNoNode) return end_walk(expand(id, choice.place));
  tree_.prefetch(choice.child);
  path_.push_back(choice.child);
  may_choose_ = false;
  return true;
}

// The simulation came to a new node.
template <Game G>
bool Search<G>::end_walk(std::uint32_t leaf) {
  const Node& node = tree_.node(leaf);
  if (node.proven != kUnproven) {
    finish(leaf, node.proven, node.draw_sum, false);
    return begin_walk();
  }
  for (std::uint32_t at = leaf; at != 0; at = tree_.node(at).parent) {
    WalkedEdge& edge = tree_.edge_to(at);
    ++edge.walks;
    ++edge.waiting;
    if (settings_.leaves > 1) edge.update();  // else it is finished before the next walk
    ++tree_.node(tree_.node(at).parent).waiting;
  }
  leaves_.push_back(leaf);
  if (leaves_.size() == static_cast<std::size_t>(settings_.leaves)) return is_walking_ = false;
  return begin_walk();
}

template <Game G>
Choice Search<G>::select(std::uint32_t id) {
  const Node& node = tree_.node(id);
  const bool is_root = id == 0;
  if (settings_.algorithm == SearchAlgorithm::kPuct) {
    const bool force = is_root && settings_.forced_playouts > 0.0 && has_dirichlet_noise();
    return select_puct({node, tree_.walked(node), tree_.priors(node), is_root}, settings_, force);
  }
  if (node.num_walked == 0) {  // the first walk that comes here; many nodes see none
    std::ranges::transform(tree_.priors(node), tree_.make_log_priors(node).begin(), log_prior);
  }
  const GumbelNode seen{node, tree_.walked(node), tree_.log_priors(node)};
  return is_root ? gumbel_.select_root(seen, noise_, schedule_[node.total()], settings_)
                 : gumbel_.select_inner(seen, settings_);
}

template <Game G>
std::uint32_t Search<G>::expand(std::uint32_t parent, std::uint16_t edge) {
  Frame<State> next{tree_.state(parent), 0};
  G::apply(next.state, tree_.move(parent, edge));
  next.repetitions = repetitions_of(next.state);
  return make_node(next, parent, edge);
}

// How often `state`, which follows path_, stood on the board before.
template <Game G>
std::uint8_t Search<G>::repetitions_of(const State& state) const {
  const int reach = G::can_repeat(state);
  if (reach < 4) return 0;  // no position comes back in less
  const std::size_t num_line = line_keys_.size();
  const std::uint64_t key = G::hash(state);
  const auto key_at = [&](std::size_t ply) {
    if (ply < num_line) return line_keys_[ply];
    const std::size_t depth = ply - num_line + 1;
    return depth < path_.size() ? G::hash(tree_.state(path_[depth])) : key;
  };
  return count_repetitions(key_at, num_line + path_.size() - 1, reach);
}

template <Game G>
void Search<G>::finish(std::uint32_t leaf, double value, double draw, bool was_waiting) {
  std::uint32_t at = leaf;
  while (at != 0) {
    WalkedEdge& edge = tree_.edge_to(at);
    const std::uint32_t child = at;
    at = tree_.node(child).parent;
    Node& parent = tree_.node(at);
    if (passes_turn<G>(tree_.state(at), tree_.state(child))) value = -value;
    edge.value_sum += value;
    ++parent.visits;
    if (was_waiting) {
      --edge.waiting;
      --parent.waiting;
    } else {
      ++edge.walks;
    }
    edge.update();
    parent.draw_sum += draw;
  }
  ++num_simulations_;
  if (settings_.proofs && tree_.node(leaf).proven != kUnproven) prove_parents(leaf);
}

template <Game G>
void Search<G>::prove_parents(std::uint32_t child) {
  while (child != 0) {
    const Node& proven = tree_.node(child);
    Node& parent = tree_.node(proven.parent);
    WalkedEdge& proven_edge = tree_.edge_to(child);
    const bool passes = passes_turn<G>(tree_.state(proven.parent), tree_.state(child));
    proven_edge.proven = passes ? -proven.proven : proven.proven;
    proven_edge.update();
    ProofOfMoves moves;
    if (parent.num_walked < parent.num_edges) moves.add({});
    for (const WalkedEdge& edge : tree_.walked(parent)) moves.add({static_cast<std::int8_t>(edge.proven)});
    parent.proven = moves.of_node().value;
    if (parent.proven == kUnproven) return;
    child = proven.parent;
  }
}

template <Game G>
void Search<G>::write_position(std::size_t leaf, HistoryFill fill, std::uint8_t* packed) {
  auto oldest = encode_frames_.end();  // they are written from the newest back
  std::uint32_t id = leaves_[leaf];
  for (; id != 0 && oldest != encode_frames_.begin(); id = tree_.node(id).parent) {
    *--oldest = tree_.frame(id);
  }
  for (std::size_t i = line_frames_.size(); i > 0 && oldest != encode_frames_.begin(); --i) {
    *--oldest = line_frames_[i - 1];
  }
  G::encode(FrameSpan<State>(oldest, encode_frames_.end()), fill, packed);
}

template <Game G>
void Search<G>::apply(std::size_t leaf, const float* legal_logits, const float* wdl) {
  const std::uint32_t id = leaves_[leaf];
  Node& node = tree_.node(id);
  const std::span<float> priors = tree_.priors(node);  // no edge was walked yet
  const double share = id == 0 && has_dirichlet_noise() ? settings_.noise_epsilon : 0.0;
  make_priors({legal_logits, priors.size()}, 1.0, powered_, [&](std::size_t place, float prior) {
    priors[place] = share > 0.0 ? static_cast<float>((1.0 - share) * prior + share * noise_[place]) : prior;
  });
  if (settings_.algorithm == SearchAlgorithm::kPuct) tree_.find_best_unwalked(node);
  node.value = static_cast<double>(wdl[0]) - static_cast<double>(wdl[2]);
  node.draw = node.draw_sum = wdl[1];
  node.is_evaluated = true;
  if (id != 0) finish(id, node.value, node.draw_sum, true);
  if (leaf + 1 == leaves_.size()) leaves_.clear();
}

template <Game G>
SearchResult Search<G>::result(double temperature, double draw) {
  const Node& root = tree_.root();
  const std::span<const Edge> edges = root_edges();
  const bool is_gumbel = settings_.algorithm == SearchAlgorithm::kGumbel;
  SearchResult found;
  std::vector<double>& policy = found.policy;
  found.proven = root.proven;
  found.visits = root.visits;
  if (is_gumbel) {
    gumbel_.policy(root.value, edges, root.proven, settings_, policy);
  } else {
    const bool forced = settings_.forced_playouts > 0.0 && has_dirichlet_noise();
    puct_policy(edges, root.proven, settings_, forced, policy);
  }
  const auto likeliest =
      static_cast<std::size_t>(std::max_element(policy.begin(), policy.end()) - policy.begin());
  std::size_t played = likeliest;
  if (is_gumbel) {
    played = gumbel_.best_edge(root.value, edges, noise_, root.proven, settings_);
  } else if (temperature > 0.0) {
    powered_.resize(policy.size());
    double sum = 0.0;
    for (std::size_t i = 0; i < policy.size(); ++i) {
      powered_[i] = std::pow(policy[i] / policy[likeliest], 1.0 / temperature);
      sum += powered_[i];
    }
    double reached = 0.0;
    for (std::size_t i = 0; i < policy.size(); ++i) {
      reached += powered_[i];
      if (policy[i] > 0.0) played = i;
      if (reached > draw * sum) break;
    }
  }
  found.move = edges[played].move;
  const bool is_exact = root.proven != kUnproven;
  found.root_q = is_exact ? root.proven : mean_value(root.value, edges);
  found.root_d = is_exact ? (root.proven == 0 ? 1.0 : 0.0) : root.draw_sum / (1.0 + found.visits);
  const Edge& best = edges[likeliest];
  found.best_q = best.visits > 0 ? edge_value(best) : found.root_q;
  found.best_d = best.visits > 0 ? edge_draw(best) : found.root_d;
  found.orig_q = root.value;
  found.orig_d = root.draw;
  return found;
}

// The chance of a draw after a move that was walked; each walk but the first went on below its child.
template <Game G>
double Search<G>::edge_draw(const Edge& edge) const {
  const Node& child = tree_.node(edge.child);
  if (child.proven != kUnproven) return child.proven == 0 ? 1.0 : 0.0;
  return child.draw_sum / edge.visits;
}

#define ALPHAZERO_INSTANTIATE(G) template class Search<G>;
ALPHAZERO_ALL_GAMES(ALPHAZERO_INSTANTIATE)
#undef ALPHAZERO_INSTANTIATE

}  // namespace alphazero
