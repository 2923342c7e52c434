// Searches for Python: one position step by step, and one tree for a whole game.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/bindings.hpp"
#include "bindings/leaf_arrays.hpp"
#include "games/all_games.hpp"
#include "search/evaluation_cache.hpp"
#include "search/game_search.hpp"
#include "search/search.hpp"
#include "search/settings.hpp"

namespace nb = nanobind;

namespace alphazero::bindings {
namespace {

using Noise = std::optional<Input1<double>>;
using Dump = nb::typed<nb::dict, nb::str, nb::object>;

// One tree, step by step: for analysis and for tests.
template <Game G>
struct OneSearch {
  SearchSettings settings;
  Search<G> search;
  bool has_root = false;
};

template <Game G>
void require_root(const OneSearch<G>& self) {
  if (!self.has_root) throw std::invalid_argument("no position: start() comes first");
}

template <Game G>
void set_noise(OneSearch<G>& self, const Noise& noise) {
  if (!noise) return;
  if (noise->size() != self.search.root_edges().size()) {
    throw std::invalid_argument("noise: expected a number for each legal move");
  }
  self.search.set_noise(as_span(*noise));
}

template <Game G>
void start(OneSearch<G>& self, const Line<G>& line, const Noise& noise) {
  if (line.outcome().over()) throw std::invalid_argument("the game is over");
  self.search.start(line, self.settings);
  self.has_root = true;
  set_noise(self, noise);
}

template <Game G>
Leaves collect(OneSearch<G>& self, HistoryFill fill) {
  require_root(self);
  if (self.search.num_waiting() > 0) throw std::invalid_argument("leaves wait for their evaluation");
  std::size_t count = 0;
  {
    const nb::gil_scoped_release release;
    count = self.search.collect();
  }
  OwnedLeaves leaves;
  std::vector<std::uint8_t> packed(packed_bytes<G>());
  for (std::size_t leaf = 0; leaf < count; ++leaf) {
    self.search.write_position(leaf, fill, packed.data());
    leaves.add(packed, self.search.legal_indices(leaf));
  }
  return to_numpy<G>(std::move(leaves));
}

template <Game G>
void apply(OneSearch<G>& self, const Input1<float>& logits, const Wdl& wdl) {
  const std::size_t count = self.search.num_waiting();
  std::size_t num_legal = 0;
  for (std::size_t leaf = 0; leaf < count; ++leaf) num_legal += self.search.legal_indices(leaf).size();
  if (wdl.shape(0) != count || wdl.shape(1) != 3 || logits.size() != num_legal) {
    throw std::invalid_argument("evaluations do not fit the leaves that wait");
  }
  const float* next = logits.data();
  std::vector<std::size_t> sizes;
  for (std::size_t leaf = 0; leaf < count; ++leaf) sizes.push_back(self.search.legal_indices(leaf).size());
  for (std::size_t leaf = 0; leaf < count; ++leaf) {
    self.search.apply(leaf, next, wdl.data() + 3 * leaf);
    next += sizes[leaf];
  }
}

template <Game G>
Dump nodes(const OneSearch<G>& self) {
  require_root(self);
  const Tree<G>& tree = self.search.tree();
  std::vector<std::int32_t> parent, parent_edge, edge_offset(1, 0), index;
  std::vector<std::int8_t> proven;
  std::vector<std::uint16_t> move;
  std::vector<float> prior;
  std::vector<std::int32_t> visits;
  std::vector<double> value_sum, value;
  std::vector<Edge> edges;
  for (std::uint32_t id = 0; id < tree.size(); ++id) {
    const auto& node = tree.node(id);
    parent.push_back(node.parent == kNoNode ? -1 : static_cast<std::int32_t>(node.parent));
    parent_edge.push_back(node.parent == kNoNode ? -1 : tree.place_in_parent(id));
    proven.push_back(node.proven);
    value.push_back(node.value);
    tree.list_edges(id, edges);
    tree.name_moves(id, edges);
    for (const Edge& edge : edges) {
      move.push_back(edge.move);
      index.push_back(edge.index);
      prior.push_back(edge.prior);
      visits.push_back(static_cast<std::int32_t>(edge.visits));
      value_sum.push_back(edge.value_sum);
    }
    edge_offset.push_back(static_cast<std::int32_t>(move.size()));
  }
  Dump dump;
  dump["parent"] = to_numpy(std::move(parent));
  dump["parent_edge"] = to_numpy(std::move(parent_edge));
  dump["proven"] = to_numpy(std::move(proven));
  dump["value"] = to_numpy(std::move(value));
  dump["edge_offset"] = to_numpy(std::move(edge_offset));
  dump["move"] = to_numpy(std::move(move));
  dump["index"] = to_numpy(std::move(index));
  dump["prior"] = to_numpy(std::move(prior));
  dump["visits"] = to_numpy(std::move(visits));
  dump["value_sum"] = to_numpy(std::move(value_sum));
  return dump;
}

template <Game G>
SearchResult result(OneSearch<G>& self, double temperature, double draw) {
  require_root(self);
  if (!self.search.is_done()) throw std::invalid_argument("the search is not done");
  return self.search.result(temperature, draw);
}

template <Game G>
void bind_one(nb::module_& module, const char* name) {
  using S = OneSearch<G>;
  nb::class_<S>(module, name, "The search of one position, step by step (docs/search.md).")
      .def(
          "__init__", [](S* self, const SearchSettings& settings) { new (self) S{settings, {}, false}; },
          nb::arg("settings"))
      .def("start", &start<G>, nb::arg("line"), nb::arg("noise").noconvert() = nb::none(),
           "A new tree at the end of the line. noise: f64 [num_legal], a Dirichlet sample or the Gumbels.")
      .def("collect", &collect<G>, nb::arg("fill") = HistoryFill::kFenOnly,
           "The positions of the next round: packed u8 [B, bytes], legal_index i32 [K], legal_offset i32 "
           "[B + 1]; B = 0 when the search is done.")
      .def("apply", &apply<G>, nb::arg("legal_logits").noconvert(), nb::arg("wdl").noconvert(),
           "Their evaluations: f32 [K] and f32 [B, 3] (win, draw, loss of the side to move).")
      .def_prop_ro("done", [](const S& self) { return self.has_root && self.search.is_done(); })
      .def("nodes", &nodes<G>, "The tree as arrays, nodes in order of creation, edges in policy order.")
      .def("result", &result<G>, nb::arg("temperature") = 0.0, nb::arg("draw") = 0.0,
           "What the finished search says; draw in [0, 1) picks the move at a temperature above 0.");
}

template <Game G>
void check_slot(std::size_t slot) {
  if (slot >= GameSearch<G>::kNumSlots) throw nb::index_error("slot out of range");
}

template <Game G>
Leaves gather(GameSearch<G>& self, std::size_t slot, std::size_t most_leaves, std::uint64_t most_visits) {
  check_slot<G>(slot);
  OwnedLeaves leaves;
  {
    const nb::gil_scoped_release release;
    leaves = self.gather(slot, most_leaves, most_visits);
  }
  return to_numpy<G>(std::move(leaves));
}

template <Game G>
void apply_slot(GameSearch<G>& self, std::size_t slot, const Input1<float>& logits, const Wdl& wdl,
                const std::optional<Input1<std::uint8_t>>& exact) {
  check_slot<G>(slot);
  const std::span<const std::uint8_t> all_exact = exact ? as_span(*exact) : std::span<const std::uint8_t>();
  const std::span<const float> all_logits = as_span(logits);
  const std::span<const float> all_wdl(wdl.data(), wdl.size());
  const nb::gil_scoped_release release;
  self.apply(slot, all_logits, all_wdl, all_exact);
}

template <Game G>
void bind_game_search(nb::module_& module, const char* name) {
  using S = GameSearch<G>;
  const auto without_gil = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<S>(module, name, "One tree, kept from move to move, that fills batches (docs/search.md).")
      .def(nb::init<const EngineSettings&>(), nb::arg("settings"))
      .def("set_line", &S::set_line, nb::arg("line"), without_gil,
           "Search the end of this line; returns the visits that are kept.")
      .def(
          "begin", [](S& self, const std::vector<Move>& only) { self.begin(only); }, nb::arg("only"),
          without_gil, "Begin a search: counters to 0; at the root only these moves (none: all).")
      .def("reset", &S::reset, nb::arg("settings"), without_gil, "Forget the tree and the cache.")
      .def("gather", &gather<G>, nb::arg("slot"), nb::arg("most_leaves"), nb::arg("most_visits"),
           "Leaves that wait for the network: packed u8 [B, bytes], legal_index i32 [K], legal_offset i32 "
           "[B + 1]; B = 0: the slot stays free.")
      .def("apply", &apply_slot<G>, nb::arg("slot"), nb::arg("legal_logits").noconvert(),
           nb::arg("wdl").noconvert(), nb::arg("exact").noconvert() = nb::none(),
           "Their evaluations, f32 [K] and f32 [B, 3]; frees the slot. exact: u8 [B], not 0 where a row of "
           "wdl is certain; nothing below such a position is looked at.")
      .def(
          "drop",
          [](S& self, std::size_t slot) {
            check_slot<G>(slot);
            self.drop(slot);
          },
          nb::arg("slot"), without_gil, "Free the slot without evaluations.")
      .def("cached_value", &S::cached_value, nb::arg("line"), without_gil,
           "The network's value, W - L, of the end of a line; nan where the cache lacks it.")
      .def("progress", &S::progress, without_gil, "How far the search is.")
      .def("view", &S::view, nb::arg("num_lines"), without_gil,
           "The search as it stands; lines of play for this many moves.");
}

void bind_settings(nb::module_& module) {
  nb::enum_<SearchAlgorithm>(module, "SearchAlgorithm")
      .value("PUCT", SearchAlgorithm::kPuct, "Silver et al. 2018")
      .value("GUMBEL", SearchAlgorithm::kGumbel, "Danihelka et al. 2022");
  nb::class_<SearchSettings>(module, "SearchSettings", "Numbers of the search's rules (docs/search.md).")
      .def(nb::init<>())
      .def_rw("algorithm", &SearchSettings::algorithm)
      .def_rw("simulations", &SearchSettings::simulations)
      .def_rw("leaves", &SearchSettings::leaves)
      .def_rw("c_base", &SearchSettings::c_base)
      .def_rw("c_init", &SearchSettings::c_init)
      .def_rw("fpu_reduction", &SearchSettings::fpu_reduction)
      .def_rw("root_fpu_reduction", &SearchSettings::root_fpu_reduction)
      .def_rw("noise_epsilon", &SearchSettings::noise_epsilon)
      .def_rw("forced_playouts", &SearchSettings::forced_playouts)
      .def_rw("c_visit", &SearchSettings::c_visit)
      .def_rw("c_scale", &SearchSettings::c_scale)
      .def_rw("considered", &SearchSettings::considered)
      .def_rw("proofs", &SearchSettings::proofs);
  nb::class_<EngineSettings>(module, "EngineSettings",
                             "Numbers of the engine's rules (docs/search.md), and its memory.")
      .def(nb::init<>())
      .def_rw("c_puct", &EngineSettings::c_puct)
      .def_rw("c_puct_base", &EngineSettings::c_puct_base)
      .def_rw("c_puct_factor", &EngineSettings::c_puct_factor)
      .def_rw("fpu_reduction", &EngineSettings::fpu_reduction)
      .def_rw("policy_temperature", &EngineSettings::policy_temperature)
      .def_rw("two_fold_draws", &EngineSettings::two_fold_draws)
      .def_rw("fill", &EngineSettings::fill)
      .def_rw("threads", &EngineSettings::threads)
      .def_rw("cache_bytes", &EngineSettings::cache_bytes)
      .def_rw("tree_bytes", &EngineSettings::tree_bytes);
}

void bind_findings(nb::module_& module) {
  nb::class_<SearchResult>(module, "SearchResult",
                           "What a finished search says of its root, for the side to move.")
      .def_ro("move", &SearchResult::move, "the move to play")
      .def_prop_ro(
          "policy", [](const SearchResult& self) { return copied<double>(self.policy); }, nb::rv_policy::move,
          "f64 [num_legal]: shares of the legal moves, by ascending policy index")
      .def_ro("root_q", &SearchResult::root_q)
      .def_ro("root_d", &SearchResult::root_d)
      .def_ro("best_q", &SearchResult::best_q)
      .def_ro("best_d", &SearchResult::best_d)
      .def_ro("orig_q", &SearchResult::orig_q)
      .def_ro("orig_d", &SearchResult::orig_d)
      .def_ro("visits", &SearchResult::visits)
      .def_ro("proven", &SearchResult::proven, "-1, 0, 1; 2: not proven");
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
      .def_ro("mean_depth", &SearchProgress::mean_depth, "plies of a playout")
      .def_ro("is_done", &SearchProgress::is_done)
      .def_ro("is_full", &SearchProgress::is_full);
}

}  // namespace

void bind_search(nb::module_& module) {
  bind_settings(module);
  nb::class_<DividedCache>(module, "EvaluationCache",
                           "Evaluations of one network by its exact input; the oldest make room. For one "
                           "search or pool at a time.")
      .def(nb::init<std::uint64_t>(), nb::arg("size_bytes"))
      .def("clear", &DividedCache::clear, "Forget them: another network.");
  bind_findings(module);
#define ALPHAZERO_BIND_SEARCHES(G)  \
  bind_one<G>(module, #G "Search"); \
  bind_game_search<G>(module, #G "GameSearch");
  ALPHAZERO_ALL_GAMES(ALPHAZERO_BIND_SEARCHES)
#undef ALPHAZERO_BIND_SEARCHES
}

}  // namespace alphazero::bindings
