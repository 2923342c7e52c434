// Python face of the PGN parser, of the place where PGN text may be cut, and of the check of stored games.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>

#include "bindings/bindings.hpp"
#include "bindings/search_arrays.hpp"
#include "data/game_check.hpp"
#include "data/pgn_lexer.hpp"
#include "data/pgn_parser.hpp"
#include "games/all_games.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace alphazero::bindings {
namespace {

using pgn::Fault;
using pgn::NoteColumn;
using pgn::NumberColumn;
using pgn::PgnGames;
using pgn::QuarantinedGame;
using pgn::TextColumn;

// A read-only numpy view; the binding's reference_internal keeps the owner alive.
template <typename T>
using View = nb::ndarray<nb::numpy, const T, nb::ndim<1>>;

template <typename T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
View<T> view(const std::vector<T>& values) {
  return View<T>(values.data(), {values.size()});
}

template <typename T>
std::span<const T> span_of(const Input<T>& array) {
  return {array.data(), array.size()};
}

std::string_view text_of(const nb::bytes& text, std::size_t begin, std::size_t end) {
  if (begin > end || end > text.size()) throw std::out_of_range("begin and end must lie within the text");
  if (end - begin >= std::size_t{1} << 31) throw std::length_error("at most 2 GiB of PGN text at once");
  return {text.c_str() + begin, end - begin};
}

PgnGames parse_pgn(const nb::bytes& text, std::size_t begin, std::size_t end) {
  const std::string_view games = text_of(text, begin, end);
  const nb::gil_scoped_release release;
  return pgn::parse_games(games);
}

std::size_t last_game_begin(const nb::bytes& text) {
  const std::string_view all = text_of(text, 0, text.size());
  const nb::gil_scoped_release release;
  return pgn::last_game_begin(all);
}

void check_offsets(const Input<std::int32_t>& offsets, std::size_t size, const char* name) {
  bool fits = offsets.size() > 0 && offsets.data()[0] >= 0;
  for (std::size_t at = 1; fits && at < offsets.size(); ++at)
    fits = offsets.data()[at - 1] <= offsets.data()[at];
  fits = fits && static_cast<std::size_t>(offsets.data()[offsets.size() - 1]) <= size;
  if (!fits) throw nb::value_error((std::string(name) + " must ascend within its array").c_str());
}

template <Game G>
std::optional<IllegalGame> find_illegal(const Input<std::uint16_t>& moves,
                                        const Input<std::int32_t>& moves_offset,
                                        const Input<std::uint8_t>& fen_bytes,
                                        const Input<std::int32_t>& fen_offset,
                                        const std::optional<SearchArrays>& search, RuledEnds* ends) {
  check_offsets(moves_offset, moves.size(), "moves_offset");
  check_offsets(fen_offset, fen_bytes.size(), "fen_offset");
  if (moves_offset.size() != fen_offset.size()) throw nb::value_error("offsets must have equal lengths");
  const std::span<const char> fens(reinterpret_cast<const char*>(fen_bytes.data()), fen_bytes.size());
  const SearchColumns columns = search ? columns_of(*search) : SearchColumns{};
  if (search) columns.check("searches", span_of(moves_offset));
  return find_illegal_game<G>(span_of(moves), span_of(moves_offset), fens, span_of(fen_offset),
                              search ? &columns : nullptr, ends);
}

template <Game G>
void bind_check(nb::module_& module) {
  static const std::string name = "find_illegal_" + std::string(G::kName) + "_game";
  module.def(name.c_str(), &find_illegal<G>, "moves"_a.noconvert(), "moves_offset"_a.noconvert(),
             "fen_bytes"_a.noconvert(), "fen_offset"_a.noconvert(), "search"_a.noconvert() = nb::none(),
             "ends"_a.none() = nb::none(), nb::call_guard<nb::gil_scoped_release>(),
             "The first of N games with an illegal move, played or in the policy of a search, or None. moves "
             "u16 [M], moves_offset i32 [N + 1], fen_bytes u8, fen_offset i32 [N + 1] (an empty text is the "
             "usual start), search: SearchView.core_arrays(). ends: is given what the rules say of each last "
             "position, up to the first fault, which a move after the end is then, too.");
}

template <typename T>
void bind_notes(nb::module_& module, const char* name) {
  constexpr auto kInternal = nb::rv_policy::reference_internal;
  using C = NoteColumn<T>;
  nb::class_<C>(module, name, "A column of lists, an entry a ply; a list and an entry may be null.")
      .def_prop_ro(
          "value", [](const C& c) { return view(c.value); }, kInternal, "[entries]; 0 where null")
      .def_prop_ro(
          "valid", [](const C& c) { return view(c.valid); }, kInternal, "u8 [entries]: 1 or 0 (null)")
      .def_prop_ro(
          "offset", [](const C& c) { return view(c.offset); }, kInternal, "i32 [G + 1]")
      .def_prop_ro(
          "list_valid", [](const C& c) { return view(c.list_valid); }, kInternal, "u8 [G]: 1 or 0 (null)");
}

void bind_columns(nb::module_& module) {
  constexpr auto kInternal = nb::rv_policy::reference_internal;
  nb::class_<TextColumn>(module, "PgnText", "A column of nullable UTF-8 text in Arrow's layout.")
      .def_prop_ro(
          "bytes", [](const TextColumn& c) { return view(c.bytes); }, kInternal, "u8")
      .def_prop_ro(
          "offset", [](const TextColumn& c) { return view(c.offset); }, kInternal, "i32 [G + 1]")
      .def_prop_ro(
          "valid", [](const TextColumn& c) { return view(c.valid); }, kInternal, "u8 [G]: 1 or 0 (null)");
  nb::class_<NumberColumn>(module, "PgnNumbers", "A column of nullable numbers.")
      .def_prop_ro(
          "value", [](const NumberColumn& c) { return view(c.value); }, kInternal, "i32 [G]; 0 where null")
      .def_prop_ro(
          "valid", [](const NumberColumn& c) { return view(c.valid); }, kInternal, "u8 [G]: 1 or 0 (null)");
  bind_notes<std::int32_t>(module, "PgnNotesI32");
  bind_notes<std::int16_t>(module, "PgnNotesI16");
  bind_notes<std::uint16_t>(module, "PgnNotesU16");
  bind_notes<std::uint8_t>(module, "PgnNotesU8");
  bind_notes<std::uint32_t>(module, "PgnNotesU32");
  nb::enum_<Fault>(module, "PgnFault", "Why a game was not imported.")
      .value("MOVE", Fault::kMove)
      .value("NULL_MOVE", Fault::kNullMove)
      .value("FEN", Fault::kFen)
      .value("VARIANT", Fault::kVariant)
      .value("OPEN_COMMENT", Fault::kOpenComment)
      .value("OPEN_VARIATION", Fault::kOpenVariation);
  nb::class_<QuarantinedGame>(module, "PgnQuarantined", "A game that cannot be replayed.")
      .def_ro("game", &QuarantinedGame::game, "number of the game in this text, from 0")
      .def_ro("line", &QuarantinedGame::line, "line of the fault in this text, from 0")
      .def_ro("ply", &QuarantinedGame::ply, "plies read before the fault")
      .def_ro("fault", &QuarantinedGame::fault)
      .def_ro("reason", &QuarantinedGame::reason, "one line that quotes the offending text");
}

}  // namespace

