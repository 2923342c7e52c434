// Lines of play of every game, with their encoding, for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "games/all_games.hpp"
#include "games/game.hpp"
#include "games/line.hpp"

namespace nb = nanobind;

namespace alphazero::bindings {
namespace {

template <Game G>
std::vector<Move> legal_moves(const Line<G>& line) {
  std::vector<Move> moves;
  G::legal(line.state(), moves);
  return moves;
}

template <Game G>
bool is_legal(const Line<G>& line, Move move) {
  const std::vector<Move> moves = legal_moves(line);
  return std::find(moves.begin(), moves.end(), move) != moves.end();
}

template <Game G>
void push_checked(Line<G>& line, Move move) {
  if (!is_legal(line, move)) {
    throw GameError("move " + std::to_string(move) + ": not legal in '" + G::to_string(line.state()) + "'");
  }
  line.push(move);
}

template <Game G>
Array1<std::uint8_t> packed(const Line<G>& line, HistoryFill fill) {
  std::vector<std::uint8_t> bytes(packed_bytes<G>());
  G::encode(line.frames(), fill, bytes.data());
  return to_numpy(std::move(bytes));
}

template <Game G>
Array1<std::int32_t> legal_indices(const Line<G>& line) {
  std::vector<std::int32_t> indices;
  for (const Move move : legal_moves(line)) indices.push_back(G::move_to_index(line.state(), move));
  std::sort(indices.begin(), indices.end());
  return to_numpy(std::move(indices));
}

template <Game G>
Move index_to_move(const Line<G>& line, int index) {
  if (index < 0 || index >= G::kPolicySize) throw nb::index_error("policy index out of range");
  return G::index_to_move(line.state(), index);
}

template <Game G>
Line<G> make_line(std::optional<std::string_view> start) {
  return start ? Line<G>(G::from_string(*start)) : Line<G>();
}

template <Game G>
void bind_sizes(nb::object line) {
  line.attr("NAME") = nb::str(G::kName.data(), G::kName.size());
  line.attr("BOARD_HEIGHT") = nb::int_(G::kBoardHeight);
  line.attr("BOARD_WIDTH") = nb::int_(G::kBoardWidth);
  line.attr("NUM_BIT_PLANES") = nb::int_(G::kNumBitPlanes);
  if constexpr (RulesOutside<G>) {
    line.attr("NUM_FLOAT_PLANES") = nb::int_(G::kNumFloatPlanes);
  } else {
    line.attr("NUM_FLOAT_PLANES") = nb::int_(0);
  }
  line.attr("NUM_SCALAR_PLANES") = nb::int_(G::kNumScalarPlanes);
  line.attr("POLICY_SIZE") = nb::int_(G::kPolicySize);
  line.attr("MAX_LEGAL_MOVES") = nb::int_(G::kMaxLegalMoves);
  line.attr("MAX_PLIES") = nb::int_(G::kMaxPlies);
  line.attr("NUM_SYMMETRIES") = nb::int_(G::kNumSymmetries);
  line.attr("ALTERNATES") = nb::bool_(G::kAlternates);
}

template <Game G>
void bind_line(nb::module_& module, const char* name) {
  using L = Line<G>;
  nb::class_<L> line(module, name, "A line of play: a start position and the moves since.");
  line.def(
          "__init__",
          [](L* self, std::optional<std::string_view> start) { new (self) L(make_line<G>(start)); },
          nb::arg("start") = nb::none(),
          "From the start of the game, or from a position as text (chess: FEN).")
      .def(
          "copy", [](const L& self) { return L(self); }, "An independent copy.")
      .def("push", &push_checked<G>, nb::arg("move"), "Play a legal move; GameError for another.")
      .def(
          "push_text",
          [](L& self, std::string_view text) { self.push(G::move_from_string(self.state(), text)); },
          nb::arg("text"), "Play a legal move given as text (chess: UCI); GameError for another.")
      .def(
          "pop",
          [](L& self) {
            if (self.num_plies() == 0) throw nb::index_error("no move to take back");
            self.pop();
          },
          "Take the last move back; IndexError at the start.")
      .def("legal", &legal_moves<G>,
           "Legal moves in the core's order; none exactly where the rules leave none.")
      .def("legal_indices", &legal_indices<G>,
           "i32 [num_legal]: policy indices of the legal moves, ascending.")
      .def("packed", &packed<G>, nb::arg("fill") = HistoryFill::kFenOnly,
           "u8 [packed_bytes]: the position as the network gets it, seen by the side to move.")
      .def(
          "perft",
          [](const L& self, int depth) {
            if (depth < 0) throw nb::value_error("depth must not be negative");
            return perft<G>(self.state(), depth);
          },
          nb::arg("depth"), nb::call_guard<nb::gil_scoped_release>(),
          "Leaves of the tree of moves `depth` plies deep; lines that end earlier do not count.")
      .def("outcome", &L::outcome, "How the game has ended here, if it has.")
      .def(
          "move_to_index", [](const L& self, Move move) { return G::move_to_index(self.state(), move); },
          nb::arg("move"),
          "Policy index of a move, seen by the side to move; -1 if no piece moves like that.")
      .def("index_to_move", &index_to_move<G>, nb::arg("index"),
           "The move of a policy index here; legal only if the index is in legal_indices().")
      .def(
          "move_to_text", [](const L& self, Move move) { return G::move_to_string(self.state(), move); },
          nb::arg("move"), "A legal move as text (chess: UCI).")
      .def(
          "text_to_move",
          [](const L& self, std::string_view text) { return G::move_from_string(self.state(), text); },
          nb::arg("text"), "A legal move from text; GameError for another.")
      .def(
          "__str__", [](const L& self) { return G::to_string(self.state()); },
          "The current position as text (chess: FEN).")
      .def_prop_ro(
          "key", [](const L& self) { return G::hash(self.state()); },
          "u64: equal for positions that count as repeated.")
      .def_prop_ro("repetitions", &L::repetitions, "Earlier visits to this position: 0, 1, or 2 for more.")
      .def_prop_ro("num_plies", &L::num_plies, "Moves played since the start of the line.")
      .def_prop_ro(
          "first_player_to_move", [](const L& self) { return G::first_player_to_move(self.state()); },
          "Is it the turn of the player who moves first in the game (chess: white)?");
  if constexpr (RulesOutside<G>) {
    line.def(
        "drawing", [](const L& self) { return G::drawing(self.state()); },
        "The current position as the rules draw it, in several lines.");
  }
  bind_sizes<G>(line);
}

}  // namespace

void bind_foreign_sizes() { bind_sizes<Foreign>(nb::borrow(nb::type<Line<Foreign>>())); }

void bind_games(nb::module_& module) {
  nb::enum_<Termination>(module, "Termination", "Why a game is over.")
      .value("NONE", Termination::kNone)
      .value("WIN", Termination::kWin, "one side has won: value says which")
      .value("STALEMATE", Termination::kStalemate)
      .value("REPETITION", Termination::kRepetition)
      .value("FIFTY_MOVES", Termination::kFiftyMoves)
      .value("INSUFFICIENT_MATERIAL", Termination::kInsufficientMaterial)
      .value("BOARD_FULL", Termination::kBoardFull)
      .value("DRAW", Termination::kDraw, "as the rules say");
  nb::enum_<HistoryFill>(module, "HistoryFill", "What stands for positions before the first (lc0).")
      .value("NO", HistoryFill::kNo, "empty planes")
      .value("FEN_ONLY", HistoryFill::kFenOnly, "the first position again, unless it is the standard start");
  nb::class_<Outcome>(module, "Outcome", "How a game ended.")
      .def_ro("termination", &Outcome::termination)
      .def_ro("value", &Outcome::value, "for the side to move: -1 lost, 0 drawn (or not over), 1 won")
      .def_prop_ro("over", &Outcome::over);
#define ALPHAZERO_BIND_LINE(G) bind_line<G>(module, #G "Line");
  ALPHAZERO_ALL_GAMES(ALPHAZERO_BIND_LINE)
#undef ALPHAZERO_BIND_LINE
  module.def(
      "chess_policy_moves",
      [] {
        std::vector<std::string> moves;
        for (int index = 0; index < Chess::kPolicySize; ++index)
          moves.push_back(chess::policy_move_text(index));
        return moves;
      },
      "lc0's 1858 policy moves in index order, from white's side: 'a1b1' ... 'h7h8b'.");
}

}  // namespace alphazero::bindings
