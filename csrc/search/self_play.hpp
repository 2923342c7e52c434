// Games that a network plays against itself, in lanes: endless rows of games, each a function of its key.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.hpp"
#include "games/game.hpp"
#include "games/line.hpp"
#include "search/search_pool.hpp"
#include "search/settings.hpp"

namespace alphazero {

struct SelfPlaySettings {
  SearchSettings search;
  std::uint64_t seed = 0;
  // Playout-cap randomisation (Wu 2019, section 3.1): this share of the moves gets search.simulations, noise
  // and a place in the training data, the others get fast_simulations.
  double full_search_share = 1.0;
  int fast_simulations = 100;
  double dirichlet_alpha = 0.3;  // Silver et al. 2018: chess
  double temperature = 1.0;      // while a game has fewer than temperature_plies plies, then 0
  int temperature_plies = 30;
  int opening_plies = 0;  // a game begins with 0 to this many random moves, evenly
  // A side resigns whose root_q and best_q are both at or below minus this; 0 is never. In
  // resign_playthrough of the games no side does, which shows how often it would have been wrong.
  double resign_threshold = 0.0;
  double resign_playthrough = 0.1;
  int max_plies = 512;  // then the game is drawn (Silver et al. 2018)
};

enum class GameEnd : std::uint8_t { kNone = 0, kRules = 1, kResignation = 2, kTooLong = 3, kAdjudicated = 4 };

// A game, over or under way. One entry a ply in flags ... visits; ply i's policy is policy_move and
// policy_prob [policy_offset[i], policy_offset[i + 1]).
struct SelfPlayGame {
  std::uint64_t lane = 0;
  std::uint64_t number = 0;  // within the lane
  GameEnd end = GameEnd::kNone;
  Termination termination = Termination::kNone;  // where the rules ended it
  std::int8_t result = 0;                        // +1: the first player won
  bool plays_through = false;
  std::int32_t resign_ply = -1;  // where a side would have resigned first
  std::vector<std::uint16_t> moves;
  std::vector<std::uint8_t> flags;  // bit 0: a full search, to be trained on
  std::vector<float> root_q, root_d, best_q, best_d, orig_q, orig_d;
  std::vector<std::uint32_t> visits;
  std::vector<std::uint32_t> policy_offset{0};
  std::vector<std::uint16_t> policy_move;
  std::vector<std::uint16_t> policy_prob;  // 1 / 65535
};

// What a round gives every lane: searched moves, or simulations.
struct RoundBudget {
  std::uint64_t amount = 0;
  bool is_of_simulations = false;
};

// What is certain of a position, given as text, for the side to move: -1 lost, 0 drawn, 1 won. Called by
// several threads at once; throws nothing.
using Judge = std::function<std::optional<std::int8_t>(const std::string& position)>;

// How far a generation is.
struct SelfPlayProgress {
  std::uint64_t moves = 0;  // searched moves
  std::uint64_t games = 0;  // finished games
};

template <Game G>
class SelfPlay final : public SearchDriver<G> {
 public:
  explicit SelfPlay(const SelfPlaySettings& settings, std::size_t num_slots);

  // A new lane, or one whose game is under way. Throws GameError for moves that cannot be played, a game that
  // is over and columns that do not fit. Before begin().
  void add_lane(SelfPlayGame game);
  // A game ends with the judge's result at the first position that it knows, of those with at most so many
  // pieces and without castling rights. In chess; other games are not judged.
  void adjudicate(Judge judge, int most_pieces) {
    judge_ = std::move(judge);
    most_pieces_ = most_pieces;
  }
  // Lanes will play no further than to the end of their game.
  void stop_at_ends() { stops_at_ends_ = true; }
  // Every lane plays to the end of the move at which its budget is used. What it uses beyond counts nowhere:
  // carried to the next round it would set lanes further apart, and batches would be less full. For every
  // move a slot takes the lane that has most left, so that all lanes end at about the same time.
  void begin(RoundBudget budget);

  bool next(std::size_t slot, Search<G>& search) override;
  void finish(std::size_t slot, Search<G>& search) override;

  // The games that ended since the last call, by lane and number.
  std::vector<SelfPlayGame> take_finished();
  // Every lane's game under way, by lane. Between generations.
  std::vector<SelfPlayGame> games_under_way() const;
  SelfPlayProgress progress() const { return {moves_.load(), games_.load()}; }

 private:
  enum Purpose : std::uint64_t { kOpening, kPlaythrough, kBudget, kNoise, kMove };

  struct Lane {
    SelfPlayGame game;
    Line<G> line;
    std::uint64_t budget_left = 0;
  };
  struct Place {  // what a slot works at
    Lane* lane = nullptr;
    bool is_full = true;
    std::uint64_t simulations_before = 0;  // of its search, when the move began
    std::vector<double> noise;
  };

  void wait(const Lane& lane);
  Lane* next_lane(const Lane* before);
  Rng rng(const Lane& lane, Purpose purpose) const;
  void begin_game(Lane& lane, std::uint64_t number);
  void record(Place& place, const Search<G>& search, const SearchResult& result) const;
  void end_game(Lane& lane, GameEnd end, Outcome outcome, std::int8_t value_for_mover);
  bool wants_to_resign(Lane& lane, const SearchResult& result) const;
  std::optional<std::int8_t> judged(const Lane& lane) const;

  SelfPlaySettings settings_;
  std::vector<Lane> lanes_;
  std::vector<Place> places_;
  Judge judge_;
  int most_pieces_ = 0;
  bool stops_at_ends_ = false;
  bool counts_simulations_ = false;
  std::mutex waiting_mutex_;
  // Budget left, and minus the number: of equal ones the first.
  std::priority_queue<std::pair<std::uint64_t, std::ptrdiff_t>> waiting_;
  std::atomic<std::uint64_t> moves_{0};
  std::atomic<std::uint64_t> games_{0};
  std::mutex finished_mutex_;
  std::vector<SelfPlayGame> finished_;
};

}  // namespace alphazero
