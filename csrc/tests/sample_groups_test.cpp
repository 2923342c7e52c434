// Groups of equal keys, merged batches and drawn positions under the sanitizers, against slow versions.
#include "data/sample_groups.hpp"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/require.hpp"

using namespace alphazero;
using alphazero::testing::require;

namespace {

void test_groups() {
  std::mt19937_64 rng(1);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::uint64_t> keys(rng() % 50);
    for (std::uint64_t& key : keys) key = rng() % 9 * 0x123456789ABCDEF;
    const SampleGroups groups = group_samples(keys);
    std::map<std::uint64_t, std::vector<std::uint32_t>> by_key;
    for (std::uint32_t i = 0; i < keys.size(); ++i) by_key[keys[i]].push_back(i);
    require(groups.offset.size() == by_key.size() + 1 && groups.offset.back() == keys.size(), "sizes");
    std::uint32_t last_first = 0;
    for (std::size_t g = 0; g + 1 < groups.offset.size(); ++g) {
      const std::vector<std::uint32_t> members(groups.member.begin() + groups.offset[g],
                                               groups.member.begin() + groups.offset[g + 1]);
      require(members == by_key.at(keys[members.front()]), "members of a key, ascending");
      require(g == 0 || members.front() > last_first, "groups ascend by their first members");
      last_first = members.front();
    }
  }
}

// Three samples of two legal moves each but the third, which has other ones.
EncodedBatch made_up_batch() {
  return {{1, 2, 3, 4, 5, 6},          {0, 2, 4, 5}, {3, 8, 3, 8, 4}, {1, 0, 0.5F, 0.5F, 1},
          {1, 0, 0, 0, 1, 0, 0, 0, 1}, {10, 20, 70}};
}

void test_merged() {
  const EncodedBatch merged = merge_groups(made_up_batch(), std::vector<std::int64_t>{0, 3});
  require(merged.packed == std::vector<std::uint8_t>{1, 2}, "planes of the first");
  require(merged.legal_index == std::vector<std::int32_t>{3, 8}, "moves of the first");
  require(merged.policy == std::vector<float>{0.75F, 0.25F}, "mean policy without a sample of other moves");
  require(merged.wdl == std::vector<float>{0.5F, 0.5F, 0}, "mean value");
  require(merged.moves_left == std::vector<float>{15}, "mean moves left");
  const EncodedBatch same = merge_groups(made_up_batch(), std::vector<std::int64_t>{0, 1, 2, 3});
  require(same.packed == made_up_batch().packed && same.policy == made_up_batch().policy, "groups of one");
  for (const std::vector<std::int64_t>& wrong : std::vector<std::vector<std::int64_t>>{
           {}, {0}, {0, 2}, {1, 3}, {0, 0, 3}, {0, 4}, {0, 2, 1, 3}, {-1, 3}}) {
    bool refused = false;
    try {
      merge_groups(made_up_batch(), wrong);
    } catch (const std::out_of_range&) {
      refused = true;
    }
    require(refused, "groups that do not divide the batch");
  }
}

void test_drawn() {
  const std::vector<std::int64_t> lengths{0, 1, 7, 40, 7};
  const std::vector<std::uint64_t> keys{0, 1, 2, 3, 4};
  for (const std::size_t most : {0U, 1U, 7U, 39U, 1000U}) {
    const std::vector<std::uint8_t> drawn = draw_positions(5, keys, lengths, most);
    std::size_t begin = 0;
    for (const std::int64_t length : lengths) {
      const auto end = begin + static_cast<std::size_t>(length);
      const int count = std::accumulate(drawn.begin() + static_cast<std::ptrdiff_t>(begin),
                                        drawn.begin() + static_cast<std::ptrdiff_t>(end), 0);
      require(static_cast<std::size_t>(count) == std::min(most, end - begin), "as many of each game");
      begin = end;
    }
    require(begin == drawn.size(), "one for each position");
  }
}

}  // namespace

int main() {
  test_groups();
  test_merged();
  test_drawn();
  std::puts("ok");
  return 0;
}
