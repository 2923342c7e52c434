// Rules outside the core under the sanitizers: positions, exact values where a player moves twice,
// symmetries, faults.
#include "games/foreign/foreign.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "games/line.hpp"
#include "search/game_search.hpp"
#include "search/search.hpp"
#include "search/search_pool.hpp"
#include "search/self_play.hpp"
#include "tests/made_up_network.hpp"
#include "tests/made_up_rules.hpp"
#include "tests/require.hpp"

namespace {

using namespace alphazero;
using testing::CellRules;
using testing::require;

template <typename Call>
std::string fault_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

Line<Foreign> random_line(std::mt19937& draw, std::size_t plies) {
  Line<Foreign> line;
  std::vector<Move> legal;
  while (line.num_plies() < plies) {
    Foreign::legal(line.state(), legal);
    line.push(legal[draw() % legal.size()]);
  }
  return line;
}

std::int8_t exact_for_mover(const Line<Foreign>& line) {
  const int first = CellRules::cells(*line.state().position).exact();
  return static_cast<std::int8_t>(Foreign::first_player_to_move(line.state()) ? first : -first);
}

void test_positions_are_their_moves() {
  std::mt19937 draw(1);
  for (int i = 0; i < 200; ++i) {
    const Line<Foreign> line = random_line(draw, static_cast<std::size_t>(i % 10));
    const std::string text = Foreign::to_string(line.state());
    const Foreign::State again = Foreign::from_string(text);
    require(again == line.state() && Foreign::hash(again) == Foreign::hash(line.state()),
            "the text of " + text);
  }
  require(!fault_of([] { Foreign::from_string("0,0"); }).empty(), "a cell cannot be taken twice");
  require(!fault_of([] { Foreign::from_string("0;1"); }).empty(), "moves stand between commas");
  require(fault_of([] { CellRules::use(); }).empty(), "nothing is left of the game");
  const Line<Foreign> held;
  require(!fault_of([] { CellRules::use(); }).empty(), "a position is in use");
}

void test_turned_positions_show_images() {
  constexpr int kCount = testing::Cells::kCount;
  foreign::Symmetry reversed, rotated;  // of cells in a row; the image of action 4 is not known
  for (int i = 0; i < kCount; ++i) {
    reversed.numbers.push_back(kCount - 1 - i);
    reversed.actions.push_back(i == 4 ? -1 : kCount - 1 - i);
    rotated.numbers.push_back((i + 1) % kCount);
    rotated.actions.push_back((i + 1) % kCount);
  }
  foreign::use_symmetries({reversed, rotated});
  require(Foreign::kNumSymmetries == 3, "the identity and two");
  const auto seen_of = [](const Foreign::State& state) {
    std::vector<std::uint8_t> packed(kCount * sizeof(float) + 2);
    const Frame<Foreign::State> frame{state};
    Foreign::encode({&frame, 1}, HistoryFill::kNo, packed.data());
    std::vector<float> numbers(kCount);
    std::memcpy(numbers.data(), packed.data(), kCount * sizeof(float));
    return numbers;
  };
  const Foreign::State state = Foreign::from_string("4,0,7"), other = Foreign::from_string("3,0,7");
  require(Foreign::can_turn(state) && !Foreign::can_turn(other), "unknown images are not used");
  require(Foreign::turned(state, 0) == state, "as it stands");
  for (const int symmetry : {1, 2}) {
    const auto image = [symmetry](int i) { return symmetry == 1 ? kCount - 1 - i : (i + 1) % kCount; };
    const Foreign::State turned = Foreign::turned(state, symmetry);
    require(turned == Foreign::turned(state, symmetry) && turned != state, "turned alike or not");
    require(Foreign::hash(turned) != Foreign::hash(state), "the key of a turned position");
    const std::vector<float> before = seen_of(state), after = seen_of(turned);
    std::vector<Move> images, legal, indices;
    for (int i = 0; i < kCount; ++i) {
      require(before[i] == after[image(i)], "what is seen turned");
      if (before[i] == 0.0F) images.push_back(static_cast<Move>(image(i)));
    }
    std::ranges::sort(images);
    Foreign::legal(turned, legal);
    Foreign::legal_indices(turned, indices);
    require(legal == images && indices == images, "legal moves turned, ascending");
    std::vector<Move> all;
    for (Move move = 0; move < kCount; ++move) all.push_back(Foreign::turned_move(move, symmetry));
    require(all[1] == image(1), "a move turned");
    std::ranges::sort(all);
    for (Move move = 0; move < kCount; ++move) require(all[move] == move, "each move is one image");
    require(Foreign::turned_move(500, symmetry) == 500, "a move that no position has");
  }
  Foreign::State again = Foreign::turned(state, 1);
  std::vector<std::uint64_t> keys;
  require(Foreign::replay(state.position->moves, again, keys) && again == state, "replayed as it stands");
  rotated.actions[1] = rotated.actions[2];
  reversed.numbers.pop_back();
  require(!fault_of([&] { foreign::use_symmetries({rotated}); }).empty(), "an image twice");
  require(!fault_of([&] { foreign::use_symmetries({reversed}); }).empty(), "a number too few");
  require(Foreign::kNumSymmetries == 3, "what is refused changes nothing");
}

void test_another_game_has_no_symmetries_yet() {
  CellRules::use();
  require(Foreign::kNumSymmetries == 1, "the identity");
}

void test_searches_prove_exact_values() {
  std::mt19937 draw(2);
  SearchSettings settings;
  settings.simulations = 100000;
  for (int i = 0; i < 60; ++i) {
    settings.algorithm = i % 2 == 0 ? SearchAlgorithm::kPuct : SearchAlgorithm::kGumbel;
    const Line<Foreign> line = random_line(draw, static_cast<std::size_t>(4 + i % 5));
    Search<Foreign> search;
    search.start(line, settings);
    std::vector<float> wdl{0.3F, 0.4F, 0.3F}, logits(Foreign::kPolicySize);
    while (search.collect() > 0) search.apply(0, logits.data(), wdl.data());
    require(search.result(0.0, 0.0).proven == exact_for_mover(line), "the proof of a search");

    GameSearch<Foreign> engine{EngineSettings()};
    engine.set_line(line);
    engine.begin({});
    while (!engine.progress().is_done && engine.progress().nodes < 100000) {
      const OwnedLeaves leaves = engine.gather(0, 1, 100000);
      if (leaves.num_rows() == 0) continue;  // every walk came to an end of the game
      engine.apply(0, std::span(logits).first(leaves.legal_index.size()), wdl);
    }
    const SearchView view = engine.view(1);
    require(view.proven == exact_for_mover(line), "the proof of the engine");
  }
}

void test_a_fault_of_the_rules_comes_out_of_every_thread() {
  CellRules::use(5);
  SelfPlaySettings settings;
  settings.search.simulations = 30;
  for (const int threads : {1, 4}) {
    SelfPlay<Foreign> games(settings, 8);
    SearchPool<Foreign> pool(8, 1, 1, threads, HistoryFill::kNo);
    for (std::uint64_t lane = 0; lane < 8; ++lane) {
      SelfPlayGame game;
      game.lane = lane;
      games.add_lane(game);
    }
    games.begin({100});
    std::vector<float> logits, wdl;
    const std::string fault = fault_of([&] {
      LeafBatch batch = pool.step(0, {}, {}, games);
      while (batch.num_rows() > 0) {
        testing::evaluate<Foreign>(batch, logits, wdl,
                                   [](bool holds, const char* what) { require(holds, what); });
        batch = pool.step(0, logits, wdl, games);
      }
    });
    require(fault.starts_with("cells.py:1: oops (the moves so far: "), "the fault and where: " + fault);
  }
}

}  // namespace

int main() {
  CellRules::use();
  test_positions_are_their_moves();
  test_turned_positions_show_images();
  test_another_game_has_no_symmetries_yet();
  test_searches_prove_exact_values();
  test_a_fault_of_the_rules_comes_out_of_every_thread();
  std::puts("foreign_test: all well");
}
