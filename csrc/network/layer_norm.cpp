#include "network/layer_norm.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

#include "base/parts.hpp"
#include "network/vectors.hpp"

namespace alphazero::network {
namespace {

// row = skip + branch; gives the mean.
template <typename Number>
ALPHAZERO_INLINE float add_row(const Number* skip, const Number* branch, std::size_t channels, float* row) {
  Vector sums = {};
  for (std::size_t c = 0; c < channels; c += kLanes) {
    Vector one;
    Vector other;
    load(skip + c, channels - c, one);
    load(branch + c, channels - c, other);
    one += other;
    sums += one;
    store(one, channels - c, row + c);
  }
  return sum_of(sums) / static_cast<float>(channels);
}

// row -= mean; gives the mean square.
ALPHAZERO_INLINE float centre_row(float mean, std::size_t channels, float* row) {
  Vector sums = {};
  for (std::size_t c = 0; c < channels; c += kLanes) {
    Vector distance;
    load(row + c, channels - c, distance);
    distance -= mean;
    store(distance, channels - c, row + c);
    load(row + c, channels - c, distance);  // zeros behind the last channel
    sums += distance * distance;
  }
  return sum_of(sums) / static_cast<float>(channels);
}

template <typename Number>
ALPHAZERO_INLINE void normalise_rows(const Number* skip, const float* weight, const float* bias,
                                     std::size_t channels, float eps, Number* branch, std::size_t rows) {
  std::vector<float> row(channels);
  for (std::size_t r = 0; r < rows; ++r, skip += channels, branch += channels) {
    const float mean = add_row(skip, branch, channels, row.data());
    const float scale = 1.0F / std::sqrt(centre_row(mean, channels, row.data()) + eps);
    for (std::size_t c = 0; c < channels; c += kLanes) {
      Vector value;
      Vector factor;
      Vector term;
      load(row.data() + c, channels - c, value);
      load(weight + c, channels - c, factor);
      load(bias + c, channels - c, term);
      value = value * scale * factor + term;
      store(value, channels - c, branch + c);
    }
  }
}

// Overloads, because templates cannot be compiled for each level of instructions.

ALPHAZERO_FOR_EACH_CPU void normalise_part(const float* skip, const float* weight, const float* bias,
                                           std::size_t channels, float eps, float* branch, std::size_t rows) {
  normalise_rows(skip, weight, bias, channels, eps, branch, rows);
}

ALPHAZERO_FOR_EACH_CPU void normalise_part(const Bf16* skip, const float* weight, const float* bias,
                                           std::size_t channels, float eps, Bf16* branch, std::size_t rows) {
  normalise_rows(skip, weight, bias, channels, eps, branch, rows);
}

}  // namespace

template <typename Number>
void add_and_normalise(std::span<const Number> skip, std::span<const float> weight,
                       std::span<const float> bias, float eps, int num_threads, std::span<Number> branch) {
  const std::size_t channels = weight.size();
  in_parts(branch.size() / channels, num_threads, kLeastNumbers / channels,
           [&](std::size_t begin, std::size_t end) {
             normalise_part(skip.data() + begin * channels, weight.data(), bias.data(), channels, eps,
                            branch.data() + begin * channels, end - begin);
           });
}

template void add_and_normalise<float>(std::span<const float>, std::span<const float>, std::span<const float>,
                                       float, int, std::span<float>);
template void add_and_normalise<Bf16>(std::span<const Bf16>, std::span<const float>, std::span<const float>,
                                      float, int, std::span<Bf16>);

}  // namespace alphazero::network
