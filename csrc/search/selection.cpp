#include "search/selection.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace alphazero {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();
constexpr double kSmallestPrior = 1e-30;  // whose logarithm still is a number

Choice choice_of(const WalkedEdge& edge) { return {static_cast<std::uint16_t>(edge.place), edge.child}; }

double exploration(double total, const SearchSettings& settings) {
  return std::log((total + settings.c_base + 1.0) / settings.c_base) + settings.c_init;
}

double forced_visits(float prior, double total, const SearchSettings& settings) {
  return std::sqrt(settings.forced_playouts * prior * total);
}

// Scales to sum 1; false if there is nothing to scale.
bool normalise(std::vector<double>& shares) {
  double sum = 0.0;
  for (const double share : shares) sum += share;
  if (sum <= 0.0) return false;
  for (double& share : shares) share /= sum;
  return true;
}

// Takes away the visits of an edge that were forced and that PUCT would not have made (Wu 2019, 3.2).
double pruned_visits(const Edge& edge, double total, double exploration_term, double target,
                     const SearchSettings& settings) {
  const double visits = edge.visits;
  const double fewest = std::max(0.0, visits - std::floor(forced_visits(edge.prior, total, settings)));
  double kept = fewest;
  while (kept < visits && edge_value(edge) + exploration_term * edge.prior / (1.0 + kept) >= target) ++kept;
  return kept <= 1.0 ? 0.0 : kept;
}

// The best of the edges that were not walked, if it scores more than the best walked one. They differ by
// their priors alone, and a larger prior never scores less: the largest one stands for all, unless it is so
// small that the next smaller number would score the same.
void offer_unwalked(const PuctNode& node, double first_play, double factor, double best_score, Choice& best) {
  const auto score = [&](float prior) { return first_play + factor * prior; };
  const auto offer = [&](std::uint16_t place, double offered) {
    if (offered > best_score || (offered == best_score && place < best.place)) {
      best_score = offered;
      best = {place, kNoNode};
    }
  };
  const float largest = node.node.best_prior;
  if (score(std::nextafter(largest, kPriorOfWalked)) < score(largest)) {
    offer(node.node.best_unwalked, score(largest));
    return;
  }
  for (std::size_t place = 0; place < node.priors.size(); ++place) {
    const float prior = node.priors[place];
    if (prior > kPriorOfWalked) offer(static_cast<std::uint16_t>(place), score(prior));
  }
}

// What an edge is worth before it is walked.
double first_play_value(const PuctNode& node, const SearchSettings& settings) {
  double value_sum = 0.0;
  for (const WalkedEdge& edge : node.walked) value_sum += edge.value_sum;
  const double mean = (node.node.value + value_sum) / (1.0 + node.node.visits);
  const double reduction = node.is_root ? settings.root_fpu_reduction : settings.fpu_reduction;
  return std::max(-1.0, mean - reduction * std::sqrt(node.node.walked_prior));
}

}  // namespace

double mean_value(double own_value, std::span<const Edge> edges) {
  double sum = 0.0;
  double count = 1.0;
  for (const Edge& edge : edges) {
    sum += edge.value_sum;
    count += edge.visits;
  }
  return (own_value + sum) / count;
}

Choice select_puct(const PuctNode& node, const SearchSettings& settings, bool force) {
  const double total = node.node.total();
  if (force) {
    for (const WalkedEdge& edge : node.walked) {
      if (edge.proven == kUnproven && edge.walks < forced_visits(edge.prior, total, settings)) {
        return choice_of(edge);
      }
    }
  }
  const double factor = exploration(total, settings) * std::sqrt(std::max(1.0, total));
  const WalkedEdge* best = nullptr;
  double best_score = kLowest;
  for (const WalkedEdge& edge : node.walked) {
    const double score = edge.puct_value + factor * edge.prior / (1.0 + edge.walks);
    if (score > best_score) {
      best_score = score;
      best = &edge;
    }
  }
  // Scores that are no numbers leave the node's first edge.
  if (best == nullptr && !node.walked.empty() && node.walked[0].place == 0) best = &node.walked[0];
  Choice choice;
  if (best != nullptr) choice = choice_of(*best);
  if (node.node.best_unwalked != kNoPlace) {
    offer_unwalked(node, first_play_value(node, settings), factor, best_score, choice);
  }
  return choice;
}

