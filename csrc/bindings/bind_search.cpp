// Tree search and self-play for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "games/all_games.hpp"
#include "search/evaluation_cache.hpp"
#include "search/line_search.hpp"
#include "search/search.hpp"
#include "search/search_pool.hpp"
#include "search/self_play.hpp"
#include "search/settings.hpp"

namespace nb = nanobind;

namespace alphazero::bindings {
namespace {

using Noise = std::optional<Input1<double>>;
using Wdl = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
// Positions that wait for the network: packed u8 [B, bytes], legal_index i32 [K], legal_offset i32 [B + 1].
using Leaves = std::tuple<Array2<std::uint8_t>, Array1<std::int32_t>, Array1<std::int32_t>>;

using Dump = nb::typed<nb::dict, nb::str, nb::object>;

template <typename T>
Array1<T> copied(std::span<const T> values) {
  return to_numpy(std::vector<T>(values.begin(), values.end()));
}

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
void advance(OneSearch<G>& self, Move move, const Noise& noise) {
  require_root(self);
  if (self.search.num_waiting() > 0) throw std::invalid_argument("leaves wait for their evaluation");
  bool is_legal = false;
  for (const Edge& edge : self.search.root_edges()) is_legal |= edge.move == move;
  if (!is_legal) throw std::invalid_argument("advance: not a legal move");
  self.search.advance(move, self.settings);
  if (self.search.root_edges().empty()) {
    self.has_root = false;
    throw std::invalid_argument("the game is over");
  }
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
  std::vector<std::uint8_t> packed(count * packed_bytes<G>());
  std::vector<std::int32_t> offset(1, 0);
  std::vector<std::int32_t> legal;
  for (std::size_t leaf = 0; leaf < count; ++leaf) {
    self.search.write_position(leaf, fill, packed.data() + leaf * packed_bytes<G>());
    legal.resize(legal.size() + self.search.num_legal(leaf));
    self.search.write_legal(leaf, legal.data() + offset.back());
    offset.push_back(static_cast<std::int32_t>(legal.size()));
  }
  return {to_numpy(std::move(packed), packed_bytes<G>()), to_numpy(std::move(legal)),
          to_numpy(std::move(offset))};
}

template <Game G>
void apply(OneSearch<G>& self, const Input1<float>& logits, const Wdl& wdl) {
  const std::size_t count = self.search.num_waiting();
  std::size_t num_legal = 0;
  for (std::size_t leaf = 0; leaf < count; ++leaf) num_legal += self.search.num_legal(leaf);
  if (wdl.shape(0) != count || wdl.shape(1) != 3 || logits.size() != num_legal) {
    throw std::invalid_argument("evaluations do not fit the leaves that wait");
  }
  const float* next = logits.data();
  std::vector<std::size_t> sizes;
  for (std::size_t leaf = 0; leaf < count; ++leaf) sizes.push_back(self.search.num_legal(leaf));
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

// A finished search with its move and policy.
struct Found {
  SearchResult result;
  Move move = 0;
  std::vector<double> policy;
};

template <Game G>
Found result(OneSearch<G>& self, double temperature, double draw) {
  require_root(self);
  if (!self.search.is_done()) throw std::invalid_argument("the search is not done");
  Found found;
  found.result = self.search.result(temperature, draw, found.policy);
  found.move = self.search.root_edges()[found.result.edge].move;
  return found;
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
      .def("advance", &advance<G>, nb::arg("move"), nb::arg("noise").noconvert() = nb::none(),
           "Play a move and keep what is known below it (PUCT).")
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

// A driver with the pool that runs it.
template <Game G, typename Driver>
struct Pooled {
  Driver driver;
  SearchPool<G> pool;
};

template <Game G, typename Driver>
Leaves step(Pooled<G, Driver>& self, std::size_t group, const std::optional<Input1<float>>& logits,
            const std::optional<Wdl>& wdl) {
  if (group >= self.pool.num_groups()) throw nb::index_error("group out of range");
  LeafBatch batch;
  {
    const std::span<const float> given_logits = logits ? as_span(*logits) : std::span<const float>();
    const std::span<const float> given_wdl =
        wdl ? std::span(wdl->data(), wdl->size()) : std::span<const float>();
    const nb::gil_scoped_release release;
    batch = self.pool.step(group, given_logits, given_wdl, self.driver);
  }
  const nb::object owner = nb::find(self);
  const std::size_t rows = batch.num_rows();
  return {
      Array2<std::uint8_t>(const_cast<std::uint8_t*>(batch.packed.data()), {rows, packed_bytes<G>()}, owner),
      Array1<std::int32_t>(const_cast<std::int32_t*>(batch.legal_index.data()), {batch.legal_index.size()},
                           owner),
      Array1<std::int32_t>(const_cast<std::int32_t*>(batch.legal_offset.data()), {rows + 1}, owner)};
}

constexpr const char* kStepDoc =
    "Take the evaluations of the group's last batch (legal_logits f32 [K], wdl f32 [B, 3]; None the first "
    "time) "
    "and go on until the next one: packed u8 [B, bytes], legal_index i32 [K], legal_offset i32 [B + 1], "
    "views "
    "that hold until the group's next step. B = 0: the group is done.";

template <Game G>
void bind_line_search(nb::module_& module, const char* name) {
  using P = Pooled<G, LineSearch<G>>;
  nb::class_<P>(module, name, "Positions searched side by side, each once.")
      .def(
          "__init__",
          [](P* self, const std::vector<Line<G>>& lines, const SearchSettings& settings, std::size_t slots,
             std::size_t groups, int num_threads, HistoryFill fill, EvaluationCache* cache) {
            for (const Line<G>& line : lines) {
              if (line.outcome().over()) throw std::invalid_argument("the game is over");
            }
            new (self) P{LineSearch<G>(lines, settings, slots * groups),
                         SearchPool<G>(slots, groups, settings.leaves, num_threads, fill, cache)};
          },
          nb::arg("lines"), nb::arg("settings"), nb::arg("slots"), nb::arg("groups"), nb::arg("num_threads"),
          nb::arg("fill") = HistoryFill::kFenOnly, nb::arg("cache").none() = nb::none(),
          nb::keep_alive<1, 8>())
      .def("step", &step<G, LineSearch<G>>, nb::arg("group"),
           nb::arg("legal_logits").noconvert() = nb::none(), nb::arg("wdl").noconvert() = nb::none(),
           kStepDoc)
      .def_prop_ro("simulations", [](const P& self) { return self.pool.num_simulations(); })
      .def(
          "found",
          [](const P& self) {
            std::vector<Found> all;
            for (const auto& found : self.driver.found())
              all.push_back({found.result, found.move, found.policy});
            return all;
          },
          "The results, in the order of the lines.");
}

template <Game G>
void bind_self_play(nb::module_& module, const char* name) {
  using P = Pooled<G, SelfPlay<G>>;
  nb::class_<P>(module, name, "Games that a network plays against itself, in lanes.")
      .def(
          "__init__",
          [](P* self, const SelfPlaySettings& settings, std::size_t slots, std::size_t groups,
             int num_threads, HistoryFill fill, EvaluationCache* cache) {
            new (self) P{SelfPlay<G>(settings, slots * groups),
                         SearchPool<G>(slots, groups, settings.search.leaves, num_threads, fill, cache)};
          },
          nb::arg("settings"), nb::arg("slots"), nb::arg("groups"), nb::arg("num_threads"),
          nb::arg("fill") = HistoryFill::kFenOnly, nb::arg("cache").none() = nb::none(),
          nb::keep_alive<1, 7>())
      .def(
          "add_lane", [](P& self, const SelfPlayGame& game) { self.driver.add_lane(game); }, nb::arg("game"),
          "A lane whose game is `game`; with no moves it is begun.")
      .def(
          "begin", [](P& self, std::uint64_t moves) { self.driver.begin(moves); }, nb::arg("moves"),
          "Every lane plays `moves` searched moves.")
      .def("step", &step<G, SelfPlay<G>>, nb::arg("group"), nb::arg("legal_logits").noconvert() = nb::none(),
           nb::arg("wdl").noconvert() = nb::none(), kStepDoc)
      .def(
          "take_finished", [](P& self) { return self.driver.take_finished(); },
          "Games that ended since the last call, by lane and number.")
      .def(
          "games_under_way", [](const P& self) { return self.driver.games_under_way(); },
          "Every lane's game under way, between generations.")
      .def_prop_ro("moves", [](const P& self) { return self.driver.progress().moves; })
      .def_prop_ro("games", [](const P& self) { return self.driver.progress().games; })
      .def_prop_ro("simulations", [](const P& self) { return self.pool.num_simulations(); })
      .def_prop_ro("evaluations", [](const P& self) { return self.pool.num_evaluations(); })
      .def_prop_ro(
          "cached", [](const P& self) { return self.pool.num_cached(); },
          "positions whose evaluation the cache knew");
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
  nb::class_<SelfPlaySettings>(module, "SelfPlaySettings", "How games are played.")
      .def(nb::init<>())
      .def_rw("search", &SelfPlaySettings::search)
      .def_rw("seed", &SelfPlaySettings::seed)
      .def_rw("full_search_share", &SelfPlaySettings::full_search_share)
      .def_rw("fast_simulations", &SelfPlaySettings::fast_simulations)
      .def_rw("dirichlet_alpha", &SelfPlaySettings::dirichlet_alpha)
      .def_rw("temperature", &SelfPlaySettings::temperature)
      .def_rw("temperature_plies", &SelfPlaySettings::temperature_plies)
      .def_rw("final_temperature", &SelfPlaySettings::final_temperature)
      .def_rw("opening_plies", &SelfPlaySettings::opening_plies)
      .def_rw("resign_threshold", &SelfPlaySettings::resign_threshold)
      .def_rw("resign_playthrough", &SelfPlaySettings::resign_playthrough)
      .def_rw("max_plies", &SelfPlaySettings::max_plies);
}

template <typename T>
void bind_column(nb::class_<SelfPlayGame>& game, const char* name, std::vector<T> SelfPlayGame::* column) {
  game.def_prop_rw(
      name, [column](const SelfPlayGame& self) { return copied<T>(self.*column); },
      [column](SelfPlayGame& self, Input1<T> values) {
        (self.*column).assign(values.data(), values.data() + values.size());
      },
      nb::rv_policy::move);
}

void bind_records(nb::module_& module) {
  nb::class_<Found>(module, "SearchResult", "What a finished search says of its root, for the side to move.")
      .def_ro("move", &Found::move, "the move to play")
      .def_prop_ro(
          "policy", [](const Found& self) { return copied<double>(self.policy); }, nb::rv_policy::move,
          "f64 [num_legal]: shares of the legal moves, by ascending policy index")
      .def_prop_ro("root_q", [](const Found& self) { return self.result.root_q; })
      .def_prop_ro("root_d", [](const Found& self) { return self.result.root_d; })
      .def_prop_ro("best_q", [](const Found& self) { return self.result.best_q; })
      .def_prop_ro("best_d", [](const Found& self) { return self.result.best_d; })
      .def_prop_ro("orig_q", [](const Found& self) { return self.result.orig_q; })
      .def_prop_ro("orig_d", [](const Found& self) { return self.result.orig_d; })
      .def_prop_ro("visits", [](const Found& self) { return self.result.visits; })
      .def_prop_ro("proven", [](const Found& self) { return self.result.proven; }, "-1, 0, 1; 2: not proven");
  nb::enum_<GameEnd>(module, "GameEnd", "What ended a game of self-play.")
      .value("NONE", GameEnd::kNone, "it is under way")
      .value("RULES", GameEnd::kRules)
      .value("RESIGNATION", GameEnd::kResignation)
      .value("TOO_LONG", GameEnd::kTooLong, "drawn at max_plies");
  nb::class_<SelfPlayGame> game(module, "SelfPlayGame",
                                "A game, over or under way; arrays have an entry a ply.");
  game.def(nb::init<>())
      .def_rw("lane", &SelfPlayGame::lane)
      .def_rw("number", &SelfPlayGame::number, "within the lane")
      .def_rw("end", &SelfPlayGame::end)
      .def_rw("termination", &SelfPlayGame::termination, "where the rules ended it")
      .def_rw("result", &SelfPlayGame::result, "+1: the first player won")
      .def_rw("plays_through", &SelfPlayGame::plays_through)
      .def_rw("resign_ply", &SelfPlayGame::resign_ply, "where a side would have resigned first; -1: nowhere");
  bind_column(game, "moves", &SelfPlayGame::moves);
  bind_column(game, "flags", &SelfPlayGame::flags);
  bind_column(game, "root_q", &SelfPlayGame::root_q);
  bind_column(game, "root_d", &SelfPlayGame::root_d);
  bind_column(game, "best_q", &SelfPlayGame::best_q);
  bind_column(game, "best_d", &SelfPlayGame::best_d);
  bind_column(game, "orig_q", &SelfPlayGame::orig_q);
  bind_column(game, "orig_d", &SelfPlayGame::orig_d);
  bind_column(game, "visits", &SelfPlayGame::visits);
  bind_column(game, "policy_offset", &SelfPlayGame::policy_offset);
  bind_column(game, "policy_move", &SelfPlayGame::policy_move);
  bind_column(game, "policy_prob", &SelfPlayGame::policy_prob);
}

}  // namespace

void bind_search(nb::module_& module) {
  bind_settings(module);
  nb::class_<EvaluationCache>(module, "EvaluationCache",
                              "Evaluations of one network by its exact input; the oldest make room. For one "
                              "search or pool at a time.")
      .def(nb::init<std::uint64_t>(), nb::arg("size_bytes"))
      .def("clear", &EvaluationCache::clear, "Forget them: another network.");
  bind_records(module);
#define ALPHAZERO_BIND_SEARCHES(G)              \
  bind_one<G>(module, #G "Search");             \
  bind_line_search<G>(module, #G "LineSearch"); \
  bind_self_play<G>(module, #G "SelfPlay");
  ALPHAZERO_ALL_GAMES(ALPHAZERO_BIND_SEARCHES)
#undef ALPHAZERO_BIND_SEARCHES
}

}  // namespace alphazero::bindings
