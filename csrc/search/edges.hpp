// The edges of a search tree: what is known of a legal move, and the memory of those that were walked.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "games/game.hpp"
#include "search/proof.hpp"

namespace alphazero {

constexpr std::uint32_t kNoNode = UINT32_MAX;
constexpr std::uint16_t kNoPlace = UINT16_MAX;
constexpr int kMostLeaves = 1 << 16;  // that wait in one tree at a time

// A legal move of a node, with all that is known of it: a copy, put together by Tree::list_edges. Values are
// from the point of view of that node's mover.
struct Edge {
  double value_sum = 0.0;         // of the finished simulations
  float prior = 0.0F;             // 0 until the node is evaluated
  std::uint32_t visits = 0;       // finished simulations
  std::uint32_t child = kNoNode;  // made by the first simulation
  std::uint32_t waiting = 0;      // simulations that wait for an evaluation
  Move move = 0;
  std::uint16_t index = 0;  // in the policy; ascending within a node
  std::int8_t proven = kUnproven;
};

// A legal move with a child: what an Edge says, without what its place among the node's edges tells.
struct WalkedEdge {
  double value_sum = 0.0;
  double puct_value = 0.0;  // q(a) of PUCT's rule, below every number where the edge is proven lost
  float prior = 0.0F;
  std::uint32_t walks = 0;  // finished simulations and those that wait
  std::uint32_t child = kNoNode;
  std::uint32_t place : 12 = 0;  // among the node's edges
  std::uint32_t waiting : 17 = 0;
  std::int32_t proven : 3 = kUnproven;

  std::uint32_t visits() const { return walks - waiting; }
  // After every change: selection would divide for each edge, and a simulation changes few of them.
  void update() {
    if (proven == kUnproven) {
      puct_value = (value_sum - waiting) / walks;
    } else {
      puct_value = proven == -1 ? -std::numeric_limits<double>::infinity() : proven;
    }
  }
};
static_assert(sizeof(WalkedEdge) == 32, "selection reads many of them");
static_assert(kMostLeaves < 1 << 17, "expected numbers of leaves that fit WalkedEdge::waiting");

// Stands for the prior of a walked edge, which is kept in its WalkedEdge: below every prior.
constexpr float kPriorOfWalked = -std::numeric_limits<float>::infinity();

// Memory of walked edges in blocks, each as large as the next power of two asks, at least kSmallest.
class WalkedBlocks {
 public:
  void clear() {
    lines_.clear();
    for (std::vector<std::uint32_t>& blocks : free_) blocks.clear();
  }
  WalkedEdge* at(std::uint32_t first) { return reinterpret_cast<WalkedEdge*>(lines_.data()) + first; }
  const WalkedEdge* at(std::uint32_t first) const {
    return reinterpret_cast<const WalkedEdge*>(lines_.data()) + first;
  }

  // A block for `count` edges.
  std::uint32_t take(std::size_t count) {
    std::vector<std::uint32_t>& blocks = free_[size_class(count)];
    if (blocks.empty()) {
      const auto first = static_cast<std::uint32_t>(kSmallest * lines_.size());
      lines_.resize(lines_.size() + capacity(count) / kSmallest);
      return first;
    }
    const std::uint32_t first = blocks.back();
    blocks.pop_back();
    return first;
  }

  // Makes room for one more edge in a block of `count` edges; where it lies then.
  std::uint32_t grow(std::uint32_t first, std::size_t count) {
    if (count > 0 && count < capacity(count)) return first;
    const std::uint32_t larger = take(count + 1);
    if (count > 0) {
      std::copy_n(at(first), count, at(larger));
      free_[size_class(count)].push_back(first);
    }
    return larger;
  }

 private:
  static constexpr std::size_t kSmallest = 2;
  // The smallest block. No line of a cache has parts of two blocks.
  struct alignas(64) Line {
    WalkedEdge edges[kSmallest];
  };

  static std::size_t capacity(std::size_t count) { return std::max(kSmallest, std::bit_ceil(count)); }
  static std::size_t size_class(std::size_t count) { return std::countr_zero(capacity(count)); }

  std::vector<Line> lines_;
  std::array<std::vector<std::uint32_t>, 13> free_;  // blocks to be used again, by size
};

}  // namespace alphazero
