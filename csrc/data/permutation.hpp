// A keyed permutation of [0, size) in constant memory: the order of the training data is a function.
#pragma once

#include <bit>
#include <cstdint>

#include "base/hash.hpp"

namespace alphazero {

// An unbalanced Feistel network over the fewest bits that hold size - 1, with cycle walking: an image
// outside the domain is mapped again until it falls inside, fewer than two rounds of it on average
// (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). Not meant to withstand an attack.
class Permutation {
 public:
  // size must be positive.
  Permutation(std::uint64_t key, std::uint64_t size) : key_(key), size_(size) {
    const int bits = std::bit_width(size - 1);
    low_bits_ = (bits + 1) / 2;
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
    high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
  }

  // index < size.
  std::uint64_t operator()(std::uint64_t index) const {
    do {
      index = encrypt(index);
    } while (index >= size_);
    return index;
  }

 private:
  static constexpr int kRoundPairs = 6;

  std::uint64_t encrypt(std::uint64_t index) const {
    std::uint64_t high = index >> low_bits_;
    std::uint64_t low = index & low_mask_;
    std::uint64_t round_key = key_;
    for (int pair = 0; pair < kRoundPairs; ++pair) {
      round_key += kGolden;
      high ^= mix64(low + round_key) & high_mask_;
      round_key += kGolden;
      low ^= mix64(high + round_key) & low_mask_;
    }
    return high << low_bits_ | low;
  }

  std::uint64_t key_;
  std::uint64_t size_;
  int low_bits_;
  std::uint64_t low_mask_;
  std::uint64_t high_mask_;
};

// The sample at `position` of the endless order of `num_samples` samples: each epoch is a permutation of
// its own. num_samples must be positive.
class SampleOrder {
 public:
  SampleOrder(std::uint64_t seed, std::uint64_t num_samples)
      : seed_key_(mix64(seed + kGolden)), num_samples_(num_samples), permutation_(epoch_permutation(0)) {}

  std::uint64_t at(std::uint64_t position) {
    const std::uint64_t epoch = position / num_samples_;
    if (epoch != epoch_) {
      epoch_ = epoch;
      permutation_ = epoch_permutation(epoch);
    }
    return permutation_(position % num_samples_);
  }

 private:
  Permutation epoch_permutation(std::uint64_t epoch) const {
    return Permutation(mix64(seed_key_ + (epoch + 1) * kGolden), num_samples_);
  }

  std::uint64_t seed_key_;
  std::uint64_t num_samples_;
  std::uint64_t epoch_ = 0;
  Permutation permutation_;
};

}  // namespace alphazero
