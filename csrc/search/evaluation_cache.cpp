#include "search/evaluation_cache.hpp"

#include <algorithm>
#include <cstring>

#include "base/hash.hpp"

namespace alphazero {
namespace {

constexpr std::size_t kHeaderWords = 3;
constexpr std::size_t kSmallRecordWords = 8;  // of Connect Four; chess has some 22
constexpr std::size_t kWays = 4;              // places that a key may have in the index
constexpr std::size_t kFewestWords = 1024;
constexpr std::uint64_t kMostParts = 16;
constexpr std::uint64_t kSmallPart = 1 << 20;  // bytes

}  // namespace

InputKey key_of_input(std::span<const std::uint8_t> packed) {
  InputKey key{kGolden, packed.size()};
  std::size_t at = 0;
  const auto mix_in = [&key](std::uint64_t word) {
    key.low = mix64(key.low ^ word);
    key.high = mix64(key.high + kGolden + (word << 32 | word >> 32));
  };
  for (; at + 8 <= packed.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, packed.data() + at, 8);
    mix_in(word);
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, packed.data() + at, packed.size() - at);
  mix_in(rest);
  return key;
}

InputKey mixed(InputKey key, std::span<const std::uint16_t> more) {
  for (const std::uint16_t word : more) {
    key.low = mix64(key.low + kGolden + word);
    key.high = mix64(key.high ^ (word + kGolden));
  }
  return key;
}

EvaluationCache::EvaluationCache(std::uint64_t size_bytes) {
  const std::uint64_t words = size_bytes / 8;
  if (words < kFewestWords) return;
  // The index has a place of a word for each record, even where all of them are small.
  const std::uint64_t places = std::max<std::uint64_t>(kWays, words / (kSmallRecordWords + 1));
  position_ = Words(places);
  ring_ = Words(words - places);
}

std::size_t EvaluationCache::record_words(std::size_t num_moves) {
  return kHeaderWords + (3 + num_moves + 1) / 2;
}

// Has nothing been written over the record that began at this position?
bool EvaluationCache::is_kept(std::uint64_t position) const {
  return position != 0 && written_ - (position - 1) <= ring_.size();
}

EvaluationCache::Found EvaluationCache::find(const InputKey& key, std::size_t num_moves) const {
  if (ring_.empty()) return {};
  for (std::size_t way = 0; way < kWays; ++way) {
    const std::uint64_t position = position_[(key.low + way) % position_.size()];
    if (!is_kept(position)) continue;
    const std::uint64_t* record = ring_.data() + (position - 1) % ring_.size();
    if (record[0] != key.low || record[1] != key.high || record[2] != num_moves) continue;
    const auto* numbers = reinterpret_cast<const float*>(record + kHeaderWords);
    return {numbers, {numbers + 3, num_moves}};
  }
  return {};
}

void EvaluationCache::insert(const InputKey& key, std::span<const float> logits, const float* wdl) {
  const std::size_t words = record_words(logits.size());
  if (words > ring_.size() || find(key, logits.size()).wdl != nullptr) return;
  const std::size_t room = ring_.size() - written_ % ring_.size();
  if (room < words) written_ += room;
  std::uint64_t* record = ring_.data() + written_ % ring_.size();
  // The place of a record that is gone, else that of the oldest.
  std::size_t place = key.low % position_.size();
  for (std::size_t way = 1; way < kWays; ++way) {
    const std::size_t other = (key.low + way) % position_.size();
    if (position_[other] < position_[place]) place = other;
  }
  position_[place] = written_ + 1;
  record[0] = key.low;
  record[1] = key.high;
  record[2] = logits.size();
  auto* numbers = reinterpret_cast<float*>(record + kHeaderWords);
  std::copy_n(wdl, 3, numbers);
  std::copy(logits.begin(), logits.end(), numbers + 3);
  written_ += words;
}

void EvaluationCache::clear() {
  if (written_ == 0) return;  // memory that was never used stays so
  std::fill(position_.begin(), position_.end(), 0);
  written_ = 0;
}

int EvaluationCache::fill_per_mille() const {
  if (ring_.empty()) return 0;
  return static_cast<int>(std::min<std::uint64_t>(1000, 1000 * written_ / ring_.size()));
}

DividedCache::DividedCache(std::uint64_t size_bytes) {
  const std::uint64_t num_parts = std::clamp<std::uint64_t>(size_bytes / kSmallPart, 1, kMostParts);
  for (std::uint64_t i = 0; i < num_parts; ++i) parts_.emplace_back(size_bytes / num_parts);
}

void DividedCache::clear() {
  for (EvaluationCache& part : parts_) part.clear();
}

}  // namespace alphazero
