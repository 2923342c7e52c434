// Sixteen floats side by side, in the compiler's own vectors: each level of instructions splits them as it
// needs. What is computed lane by lane depends on nothing beside it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "network/bf16.hpp"

// Into each of the functions that are compiled for a level of instructions. Vectors are passed by reference
// alone: by value they would be passed otherwise at each level.
#define ALPHAZERO_INLINE __attribute__((always_inline)) inline

namespace alphazero::network {

constexpr std::size_t kLanes = 16;
// Numbers in loops that take several times as long as starting a thread.
constexpr std::size_t kLeastNumbers = 1 << 18;

using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));
using Words = std::uint32_t __attribute__((vector_size(kLanes * sizeof(float))));
using HalfWords = std::uint16_t __attribute__((vector_size(kLanes * sizeof(Bf16))));

constexpr std::size_t whole_lanes(std::size_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

ALPHAZERO_INLINE void load(const float* numbers, Vector& vector) {
  std::memcpy(&vector, numbers, sizeof(Vector));
}

ALPHAZERO_INLINE void load(const Bf16* numbers, Vector& vector) {
  HalfWords halves;
  std::memcpy(&halves, numbers, sizeof(HalfWords));
  vector = reinterpret_cast<Vector>(__builtin_convertvector(halves, Words) << 16);
}

ALPHAZERO_INLINE void store(const Vector& vector, float* numbers) {
  std::memcpy(numbers, &vector, sizeof(Vector));
}

// As narrowed().
ALPHAZERO_INLINE void store(const Vector& vector, Bf16* numbers) {
  const Words bits = reinterpret_cast<Words>(vector);
  const Words rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  const Words words = (bits & 0x7FFFFFFF) > 0x7F800000 ? (bits >> 16 | 0x40) : rounded;
  const HalfWords halves = __builtin_convertvector(words, HalfWords);
  std::memcpy(numbers, &halves, sizeof(HalfWords));
}

// The first `count` numbers of a vector, at most kLanes of them; zeros behind them.
template <typename Number>
ALPHAZERO_INLINE void load(const Number* numbers, std::size_t count, Vector& vector) {
  if (count >= kLanes) return load(numbers, vector);
  Number lanes[kLanes] = {};
  std::copy_n(numbers, count, lanes);
  load(lanes, vector);
}

template <typename Number>
ALPHAZERO_INLINE void store(const Vector& vector, std::size_t count, Number* numbers) {
  if (count >= kLanes) return store(vector, numbers);
  Number lanes[kLanes];
  store(vector, lanes);
  std::copy_n(lanes, count, numbers);
}

ALPHAZERO_INLINE float sum_of(const Vector& vector) {
  float lanes[kLanes];
  store(vector, lanes);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

// e to the x to the last bit or two, for x up to 88; below -87 it stays about 1e-38. Cephes, expf.c: a power
// of two, and a polynomial for what is left.
ALPHAZERO_INLINE void exponential(Vector& x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kToWhole = 12582912.0F;  // 1.5 * 2^23: the sum has no bits behind the point
  x = x < -87.0F ? Vector{} - 87.0F : x;
  const Vector shifted = x * kLog2E + kToWhole;
  const Vector power = shifted - kToWhole;
  const Vector rest = x - power * kLn2High - power * kLn2Low;
  Vector sum = rest * 1.9875691500e-4F + 1.3981999507e-3F;
  sum = sum * rest + 8.3334519073e-3F;
  sum = sum * rest + 4.1665795894e-2F;
  sum = sum * rest + 1.6666665459e-1F;
  sum = sum * rest + 5.0000001201e-1F;
  const Vector value = sum * rest * rest + rest + 1.0F;
  x = value * reinterpret_cast<Vector>((reinterpret_cast<Words>(shifted) + 127U) << 23);
}

}  // namespace alphazero::network
