// How the search of a game is made; docs/search.md has the formulas that these numbers enter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "games/game.hpp"

namespace alphazero {

// The defaults are lc0's for chess (lc0 0.33, src/search/classic/params.cc).
struct GameSearchSettings {
  double c_puct = 1.745;
  double c_puct_base = 38739.0;
  double c_puct_factor = 3.894;
  double fpu_reduction = 0.33;
  double policy_temperature = 1.359;  // by which logits are divided
  bool two_fold_draws = true;         // a position that comes back within the tree counts as a draw
  HistoryFill fill = HistoryFill::kFenOnly;
  std::uint64_t cache_bytes = std::uint64_t{64} << 20;
  std::uint64_t tree_bytes = std::uint64_t{2048} << 20;
};

}  // namespace alphazero
