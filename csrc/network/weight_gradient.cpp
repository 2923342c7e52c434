#include "network/weight_gradient.hpp"

#include <cstdint>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define ALPHAZERO_HAS_BF16_VECTORS 1
#endif

namespace alphazero::network {

#ifdef ALPHAZERO_HAS_BF16_VECTORS

#define ALPHAZERO_BF16_VECTORS __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace {

// VDPBF16PS adds two products at a time. Here they are those of the same square in two positions, so that a
// step over the board keeps pairs together and squares beyond its edge are left out.
using Pair = std::uint32_t;

constexpr std::size_t kTaps = 9;
constexpr int kVectors = kOutputsPerTile / 16;
constexpr std::size_t kPairsAtATime = 4;  // each time all sums are read and written
constexpr int kInputsPerTile = 6;         // 6 x 4 sums, 4 gradients, 1 input: 29 of 32 registers

ALPHAZERO_BF16_VECTORS void pair_up(const Bf16* first, const Bf16* second, std::size_t count, Pair* pairs) {
  for (std::size_t i = 0; i < count; ++i) {
    pairs[i] = first[i] | static_cast<Pair>(second[i]) << 16;
  }
}

ALPHAZERO_BF16_VECTORS void pair_with_zeros(const Bf16* first, std::size_t count, Pair* pairs) {
  for (std::size_t i = 0; i < count; ++i) pairs[i] = first[i];
}

// Rows or columns [begin, end) whose neighbour one `step` further is on the board as well.
struct Stretch {
  std::size_t begin;
  std::size_t end;
  Stretch(std::size_t length, int step) : begin(step < 0 ? 1 : 0), end(step > 0 ? length - 1 : length) {}
};

// Adds to sums [kInputs rows of `outputs`] what pairs of positions give for one tap of the kernel.
template <int kInputs>
ALPHAZERO_BF16_VECTORS void add_tile(const ConvolutionShape& shape, std::size_t pairs, int down, int right,
                                     const Pair* inputs, const Pair* gradients, float* sums) {
  __m512 tile[kInputs][kVectors];
  for (int i = 0; i < kInputs; ++i) {
    for (int v = 0; v < kVectors; ++v) tile[i][v] = _mm512_loadu_ps(sums + i * shape.outputs + 16 * v);
  }
  const Stretch rows(shape.height, down);
  const Stretch columns(shape.width, right);
  const std::ptrdiff_t step = down * static_cast<std::ptrdiff_t>(shape.width) + right;
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    for (std::size_t row = rows.begin; row < rows.end; ++row) {
      const std::size_t square = (pair * shape.height + row) * shape.width + columns.begin;
      const Pair* gradient = gradients + square * shape.outputs;
      const Pair* input = inputs + (static_cast<std::ptrdiff_t>(square) + step) * shape.inputs;
      for (std::size_t column = columns.begin; column < columns.end;
           ++column, gradient += shape.outputs, input += shape.inputs) {
        __m512bh vectors[kVectors];
        for (int v = 0; v < kVectors; ++v) {
          vectors[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(gradient + 16 * v));
        }
        for (int i = 0; i < kInputs; ++i) {
          const auto spread = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(input[i])));
          for (int v = 0; v < kVectors; ++v) tile[i][v] = _mm512_dpbf16_ps(tile[i][v], vectors[v], spread);
        }
      }
    }
  }
  for (int i = 0; i < kInputs; ++i) {
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(sums + i * shape.outputs + 16 * v, tile[i][v]);
  }
}

// Of several pairs of positions; sums [taps, inputs, outputs].
void add_pairs(const ConvolutionShape& shape, std::size_t pairs, const Pair* inputs, const Pair* gradients,
               float* sums) {
  for (std::size_t tap = 0; tap < kTaps; ++tap) {
    const int down = static_cast<int>(tap / 3) - 1;
    const int right = static_cast<int>(tap % 3) - 1;
    for (std::size_t output = 0; output < shape.outputs; output += kOutputsPerTile) {
      float* const to = sums + tap * shape.inputs * shape.outputs + output;
      std::size_t i = 0;
      for (; i + kInputsPerTile <= shape.inputs; i += kInputsPerTile) {
        add_tile<kInputsPerTile>(shape, pairs, down, right, inputs + i, gradients + output,
                                 to + i * shape.outputs);
      }
      for (; i + 2 <= shape.inputs; i += 2) {
        add_tile<2>(shape, pairs, down, right, inputs + i, gradients + output, to + i * shape.outputs);
      }
      for (; i < shape.inputs; ++i) {
        add_tile<1>(shape, pairs, down, right, inputs + i, gradients + output, to + i * shape.outputs);
      }
    }
  }
}

}  // namespace

bool has_weight_gradient() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && !__builtin_cpu_supports("amx-bf16");
}

void weight_gradient(ConvolutionShape shape, std::span<const Bf16> input,
                     std::span<const Bf16> output_gradient, std::span<float> gradient) {
  const std::size_t squares = shape.height * shape.width;
  const std::size_t input_count = squares * shape.inputs;
  const std::size_t gradient_count = squares * shape.outputs;
  std::vector<Pair> inputs(kPairsAtATime * input_count);
  std::vector<Pair> gradients(kPairsAtATime * gradient_count);
  std::vector<float> sums(kTaps * shape.inputs * shape.outputs);
  std::size_t pairs = 0;
  for (std::size_t position = 0; position < shape.positions; position += 2) {
    const Bf16* const first_input = input.data() + position * input_count;
    const Bf16* const first_gradient = output_gradient.data() + position * gradient_count;
    Pair* const to_inputs = inputs.data() + pairs * input_count;
    Pair* const to_gradients = gradients.data() + pairs * gradient_count;
    ++pairs;
    if (position + 1 < shape.positions) {
      pair_up(first_input, first_input + input_count, input_count, to_inputs);
      pair_up(first_gradient, first_gradient + gradient_count, gradient_count, to_gradients);
    } else {
      pair_with_zeros(first_input, input_count, to_inputs);
      pair_with_zeros(first_gradient, gradient_count, to_gradients);
    }
    if (pairs == kPairsAtATime || position + 2 >= shape.positions) {
      add_pairs(shape, pairs, inputs.data(), gradients.data(), sums.data());
      pairs = 0;
    }
  }
  for (std::size_t output = 0; output < shape.outputs; ++output) {
    for (std::size_t row = 0; row < kTaps * shape.inputs; ++row) {
      gradient[output * kTaps * shape.inputs + row] = sums[row * shape.outputs + output];
    }
  }
}

#else

bool has_weight_gradient() { return false; }

void weight_gradient(ConvolutionShape, std::span<const Bf16>, std::span<const Bf16>, std::span<float>) {}

#endif

}  // namespace alphazero::network
