#include "data/game_check.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "data/policy_check.hpp"
#include "games/all_games.hpp"
#include "games/line.hpp"

namespace alphazero {
namespace {

template <Game G>
bool is_legal(const typename G::State& state, Move move, std::vector<Move>& legal) {
  if constexpr (requires { state.is_legal(move); }) {
    return state.is_legal(move);
  } else {
    G::legal(state, legal);
    return std::find(legal.begin(), legal.end(), move) != legal.end();
  }
}

// What is wrong with a ply's policy, if anything; null: no policy.
template <Game G>
std::optional<PolicyFault> fault_of_policy(const SearchColumns* search, std::size_t game, std::size_t ply,
                                           const typename G::State& state, std::vector<Move>& legal) {
  if (search == nullptr || !search->has_game(game)) return std::nullopt;
  const auto moves = search->policy_of("searches", game, ply).first;
  if (moves.empty()) return std::nullopt;
  G::legal(state, legal);
  return find_policy_fault(moves, legal, [](Move move) { return move; });
}

template <Game G>
void add_end(RuledEnds& ends, const Line<G>& line) {
  const Outcome outcome = line.outcome();
  const bool first_to_move = G::first_player_to_move(line.state());
  const auto result = static_cast<std::int8_t>(first_to_move ? outcome.value : -outcome.value);
  ends.termination.push_back(static_cast<std::uint8_t>(outcome.termination));
  ends.result.push_back(outcome.over() ? result : std::int8_t{0});
  ends.first_to_move.push_back(first_to_move ? 1 : 0);
}

}  // namespace

template <Game G>
std::optional<IllegalGame> find_illegal_game(std::span<const Move> moves,
                                             std::span<const std::int32_t> moves_offset,
                                             std::span<const char> fen_bytes,
                                             std::span<const std::int32_t> fen_offset,
                                             const SearchColumns* search, RuledEnds* ends) {
  using State = typename G::State;
  const State initial = G::initial();
  const std::string_view fens(fen_bytes.data(), fen_bytes.size());
  std::vector<Move> legal;
  for (std::size_t game = 0; game + 1 < moves_offset.size(); ++game) {
    const auto row = static_cast<std::int64_t>(game);
    const std::int32_t fen_begin = fen_offset[game];
    const std::int32_t fen_end = fen_offset[game + 1];
    State state = initial;
    if (fen_begin != fen_end) {
      try {
        state = G::from_string(fens.substr(fen_begin, fen_end - fen_begin));
      } catch (const GameError& error) {
        return IllegalGame{row, 0, error.what()};
      }
    }
    Line<G> line(state);
    for (std::int32_t at = moves_offset[game]; at < moves_offset[game + 1]; ++at) {
      const std::int32_t ply = at - moves_offset[game];
      const Move move = moves[at];
      const auto fault = [&](Move at_fault, const std::string& what) {
        return IllegalGame{row, ply,
                           "move " + std::to_string(at_fault) + what + " in " + G::to_string(state)};
      };
      if (!is_legal<G>(state, move, legal)) return fault(move, " is not legal");
      const auto of_policy = fault_of_policy<G>(search, game, ply, state, legal);
      if (of_policy) return fault(of_policy->move, std::string(" of the policy ") + of_policy->what);
      if (ends == nullptr) {
        G::apply(state, move);
        continue;
      }
      if (line.outcome().over()) return fault(move, " is made after the end");
      line.push(move);
      state = line.state();
    }
    if (ends != nullptr) add_end(*ends, line);
  }
  return std::nullopt;
}

#define ALPHAZERO_FIND_ILLEGAL(G)                                                  \
  template std::optional<IllegalGame> find_illegal_game<G>(                        \
      std::span<const Move>, std::span<const std::int32_t>, std::span<const char>, \
      std::span<const std::int32_t>, const SearchColumns*, RuledEnds*);
ALPHAZERO_ALL_GAMES(ALPHAZERO_FIND_ILLEGAL)
#undef ALPHAZERO_FIND_ILLEGAL

}  // namespace alphazero
