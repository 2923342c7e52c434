// The exact solver of Connect Four for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <cstddef>

#include "base/error.hpp"
#include "bindings/bindings.hpp"
#include "games/connect4/solver.hpp"
#include "games/line.hpp"

namespace nb = nanobind;

namespace alphazero::bindings {
namespace {

using connect4::Board;
using connect4::Solver;

const Board& board_of(const Line<Connect4>& line) {
  if (line.outcome().over()) throw GameError("'" + Connect4::to_string(line.state()) + "': the game is over");
  return line.state();
}

}  // namespace

void bind_solver(nb::module_& module) {
  const nb::call_guard<nb::gil_scoped_release> without_gil;
  nb::class_<Solver> solver(module, "Connect4Solver",
                            "Exact values of Connect Four positions, for one thread at a time.");
  solver.attr("ILLEGAL") = nb::int_(Solver::kIllegal);
  solver
      .def(nb::init<std::size_t>(), nb::arg("table_mib") = 128,
           "table_mib: memory for what was proven, kept from one position to the next; a power of two is "
           "used.")
      .def(
          "score", [](Solver& self, const Line<Connect4>& line) { return self.score(board_of(line)); },
          nb::arg("line"), without_gil,
          "0 drawn, +k the side to move wins with its k-th last stone, -k it loses so. GameError: game over.")
      .def(
          "outcome", [](Solver& self, const Line<Connect4>& line) { return self.outcome(board_of(line)); },
          nb::arg("line"), without_gil, "The sign of the score, in far less time.")
      .def(
          "at_least",
          [](Solver& self, const Line<Connect4>& line, int score) {
            return self.at_least(board_of(line), score);
          },
          nb::arg("line"), nb::arg("score"), without_gil,
          "Whether the score is at least this: one search, where the sign may take two.")
      .def(
          "move_scores",
          [](Solver& self, const Line<Connect4>& line) { return self.move_scores(board_of(line)); },
          nb::arg("line"), without_gil,
          "Seven scores, for the side that moves, after a stone in each column; ILLEGAL where it is full.")
      .def(
          "move_outcomes",
          [](Solver& self, const Line<Connect4>& line) { return self.move_outcomes(board_of(line)); },
          nb::arg("line"), without_gil, "Their signs; ILLEGAL where the column is full.")
      .def_prop_ro("num_nodes", &Solver::num_nodes, "Positions searched so far.");
}

}  // namespace alphazero::bindings
