// Lines, encoding and batch encoder under the sanitizers: random games, and stored games full of noise.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/worker_pool.hpp"
#include "data/batch_encoder.hpp"
#include "data/game_check.hpp"
#include "data/permutation.hpp"
#include "games/all_games.hpp"
#include "games/line.hpp"
#include "tests/require.hpp"

namespace {

using namespace alphazero;
using testing::require;

using Random = std::mt19937_64;

template <typename G>
constexpr std::array<std::string_view, 1> kStarts = {""};
template <>
constexpr std::array<std::string_view, 4> kStarts<Chess> = {
    "",
    "nrk1rbbq/ppp1pppp/8/3p4/8/5N2/PPPPPPPP/NRK1RBBQ w EBeb - 0 1",
    "8/P1k3P1/8/3pP3/3Pp3/8/p1K3p1/8 w - d6 0 1",
    "r3k2r/1P4P1/8/8/8/8/1p4p1/R3K2R b KQkq - 3 40",
};

// Owns what SearchColumns looks at.
struct Searches {
  std::vector<std::int32_t> ply_offset{0};
  std::vector<float> root_q, root_d;
  std::vector<std::int32_t> policy_offset_offset{0};
  std::vector<std::uint32_t> policy_offset;
  std::vector<std::int32_t> policy_move_offset{0};
  std::vector<std::uint16_t> policy_move, policy_prob;

  SearchColumns columns() const {
    return {ply_offset,         root_q,      root_d,     policy_offset_offset, policy_offset,
            policy_move_offset, policy_move, policy_prob};
  }
};

// Owns what ShardColumns looks at.
struct Games {
  std::vector<std::uint16_t> moves;
  std::vector<std::int32_t> moves_offset{0};
  std::vector<std::int8_t> result;
  std::unique_ptr<bool[]> result_valid;
  std::string fens;
  std::vector<std::int32_t> fen_offset{0};
  std::vector<std::uint8_t> packed;  // of every position, from a Line
  std::vector<std::uint64_t> keys;
  std::vector<std::vector<Move>> legal;  // of every position

