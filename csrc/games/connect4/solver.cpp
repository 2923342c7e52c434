#include "games/connect4/solver.hpp"

#include <algorithm>
#include <bit>

#include "games/hash.hpp"

// The search is the classical one: stones as bits, moves that lose at once left out, those that make most
// threats first, null windows (Tromp 1995, John's Connect Four Playground; Pons 2015-2019, "Solving Connect
// Four: how to build a perfect AI").

namespace alphazero::connect4 {
namespace {

constexpr int kWidth = Connect4::kBoardWidth;
constexpr int kHeight = Connect4::kBoardHeight;
constexpr int kSquares = kWidth * kHeight;
constexpr int kColumnBits = kHeight + 1;
constexpr std::uint64_t kBottom = 0x40810204081;
constexpr std::uint64_t kAll = kBottom * ((1 << kHeight) - 1);
constexpr std::uint64_t kColumn = (1 << kHeight) - 1;
constexpr std::array<int, kWidth> kCentreFirst = {3, 2, 4, 1, 5, 0, 6};

// Positions with more stones are not mirrored and not asked about before they are searched: it costs more
// than it saves.
constexpr int kMirroredStones = 24;
constexpr int kForesightStones = 26;

// Bounds in the table: 0 is none, then upper bounds, then lower ones.
constexpr int kLowestScore = -(kSquares / 2);
constexpr int kUpper = 1 - kLowestScore;
constexpr int kLower = kUpper + kSquares + 1;

// Empty squares that make four with these stones.
std::uint64_t winning_squares(std::uint64_t stones, std::uint64_t occupied) {
  std::uint64_t squares = stones << 1 & stones << 2 & stones << 3;
  for (const int step : {kColumnBits - 1, kColumnBits, kColumnBits + 1}) {
    const std::uint64_t above = stones << step & stones << 2 * step;
    const std::uint64_t below = stones >> step & stones >> 2 * step;
    squares |= above & (stones << 3 * step | stones >> step);
    squares |= below & (stones >> 3 * step | stones << step);
  }
  return squares & (kAll ^ occupied);
}

std::uint64_t playable(std::uint64_t occupied) { return (occupied + kBottom) & kAll; }

std::uint64_t mirrored(std::uint64_t bits) {
  std::uint64_t result = 0;
  for (int column = 0; column < kWidth; ++column) {
    result |= (bits >> column * kColumnBits & 0x7F) << (kWidth - 1 - column) * kColumnBits;
  }
  return result;
}

}  // namespace

Solver::Solver(std::size_t table_mib)
    : table_(std::bit_floor(std::max<std::size_t>(1, table_mib) * (1 << 20) / sizeof(std::uint64_t))) {}

// Stones of the mover plus all stones plus the bottom row: a 1 above the highest stone of each column.
std::uint64_t Solver::key_of(const Position& position) const {
  const std::uint64_t key = position.mover + position.occupied + kBottom;
  return position.num_stones > kMirroredStones ? key : std::min(key, mirrored(key));
}

std::size_t Solver::place_of(std::uint64_t key) const { return mix64(key) & (table_.size() - 1); }

std::uint8_t Solver::find(std::uint64_t key) const {
  const std::uint64_t entry = table_[place_of(key)];
  return entry >> 8 == key ? static_cast<std::uint8_t>(entry) : 0;
}

void Solver::keep(std::uint64_t key, std::uint8_t bound) { table_[place_of(key)] = key << 8 | bound; }

// The score within [alpha, beta], or a bound beyond the end it lies beyond. The mover cannot win at once.
int Solver::search(const Position& position, std::uint64_t key, int alpha, int beta) {
  ++num_nodes_;
  const std::uint64_t opponent = position.mover ^ position.occupied;
  const std::uint64_t threats = winning_squares(opponent, position.occupied);
  std::uint64_t moves = playable(position.occupied);
  if (const std::uint64_t forced = moves & threats; forced != 0) {
    if ((forced & (forced - 1)) != 0) return -((kSquares - position.num_stones) / 2);
    moves = forced;
  }
  moves &= ~(threats >> 1);  // not below a square that wins for the other side
  if (moves == 0) return -((kSquares - position.num_stones) / 2);
  if (position.num_stones >= kSquares - 2) return 0;

  // Nobody wins with this stone or the next.
  const int least = -((kSquares - 2 - position.num_stones) / 2);
  int most = (kSquares - 1 - position.num_stones) / 2;
  const int bound = find(key);
  alpha = std::max(alpha, least);
  if (bound >= kLower + kLowestScore) {
    alpha = std::max(alpha, bound - kLower);
  } else if (bound != 0) {
    most = std::min(most, bound - kUpper);
  }
  if (alpha >= beta) return alpha;
  beta = std::min(beta, most);
  if (alpha >= beta) return beta;

  std::array<Child, kWidth> children;
  int count = 0;
  for (const int column : kCentreFirst) {
    const std::uint64_t move = moves & kColumn << column * kColumnBits;
    if (move == 0) continue;
    Child child;
    child.position = {opponent, position.occupied | move, position.num_stones + 1};
    child.key = key_of(child.position);
    __builtin_prefetch(&table_[place_of(child.key)]);
    child.threats = std::popcount(winning_squares(position.mover | move, child.position.occupied));
    int place = count++;
    for (; place > 0 && children[place - 1].threats < child.threats; --place)
      children[place] = children[place - 1];
    children[place] = child;
  }
  if (position.num_stones < kForesightStones) {
    for (int i = 0; i < count; ++i) {
      const int known = find(children[i].key);
      const bool is_upper = known != 0 && known < kLower + kLowestScore;
      if (is_upper && -(known - kUpper) >= beta) {
        keep(key, static_cast<std::uint8_t>(-(known - kUpper) + kLower));
        return -(known - kUpper);
      }
    }
  }
  for (int i = 0; i < count; ++i) {
    const int score = -search(children[i].position, children[i].key, -beta, -alpha);
    if (score >= beta) {
      keep(key, static_cast<std::uint8_t>(score + kLower));
      return score;
    }
    alpha = std::max(alpha, score);
  }
  keep(key, static_cast<std::uint8_t>(alpha + kUpper));
  return alpha;
}

// The score, known to lie in [low, high], by null windows; those near 0 are the easiest.
int Solver::bisect(const Position& position, int low, int high) {
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (middle <= 0 && low / 2 < middle) {
      middle = low / 2;
    } else if (middle >= 0 && high / 2 > middle) {
      middle = high / 2;
    }
    const int found = search(position, key_of(position), middle, middle + 1);
    (found <= middle ? high : low) = found;
  }
  return low;
}

