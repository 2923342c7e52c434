// A start in the first line, then any 16 bits as moves: what can_apply lets through must keep the state in
// order, for stored moves are replayed behind it.
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

constexpr std::size_t kMaxPlies = 200;

template <Game G>
void replay(fuzz::Reader input) {
  const std::string_view start = input.line();
  typename G::State state;
  try {
    state = start.empty() ? G::initial() : G::from_string(start);
  } catch (const GameError&) {
    return;
  }
  Line<G> line(state);
  std::vector<Move> moves;
  std::vector<std::uint8_t> packed(packed_bytes<G>());
  for (std::size_t ply = 0; ply < kMaxPlies; ++ply) {
    G::encode(line.frames(), HistoryFill::kFenOnly, packed.data());
    G::legal(line.state(), moves);
    fuzz::require(moves.size() <= static_cast<std::size_t>(G::kMaxLegalMoves),
                  "no more moves than buffers hold", G::to_string(line.state()));
    for (const Move move : moves) {
      const int index = G::move_to_index(line.state(), move);
      fuzz::require(index >= 0 && index < G::kPolicySize, "policy index in range",
                    G::to_string(line.state()));
    }
    line.outcome();
    if (input.empty()) return;
    const auto move = input.number<Move>();
    if (!G::can_apply(line.state(), move)) return;
    line.push(move);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
#define ALPHAZERO_FUZZ(G) replay<G>({data, size});
  ALPHAZERO_OWN_GAMES(ALPHAZERO_FUZZ)
#undef ALPHAZERO_FUZZ
  return 0;
}
