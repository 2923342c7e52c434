#include "data/batch_encoder.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "base/error.hpp"
#include "data/policy_check.hpp"
#include "games/all_games.hpp"
#include "games/line.hpp"

namespace alphazero {
namespace {

using Wdl = std::array<double, 3>;

constexpr std::size_t kSamplesPerTask = 16;  // enough work that threads seldom meet at the counter

[[noreturn]] void fail(const ShardColumns& shard, std::size_t game, std::size_t ply, const std::string& why) {
  throw GameError(shard.name + ": game " + std::to_string(game) + ", ply " + std::to_string(ply) + ": " +
                  why);
}

// Of the position before the ply, for its mover.
Wdl searched_value(const ShardColumns& shard, std::size_t game, std::size_t ply) {
  const std::size_t at = shard.search->place_of(shard.name, game, ply);
  const double root_q = shard.search->root_q[at];
  const double root_d = shard.search->root_d[at];
  if (!std::isfinite(root_q) || !std::isfinite(root_d)) {
    fail(shard, game, ply, "the value of its search is not finite");
  }
  const double q = std::clamp(root_q, -1.0, 1.0);
  const double d = std::clamp(root_d, 0.0, 1.0 - std::abs(q));
  return {(1.0 - d + q) / 2.0, d, (1.0 - d - q) / 2.0};
}

// The evaluation that a ply carries, for the player to move (`is_first`: the first); a mate is certain.
std::optional<Wdl> noted_value(const ShardColumns& shard, std::size_t game, std::size_t ply, bool is_first,
                               const ValueCurve& curve) {
  const double sign = is_first ? 1.0 : -1.0;
  if (const auto mate = shard.evals->mate.at(shard.name, game, ply); mate && *mate != 0) {
    return sign * *mate > 0 ? Wdl{1.0, 0.0, 0.0} : Wdl{0.0, 0.0, 1.0};
  }
  const auto centipawns = shard.evals->centipawns.at(shard.name, game, ply);
  if (!centipawns) return std::nullopt;
  return curve.wdl(sign * *centipawns / 100.0);
}

// Of the position before the ply, for its mover: what the engine that moves thinks of it, and what the ply
// before says of it; the mean where there are both, which foretells results best (docs/data_format.md).
std::optional<Wdl> evaluated_value(const ShardColumns& shard, std::size_t game, std::size_t ply,
                                   bool is_first, const ValueCurve& curve) {
  if (!shard.evals) return std::nullopt;
  std::optional<Wdl> own;
  std::optional<Wdl> before;
  if (shard.evals->source.at(shard.name, game, ply) == EvalColumns::kEngineSource) {
    own = noted_value(shard, game, ply, is_first, curve);
  }
  if (ply > 0) before = noted_value(shard, game, ply - 1, is_first, curve);
  if (!own || !before) return own ? own : before;
  Wdl mean;
  for (std::size_t i = 0; i < 3; ++i) mean[i] = ((*own)[i] + (*before)[i]) / 2.0;
  return mean;
}

}  // namespace

std::array<double, 3> ValueCurve::wdl(double pawns) const {
  const double won = 1.0 / (1.0 + std::exp((a - pawns) / b));
  const double lost = 1.0 / (1.0 + std::exp((a + pawns) / b));
  return {won, std::max(0.0, 1.0 - won - lost), lost};
}

// Memory that a worker uses again and again.
template <Game G>
struct BatchEncoder<G>::Scratch {
  std::vector<std::uint64_t> keys;  // of every position of the game so far
  std::array<Frame<State>, G::kHistory> frames;
  std::size_t num_frames = 0;
  std::vector<Move> legal;
  std::vector<Move> policy_moves;  // of the sample; a copy, because the file may change between two looks
};

// What a sample is trained towards, before the batch knows where its moves go.
template <Game G>
struct BatchEncoder<G>::Targets {
  std::vector<std::uint16_t> legal_index;
  std::uint16_t played = 0;   // place of the move played among legal_index
  std::vector<float> policy;  // the search's, a legal move; empty: the move played is the target
  std::array<float, 3> wdl{};
  float moves_left = 0;
};

template <Game G>
BatchEncoder<G>::BatchEncoder(int num_threads) : pool_(num_threads), scratch_(pool_.num_workers()) {}

template <Game G>
BatchEncoder<G>::~BatchEncoder() = default;

template <Game G>
void BatchEncoder<G>::add_shard(const ShardColumns& shard) {
  shard.check();
  shards_.push_back(shard);
}

template <Game G>
typename BatchEncoder<G>::Place BatchEncoder<G>::place_of(const SamplePlaces& places,
                                                          std::size_t sample) const {
  const auto outside = [](std::int32_t index, std::size_t size) {
    return index < 0 || static_cast<std::size_t>(index) >= size;
  };
  if (outside(places.shard[sample], shards_.size())) throw std::out_of_range("shard out of range");
  const ShardColumns& shard = shards_[places.shard[sample]];
  if (outside(places.game[sample], shard.num_games())) throw std::out_of_range("game out of range");
  const std::size_t game = places.game[sample];
  if (outside(places.ply[sample], shard.moves_of(game).size())) throw std::out_of_range("ply out of range");
  const int symmetry = places.symmetry.empty() ? 0 : places.symmetry[sample];
  if (symmetry >= G::kNumSymmetries) throw std::out_of_range("symmetry out of range");
  return {&shard, game, static_cast<std::size_t>(places.ply[sample]), symmetry};
}

// Leaves the keys of all positions up to the ply and the newest frames in scratch.
template <Game G>
void BatchEncoder<G>::replay(const Place& place, Scratch& scratch) const {
  const std::span<const std::uint16_t> moves = place.shard->moves_of(place.game);
  if (place.ply >= moves.size()) fail(*place.shard, place.game, place.ply, "the game ends before this ply");
  const std::string_view start = place.shard->start_of(place.game);
  if constexpr (RulesOutside<G>) {
    if (start.empty()) {
      if (!G::replay(moves.first(place.ply), scratch.frames[0].state, scratch.keys)) {
        const std::size_t ply = scratch.keys.size() - 1;
        fail(*place.shard, place.game, ply, "move " + std::to_string(moves[ply]) + " is not legal");
      }
      scratch.num_frames = 1;
      return;
    }
  }
  State state;
  try {
    state = start.empty() ? G::initial() : G::from_string(start);
  } catch (const GameError& error) {
    fail(*place.shard, place.game, 0, error.what());
  }
  const std::size_t num_frames = std::min<std::size_t>(place.ply + 1, G::kHistory);
  const std::size_t first_frame = place.ply + 1 - num_frames;
  scratch.keys.resize(place.ply + 1);
  for (std::size_t ply = 0;; ++ply) {
    scratch.keys[ply] = G::hash(state);
    if (ply >= first_frame) scratch.frames[ply - first_frame].state = state;
    if (ply == place.ply) break;
    const Move move = moves[ply];
    if (!G::can_apply(state, move)) {
      fail(*place.shard, place.game, ply, "move " + std::to_string(move) + " is not legal");
    }
    G::apply(state, move);
  }
  scratch.num_frames = num_frames;
  const auto key_at = [&](std::size_t ply) { return scratch.keys[ply]; };
  for (std::size_t i = 0; i < num_frames; ++i) {
    Frame<State>& frame = scratch.frames[i];
    frame.repetitions = count_repetitions(key_at, first_frame + i, G::can_repeat(frame.state));
  }
}

// Policy indices of the legal moves, ascending, and where the move played is among them.
template <Game G>
void BatchEncoder<G>::find_legal(const Place& place, Scratch& scratch, Targets& targets) {
  const State& state = scratch.frames[scratch.num_frames - 1].state;
  G::legal(state, scratch.legal);
  auto is_legal = policy_bits<G>();
  for (const Move move : scratch.legal) {
    const int index = G::move_to_index(state, move);
    is_legal[index >> 6] |= std::uint64_t{1} << (index & 63);
  }
  const std::span<const std::uint16_t> moves = place.shard->moves_of(place.game);
  if (place.ply >= moves.size()) fail(*place.shard, place.game, place.ply, "the game ends before this ply");
  const Move stored = moves[place.ply];
  const Move move = G::turned_move(stored, place.symmetry);
  if (std::find(scratch.legal.begin(), scratch.legal.end(), move) == scratch.legal.end()) {
    fail(*place.shard, place.game, place.ply, "move " + std::to_string(stored) + " is not legal");
  }
  const int played = G::move_to_index(state, move);
  targets.legal_index.clear();
  targets.legal_index.reserve(scratch.legal.size());
  for (std::size_t word = 0; word < is_legal.size(); ++word) {
    for (std::uint64_t bits = is_legal[word]; bits != 0; bits &= bits - 1) {
      const int index = static_cast<int>(word * 64) + std::countr_zero(bits);
      if (index == played) targets.played = static_cast<std::uint16_t>(targets.legal_index.size());
      targets.legal_index.push_back(static_cast<std::uint16_t>(index));
    }
  }
}

// The search's policy over the legal moves, scaled so that its floats sum to 1 as nearly as floats can; none
// where nothing was searched.
template <Game G>
void BatchEncoder<G>::take_policy(const Place& place, Scratch& scratch, Targets& targets) {
  const ShardColumns& shard = *place.shard;
  if (!shard.search || !shard.search->has_game(place.game)) return;
  const auto [stored, shares] = shard.search->policy_of(shard.name, place.game, place.ply);
  const std::vector<Move>& moves = scratch.policy_moves;
  scratch.policy_moves.assign(stored.begin(), stored.end());
  const auto turn = [&](Move move) { return G::turned_move(move, place.symmetry); };
  if (const auto fault = find_policy_fault(moves, scratch.legal, turn)) {
    fail(shard, place.game, place.ply,
         "move " + std::to_string(fault->move) + " of its policy " + fault->what);
  }
  const std::uint64_t total = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
  if (total == 0) return;
  const State& state = scratch.frames[scratch.num_frames - 1].state;
  const std::vector<std::uint16_t>& legal = targets.legal_index;
  targets.policy.assign(legal.size(), 0.0F);
  std::size_t largest = 0;  // of the legal moves; takes what rounding left of the others
  double sum = 0;
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const auto index = static_cast<std::uint16_t>(G::move_to_index(state, turn(moves[i])));
    const std::size_t at = std::ranges::lower_bound(legal, index) - legal.begin();
    targets.policy[at] = static_cast<float>(static_cast<double>(shares[i]) / static_cast<double>(total));
    sum += targets.policy[at];
    if (targets.policy[at] > targets.policy[largest]) largest = at;
  }
  targets.policy[largest] = static_cast<float>(1.0 - (sum - targets.policy[largest]));
}

