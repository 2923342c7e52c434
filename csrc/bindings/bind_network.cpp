// Python face of the kernels of the network on the CPU: training in bf16, inference in int8.
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <utility>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "network/attention.hpp"
#include "network/batch_norm.hpp"
#include "network/layer_norm.hpp"
#include "network/mish.hpp"
#include "network/squeeze_excitation.hpp"
#include "network/weight_gradient.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace alphazero::bindings {
namespace {

using network::Bf16;
using network::BlockShape;
using network::ChannelStatistics;
using network::NormShape;

using Floats = Input1<float>;
using Pair = std::pair<Array1<float>, Array1<float>>;
using Rows = nb::ndarray<const Bf16, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using RowsOut = nb::ndarray<Bf16, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Squares = nb::ndarray<const Bf16, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using SquaresOut = nb::ndarray<Bf16, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
template <typename Number>
using Branch = nb::ndarray<const Number, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using BytesInOut = nb::ndarray<std::uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Small = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using SmallOut = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename Number>
using Vector = nb::ndarray<Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename Number>
using RowsOf = nb::ndarray<const Number, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename Number>
using RowsOutOf = nb::ndarray<Number, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename Number>
using Tokens = nb::ndarray<const Number, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
template <typename Number>
using TokensOut = nb::ndarray<Number, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
template <typename Number>
using Scores = nb::ndarray<const Number, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Boards = nb::ndarray<const Bf16, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using KernelsOut = nb::ndarray<float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;

template <typename Array>
auto span_of(const Array& array) {
  return std::span(array.data(), array.size());
}

void expect(bool fits) {
  if (!fits) throw std::invalid_argument("arrays of shapes that do not fit each other");
}

template <typename First, typename... Others>
void expect_alike(const First& first, const Others&... others) {
  const auto is_alike = [&](const auto& other) {
    bool alike = other.ndim() == first.ndim();
    for (std::size_t axis = 0; alike && axis < first.ndim(); ++axis) {
      alike = other.shape(axis) == first.shape(axis);
    }
    return alike;
  };
  expect((is_alike(others) && ...));
}

Pair batch_norm(const Rows& input, const Floats& weight, const Floats& bias, float eps, bool rectifies,
                const RowsOut& output) {
  const NormShape shape{input.shape(0), input.shape(1)};
  expect_alike(input, output);
  expect(shape.rows > 0 && weight.size() == shape.channels && bias.size() == shape.channels);
  ChannelStatistics found;
  {
    const nb::gil_scoped_release release;
    found = network::batch_norm(shape, span_of(input), span_of(weight), span_of(bias), eps, rectifies,
                                span_of(output));
  }
  return {to_numpy(std::move(found.mean)), to_numpy(std::move(found.variance))};
}

Pair batch_norm_backward(const Rows& input, const Rows& output, const Rows& output_gradient,
                         const Floats& weight, const Floats& mean, const Floats& variance, float eps,
                         bool rectifies, const RowsOut& input_gradient) {
  const NormShape shape{input.shape(0), input.shape(1)};
  expect_alike(input, output, output_gradient, input_gradient);
  expect(shape.rows > 0 && weight.size() == shape.channels && mean.size() == shape.channels &&
         variance.size() == shape.channels);
  const ChannelStatistics statistics{{mean.data(), mean.data() + mean.size()},
                                     {variance.data(), variance.data() + variance.size()}};
  network::NormGradients gradients;
  {
    const nb::gil_scoped_release release;
    gradients =
        network::batch_norm_backward(shape, span_of(input), span_of(output), span_of(output_gradient),
                                     span_of(weight), statistics, eps, rectifies, span_of(input_gradient));
  }
  return {to_numpy(std::move(gradients.weight)), to_numpy(std::move(gradients.bias))};
}

template <typename Array>
BlockShape block_shape(const Array& array) {
  expect(array.shape(1) > 0);
  return {array.shape(0), array.shape(1), array.shape(2)};
}

void expect_small(const BlockShape& shape,
                  std::initializer_list<std::pair<std::size_t, std::size_t>> shapes) {
  for (const auto& [positions, channels] : shapes) {
    expect(positions == shape.positions && channels == shape.channels);
  }
}

template <typename Array>
std::pair<std::size_t, std::size_t> shape_of(const Array& array) {
  return {array.shape(0), array.shape(1)};
}

void squeeze(const Squares& branch, const SmallOut& means) {
  const BlockShape shape = block_shape(branch);
  expect_small(shape, {shape_of(means)});
  const nb::gil_scoped_release release;
  network::squeeze(shape, span_of(branch), span_of(means));
}

void excite(const Squares& skip, const Squares& branch, const Small& scale, const Small& shift,
            const SquaresOut& output) {
  const BlockShape shape = block_shape(branch);
  expect_alike(branch, skip, output);
  expect_small(shape, {shape_of(scale), shape_of(shift)});
  const nb::gil_scoped_release release;
  network::excite(shape, span_of(skip), span_of(branch), span_of(scale), span_of(shift), span_of(output));
}

template <typename Number>
void excite_bytes(const Branch<Number>& branch, const Small& scale, const Small& shift, float skip_step,
                  float output_step, const BytesInOut& skip) {
  const BlockShape shape = block_shape(branch);
  expect_alike(branch, skip);
  expect_small(shape, {shape_of(scale), shape_of(shift)});
  expect(output_step > 0.0F);
  const nb::gil_scoped_release release;
  network::excite_bytes<Number>(shape, span_of(branch), span_of(scale), span_of(shift), skip_step,
                                output_step, span_of(skip));
}

void excite_backward(const Squares& branch, const Squares& output, const Squares& output_gradient,
                     const Small& scale, const SquaresOut& skip_gradient, const SquaresOut& branch_gradient,
                     const SmallOut& scale_gradient, const SmallOut& shift_gradient) {
  const BlockShape shape = block_shape(branch);
  expect_alike(branch, output, output_gradient, skip_gradient, branch_gradient);
  expect_small(shape, {shape_of(scale), shape_of(scale_gradient), shape_of(shift_gradient)});
  const nb::gil_scoped_release release;
  network::excite_backward(shape, span_of(branch), span_of(output), span_of(output_gradient), span_of(scale),
                           span_of(skip_gradient), span_of(branch_gradient), span_of(scale_gradient),
                           span_of(shift_gradient));
}

void weight_gradient(const Boards& input, const Boards& output_gradient, const KernelsOut& gradient) {
  const network::ConvolutionShape shape{input.shape(0), input.shape(1), input.shape(2), input.shape(3),
                                        output_gradient.shape(3)};
  for (const std::size_t axis : {0, 1, 2}) expect(output_gradient.shape(axis) == input.shape(axis));
  expect(shape.height > 0 && shape.width > 0 && shape.outputs % network::kOutputsPerTile == 0);
  expect(gradient.shape(0) == shape.outputs && gradient.shape(1) == 3 && gradient.shape(2) == 3 &&
         gradient.shape(3) == shape.inputs);
  if (!network::has_weight_gradient()) throw std::runtime_error("this CPU has no AVX512_BF16");
  const nb::gil_scoped_release release;
  network::weight_gradient(shape, span_of(input), span_of(output_gradient), span_of(gradient));
}

template <typename Number>
void attend(const Tokens<Number>& projected, const Scores<Number>& added, int num_threads,
            const TokensOut<Number>& output) {
  const std::size_t channels = output.shape(2);
  const network::AttentionShape shape{output.shape(0), output.shape(1), added.shape(1),
                                      channels / std::max<std::size_t>(1, added.shape(1))};
  expect(shape.squares > 0 && shape.heads > 0 && shape.heads * shape.width == channels);
  expect(projected.shape(0) == shape.positions && projected.shape(1) == shape.squares &&
         projected.shape(2) == 3 * channels);
  expect(added.shape(0) == shape.positions || added.shape(0) == 0);
  expect(added.shape(2) == shape.squares && added.shape(3) == shape.squares);
  const nb::gil_scoped_release release;
  network::attend<Number>(shape, span_of(projected), span_of(added), num_threads, span_of(output));
}

template <typename Number>
void mish(const Vector<Number>& values, int num_threads) {
  const nb::gil_scoped_release release;
  network::mish<Number>(span_of(values), num_threads);
}

template <typename Number>
void add_and_normalise(const RowsOf<Number>& skip, const Floats& weight, const Floats& bias, float eps,
                       int num_threads, const RowsOutOf<Number>& branch) {
  expect_alike(skip, branch);
  expect(weight.size() > 0 && weight.size() == branch.shape(1) && bias.size() == weight.size());
  const nb::gil_scoped_release release;
  network::add_and_normalise<Number>(span_of(skip), span_of(weight), span_of(bias), eps, num_threads,
                                     span_of(branch));
}

// Number: float, or Bf16 as u16.
template <typename Number>
void bind_encoder(nb::module_& module) {
  module.def("attend", &attend<Number>, "projected"_a.noconvert(), "added"_a.noconvert(), "num_threads"_a,
             "output"_a.noconvert(),
             "output [positions, squares, heads * width] = the attention of each head; projected [positions, "
             "squares, 3 * heads * width]: queries, scaled, keys, values; added [positions or 0, heads, "
             "squares, squares]. f32 or bf16 (u16).");
  module.def("mish", &mish<Number>, "values"_a.noconvert(), "num_threads"_a, "In place, f32 or bf16 (u16).");
  module.def("add_and_normalise", &add_and_normalise<Number>, "skip"_a.noconvert(), "weight"_a.noconvert(),
             "bias"_a.noconvert(), "eps"_a, "num_threads"_a, "branch"_a.noconvert(),
             "branch = LayerNorm(skip + branch), in place; f32 or bf16 (u16) [rows, channels], weight and "
             "bias f32 [channels].");
}

}  // namespace

