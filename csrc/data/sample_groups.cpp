#include "data/sample_groups.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/hash.hpp"

namespace alphazero {

SampleGroups group_samples(std::span<const std::uint64_t> keys) {
  const std::size_t num_samples = keys.size();
  if (num_samples >= std::numeric_limits<std::uint32_t>::max()) throw std::length_error("too many samples");
  std::vector<std::uint32_t> first(num_samples);  // of each sample's group
  {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> sorted(num_samples);
    for (std::size_t i = 0; i < num_samples; ++i) sorted[i] = {keys[i], static_cast<std::uint32_t>(i)};
    std::sort(sorted.begin(), sorted.end());
    std::size_t begin = 0;
    for (std::size_t i = 0; i < num_samples; ++i) {
      if (sorted[i].first != sorted[begin].first) begin = i;
      first[sorted[i].second] = sorted[begin].second;
    }
  }
  SampleGroups groups;
  groups.offset.push_back(0);
  std::vector<std::uint32_t> place(
      num_samples);  // by first member: its group's number, then where it goes on
  for (std::size_t i = 0; i < num_samples; ++i) {
    if (first[i] == i) {
      place[i] = static_cast<std::uint32_t>(groups.offset.size() - 1);
      groups.offset.push_back(0);
    }
    ++groups.offset[place[first[i]] + 1];
  }
  for (std::size_t g = 1; g < groups.offset.size(); ++g) groups.offset[g] += groups.offset[g - 1];
  for (std::size_t i = 0; i < num_samples; ++i) {
    if (first[i] == i) place[i] = groups.offset[place[i]];
  }
  groups.member.resize(num_samples);
  for (std::size_t i = 0; i < num_samples; ++i) {
    groups.member[place[first[i]]++] = static_cast<std::uint32_t>(i);
  }
  return groups;
}

namespace {

std::span<const std::int32_t> legal_of(const EncodedBatch& batch, std::size_t sample) {
  return std::span(batch.legal_index)
      .subspan(batch.legal_offset[sample], batch.legal_offset[sample + 1] - batch.legal_offset[sample]);
}

// Adds the mean of the samples begin ... end - 1, which are one position, to `merged`.
void add_mean(const EncodedBatch& batch, std::size_t begin, std::size_t end, EncodedBatch& merged) {
  const std::span<const std::int32_t> legal = legal_of(batch, begin);
  std::vector<double> policy(legal.size());
  double wdl[3] = {};
  double moves_left = 0;
  std::size_t count = 0;
  for (std::size_t sample = begin; sample < end; ++sample) {
    if (!std::ranges::equal(legal_of(batch, sample), legal)) continue;
    const float* shares = batch.policy.data() + batch.legal_offset[sample];
    for (std::size_t i = 0; i < legal.size(); ++i) policy[i] += static_cast<double>(shares[i]);
    for (std::size_t i = 0; i < 3; ++i) wdl[i] += static_cast<double>(batch.wdl[3 * sample + i]);
    moves_left += static_cast<double>(batch.moves_left[sample]);
    ++count;
  }
  const auto mean = [&](double sum) { return static_cast<float>(sum / static_cast<double>(count)); };
  merged.legal_index.insert(merged.legal_index.end(), legal.begin(), legal.end());
  for (const double sum : policy) merged.policy.push_back(mean(sum));
  for (const double sum : wdl) merged.wdl.push_back(mean(sum));
  merged.moves_left.push_back(mean(moves_left));
  merged.legal_offset.push_back(static_cast<std::int32_t>(merged.legal_index.size()));
}

}  // namespace

EncodedBatch merge_groups(const EncodedBatch& batch, std::span<const std::int64_t> group_offset) {
  const std::size_t num_samples = batch.moves_left.size();
  const bool fits = !group_offset.empty() && group_offset.front() == 0 &&
                    std::ranges::is_sorted(group_offset, std::ranges::less_equal()) &&
                    static_cast<std::size_t>(group_offset.back()) == num_samples;
  if (!fits) throw std::out_of_range("groups do not divide the samples");
  EncodedBatch merged;
  merged.legal_offset.push_back(0);
  if (num_samples == 0) return merged;
  const std::size_t packed_bytes = batch.packed.size() / num_samples;
  for (std::size_t g = 0; g + 1 < group_offset.size(); ++g) {
    const auto begin = static_cast<std::size_t>(group_offset[g]);
    const auto planes = std::span(batch.packed).subspan(begin * packed_bytes, packed_bytes);
    merged.packed.insert(merged.packed.end(), planes.begin(), planes.end());
    add_mean(batch, begin, static_cast<std::size_t>(group_offset[g + 1]), merged);
  }
  return merged;
}

std::vector<std::uint8_t> draw_positions(std::uint64_t seed, std::span<const std::uint64_t> game_key,
                                         std::span<const std::int64_t> lengths, std::size_t most) {
  if (game_key.size() != lengths.size()) throw std::out_of_range("game keys and lengths differ in number");
  std::size_t total = 0;
  for (const std::int64_t length : lengths) {
    if (length < 0) throw std::out_of_range("a negative length");
    total += static_cast<std::size_t>(length);
  }
  std::vector<std::uint8_t> is_drawn(total, 1);
  std::vector<std::pair<std::uint64_t, std::size_t>> lots;
  std::size_t begin = 0;
  for (std::size_t game = 0; game < lengths.size(); ++game) {
    const auto length = static_cast<std::size_t>(lengths[game]);
    if (length > most) {
      const std::uint64_t key = mix64(mix64(seed + kGolden) ^ game_key[game]);
      lots.resize(length);
      for (std::size_t i = 0; i < length; ++i) lots[i] = {mix64(key + (i + 1) * kGolden), i};
      std::nth_element(lots.begin(), lots.begin() + static_cast<std::ptrdiff_t>(most), lots.end());
      for (std::size_t i = most; i < length; ++i) is_drawn[begin + lots[i].second] = 0;
    }
    begin += length;
  }
  return is_drawn;
}

}  // namespace alphazero