// Win, draw, loss of the mover: the result, and by its share the search's value, or else that of evaluations.
template <Game G>
void BatchEncoder<G>::take_value(const Place& place, const Scratch& scratch, const ValueTarget& value,
                                 Targets& targets) {
  const ShardColumns& shard = *place.shard;
  const bool is_first = G::first_player_to_move(scratch.frames[scratch.num_frames - 1].state);
  const int known_result = shard.result_of(place.game);
  const int result = is_first ? known_result : -known_result;
  targets.wdl = {};
  targets.wdl[1 - result] = 1.0F;
  if (value.q_ratio == 0.0) return;
  std::optional<Wdl> estimate;
  if (!targets.policy.empty()) {
    estimate = searched_value(shard, place.game, place.ply);
  } else if (value.curve) {
    estimate = evaluated_value(shard, place.game, place.ply, is_first, *value.curve);
  }
  if (!estimate) return;
  for (std::size_t i = 0; i < 3; ++i) {
    const double known = targets.wdl[i];
    targets.wdl[i] = static_cast<float>((1.0 - value.q_ratio) * known + value.q_ratio * (*estimate)[i]);
  }
}

template <Game G>
void BatchEncoder<G>::encode_sample(Place place, HistoryFill fill, const ValueTarget& value, Scratch& scratch,
                                    std::uint8_t* packed, Targets& targets) const {
  const ShardColumns& shard = *place.shard;
  if (!shard.result_valid[place.game]) fail(shard, place.game, place.ply, "the game has no result");
  replay(place, scratch);
  if (!G::can_turn(scratch.frames[scratch.num_frames - 1].state)) place.symmetry = 0;
  if (place.symmetry != 0) {
    // Turned, a game's usual start would not be known as one.
    if (G::hash(scratch.frames[0].state) == G::hash(G::initial())) fill = HistoryFill::kNo;
    for (std::size_t i = 0; i < scratch.num_frames; ++i) {
      scratch.frames[i].state = G::turned(scratch.frames[i].state, place.symmetry);
    }
  }
  G::encode(FrameSpan<State>(scratch.frames.data(), scratch.num_frames), fill, packed);
  find_legal(place, scratch, targets);
  take_policy(place, scratch, targets);
  take_value(place, scratch, value, targets);
  targets.moves_left = static_cast<float>(shard.moves_of(place.game).size() - place.ply);
}

