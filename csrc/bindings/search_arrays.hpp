// The search and evaluation columns of a shard as Python hands them over.
#pragma once

#include <cstdint>
#include <tuple>

#include "bindings/arrays.hpp"
#include "data/shard_columns.hpp"

namespace alphazero::bindings {

// SearchView.core_arrays() of alphazero/data/store/columns.py, in the order of SearchColumns.
using SearchArrays =
    std::tuple<Input1<std::int32_t>, Input1<float>, Input1<float>, Input1<std::int32_t>,
               Input1<std::uint32_t>, Input1<std::int32_t>, Input1<std::uint16_t>, Input1<std::uint16_t>>;

// Views; the arrays must outlive them.
inline SearchColumns columns_of(const SearchArrays& arrays) {
  return std::apply([](const auto&... array) { return SearchColumns{as_span(array)...}; }, arrays);
}

// EvaluationView of alphazero/data/store/columns.py, in the order of EvalColumns: of each
// column offsets, values and bits.
template <typename T>
using EntryArrays = std::tuple<Input1<std::int32_t>, Input1<T>, Input1<std::uint8_t>>;
using EvalArrays =
    std::tuple<EntryArrays<std::int32_t>, EntryArrays<std::int16_t>, EntryArrays<std::uint8_t>>;

template <typename T>
EntryColumn<T> column_of(const EntryArrays<T>& arrays) {
  const auto& [offset, values, bits] = arrays;
  return {as_span(offset), as_span(values), as_span(bits)};
}

// Views; the arrays must outlive them.
inline EvalColumns columns_of(const EvalArrays& arrays) {
  const auto& [centipawns, mate, source] = arrays;
  return {column_of(centipawns), column_of(mate), column_of(source)};
}

}  // namespace alphazero::bindings
