#include "data/game_check.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "games/chess/chess_game.hpp"
#include "games/connect4/connect4.hpp"
#include "games/error.hpp"
#include "games/tictactoe/tictactoe.hpp"

namespace alphazero {
namespace {

template <Game G>
bool is_legal(const typename G::State& state, Move move, std::vector<Move>& legal) {
  if constexpr (requires { state.is_legal(move); }) return state.is_legal(move);
  G::legal(state, legal);
  return std::find(legal.begin(), legal.end(), move) != legal.end();
}

}  // namespace

template <Game G>
std::optional<IllegalGame> find_illegal_game(std::span<const Move> moves,
                                             std::span<const std::int32_t> moves_offset,
                                             std::span<const char> fen_bytes,
                                             std::span<const std::int32_t> fen_offset) {
  using State = typename G::State;
  const State initial = G::initial();
  const std::string_view fens(fen_bytes.data(), fen_bytes.size());
  std::vector<Move> legal;
  for (std::size_t game = 0; game + 1 < moves_offset.size(); ++game) {
    const auto row = static_cast<std::int64_t>(game);
    const std::int32_t fen_begin = fen_offset[game];
    const std::int32_t fen_end = fen_offset[game + 1];
    State state = initial;
    if (fen_begin != fen_end) {
      try {
        state = G::from_string(fens.substr(fen_begin, fen_end - fen_begin));
      } catch (const GameError& error) {
        return IllegalGame{row, 0, error.what()};
      }
    }
    for (std::int32_t at = moves_offset[game]; at < moves_offset[game + 1]; ++at) {
      if (!is_legal<G>(state, moves[at], legal)) {
        return IllegalGame{row, at - moves_offset[game],
                           "move " + std::to_string(moves[at]) + " is not legal in " + G::to_string(state)};
      }
      G::apply(state, moves[at]);
    }
  }
  return std::nullopt;
}

#define ALPHAZERO_FIND_ILLEGAL(G)                                                  \
  template std::optional<IllegalGame> find_illegal_game<G>(                        \
      std::span<const Move>, std::span<const std::int32_t>, std::span<const char>, \
      std::span<const std::int32_t>)
ALPHAZERO_FIND_ILLEGAL(Chess);
ALPHAZERO_FIND_ILLEGAL(Connect4);
ALPHAZERO_FIND_ILLEGAL(TicTacToe);
#undef ALPHAZERO_FIND_ILLEGAL

}  // namespace alphazero
