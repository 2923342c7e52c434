// What the harnesses share: bytes as values, and requirements that end the process.
//
// A harness is given any bytes whatever. It may refuse them (GameError, std::out_of_range) and must otherwise
// keep what it promises: the sanitizers watch the memory, `require` watches the meaning.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/hash.hpp"
#include "games/all_games.hpp"
#include "search/search_pool.hpp"
#include "tests/made_up_network.hpp"

namespace alphazero::fuzz {

#define ALPHAZERO_COUNT(G) +1
constexpr int kNumGames = 0 ALPHAZERO_OWN_GAMES(ALPHAZERO_COUNT);
#undef ALPHAZERO_COUNT

inline void require(bool condition, const char* what, const std::string& where = "") {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s: %s\n", what, where.c_str());
  std::abort();
}

// Values from the front of the input; zeros when it has ended. tests/fuzz/corpus.py writes the same form.
class Reader {
 public:
  Reader(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  template <typename T>
  T number() {
    static_assert(std::is_arithmetic_v<T>);
    T value{};
    const std::size_t taken = std::min(rest_.size(), sizeof value);
    std::memcpy(&value, rest_.data(), taken);
    rest_ = rest_.subspan(taken);
    return value;
  }

  // A length of 16 bits, then the elements; fewer where the input ends.
  template <typename T>
  std::vector<T> column() {
    const std::size_t length = std::min<std::size_t>(number<std::uint16_t>(), rest_.size() / sizeof(T));
    std::vector<T> values(length);
    if (length > 0) std::memcpy(values.data(), rest_.data(), length * sizeof(T));
    rest_ = rest_.subspan(length * sizeof(T));
    return values;
  }

  // Up to the next line end, which is dropped.
  std::string_view line() {
    const std::string_view all = text();
    const std::size_t end = std::min(all.find('\n'), all.size());
    rest_ = rest_.subspan(std::min(end + 1, all.size()));
    return all.substr(0, end);
  }

  std::string_view text() const { return {reinterpret_cast<const char*>(rest_.data()), rest_.size()}; }
  bool empty() const { return rest_.empty(); }

 private:
  std::span<const std::uint8_t> rest_;
};

// A pool of one group, driven to its end.
template <Game G>
void run(SearchPool<G>& pool, SearchDriver<G>& driver) {
  std::vector<float> logits, wdl;
  for (LeafBatch batch = pool.step(0, {}, {}, driver); batch.num_rows() > 0;
       batch = pool.step(0, logits, wdl, driver)) {
    testing::evaluate<G>(batch, logits, wdl, [](bool holds, const char* what) { require(holds, what); });
  }
}

}  // namespace alphazero::fuzz