int Solver::score(const Board& board) {
  const Position position{board.mover, board.occupied, std::popcount(board.occupied)};
  const std::uint64_t wins = winning_squares(board.mover, board.occupied) & playable(board.occupied);
  if (wins != 0) return (kSquares + 1 - position.num_stones) / 2;
  return bisect(position, -((kSquares - position.num_stones) / 2), (kSquares - 1 - position.num_stones) / 2);
}

int Solver::outcome(const Board& board) {
  const Position position{board.mover, board.occupied, std::popcount(board.occupied)};
  const std::uint64_t wins = winning_squares(board.mover, board.occupied) & playable(board.occupied);
  if (wins != 0) return 1;
  if (search(position, key_of(position), 0, 1) > 0) return 1;
  return search(position, key_of(position), -1, 0) < 0 ? -1 : 0;
}

template <typename Value>
std::array<int, kWidth> Solver::for_each_move(const Board& board, const Value& value) {
  std::array<int, kWidth> values;
  for (int column = 0; column < kWidth; ++column) {
    if (!Connect4::can_apply(board, static_cast<Move>(column))) {
      values[column] = kIllegal;
      continue;
    }
    Board next = board;
    Connect4::apply(next, static_cast<Move>(column));
    values[column] = value(next);
  }
  return values;
}

std::array<int, kWidth> Solver::move_scores(const Board& board) {
  return for_each_move(board, [this](const Board& next) {
    const int num_stones = std::popcount(next.occupied);
    if (has_four(next.opponent())) return (kSquares + 2 - num_stones) / 2;
    return num_stones == kSquares ? 0 : -score(next);
  });
}

std::array<int, kWidth> Solver::move_outcomes(const Board& board) {
  return for_each_move(board, [this](const Board& next) {
    if (has_four(next.opponent())) return 1;
    return std::popcount(next.occupied) == kSquares ? 0 : -outcome(next);
  });
}

}  // namespace alphazero::connect4
