// The numbers of a search; docs/search.md has the rules that they enter.
#pragma once

#include <cstdint>

#include "games/game.hpp"

namespace alphazero {

enum class SearchAlgorithm : std::uint8_t { kPuct = 0, kGumbel = 1 };

// Self-play's rules.
struct SearchSettings {
  SearchAlgorithm algorithm = SearchAlgorithm::kPuct;
  int simulations = 800;  // of the root's edges (Silver et al. 2018)
  int leaves = 1;         // that wait in one tree at a time; Gumbel has one

  // PUCT. Silver et al. 2018, pseudocode: pb_c_base, pb_c_init = 1.25, there beside values of 0..1.
  double c_base = 19652.0;
  double c_init = 2.5;
  double fpu_reduction = 0.2;  // KataGo's fpuReductionMax
  double root_fpu_reduction = 0.0;
  double noise_epsilon = 0.0;    // share of the noise in the root's priors; 0 is none
  double forced_playouts = 0.0;  // k of Wu 2019, section 3.2; 0 is none

  // Gumbel. Danihelka et al. 2022, section 5.
  double c_visit = 50.0;
  double c_scale = 1.0;
  int considered = 16;  // moves that sequential halving begins with

  bool proofs = true;  // won and lost nodes prove their parents
};

// The engine's rules, and how much memory it has. The defaults are lc0's for chess (lc0 0.33,
// src/search/classic/params.cc).
struct EngineSettings {
  double c_puct = 1.745;
  double c_puct_base = 38739.0;
  double c_puct_factor = 3.894;
  double fpu_reduction = 0.33;
  double policy_temperature = 1.359;  // by which logits are divided
  bool two_fold_draws = true;         // a position that comes back within the tree counts as a draw
  HistoryFill fill = HistoryFill::kFenOnly;
  int threads = 1;  // that search; the tree does not depend on them. Rules from outside have one
  std::uint64_t cache_bytes = std::uint64_t{64} << 20;
  std::uint64_t tree_bytes = std::uint64_t{2048} << 20;
};

}  // namespace alphazero
