// A position in the first line, a move as text in each line after it: every game's readers, rules, encoding
// and symmetries.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "fuzz/fuzz.hpp"
#include "games/all_games.hpp"
#include "games/line.hpp"

namespace {

using namespace alphazero;
using fuzz::require;

template <Game G>
void check_position(const Line<G>& line) {
  const auto& state = line.state();
  const std::string text = G::to_string(state);
  require(G::from_string(text) == state, "text gives the position back", text);
  std::vector<Move> moves;
  G::legal(state, moves);
  require(moves.size() <= static_cast<std::size_t>(G::kMaxLegalMoves), "no more moves than buffers hold",
          text);
  for (const Move move : moves) {
    require(G::can_apply(state, move), "a legal move can be applied", text);
    require(G::move_from_string(state, G::move_to_string(state, move)) == move, "text gives the move back",
            text);
    const int index = G::move_to_index(state, move);
    require(index >= 0 && index < G::kPolicySize && G::index_to_move(state, index) == move, "index", text);
  }
  for (int symmetry = 0; symmetry < (G::can_turn(state) ? G::kNumSymmetries : 1); ++symmetry) {
    std::vector<Move> turned;
    G::legal(G::turned(state, symmetry), turned);
    require(turned.size() == moves.size(), "a turned position has as many moves", text);
  }
  std::vector<std::uint8_t> packed(packed_bytes<G>());
  G::encode(line.frames(), HistoryFill::kNo, packed.data());
}

template <Game G>
void play(fuzz::Reader input) {
  try {
    Line<G> line(G::from_string(input.line()));
    check_position<G>(line);
    while (!input.empty() && !line.outcome().over()) {
      line.push(G::move_from_string(line.state(), input.line()));
      check_position<G>(line);
    }
  } catch (const GameError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
#define ALPHAZERO_FUZZ(G) play<G>({data, size});
  ALPHAZERO_OWN_GAMES(ALPHAZERO_FUZZ)
#undef ALPHAZERO_FUZZ
  return 0;
}
