// Exact values of Connect Four positions, by alpha-beta search with a table of what was proven.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "games/connect4/connect4.hpp"

namespace alphazero::connect4 {

// Not for use by two threads at once. What was proven stays in the table from one position to the next.
class Solver {
 public:
  static constexpr int kIllegal = -128;

  explicit Solver(std::size_t table_mib);

  // 0: drawn. +k: the side to move wins with its k-th last stone. -k: it loses so, by the other side's k-th
  // last stone. The game must not be over.
  int score(const Board& board);

  // The sign of the score, in far less time.
  int outcome(const Board& board);

  // Score, or its sign, after a stone in each column, for the side that plays it; kIllegal for a full column.
  std::array<int, Connect4::kBoardWidth> move_scores(const Board& board);
  std::array<int, Connect4::kBoardWidth> move_outcomes(const Board& board);

  std::uint64_t num_nodes() const { return num_nodes_; }  // since construction

 private:
  struct Position {
    std::uint64_t mover;
    std::uint64_t occupied;
    int num_stones;
  };

  struct Child {
    Position position;
    std::uint64_t key;
    int threats;
  };

  int search(const Position& position, std::uint64_t key, int alpha, int beta);
  int bisect(const Position& position, int low, int high);
  std::uint64_t key_of(const Position& position) const;
  std::size_t place_of(std::uint64_t key) const;
  std::uint8_t find(std::uint64_t key) const;
  void keep(std::uint64_t key, std::uint8_t bound);
  template <typename Value>
  std::array<int, Connect4::kBoardWidth> for_each_move(const Board& board, const Value& value);

  std::vector<std::uint64_t> table_;  // key << 8 | bound; a power of two of them
  std::uint64_t num_nodes_ = 0;
};

}  // namespace alphazero::connect4
