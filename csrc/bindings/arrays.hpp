// Vectors of the core handed to Python as numpy arrays, without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace alphazero::bindings {

// The GIL must be held.
template <typename T>
nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>> to_numpy(std::vector<T>&& values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  std::vector<T>* data = owned.get();
  nanobind::capsule owner(data, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
  owned.release();
  return nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(data->data(), {data->size()}, owner);
}

}  // namespace alphazero::bindings
