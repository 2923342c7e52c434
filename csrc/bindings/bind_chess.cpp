// Python face of the chess rules: ChessPosition, and random games for tests.
#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "bindings/bindings.hpp"
#include "games/chess/notation.hpp"
#include "games/chess/position.hpp"

namespace nb = nanobind;

namespace alphazero::bindings {

namespace {

using chess::Position;

Move checked(const Position& position, std::string_view kind, std::string_view text, Move move) {
  if (move == 0) {
    throw GameError(std::string(kind) + " " + quoted(text) + ": expected a legal move in " + position.fen());
  }
  return move;
}

Move checked_move(const Position& position, Move move) {
  const bool legal = position.is_legal(move);
  return checked(position, "move", std::to_string(move), legal ? move : Move{0});
}

std::vector<Move> legal_moves(const Position& position) {
  std::vector<Move> moves;
  position.legal_moves(moves);
  return moves;
}

std::vector<std::string> legal_uci(const Position& position, bool chess960) {
  std::vector<std::string> texts;
  for (const Move move : legal_moves(position)) texts.push_back(to_uci(position, move, chess960));
  return texts;
}

// Uniformly random legal moves until there is none or `max_plies` are played.
std::vector<Move> random_playout(std::uint64_t seed, int max_plies, Position position) {
  std::mt19937_64 random(seed);
  std::vector<Move> played;
  std::vector<Move> moves;
  while (static_cast<int>(played.size()) < max_plies) {
    position.legal_moves(moves);
    if (moves.empty()) break;
    played.push_back(moves[random() % moves.size()]);
    position.apply(played.back());
  }
  return played;
}

}  // namespace

void bind_chess(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Position>(
      module, "ChessPosition",
      "A chess position (Chess960 throughout).\n\n"
      "Moves are integers from | to << 6 | promotion << 12 (a1 = 0, h8 = 63; promotion 0 none, "
      "1 knight, 2 bishop, 3 rook, 4 queen; castling is king takes own rook). Text that is no "
      "position or no legal move raises GameError.")
      .def(
          "__init__",
          [](Position* self, std::optional<std::string_view> fen) {
            new (self) Position(fen ? Position::from_fen(*fen) : Position::initial());
          },
          "fen"_a = nb::none(),
          "The standard start, or a FEN of four to six fields (KQkq, X-FEN or Shredder-FEN castling).")
      .def(
          "copy", [](const Position& self) { return Position(self); }, "A position of its own.")
      .def("legal_moves", &legal_moves, "All legal moves, in an order that depends on the position alone.")
      .def("legal_uci", &legal_uci, "chess960"_a = false,
           "All legal moves as UCI, in the order of legal_moves(); castling as e1g1, with chess960 as e1h1.")
      .def("is_legal", &Position::is_legal, "move"_a, "Whether these 16 bits are a legal move here.")
      .def(
          "push", [](Position& self, Move move) { self.apply(checked_move(self, move)); }, "move"_a,
          "Play a move; GameError if it is not legal.")
      .def(
          "push_uci",
          [](Position& self, std::string_view uci) {
            self.apply(checked(self, "UCI move", uci, chess::parse_uci(self, uci)));
          },
          "uci"_a, "Play a move given as UCI (castling as e1g1 or king takes rook).")
      .def(
          "push_san",
          [](Position& self, std::string_view san) {
            self.apply(checked(self, "SAN move", san, chess::parse_san(self, san)));
          },
          "san"_a, "Play a move given as SAN, as PGN files write it.")
      .def(
          "parse_uci",
          [](const Position& self, std::string_view uci) {
            return checked(self, "UCI move", uci, chess::parse_uci(self, uci));
          },
          "uci"_a, "The move that a UCI text means here.")
      .def(
          "parse_san",
          [](const Position& self, std::string_view san) {
            return checked(self, "SAN move", san, chess::parse_san(self, san));
          },
          "san"_a, "The move that a SAN text means here.")
      .def(
          "san",
          [](const Position& self, Move move) { return chess::to_san(self, checked_move(self, move)); },
          "move"_a, "A legal move as SAN, with check and mate marks.")
      .def(
          "uci",
          [](const Position& self, Move move, bool chess960) {
            return chess::to_uci(self, checked_move(self, move), chess960);
          },
          "move"_a, "chess960"_a = false, "A legal move as UCI.")
      .def("fen", &Position::fen, "FEN; en passant only where a legal capture exists, castling as X-FEN.")
      .def("in_check", &Position::in_check, "Whether the side to move is in check.")
      .def("insufficient_material", &Position::insufficient_material,
           "Whether neither side can mate (python-chess's is_insufficient_material).")
      .def(
          "perft", [](const Position& self, int depth) { return chess::perft(self, depth); }, "depth"_a,
          nb::call_guard<nb::gil_scoped_release>(), "Leaves of the tree of legal moves `depth` plies deep.")
      .def_prop_ro("halfmove_clock", &Position::halfmove_clock, "Plies since a capture or pawn move.")
      .def_prop_ro("fullmove_number", &Position::fullmove_number, "1 at the start, plus 1 after Black.")
      .def_prop_ro(
          "turn", [](const Position& self) { return self.side_to_move() == chess::kWhite; },
          "True for White, as python-chess.")
      .def_prop_ro(
          "key", &Position::key,
          "64-bit key; equal for repeated positions (en passant counts where a legal capture exists).")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object, /) -> bool"),
           "Same placement, side, rights and counters.")
      .def("__repr__", [](const Position& self) { return "ChessPosition('" + self.fen() + "')"; });

  module.def(
      "chess_random_playout",
      [](std::uint64_t seed, int max_plies, std::optional<std::string_view> fen) {
        return random_playout(seed, max_plies, fen ? Position::from_fen(*fen) : Position::initial());
      },
      "seed"_a, "max_plies"_a, "fen"_a = nb::none(),
      "Moves of a game of uniformly random legal moves, played until none is left or max_plies.");
}

}  // namespace alphazero::bindings
