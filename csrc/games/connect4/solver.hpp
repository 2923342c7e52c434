// Exact values of Connect Four positions: null-window search, proofs by parity, a table of what was proven.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "games/connect4/connect4.hpp"

namespace alphazero::connect4 {

// One a thread. What was proven stays in the table from one position to the next; results do not depend on
// it.
class Solver {
 public:
  static constexpr int kIllegal = -128;
  using Values = std::array<int, Connect4::kBoardWidth>;

  // The table has the largest power of two of bytes that table_mib MiB hold, at least 1 MiB.
  explicit Solver(std::size_t table_mib);

  // 0: drawn. +k: the side to move wins with its k-th last stone. -k: it loses, by the other side's k-th last
  // stone. The game must not be over.
  int score(const Board& board);

  // The sign of the score, in far less time.
  int outcome(const Board& board);

  // Whether the score is at least this: a single search by a null window.
  bool at_least(const Board& board, int score);

  // Score, or its sign, after a stone in each column, for the side that plays it; kIllegal for a full column.
  Values move_scores(const Board& board);
  Values move_outcomes(const Board& board);

  // Positions searched since construction; may be asked from another thread.
  std::uint64_t num_nodes() const { return num_nodes_.load(std::memory_order_relaxed); }

 private:
  struct Bounds {  // of the mover's score, both included
    int low;
    int high;
  };

  // A position to search, in which the mover cannot win at once.
  struct Node {
    std::uint64_t mover;
    std::uint64_t occupied;
    std::uint64_t threats;  // squares that win for the other side
    std::uint64_t hash;
    int num_stones;
    int num_threats;
  };

  // Nodes in the order in which they are to be searched.
  struct Children {
    std::array<Node, Connect4::kBoardWidth> nodes;
    int count = 0;

    void add(const Node& node);
  };

  struct alignas(64) Bucket {  // a cache line
    std::array<std::uint64_t, 8> entries{};
  };

  // These find s for a given alpha: if s > alpha the score is at least s, else it is at most s.
  int bound(const Board& board, int alpha);
  int search(const Node& node, int alpha);
  int search_children(const Children& children, int alpha);
  int expand(const Node& node, std::uint64_t moves, int alpha, Children& children) const;
  int known_bound(const Children& children, int alpha) const;

  const Bucket& bucket_of(std::uint64_t hash) const { return table_[hash >> hash_shift_]; }
  Bounds find(std::uint64_t hash, Bounds unknown) const;
  void keep(std::uint64_t hash, Bounds bounds, std::uint64_t work);

  std::vector<Bucket> table_;  // a power of two of them
  int hash_shift_;
  std::atomic<std::uint64_t> num_nodes_{0};
};

}  // namespace alphazero::connect4
