// A tree that lives as long as a game: nodes and edges in blocks of memory, freed and used again, with a
// limit; visits, values and proofs on their way from a leaf to the root.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "games/game.hpp"
#include "search/edges.hpp"
#include "search/proof.hpp"

namespace alphazero {

// A legal move of a node.
struct GameEdge {
  float prior = 0.0F;             // 0 until the node is evaluated
  std::uint32_t child = kNoNode;  // made by the first walk
  Move move = 0;
};

enum class NodeState : std::uint8_t {
  kNew,         // without evaluation
  kWaiting,     // in a batch on its way
  kEvaluated,   // its edges have priors, the largest first as far as below the root the first never walked
  kWinsAtOnce,  // by one of its moves; without evaluation
  kTwoFold,     // stood on the board before, within the tree
  kKnown,       // its evaluation is exact: nothing below it is looked at
  kOver,        // the game is over
};

// These edges have no order yet: the first of the largest prior comes to the front, the others keep theirs.
// Done for what follows each edge that is walked, it sorts as much as is needed.
inline void bring_largest(std::span<GameEdge> edges) {
  const auto largest = std::max_element(
      edges.begin(), edges.end(), [](const GameEdge& a, const GameEdge& b) { return a.prior < b.prior; });
  if (largest != edges.end()) std::rotate(edges.begin(), largest, largest + 1);
}

// Values are from the point of view of the node's mover.
struct GameNode {
  double value_sum = 0.0;  // of the finished visits, each W - L
  double draw_sum = 0.0;
  std::uint32_t parent = kNoNode;
  std::uint32_t first_edge = 0;
  std::uint32_t visits = 0;   // finished: its own evaluation and every walk that went further
  std::uint32_t waiting = 0;  // begun
  std::uint16_t num_edges = 0;
  // Proven won or lost: plies to the end along the line that the tree proves. kTwoFold: plies since then.
  std::uint16_t plies = 0;
  std::int8_t proven = kUnproven;
  NodeState state = NodeState::kNew;
  bool keeps_turn = false;  // its mover is the player who moved last

  double mean() const { return value_sum / visits; }
  Proof proof() const { return {proven, plies}; }
  // A value for the node's mover, and the exact one, as the player sees them whose move led here.
  double before(double value) const { return keeps_turn ? value : -value; }
  std::int8_t proven_before() const {
    return keeps_turn || proven == kUnproven ? proven : static_cast<std::int8_t>(-proven);
  }
};

// Whether a search of these moves alone (none: all) looks at `move`.
inline bool may_search(std::span<const Move> only, Move move) {
  return only.empty() || std::find(only.begin(), only.end(), move) != only.end();
}

class GameTree {
 public:
  static constexpr std::uint64_t kLeastBytes = std::uint64_t{1} << 20;  // a block of nodes and one of edges

  explicit GameTree(std::uint64_t limit_bytes) { set_limit(limit_bytes); }

  GameNode& node(std::uint32_t id) { return node_blocks_[id >> kNodeBits][id & kNodeMask]; }
  const GameNode& node(std::uint32_t id) const { return node_blocks_[id >> kNodeBits][id & kNodeMask]; }
  std::span<GameEdge> edges(const GameNode& node) {
    if (node.num_edges == 0) return {};
    return {&edge_blocks_[node.first_edge >> kEdgeBits][node.first_edge & kEdgeMask], node.num_edges};
  }
  std::span<const GameEdge> edges(const GameNode& node) const {
    if (node.num_edges == 0) return {};
    return {&edge_blocks_[node.first_edge >> kEdgeBits][node.first_edge & kEdgeMask], node.num_edges};
  }

  // So many more walks (fewer where negative) wait below the leaf and every node above it.
  void add_waiting(std::uint32_t leaf, std::int32_t count);
  // A walk ended at the leaf with this value (W - L) and chance of a draw, for the leaf's mover.
  void finish(std::uint32_t leaf, double value, double draw);
  // Makes the node a new one: the visits it had, all draws, are taken off every node above it.
  void take_back_visits(std::uint32_t id);
  // What the proof of this node proves of the nodes above it.
  void prove_parents(std::uint32_t child);
  // What is proven of a move, for the side that makes it.
  Proof proof_of(const GameEdge& edge) const;
  // What its moves, or these of them alone, prove of a node.
  Proof proof_by_moves(const GameNode& node, std::span<const Move> only) const;

  // kNoNode: the limit is reached.
  std::uint32_t make_node(std::uint32_t parent);
  // Whether make_node() takes what is free, and undo_node() leaves no trace of it.
  bool has_spare_node() const {
    return !free_nodes_.empty() || (garbage_.empty() && next_node_ >> kNodeBits < node_blocks_.size());
  }
  // Takes back the last make_node() that was not taken back.
  void undo_node(std::uint32_t id) {
    free_nodes_.push_back(id);
    --num_nodes_;
  }
  // Gives a node without edges this many; false: the limit is reached.
  bool make_edges(GameNode& node, std::size_t count);
  void free_edges(GameNode& node);
  // Forgets all.
  void clear();
  // Forgets a subtree, bit by bit: some of it at each sweep(), or when memory is short.
  void discard(std::uint32_t root) { garbage_.push_back(root); }
  void sweep(std::size_t most_nodes);

  std::uint64_t num_nodes() const { return num_nodes_; }
  std::uint64_t used_bytes() const { return used_bytes_; }
  void set_limit(std::uint64_t limit_bytes) { limit_bytes_ = std::max(limit_bytes, kLeastBytes); }

 private:
  static constexpr std::uint32_t kNodeBits = 12;
  static constexpr std::uint32_t kNodeMask = (1U << kNodeBits) - 1;
  static constexpr std::uint32_t kEdgeBits = 15;
  static constexpr std::uint32_t kEdgeMask = (1U << kEdgeBits) - 1;
  static constexpr std::size_t kSizeStep = 4;  // edges are given out in multiples of this
  static constexpr std::size_t kNumSizes = 128;

  void set_proven(std::uint32_t id, Proof proof);
  bool has_room(std::uint64_t bytes) const { return used_bytes_ + bytes <= limit_bytes_; }
  bool take_free_edges(std::size_t size, std::uint32_t& first);
  bool take_new_edges(std::size_t size, std::uint32_t& first);
  void put_back(std::uint32_t first, std::size_t size);

  std::vector<std::unique_ptr<GameNode[]>> node_blocks_;
  std::vector<std::unique_ptr<GameEdge[]>> edge_blocks_;
  std::uint32_t next_node_ = 0;
  std::uint64_t next_edge_ = 0;
  std::vector<std::uint32_t> free_nodes_;
  std::array<std::vector<std::uint32_t>, kNumSizes> free_edges_;  // by size / kSizeStep
  std::vector<std::uint32_t> garbage_;
  std::uint64_t num_nodes_ = 0;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t limit_bytes_ = 0;
};

}  // namespace alphazero
