// Search and self-play under the sanitizers: games of a made-up network, by one thread and by several.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "games/all_games.hpp"
#include "search/evaluation_cache.hpp"
#include "search/line_search.hpp"
#include "search/search_pool.hpp"
#include "search/self_play.hpp"
#include "tests/made_up_network.hpp"
#include "tests/made_up_rules.hpp"
#include "tests/require.hpp"

namespace {

using namespace alphazero;
using testing::require;

template <Game G>
void run(SearchPool<G>& pool, SearchDriver<G>& driver) {
  std::vector<float> logits, wdl;
  std::vector<LeafBatch> batches;
  for (std::size_t group = 0; group < pool.num_groups(); ++group) {
    batches.push_back(pool.step(group, {}, {}, driver));
  }
  bool any = true;
  while (any) {
    any = false;
    for (std::size_t group = 0; group < pool.num_groups(); ++group) {
      if (batches[group].num_rows() == 0) continue;
      testing::evaluate<G>(batches[group], logits, wdl,
                           [](bool holds, const char* what) { require(holds, what); });
      batches[group] = pool.step(group, logits, wdl, driver);
      any = true;
    }
  }
}

SelfPlaySettings settings_of(SearchAlgorithm algorithm) {
  SelfPlaySettings settings;
  settings.seed = 7;
  settings.search.algorithm = algorithm;
  settings.search.simulations = 40;
  settings.search.leaves = algorithm == SearchAlgorithm::kPuct ? 3 : 1;
  settings.search.noise_epsilon = 0.25;
  settings.search.forced_playouts = 2.0;
  settings.full_search_share = 0.5;
  settings.fast_simulations = 10;
  settings.opening_plies = 4;
  settings.resign_threshold = 0.6;
  settings.resign_playthrough = 0.5;
  settings.max_plies = 60;
  return settings;
}

struct Games {
  std::vector<SelfPlayGame> finished, under_way;
  std::uint64_t evaluations = 0, cached = 0;
};

template <Game G>
Games play(const SelfPlaySettings& settings, std::vector<SelfPlayGame> lanes, RoundBudget budget,
           std::size_t slots, int threads, DividedCache* cache = nullptr) {
  const std::size_t groups = 2;
  SelfPlay<G> games(settings, slots * groups);
  SearchPool<G> pool(slots, groups, settings.search.leaves, threads, HistoryFill::kFenOnly, cache);
  for (SelfPlayGame& lane : lanes) games.add_lane(std::move(lane));
  games.begin(budget);
  run<G>(pool, games);
  return {games.take_finished(), games.games_under_way(), pool.num_evaluations(), pool.num_cached()};
}

std::vector<SelfPlayGame> new_lanes(std::uint64_t count) {
  std::vector<SelfPlayGame> lanes(count);
  for (std::uint64_t i = 0; i < count; ++i) lanes[i].lane = i;
  return lanes;
}

bool same(const std::vector<SelfPlayGame>& a, const std::vector<SelfPlayGame>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].lane != b[i].lane || a[i].number != b[i].number || a[i].moves != b[i].moves ||
        a[i].result != b[i].result || a[i].root_q != b[i].root_q || a[i].policy_prob != b[i].policy_prob) {
      return false;
    }
  }
  return true;
}

template <Game G>
void test_games_do_not_depend_on_threads_and_slots(SearchAlgorithm algorithm) {
  const SelfPlaySettings settings = settings_of(algorithm);
  const std::string name = "games of " + std::string(G::kName);
  const Games one = play<G>(settings, new_lanes(12), {70}, 5, 1);
  require(!one.finished.empty(), name + " end");
  for (const int threads : {2, 4}) {
    const Games many = play<G>(settings, new_lanes(12), {70}, threads == 2 ? 6 : 3, threads);
    require(same(one.finished, many.finished) && same(one.under_way, many.under_way), name + " are the same");
  }
}

