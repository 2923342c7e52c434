// lc0's training records under the sanitizers: random games there and back, and records full of damage.
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "data/lc0_games.hpp"
#include "data/lc0_record.hpp"
#include "games/chess/chess_game.hpp"
#include "tests/require.hpp"

namespace {

using namespace alphazero;
using chess::Position;
using testing::require;

using Random = std::mt19937_64;

constexpr std::string_view kStarts[] = {
    "",
    "r3k2r/1P4P1/8/8/8/8/1p4p1/R3K2R b KQkq - 3 40",
    "8/P1k3P1/8/3pP3/3Pp3/8/p1K3p1/8 w - d6 0 1",
    "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3",
};

std::vector<Move> random_game(std::string_view start, Random& random) {
  Position position = start.empty() ? Position::initial() : Position::from_fen(start);
  std::vector<Move> moves, legal;
  while (moves.size() < 60) {
    position.legal_moves(legal);
    if (legal.empty()) break;
    moves.push_back(legal[random() % legal.size()]);
    position.apply(moves.back());
  }
  return moves;
}

std::vector<std::uint8_t> records(std::string_view start, const std::vector<Move>& moves) {
  lc0::StoredGame game;
  game.start = start;
  game.moves = moves;
  game.result = 1;
  return lc0::records_of(game);
}

void check_round_trip(std::string_view start, Random& random) {
  const std::vector<Move> moves = random_game(start, random);
  const std::vector<std::uint8_t> file = records(start, moves);
  require(file.size() == moves.size() * sizeof(lc0::Record), "a record a ply");
  lc0::Games games;
  games.add(file);
  require(games.moves == moves, "the moves come back");
  require(games.result == std::vector<std::int8_t>{1}, "the result comes back");
  const std::string_view found(reinterpret_cast<const char*>(games.fen_bytes.data()), games.fen_bytes.size());
  require(records(found, games.moves) == file, "the records come back");
}

// Any bytes are read or refused, and what is refused leaves no trace.
void check_damage(std::string_view start, Random& random) {
  std::vector<std::uint8_t> file = records(start, random_game(start, random));
  for (int i = 0; i < 200; ++i) {
    std::vector<std::uint8_t> damaged = file;
    const std::size_t record = random() % (file.size() / sizeof(lc0::Record)) * sizeof(lc0::Record);
    for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
      // Most bytes are probabilities: the others are what matters.
      const std::size_t behind = 7432 + 8;
      const std::size_t at =
          random() % 4 == 0 ? random() % behind : behind + random() % (sizeof(lc0::Record) - behind);
      damaged[record + at] = static_cast<std::uint8_t>(random());
    }
    if (random() % 8 == 0) damaged.resize(random() % damaged.size());
    if (random() % 8 == 0) damaged.erase(damaged.begin(), damaged.begin() + sizeof(lc0::Record));
    lc0::Games games;
    try {
      games.add(damaged);
      require(games.result.size() == 1, "one game more");
    } catch (const GameError&) {
      require(games.result.empty() && games.moves.empty() && games.policy_move.empty(), "nothing was added");
    }
  }
}

}  // namespace

int main() {
  Random random(7);
  for (const std::string_view start : kStarts) {
    for (int game = 0; game < 20; ++game) check_round_trip(start, random);
    check_damage(start, random);
  }
  std::puts("lc0 records: good");
  return 0;
}
