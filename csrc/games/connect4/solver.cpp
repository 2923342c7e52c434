#include "games/connect4/solver.hpp"

#include <algorithm>
#include <bit>

#include "games/connect4/parity.hpp"

// Alpha-beta on stones as bits, with a table (Tromp 1995, "John's Connect Four Playground"; Pons 2015,
// "Solving Connect Four: how to build a perfect AI", explains the score and the search by null windows). The
// proofs by parity make the tree two to nine times smaller (docs/connect4.md).

namespace alphazero::connect4 {
namespace {

constexpr std::array<int, kWidth> kCentreFirst = {3, 2, 4, 1, 5, 0, 6};

// With more stones a mirror image hardly ever turns up, the table is not asked about the children before they
// are searched, and nothing is kept: it would cost more than it saves.
constexpr int kMirroredStones = 22;
constexpr int kForesightStones = 31;
constexpr int kKeptStones = 36;

int score_of_loss(int num_stones) { return -((kSquares - num_stones) / 2); }  // by the next stone
int score_of_win(int num_stones) { return (kSquares + 1 - num_stones) / 2; }  // by this one

std::uint64_t mirrored(std::uint64_t stones) {
  constexpr std::uint64_t kLeft = 0x7F;
  std::uint64_t result = stones & kLeft << 3 * kColumnBits;
  for (const int column : {0, 1, 2}) {
    const int distance = (kWidth - 1 - 2 * column) * kColumnBits;
    const std::uint64_t mask = kLeft << column * kColumnBits;
    result |= (stones & mask) << distance | (stones >> distance & mask);
  }
  return result;
}

// An entry of the table, from the top: the position's whole hash, the logarithm of the work that is lost with
// the entry, both bounds. 0 is an empty one.
constexpr int kHashBits = kColumnBits * kWidth;
constexpr std::uint64_t kHashMask = (std::uint64_t{1} << kHashBits) - 1;
constexpr int kBoundBits = 6;
constexpr std::uint64_t kBoundMask = (1 << kBoundBits) - 1;
constexpr int kBoundOffset = 32;
constexpr int kWorkShift = 2 * kBoundBits;
constexpr std::uint64_t kMostWork = 7;
constexpr int kHashShift = kWorkShift + 3;
static_assert(kHashShift + kHashBits == 64);

// One to one on 49 bits, so that equal hashes mean equal positions. A position is named by the mover's stones
// plus all stones plus the bottom row: a 1 above the highest stone of each column, below it a 1 for the
// mover's.
std::uint64_t hash_of(std::uint64_t mover, std::uint64_t occupied, int num_stones) {
  std::uint64_t name = mover + occupied + kBottom;
  if (num_stones <= kMirroredStones) name = std::min(name, mirrored(name));
  name = name * 0x9E3779B97F4A7C15 & kHashMask;
  name ^= name >> 25;
  return name * 0xD6E8FEB86659FD93 & kHashMask;
}

// `win` for a move that makes four, 0 for one that fills the board, else minus the value of what it leads to.
template <typename Value>
Solver::Values after_each_move(const Board& board, int win, const Value& value) {
  Solver::Values values;
  for (Move column = 0; column < kWidth; ++column) {
    if (!Connect4::can_apply(board, column)) {
      values[column] = Solver::kIllegal;
      continue;
    }
    Board next = board;
    Connect4::apply(next, column);
    if (has_four(next.opponent())) {
      values[column] = win;
    } else {
      values[column] = next.occupied == kBoard ? 0 : -value(next);
    }
  }
  return values;
}

}  // namespace

Solver::Solver(std::size_t table_mib)
    : table_(std::bit_floor(std::max<std::size_t>(1, table_mib)) * (1 << 20) / sizeof(Bucket)),
      hash_shift_(kHashBits - std::countr_zero(table_.size())) {}

Solver::Bounds Solver::find(std::uint64_t hash, Bounds unknown) const {
  for (const std::uint64_t entry : bucket_of(hash).entries) {
    if (entry >> kHashShift != hash || entry == 0) continue;
    return {static_cast<int>(entry >> kBoundBits & kBoundMask) - kBoundOffset,
            static_cast<int>(entry & kBoundMask) - kBoundOffset};
  }
  return unknown;
}

// In place of the position's own entry, or of the one in the bucket that was least work.
void Solver::keep(std::uint64_t hash, Bounds bounds, std::uint64_t work) {
  const auto size = std::min<std::uint64_t>(kMostWork, std::bit_width(work) / 3);
  const std::uint64_t entry = hash << kHashShift | size << kWorkShift |
                              static_cast<std::uint64_t>(bounds.low + kBoundOffset) << kBoundBits |
                              static_cast<std::uint64_t>(bounds.high + kBoundOffset);
  std::uint64_t* place = nullptr;
  std::uint64_t least_work = kMostWork + 1;
  for (std::uint64_t& old : table_[hash >> hash_shift_].entries) {
    if (old == 0 || old >> kHashShift == hash) {
      place = &old;
      break;
    }
    const std::uint64_t old_work = old >> kWorkShift & kMostWork;
    if (old_work < least_work) {
      least_work = old_work;
      place = &old;
    }
  }
  *place = entry;
}

// Most threats first; equals stay in the order in which they came.
void Solver::Children::add(const Node& node) {
  int place = count++;
  for (; place > 0 && nodes[place - 1].num_threats < node.num_threats; --place)
    nodes[place] = nodes[place - 1];
  nodes[place] = node;
}

// The children by these moves, the likeliest to be good first, or a bound above alpha that makes them
// needless.
int Solver::expand(const Node& node, std::uint64_t moves, int alpha, Children& children) const {
  const std::uint64_t opponent = node.mover ^ node.occupied;
  const int num_stones = node.num_stones + 1;
  for (const int column : kCentreFirst) {
    const std::uint64_t move = moves & kColumn << column * kColumnBits;
    if (move == 0) continue;
    const std::uint64_t occupied = node.occupied | move;
    const std::uint64_t threats = winning_squares(node.mover | move, occupied);
    // Parity never proves more than a win in the last four squares.
    if (alpha < 2) {
      const int score = -bound_by_parity(opponent, occupied, threats);
      if (score > alpha) return score;
    }
    const std::uint64_t hash = hash_of(opponent, occupied, num_stones);
    if (num_stones <= kKeptStones) __builtin_prefetch(&bucket_of(hash));
    children.add({opponent, occupied, threats, hash, num_stones, std::popcount(threats)});
  }
  return num_stones <= kForesightStones ? known_bound(children, alpha) : -kNoBound;
}

// A bound above alpha that the table has by one of the children, else -kNoBound.
int Solver::known_bound(const Children& children, int alpha) const {
  for (int i = 0; i < children.count; ++i) {
    const int score = -find(children.nodes[i].hash, {-kNoBound, kNoBound}).high;
    if (score > alpha) return score;
  }
  return -kNoBound;
}

int Solver::search_children(const Children& children, int alpha) {
  int best = -kNoBound;
  for (int i = 0; i < children.count && best <= alpha; ++i) {
    best = std::max(best, -search(children.nodes[i], -alpha - 1));
  }
  return best;
}

int Solver::search(const Node& node, int alpha) {
  const std::uint64_t num_nodes_before = num_nodes();
  num_nodes_.store(num_nodes_before + 1, std::memory_order_relaxed);  // one thread writes
  std::uint64_t moves = playable(node.occupied);
  if (const std::uint64_t forced = moves & node.threats; forced != 0) {
    if ((forced & (forced - 1)) != 0) return score_of_loss(node.num_stones);
    moves = forced;
  }
  moves &= ~(node.threats >> 1);  // not below a square that wins for the other side
  if (moves == 0) return score_of_loss(node.num_stones);
  if (node.num_stones >= kSquares - 2) return 0;

  // Nobody wins with this stone or the next, and only who can still make four wins at all.
  const Bounds obvious{score_of_loss(node.num_stones + 2), score_of_win(node.num_stones + 2)};
  if (obvious.low > alpha) return obvious.low;
  if (obvious.high <= alpha) return obvious.high;
  const std::uint64_t empty = kBoard ^ node.occupied;
  if (alpha == 0 && !has_four(node.mover | empty)) return 0;
  if (alpha == -1 && !has_four((node.mover ^ node.occupied) | empty)) return 0;

  Bounds bounds = find(node.hash, obvious);
  if (bounds.low > alpha) return bounds.low;
  if (bounds.high <= alpha) return bounds.high;

  Children children;
  int score = expand(node, moves, alpha, children);
  if (score <= alpha) score = search_children(children, alpha);
  if (node.num_stones <= kKeptStones) {
    (score > alpha ? bounds.low : bounds.high) = score;
    keep(node.hash, bounds, num_nodes() - num_nodes_before);
  }
  return score;
}

// As search(), for any position in which the game is not over.
int Solver::bound(const Board& board, int alpha) {
  const int num_stones = std::popcount(board.occupied);
  if ((winning_squares(board.mover, board.occupied) & playable(board.occupied)) != 0) {
    return score_of_win(num_stones);
  }
  const std::uint64_t threats = winning_squares(board.opponent(), board.occupied);
  const int score = bound_by_parity(board.mover, board.occupied, threats);
  if (score <= alpha) return score;
  return search({board.mover, board.occupied, threats, hash_of(board.mover, board.occupied, num_stones),
                 num_stones, std::popcount(threats)},
                alpha);
}

int Solver::score(const Board& board) {
  const int num_stones = std::popcount(board.occupied);
  Bounds bounds{score_of_loss(num_stones), score_of_win(num_stones)};
  int alpha = 0;
  while (bounds.low < bounds.high) {
    const int found = bound(board, alpha);
    (found > alpha ? bounds.low : bounds.high) = found;
    // First the sign; then a quarter of the way on, as late wins are both likelier and easier to test.
    if (bounds.low > 0) {
      alpha = bounds.low + (bounds.high - bounds.low) / 4;
    } else if (bounds.high < 0) {
      alpha = bounds.high - 1 - (bounds.high - 1 - bounds.low) / 4;
    } else {
      alpha = -1;
    }
  }
  return bounds.low;
}

int Solver::outcome(const Board& board) {
  const int found = bound(board, 0);
  if (found != 0) return found > 0 ? 1 : -1;
  return bound(board, -1) < 0 ? -1 : 0;
}

bool Solver::at_least(const Board& board, int score) { return bound(board, score - 1) >= score; }

Solver::Values Solver::move_scores(const Board& board) {
  return after_each_move(board, score_of_win(std::popcount(board.occupied)),
                         [this](const Board& next) { return score(next); });
}

Solver::Values Solver::move_outcomes(const Board& board) {
  return after_each_move(board, 1, [this](const Board& next) { return outcome(next); });
}

}  // namespace alphazero::connect4
