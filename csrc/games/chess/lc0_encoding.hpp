// lc0's classical encoding of chess: 112 planes (input format 1), bit-packed, and the 1858 policy moves.
//
// Source: lc0 src/neural/encoder.cc (EncodePositionForNN, INPUT_CLASSICAL_112_PLANE).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "games/chess/position.hpp"
#include "games/game.hpp"

namespace alphazero::chess {

constexpr int kEncodedPositions = 8;
constexpr int kPlanesPerPosition = 13;  // our P N B R Q K, their P N B R Q K, repetition
constexpr int kNumPolicyMoves = 1858;

// Writes 104 little-endian u64, then 8 bytes.
//
// Bit planes: 8 positions, newest first, all seen by the side to move of the newest (ranks flipped for
// black; rank 0 is that side's first rank, bit 0 of a rank is file a). The repetition plane is full where the
// position had stood on the board before.
// Bytes: we may castle queen side, king side, they queen side, king side, black to move, halfmove clock
// (raw, 255 at most), 0, 1.
//
// Positions before the first one, as lc0's --history-fill:
//   kNo: empty planes; but an en passant square betrays the last move, so the position before it is shown.
//   kFenOnly: the first position again, unless it is the standard start. With an en passant square the pawn
//   stands where it came from. A repeated first position is never marked as a repetition.
// Two rare differences from lc0, both from Position's stricter view of en passant (a square that a legal
// capture could use): lc0 believes any square that a FEN names, and tells a position with a pinned capturer
// from the same one a move cycle later.
void encode_planes(FrameSpan<Position> line, HistoryFill fill, std::uint8_t* packed);

// Policy index of `move` for a mover of this colour: O(1), -1 if no piece ever moves like that. A knight
// promotion is the plain move, castling is king takes rook.
int policy_index(Move move, Color mover);

// Clears `indices` and fills it with the policy indices of all legal moves, in ascending order.
void legal_policy_indices(const Position& position, std::vector<std::uint16_t>& indices);

// The move that has this index here: a pawn's plain move to the last rank promotes to a knight.
Move policy_move(const Position& position, int index);

// As lc0 writes it, from white's side: "a1b1" (0) ... "h7h8b" (1857).
std::string policy_move_text(int index);

}  // namespace alphazero::chess
