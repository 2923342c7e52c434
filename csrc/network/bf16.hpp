// bf16 numbers, and functions that are compiled for each level of instructions.
#pragma once

#include <bit>
#include <cstdint>

// The one that fits the CPU is chosen when the program starts. Vectors run over channels and sums over rows,
// so that all of them give the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ALPHAZERO_FOR_EACH_CPU \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define ALPHAZERO_FOR_EACH_CPU
#endif

namespace alphazero::network {

using Bf16 = std::uint16_t;  // the upper half of a float

inline float widened(Bf16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16); }

// To the nearest, ties to even; NaN stays one.
inline Bf16 narrowed(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return static_cast<Bf16>((bits & 0x7FFFFFFF) > 0x7F800000 ? (bits >> 16 | 0x40) : rounded);
}

}  // namespace alphazero::network
