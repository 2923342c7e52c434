// The activation mish on the CPU for inference, which oneDNN does not fuse with its layers.
#pragma once

#include <span>

#include "network/bf16.hpp"

namespace alphazero::network {

// Number: float or Bf16.

// x = x tanh(ln(1 + e^x)), in place (Misra 2019, arXiv:1908.08681).
template <typename Number>
void mish(std::span<Number> values, int num_threads);

}  // namespace alphazero::network
