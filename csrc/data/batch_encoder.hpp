// Sampled plies of stored games to batches for the network: replay, encode, targets; threads inside.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/worker_pool.hpp"
#include "data/shard_columns.hpp"
#include "games/game.hpp"

namespace alphazero {

// The position before move `ply` of row `game` of shard `shard`, for each of B samples, shown in one of the
// game's symmetries (none given: as it stands).
struct SamplePlaces {
  std::span<const std::int32_t> shard;
  std::span<const std::int32_t> game;
  std::span<const std::int32_t> ply;
  std::span<const std::uint8_t> symmetry = {};
};

// An evaluation of x pawns for the side to move as win, draw, loss (alphazero/data/sampling/value_curve.py):
// W = 1 / (1 + exp((a - x) / b)), L = 1 / (1 + exp((a + x) / b)).
struct ValueCurve {
  double a;
  double b;

  std::array<double, 3> wdl(double pawns) const;
};

// Of what value targets consist besides the result.
struct ValueTarget {
  double q_ratio = 0;                 // share of the search's value or of the evaluation, where there is one
  std::optional<ValueCurve> curve{};  // none: evaluations do not count
};

// alphazero/games/batch.py without sample ids: B positions, K legal moves over all of them.
struct EncodedBatch {
  std::vector<std::uint8_t> packed;        // [B, packed_bytes]
  std::vector<std::int32_t> legal_offset;  // [B + 1]
  std::vector<std::int32_t> legal_index;   // [K] ascending within a position
  std::vector<float> policy;               // [K] the search's where there was one, else 1 on the move played
  std::vector<float> wdl;                  // [B, 3] from the mover's side
  std::vector<float> moves_left;           // [B] plies to the end of the game, this move included
};

template <Game G>
class BatchEncoder {
 public:
  explicit BatchEncoder(int num_threads);
  ~BatchEncoder();

  // The memory behind the columns must outlive the encoder. Throws GameError (ShardColumns::check).
  void add_shard(const ShardColumns& shard);

  // The same bytes for any number of threads. Throws std::out_of_range for places that do not exist and
  // GameError, naming shard, game and ply, for games that cannot be replayed or have no result, and policies
  // with a move that is not legal. value: of what wdl consists.
  EncodedBatch encode(const SamplePlaces& places, HistoryFill fill, const ValueTarget& value);

  // Keys (Game::hash) of the positions before each move of these games, one game after the other.
  std::vector<std::uint64_t> position_keys(std::size_t shard, std::span<const std::int32_t> games);

 private:
  using State = typename G::State;
  struct Scratch;
  struct Targets;

  // A stored game up to a ply, in a worker's scratch memory.
  struct Place {
    const ShardColumns* shard;
    std::size_t game;
    std::size_t ply;
    int symmetry = 0;
  };

  Place place_of(const SamplePlaces& places, std::size_t sample) const;
  void replay(const Place& place, Scratch& scratch) const;
  void encode_sample(Place place, HistoryFill fill, const ValueTarget& value, Scratch& scratch,
                     std::uint8_t* packed, Targets& targets) const;
  static void find_legal(const Place& place, Scratch& scratch, Targets& targets);
  static void take_policy(const Place& place, Scratch& scratch, Targets& targets);
  static void take_value(const Place& place, const Scratch& scratch, const ValueTarget& value,
                         Targets& targets);

  std::vector<ShardColumns> shards_;
  WorkerPool pool_;
  std::vector<Scratch> scratch_;  // one a worker
};

}  // namespace alphazero
