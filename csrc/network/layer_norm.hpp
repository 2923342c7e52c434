// The end of an encoder's two halves, on the CPU for inference: the sum with the skip, normalised.
#pragma once

#include <span>

#include "network/bf16.hpp"

namespace alphazero::network {

// Number: float or Bf16.

// branch = LayerNorm(skip + branch), in place, over the channels of each row, as many as the weights.
template <typename Number>
void add_and_normalise(std::span<const Number> skip, std::span<const float> weight,
                       std::span<const float> bias, float eps, int num_threads, std::span<Number> branch);

}  // namespace alphazero::network
