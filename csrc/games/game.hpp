// The game concept: what a game must offer to be replayed, encoded, searched and trained on.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace alphazero {

// A move in the game's own compact form, as stores keep it. Chess: from | to << 6 | promotion << 12
// (castling: king takes rook; promotion 0 none, 1 knight, 2 bishop, 3 rook, 4 queen). Other games: a column,
// a square.
using Move = std::uint16_t;

enum class Termination : std::uint8_t {
  kNone = 0,
  kWin = 1,        // one side has won, usually by its last move; Outcome::value says which
  kStalemate = 2,  // no move is left, and nobody has won
  kRepetition = 3,
  kFiftyMoves = 4,
  kInsufficientMaterial = 5,
  kBoardFull = 6,
  kDraw = 7,  // as the rules say
};

// `value` is the result from the point of view of the side to move: -1 lost, 0 drawn, 1 won. Meaningless when
// termination is kNone.
struct Outcome {
  Termination termination = Termination::kNone;
  std::int8_t value = 0;
  bool over() const { return termination != Termination::kNone; }
};

// How positions before the first known one are shown to the network (lc0's --history-fill).
enum class HistoryFill : std::uint8_t {
  kNo = 0,       // missing positions are empty planes
  kFenOnly = 1,  // a game from a FEN repeats its first position, the standard start does not
};

// A position and how often it stood on the board before in this line (0, 1, or 2 for twice or more).
template <typename State>
struct Frame {
  State state;
  std::uint8_t repetitions = 0;
};

// Oldest first; the last one is the current position. The first one is the game's first position, unless
// older frames than the game's encoding shows (G::kHistory) were left out.
template <typename State>
using FrameSpan = std::span<const Frame<State>>;

// A game may also have what the search would otherwise make of the rest:
//   legal_indices(state, indices): fills `indices` with the policy indices of legal(), in ascending order;
//   terminal(line, has_legal_move): as terminal(line), given whether legal() lists a move;
//   MayWin(state): a function of the state's legal moves, false only for one that does not end the game as a
//   win.
template <typename G>
concept Game =
    requires(const typename G::State& state, typename G::State& mutable_state, std::vector<Move>& moves,
             Move move, FrameSpan<typename G::State> line, std::uint8_t* packed, std::string_view text) {
      requires std::regular<typename G::State>;
      { G::kName } -> std::convertible_to<std::string_view>;
      { G::kBoardHeight } -> std::convertible_to<int>;
      { G::kBoardWidth } -> std::convertible_to<int>;
      { G::kNumBitPlanes } -> std::convertible_to<int>;     // each 8 bytes of a packed position
      { G::kNumScalarPlanes } -> std::convertible_to<int>;  // each 1 byte of a packed position
      { G::kHistory } -> std::convertible_to<int>;          // newest frames that encode() looks at
      { G::kPolicySize } -> std::convertible_to<int>;
      { G::kMaxLegalMoves } -> std::convertible_to<int>;
      { G::kMaxPlies } -> std::convertible_to<int>;     // no game is longer (a bound, not a rule)
      { G::kAlternates } -> std::convertible_to<bool>;  // players take turns without exception
      // Ways to turn the board that change nothing of the game; number 0 leaves it as it is. turned_move is
      // the move in the turned position. can_turn: whether that holds from this position on.
      { G::kNumSymmetries } -> std::convertible_to<int>;
      { G::turned(state, 0) } -> std::same_as<typename G::State>;
      { G::turned_move(move, 0) } -> std::same_as<Move>;
      { G::can_turn(state) } -> std::same_as<bool>;
      { G::initial() } -> std::same_as<typename G::State>;
      { G::from_string(text) } -> std::same_as<typename G::State>;  // throws GameError
      { G::to_string(state) } -> std::same_as<std::string>;
      // Appends nothing else: `moves` is cleared first. Empty if and only if the rules leave no move;
      // a position that is over for another reason may still list moves.
      { G::legal(state, moves) } -> std::same_as<void>;
      { G::apply(mutable_state, move) } -> std::same_as<void>;  // move must be legal
      { G::hash(state) } -> std::same_as<std::uint64_t>;        // equal positions (repetition) <=> equal hash
      { G::can_repeat(state) } -> std::same_as<int>;   // plies back that may hold this position (rule50)
      { G::terminal(line) } -> std::same_as<Outcome>;  // of the last frame
      // Writes kNumBitPlanes little-endian u64 (bit = rank * width + file seen by the mover, file 0 =
      // bit 0), then kNumScalarPlanes bytes.
      { G::encode(line, HistoryFill::kNo, packed) } -> std::same_as<void>;
      // [0, kPolicySize), mover's view; -1 for a move that no position knows.
      { G::move_to_index(state, move) } -> std::same_as<int>;
      {
        G::index_to_move(state, 0)
      } -> std::same_as<Move>;  // legal only if the index belongs to a legal move
      // Can `move` be applied without harm to the state's own order? Cheap, true for every legal move, and
      // false for what would read or write out of bounds: stored moves are replayed behind it.
      { G::can_apply(state, move) } -> std::same_as<bool>;
      { G::move_to_string(state, move) } -> std::same_as<std::string>;
      { G::move_from_string(state, text) } -> std::same_as<Move>;  // throws GameError
      { G::first_player_to_move(state) } -> std::same_as<bool>;
    };

// Rules that are not the core's own (games/foreign): sizes are known at run time, a position takes longer to
// make than to evaluate, and the network's input need not show the legal moves.
template <typename G>
concept RulesOutside = requires { requires G::kRulesAreOutside; };

// A bit for each policy index, none set.
template <typename G>
auto policy_bits() {
  if constexpr (RulesOutside<G>) {
    return std::vector<std::uint64_t>((G::kPolicySize + 63) / 64);
  } else {
    return std::array<std::uint64_t, (G::kPolicySize + 63) / 64>{};
  }
}

// Does the other player move after the move that led from `before` to `after`? Where not, values for the side
// to move keep their sign.
template <typename G>
bool passes_turn(const typename G::State& before, const typename G::State& after) {
  if constexpr (G::kAlternates) {
    return true;
  } else {
    return G::first_player_to_move(before) != G::first_player_to_move(after);
  }
}

// Bytes of a packed position: bit planes or float planes, then the scalars.
template <typename G>
constexpr std::size_t packed_bytes() {
  std::size_t bytes = std::size_t{8} * G::kNumBitPlanes + G::kNumScalarPlanes;
  if constexpr (RulesOutside<G>) {
    bytes += sizeof(float) * G::kNumFloatPlanes * G::kBoardHeight * G::kBoardWidth;
  }
  return bytes;
}

}  // namespace alphazero
