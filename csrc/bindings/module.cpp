// The extension module alphazero._core.
#include <nanobind/nanobind.h>

#include "base/error.hpp"
#include "bindings/bindings.hpp"

NB_MODULE(_core, module) {
  // Objects that Python keeps until it ends, as caches do, would be called leaks at its end.
  nanobind::set_leak_warnings(false);
  module.doc() = "C++ core: games, encoding, PGN parsing, batch loading, search.";
  nanobind::exception<alphazero::GameError>(module, "GameError", PyExc_ValueError);
  alphazero::bindings::bind_chess(module);
  alphazero::bindings::bind_games(module);
  alphazero::bindings::bind_foreign(module);
  alphazero::bindings::bind_pgn(module);
  alphazero::bindings::bind_lc0(module);
  alphazero::bindings::bind_loader(module);
  alphazero::bindings::bind_sample_groups(module);
  alphazero::bindings::bind_search(module);
  alphazero::bindings::bind_search_pools(module);
  alphazero::bindings::bind_solver(module);
  alphazero::bindings::bind_network(module);
}
