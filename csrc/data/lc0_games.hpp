// Games of lc0's training data as columns of the game store (V6, V7 records of input format 1).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "games/game.hpp"

namespace alphazero::lc0 {

// Numbers a ply that the store keeps beside those of its own searches, by the names of their columns
// (alphazero/data/store/schema.py). d_st is of V7 alone.
inline constexpr std::array<std::string_view, 13> kNumberNames = {
    "best_d",   "played_q", "played_d",   "orig_q",     "orig_d", "root_m", "best_m",
    "played_m", "orig_m",   "plies_left", "policy_kld", "q_st",   "d_st"};

// Bits of the store's flags (alphazero/data/store/columns.py).
inline constexpr std::uint8_t kTrainedOn = 1;
inline constexpr std::uint8_t kProven = 2;

// How a game ended, as the store's column `termination` says.
enum class End : std::uint8_t {
  kUnknown = 0,
  kWin,
  kStalemate,
  kRepetition,
  kFiftyMoves,
  kInsufficientMaterial,
  kAdjudicated,  // or resigned
  kTooLong,
};

// G games, M plies. A ply that no record tells of (an opening's moves) has flags, values and visits of 0, NaN
// in `numbers` and no policy.
class Games {
 public:
  Games();
  ~Games();

  // Adds the game of a file of records, which is taken piece by piece, so that what was just unpacked is
  // still in the cache: begin, take for each piece, finish. take and finish throw GameError, which names the
  // record (from 0), the value and what was expected, for a game that cannot be rebuilt; the columns are then
  // as they were.
  void begin();
  void take(std::span<const std::uint8_t> piece);
  void finish();
  // All three for a whole file.
  void add(std::span<const std::uint8_t> file);

  std::vector<Move> moves;                    // [M]
  std::vector<std::int32_t> moves_offset{0};  // [G + 1]
  std::vector<std::int8_t> result;            // [G] +1 white won, 0, -1
  std::vector<std::uint8_t> end;              // [G] End
  std::vector<std::uint8_t> version;          // [G] of its records
  std::vector<std::uint8_t> fen_bytes;        // game g starts at [fen_offset[g], fen_offset[g + 1]),
  std::vector<std::int32_t> fen_offset{0};    // empty: the standard start
  std::vector<std::uint8_t> flags;            // [M]
  std::vector<float> root_q, root_d, best_q;  // [M] the mover's
  std::vector<std::uint32_t> visits;          // [M]
  std::array<std::vector<float>, kNumberNames.size()> numbers;  // [M] each
  std::vector<Move> best_move;                                  // [M]
  std::vector<std::uint32_t> policy_offset;                     // [M + G] within the game's own policies
  std::vector<std::int32_t> policy_part_offset{0};              // [G + 1]
  std::vector<Move> policy_move;
  std::vector<std::uint16_t> policy_prob;  // 1 / 65535

 private:
  class Reader;

  void append(const Reader& reader);

  std::unique_ptr<Reader> reader_;  // of the game under way
};

// A game of the store, as far as a record tells of it; views. Without `flags` no search made it. Numbers that
// are not known are empty.
struct StoredGame {
  std::string_view start;  // empty: the standard start
  std::span<const Move> moves;
  int result = 0;
  End end = End::kUnknown;
  std::span<const std::uint8_t> flags;
  std::span<const float> root_q, root_d, best_q;
  std::span<const std::uint32_t> visits;
  std::span<const std::uint32_t> policy_offset;
  std::span<const Move> policy_move;
  std::span<const std::uint16_t> policy_prob;
  std::array<std::span<const float>, kNumberNames.size()> numbers;
  std::span<const Move> best_move;
};

// V6 records of the plies that have a policy, or of all where no search made the game. Throws GameError for a
// game that cannot be replayed or columns that do not fit.
std::vector<std::uint8_t> records_of(const StoredGame& game);

}  // namespace alphazero::lc0