void puct_policy(std::span<const Edge> edges, std::int8_t root_proven, const SearchSettings& settings,
                 bool forced, std::vector<double>& policy) {
  policy.assign(edges.size(), 0.0);
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (is_allowed(edges[i], root_proven)) policy[i] = edges[i].visits;
  }
  if (forced && root_proven == kUnproven) {
    const auto most =
        static_cast<std::size_t>(std::max_element(policy.begin(), policy.end()) - policy.begin());
    double total = 0.0;
    for (const Edge& edge : edges) total += edge.visits;
    const double term = exploration(total, settings) * std::sqrt(std::max(1.0, total));
    if (policy[most] > 0.0) {
      const Edge& best = edges[most];
      const double target = edge_value(best) + term * best.prior / (1.0 + best.visits);
      for (std::size_t i = 0; i < edges.size(); ++i) {
        if (i == most || policy[i] == 0.0 || edges[i].proven != kUnproven) continue;
        policy[i] = pruned_visits(edges[i], total, term, target, settings);
      }
    }
  }
  if (normalise(policy)) return;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (is_allowed(edges[i], root_proven)) policy[i] = edges[i].prior;
  }
  normalise(policy);
}

void halving_schedule(int considered, int simulations, std::vector<int>& schedule) {
  schedule.clear();
  const auto full = [&] { return schedule.size() >= static_cast<std::size_t>(simulations); };
  if (considered <= 1) {
    for (int visits = 0; !full(); ++visits) schedule.push_back(visits);
    return;
  }
  const int halvings = static_cast<int>(std::ceil(std::log2(considered)));
  std::vector<int> visits(considered, 0);
  for (int left = considered; !full(); left = std::max(2, left / 2)) {
    const int rounds = std::max(1, simulations / (halvings * left));
    for (int round = 0; round < rounds; ++round) {
      for (int i = 0; i < left; ++i) schedule.push_back(visits[i]++);
    }
  }
  schedule.resize(simulations);
}

double log_prior(float prior) { return std::log(std::max<double>(prior, kSmallestPrior)); }

namespace {

// sigma(a) is scale * (completed + 1) / 2, where completed is the edge's value or, before it is walked, mix.
struct Completion {
  double mix = 0.0;
  double scale = 0.0;
};

// Of all edges, or of the walked ones alone: the others do not count.
template <typename Edges>
Completion complete(double own_value, const Edges& edges, const SearchSettings& settings) {
  double visits = 0.0;
  double prior_sum = 0.0;
  double weighted = 0.0;
  std::uint32_t most = 0;
  for (const auto& edge : edges) {
    const std::uint32_t edge_visits = visits_of(edge);
    if (edge_visits == 0) continue;
    visits += edge_visits;
    prior_sum += edge.prior;
    weighted += edge.prior * edge_value(edge);
    most = std::max(most, edge_visits);
  }
  const double mix =
      prior_sum > 0.0 ? (own_value + visits * weighted / prior_sum) / (1.0 + visits) : own_value;
  return {mix, (settings.c_visit + most) * settings.c_scale};
}

template <typename AnyEdge>
double completed_value(const AnyEdge& edge, double mix) {
  return visits_of(edge) > 0 || edge.proven != kUnproven ? edge_value(edge) : mix;
}

}  // namespace

// Leaves l(a) + sigma(a) of every edge in score_.
void Gumbel::score(double own_value, std::span<const Edge> edges, const SearchSettings& settings) {
  const auto [mix, scale] = complete(own_value, edges, settings);
  score_.resize(edges.size());
  for (std::size_t i = 0; i < edges.size(); ++i) {
    score_[i] = log_prior(edges[i].prior) + scale * (completed_value(edges[i], mix) + 1.0) / 2.0;
  }
}

void Gumbel::score(const GumbelNode& node, const SearchSettings& settings) {
  const auto [mix, scale] = complete(node.node.value, node.walked, settings);
  const double sigma = scale * (mix + 1.0) / 2.0;
  score_.resize(node.log_priors.size());
  for (std::size_t i = 0; i < score_.size(); ++i) score_[i] = node.log_priors[i] + sigma;
  for (const WalkedEdge& edge : node.walked) {
    score_[edge.place] = node.log_priors[edge.place] + scale * (completed_value(edge, mix) + 1.0) / 2.0;
  }
}

