// What a node's moves prove of the node.
#pragma once

#include <algorithm>
#include <cstdint>

namespace alphazero {

constexpr std::int8_t kUnproven = 2;  // else -1, 0 or 1

// A value that is exact, for the side to move, and the plies to the end of the game where it is won or lost.
struct Proof {
  std::int8_t value = kUnproven;
  std::uint16_t plies = 0;
  bool operator==(const Proof&) const = default;
};

// Won by one move that wins, the shortest way; else the best of the moves once each of them is proven, and
// lost the longest way.
class ProofOfMoves {
 public:
  // What is proven of one move, for the side that makes it, the move counted in `plies`.
  void add(Proof move) {
    if (move.value == kUnproven) {
      all_proven_ = false;
      return;
    }
    best_ = std::max(best_, move.value);
    if (move.value == 1) shortest_ = std::min(shortest_, move.plies);
    if (move.value == -1) longest_ = std::max(longest_, move.plies);
  }

  Proof of_node() const {
    if (best_ == 1) return {1, shortest_};
    if (!all_proven_) return {};
    return {best_, best_ == -1 ? longest_ : std::uint16_t{0}};
  }

 private:
  std::int8_t best_ = -1;
  std::uint16_t shortest_ = UINT16_MAX;
  std::uint16_t longest_ = 0;
  bool all_proven_ = true;
};

}  // namespace alphazero
