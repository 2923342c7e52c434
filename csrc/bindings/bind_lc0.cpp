// Python face of lc0's training records: files of them to columns, stored games to files of them.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "data/lc0_games.hpp"
#include "data/lc0_record.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace alphazero::bindings {
namespace {

template <typename T>
using View = nb::ndarray<nb::numpy, const T, nb::ndim<1>>;

template <typename T>
View<T> view(const std::vector<T>& values) {
  return View<T>(values.data(), {values.size()});
}

std::size_t number_at(const std::string& name) {
  for (std::size_t i = 0; i < lc0::kNumberNames.size(); ++i) {
    if (lc0::kNumberNames[i] == name) return i;
  }
  throw nb::key_error(name.c_str());
}

using Numbers = std::vector<std::optional<Input1<float>>>;

template <typename T>
std::span<const T> span_of(const std::optional<Input1<T>>& array) {
  return array ? as_span(*array) : std::span<const T>();
}

nb::bytes records_of(const std::string& start, const Input1<std::uint16_t>& moves, int result, lc0::End end,
                     const std::optional<Input1<std::uint8_t>>& flags,
                     const std::optional<Input1<float>>& root_q, const std::optional<Input1<float>>& root_d,
                     const std::optional<Input1<float>>& best_q,
                     const std::optional<Input1<std::uint32_t>>& visits,
                     const std::optional<Input1<std::uint32_t>>& policy_offset,
                     const std::optional<Input1<std::uint16_t>>& policy_move,
                     const std::optional<Input1<std::uint16_t>>& policy_prob, const Numbers& numbers,
                     const std::optional<Input1<std::uint16_t>>& best_move) {
  if (numbers.size() != lc0::kNumberNames.size()) throw nb::value_error("expected one entry a number");
  lc0::StoredGame game{.start = start,
                       .moves = as_span(moves),
                       .result = result,
                       .end = end,
                       .flags = span_of(flags),
                       .root_q = span_of(root_q),
                       .root_d = span_of(root_d),
                       .best_q = span_of(best_q),
                       .visits = span_of(visits),
                       .policy_offset = span_of(policy_offset),
                       .policy_move = span_of(policy_move),
                       .policy_prob = span_of(policy_prob),
                       .numbers = {},
                       .best_move = span_of(best_move)};
  for (std::size_t i = 0; i < numbers.size(); ++i) game.numbers[i] = span_of(numbers[i]);
  std::vector<std::uint8_t> records;
  {
    const nb::gil_scoped_release release;
    records = lc0::records_of(game);
  }
  return nb::bytes(reinterpret_cast<const char*>(records.data()), records.size());
}

void bind_columns(nb::class_<lc0::Games>& games) {
  constexpr auto kInternal = nb::rv_policy::reference_internal;
  const auto column = [&](const char* name, auto member, const char* doc) {
    games.def_prop_ro(name, [member](const lc0::Games& g) { return view(g.*member); }, kInternal, doc);
  };
  column("moves", &lc0::Games::moves, "u16 [M]");
  column("moves_offset", &lc0::Games::moves_offset, "i32 [G + 1]");
  column("result", &lc0::Games::result, "i8 [G]: +1 white won, 0, -1");
  column("end", &lc0::Games::end, "u8 [G]: Lc0End");
  column("version", &lc0::Games::version, "u8 [G]: of the records, 6 or 7");
  column("fen_bytes", &lc0::Games::fen_bytes, "u8");
  column("fen_offset", &lc0::Games::fen_offset, "i32 [G + 1]; empty text: the standard start");
  column("flags", &lc0::Games::flags, "u8 [M]: as in the store");
  column("root_q", &lc0::Games::root_q, "f32 [M]");
  column("root_d", &lc0::Games::root_d, "f32 [M]");
  column("best_q", &lc0::Games::best_q, "f32 [M]");
  column("visits", &lc0::Games::visits, "u32 [M]");
  column("best_move", &lc0::Games::best_move, "u16 [M]");
  column("policy_offset", &lc0::Games::policy_offset, "u32 [M + G]: within the game's own policies");
  column("policy_part_offset", &lc0::Games::policy_part_offset, "i32 [G + 1]");
  column("policy_move", &lc0::Games::policy_move, "u16");
  column("policy_prob", &lc0::Games::policy_prob, "u16: 1/65535");
}

}  // namespace

void bind_lc0(nb::module_& module) {
  nb::enum_<lc0::End>(module, "Lc0End", "How a game ended, as lc0's records tell.")
      .value("UNKNOWN", lc0::End::kUnknown)
      .value("WIN", lc0::End::kWin)
      .value("STALEMATE", lc0::End::kStalemate)
      .value("REPETITION", lc0::End::kRepetition)
      .value("FIFTY_MOVES", lc0::End::kFiftyMoves)
      .value("INSUFFICIENT_MATERIAL", lc0::End::kInsufficientMaterial)
      .value("ADJUDICATED", lc0::End::kAdjudicated, "or resigned")
      .value("TOO_LONG", lc0::End::kTooLong);
  nb::class_<lc0::Games> games(module, "Lc0Games",
                               "Columns of G games with M plies, from files of lc0's training records; the "
                               "arrays are views into it.");
  games.def(nb::init<>())
      .def("begin", &lc0::Games::begin, "A game: its file of records is taken next, piece by piece.")
      .def(
          "take",
          [](lc0::Games& self, const nb::bytes& piece) {
            const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(piece.c_str()),
                                                      piece.size());
            const nb::gil_scoped_release release;
            self.take(bytes);
          },
          "piece"_a,
          "The next bytes of the file, uncompressed. GameError where the game cannot be rebuilt: nothing is "
          "added. The GIL is released.")
      .def("finish", &lc0::Games::finish, "Add the game; GameError where its last record is cut off.")
      .def(
          "number",
          [](const lc0::Games& self, const std::string& name) { return view(self.numbers[number_at(name)]); },
          "name"_a, nb::rv_policy::reference_internal,
          "f32 [M]: a column by its name in lc0_number_names(); NaN: not known");
  bind_columns(games);
  module.def(
      "lc0_number_names",
      [] { return std::vector<std::string>(lc0::kNumberNames.begin(), lc0::kNumberNames.end()); },
      "Columns of numbers that a game has for each ply, in the order that lc0_records takes.");
  module.attr("LC0_V6_BYTES") = sizeof(lc0::Record);
  module.def("lc0_records", &records_of, "start"_a, "moves"_a.noconvert(), "result"_a, "end"_a, nb::kw_only(),
             "flags"_a.noconvert() = nb::none(), "root_q"_a.noconvert() = nb::none(),
             "root_d"_a.noconvert() = nb::none(), "best_q"_a.noconvert() = nb::none(),
             "visits"_a.noconvert() = nb::none(), "policy_offset"_a.noconvert() = nb::none(),
             "policy_move"_a.noconvert() = nb::none(), "policy_prob"_a.noconvert() = nb::none(), "numbers"_a,
             "best_move"_a.noconvert() = nb::none(),
             "V6 records of a stored game, its arrays as in a shard; without `flags` no search made it. "
             "numbers: one array or None for each of lc0_number_names(). GameError for a game that cannot be "
             "replayed. The GIL is released.");
}

}  // namespace alphazero::bindings
