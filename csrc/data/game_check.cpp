// Stored games against the rules of chess.
#include "data/game_check.hpp"

#include <string_view>

#include "games/chess/notation.hpp"
#include "games/chess/position.hpp"
#include "games/error.hpp"

namespace alphazero {

std::optional<IllegalGame> find_illegal_game(std::span<const Move> moves,
                                             std::span<const std::int32_t> moves_offset,
                                             std::span<const char> fen_bytes,
                                             std::span<const std::int32_t> fen_offset) {
  const chess::Position initial = chess::Position::initial();
  const std::string_view fens(fen_bytes.data(), fen_bytes.size());
  for (std::size_t game = 0; game + 1 < moves_offset.size(); ++game) {
    const auto row = static_cast<std::int64_t>(game);
    const std::int32_t fen_begin = fen_offset[game];
    const std::int32_t fen_end = fen_offset[game + 1];
    chess::Position position = initial;
    if (fen_begin != fen_end) {
      try {
        position = chess::Position::from_fen(fens.substr(fen_begin, fen_end - fen_begin));
      } catch (const GameError& error) {
        return IllegalGame{row, 0, error.what()};
      }
    }
    for (std::int32_t at = moves_offset[game]; at < moves_offset[game + 1]; ++at) {
      if (!position.is_legal(moves[at])) {
        return IllegalGame{row, at - moves_offset[game],
                           "move " + std::to_string(moves[at]) + " is not legal in " + position.fen()};
      }
      position.apply(moves[at]);
    }
  }
  return std::nullopt;
}

}  // namespace alphazero
