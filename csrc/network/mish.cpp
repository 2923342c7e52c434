#include "network/mish.hpp"

#include <algorithm>
#include <cstddef>

#include "base/parts.hpp"
#include "network/vectors.hpp"

namespace alphazero::network {
namespace {

ALPHAZERO_INLINE void mish_of(Vector& x) {
  Vector power = x < 30.0F ? x : Vector{} + 30.0F;
  exponential(power);
  const Vector above = power * (power + 2.0F);  // tanh(ln(1 + p)) = (p^2 + 2p) / (p^2 + 2p + 2)
  x *= above / (above + 2.0F);
}

template <typename Number>
ALPHAZERO_INLINE void mish_all(Number* values, std::size_t count) {
  Vector vector;
  for (std::size_t i = 0; i < count; i += kLanes) {
    load(values + i, count - i, vector);
    mish_of(vector);
    store(vector, count - i, values + i);
  }
}

// Overloads, because templates cannot be compiled for each level of instructions.

ALPHAZERO_FOR_EACH_CPU void mish_part(float* values, std::size_t count) { mish_all(values, count); }

ALPHAZERO_FOR_EACH_CPU void mish_part(Bf16* values, std::size_t count) { mish_all(values, count); }

}  // namespace

template <typename Number>
void mish(std::span<Number> values, int num_threads) {
  in_parts(values.size(), num_threads, kLeastNumbers,
           [&](std::size_t begin, std::size_t end) { mish_part(values.data() + begin, end - begin); });
}

template void mish<float>(std::span<float>, int);
template void mish<Bf16>(std::span<Bf16>, int);

}  // namespace alphazero::network