  ShardColumns columns() const {
    return {"games",
            moves,
            moves_offset,
            result,
            {result_valid.get(), result.size()},
            {reinterpret_cast<const std::uint8_t*>(fens.data()), fens.size()},
            fen_offset,
            std::nullopt};
  }
};

template <Game G>
Games random_games(Random& random, int count) {
  Games games;
  std::vector<Move> moves;
  for (int game = 0; game < count; ++game) {
    const std::string_view start = kStarts<G>[random() % kStarts<G>.size()];
    Line<G> line = start.empty() ? Line<G>() : Line<G>(G::from_string(start));
    for (G::legal(line.state(), moves); !moves.empty() && line.num_plies() < 100;
         G::legal(line.state(), moves)) {
      const std::size_t end = games.packed.size();
      games.packed.resize(end + packed_bytes<G>());
      G::encode(line.frames(), HistoryFill::kFenOnly, games.packed.data() + end);
      games.keys.push_back(G::hash(line.state()));
      games.legal.push_back(moves);
      const Move move = moves[random() % moves.size()];
      require(G::can_apply(line.state(), move), "a legal move can be applied");
      require(G::index_to_move(line.state(), G::move_to_index(line.state(), move)) == move, "policy index");
      games.moves.push_back(move);
      line.push(move);
      line.outcome();
    }
    games.moves_offset.push_back(static_cast<std::int32_t>(games.moves.size()));
    games.result.push_back(static_cast<std::int8_t>(random() % 3) - 1);
    games.fens += start;
    games.fen_offset.push_back(static_cast<std::int32_t>(games.fens.size()));
  }
  games.result_valid = std::make_unique<bool[]>(count);
  std::fill_n(games.result_valid.get(), count, true);
  return games;
}

// Every position of all games.
struct AllPlaces {
  explicit AllPlaces(const Games& games) {
    for (std::size_t row = 0; row < games.result.size(); ++row) {
      for (int at = 0; at < games.moves_offset[row + 1] - games.moves_offset[row]; ++at) {
        shard.push_back(0);
        game.push_back(static_cast<std::int32_t>(row));
        ply.push_back(at);
      }
    }
  }
  std::vector<std::int32_t> shard, game, ply;
};

template <Game G>
void test_batches_equal_lines(Random& random) {
  const Games games = random_games<G>(random, 40);
  const AllPlaces places(games);
  for (const int num_threads : {1, 3}) {
    BatchEncoder<G> encoder(num_threads);
    encoder.add_shard(games.columns());
    const EncodedBatch batch =
        encoder.encode({places.shard, places.game, places.ply}, HistoryFill::kFenOnly, ValueTarget{});
    require(batch.packed == games.packed, "a replayed game is encoded as a line is");
    std::vector<std::int32_t> rows(games.result.size());
    for (std::size_t row = 0; row < rows.size(); ++row) rows[row] = static_cast<std::int32_t>(row);
    require(encoder.position_keys(0, rows) == games.keys, "keys of a replayed game");
  }
}

template <Game G>
void test_noise_is_an_error_and_nothing_worse(Random& random) {
  int refused = 0;
  for (int trial = 0; trial < 200; ++trial) {
    Games games = random_games<G>(random, 3);
    if (games.moves.empty()) continue;
    for (std::uint64_t hits = 1 + random() % 20; hits > 0; --hits) {
      // Half of the noise is near the truth: another square of the same move.
      std::uint16_t& move = games.moves[random() % games.moves.size()];
      move = static_cast<std::uint16_t>(random() % 2 == 0 ? random() : move ^ (1U << (random() % 15)));
    }
    const AllPlaces places(games);
    BatchEncoder<G> encoder(2);
    encoder.add_shard(games.columns());
    for (std::size_t i = 0; i < places.ply.size(); ++i) {
      const auto one = [i](const std::vector<std::int32_t>& values) {
        return std::span(values).subspan(i, 1);
      };
      try {
        encoder.encode({one(places.shard), one(places.game), one(places.ply)}, HistoryFill::kNo,
                       ValueTarget{});
      } catch (const GameError&) {
        ++refused;
      }
    }
  }
  require(refused > 200, "noise is refused");
}

// Two of three games searched, each ply with a policy over some of its legal moves.
Searches random_searches(Random& random, const Games& games) {
  Searches searches;
  for (std::size_t game = 0; game < games.result.size(); ++game) {
    const auto begin = static_cast<std::size_t>(games.moves_offset[game]);
    const auto end = static_cast<std::size_t>(games.moves_offset[game + 1]);
    if (random() % 3 != 0 && begin != end) {
      const std::size_t first = searches.policy_move.size();
      searches.policy_offset.push_back(0);
      for (std::size_t ply = begin; ply < end; ++ply) {
        searches.root_q.push_back(static_cast<float>(random() % 201) / 100.0F - 1.0F);
        searches.root_d.push_back(static_cast<float>(random() % 101) / 100.0F);
        for (const Move move : games.legal[ply]) {
          if (random() % 2 == 0) continue;
          searches.policy_move.push_back(move);
          searches.policy_prob.push_back(static_cast<std::uint16_t>(random()));
        }
        searches.policy_offset.push_back(static_cast<std::uint32_t>(searches.policy_move.size() - first));
      }
    }
    searches.ply_offset.push_back(static_cast<std::int32_t>(searches.root_q.size()));
    searches.policy_offset_offset.push_back(static_cast<std::int32_t>(searches.policy_offset.size()));
    searches.policy_move_offset.push_back(static_cast<std::int32_t>(searches.policy_move.size()));
  }
  return searches;
}

template <Game G>
void test_searched_targets_sum_to_one(Random& random) {
  const Games games = random_games<G>(random, 40);
  const AllPlaces places(games);
  const Searches searches = random_searches(random, games);
  ShardColumns columns = games.columns();
  columns.search = searches.columns();
  std::vector<float> policies;
  for (const int num_threads : {1, 3}) {
    BatchEncoder<G> encoder(num_threads);
    encoder.add_shard(columns);
    const EncodedBatch batch =
        encoder.encode({places.shard, places.game, places.ply}, HistoryFill::kFenOnly, {0.5, std::nullopt});
    for (std::size_t i = 0; i + 1 < batch.legal_offset.size(); ++i) {
      double policy = 0;
      for (int at = batch.legal_offset[i]; at < batch.legal_offset[i + 1]; ++at) policy += batch.policy[at];
      const double wdl = double{batch.wdl[3 * i]} + batch.wdl[3 * i + 1] + batch.wdl[3 * i + 2];
      require(std::abs(policy - 1) < 1e-7 && std::abs(wdl - 1) < 1e-6, "targets sum to 1");
    }
    if (policies.empty()) policies = batch.policy;
    require(policies == batch.policy, "the number of threads changes no target");
  }
  const std::span<const char> fens(games.fens.data(), games.fens.size());
  require(!find_illegal_game<G>(games.moves, games.moves_offset, fens, games.fen_offset, &*columns.search),
          "policies of legal moves are legal");
}

template <Game G>
void test_noise_in_searches_is_an_error_and_nothing_worse(Random& random) {
  int refused = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Games games = random_games<G>(random, 3);
    Searches searches = random_searches(random, games);
    const auto hit = [&](auto& column) {
      if (column.empty() || random() % 3 == 0) return;
      auto& entry = column[random() % column.size()];
      entry = random() % 2 == 0 ? static_cast<std::remove_reference_t<decltype(entry)>>(random()) : entry ^ 1;
    };
    for (int hits = 0; hits < 10; ++hits) hit(searches.policy_move);
    if (trial % 2 == 0) hit(searches.policy_offset);
    if (trial % 4 == 0) hit(searches.ply_offset);
    if (trial % 8 == 0) hit(searches.policy_move_offset);
    ShardColumns columns = games.columns();
    columns.search = searches.columns();
    const AllPlaces places(games);
    const std::span<const char> fens(games.fens.data(), games.fens.size());
    BatchEncoder<G> encoder(2);
    try {
      encoder.add_shard(columns);
    } catch (const GameError&) {
      ++refused;
      continue;
    }
    if (find_illegal_game<G>(games.moves, games.moves_offset, fens, games.fen_offset, &*columns.search)) {
      ++refused;
    }
    try {
      encoder.encode({places.shard, places.game, places.ply}, HistoryFill::kNo, {0.5, std::nullopt});
    } catch (const GameError&) {
      ++refused;
    }
  }
  require(refused > 100, "noise in searches is refused");
}

