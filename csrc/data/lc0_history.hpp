// What the planes of a record tell of the positions before it: where a game began, and moves without a
// record.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/lc0_record.hpp"
#include "games/game.hpp"

namespace alphazero::lc0 {

// The board `back` positions before a record's own (0: its own), seen by the record's mover.
Board board_in(const Record& record, std::size_t back);

// The position before the moves, and the moves that lead from there to a record.
struct Beginning {
  chess::Position position;
  std::vector<Move> moves;
};

// Where the game of a first record begins: as far back as its planes show, where legal moves lead from there
// to the record's position; else at the record itself. Throws GameError for planes that are no position.
Beginning beginning_of(const Record& first);

// The moves from `position` to a record's position, which the record's planes show; none where they do not
// follow from it.
std::optional<std::vector<Move>> moves_between(const chess::Position& position, const Record& record);

}  // namespace alphazero::lc0
