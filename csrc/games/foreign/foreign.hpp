// A game whose rules lie outside the core, in Python or OpenSpiel, as one more Game. Its sizes are known when
// use_rules() names it; a process has one such game at a time.
//
// Positions are made once and shared: each remembers the moves that led to it, which are its identity, its
// text, and how it is found again. A policy index is the move itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "games/game.hpp"

namespace alphazero {

namespace foreign {

// What the rules keep of a position.
class Held {
 public:
  virtual ~Held() = default;
};

// What the rules say of a position.
struct Facts {
  std::shared_ptr<const Held> held;
  bool first_moves = true;  // where the game is over: the other player than the one who moved last
  bool is_over = false;
  std::int8_t result = 0;   // of the first player: -1, 0, 1
  std::vector<Move> legal;  // ascending; none where the game is over
};

// The position after some moves of a game; num_legal: how many of them could be played, all or up to one that
// is not legal.
struct Replayed {
  Facts facts;
  std::size_t num_legal = 0;
};

// Called by several threads. Throws RulesError where the rules fail.
class Rules {
 public:
  virtual ~Rules() = default;
  virtual Facts initial() const = 0;
  virtual Facts of(const Held& state) const = 0;                  // of a copy of it
  virtual Facts after(const Facts& before, Move move) const = 0;  // a legal move
  // From the start of the game, in less time than after() takes for each move.
  virtual Replayed replay(std::span<const Move> moves) const;
  // The planes, for the side to move.
  virtual void observe(const Facts& facts, std::span<float> planes) const = 0;
  virtual std::string move_text(const Facts& facts, Move move) const = 0;
  virtual std::string drawing(const Facts& facts) const = 0;
};

struct Sizes {
  std::string name;
  int height = 1;
  int width = 1;
  int num_planes = 1;
  int num_moves = 1;
  int max_plies = 1;
};

constexpr int kMostMoves = 1 << 16;        // of a game: a Move has 16 bits
constexpr int kMostLegal = (1 << 12) - 1;  // of a position: Tree's places have 12

// From now on Foreign is this game. Throws GameError where positions of another one are still in use, and for
// sizes that cannot be.
void use_rules(const Sizes& sizes, std::shared_ptr<const Rules> rules);

// A way to turn the board that changes nothing of the game.
struct Symmetry {
  std::vector<std::int32_t> numbers;  // where each number of an observation goes: a permutation
  std::vector<std::int32_t> actions;  // the image of each action, -1 where it is not known; no image twice
};

constexpr std::size_t kMostSymmetries = 255;  // beside the identity: samples name them in 8 bits

// From now on the game in use has the identity and these. Not while positions are encoded. Throws GameError
// for what is no permutation.
void use_symmetries(std::vector<Symmetry> symmetries);

struct Position : Facts {
  std::vector<Move> moves;   // from the start of the game, or from the position of `origin`
  std::uint64_t origin = 0;  // numbers the positions that no moves lead to; 0: the start of the game
  std::uint64_t key = 0;
};

// A turned position is one to look at, for what the network sees of it: encode, legal and legal_indices. What
// is asked of the rules themselves is the position as it stands.
struct State {
  std::shared_ptr<const Position> position;
  std::uint8_t symmetry = 0;  // as it stands
  bool operator==(const State& other) const;
};

}  // namespace foreign

struct Foreign {
  using State = foreign::State;

  // Of the game in use.
  static inline std::string_view kName = "foreign";
  static inline int kBoardHeight = 1;
  static inline int kBoardWidth = 1;
  static constexpr int kNumBitPlanes = 0;
  static inline int kNumFloatPlanes = 1;
  static constexpr int kNumScalarPlanes = 2;  // second player to move; ones, which show the edges
  static constexpr int kHistory = 1;
  static inline int kPolicySize = 1;
  static inline int kMaxLegalMoves = 1;
  static inline int kMaxPlies = 1;
  static constexpr bool kAlternates = false;
  static constexpr bool kRulesAreOutside = true;
  static inline int kNumSymmetries = 1;

  // Of an observation.
  static std::size_t num_numbers() {
    return static_cast<std::size_t>(kNumFloatPlanes) * kBoardHeight * kBoardWidth;
  }
  // Of a position as it stands.
  static State turned(const State& state, int symmetry) {
    return {state.position, static_cast<std::uint8_t>(symmetry)};
  }
  // Where the image is not known, a move that is the image of no other one.
  static Move turned_move(Move move, int symmetry);
  // Whether the images of all legal moves are known, under every symmetry.
  static bool can_turn(const State& state);
  static State initial();
  // A position as the rules hold it, whose moves before are not known. It equals no other one.
  static State from_held(const foreign::Held& held);
  // "start", or the moves since then: "4,0,8". After from_held the text is "state" or "state,4,0,8", which
  // cannot be read.
  static State from_string(std::string_view text);
  static std::string to_string(const State& state);
  static void legal(const State& state, std::vector<Move>& moves) {
    moves = state.position->legal;
    if (state.symmetry != 0) turn_moves(moves, state.symmetry);
  }
  static void legal_indices(const State& state, std::vector<std::uint16_t>& indices) {
    legal(state, indices);
  }
  static void apply(State& state, Move move);
  // From the start; all moves, or false for one that is not legal, with the moves before it.
  static bool replay(std::span<const Move> moves, State& state, std::vector<std::uint64_t>& keys);
  static bool can_apply(const State& state, Move move);
  static std::uint64_t hash(const State& state) {
    return state.symmetry == 0 ? state.position->key : mix64(state.position->key + state.symmetry);
  }
  static int can_repeat(const State&) { return 0; }  // the rules count themselves
  static Outcome terminal(FrameSpan<State> line);
  // The float planes, then two bytes.
  static void encode(FrameSpan<State> line, HistoryFill fill, std::uint8_t* packed);
  static int move_to_index(const State&, Move move) { return move < kPolicySize ? move : -1; }
  static Move index_to_move(const State&, int index) { return static_cast<Move>(index); }
  static std::string move_to_string(const State& state, Move move);
  // As the rules write it, or its number.
  static Move move_from_string(const State& state, std::string_view text);
  static bool first_player_to_move(const State& state) { return state.position->first_moves; }
  // The position as the rules draw it, in several lines.
  static std::string drawing(const State& state);

 private:
  static void turn_moves(std::vector<Move>& moves, int symmetry);
};

static_assert(Game<Foreign>);

}  // namespace alphazero