void test_errors_of_workers_are_those_of_the_lowest_task() {
  WorkerPool pool(4);
  for (int round = 0; round < 200; ++round) {
    try {
      pool.run(100, [](std::size_t task, int) {
        if (task >= 7) throw std::out_of_range(std::to_string(task));
      });
      require(false, "the error arrives");
    } catch (const std::out_of_range& error) {
      require(std::string(error.what()) == "7", "the lowest task's error");
    }
    std::array<int, 50> runs{};
    pool.run(runs.size(), [&](std::size_t task, int) { ++runs[task]; });
    for (const int times : runs) require(times == 1, "each task runs once");
  }
}

void test_permutations_are_permutations() {
  for (std::uint64_t size = 1; size < 300; ++size) {
    std::vector<bool> seen(size);
    const Permutation permutation(size * 77, size);
    for (std::uint64_t index = 0; index < size; ++index) seen[permutation(index)] = true;
    for (const bool there : seen) require(there, "every image occurs");
  }
}

template <Game G>
void test_game(Random& random) {
  test_batches_equal_lines<G>(random);
  test_noise_is_an_error_and_nothing_worse<G>(random);
  test_searched_targets_sum_to_one<G>(random);
  test_noise_in_searches_is_an_error_and_nothing_worse<G>(random);
}

}  // namespace

int main() {
  Random random(20240229);
#define ALPHAZERO_TEST(G) test_game<G>(random);
  ALPHAZERO_TESTED_GAMES(ALPHAZERO_TEST)
#undef ALPHAZERO_TEST
  test_errors_of_workers_are_those_of_the_lowest_task();
  test_permutations_are_permutations();
  std::puts("encoding_test: all well");
}
