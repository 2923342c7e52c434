// Any bytes as the columns of a shard: what the checks let through is encoded, every ply of it, and the two
// judges of a game, find_illegal_game and the encoder, must agree.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/batch_encoder.hpp"
#include "data/game_check.hpp"
#include "data/shard_columns.hpp"
#include "fuzz/fuzz.hpp"
#include "games/all_games.hpp"

namespace {

using namespace alphazero;
using fuzz::Reader;
using fuzz::require;

constexpr std::size_t kMaxSamples = 300;
constexpr ValueCurve kCurve{1.0, 0.5};

// Columns that own their memory, in the order in which the input has them.
struct Columns {
  std::vector<std::uint16_t> moves;
  std::vector<std::int32_t> moves_offset;
  std::vector<std::int8_t> result;
  std::vector<std::uint8_t> result_valid;
  std::vector<std::uint8_t> fen_bytes;
  std::vector<std::int32_t> fen_offset;
  bool has_search;
  std::vector<std::int32_t> ply_offset;
  std::vector<float> root_q, root_d;
  std::vector<std::int32_t> policy_offset_offset;
  std::vector<std::uint32_t> policy_offset;
  std::vector<std::int32_t> policy_move_offset;
  std::vector<std::uint16_t> policy_move, policy_prob;
  bool has_evals;
  std::vector<std::int32_t> cp_offset, cp, mate_offset, source_offset;
  std::vector<std::int16_t> mate;
  std::vector<std::uint8_t> cp_bits, mate_bits, source, source_bits;
  std::unique_ptr<bool[]> is_valid;

  explicit Columns(Reader& input)
      : moves(input.column<std::uint16_t>()),
        moves_offset(input.column<std::int32_t>()),
        result(input.column<std::int8_t>()),
        result_valid(input.column<std::uint8_t>()),
        fen_bytes(input.column<std::uint8_t>()),
        fen_offset(input.column<std::int32_t>()),
        has_search(input.number<std::uint8_t>() % 2 == 1),
        ply_offset(input.column<std::int32_t>()),
        root_q(input.column<float>()),
        root_d(input.column<float>()),
        policy_offset_offset(input.column<std::int32_t>()),
        policy_offset(input.column<std::uint32_t>()),
        policy_move_offset(input.column<std::int32_t>()),
        policy_move(input.column<std::uint16_t>()),
        policy_prob(input.column<std::uint16_t>()),
        has_evals(input.number<std::uint8_t>() % 2 == 1),
        cp_offset(input.column<std::int32_t>()),
        cp(input.column<std::int32_t>()),
        mate_offset(input.column<std::int32_t>()),
        source_offset(input.column<std::int32_t>()),
        mate(input.column<std::int16_t>()),
        cp_bits(input.column<std::uint8_t>()),
        mate_bits(input.column<std::uint8_t>()),
        source(input.column<std::uint8_t>()),
        source_bits(input.column<std::uint8_t>()),
        is_valid(new bool[result_valid.size()]) {
    for (std::size_t i = 0; i < result_valid.size(); ++i) is_valid[i] = result_valid[i] % 2 == 1;
  }

  ShardColumns view() const {
    ShardColumns shard;
    shard.name = "shard";
    shard.moves = moves;
    shard.moves_offset = moves_offset;
    shard.result = result;
    shard.result_valid = {is_valid.get(), result_valid.size()};
    shard.fen_bytes = fen_bytes;
    shard.fen_offset = fen_offset;
    if (has_search) {
      shard.search =
          SearchColumns{ply_offset,         root_q,      root_d,     policy_offset_offset, policy_offset,
                        policy_move_offset, policy_move, policy_prob};
    }
    if (has_evals) {
      shard.evals = EvalColumns{
          {cp_offset, cp, cp_bits}, {mate_offset, mate, mate_bits}, {source_offset, source, source_bits}};
    }
    return shard;
  }
};

// Does every ply encode, in some symmetry? Plies beyond kMaxSamples are not asked; games without result fail.
template <Game G>
bool encodes(BatchEncoder<G>& encoder, const ShardColumns& shard, std::size_t game, std::size_t& samples) {
  for (std::size_t ply = 0; ply < shard.moves_of(game).size() && samples < kMaxSamples; ++ply, ++samples) {
    const std::int32_t shard_number[] = {0};
    const std::int32_t game_number[] = {static_cast<std::int32_t>(game)};
    const std::int32_t ply_number[] = {static_cast<std::int32_t>(ply)};
    const std::uint8_t symmetry[] = {static_cast<std::uint8_t>(ply % G::kNumSymmetries)};
    try {
      const EncodedBatch batch = encoder.encode({shard_number, game_number, ply_number, symmetry},
                                                HistoryFill::kFenOnly, {0.5, kCurve});
      require(batch.legal_offset.back() == static_cast<std::int32_t>(batch.policy.size()), "a share a move");
      const float sum = batch.wdl[0] + batch.wdl[1] + batch.wdl[2];
      require(std::abs(sum - 1.0F) < 1e-4F, "win, draw and loss are all there is");
    } catch (const GameError&) {
      return false;
    }
  }
  return true;
}

template <Game G>
void check_shard(const ShardColumns& shard) {
  BatchEncoder<G> encoder(1);
  try {
    encoder.add_shard(shard);
  } catch (const GameError&) {
    return;
  }
  const std::span<const char> fens(reinterpret_cast<const char*>(shard.fen_bytes.data()),
                                   shard.fen_bytes.size());
  const auto illegal = find_illegal_game<G>(shard.moves, shard.moves_offset, fens, shard.fen_offset,
                                            shard.search ? &*shard.search : nullptr);
  std::size_t samples = 0;
  bool all_encode = true;
  for (std::size_t game = 0; game < shard.num_games(); ++game) {
    const bool encoded = encodes<G>(encoder, shard, game, samples);
    if (shard.result_valid[game]) all_encode = all_encode && encoded;
    const std::int32_t games[] = {static_cast<std::int32_t>(game)};
    try {
      encoder.position_keys(0, games);
    } catch (const GameError&) {
    }
  }
  // A policy has rules of the encoder's own (each move once, values that are numbers).
  if (!shard.search && !illegal) require(all_encode, "legal games encode");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Reader input(data, size);
  const auto game = input.number<std::uint8_t>();
  const Columns columns(input);
  const ShardColumns shard = columns.view();
  int number = 0;
#define ALPHAZERO_FUZZ(G) \
  if (game % fuzz::kNumGames == number++) check_shard<G>(shard);
  ALPHAZERO_OWN_GAMES(ALPHAZERO_FUZZ)
#undef ALPHAZERO_FUZZ
  return 0;
}
