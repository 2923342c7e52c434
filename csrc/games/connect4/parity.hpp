// What is seen in a Connect Four position without search: squares that win, and what one side can hold by
// always answering in the same column.
#pragma once

#include <bit>
#include <cstdint>

#include "games/connect4/connect4.hpp"

namespace alphazero::connect4 {

constexpr int kWidth = Connect4::kBoardWidth;
constexpr int kHeight = Connect4::kBoardHeight;
constexpr int kSquares = kWidth * kHeight;
constexpr int kColumnBits = kHeight + 1;
constexpr std::uint64_t kColumn = (1 << kHeight) - 1;
constexpr std::uint64_t kBottom = 0x40810204081;
constexpr std::uint64_t kBoard = kBottom * kColumn;
constexpr std::uint64_t kOddRows = kBottom * 0b010101;  // first, third and fifth
constexpr std::uint64_t kEvenRows = kBottom * 0b101010;
constexpr std::uint64_t kSecondRow = kBottom << 1;

// Empty squares that make four with these stones.
inline std::uint64_t winning_squares(std::uint64_t stones, std::uint64_t occupied) {
  std::uint64_t squares = stones << 1 & stones << 2 & stones << 3;
  for (const int step : {kColumnBits - 1, kColumnBits, kColumnBits + 1}) {
    const std::uint64_t two_below = stones << step & stones << 2 * step;
    const std::uint64_t two_above = stones >> step & stones >> 2 * step;
    squares |= two_below & (stones << 3 * step | stones >> step);
    squares |= two_above & (stones >> 3 * step | stones << step);
  }
  return squares & (kBoard ^ occupied);
}

inline std::uint64_t playable(std::uint64_t occupied) { return (occupied + kBottom) & kBoard; }

// Proofs by parity
//
// A side that always answers in the column where the other one has just played keeps the other one on the
// rows of one parity. Call the one who answers the follower, the one to move the leader. In a column with an
// even number of empty squares the leader can only ever get the lower one of each pair; where the number is
// odd, the lowest square is free and the pairs begin above it. If the number of free squares is even too, the
// follower answers a free one by another free one, and always has an answer. So the leader's stones, his
// squares of the pairs and all free ones together hold every four that he could make; if there is none he
// cannot win.
//
// - First player to move: all empty squares are even in number, so the second player can follow. He gets the
//   even rows, the leader the odd ones.
// - Second player to move, and the first has a square on an odd row that wins for him and is not playable:
// the
//   column is played to two below that square only. What is left of the board is even again, the first player
//   follows, and in the end the second must play just below the winning square. The leader gets the odd rows
//   elsewhere and in that column, where the pairs end on an odd row, the even ones.
//
// A leader who plays just below a winning square of the follower's own parity loses by the answer, unless he
// wins by that very stone: of such a column he gets nothing above. (Claimeven and baseinverse of Allis 1988,
// "A knowledge-based approach of Connect-Four", and the zugzwang control of its chapter 3.)

// Has the leader no four with all `sure` squares and his share of the `free` ones? Of 2 or 4 free squares he
// gets one of each pair, as the follower pairs them; of more he is given all.
inline bool is_held(std::uint64_t sure, std::uint64_t free) {
  if (!has_four(sure | free)) return true;
  const int num_free = std::popcount(free);
  if ((num_free != 2 && num_free != 4) || has_four(sure)) return false;
  const auto take = [&free] {
    const std::uint64_t lowest = free & -free;
    free ^= lowest;
    return lowest;
  };
  const std::uint64_t a = take(), b = take();
  if (num_free == 2) return !has_four(sure | a) && !has_four(sure | b);
  const std::uint64_t c = take(), d = take();
  const bool ab = has_four(sure | a | b), cd = has_four(sure | c | d);
  const bool ac = has_four(sure | a | c), bd = has_four(sure | b | d);
  const bool ad = has_four(sure | a | d), bc = has_four(sure | b | c);
  return !(ac || ad || bc || bd) || !(ab || ad || bc || cd) || !(ab || ac || bd || cd);
}

constexpr int kNoBound = kSquares;

// An upper bound of the score of `leader`, who is to move and cannot win at once; kNoBound where parity
// proves none. `threats` are the squares that win for the other side.
inline int bound_by_parity(std::uint64_t leader, std::uint64_t occupied, std::uint64_t threats) {
  const std::uint64_t empty = kBoard ^ occupied;
  const std::uint64_t open = playable(occupied);
  const std::uint64_t lasting = threats & ~open;
  const std::uint64_t own_parity = lasting & kEvenRows;  // whoever follows gets the even rows
  const std::uint64_t lost = own_parity << 1 | (own_parity & kSecondRow) << 3;
  const std::uint64_t odd_rows = empty & kOddRows & ~lost;
  if (std::popcount(occupied) % 2 == 0) {
    const std::uint64_t free = open & kEvenRows;
    if (!is_held(leader | odd_rows, free)) return kNoBound;
    const std::uint64_t follower = leader ^ occupied;
    return has_four(follower | (empty & kEvenRows & ~free)) ? -1 : 0;
  }
  for (std::uint64_t left = lasting & kOddRows; left != 0;) {
    const std::uint64_t square = left & -left;
    const int row = std::countr_zero(square) % kColumnBits;
    const std::uint64_t column = kColumn << (std::countr_zero(square) - row);
    left &= ~column;
    const std::uint64_t below = column & (square - 1);
    const std::uint64_t free = open & ((kEvenRows & ~column) | (kOddRows & below));
    // The square just below the winning one counts as the leader's: he may try to win by it.
    const std::uint64_t sure = leader | (odd_rows & ~column) | (empty & kEvenRows & below);
    // At the latest the follower wins there when only the squares above are left.
    if (is_held(sure, free)) return -((kHeight - row) / 2);
  }
  return kNoBound;
}

}  // namespace alphazero::connect4
