// Moves as people and programs write them: SAN and UCI.
#pragma once

#include <string>
#include <string_view>

#include "games/chess/position.hpp"

namespace alphazero::chess {

// Never throws: 0 if the text is no legal move here. Accepts SAN as PGN files hold it (check marks, '!?',
// 'e.p.', zeros for castling, missing 'x', over-full disambiguation, 'e8Q', 'e8=Q', 'e8(Q)'), no allocation:
// the hot path of PGN.
Move parse_san(const Position& position, std::string_view san);
// UCI: castling as e1g1 (standard) or king takes rook; 0 if not a legal move here.
Move parse_uci(const Position& position, std::string_view uci);

std::string to_san(const Position& position, Move move);
// chess960 false: castling from the standard squares is e1g1/e1c1; true: king takes rook.
std::string to_uci(const Position& position, Move move, bool chess960 = false);

}  // namespace alphazero::chess
