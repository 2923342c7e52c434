#include "network/attention.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "base/parts.hpp"
#include "network/vectors.hpp"

namespace alphazero::network {
namespace {

constexpr std::size_t kRows = 8;  // of a product at a time: as many sums hide how long an addition takes
// They take several times as long as starting a thread.
constexpr std::size_t kLeastPositions = 4;

// A head of a position in fp32, with zeros beyond its squares and channels.
struct Head {
  explicit Head(const AttentionShape& shape)
      : squares(whole_lanes(shape.squares)),
        width(whole_lanes(shape.width)),
        query(shape.width * squares),
        key(squares * width),
        value(squares * width),
        scores(squares * kLanes) {}

  std::size_t squares;
  std::size_t width;
  std::vector<float> query;   // [width, squares]
  std::vector<float> key;     // [squares, width]
  std::vector<float> value;   // [squares, width]
  std::vector<float> scores;  // [squares of keys, kLanes squares of queries]
};

// A matrix in memory of which a number is at row * by_row + column * by_column.
struct Left {
  const float* numbers;
  std::size_t by_row;
  std::size_t by_column;
};

// sums [kRows] = left [kRows, depth] right [depth, kLanes], whose rows are `by_row` apart.
ALPHAZERO_INLINE void multiply(const Left& left, const float* right, std::size_t by_row, std::size_t depth,
                               Vector* sums) {
  for (std::size_t r = 0; r < kRows; ++r) sums[r] = Vector{};
  for (std::size_t d = 0; d < depth; ++d) {
    Vector row;
    load(right + d * by_row, row);
    for (std::size_t r = 0; r < kRows; ++r) {
      sums[r] += left.numbers[r * left.by_row + d * left.by_column] * row;
    }
  }
}

template <typename Number>
ALPHAZERO_INLINE void take(const AttentionShape& shape, const Number* projected, Head& head) {
  const std::size_t channels = shape.heads * shape.width;
  for (std::size_t s = 0; s < shape.squares; ++s, projected += 3 * channels) {
    for (std::size_t d = 0; d < shape.width; d += kLanes) {
      const std::size_t count = shape.width - d;
      Vector numbers;
      load(projected + d, count, numbers);
      for (std::size_t l = 0; l < std::min(kLanes, count); ++l)
        head.query[(d + l) * head.squares + s] = numbers[l];
      load(projected + channels + d, count, numbers);
      store(numbers, head.key.data() + s * head.width + d);
      load(projected + 2 * channels + d, count, numbers);
      store(numbers, head.value.data() + s * head.width + d);
    }
  }
}

// The scores of all keys for the queries of kLanes squares from `first` on; gives the largest of each.
template <typename Number>
ALPHAZERO_INLINE void score(const AttentionShape& shape, const Number* added, std::size_t first, Head& head,
                            Vector& largest) {
  largest = Vector{} - std::numeric_limits<float>::infinity();
  for (std::size_t key = 0; key < shape.squares; key += kRows) {
    Vector sums[kRows];
    multiply({head.key.data() + key * head.width, head.width, 1}, head.query.data() + first, head.squares,
             shape.width, sums);
    for (std::size_t r = 0; r < std::min(kRows, shape.squares - key); ++r) {
      if (added != nullptr) {
        Vector addend;
        load(added + (key + r) * shape.squares + first, shape.squares - first, addend);
        sums[r] += addend;
      }
      largest = sums[r] > largest ? sums[r] : largest;
      store(sums[r], head.scores.data() + (key + r) * kLanes);
    }
  }
}

// scores = their softmax over the keys, but for a factor of each query: `share`.
ALPHAZERO_INLINE void soften(std::size_t squares, const Vector& largest, float* scores, Vector& share) {
  Vector sum = {};
  for (std::size_t key = 0; key < squares; ++key) {
    Vector weight;
    load(scores + key * kLanes, weight);
    weight -= largest;
    exponential(weight);
    sum += weight;
    store(weight, scores + key * kLanes);
  }
  share = 1.0F / sum;
}

// The values that the queries of `rows` squares see, with their scores at `weights`.
template <typename Number>
ALPHAZERO_INLINE void collect(const AttentionShape& shape, const Head& head, const float* weights,
                              const float* shares, std::size_t rows, Number* output) {
  const std::size_t channels = shape.heads * shape.width;
  for (std::size_t d = 0; d < shape.width; d += kLanes) {
    Vector sums[kRows];
    multiply({weights, 1, kLanes}, head.value.data() + d, head.width, shape.squares, sums);
    for (std::size_t r = 0; r < rows; ++r) {
      sums[r] *= shares[r];
      store(sums[r], shape.width - d, output + r * channels + d);
    }
  }
}

// projected, added and output begin with this head of this position.
template <typename Number>
ALPHAZERO_INLINE void attend_head(const AttentionShape& shape, const Number* projected, const Number* added,
                                  Head& head, Number* output) {
  take(shape, projected, head);
  for (std::size_t first = 0; first < shape.squares; first += kLanes) {
    Vector largest;
    Vector share;
    score(shape, added, first, head, largest);
    soften(shape.squares, largest, head.scores.data(), share);
    float shares[kLanes];
    store(share, shares);
    const std::size_t end = std::min(kLanes, shape.squares - first);
    for (std::size_t row = 0; row < end; row += kRows) {
      collect(shape, head, head.scores.data() + row, shares + row, std::min(kRows, end - row),
              output + (first + row) * shape.heads * shape.width);
    }
  }
}

template <typename Number>
ALPHAZERO_INLINE void attend_positions(const AttentionShape& shape, const Number* projected,
                                       const Number* added, Number* output, std::size_t begin,
                                       std::size_t end) {
  Head head(shape);
  const std::size_t channels = shape.heads * shape.width;
  for (std::size_t n = begin; n < end; ++n) {
    for (std::size_t h = 0; h < shape.heads; ++h) {
      const std::size_t at = n * shape.squares * channels;
      const Number* scores =
          added == nullptr ? nullptr : added + (n * shape.heads + h) * shape.squares * shape.squares;
      attend_head(shape, projected + 3 * at + h * shape.width, scores, head, output + at + h * shape.width);
    }
  }
}

// Overloads, because templates cannot be compiled for each level of instructions.

ALPHAZERO_FOR_EACH_CPU void attend_part(const AttentionShape& shape, const float* projected,
                                        const float* added, float* output, std::size_t begin,
                                        std::size_t end) {
  attend_positions(shape, projected, added, output, begin, end);
}

ALPHAZERO_FOR_EACH_CPU void attend_part(const AttentionShape& shape, const Bf16* projected, const Bf16* added,
                                        Bf16* output, std::size_t begin, std::size_t end) {
  attend_positions(shape, projected, added, output, begin, end);
}

}  // namespace

template <typename Number>
void attend(AttentionShape shape, std::span<const Number> projected, std::span<const Number> added,
            int num_threads, std::span<Number> output) {
  const Number* scores = added.empty() ? nullptr : added.data();
  in_parts(shape.positions, num_threads, kLeastPositions, [&](std::size_t begin, std::size_t end) {
    attend_part(shape, projected.data(), scores, output.data(), begin, end);
  });
}

template void attend<float>(AttentionShape, std::span<const float>, std::span<const float>, int,
                            std::span<float>);
template void attend<Bf16>(AttentionShape, std::span<const Bf16>, std::span<const Bf16>, int,
                           std::span<Bf16>);

}  // namespace alphazero::network
