// The eight ways to turn and mirror a square board.
#pragma once

namespace alphazero {

// Where the square row * width + column goes: symmetry & 3 quarter turns, then mirrored if symmetry & 4.
constexpr int turned_square(int square, int width, int symmetry) {
  int row = square / width;
  int column = square % width;
  for (int turn = 0; turn < (symmetry & 3); ++turn) {
    const int next_row = column;
    column = width - 1 - row;
    row = next_row;
  }
  if ((symmetry & 4) != 0) column = width - 1 - column;
  return row * width + column;
}

}  // namespace alphazero
