// Searches side by side for Python: positions, and games of self-play.
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
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
#include "search/line_search.hpp"
#include "search/search_pool.hpp"
#include "search/self_play.hpp"

namespace nb = nanobind;

namespace alphazero::bindings {
namespace {

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
    "time) and continue until the next one: packed u8 [B, bytes], legal_index i32 [K], legal_offset i32 "
    "[B + 1], views that hold until the group's next step. B = 0: the group is done.";

template <Game G>
void bind_line_search(nb::module_& module, const char* name) {
  using P = Pooled<G, LineSearch<G>>;
  nb::class_<P>(module, name, "Positions searched side by side, each once.")
      .def(
          "__init__",
          [](P* self, const std::vector<Line<G>>& lines, const SearchSettings& settings, std::size_t slots,
             std::size_t groups, int num_threads, HistoryFill fill, DividedCache* cache) {
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
          "found", [](const P& self) { return self.driver.found(); },
          "The results, in the order of the lines.");
}

template <Game G>
void bind_self_play(nb::module_& module, const char* name) {
  using P = Pooled<G, SelfPlay<G>>;
  nb::class_<P>(module, name, "Games that a network plays against itself, in lanes.")
      .def(
          "__init__",
          [](P* self, const SelfPlaySettings& settings, std::size_t slots, std::size_t groups,
             int num_threads, HistoryFill fill, DividedCache* cache) {
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
          "begin",
          [](P& self, std::uint64_t budget, bool in_simulations) {
            self.driver.begin({budget, in_simulations});
          },
          nb::arg("budget"), nb::arg("in_simulations") = false,
          "Every lane plays `budget` searched moves, or to the end of the move at which it has used as many "
          "new simulations.")
      .def(
          "adjudicate",
          [](P& self, Judge judge, int most_pieces) {
            self.driver.adjudicate(std::move(judge), most_pieces);
          },
          nb::arg("judge"), nb::arg("most_pieces"),
          "End chess games with judge(FEN), -1, 0 or 1 for the side to move, where that is not None: at "
          "positions of at most so many pieces without castling rights. It must not raise, and steps call "
          "it on several threads.")
      .def(
          "stop_at_ends", [](P& self) { self.driver.stop_at_ends(); },
          "Lanes will play no further than to the end of their game.")
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

void bind_self_play_settings(nb::module_& module) {
  nb::class_<SelfPlaySettings>(module, "SelfPlaySettings", "How games are played.")
      .def(nb::init<>())
      .def_rw("search", &SelfPlaySettings::search)
      .def_rw("seed", &SelfPlaySettings::seed)
      .def_rw("full_search_share", &SelfPlaySettings::full_search_share)
      .def_rw("fast_simulations", &SelfPlaySettings::fast_simulations)
      .def_rw("dirichlet_alpha", &SelfPlaySettings::dirichlet_alpha)
      .def_rw("temperature", &SelfPlaySettings::temperature)
      .def_rw("temperature_plies", &SelfPlaySettings::temperature_plies)
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

void bind_self_play_games(nb::module_& module) {
  nb::enum_<GameEnd>(module, "GameEnd", "What ended a game of self-play.")
      .value("NONE", GameEnd::kNone, "it is under way")
      .value("RULES", GameEnd::kRules)
      .value("RESIGNATION", GameEnd::kResignation)
      .value("TOO_LONG", GameEnd::kTooLong, "drawn at max_plies")
      .value("ADJUDICATED", GameEnd::kAdjudicated, "by what adjudicate() was given");
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

void bind_search_pools(nb::module_& module) {
  bind_self_play_settings(module);
  bind_self_play_games(module);
#define ALPHAZERO_BIND_POOLS(G)                 \
  bind_line_search<G>(module, #G "LineSearch"); \
  bind_self_play<G>(module, #G "SelfPlay");
  ALPHAZERO_ALL_GAMES(ALPHAZERO_BIND_POOLS)
#undef ALPHAZERO_BIND_POOLS
}

}  // namespace alphazero::bindings
