// What a position at the end of a walk is, before the network sees it: a function of the moves that lead to
// it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "games/game.hpp"
#include "games/line.hpp"
#include "search/edges.hpp"
#include "search/evaluation_cache.hpp"
#include "search/game_tree.hpp"
#include "search/leaves.hpp"
#include "search/settings.hpp"

namespace alphazero {

template <Game G>
struct Leaf {
  // Asked for.
  std::vector<Move> path;  // from the root
  bool is_made = false;    // by this walk: it may be the end of the game

  // Found; the last six not of a leaf that ends().
  bool keeps_turn = false;  // its mover is the player who moved last
  Outcome outcome;
  std::uint16_t two_fold = 0;  // plies since it stood on the board before, within the tree; 0: it did not
  std::vector<std::uint16_t> indices;  // of the legal moves in the policy, ascending
  std::vector<Move> moves;             // the same moves
  std::uint16_t winning = kNoPlace;    // place of a move that ends the game as a win
  bool winner_moves = false;           // after that move
  std::vector<std::uint8_t> packed;
  InputKey key;

  bool ends() const { return outcome.over() || two_fold > 0; }
};

// Looks at leaves; for one thread at a time.
template <Game G>
class LeafReader {
 public:
  using State = typename G::State;

  // The line that leads to the root.
  void set_line(FrameSpan<State> line) {
    frames_.assign(line.begin(), line.end());
    num_line_ = line.size();
  }

  // only: the moves that may be searched, where the leaf is the root.
  void look(Leaf<G>& leaf, std::span<const Move> only, const EngineSettings& settings) {
    frames_.resize(num_line_);
    for (const Move move : leaf.path) go_on(move);
    leaf.outcome = {};
    leaf.two_fold = 0;
    if (leaf.is_made) {
      leaf.keeps_turn = !passes_turn<G>(frames_[frames_.size() - 2].state, frames_.back().state);
      leaf.outcome = legal_.look_at(frames_.back());
      if (!leaf.outcome.over() && settings.two_fold_draws) leaf.two_fold = plies_back(leaf.path.size());
      if (leaf.ends()) return;
    } else {
      legal_.list(frames_.back().state);
    }
    const std::span<const std::uint16_t> indices = legal_.indices();
    leaf.indices.assign(indices.begin(), indices.end());
    leaf.moves.clear();
    for (const std::uint16_t index : indices) {
      leaf.moves.push_back(G::index_to_move(frames_.back().state, index));
    }
    find_win(leaf, leaf.path.empty() ? only : std::span<const Move>{});
    leaf.packed.resize(packed_bytes<G>());
    const std::size_t shown = std::min<std::size_t>(frames_.size(), G::kHistory);
    G::encode(FrameSpan<State>(frames_).last(shown), settings.fill, leaf.packed.data());
    leaf.key = key_of_leaf<G>(leaf.packed, leaf.indices);
  }

 private:
  void go_on(Move move) {
    Frame<State> next{frames_.back().state, 0};
    G::apply(next.state, move);
    frames_.push_back(next);
    const int reach = G::can_repeat(next.state);
    if (reach < 4) return;  // no position comes back in less
    const auto key_at = [this](std::size_t ply) { return G::hash(frames_[ply].state); };
    frames_.back().repetitions = count_repetitions(key_at, frames_.size() - 1, reach);
  }

  // Since the position stood on the board before, at most `depth` plies ago; 0: it did not.
  std::uint16_t plies_back(std::size_t depth) const {
    if (frames_.back().repetitions == 0) return 0;
    const std::uint64_t key = G::hash(frames_.back().state);
    for (std::size_t back = 2; back <= depth; back += 2) {
      if (G::hash(frames_[frames_.size() - 1 - back].state) != key) continue;
      return static_cast<std::uint16_t>(std::min<std::size_t>(back, UINT16_MAX));
    }
    return 0;
  }

  void find_win(Leaf<G>& leaf, std::span<const Move> only) const {
    leaf.winning = kNoPlace;
    if constexpr (RulesOutside<G>) return;  // the walks find it
    const State& state = frames_.back().state;
    const auto may_win = may_win_in(state);
    for (std::size_t place = 0; place < leaf.moves.size(); ++place) {
      if (!may_win(leaf.moves[place]) || !may_search(only, leaf.moves[place])) continue;
      Frame<State> next{state, 0};
      G::apply(next.state, leaf.moves[place]);
      if constexpr (requires { next.state.in_check(); }) {
        if (!next.state.in_check()) continue;
      }
      const Outcome outcome = G::terminal(FrameSpan<State>(&next, 1));
      const bool winner_moves = !passes_turn<G>(state, next.state);
      if (!outcome.over() || outcome.value != (winner_moves ? 1 : -1)) continue;
      leaf.winning = static_cast<std::uint16_t>(place);
      leaf.winner_moves = winner_moves;
      return;
    }
  }

  static auto may_win_in(const State& state) {
    if constexpr (requires { typename G::MayWin; }) {
      return typename G::MayWin(state);
    } else {
      return [](Move) { return true; };
    }
  }

  std::vector<Frame<State>> frames_;  // the line up to the root, then the path of the leaf
  std::size_t num_line_ = 0;          // of them of the line
  LegalIndices<G> legal_;
};

}  // namespace alphazero
