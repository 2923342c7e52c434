// Leaves that wait for the network, and evaluations, as Python sees them.
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "search/leaves.hpp"

namespace alphazero::bindings {

using Wdl = nanobind::ndarray<const float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
// packed u8 [B, bytes], legal_index i32 [K], legal_offset i32 [B + 1].
using Leaves = std::tuple<Array2<std::uint8_t>, Array1<std::int32_t>, Array1<std::int32_t>>;

template <Game G>
Leaves to_numpy(OwnedLeaves&& leaves) {
  return {to_numpy(std::move(leaves.packed), packed_bytes<G>()), to_numpy(std::move(leaves.legal_index)),
          to_numpy(std::move(leaves.legal_offset))};
}

template <typename T>
Array1<T> copied(std::span<const T> values) {
  return to_numpy(std::vector<T>(values.begin(), values.end()));
}

}  // namespace alphazero::bindings