// A round of simulations ends every lane with the move at which its budget is used: one simulation buys a
// whole move, none buys none, and more never buy fewer.
template <Game G>
void test_a_budget_of_simulations_ends_with_a_move(SearchAlgorithm algorithm) {
  SelfPlaySettings settings = settings_of(algorithm);
  settings.resign_threshold = 0.0;  // the search that resigns adds no move
  settings.opening_plies = 0;
  const std::string name = "rounds of " + std::string(G::kName);
  const auto moves_of = [&](std::uint64_t simulations, std::size_t slots, int threads) {
    const Games games = play<G>(settings, new_lanes(12), {simulations, true}, slots, threads);
    std::vector<std::size_t> moves(12);
    for (const auto* part : {&games.finished, &games.under_way}) {
      for (const SelfPlayGame& game : *part) moves[game.lane] += game.moves.size();
    }
    return moves;
  };
  require(moves_of(0, 5, 1) == std::vector<std::size_t>(12, 0), name + " without simulations have no moves");
  require(moves_of(1, 5, 1) == std::vector<std::size_t>(12, 1), name + " begin a move for one simulation");
  std::vector<std::size_t> before = moves_of(1, 5, 1);
  // Fast and full searches have 10 and 40.
  for (const std::uint64_t simulations : {2U, 3U, 9U, 10U, 11U, 25U, 39U, 40U, 41U, 59U}) {
    const std::vector<std::size_t> moves = moves_of(simulations, 5, 1);
    for (std::size_t lane = 0; lane < 12; ++lane) {
      require(moves[lane] >= before[lane], name + " of more simulations have no fewer moves");
    }
    before = moves;
  }
  require(*std::ranges::max_element(before) > 1, name + " have moves");
  require(before == moves_of(59, 12, 2) && before == moves_of(59, 3, 4), name + " know no slots and threads");
}

