#include "search/self_play.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "games/all_games.hpp"

namespace alphazero {
namespace {

constexpr double kFixedPoint = 65535.0;
constexpr std::uint8_t kTrainedOn = 1;
constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();  // as in games of earlier versions

// The side to move lost, drew or won: the first player's result.
std::int8_t result_for_first(std::int8_t value, bool first_to_move) {
  return static_cast<std::int8_t>(first_to_move ? value : -value);
}

// Has a game an entry for each of its plies in every column, and policies that lie in order within theirs?
bool has_entry_each_ply(const SelfPlayGame& game) {
  const std::size_t plies = game.moves.size();
  const auto& offset = game.policy_offset;
  for (const auto* values :
       {&game.root_q, &game.root_d, &game.best_q, &game.best_d, &game.orig_q, &game.orig_d}) {
    if (values->size() != plies) return false;
  }
  return game.flags.size() == plies && game.visits.size() == plies && offset.size() == plies + 1 &&
         offset.front() == 0 && std::is_sorted(offset.begin(), offset.end()) &&
         offset.back() == game.policy_move.size() && game.policy_prob.size() == game.policy_move.size();
}

}  // namespace

template <Game G>
SelfPlay<G>::SelfPlay(const SelfPlaySettings& settings, std::size_t num_slots)
    : settings_(settings), places_(num_slots) {}

template <Game G>
Rng SelfPlay<G>::rng(const Lane& lane, Purpose purpose) const {
  return Rng({settings_.seed, lane.game.lane, lane.game.number, lane.game.moves.size(), purpose});
}

template <Game G>
void SelfPlay<G>::add_lane(SelfPlayGame game) {
  if (game.moves.empty()) {
    Lane& lane = lanes_.emplace_back();
    lane.game.lane = game.lane;
    begin_game(lane, game.number);
    return;
  }
  const auto refuse = [&game](const std::string& what) {
    throw GameError("lane " + std::to_string(game.lane) + ", game " + std::to_string(game.number) + ": " +
                    what);
  };
  Line<G> line;
  std::vector<Move> legal;
  for (const Move move : game.moves) {
    G::legal(line.state(), legal);
    if (std::find(legal.begin(), legal.end(), move) == legal.end()) {
      refuse("move " + std::to_string(move) + " is not legal");
    }
    line.push(move);
    if (line.outcome().over()) refuse("it is over; expected one under way");
  }
  // A search needs a move to choose from.
  if (game.end != GameEnd::kNone) refuse("it is over; expected one under way");
  if (!has_entry_each_ply(game)) refuse("its searches do not fit its moves; expected an entry for each ply");
  Lane& lane = lanes_.emplace_back();
  lane.line = std::move(line);
  lane.game = std::move(game);
}

template <Game G>
void SelfPlay<G>::begin(RoundBudget budget) {
  waiting_ = {};
  for (Lane& lane : lanes_) {
    lane.budget_left = budget.amount;
    wait(lane);
  }
  counts_simulations_ = budget.is_of_simulations;
  for (Place& place : places_) place = {};
  moves_ = 0;
  games_ = 0;
}

// Random moves first, but none that ends the game.
template <Game G>
void SelfPlay<G>::begin_game(Lane& lane, std::uint64_t number) {
  const std::uint64_t lane_number = lane.game.lane;
  lane.game = SelfPlayGame();
  lane.game.lane = lane_number;
  lane.game.number = number;
  lane.line = Line<G>();
  lane.game.plays_through = rng(lane, kPlaythrough).uniform() < settings_.resign_playthrough;
  Rng opening = rng(lane, kOpening);
  const std::uint64_t plies = opening.below(static_cast<std::uint64_t>(settings_.opening_plies) + 1);
  std::vector<Move> legal;
  for (std::uint64_t ply = 0; ply < plies; ++ply) {
    G::legal(lane.line.state(), legal);
    const Move move = legal[opening.below(legal.size())];
    lane.line.push(move);
    if (lane.line.outcome().over()) {
      lane.line.pop();
      break;
    }
    SelfPlayGame& game = lane.game;
    game.moves.push_back(move);
    game.flags.push_back(0);
    for (auto* values : {&game.root_q, &game.root_d, &game.best_q}) values->push_back(0.0F);
    for (auto* values : {&game.best_d, &game.orig_q, &game.orig_d}) values->push_back(kUnknown);
    game.visits.push_back(0);
    game.policy_offset.push_back(0);
  }
}

template <Game G>
void SelfPlay<G>::wait(const Lane& lane) {
  if (lane.budget_left > 0) waiting_.emplace(lane.budget_left, lanes_.data() - &lane);
}

// The lane with most left of its budget, the first of equal ones; the one before joins those that wait.
template <Game G>
typename SelfPlay<G>::Lane* SelfPlay<G>::next_lane(const Lane* before) {
  const std::lock_guard lock(waiting_mutex_);
  if (before != nullptr) wait(*before);
  if (waiting_.empty()) return nullptr;
  const std::ptrdiff_t number = -waiting_.top().second;
  waiting_.pop();
  return &lanes_[number];
}

template <Game G>
bool SelfPlay<G>::next(std::size_t slot, Search<G>& search) {
  Place& place = places_[slot];
  place.lane = next_lane(place.lane);
  if (place.lane == nullptr) return false;
  Lane& lane = *place.lane;
  place.simulations_before = search.num_simulations();
  place.is_full = rng(lane, kBudget).uniform() < settings_.full_search_share;
  SearchSettings search_settings = settings_.search;
  const bool is_gumbel = search_settings.algorithm == SearchAlgorithm::kGumbel;
  if (!place.is_full) {
    search_settings.simulations = settings_.fast_simulations;
    search_settings.noise_epsilon = 0.0;
    search_settings.forced_playouts = 0.0;
  }
  search.start(lane.line, search_settings);
  place.noise.resize(search.root_edges().size());
  Rng noise = rng(lane, kNoise);
  if (is_gumbel) {
    for (double& value : place.noise) value = noise.gumbel();
    search.set_noise(place.noise);
  } else if (search_settings.noise_epsilon > 0.0) {
    noise.dirichlet(settings_.dirichlet_alpha, place.noise);
    search.set_noise(place.noise);
  }
  return true;
}

template <Game G>
void SelfPlay<G>::finish(std::size_t slot, Search<G>& search) {
  Place& place = places_[slot];
  Lane& lane = *place.lane;
  const bool is_early = lane.game.moves.size() < static_cast<std::size_t>(settings_.temperature_plies);
  const double temperature = is_early ? settings_.temperature : 0.0;
  const double draw = rng(lane, kMove).uniform();
  const SearchResult result = search.result(temperature, draw);
  ++moves_;
  const std::uint64_t used = counts_simulations_ ? search.num_simulations() - place.simulations_before : 1;
  lane.budget_left -= std::min(used, lane.budget_left);
  if (wants_to_resign(lane, result) && !lane.game.plays_through) {
    end_game(lane, GameEnd::kResignation, {}, -1);
    return;
  }
  record(place, search, result);
  lane.line.push(result.move);
  const Outcome outcome = lane.line.outcome();
  const bool is_too_long = lane.game.moves.size() >= static_cast<std::size_t>(settings_.max_plies);
  if (outcome.over()) {
    end_game(lane, GameEnd::kRules, outcome, outcome.value);
  } else if (const std::optional<std::int8_t> known = judged(lane)) {
    end_game(lane, GameEnd::kAdjudicated, {}, *known);
  } else if (is_too_long) {
    end_game(lane, GameEnd::kTooLong, {}, 0);
  }
}

template <Game G>
std::optional<std::int8_t> SelfPlay<G>::judged(const Lane& lane) const {
  if constexpr (requires { lane.line.state().castling_rooks(); }) {
    const auto& position = lane.line.state();
    if (judge_ && position.castling_rooks() == 0 && std::popcount(position.occupied()) <= most_pieces_) {
      return judge_(G::to_string(position));
    }
  }
  return std::nullopt;
}

// Notes where the side to move would resign first. A game has a move at least.
template <Game G>
bool SelfPlay<G>::wants_to_resign(Lane& lane, const SearchResult& result) const {
  if (settings_.resign_threshold <= 0.0 || lane.game.moves.empty()) return false;
  if (std::max(result.root_q, result.best_q) > -settings_.resign_threshold) return false;
  if (lane.game.resign_ply < 0) lane.game.resign_ply = static_cast<std::int32_t>(lane.game.moves.size());
  return true;
}

template <Game G>
void SelfPlay<G>::record(Place& place, const Search<G>& search, const SearchResult& result) const {
  SelfPlayGame& game = place.lane->game;
  const std::span<const Edge> edges = search.root_edges();
  game.moves.push_back(result.move);
  game.flags.push_back(place.is_full ? kTrainedOn : 0);
  game.root_q.push_back(static_cast<float>(result.root_q));
  game.root_d.push_back(static_cast<float>(result.root_d));
  game.best_q.push_back(static_cast<float>(result.best_q));
  game.best_d.push_back(static_cast<float>(result.best_d));
  game.orig_q.push_back(static_cast<float>(result.orig_q));
  game.orig_d.push_back(static_cast<float>(result.orig_d));
  game.visits.push_back(result.visits);
  if (place.is_full) {
    for (std::size_t i = 0; i < edges.size(); ++i) {
      const auto share = static_cast<std::uint16_t>(std::lround(result.policy[i] * kFixedPoint));
      if (share == 0) continue;
      game.policy_move.push_back(edges[i].move);
      game.policy_prob.push_back(share);
    }
  }
  game.policy_offset.push_back(static_cast<std::uint32_t>(game.policy_move.size()));
}

template <Game G>
void SelfPlay<G>::end_game(Lane& lane, GameEnd end, Outcome outcome, std::int8_t value_for_mover) {
  SelfPlayGame& game = lane.game;
  game.end = end;
  game.termination = outcome.termination;
  game.result = result_for_first(value_for_mover, G::first_player_to_move(lane.line.state()));
  const std::uint64_t number = game.number;
  ++games_;
  {
    const std::lock_guard lock(finished_mutex_);
    finished_.push_back(game);
  }
  begin_game(lane, number + 1);
  if (stops_at_ends_) lane.budget_left = 0;
}

template <Game G>
std::vector<SelfPlayGame> SelfPlay<G>::take_finished() {
  std::vector<SelfPlayGame> games;
  {
    const std::lock_guard lock(finished_mutex_);
    games.swap(finished_);
  }
  std::sort(games.begin(), games.end(), [](const SelfPlayGame& a, const SelfPlayGame& b) {
    return std::pair(a.lane, a.number) < std::pair(b.lane, b.number);
  });
  return games;
}

template <Game G>
std::vector<SelfPlayGame> SelfPlay<G>::games_under_way() const {
  std::vector<SelfPlayGame> games;
  for (const Lane& lane : lanes_) games.push_back(lane.game);
  return games;
}

#define ALPHAZERO_INSTANTIATE(G) template class SelfPlay<G>;
ALPHAZERO_ALL_GAMES(ALPHAZERO_INSTANTIATE)
#undef ALPHAZERO_INSTANTIATE

}  // namespace alphazero
