// A one-to-one mixer of 64 bits: hashes of small boards, keyed permutations.
#pragma once

#include <cstdint>

namespace alphazero {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: SplitMix64's step

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014; constants: Stafford's variant 13).
constexpr std::uint64_t mix64(std::uint64_t value) {
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9;
  value = (value ^ value >> 27) * 0x94D049BB133111EB;
  return value ^ value >> 31;
}

}  // namespace alphazero
