// Evaluations of a network by its exact input, in memory of a fixed size; the oldest make room for new ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <vector>

#include "games/game.hpp"

namespace alphazero {

// Allocates zeros, which the system provides page by page when they are first used: gigabytes take no time.
template <class Word>
struct Zeroed {
  using value_type = Word;
  static Word* allocate(std::size_t count) {
    void* words = std::calloc(count, sizeof(Word));
    if (words == nullptr) throw std::bad_alloc();
    return static_cast<Word*>(words);
  }
  static void deallocate(Word* words, std::size_t) { std::free(words); }
  static void construct(Word*) {}  // is 0
  bool operator==(const Zeroed&) const = default;
};

// 128 bits of a packed position: two inputs with one key are not to be expected in the life of a machine.
struct InputKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const InputKey&) const = default;
};

InputKey key_of_input(std::span<const std::uint8_t> packed);
// Of an input together with what else the evaluation depends on.
InputKey mixed(InputKey key, std::span<const std::uint16_t> more);

// Of a leaf, whose evaluation is that of its legal moves.
template <typename G>
InputKey key_of_leaf(std::span<const std::uint8_t> packed, std::span<const std::uint16_t> legal) {
  const InputKey key = key_of_input(packed);
  if constexpr (RulesOutside<G>) {
    return mixed(key, legal);
  } else {
    return key;
  }
}

// Several threads may find() at once, while none inserts or clears.
class EvaluationCache {
 public:
  // Win, draw, loss, and a logit for each legal move by ascending policy index. Views, until the next
  // insert().
  struct Found {
    const float* wdl = nullptr;
    std::span<const float> logits;
  };

  // Less than a few kilobytes: nothing is kept.
  explicit EvaluationCache(std::uint64_t size_bytes);

  // wdl is null where nothing is known of the input, or of another number of moves.
  Found find(const InputKey& key, std::size_t num_moves) const;
  // That it will be asked for: its place in memory is fetched meanwhile.
  void expect(const InputKey& key) const {
    if (!position_.empty()) __builtin_prefetch(&position_[key.low % position_.size()]);
  }
  void insert(const InputKey& key, std::span<const float> logits, const float* wdl);
  void clear();
  // How full, in 1/1000.
  int fill_per_mille() const;

 private:
  // A record: low, high, the number of moves (8 bytes each), then wdl and logits as floats, to whole words.
  static std::size_t record_words(std::size_t num_moves);
  bool is_kept(std::uint64_t position) const;

  using Words = std::vector<std::uint64_t, Zeroed<std::uint64_t>>;
  Words ring_;                 // records one after the other; one that does not fit begins anew
  Words position_;             // index: where the record begins, in words ever written, plus 1; 0: none
  std::uint64_t written_ = 0;  // words since the beginning
};

// A cache in parts by key, of which several threads may fill one each.
class DividedCache {
 public:
  explicit DividedCache(std::uint64_t size_bytes);

  std::size_t part_of(const InputKey& key) const { return key.high % parts_.size(); }
  EvaluationCache& part(std::size_t number) { return parts_[number]; }
  EvaluationCache::Found find(const InputKey& key, std::size_t num_moves) const {
    return parts_[part_of(key)].find(key, num_moves);
  }
  void clear();

 private:
  std::vector<EvaluationCache> parts_;
};

}  // namespace alphazero