template <Game G>
EncodedBatch BatchEncoder<G>::encode(const SamplePlaces& places, HistoryFill fill, const ValueTarget& value) {
  if (value.curve && !(value.curve->b > 0 && value.curve->a >= 0)) {
    throw std::invalid_argument("a curve's a must be at least 0 and its b above 0");
  }
  const std::size_t num_samples = places.shard.size();
  const bool fits = places.game.size() == num_samples && places.ply.size() == num_samples &&
                    (places.symmetry.empty() || places.symmetry.size() == num_samples);
  if (!fits) {
    throw std::out_of_range("shard, game, ply and symmetry have different lengths");
  }
  EncodedBatch batch;
  batch.packed.resize(num_samples * packed_bytes<G>());
  std::vector<Targets> targets(num_samples);
  pool_.run((num_samples + kSamplesPerTask - 1) / kSamplesPerTask, [&](std::size_t task, int worker) {
    const std::size_t end = std::min((task + 1) * kSamplesPerTask, num_samples);
    for (std::size_t i = task * kSamplesPerTask; i < end; ++i) {
      std::uint8_t* packed = batch.packed.data() + i * packed_bytes<G>();
      encode_sample(place_of(places, i), fill, value, scratch_[worker], packed, targets[i]);
    }
  });
  batch.legal_offset.resize(num_samples + 1);
  for (std::size_t i = 0; i < num_samples; ++i) {
    batch.legal_offset[i + 1] =
        batch.legal_offset[i] + static_cast<std::int32_t>(targets[i].legal_index.size());
  }
  batch.legal_index.resize(batch.legal_offset.back());
  batch.policy.resize(batch.legal_offset.back());
  batch.wdl.resize(num_samples * 3);
  batch.moves_left.resize(num_samples);
  for (std::size_t i = 0; i < num_samples; ++i) {
    const Targets& target = targets[i];
    const std::size_t begin = batch.legal_offset[i];
    std::ranges::copy(target.legal_index, batch.legal_index.begin() + begin);
    if (target.policy.empty()) {
      batch.policy[begin + target.played] = 1.0F;
    } else {
      std::ranges::copy(target.policy, batch.policy.begin() + begin);
    }
    std::copy_n(target.wdl.begin(), 3, batch.wdl.begin() + 3 * i);
    batch.moves_left[i] = target.moves_left;
  }
  return batch;
}

