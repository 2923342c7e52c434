// The one exception type of the core: bad text from outside (FEN, SAN, move, position).
#pragma once

#include <stdexcept>

namespace alphazero {

// Becomes alphazero.errors.GameError in Python.
class GameError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace alphazero
