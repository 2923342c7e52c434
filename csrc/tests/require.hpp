// What test programs share: a check that names what does not hold and ends the program, and games to test.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "games/all_games.hpp"

// Threads do the same in every game: under the thread sanitizer one is enough.
#ifdef __SANITIZE_THREAD__
#define ALPHAZERO_TESTED_GAMES(DO) DO(Chess)
#else
#define ALPHAZERO_TESTED_GAMES(DO) ALPHAZERO_OWN_GAMES(DO)
#endif

namespace alphazero::testing {

inline void require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  std::exit(1);
}

}  // namespace alphazero::testing