template <Game G>
std::vector<std::uint64_t> BatchEncoder<G>::position_keys(std::size_t shard_index,
                                                          std::span<const std::int32_t> games) {
  if (shard_index >= shards_.size()) throw std::out_of_range("shard out of range");
  const ShardColumns& shard = shards_[shard_index];
  std::vector<std::size_t> begin(games.size() + 1);
  for (std::size_t i = 0; i < games.size(); ++i) {
    if (games[i] < 0 || static_cast<std::size_t>(games[i]) >= shard.num_games()) {
      throw std::out_of_range("game out of range");
    }
    begin[i + 1] = begin[i] + shard.moves_of(games[i]).size();
  }
  std::vector<std::uint64_t> keys(begin.back());
  pool_.run(games.size(), [&](std::size_t i, int worker) {
    const std::size_t num_plies = begin[i + 1] - begin[i];
    if (num_plies == 0) return;
    Scratch& scratch = scratch_[worker];
    replay({&shard, static_cast<std::size_t>(games[i]), num_plies - 1}, scratch);
    std::copy_n(scratch.keys.begin(), num_plies, keys.begin() + static_cast<std::ptrdiff_t>(begin[i]));
  });
  return keys;
}

#define ALPHAZERO_INSTANTIATE(G) template class BatchEncoder<G>;
ALPHAZERO_ALL_GAMES(ALPHAZERO_INSTANTIATE)
#undef ALPHAZERO_INSTANTIATE

}  // namespace alphazero