void bind_network(nb::module_& module) {
  module.def(
      "batch_norm", &batch_norm, "input"_a.noconvert(), "weight"_a.noconvert(), "bias"_a.noconvert(), "eps"_a,
      "rectifies"_a, "output"_a.noconvert(),
      "BatchNorm of bf16 rows (u16 [rows, channels]) and, where `rectifies`, ReLU, into output; weight "
      "and bias f32 [channels]. Gives mean and variance (divided by rows), f32 [channels].");
  module.def("batch_norm_backward", &batch_norm_backward, "input"_a.noconvert(), "output"_a.noconvert(),
             "output_gradient"_a.noconvert(), "weight"_a.noconvert(), "mean"_a.noconvert(),
             "variance"_a.noconvert(), "eps"_a, "rectifies"_a, "input_gradient"_a.noconvert(),
             "Writes input_gradient; gives the gradients of weight and bias, f32 [channels].");
  module.def("squeeze", &squeeze, "branch"_a.noconvert(), "means"_a.noconvert(),
             "Means over squares of bf16 (u16 [positions, squares, channels]), f32 [positions, channels].");
  module.def("excite", &excite, "skip"_a.noconvert(), "branch"_a.noconvert(), "scale"_a.noconvert(),
             "shift"_a.noconvert(), "output"_a.noconvert(),
             "output = max(0, skip + branch * scale + shift).");
  const char* about_bytes =
      "skip = the byte of skip * skip_step + branch * scale + shift in steps of output_step, in place; "
      "branch "
      "f32 or bf16 (u16) [positions, squares, channels], skip u8, scale and shift f32 [positions, channels].";
  module.def("excite_bytes", &excite_bytes<float>, "branch"_a.noconvert(), "scale"_a.noconvert(),
             "shift"_a.noconvert(), "skip_step"_a, "output_step"_a, "skip"_a.noconvert(), about_bytes);
  module.def("excite_bytes", &excite_bytes<Bf16>, "branch"_a.noconvert(), "scale"_a.noconvert(),
             "shift"_a.noconvert(), "skip_step"_a, "output_step"_a, "skip"_a.noconvert(), about_bytes);
  module.def("excite_backward", &excite_backward, "branch"_a.noconvert(), "output"_a.noconvert(),
             "output_gradient"_a.noconvert(), "scale"_a.noconvert(), "skip_gradient"_a.noconvert(),
             "branch_gradient"_a.noconvert(), "scale_gradient"_a.noconvert(), "shift_gradient"_a.noconvert(),
             "Writes the gradients of what `excite` took.");
  bind_encoder<float>(module);
  bind_encoder<Bf16>(module);
  module.attr("OUTPUTS_PER_TILE") = network::kOutputsPerTile;
  module.def("has_weight_gradient", &network::has_weight_gradient,
             "Whether weight_gradient runs here: AVX512_BF16 and no AMX.");
  module.def("weight_gradient", &weight_gradient, "input"_a.noconvert(), "output_gradient"_a.noconvert(),
             "gradient"_a.noconvert(),
             "Of a 3x3 convolution with a border of zeros: bf16 boards (u16 [positions, height, width, "
             "channels]), gradient f32 [outputs, 3, 3, inputs]; outputs a multiple of OUTPUTS_PER_TILE.");
}

}  // namespace alphazero::bindings
