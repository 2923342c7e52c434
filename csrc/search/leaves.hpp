// Leaves on their way to the network and back: legal moves, positions in batches, priors.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "games/game.hpp"

namespace alphazero {

// Positions that wait for the network: B rows, K legal moves over all of them.
struct LeafBatch {
  std::span<const std::uint8_t> packed;        // [B, packed_bytes]
  std::span<const std::int32_t> legal_index;   // [K], ascending within a row
  std::span<const std::int32_t> legal_offset;  // [B + 1]
  std::size_t num_rows() const { return legal_offset.size() - 1; }
};

// The same with memory of its own.
struct OwnedLeaves {
  std::vector<std::uint8_t> packed;
  std::vector<std::int32_t> legal_index;
  std::vector<std::int32_t> legal_offset{0};

  void add(std::span<const std::uint8_t> position, std::span<const std::uint16_t> indices) {
    packed.insert(packed.end(), position.begin(), position.end());
    legal_index.insert(legal_index.end(), indices.begin(), indices.end());
    legal_offset.push_back(static_cast<std::int32_t>(legal_index.size()));
  }
  std::size_t num_rows() const { return legal_offset.size() - 1; }
  LeafBatch batch() const { return {packed, legal_index, legal_offset}; }
};

// The policy indices of a position's legal moves, in ascending order.
template <Game G>
class LegalIndices {
 public:
  using State = typename G::State;

  std::span<const std::uint16_t> indices() const { return indices_; }

  void list(const State& state) {
    if constexpr (requires { G::legal_indices(state, indices_); }) {
      G::legal_indices(state, indices_);
    } else {
      G::legal(state, moves_);
      auto is_legal = policy_bits<G>();
      for (const Move move : moves_) {
        const int index = G::move_to_index(state, move);
        is_legal[index >> 6] |= std::uint64_t{1} << (index & 63);
      }
      indices_.clear();
      for (std::size_t word = 0; word < is_legal.size(); ++word) {
        for (std::uint64_t bits = is_legal[word]; bits != 0; bits &= bits - 1) {
          indices_.push_back(static_cast<std::uint16_t>(word * 64 + std::countr_zero(bits)));
        }
      }
    }
  }

  // Is the game over? If not, the indices are those of this position.
  Outcome look_at(const Frame<State>& frame) {
    const FrameSpan<State> line(&frame, 1);
    if constexpr (requires { G::terminal(line, true); }) {
      list(frame.state);
      return G::terminal(line, !indices_.empty());
    } else {
      const Outcome outcome = G::terminal(line);
      if (!outcome.over()) list(frame.state);
      return outcome;
    }
  }

 private:
  std::vector<Move> moves_;
  std::vector<std::uint16_t> indices_;
};

// The softmax of logits divided by the temperature. `memory` is used again from call to call; `put` gets each
// place with its prior.
template <typename Put>
void make_priors(std::span<const float> logits, double temperature, std::vector<double>& memory, Put put) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  memory.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    memory[i] = std::exp((logits[i] - largest) / temperature);
    sum += memory[i];
  }
  // A network that answers with no number must not break the tree.
  const bool is_number = std::isfinite(sum) && sum > 0.0;
  const double even = 1.0 / static_cast<double>(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    put(i, static_cast<float>(is_number ? memory[i] / sum : even));
  }
}

}  // namespace alphazero
