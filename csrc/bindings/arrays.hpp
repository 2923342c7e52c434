// Vectors of the core handed to Python as numpy arrays, without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace alphazero::bindings {

template <typename T>
using Array1 = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>;
template <typename T>
using Array2 = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<2>>;
// Taken from Python as it is: this dtype, contiguous, maybe read-only.
template <typename T>
using Input1 = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

template <typename T>
std::span<const T> as_span(const Input1<T>& array) {
  return {array.data(), array.size()};
}

// The GIL must be held.
template <typename T>
nanobind::capsule owner_of(std::vector<T>&& values, T*& data) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  nanobind::capsule owner(owned.get(),
                          [](void* vector) noexcept { delete static_cast<std::vector<T>*>(vector); });
  data = owned.release()->data();
  return owner;
}

template <typename T>
Array1<T> to_numpy(std::vector<T>&& values) {
  const std::size_t size = values.size();
  T* data = nullptr;
  const nanobind::capsule owner = owner_of(std::move(values), data);
  return Array1<T>(data, {size}, owner);
}

// Rows of `columns` values each.
template <typename T>
Array2<T> to_numpy(std::vector<T>&& values, std::size_t columns) {
  const std::size_t rows = values.size() / columns;
  T* data = nullptr;
  const nanobind::capsule owner = owner_of(std::move(values), data);
  return Array2<T>(data, {rows, columns}, owner);
}

}  // namespace alphazero::bindings
