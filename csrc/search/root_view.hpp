// What a tree says of the moves of its root.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "search/game_tree.hpp"

namespace alphazero {

// What is known of a legal move of the root. Values are for the root's mover.
struct RootMove {
  Move move = 0;
  float prior = 0.0F;
  std::uint32_t visits = 0;
  double q = 0.0;  // W - L; that of the root where the move was never visited
  double d = 0.0;  // chance of a draw
  std::int8_t proven = kUnproven;
  std::uint16_t plies = 0;  // to the end of a proven win or loss, this move included
  std::vector<Move> pv;     // begins with the move
};

// The root's value by the moves that may be searched.
Proof root_proof(const GameTree& tree, const GameNode& root, std::span<const Move> only);

// The moves that may be searched, the best first; lines of play for `num_lines` of them.
std::vector<RootMove> root_moves(const GameTree& tree, const GameNode& root, std::span<const Move> only,
                                 std::size_t num_lines);

}  // namespace alphazero
