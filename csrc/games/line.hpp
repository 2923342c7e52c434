// A line of play: the positions from a start to now, each with how often it stood there before.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "games/game.hpp"

namespace alphazero {

// How often the position at `ply` stood on the board before: 0, 1, or 2 for twice or more. key_at(i) is the
// hash of position i of the line, can_repeat the plies back that may hold the same position. Players take
// turns, so only every second position has the same side to move.
template <typename KeyAt>
std::uint8_t count_repetitions(const KeyAt& key_at, std::size_t ply, int can_repeat) {
  const std::size_t reach = std::min(ply, static_cast<std::size_t>(can_repeat));
  std::uint8_t count = 0;
  for (std::size_t back = 2; back <= reach; back += 2) {
    if (key_at(ply - back) == key_at(ply) && ++count == 2) break;
  }
  return count;
}

template <Game G>
class Line {
 public:
  using State = typename G::State;

  explicit Line(const State& start = G::initial()) { frames_.push_back({start, 0}); }

  // `move` must be legal; it may also be one after the game is over (programs play on after a draw).
  void push(Move move) {
    Frame<State> next{frames_.back().state, 0};
    G::apply(next.state, move);
    frames_.push_back(next);
    const auto key_at = [this](std::size_t ply) { return G::hash(frames_[ply].state); };
    frames_.back().repetitions = count_repetitions(key_at, num_plies(), G::can_repeat(next.state));
  }

  // Takes the last move back; there must be one.
  void pop() {
    assert(num_plies() > 0);
    frames_.pop_back();
  }

  const State& state() const { return frames_.back().state; }
  std::uint8_t repetitions() const { return frames_.back().repetitions; }
  FrameSpan<State> frames() const { return frames_; }
  std::size_t num_plies() const { return frames_.size() - 1; }
  Outcome outcome() const { return G::terminal(frames()); }

 private:
  std::vector<Frame<State>> frames_;  // never empty
};

// Leaves of the tree of moves `depth` plies deep; lines in which the rules leave no move earlier do not
// count.
template <Game G>
std::uint64_t perft(const typename G::State& state, int depth) {
  if (depth == 0) return 1;
  if constexpr (requires { state.num_legal_moves(); }) {  // chess counts faster than it lists
    if (depth == 1) return static_cast<std::uint64_t>(state.num_legal_moves());
  }
  std::vector<Move> moves;
  G::legal(state, moves);
  if (depth == 1) return moves.size();
  std::uint64_t leaves = 0;
  for (const Move move : moves) {
    typename G::State next = state;
    G::apply(next, move);
    leaves += perft<G>(next, depth - 1);
  }
  return leaves;
}

}  // namespace alphazero
