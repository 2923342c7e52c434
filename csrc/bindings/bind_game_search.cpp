// The search of a game that goes on, for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "games/all_games.hpp"
#include "search/game_search/game_search.hpp"

namespace nb = nanobind;

namespace alphazero::bindings {
namespace {

using Wdl = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Leaves = std::tuple<Array2<std::uint8_t>, Array1<std::int32_t>, Array1<std::int32_t>>;

template <Game G>
void check_slot(std::size_t slot) {
  if (slot >= GameSearch<G>::kNumSlots) throw nb::index_error("slot out of range");
}

template <Game G>
Leaves gather(GameSearch<G>& self, std::size_t slot, std::size_t most_leaves, std::uint64_t most_visits) {
  check_slot<G>(slot);
  GameLeaves leaves;
  {
    const nb::gil_scoped_release release;
    if (self.is_taken(slot)) throw std::invalid_argument("the slot's leaves wait for their evaluation");
    leaves = self.gather(slot, most_leaves, most_visits);
  }
  return {to_numpy(std::move(leaves.packed), packed_bytes<G>()), to_numpy(std::move(leaves.legal_index)),
          to_numpy(std::move(leaves.legal_offset))};
}

template <Game G>
void apply(GameSearch<G>& self, std::size_t slot, const Input1<float>& logits, const Wdl& wdl) {
  check_slot<G>(slot);
  const std::span<const float> all_logits = as_span(logits);
  const std::span<const float> all_wdl(wdl.data(), wdl.size());
  const nb::gil_scoped_release release;
  if (wdl.shape(0) != self.num_rows(slot) || wdl.shape(1) != 3 || all_logits.size() != self.num_moves(slot)) {
    throw std::invalid_argument("evaluations do not fit the leaves that wait");
  }
  self.apply(slot, all_logits, all_wdl);
}

template <Game G>
void bind_game_search(nb::module_& module, const char* name) {
  using S = GameSearch<G>;
  const auto without_gil = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<S>(module, name, "One tree, kept from move to move, that fills batches (docs/search.md).")
      .def(nb::init<const GameSearchSettings&>(), nb::arg("settings"))
      .def("set_line", &S::set_line, nb::arg("line"), without_gil,
           "Search the end of this line; returns the visits that are kept.")
      .def(
          "begin", [](S& self, const std::vector<Move>& only) { self.begin(only); }, nb::arg("only"),
          without_gil, "Begin a search: counters to 0; at the root only these moves (none: all).")
      .def("reset", &S::reset, nb::arg("settings"), without_gil, "Forget the tree and the cache.")
      .def("set_tree_limit", &S::set_tree_limit, nb::arg("bytes"), without_gil,
           "Another limit of the tree's memory.")
      .def("gather", &gather<G>, nb::arg("slot"), nb::arg("most_leaves"), nb::arg("most_visits"),
           "Leaves that wait for the network: packed u8 [B, bytes], legal_index i32 [K], legal_offset i32 "
           "[B + 1]; B = 0: the slot stays free.")
      .def("apply", &apply<G>, nb::arg("slot"), nb::arg("legal_logits").noconvert(),
           nb::arg("wdl").noconvert(), "Their evaluations, f32 [K] and f32 [B, 3]; frees the slot.")
      .def(
          "drop",
          [](S& self, std::size_t slot) {
            check_slot<G>(slot);
            self.drop(slot);
          },
          nb::arg("slot"), without_gil, "Free the slot without evaluations.")
      .def("progress", &S::progress, without_gil, "How far the search is.")
      .def("view", &S::view, nb::arg("num_lines"), without_gil,
           "The search as it stands; lines of play for this many moves.");
}

}  // namespace

void bind_game_searches(nb::module_& module) {
  nb::class_<GameSearchSettings>(module, "GameSearchSettings", "Numbers of the search (docs/search.md).")
      .def(nb::init<>())
      .def_rw("c_puct", &GameSearchSettings::c_puct)
      .def_rw("c_puct_base", &GameSearchSettings::c_puct_base)
      .def_rw("c_puct_factor", &GameSearchSettings::c_puct_factor)
      .def_rw("fpu_reduction", &GameSearchSettings::fpu_reduction)
      .def_rw("policy_temperature", &GameSearchSettings::policy_temperature)
      .def_rw("two_fold_draws", &GameSearchSettings::two_fold_draws)
      .def_rw("fill", &GameSearchSettings::fill)
      .def_rw("cache_bytes", &GameSearchSettings::cache_bytes)
      .def_rw("tree_bytes", &GameSearchSettings::tree_bytes);
  nb::class_<RootMove>(module, "RootMove", "A legal move of the root; values are for the side to move.")
      .def_ro("move", &RootMove::move)
      .def_ro("prior", &RootMove::prior, "the network's share, at the policy temperature")
      .def_ro("visits", &RootMove::visits)
      .def_ro("q", &RootMove::q, "W - L")
      .def_ro("d", &RootMove::d, "chance of a draw")
      .def_ro("proven", &RootMove::proven, "-1, 0, 1; 2: not proven")
      .def_ro("plies", &RootMove::plies, "to the end of a proven win or loss, this move included")
      .def_ro("pv", &RootMove::pv);
  nb::class_<SearchView>(module, "SearchView", "A search as it stands; the best move comes first.")
      .def_ro("moves", &SearchView::moves)
      .def_ro("nodes", &SearchView::nodes, "visits of the root, kept ones and its own evaluation included")
      .def_ro("playouts", &SearchView::playouts, "of these, made in this search")
      .def_ro("evaluations", &SearchView::evaluations)
      .def_ro("cache_hits", &SearchView::cache_hits)
      .def_ro("mean_depth", &SearchView::mean_depth)
      .def_ro("deepest", &SearchView::deepest)
      .def_ro("root_q", &SearchView::root_q)
      .def_ro("root_d", &SearchView::root_d)
      .def_ro("proven", &SearchView::proven, "-1, 0, 1; 2: not proven")
      .def_ro("plies", &SearchView::plies)
      .def_ro("is_done", &SearchView::is_done, "proven, or without a move")
      .def_ro("is_full", &SearchView::is_full, "the memory limit is reached")
      .def_ro("cache_per_mille", &SearchView::cache_per_mille)
      .def_ro("tree_nodes", &SearchView::tree_nodes)
      .def_ro("tree_bytes", &SearchView::tree_bytes);
  nb::class_<SearchProgress>(module, "SearchProgress", "How far a search is.")
      .def_ro("nodes", &SearchProgress::nodes)
      .def_ro("playouts", &SearchProgress::playouts)
      .def_ro("is_done", &SearchProgress::is_done)
      .def_ro("is_full", &SearchProgress::is_full);
#define ALPHAZERO_BIND_GAME_SEARCH(G) bind_game_search<G>(module, #G "GameSearch");
  ALPHAZERO_ALL_GAMES(ALPHAZERO_BIND_GAME_SEARCH)
#undef ALPHAZERO_BIND_GAME_SEARCH
}

}  // namespace alphazero::bindings