// Every leaf is either evaluated or known, whatever the size of the cache; one that holds all that was played
// leaves nothing to evaluate.
template <Game G>
void test_a_cache_changes_no_game(SearchAlgorithm algorithm) {
  const SelfPlaySettings settings = settings_of(algorithm);
  const std::string name = "games of " + std::string(G::kName);
  const Games without = play<G>(settings, new_lanes(8), {15}, 3, 1);
  require(without.cached == 0, name + ": nothing is known without a cache");
  for (const std::uint64_t size : {std::uint64_t{10'000}, std::uint64_t{32} << 20}) {
    DividedCache cache(size);
    for (const int threads : {1, 3}) {
      const Games with = play<G>(settings, new_lanes(8), {15}, 3, threads, &cache);
      require(same(without.finished, with.finished) && same(without.under_way, with.under_way),
              name + " are the same with a cache");
      require(with.evaluations + with.cached == without.evaluations, name + ": every leaf counts once");
      const bool knows_all = threads == 3 && size > 1'000'000;
      require((with.evaluations == 0) == knows_all, name + ": the second time all is known");
    }
  }
}

// A stretch of play cut in two goes on where it stood; without the tree of the move before.
template <Game G>
void test_lanes_go_on() {
  SelfPlaySettings settings = settings_of(SearchAlgorithm::kGumbel);
  const Games whole = play<G>(settings, new_lanes(10), {50}, 5, 1);
  Games first = play<G>(settings, new_lanes(10), {20}, 5, 1);
  const Games second = play<G>(settings, std::move(first.under_way), {30}, 2, 2);
  std::size_t known = 0;
  for (const auto* part :
       std::initializer_list<const std::vector<SelfPlayGame>*>{&first.finished, &second.finished}) {
    for (const SelfPlayGame& game : *part) {
      for (const SelfPlayGame& other : whole.finished) {
        known += game.lane == other.lane && game.number == other.number && game.moves == other.moves;
      }
    }
  }
  require(known == whole.finished.size(), std::string(G::kName) + ": the same games in two stretches");
}

// Of a game that goes on after a restart every column is needed, and it must go on.
void test_a_lane_that_cannot_go_on_is_refused() {
  SelfPlaySettings settings = settings_of(SearchAlgorithm::kPuct);
  settings.resign_threshold = 0.0;
  const SelfPlayGame good = play<Connect4>(settings, new_lanes(1), {5}, 1, 1).under_way[0];
  const auto refused = [&](const SelfPlayGame& game) {
    SelfPlay<Connect4> games(settings, 1);
    try {
      games.add_lane(game);
    } catch (const GameError&) {
      return true;
    }
    return false;
  };
  require(!good.moves.empty() && !refused(good), "a sound lane goes on");
  std::vector<SelfPlayGame> bad(6, good);
  bad[0].flags.pop_back();
  bad[1].visits.clear();
  bad[2].policy_offset.pop_back();
  bad[3].policy_prob.push_back(1);
  bad[4].policy_offset.front() = 7;
  bad[5].root_q.push_back(0.0F);
  for (const SelfPlayGame& game : bad) require(refused(game), "columns that do not fit are refused");
  SelfPlayGame over = good;
  over.moves = {0, 1, 0, 1, 0, 1, 0};  // four in the first column
  over.flags.assign(7, 0);
  over.root_q = over.root_d = over.best_q = over.best_d = over.orig_q = over.orig_d = std::vector<float>(7);
  over.visits.assign(7, 0);
  over.policy_offset.assign(8, 0);
  over.policy_move.clear();
  over.policy_prob.clear();
  require(refused(over), "a game that is over is refused");
}

template <Game G>
std::size_t num_searched(const LineSearch<G>& search) {
  return static_cast<std::size_t>(
      std::ranges::count_if(search.found(), [](const auto& found) { return found.visits > 0; }));
}

template <Game G>
void test_lines_do_not_depend_on_threads() {
  SearchSettings settings;
  settings.simulations = 100;
  settings.leaves = 4;
  std::vector<Line<G>> lines;
  Line<G> line;
  std::vector<Move> legal;
  while (!line.outcome().over() && lines.size() < 30) {
    lines.push_back(line);
    G::legal(line.state(), legal);
    line.push(legal[lines.size() % legal.size()]);
  }
  std::vector<std::vector<double>> policies;
  for (const int threads : {1, 3}) {
    LineSearch<G> search(lines, settings, 8);
    SearchPool<G> pool(4, 2, settings.leaves, threads, HistoryFill::kFenOnly);
    run<G>(pool, search);
    require(num_searched(search) == lines.size(), "every line is searched");
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (threads == 1) {
        policies.push_back(search.found()[i].policy);
      } else {
        require(policies[i] == search.found()[i].policy, "policies are the same");
      }
    }
  }
}

// Fifteen queens, behind the back of from_fen, which refuses them: the pool must hold the moves of whatever
// it is given.
chess::Position with_many_moves() {
  struct Image {  // of a Position
    std::array<chess::Bitboard, 6> by_type;
    std::array<chess::Bitboard, 2> by_color;
    std::array<std::uint64_t, 3> rest;
  };
  auto image = std::bit_cast<Image>(chess::Position::from_fen("8/8/8/8/8/8/8/1K2k3 w - - 0 1"));
  for (const int square : {9, 14, 15, 19, 24, 30, 34, 40, 47, 53, 56, 57, 58, 59, 63}) {
    image.by_type[chess::kQueen] |= chess::Bitboard{1} << square;
    image.by_color[chess::kWhite] |= chess::Bitboard{1} << square;
  }
  return std::bit_cast<chess::Position>(image);
}

void test_a_pool_holds_every_move() {
  const chess::Position position = with_many_moves();
  require(position.num_legal_moves() > Chess::kMaxLegalMoves, "more moves than play can bring");
  SearchSettings settings;
  settings.simulations = 20;
  LineSearch<Chess> search({Line<Chess>(position), Line<Chess>(position)}, settings, 2);
  SearchPool<Chess> pool(2, 1, settings.leaves, 1, HistoryFill::kFenOnly);
  run<Chess>(pool, search);
  require(num_searched(search) == 2, "both are searched");
}

void test_a_pool_is_no_larger_than_its_offsets_count() {
  bool is_refused = false;
  try {
    SearchPool<Chess>(std::size_t{1} << 20, 1, std::size_t{1} << 20, 1, HistoryFill::kFenOnly);
  } catch (const std::invalid_argument&) {
    is_refused = true;
  }
  require(is_refused, "a pool of 2^40 leaves is refused");
}

template <Game G>
void test_game() {
  for (const SearchAlgorithm algorithm : {SearchAlgorithm::kPuct, SearchAlgorithm::kGumbel}) {
    test_games_do_not_depend_on_threads_and_slots<G>(algorithm);
    test_a_cache_changes_no_game<G>(algorithm);
    test_a_budget_of_simulations_ends_with_a_move<G>(algorithm);
  }
  test_lanes_go_on<G>();
  test_lines_do_not_depend_on_threads<G>();
}

}  // namespace

int main() {
#define ALPHAZERO_TEST(G) test_game<G>();
  ALPHAZERO_TESTED_GAMES(ALPHAZERO_TEST)
  testing::CellRules::use();
  ALPHAZERO_TEST(Foreign)
#undef ALPHAZERO_TEST
  test_a_lane_that_cannot_go_on_is_refused();
  test_a_pool_holds_every_move();
  test_a_pool_is_no_larger_than_its_offsets_count();
  std::puts("search_test: all well");
}
