// The search columns of a shard as Python hands them over.
#pragma once

#include <cstdint>
#include <tuple>

#include "bindings/arrays.hpp"
#include "data/shard_columns.hpp"

namespace alphazero::bindings {

// SearchView.core_arrays() of alphazero/data/store/search_columns.py, in the order of SearchColumns.
using SearchArrays =
    std::tuple<Input1<std::int32_t>, Input1<float>, Input1<float>, Input1<std::int32_t>,
               Input1<std::uint32_t>, Input1<std::int32_t>, Input1<std::uint16_t>, Input1<std::uint16_t>>;

// Views; the arrays must outlive them.
inline SearchColumns columns_of(const SearchArrays& arrays) {
  return std::apply([](const auto&... array) { return SearchColumns{as_span(array)...}; }, arrays);
}

}  // namespace alphazero::bindings
