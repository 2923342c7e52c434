// Random numbers that are a function of what they are for: equal keys, equal numbers, in whatever order
// drawn.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "base/hash.hpp"

namespace alphazero {

class Rng {
 public:
  // Such as {seed, lane, game, ply, purpose}.
  explicit Rng(std::initializer_list<std::uint64_t> key) {
    for (const std::uint64_t part : key) state_ = mix64(state_ + kGolden + part);
  }

  std::uint64_t bits() { return mix64(state_ += kGolden); }  // SplitMix64

  // In (0, 1), never an end.
  double uniform() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }

  // In [0, count), count > 0.
  std::uint64_t below(std::uint64_t count) {
    return static_cast<std::uint64_t>(uniform() * static_cast<double>(count));
  }

  double gumbel() { return -std::log(-std::log(uniform())); }

  // Box and Muller 1958; one of the pair is thrown away.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return radius * std::cos(2.0 * 3.14159265358979323846 * uniform());
  }

  // Marsaglia and Tsang 2000, with their boost for shapes below 1.
  double gamma(double shape) {
    if (shape < 1.0) return gamma(shape + 1.0) * std::pow(uniform(), 1.0 / shape);
    const double d = shape - 1.0 / 3.0;
    const double c = 1.0 / std::sqrt(9.0 * d);
    while (true) {
      const double x = normal();
      const double v = std::pow(1.0 + c * x, 3.0);
      if (v > 0.0 && std::log(uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }

  // A sample of the symmetric Dirichlet distribution.
  void dirichlet(double alpha, std::span<double> shares) {
    double sum = 0.0;
    for (double& share : shares) sum += share = gamma(alpha);
    for (double& share : shares) {
      share = sum > 0.0 ? share / sum : 1.0 / static_cast<double>(shares.size());
    }
  }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace alphazero
