#include "network/squeeze_excitation.hpp"

#include <algorithm>

namespace alphazero::network {
namespace {

// One position each: `squares` rows of `channels`.

ALPHAZERO_FOR_EACH_CPU void add_squares_of(const Bf16* row, std::size_t squares, std::size_t channels,
                                           float* __restrict sums) {
  for (std::size_t square = 0; square < squares; ++square, row += channels) {
    for (std::size_t c = 0; c < channels; ++c) sums[c] += widened(row[c]);
  }
}

ALPHAZERO_FOR_EACH_CPU void excite_position(const Bf16* __restrict skip, const Bf16* __restrict branch,
                                            std::size_t squares, std::size_t channels,
                                            const float* __restrict scale, const float* __restrict shift,
                                            Bf16* __restrict out) {
  for (std::size_t square = 0; square < squares;
       ++square, skip += channels, branch += channels, out += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      const float value = widened(skip[c]) + widened(branch[c]) * scale[c] + shift[c];
      out[c] = narrowed(value < 0.0F ? 0.0F : value);
    }
  }
}

float as_float(float value) { return value; }
float as_float(Bf16 value) { return widened(value); }

template <typename Number>
__attribute__((always_inline)) inline void excite_bytes_row(
    const Number* __restrict branch, std::size_t channels, const float* __restrict scale,
    const float* __restrict shift, float skip_step, float bytes_per_one, std::uint8_t* __restrict skip) {
  for (std::size_t c = 0; c < channels; ++c) {
    const float value = static_cast<float>(skip[c]) * skip_step + as_float(branch[c]) * scale[c] + shift[c];
    const float bytes = value * bytes_per_one + 0.5F;
    const float least = bytes > 0.0F ? bytes : 0.0F;  // 0 for NaN too
    skip[c] = static_cast<std::uint8_t>(static_cast<int>(least < 255.0F ? least : 255.0F));
  }
}

ALPHAZERO_FOR_EACH_CPU void excite_bytes_position(const float* branch, std::size_t squares,
                                                  std::size_t channels, const float* scale,
                                                  const float* shift, float skip_step, float bytes_per_one,
                                                  std::uint8_t* skip) {
  for (std::size_t square = 0; square < squares; ++square, skip += channels, branch += channels) {
    excite_bytes_row(branch, channels, scale, shift, skip_step, bytes_per_one, skip);
  }
}

ALPHAZERO_FOR_EACH_CPU void excite_bytes_position(const Bf16* branch, std::size_t squares,
                                                  std::size_t channels, const float* scale,
                                                  const float* shift, float skip_step, float bytes_per_one,
                                                  std::uint8_t* skip) {
  for (std::size_t square = 0; square < squares; ++square, skip += channels, branch += channels) {
    excite_bytes_row(branch, channels, scale, shift, skip_step, bytes_per_one, skip);
  }
}

ALPHAZERO_FOR_EACH_CPU void write_gradients(const Bf16* __restrict branch, const Bf16* __restrict output,
                                            const Bf16* __restrict gradient, std::size_t squares,
                                            std::size_t channels, const float* __restrict scale,
                                            Bf16* __restrict of_skip, Bf16* __restrict of_branch,
                                            float* __restrict of_scale, float* __restrict of_shift) {
  for (std::size_t square = 0; square < squares; ++square, branch += channels, output += channels,
                   gradient += channels, of_skip += channels, of_branch += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      const float passed = widened(output[c]) <= 0.0F ? 0.0F : widened(gradient[c]);
      of_skip[c] = narrowed(passed);
      of_branch[c] = narrowed(passed * scale[c]);
      of_scale[c] += passed * widened(branch[c]);
      of_shift[c] += passed;
    }
  }
}

}  // namespace

void squeeze(BlockShape shape, std::span<const Bf16> branch, std::span<float> means) {
  std::fill(means.begin(), means.end(), 0.0F);
  for (std::size_t n = 0; n < shape.positions; ++n) {
    add_squares_of(branch.data() + n * shape.squares * shape.channels, shape.squares, shape.channels,
                   means.data() + n * shape.channels);
  }
  const auto squares = static_cast<float>(shape.squares);
  for (float& mean : means) mean /= squares;
}

void excite(BlockShape shape, std::span<const Bf16> skip, std::span<const Bf16> branch,
            std::span<const float> scale, std::span<const float> shift, std::span<Bf16> output) {
  for (std::size_t n = 0; n < shape.positions; ++n) {
    const std::size_t at = n * shape.squares * shape.channels;
    const std::size_t small = n * shape.channels;
    excite_position(skip.data() + at, branch.data() + at, shape.squares, shape.channels, scale.data() + small,
                    shift.data() + small, output.data() + at);
  }
}

template <typename Number>
void excite_bytes(BlockShape shape, std::span<const Number> branch, std::span<const float> scale,
                  std::span<const float> shift, float skip_step, float output_step,
                  std::span<std::uint8_t> skip) {
  for (std::size_t n = 0; n < shape.positions; ++n) {
    const std::size_t at = n * shape.squares * shape.channels;
    const std::size_t small = n * shape.channels;
    excite_bytes_position(branch.data() + at, shape.squares, shape.channels, scale.data() + small,
                          shift.data() + small, skip_step, 1.0F / output_step, skip.data() + at);
  }
}

template void excite_bytes<float>(BlockShape, std::span<const float>, std::span<const float>,
                                  std::span<const float>, float, float, std::span<std::uint8_t>);
template void excite_bytes<Bf16>(BlockShape, std::span<const Bf16>, std::span<const float>,
                                 std::span<const float>, float, float, std::span<std::uint8_t>);

void excite_backward(BlockShape shape, std::span<const Bf16> branch, std::span<const Bf16> output,
                     std::span<const Bf16> output_gradient, std::span<const float> scale,
                     std::span<Bf16> skip_gradient, std::span<Bf16> branch_gradient,
                     std::span<float> scale_gradient, std::span<float> shift_gradient) {
  std::fill(scale_gradient.begin(), scale_gradient.end(), 0.0F);
  std::fill(shift_gradient.begin(), shift_gradient.end(), 0.0F);
  for (std::size_t n = 0; n < shape.positions; ++n) {
    const std::size_t at = n * shape.squares * shape.channels;
    const std::size_t small = n * shape.channels;
    write_gradients(branch.data() + at, output.data() + at, output_gradient.data() + at, shape.squares,
                    shape.channels, scale.data() + small, skip_gradient.data() + at,
                    branch_gradient.data() + at, scale_gradient.data() + small,
                    shift_gradient.data() + small);
  }
}

}  // namespace alphazero::network
