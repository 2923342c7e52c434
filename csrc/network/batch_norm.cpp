#include "network/batch_norm.hpp"

#include <algorithm>
#include <cmath>

namespace alphazero::network {
namespace {

constexpr std::size_t kRowsPerSum = 512;  // in fp32, before they go into a double

void add_to(std::vector<double>& totals, std::vector<float>& sums) {
  for (std::size_t c = 0; c < sums.size(); ++c) {
    totals[c] += sums[c];
    sums[c] = 0;
  }
}

ALPHAZERO_FOR_EACH_CPU void add_rows(const Bf16* row, std::size_t rows, std::size_t channels,
                                     float* __restrict sums) {
  for (std::size_t r = 0; r < rows; ++r, row += channels) {
    for (std::size_t c = 0; c < channels; ++c) sums[c] += widened(row[c]);
  }
}

ALPHAZERO_FOR_EACH_CPU void add_squares(const Bf16* row, std::size_t rows, std::size_t channels,
                                        const float* __restrict mean, float* __restrict sums) {
  for (std::size_t r = 0; r < rows; ++r, row += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      const float from_mean = widened(row[c]) - mean[c];
      sums[c] += from_mean * from_mean;
    }
  }
}

ALPHAZERO_FOR_EACH_CPU void scale_rows(const Bf16* __restrict row, std::size_t rows, std::size_t channels,
                                       const float* __restrict scale, const float* __restrict shift,
                                       float lowest, Bf16* __restrict out) {
  for (std::size_t r = 0; r < rows; ++r, row += channels, out += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      const float value = widened(row[c]) * scale[c] + shift[c];
      out[c] = narrowed(value < lowest ? lowest : value);
    }
  }
}

// Sums of the gradient and of its product with the normalised input, where the output was above `lowest`.
ALPHAZERO_FOR_EACH_CPU void add_gradients(const Bf16* __restrict input, const Bf16* __restrict output,
                                          const Bf16* __restrict gradient, std::size_t rows,
                                          std::size_t channels, const float* __restrict mean, float lowest,
                                          float* __restrict sums, float* __restrict products) {
  for (std::size_t r = 0; r < rows; ++r, input += channels, output += channels, gradient += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      const float passed = widened(output[c]) <= lowest ? 0.0F : widened(gradient[c]);
      sums[c] += passed;
      products[c] += passed * (widened(input[c]) - mean[c]);
    }
  }
}

ALPHAZERO_FOR_EACH_CPU void write_gradients(const Bf16* __restrict input, const Bf16* __restrict output,
                                            const Bf16* __restrict gradient, std::size_t rows,
                                            std::size_t channels, const float* __restrict scale,
                                            const float* __restrict slope, const float* __restrict offset,
                                            float lowest, Bf16* __restrict out) {
  for (std::size_t r = 0; r < rows;
       ++r, input += channels, output += channels, gradient += channels, out += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      const float passed = widened(output[c]) <= lowest ? 0.0F : widened(gradient[c]);
      out[c] = narrowed(passed * scale[c] + widened(input[c]) * slope[c] + offset[c]);
    }
  }
}

float lowest_of(bool rectifies) { return rectifies ? 0.0F : -INFINITY; }

template <typename AddRows>
std::vector<double> totals_of(NormShape shape, AddRows add) {
  std::vector<double> totals(shape.channels);
  std::vector<float> sums(shape.channels);
  for (std::size_t begin = 0; begin < shape.rows; begin += kRowsPerSum) {
    add(begin, std::min(kRowsPerSum, shape.rows - begin), sums);
    add_to(totals, sums);
  }
  return totals;
}

}  // namespace

ChannelStatistics batch_norm(NormShape shape, std::span<const Bf16> input, std::span<const float> weight,
                             std::span<const float> bias, float eps, bool rectifies, std::span<Bf16> output) {
  const auto [rows, channels] = shape;
  ChannelStatistics found{std::vector<float>(channels), std::vector<float>(channels)};
  const auto row_at = [&, channels = channels](std::size_t row) { return input.data() + row * channels; };
  const std::vector<double> sums =
      totals_of(shape, [&](std::size_t begin, std::size_t count, std::vector<float>& part) {
        add_rows(row_at(begin), count, shape.channels, part.data());
      });
  const double share = 1.0 / static_cast<double>(rows);
  for (std::size_t c = 0; c < channels; ++c) found.mean[c] = static_cast<float>(sums[c] * share);
  const std::vector<double> squares =
      totals_of(shape, [&](std::size_t begin, std::size_t count, std::vector<float>& part) {
        add_squares(row_at(begin), count, shape.channels, found.mean.data(), part.data());
      });
  std::vector<float> scale(channels);
  std::vector<float> shift(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    found.variance[c] = static_cast<float>(squares[c] * share);
    scale[c] = weight[c] / std::sqrt(found.variance[c] + eps);
    shift[c] = bias[c] - found.mean[c] * scale[c];
  }
  scale_rows(input.data(), rows, channels, scale.data(), shift.data(), lowest_of(rectifies), output.data());
  return found;
}

NormGradients batch_norm_backward(NormShape shape, std::span<const Bf16> input, std::span<const Bf16> output,
                                  std::span<const Bf16> output_gradient, std::span<const float> weight,
                                  const ChannelStatistics& statistics, float eps, bool rectifies,
                                  std::span<Bf16> input_gradient) {
  const auto [rows, channels] = shape;
  const float lowest = lowest_of(rectifies);
  std::vector<double> sums(channels);
  std::vector<double> products(channels);
  std::vector<float> part(channels);
  std::vector<float> product_part(channels);
  for (std::size_t begin = 0; begin < rows; begin += kRowsPerSum) {
    const std::size_t at = begin * channels;
    add_gradients(input.data() + at, output.data() + at, output_gradient.data() + at,
                  std::min(kRowsPerSum, rows - begin), channels, statistics.mean.data(), lowest, part.data(),
                  product_part.data());
    add_to(sums, part);
    add_to(products, product_part);
  }
  NormGradients gradients{std::vector<float>(channels), std::vector<float>(channels)};
  std::vector<float> scale(channels);
  std::vector<float> slope(channels);
  std::vector<float> offset(channels);
  const double share = 1.0 / static_cast<double>(rows);
  for (std::size_t c = 0; c < channels; ++c) {
    const double inverse = 1.0 / std::sqrt(static_cast<double>(statistics.variance[c]) + eps);
    gradients.weight[c] = static_cast<float>(products[c] * inverse);
    gradients.bias[c] = static_cast<float>(sums[c]);
    // weight / deviation * (gradient - mean gradient - normalised input * mean of their product)
    const double by = weight[c] * inverse;
    const double along = -by * products[c] * share * inverse * inverse;
    scale[c] = static_cast<float>(by);
    slope[c] = static_cast<float>(along);
    offset[c] = static_cast<float>(-by * sums[c] * share - along * statistics.mean[c]);
  }
  write_gradients(input.data(), output.data(), output_gradient.data(), rows, channels, scale.data(),
                  slope.data(), offset.data(), lowest, input_gradient.data());
  return gradients;
}

}  // namespace alphazero::network
