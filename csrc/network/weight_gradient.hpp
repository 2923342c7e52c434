// The gradient of a 3x3 convolution's weights on the CPU in bf16: half of what its backward pass costs.
#pragma once

#include <cstddef>
#include <span>

#include "network/bf16.hpp"

namespace alphazero::network {

// A convolution of 3x3 with a border of zeros: pictures of height x width, `inputs` and `outputs` channels.
struct ConvolutionShape {
  std::size_t positions;
  std::size_t height;
  std::size_t width;
  std::size_t inputs;
  std::size_t outputs;  // a multiple of kOutputsPerTile
};

constexpr std::size_t kOutputsPerTile = 64;

// Whether this CPU multiplies bf16 in vectors of 512 bits (AVX512_BF16) and has nothing better (AMX).
bool has_weight_gradient();

// gradient[o][y][x][i] = the sum over positions and squares of output_gradient[square][o] and the input's
// channel i at (y - 1, x - 1) from the square; in fp32, products and sums as VDPBF16PS rounds them.
// input [positions, squares, inputs], output_gradient [positions, squares, outputs]. One thread.
void weight_gradient(ConvolutionShape shape, std::span<const Bf16> input,
                     std::span<const Bf16> output_gradient, std::span<float> gradient);

}  // namespace alphazero::network
