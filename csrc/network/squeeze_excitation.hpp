// The end of a residual block with squeeze-excitation, on the CPU, beside its two small layers:
// output = max(0, skip + branch * scale + shift), scale and shift for each channel of each position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "network/bf16.hpp"

namespace alphazero::network {

// Arrays of bf16 are [positions, squares, channels], of float [positions, channels].
struct BlockShape {
  std::size_t positions;
  std::size_t squares;
  std::size_t channels;
};

// The mean of each channel over the squares.
void squeeze(BlockShape shape, std::span<const Bf16> branch, std::span<float> means);

void excite(BlockShape shape, std::span<const Bf16> skip, std::span<const Bf16> branch,
            std::span<const float> scale, std::span<const float> shift, std::span<Bf16> output);

// The same beside bytes, in place: skip = the byte of skip * skip_step + branch * scale + shift in steps of
// output_step, 0 to 255, halves upwards.
template <typename Number>
void excite_bytes(BlockShape shape, std::span<const Number> branch, std::span<const float> scale,
                  std::span<const float> shift, float skip_step, float output_step,
                  std::span<std::uint8_t> skip);

void excite_backward(BlockShape shape, std::span<const Bf16> branch, std::span<const Bf16> output,
                     std::span<const Bf16> output_gradient, std::span<const float> scale,
                     std::span<Bf16> skip_gradient, std::span<Bf16> branch_gradient,
                     std::span<float> scale_gradient, std::span<float> shift_gradient);

}  // namespace alphazero::network
