#include "games/othello/othello.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "games/grid_text.hpp"
#include "games/square_board.hpp"

namespace alphazero {
namespace {

constexpr int kDirections[] = {1, 7, 8, 9};  // right; up and to the left, straight, to the right
constexpr std::uint64_t kInnerColumns = 0x7E7E7E7E7E7E7E7E;
constexpr std::uint64_t kMiddle = 0x0000001818000000;
constexpr std::uint64_t kFirstAtStart = std::uint64_t{1} << 28 | std::uint64_t{1} << 35;   // e4, d5
constexpr std::uint64_t kSecondAtStart = std::uint64_t{1} << 27 | std::uint64_t{1} << 36;  // d4, e5

// Stones that a line may run through: none of the edge columns where it would leave the board there.
std::uint64_t passable(std::uint64_t stones, int direction) {
  return direction == 8 ? stones : stones & kInnerColumns;
}

std::uint64_t shifted(std::uint64_t squares, int direction) {
  return direction > 0 ? squares << direction : squares >> -direction;
}

// The unbroken lines of `through` that begin beside `from`; a line has at most six stones between two others.
std::uint64_t lines_from(std::uint64_t from, std::uint64_t through, int direction) {
  std::uint64_t line = shifted(from, direction) & through;
  for (int step = 1; step < 6; ++step) line |= shifted(line, direction) & through;
  return line;
}

bool is_over(const Othello::State& state) {
  return othello::targets(state.mover, state.opponent) == 0 &&
         othello::targets(state.opponent, state.mover) == 0;
}

}  // namespace

std::uint64_t othello::targets(std::uint64_t mover, std::uint64_t opponent) {
  std::uint64_t reached = 0;
  for (const int step : kDirections) {
    const std::uint64_t through = passable(opponent, step);
    for (const int direction : {step, -step}) {
      reached |= shifted(lines_from(mover, through, direction), direction);
    }
  }
  return reached & ~(mover | opponent);
}

std::uint64_t othello::flips(std::uint64_t mover, std::uint64_t opponent, int square) {
  std::uint64_t turned = 0;
  for (const int step : kDirections) {
    const std::uint64_t through = passable(opponent, step);
    for (const int direction : {step, -step}) {
      const std::uint64_t line = lines_from(std::uint64_t{1} << square, through, direction);
      if ((shifted(line, direction) & mover) != 0) turned |= line;
    }
  }
  return turned;
}

Othello::State Othello::initial() { return {kFirstAtStart, kSecondAtStart, true}; }

Move Othello::turned_move(Move move, int symmetry) {
  return move == kPass ? kPass : static_cast<Move>(turned_square(move, kBoardWidth, symmetry));
}

Othello::State Othello::turned(const State& state, int symmetry) {
  State turned{0, 0, state.first_moves};
  for (Move square = 0; square < kPass; ++square) {
    const Move to = turned_move(square, symmetry);
    turned.mover |= (state.mover >> square & 1) << to;
    turned.opponent |= (state.opponent >> square & 1) << to;
  }
  return turned;
}

Othello::State Othello::from_string(std::string_view text) {
  const std::size_t space = text.find(' ');
  const std::string_view side = space == std::string_view::npos ? "" : text.substr(space + 1);
  if (side != "x" && side != "o") {
    throw GameError("board " + quoted(text) + ": expected eight rows, a space, and x or o, who is to move");
  }
  const Grid grid = parse_grid(text.substr(0, space), kBoardHeight, kBoardWidth);
  if (((grid.first | grid.second) & kMiddle) != kMiddle) {
    throw GameError("board " + quoted(text) + ": expected stones on d4, e4, d5 and e5");
  }
  if (side == "x") return {grid.first, grid.second, true};
  return {grid.second, grid.first, false};
}

std::string Othello::to_string(const State& state) {
  const Grid grid = state.first_moves ? Grid{state.mover, state.opponent} : Grid{state.opponent, state.mover};
  return format_grid(grid, kBoardHeight, kBoardWidth) + (state.first_moves ? " x" : " o");
}

void Othello::legal(const State& state, std::vector<Move>& moves) {
  moves.clear();
  const std::uint64_t targets = othello::targets(state.mover, state.opponent);
  for (std::uint64_t left = targets; left != 0; left &= left - 1) {
    moves.push_back(static_cast<Move>(std::countr_zero(left)));
  }
  if (targets == 0 && !is_over(state)) moves.push_back(kPass);
}

void Othello::apply(State& state, Move move) {
  if (move != kPass) {
    const std::uint64_t turned = othello::flips(state.mover, state.opponent, move);
    state.mover |= turned | std::uint64_t{1} << move;
    state.opponent ^= turned;
  }
  std::swap(state.mover, state.opponent);
  state.first_moves = !state.first_moves;
}

bool Othello::can_apply(const State& state, Move move) {
  return move == kPass || (move < kPass && (state.occupied() >> move & 1) == 0);
}

std::uint64_t Othello::hash(const State& state) {
  return mix64(mix64(state.mover) + state.opponent + (state.first_moves ? kGolden : 0));
}

// Neither side has a move, as on a full board: more stones win.
Outcome Othello::terminal(FrameSpan<State> line) {
  const State& state = line.back().state;
  if (!is_over(state)) return {};
  const int lead = std::popcount(state.mover) - std::popcount(state.opponent);
  if (lead != 0) return {Termination::kWin, static_cast<std::int8_t>(lead > 0 ? 1 : -1)};
  return {~state.occupied() == 0 ? Termination::kBoardFull : Termination::kStalemate, 0};
}

void Othello::encode(FrameSpan<State> line, HistoryFill, std::uint8_t* packed) {
  const State& state = line.back().state;
  const std::uint64_t planes[kNumBitPlanes] = {state.mover, state.opponent};
  std::memcpy(packed, planes, sizeof planes);
  packed[sizeof planes] = state.first_moves ? 0 : 1;
  packed[sizeof planes + 1] = 1;
}

std::string Othello::move_to_string(const State&, Move move) {
  if (move == kPass) return "pass";
  return {static_cast<char>('a' + move % 8), static_cast<char>('1' + move / 8)};
}

Move Othello::move_from_string(const State& state, std::string_view text) {
  const bool is_square =
      text.size() == 2 && text[0] >= 'a' && text[0] <= 'h' && text[1] >= '1' && text[1] <= '8';
  if (!is_square && text != "pass") {
    throw GameError(quoted(text) + ": expected a square from a1 to h8, or pass");
  }
  const Move move = is_square ? static_cast<Move>((text[1] - '1') * 8 + text[0] - 'a') : kPass;
  std::vector<Move> moves;
  legal(state, moves);
  if (std::find(moves.begin(), moves.end(), move) == moves.end()) {
    throw GameError(quoted(text) + ": no legal move in " + quoted(to_string(state)));
  }
  return move;
}

}  // namespace alphazero
