// BatchNorm, and the ReLU behind it, on the CPU in bf16: what training spends between convolutions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "network/bf16.hpp"

namespace alphazero::network {

// Arrays are [rows, channels], row by row: a row is a square of a position (channels last).
struct NormShape {
  std::size_t rows;
  std::size_t channels;
};

// What a forward pass found in each channel, [channels] each.
struct ChannelStatistics {
  std::vector<float> mean;
  std::vector<float> variance;  // divided by rows
};

struct NormGradients {
  std::vector<float> weight;  // [channels]
  std::vector<float> bias;    // [channels]
};

// output = (input - mean) / sqrt(variance + eps) * weight + bias, below zero 0 where `rectifies`; NaN stays.
// Statistics are of this input (Ioffe and Szegedy 2015, algorithm 1), in fp32 and double.
ChannelStatistics batch_norm(NormShape shape, std::span<const Bf16> input, std::span<const float> weight,
                             std::span<const float> bias, float eps, bool rectifies, std::span<Bf16> output);

// The gradients, of which input_gradient [rows, channels] is written in place. output: of the forward pass.
NormGradients batch_norm_backward(NormShape shape, std::span<const Bf16> input, std::span<const Bf16> output,
                                  std::span<const Bf16> output_gradient, std::span<const float> weight,
                                  const ChannelStatistics& statistics, float eps, bool rectifies,
                                  std::span<Bf16> input_gradient);

}  // namespace alphazero::network
