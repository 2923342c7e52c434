// A made-up network for the tests and harnesses of the search: a function of the packed position alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/hash.hpp"
#include "search/leaves.hpp"

namespace alphazero::testing {

// Logits of the legal moves and win, draw, loss of every row; `require` gets what must hold of each index.
template <typename G, typename Require>
void evaluate(const LeafBatch& batch, std::vector<float>& logits, std::vector<float>& wdl, Require require) {
  logits.clear();
  wdl.clear();
  for (std::size_t row = 0; row < batch.num_rows(); ++row) {
    std::uint64_t key = 0;
    for (const std::uint8_t byte : batch.packed.subspan(row * packed_bytes<G>(), packed_bytes<G>())) {
      key = mix64(key + kGolden + byte);
    }
    const auto next = [&key] { return static_cast<float>((key = mix64(key + kGolden)) >> 40) * 0x1p-24F; };
    for (auto i = batch.legal_offset[row]; i < batch.legal_offset[row + 1]; ++i) {
      require(batch.legal_index[i] >= 0 && batch.legal_index[i] < G::kPolicySize, "policy index in range");
      logits.push_back(4.0F * next());
    }
    const float win = next(), draw = next() * (1.0F - win);
    wdl.insert(wdl.end(), {win, draw, 1.0F - win - draw});
  }
}

}  // namespace alphazero::testing
