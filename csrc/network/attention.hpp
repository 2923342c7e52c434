// Attention between the squares of a position, on the CPU for inference. Scores and sums are fp32; they never
// leave the processor's cache.
#pragma once

#include <cstddef>
#include <span>

#include "network/bf16.hpp"

namespace alphazero::network {

struct AttentionShape {
  std::size_t positions;
  std::size_t squares;
  std::size_t heads;
  std::size_t width;  // channels of a head
};

// Number: float or Bf16. output [positions, squares, heads * width] = softmax(query key^T + added^T) value of
// each head (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1; queries are scaled already).
// projected [positions, squares, 3 * heads * width]: queries, keys, values. added [positions, heads, squares
// of keys, squares of queries], or empty.
template <typename Number>
void attend(AttentionShape shape, std::span<const Number> projected, std::span<const Number> added,
            int num_threads, std::span<Number> output);

}  // namespace alphazero::network
