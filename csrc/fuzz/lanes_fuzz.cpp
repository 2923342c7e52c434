// Any bytes as a game of self-play that goes on: refused with GameError, or played a few moves further.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "fuzz/fuzz.hpp"
#include "games/all_games.hpp"
#include "search/self_play.hpp"

namespace {

using namespace alphazero;
using fuzz::Reader;
using fuzz::require;

constexpr std::uint64_t kMoves = 3;

SelfPlayGame read_game(Reader& input) {
  SelfPlayGame game;
  game.lane = input.number<std::uint64_t>();
  game.number = input.number<std::uint64_t>();
  game.end = static_cast<GameEnd>(input.number<std::uint8_t>() % 4);
  game.termination = static_cast<Termination>(input.number<std::uint8_t>() % 7);
  game.result = input.number<std::int8_t>();
  game.plays_through = input.number<std::uint8_t>() % 2 == 1;
  game.resign_ply = input.number<std::int32_t>();
  game.moves = input.column<std::uint16_t>();
  game.flags = input.column<std::uint8_t>();
  game.root_q = input.column<float>();
  game.root_d = input.column<float>();
  game.best_q = input.column<float>();
  game.best_d = input.column<float>();
  game.orig_q = input.column<float>();
  game.orig_d = input.column<float>();
  game.visits = input.column<std::uint32_t>();
  game.policy_offset = input.column<std::uint32_t>();
  game.policy_move = input.column<std::uint16_t>();
  game.policy_prob = input.column<std::uint16_t>();
  return game;
}

// A whole game has an entry a ply and policies within theirs.
void check_game(const SelfPlayGame& game) {
  const std::size_t plies = game.moves.size();
  require(game.flags.size() == plies && game.root_q.size() == plies && game.root_d.size() == plies &&
              game.best_q.size() == plies && game.best_d.size() == plies && game.orig_q.size() == plies &&
              game.orig_d.size() == plies && game.visits.size() == plies,
          "an entry a ply");
  require(game.policy_offset.size() == plies + 1 && game.policy_offset.back() == game.policy_move.size() &&
              game.policy_move.size() == game.policy_prob.size(),
          "policies end with their moves");
}

template <Game G>
void go_on(SelfPlayGame game, bool is_gumbel) {
  SelfPlaySettings settings;
  settings.search.algorithm = is_gumbel ? SearchAlgorithm::kGumbel : SearchAlgorithm::kPuct;
  settings.search.simulations = 4;
  settings.fast_simulations = 2;
  settings.full_search_share = 0.5;
  settings.resign_threshold = 0.9;
  settings.opening_plies = 2;
  SelfPlay<G> games(settings, 1);
  try {
    games.add_lane(std::move(game));
  } catch (const GameError&) {
    return;
  }
  games.begin(kMoves);
  SearchPool<G> pool(1, 1, settings.search.leaves, 1, HistoryFill::kFenOnly);
  fuzz::run<G>(pool, games);
  require(games.progress().moves == kMoves, "every move is played");
  for (const SelfPlayGame& finished : games.take_finished()) check_game(finished);
  for (const SelfPlayGame& open : games.games_under_way()) check_game(open);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Reader input(data, size);
  const auto game = input.number<std::uint8_t>();
  const bool is_gumbel = game / fuzz::kNumGames % 2 == 1;
  int number = 0;
#define ALPHAZERO_FUZZ(G) \
  if (game % fuzz::kNumGames == number++) go_on<G>(read_game(input), is_gumbel);
  ALPHAZERO_OWN_GAMES(ALPHAZERO_FUZZ)
#undef ALPHAZERO_FUZZ
  return 0;
}
