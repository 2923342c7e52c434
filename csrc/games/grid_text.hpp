// Boards of two kinds of stones as text, like the first field of a FEN: "7/7/7/7/3o3/2xxo2".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace alphazero {

// bit = row * width + column, row 0 at the bottom. 'x' moves first.
struct Grid {
  std::uint64_t first = 0;   // x
  std::uint64_t second = 0;  // o
};

// Rows from the top, '/' between them, digits for empty squares. Throws GameError for text that is no such
// board.
Grid parse_grid(std::string_view text, int height, int width);
// The same where each turn adds a stone: GameError as well for numbers of stones that do not follow from it.
Grid parse_grid_of_turns(std::string_view text, int height, int width);
std::string format_grid(const Grid& grid, int height, int width);

}  // namespace alphazero
