#include "games/grid_text.hpp"

#include <bit>

#include "base/error.hpp"

namespace alphazero {
namespace {

[[noreturn]] void fail(std::string_view text, const std::string& wanted) {
  throw GameError("board '" + std::string(text) + "': " + wanted);
}

}  // namespace

Grid parse_grid(std::string_view text, int height, int width) {
  Grid grid;
  int row = height - 1;
  int column = 0;
  for (const char c : text) {
    const std::uint64_t bit = std::uint64_t{1} << ((row * width + column) & 63);
    if (c == '/') {
      if (column != width || row == 0)
        fail(text, "expected " + std::to_string(height) + " rows of " + std::to_string(width));
      --row;
      column = 0;
      continue;
    }
    const int step = c >= '1' && c <= '9' ? c - '0' : 1;
    if (column + step > width) fail(text, "a row is longer than " + std::to_string(width));
    if (c == 'x') {
      grid.first |= bit;
    } else if (c == 'o') {
      grid.second |= bit;
    } else if (c < '1' || c > '9') {
      fail(text, std::string("'") + c + "': expected x, o, / or a number of empty squares");
    }
    column += step;
  }
  if (row != 0 || column != width)
    fail(text, "expected " + std::to_string(height) + " rows of " + std::to_string(width));
  return grid;
}

Grid parse_grid_of_turns(std::string_view text, int height, int width) {
  const Grid grid = parse_grid(text, height, width);
  const int lead = std::popcount(grid.first) - std::popcount(grid.second);
  if (lead != 0 && lead != 1) fail(text, "expected as many x as o, or one more");
  return grid;
}

std::string format_grid(const Grid& grid, int height, int width) {
  std::string text;
  for (int row = height - 1; row >= 0; --row) {
    int empty = 0;
    const auto flush = [&] {
      if (empty > 0) text += static_cast<char>('0' + empty);
      empty = 0;
    };
    for (int column = 0; column < width; ++column) {
      const std::uint64_t bit = std::uint64_t{1} << (row * width + column);
      if (((grid.first | grid.second) & bit) == 0) {
        ++empty;
        continue;
      }
      flush();
      text += (grid.first & bit) != 0 ? 'x' : 'o';
    }
    flush();
    if (row > 0) text += '/';
  }
  return text;
}

}  // namespace alphazero
