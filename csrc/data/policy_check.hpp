// What must hold of a stored policy, for the check of a store and for the encoder alike.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "games/game.hpp"

namespace alphazero {

struct PolicyFault {
  Move move;         // as stored
  const char* what;  // "is not legal", "is there twice"
};

// The first move of a policy that is not one of the legal moves, or is there twice, if any. turn: a stored
// move as it stands among the legal ones.
template <class Turn>
std::optional<PolicyFault> find_policy_fault(std::span<const std::uint16_t> moves,
                                             const std::vector<Move>& legal, const Turn& turn) {
  // On the stack, as most policies hold some thirty moves.
  constexpr std::size_t kMostTracked = 1 << 12;
  std::bitset<kMostTracked> seen;
  for (const Move move : moves) {
    const auto found = std::find(legal.begin(), legal.end(), turn(move));
    if (found == legal.end()) return PolicyFault{move, "is not legal"};
    const auto at = static_cast<std::size_t>(found - legal.begin());
    if (at >= kMostTracked) return PolicyFault{move, "is one of too many legal moves"};
    if (seen[at]) return PolicyFault{move, "is there twice"};
    seen[at] = true;
  }
  return std::nullopt;
}

}  // namespace alphazero
