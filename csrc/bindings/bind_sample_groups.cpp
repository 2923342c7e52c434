// Groups of equal positions, merged batches and drawn positions, for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "data/sample_groups.hpp"

namespace nb = nanobind;

namespace alphazero::bindings {
namespace {

std::tuple<Array1<std::uint32_t>, Array1<std::uint32_t>> group_samples_of(Input1<std::uint64_t> keys) {
  SampleGroups groups;
  {
    const nb::gil_scoped_release release;
    groups = group_samples(as_span(keys));
  }
  return {to_numpy(std::move(groups.member)), to_numpy(std::move(groups.offset))};
}

template <typename T>
using Input2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

using BatchArrays = std::tuple<Array2<std::uint8_t>, Array1<std::int32_t>, Array1<std::int32_t>,
                               Array1<float>, Array2<float>, Array1<float>>;

template <typename A>
auto copy_of(const A& array) {
  return std::vector(array.data(), array.data() + array.size());
}

BatchArrays merge_groups_of(Input2<std::uint8_t> packed, Input1<std::int32_t> legal_offset,
                            Input1<std::int32_t> legal_index, Input1<float> policy, Input2<float> wdl,
                            Input1<float> moves_left, Input1<std::int64_t> group_offset) {
  const std::size_t num_samples = packed.shape(0);
  const bool fits = legal_offset.size() == num_samples + 1 && legal_offset.data()[0] == 0 &&
                    static_cast<std::size_t>(legal_offset.data()[num_samples]) == legal_index.size() &&
                    policy.size() == legal_index.size() && wdl.size() == 3 * num_samples &&
                    moves_left.size() == num_samples;
  if (!fits) throw std::out_of_range("the arrays of a batch do not fit together");
  for (std::size_t i = 0; i < num_samples; ++i) {
    if (legal_offset.data()[i] > legal_offset.data()[i + 1]) throw std::out_of_range("legal_offset descends");
  }
  const std::size_t packed_bytes = packed.shape(1);
  EncodedBatch merged;
  {
    const nb::gil_scoped_release release;
    const EncodedBatch batch{copy_of(packed), copy_of(legal_offset), copy_of(legal_index),
                             copy_of(policy), copy_of(wdl),          copy_of(moves_left)};
    merged = merge_groups(batch, as_span(group_offset));
  }
  return {to_numpy(std::move(merged.packed), packed_bytes),
          to_numpy(std::move(merged.legal_offset)),
          to_numpy(std::move(merged.legal_index)),
          to_numpy(std::move(merged.policy)),
          to_numpy(std::move(merged.wdl), 3),
          to_numpy(std::move(merged.moves_left))};
}

Array1<std::uint8_t> draw_positions_of(std::uint64_t seed, Input1<std::uint64_t> game_key,
                                       Input1<std::int64_t> lengths, std::size_t most) {
  std::vector<std::uint8_t> is_drawn;
  {
    const nb::gil_scoped_release release;
    is_drawn = draw_positions(seed, as_span(game_key), as_span(lengths), most);
  }
  return to_numpy(std::move(is_drawn));
}

}  // namespace

void bind_sample_groups(nb::module_& module) {
  module.def("group_samples", &group_samples_of, nb::arg("keys").noconvert(),
             "Samples with equal keys: member u32 [samples] and offset u32 [groups + 1]; members of a group "
             "ascend, and groups by their first members.");
  module.def("merge_groups", &merge_groups_of, nb::arg("packed").noconvert(),
             nb::arg("legal_offset").noconvert(), nb::arg("legal_index").noconvert(),
             nb::arg("policy").noconvert(), nb::arg("wdl").noconvert(), nb::arg("moves_left").noconvert(),
             nb::arg("group_offset").noconvert(),
             "The arrays of a batch in which the samples of each group, group_offset i64 [groups + 1], are "
             "one: the planes of the first, the means of the targets.");
  module.def("draw_positions", &draw_positions_of, nb::arg("seed"), nb::arg("game_key").noconvert(),
             nb::arg("lengths").noconvert(), nb::arg("most"),
             "u8 [sum of lengths]: 1 for the positions of each game that are drawn, at most `most` of it.");
}

}  // namespace alphazero::bindings