Choice Gumbel::select_root(const GumbelNode& node, std::span<const double> noise, int considered_visits,
                           const SearchSettings& settings) {
  score(node, settings);
  const auto best_of = [&](bool any_visits) {
    const std::size_t end = score_.size();
    Choice best{static_cast<std::uint16_t>(end), kNoNode};
    std::size_t number = 0;
    for (std::size_t i = 0; i < end; ++i) {
      const bool is_walked = number < node.walked.size() && node.walked[number].place == i;
      const WalkedEdge* edge = is_walked ? &node.walked[number++] : nullptr;
      if (is_walked && edge->proven == -1) continue;
      const std::uint32_t visits = is_walked ? edge->visits() : 0;
      if (!any_visits && visits != static_cast<std::uint32_t>(considered_visits)) continue;
      if (best.place == end || noise[i] + score_[i] > noise[best.place] + score_[best.place]) {
        best = {static_cast<std::uint16_t>(i), is_walked ? edge->child : kNoNode};
      }
    }
    return best;
  };
  const Choice best = best_of(false);
  return best.place < score_.size() ? best : best_of(true);
}

Choice Gumbel::select_inner(const GumbelNode& node, const SearchSettings& settings) {
  score(node, settings);
  const double largest = *std::max_element(score_.begin(), score_.end());
  double sum = 0.0;
  for (double& score : score_) {
    score = std::exp(score - largest);
    sum += score;
  }
  double visits = 0.0;
  for (const WalkedEdge& edge : node.walked) visits += edge.visits();
  for (double& score : score_) score /= sum;
  for (const WalkedEdge& edge : node.walked) {
    double& lacking = score_[edge.place];
    lacking = edge.proven == -1 ? kLowest : lacking - edge.visits() / (1.0 + visits);
  }
  Choice best;
  double best_score = kLowest;
  for (std::size_t i = 0; i < score_.size(); ++i) {
    if (score_[i] > best_score) {
      best_score = score_[i];
      best.place = static_cast<std::uint16_t>(i);
    }
  }
  const auto found = std::ranges::find(node.walked, best.place, [](const auto& edge) { return edge.place; });
  if (found != node.walked.end()) best.child = found->child;
  return best;
}

void Gumbel::policy(double own_value, std::span<const Edge> edges, std::int8_t root_proven,
                    const SearchSettings& settings, std::vector<double>& policy) {
  score(own_value, edges, settings);
  policy.assign(edges.size(), 0.0);
  double largest = kLowest;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (is_allowed(edges[i], root_proven)) largest = std::max(largest, score_[i]);
  }
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (is_allowed(edges[i], root_proven)) policy[i] = std::exp(score_[i] - largest);
  }
  normalise(policy);
}

std::size_t Gumbel::best_edge(double own_value, std::span<const Edge> edges, std::span<const double> noise,
                              std::int8_t root_proven, const SearchSettings& settings) {
  score(own_value, edges, settings);
  std::size_t best = edges.size();
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (!is_allowed(edges[i], root_proven)) continue;
    const bool is_first = best == edges.size();
    if (is_first || edges[i].visits > edges[best].visits ||
        (edges[i].visits == edges[best].visits && noise[i] + score_[i] > noise[best] + score_[best])) {
      best = i;
    }
  }
  return best;
}

// lc0's formulas (src/search/classic/search.cc, params.cc).
std::size_t select_engine(const GameTree& tree, const GameNode& node, bool is_root,
                          std::span<const Move> only, const EngineSettings& settings) {
  const std::span<const GameEdge> edges = tree.edges(node);
  double visited_prior = 0.0;
  for (const GameEdge& edge : edges) {
    if (edge.child == kNoNode) {
      if (is_root) continue;
      break;  // below the root children are made in the order of the edges
    }
    if (tree.node(edge.child).visits > 0) visited_prior += edge.prior;
  }
  const double visits = node.visits;
  const double growth = std::log((visits + settings.c_puct_base) / settings.c_puct_base);
  const double factor =
      (settings.c_puct + settings.c_puct_factor * growth) * std::sqrt(std::max(visits - 1.0, 1.0));
  const double first_play = node.mean() - settings.fpu_reduction * std::sqrt(visited_prior);
  std::size_t best = edges.size();
  double best_score = kLowest;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const GameEdge& edge = edges[i];
    if (is_root && !may_search(only, edge.move)) continue;
    double value = first_play;
    double begun = 0.0;
    if (edge.child != kNoNode) {
      const GameNode& child = tree.node(edge.child);
      if (child.proven_before() == -1) continue;
      if (child.visits > 0) value = child.before(child.mean());
      begun = static_cast<double>(child.visits) + child.waiting;
    }
    const double score = value + factor * edge.prior / (1.0 + begun);
    if (score > best_score) {
      best_score = score;
      best = i;
    }
    // Of those never walked the first has the largest prior.
    if (edge.child == kNoNode && !is_root) break;
  }
  return best;
}

}  // namespace alphazero
