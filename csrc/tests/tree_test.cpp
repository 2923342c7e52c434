// The layout of a tree: what is kept beside the edges agrees with them, and PUCT's short cuts choose what a
// look at every edge would.
#include "search/tree.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "games/all_games.hpp"
#include "games/line.hpp"
#include "search/search.hpp"
#include "search/selection.hpp"
#include "tests/require.hpp"

namespace {

using namespace alphazero;
using testing::require;

class Random {
 public:
  double uniform() { return static_cast<double>((key_ = mix64(key_ + kGolden)) >> 11) * 0x1p-53; }
  std::size_t below(std::size_t end) {
    return static_cast<std::size_t>(uniform() * static_cast<double>(end));
  }

 private:
  std::uint64_t key_ = 1;
};

// PUCT as docs/search.md has it: every edge in turn.
std::size_t plain_choice(const Node& node, const std::vector<Edge>& edges, const SearchSettings& settings) {
  double value_sum = 0.0, walked_prior = 0.0, visits = 0.0, waiting = 0.0;
  for (const Edge& edge : edges) {
    if (edge.visits + edge.waiting == 0) continue;
    value_sum += edge.value_sum;
    visits += edge.visits;
    waiting += edge.waiting;
    walked_prior += edge.prior;
  }
  const double total = visits + waiting;
  const double mean = (node.value + value_sum) / (1.0 + visits);
  const double first_play = std::max(-1.0, mean - settings.fpu_reduction * std::sqrt(walked_prior));
  const double factor = (std::log((total + settings.c_base + 1.0) / settings.c_base) + settings.c_init) *
                        std::sqrt(std::max(1.0, total));
  std::size_t best = 0;
  double best_score = -std::numeric_limits<double>::infinity();
  for (std::size_t place = 0; place < edges.size(); ++place) {
    const Edge& edge = edges[place];
    const double walked = edge.visits + edge.waiting;
    double value = walked > 0.0 ? (edge.value_sum - edge.waiting) / walked : first_play;
    if (edge.proven == -1) continue;
    if (edge.proven != kUnproven) value = edge.proven;
    const double score = value + factor * edge.prior / (1.0 + walked);
    if (score > best_score) {
      best_score = score;
      best = place;
    }
  }
  return best;
}

// Priors that a softmax can yield: alike, of every size, too small to make a difference, 0.
float made_up_prior(Random& random, std::size_t kind) {
  switch (kind % 4) {
    case 0:
      return 0.03125F;
    case 1:
      return static_cast<float>(random.uniform());
    case 2:
      return static_cast<float>(std::pow(10.0, -45.0 * random.uniform()));
    default:
      return random.below(2) == 0 ? 0.0F : static_cast<float>(1e-18 * random.uniform());
  }
}

// A root with `count` edges, some of them walked, in any order.
Tree<Chess> made_up_tree(Random& random, std::size_t count, std::size_t kind) {
  Tree<Chess> tree;
  const Frame<Chess::State> frame{Chess::initial(), 0};
  std::vector<std::uint16_t> indices;
  for (std::size_t i = 0; i < count; ++i) indices.push_back(static_cast<std::uint16_t>(3 * i));
  tree.add_node(frame, kNoNode, 0);
  tree.add_edges(indices);
  for (float& prior : tree.priors(tree.root())) prior = made_up_prior(random, kind);
  tree.find_best_unwalked(tree.root());
  tree.root().value = 2.0 * random.uniform() - 1.0;
  std::vector<bool> is_walked(count, false);
  for (std::size_t i = random.below(2 * count); i > 0; --i) {
    const std::size_t place = random.below(count);
    if (is_walked[place]) continue;
    is_walked[place] = true;
    WalkedEdge& edge = tree.edge_to(tree.add_node(frame, 0, static_cast<std::uint16_t>(place)));
    const auto visits = static_cast<std::uint32_t>(random.below(4));
    edge.waiting = visits == 0 ? 1 : static_cast<std::uint32_t>(random.below(2));
    edge.walks = visits + edge.waiting;
    edge.value_sum = visits * (kind % 3 == 0 ? 0.0 : 2.0 * random.uniform() - 1.0);
    if (random.below(8) == 0) edge.proven = static_cast<int>(random.below(3)) - 1;
    edge.update();
    tree.root().visits += visits;
    tree.root().waiting += edge.waiting;
  }
  return tree;
}

void test_the_choice_is_that_of_a_look_at_every_edge() {
  Random random;
  SearchSettings settings;
  std::vector<Edge> edges;
  for (std::size_t round = 0; round < 20000; ++round) {
    const Tree<Chess> tree = made_up_tree(random, 1 + random.below(40), round);
    const Node& root = tree.root();
    tree.list_edges(0, edges);
    const Choice choice = select_puct({root, tree.walked(root), tree.priors(root), false}, settings, false);
    const std::size_t place = plain_choice(root, edges, settings);
    require(choice.place == place, "the same edge is chosen, round " + std::to_string(round));
    require(choice.child == edges[place].child, "it leads to its child");
  }
}

void test_a_network_that_answers_with_no_number_breaks_nothing() {
  constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
  for (const bool logits_too : {false, true}) {
    Search<TicTacToe> search;
    SearchSettings settings;
    settings.simulations = 50;
    search.start(Line<TicTacToe>(), settings);
    const std::vector<float> logits(9, logits_too ? kNoNumber : 0.0F), wdl(3, kNoNumber);
    while (search.collect() > 0) search.apply(0, logits.data(), wdl.data());
    require(search.is_done(), "the search ends");
  }
}

// What a node keeps beside its edges, against the edges.
template <Game G>
void check_node(Tree<G>& tree, std::uint32_t id) {
  const Node& node = tree.node(id);
  const auto walked = std::as_const(tree).walked(node);
  const auto priors = std::as_const(tree).priors(node);
  std::uint32_t visits = 0, waiting = 0;
  double walked_prior = 0.0;
  std::size_t marked = 0;
  for (std::size_t i = 0; i < walked.size(); ++i) {
    require(i == 0 || walked[i - 1].place < walked[i].place, "walked edges stand in order");
    require(priors[walked[i].place] == kPriorOfWalked, "they are marked");
    require(&tree.edge_to(walked[i].child) == &walked[i], "a child knows its edge");
    require(tree.node(walked[i].child).parent == id, "and its parent");
    visits += walked[i].visits();
    waiting += walked[i].waiting;
    walked_prior += walked[i].prior;
  }
  std::size_t best = kNoPlace;
  for (std::size_t place = 0; place < priors.size(); ++place) {
    marked += priors[place] == kPriorOfWalked;
    if (priors[place] != kPriorOfWalked && (best == kNoPlace || priors[place] > priors[best])) best = place;
  }
  require(marked == walked.size(), "no other edge is marked");
  require(node.visits == visits && node.waiting == waiting, "visits are those of the edges");
  if (!node.is_evaluated) return;
  require(node.walked_prior == walked_prior, "the sum of priors is that of the walked edges");
  require(node.best_unwalked == best, "the likeliest edge is known");
}

// A whole search with made-up evaluations.
template <Game G>
void search_on(Search<G>& search, Random& random) {
  std::vector<float> logits;
  while (const std::size_t count = search.collect()) {
    for (std::size_t leaf = 0; leaf < count; ++leaf) {
      logits.resize(search.legal_indices(leaf).size());
      for (float& logit : logits) logit = static_cast<float>(6.0 * random.uniform());
      const float win = static_cast<float>(random.uniform());
      const float wdl[3] = {win, 0.0F, 1.0F - win};
      search.apply(leaf, logits.data(), wdl);
    }
  }
}

// Gumbel's inner rule as docs/search.md has it: every edge in turn.
std::size_t plain_gumbel_choice(const Node& node, const std::vector<Edge>& edges,
                                const SearchSettings& settings) {
  double visits = 0.0, prior_sum = 0.0, weighted = 0.0, most = 0.0;
  for (const Edge& edge : edges) {
    if (edge.visits == 0) continue;
    visits += edge.visits;
    prior_sum += edge.prior;
    weighted += edge.prior * edge_value(edge);
    most = std::max<double>(most, edge.visits);
  }
  const double mix =
      prior_sum > 0.0 ? (node.value + visits * weighted / prior_sum) / (1.0 + visits) : node.value;
  std::vector<double> shares;
  for (const Edge& edge : edges) {
    const double value = edge.visits > 0 || edge.proven != kUnproven ? edge_value(edge) : mix;
    shares.push_back(std::log(std::max<double>(edge.prior, 1e-30)) +
                     (settings.c_visit + most) * settings.c_scale * (value + 1.0) / 2.0);
  }
  const double largest = *std::ranges::max_element(shares);
  double sum = 0.0;
  for (double& share : shares) sum += share = std::exp(share - largest);
  std::size_t best = 0;
  double best_lacking = -std::numeric_limits<double>::infinity();
  for (std::size_t place = 0; place < edges.size(); ++place) {
    const double lacking = shares[place] / sum - edges[place].visits / (1.0 + visits);
    if (edges[place].proven == -1 || lacking <= best_lacking) continue;
    best_lacking = lacking;
    best = place;
  }
  return best;
}

void test_gumbels_choice_is_that_of_a_look_at_every_edge() {
  Random random;
  SearchSettings settings;
  Gumbel gumbel;
  std::vector<Edge> edges;
  for (std::size_t round = 0; round < 5000; ++round) {
    Tree<Chess> tree = made_up_tree(random, 1 + random.below(40), round);
    const Node& root = tree.root();
    tree.list_edges(0, edges);
    const auto logs = tree.make_log_priors(root);
    std::ranges::transform(edges, logs.begin(), [](const Edge& edge) { return log_prior(edge.prior); });
    const Choice choice = gumbel.select_inner({root, std::as_const(tree).walked(root), logs}, settings);
    const std::size_t place = plain_gumbel_choice(root, edges, settings);
    require(choice.place == place, "Gumbel chooses the same edge, round " + std::to_string(round));
    require(choice.child == edges[place].child, "and it leads to its child");
  }
}

void test_more_leaves_than_edges_can_count_are_refused() {
  Search<TicTacToe> search;
  SearchSettings settings;
  settings.leaves = kMostLeaves;
  search.start(Line<TicTacToe>(), settings);
  settings.leaves = kMostLeaves + 1;
  bool is_refused = false;
  try {
    search.start(Line<TicTacToe>(), settings);
  } catch (const std::invalid_argument&) {
    is_refused = true;
  }
  require(is_refused, "more leaves than edges can count are refused");
  WalkedEdge edge;
  edge.waiting = kMostLeaves;
  require(edge.waiting == kMostLeaves, "an edge counts as many leaves");
}

template <Game G>
void test_nodes_agree_with_their_edges() {
  Random random;
  SearchSettings settings;
  settings.simulations = 150;
  settings.leaves = 3;
  settings.noise_epsilon = 0.25;
  Search<G> search;
  Line<G> line;
  for (int ply = 0; ply < 8 && !line.outcome().over(); ++ply) {
    search.start(line, settings);
    search.set_noise(std::vector<double>(search.root_edges().size(), 0.125));
    search_on(search, random);
    Tree<G> tree = search.tree();
    for (std::uint32_t id = 0; id < tree.size(); ++id) check_node<G>(tree, id);
    line.push(search.result(0.0, 0.0).move);
  }
}

}  // namespace

int main() {
  test_the_choice_is_that_of_a_look_at_every_edge();
  test_gumbels_choice_is_that_of_a_look_at_every_edge();
  test_a_network_that_answers_with_no_number_breaks_nothing();
  test_more_leaves_than_edges_can_count_are_refused();
#define ALPHAZERO_TEST(G) test_nodes_agree_with_their_edges<G>();
  ALPHAZERO_OWN_GAMES(ALPHAZERO_TEST)
#undef ALPHAZERO_TEST
  std::puts("tree_test: all well");
}
