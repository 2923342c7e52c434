// The search of a game under the sanitizers: a made-up network, games played on one tree, several threads.
#include "search/game_search.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "games/all_games.hpp"
#include "search/evaluation_cache.hpp"
#include "tests/made_up_network.hpp"
#include "tests/made_up_rules.hpp"
#include "tests/require.hpp"

namespace {

using namespace alphazero;
using testing::require;

struct Evaluation {
  std::vector<float> logits, wdl;
};

template <Game G>
Evaluation evaluated(const OwnedLeaves& leaves) {
  Evaluation made;
  testing::evaluate<G>(leaves.batch(), made.logits, made.wdl,
                       [](bool holds, const char* what) { require(holds, what); });
  return made;
}

// Makes some rows certain, as tablebases do: the others have the evaluation that was made.
std::vector<std::uint8_t> make_exact(const OwnedLeaves& leaves, Evaluation& made) {
  std::vector<std::uint8_t> exact(made.wdl.size() / 3);
  const std::size_t bytes = leaves.packed.size() / exact.size();
  for (std::size_t row = 0; row < exact.size(); ++row) {
    const InputKey key = key_of_input(std::span(leaves.packed).subspan(row * bytes, bytes));
    exact[row] = key.low % 5 == 0;
    if (exact[row] == 0) continue;
    for (std::size_t i = 0; i < 3; ++i) made.wdl[3 * row + i] = key.high % 3 == i ? 1.0F : 0.0F;
  }
  return exact;
}

// To so many visits of the root, some batches on their way; false: nothing was left to do before. packed:
// gets what was asked of the network.
template <Game G>
bool search_to(GameSearch<G>& search, std::uint64_t nodes, std::size_t most_leaves, bool knows = false,
               std::size_t in_flight = 2, std::vector<std::uint8_t>* packed = nullptr) {
  std::vector<std::pair<std::size_t, OwnedLeaves>> under_way;
  std::vector<std::size_t> free{0, 1, 2, 3};
  while (true) {
    const SearchProgress before = search.progress();
    OwnedLeaves leaves = search.gather(free.back(), most_leaves, nodes);
    if (!leaves.packed.empty()) {
      if (packed != nullptr) packed->insert(packed->end(), leaves.packed.begin(), leaves.packed.end());
      under_way.emplace_back(free.back(), std::move(leaves));
      free.pop_back();
      if (under_way.size() < in_flight) continue;
    } else if (under_way.empty()) {
      if (search.progress().playouts == before.playouts) break;
      continue;
    }
    Evaluation made = evaluated<G>(under_way.front().second);
    std::vector<std::uint8_t> exact;
    if (knows) exact = make_exact(under_way.front().second, made);
    search.apply(under_way.front().first, made.logits, made.wdl, exact);
    free.push_back(under_way.front().first);
    under_way.erase(under_way.begin());
  }
  return search.progress().nodes == nodes;
}

template <Game G>
void check_view(const SearchView& view, const Line<G>& line) {
  std::uint64_t visits = 0;
  for (const RootMove& move : view.moves) {
    visits += move.visits;
    Line<G> copy = line;
    for (const Move next : move.pv) {
      std::vector<Move> legal;
      G::legal(copy.state(), legal);
      require(std::find(legal.begin(), legal.end(), next) != legal.end(), "lines of play are legal");
      copy.push(next);
    }
    if (move.proven == 1 || move.proven == -1) {
      require(move.pv.empty() || move.pv.size() == move.plies, "a proven line goes to its end");
      require(move.pv.empty() || copy.outcome().over(), "where the game is over");
    }
    require(move.q >= -1.0 - 1e-9 && move.q <= 1.0 + 1e-9, "values are values");
    require(move.d >= -1e-9 && move.d <= 1.0 + 1e-9, "draws are shares");
  }
  // Visits of a proven node end there.
  require(view.nodes == 0 || view.proven != kUnproven || visits + 1 == view.nodes,
          "the root's visits are its moves' and its own");
}

template <Game G>
void test_games_on_one_tree(bool knows) {
  EngineSettings settings;
  settings.cache_bytes = 200'000;
  settings.tree_bytes = std::uint64_t{4} << 20;
  for (const std::size_t most_leaves : {1, 7}) {
    GameSearch<G> search(settings);
    Line<G> line;
    std::uint64_t kept = 0;
    for (int ply = 0; ply < 40 && !line.outcome().over(); ++ply) {
      kept = search.set_line(line);
      search.begin({});
      const bool reached = search_to(search, kept + 150, most_leaves, knows);
      const SearchView view = search.view(3);
      check_view<G>(view, line);
      require(reached || view.is_done || view.is_full, "searches end at their limit");
      require(!view.moves.empty() && view.moves[0].pv.size() > 0, "there is a best move");
      // Now and then a move that was hardly looked at.
      line.push(view.moves[ply % 5 == 4 ? view.moves.size() - 1 : 0].move);
    }
  }
}

// What is abandoned and comes late is kept in the cache, and does no harm.
template <Game G>
void test_late_evaluations() {
  EngineSettings settings;
  GameSearch<G> search(settings);
  Line<G> line;
  search.set_line(line);
  search.begin({});
  search_to(search, 60, 4);
  OwnedLeaves leaves = search.gather(0, 8, 1000);
  require(!leaves.packed.empty(), "leaves wait");
  const Move best = search.view(1).moves[0].move;
  line.push(best);
  search.set_line(line);
  const std::uint64_t kept = search.progress().nodes;
  search.begin({});
  const Evaluation made = evaluated<G>(leaves);
  search.apply(0, made.logits, made.wdl);
  require(search.progress().nodes == kept, "late evaluations are not visits");
  require(search_to(search, kept + 50, 4) || search.progress().is_done, "the search goes on");
  leaves = search.gather(1, 8, 1000);
  search.drop(1);
  require(search_to(search, kept + 80, 4) || search.progress().is_done, "and after a batch that failed");
  search.reset(settings);
  require(search.progress().nodes == 0, "a reset forgets all");
  check_view<G>(search.view(1), line);
}

template <Game G>
void test_views_while_it_searches() {
  EngineSettings settings;
  settings.threads = 2;
  GameSearch<G> search(settings);
  Line<G> line;
  search.set_line(line);
  search.begin({});
  std::atomic<bool> is_over{false};
  std::thread viewer([&] {
    while (!is_over) check_view<G>(search.view(5), line);
  });
  search_to(search, 1500, 32);
  is_over = true;
  viewer.join();
}

bool is_same(const SearchView& one, const SearchView& other) {
  const auto numbers = [](const SearchView& view) {
    return std::tuple(view.nodes, view.playouts, view.evaluations, view.cache_hits, view.mean_depth,
                      view.deepest, view.root_q, view.root_d, view.proven, view.plies, view.is_done,
                      view.is_full, view.tree_nodes, view.tree_bytes, view.moves.size());
  };
  const auto of_move = [](const RootMove& move) {
    return std::tuple(move.move, move.prior, move.visits, move.q, move.d, move.proven, move.plies, move.pv);
  };
  if (numbers(one) != numbers(other)) return false;
  for (std::size_t i = 0; i < one.moves.size(); ++i) {
    if (of_move(one.moves[i]) != of_move(other.moves[i])) return false;
  }
  return true;
}

// Games on one tree by some threads and by one: the same leaves in the same order, the same views.
template <Game G>
void test_threads_change_nothing(int threads, bool knows, std::uint64_t tree_bytes) {
  for (const auto& [most_leaves, in_flight] : {std::pair(16, 1), std::pair(24, 4), std::pair(64, 2)}) {
    EngineSettings settings;
    settings.tree_bytes = tree_bytes;
    GameSearch<G> one(settings);
    settings.threads = threads;
    GameSearch<G> several(settings);
    Line<G> line;
    for (int ply = 0; ply < 12 && !line.outcome().over(); ++ply) {
      std::vector<Move> only;
      if (ply % 4 == 3) {
        G::legal(line.state(), only);
        only.resize((only.size() + 1) / 2);
      }
      std::vector<std::uint8_t> asked[2];
      std::vector<SearchView> views;
      for (GameSearch<G>* search : {&one, &several}) {
        const std::uint64_t kept = search->set_line(line);
        search->drop(0);
        search->begin(only);
        search_to(*search, kept + 400, most_leaves, knows, in_flight, &asked[views.size()]);
        views.push_back(search->view(1000));
      }
      require(asked[0] == asked[1], "threads ask for the same leaves in the same order");
      require(is_same(views[0], views[1]), "and find the same");
      require(!views[0].moves.empty(), "there is a move");
      line.push(views[0].moves[ply % 3 == 2 ? views[0].moves.size() - 1 : 0].move);
      if (ply % 5 == 4) {  // abandoned, as after `stop`
        one.gather(0, 20, 5000);
        several.gather(0, 20, 5000);
      }
    }
  }
}

template <Game G>
void test_threads() {
  test_threads_change_nothing<G>(2, false, std::uint64_t{64} << 20);
  test_threads_change_nothing<G>(3, true, std::uint64_t{64} << 20);
  test_threads_change_nothing<G>(2, false, GameTree::kLeastBytes);
}

void test_memory_has_a_limit() {
  EngineSettings settings;
  settings.tree_bytes = std::uint64_t{1} << 20;
  GameSearch<Chess> search(settings);
  Line<Chess> line;
  for (int ply = 0; ply < 6; ++ply) {
    search.set_line(line);
    search.begin({});
    search_to(search, 20'000, 16);
    const SearchView view = search.view(1);
    require(view.is_full && view.tree_bytes <= settings.tree_bytes, "a tree ends at its limit");
    check_view<Chess>(view, line);
    line.push(view.moves[0].move);
  }
}

void test_cache() {
  EvaluationCache cache(100'000);
  const float wdl[3] = {0.25F, 0.5F, 0.25F};
  const auto key = [](std::uint64_t number) { return InputKey{number * 7919, number}; };
  std::size_t known = 0;
  for (std::uint64_t number = 1; number <= 5000; ++number) {
    const std::vector<float> logits(number % 40, static_cast<float>(number));
    cache.insert(key(number), logits, wdl);
    const EvaluationCache::Found found = cache.find(key(number), logits.size());
    require(found.wdl != nullptr && found.wdl[1] == 0.5F, "what was just kept is found");
    require(found.logits.size() == logits.size(), "with its moves");
    for (const float logit : found.logits) require(logit == static_cast<float>(number), "and their logits");
    require(cache.find(key(number), logits.size() + 1).wdl == nullptr, "not with another number of moves");
  }
  for (std::uint64_t number = 1; number <= 5000; ++number) {
    const EvaluationCache::Found found = cache.find(key(number), number % 40);
    known += found.wdl != nullptr;
    for (const float logit : found.logits)
      require(logit == static_cast<float>(number), "nothing is mixed up");
  }
  require(known > 200 && known < 1500 && cache.fill_per_mille() == 1000, "the newest are kept");
  cache.clear();
  require(cache.find(key(5000), 0).wdl == nullptr && cache.fill_per_mille() == 0, "a cleared cache is empty");
  EvaluationCache none(0);
  none.insert(key(1), {}, wdl);
  require(none.find(key(1), 0).wdl == nullptr, "no memory, no cache");
}

void test_inputs_have_keys_of_their_own() {
  std::vector<std::uint8_t> packed(840, 0);
  const InputKey first = key_of_input(packed);
  for (std::size_t i = 0; i < packed.size(); ++i) {
    packed[i] ^= 1;
    require(!(key_of_input(packed) == first), "every byte counts");
    packed[i] ^= 1;
  }
  require(key_of_input(packed) == first, "and nothing else does");
}

}  // namespace

int main() {
#define ALPHAZERO_TEST(G)            \
  test_games_on_one_tree<G>(false);  \
  test_games_on_one_tree<G>(true);   \
  test_late_evaluations<G>();        \
  test_views_while_it_searches<G>(); \
  test_threads<G>();
  ALPHAZERO_TESTED_GAMES(ALPHAZERO_TEST)
  testing::CellRules::use();
  ALPHAZERO_TEST(Foreign)
#undef ALPHAZERO_TEST
  test_memory_has_a_limit();
  test_cache();
  test_inputs_have_keys_of_their_own();
  std::puts("game_search_test: all well");
}
