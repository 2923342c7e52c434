// What the core throws: bad text from outside (FEN, SAN, move, position), and rules outside that fail.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace alphazero {

// Becomes alphazero.base.errors.GameError in Python.
class GameError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Rules outside the core that fail; becomes alphazero.base.errors.RulesError in Python.
class RulesError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Text from outside as it may stand in a one-line message: in quotes, printable, not endless.
inline std::string quoted(std::string_view text) {
  constexpr std::size_t kLongest = 120;
  std::string result = "'";
  for (const char c : text.substr(0, kLongest)) result += c >= ' ' && c <= '~' ? c : '?';
  return result + (text.size() > kLongest ? "...'" : "'");
}

}  // namespace alphazero
