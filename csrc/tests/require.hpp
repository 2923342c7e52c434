// What must hold in a test program: otherwise it says what does not, and ends.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace alphazero::testing {

inline void require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  std::exit(1);
}

}  // namespace alphazero::testing