void bind_pgn(nb::module_& module) {
  bind_columns(module);
  constexpr auto kInternal = nb::rv_policy::reference_internal;
  nb::class_<PgnGames>(module, "PgnGames", "Columns of G games with M plies; the arrays are views into it.")
      .def_prop_ro(
          "moves", [](const PgnGames& g) { return view(g.moves); }, kInternal, "u16 [M]")
      .def_prop_ro(
          "moves_offset", [](const PgnGames& g) { return view(g.moves_offset); }, kInternal, "i32 [G + 1]")
      .def_prop_ro(
          "result", [](const PgnGames& g) { return view(g.result); }, kInternal,
          "i8 [G]: +1 white won, 0, -1; 0 where not valid")
      .def_prop_ro(
          "result_valid", [](const PgnGames& g) { return view(g.result_valid); }, kInternal, "u8 [G]")
      .def_prop_ro(
          "is_chess960", [](const PgnGames& g) { return view(g.is_chess960); }, kInternal, "u8 [G]")
      .def_prop_ro(
          "contradiction", [](const PgnGames& g) { return view(g.contradiction); }, kInternal,
          "u8 [G]: 1 where mate or stalemate stands on the board and the result is another")
      .def_prop_ro(
          "game", [](const PgnGames& g) { return view(g.game); }, kInternal,
          "i32 [G], number of the game in this text, from 0")
      .def_ro("start_fen", &PgnGames::start_fen, "null: the standard start")
      .def_ro("termination", &PgnGames::termination)
      .def_ro("white", &PgnGames::white)
      .def_ro("black", &PgnGames::black)
      .def_ro("event", &PgnGames::event)
      .def_ro("date", &PgnGames::date)
      .def_ro("time_control", &PgnGames::time_control)
      .def_ro("white_elo", &PgnGames::white_elo)
      .def_ro("black_elo", &PgnGames::black_elo)
      .def_ro("eval_cp", &PgnGames::eval_cp, "of the comments, as the columns of the store have them")
      .def_ro("eval_mate", &PgnGames::eval_mate)
      .def_ro("eval_depth", &PgnGames::eval_depth)
      .def_ro("eval_source", &PgnGames::eval_source)
      .def_ro("clock_ms", &PgnGames::clock_ms)
      .def_prop_ro(
          "faulty_game", [](const PgnGames& g) { return view(g.faulty_game); }, kInternal,
          "i32 [Q]: number of each quarantined game in this text, ascending")
      .def_prop_ro(
          "fault", [](const PgnGames& g) { return view(g.fault); }, kInternal, "u8 [Q]: its PgnFault")
      .def_ro("quarantined", &PgnGames::quarantined, "the first kMostDescribed of the Q")
      .def_ro("games_read", &PgnGames::games_read, "G + Q")
      .def_ro("skipped", &PgnGames::skipped, "words of the G games that are no moves")
      .def_ro("lines", &PgnGames::lines, "line ends in the text");
  module.def("parse_pgn", &parse_pgn, "text"_a, "begin"_a, "end"_a,
             "Read text[begin:end], which begins and ends where games do. The GIL is released.");
  module.def(
      "last_game_begin", &last_game_begin, "text"_a,
      "Where the last game begins in text that begins with a game and goes on beyond its end; 0 if only the "
      "first is known to begin. The text may be cut there. The GIL is released.");
  nb::class_<IllegalGame>(module, "IllegalGame", "A stored game that breaks the rules.")
      .def_ro("game", &IllegalGame::game, "row")
      .def_ro("ply", &IllegalGame::ply)
      .def_ro("reason", &IllegalGame::reason);
  nb::class_<RuledEnds>(module, "RuledEnds", "What the rules say of the last positions of games.")
      .def(nb::init<>(), "Of none yet.")
      .def_prop_ro(
          "termination", [](const RuledEnds& ends) { return view(ends.termination); }, kInternal,
          "u8 [N]: the value of a Termination")
      .def_prop_ro(
          "result", [](const RuledEnds& ends) { return view(ends.result); }, kInternal,
          "i8 [N]: 1, 0 or -1, +1 the first player won; 0 where the game is not over")
      .def_prop_ro(
          "first_to_move", [](const RuledEnds& ends) { return view(ends.first_to_move); }, kInternal,
          "u8 [N]: 1 where it is the first player's turn");
#define ALPHAZERO_BIND_CHECK(G) bind_check<G>(module);
  ALPHAZERO_ALL_GAMES(ALPHAZERO_BIND_CHECK)
#undef ALPHAZERO_BIND_CHECK
}

}  // namespace alphazero::bindings
