// Positions of few pieces for games to begin with: their results come soon.
#include <array>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "games/chess/chess_game.hpp"
#include "games/line.hpp"

namespace alphazero {
namespace {

constexpr std::string_view kPieces = "PPPPNBRQ";
constexpr char kEmpty = ' ';

using Board = std::array<char, 64>;  // as a FEN lists squares: a8 first

void place(Board& board, char piece, Rng& rng) {
  const bool is_pawn = piece == 'P' || piece == 'p';
  std::size_t square = 0;
  do {
    square = is_pawn ? 8 + rng.below(48) : rng.below(64);
  } while (board[square] != kEmpty);
  board[square] = piece;
}

std::string placement(const Board& board) {
  std::string text;
  for (std::size_t square = 0; square < board.size(); ++square) {
    if (square > 0 && square % 8 == 0) text += '/';
    const bool follows_empty = square % 8 > 0 && text.back() >= '1' && text.back() <= '8';
    if (board[square] != kEmpty) {
      text += board[square];
    } else if (follows_empty) {
      ++text.back();
    } else {
      text += '1';
    }
  }
  return text;
}

}  // namespace

chess::Position Chess::random_endgame(Rng& rng) {
  while (true) {
    Board board;
    board.fill(kEmpty);
    place(board, 'K', rng);
    place(board, 'k', rng);
    for (std::uint64_t left = 2 + rng.below(7); left > 0; --left) {
      const char piece = kPieces[rng.below(kPieces.size())];
      place(board, rng.below(2) == 0 ? piece : static_cast<char>(piece - 'A' + 'a'), rng);
    }
    const std::string mover = rng.below(2) == 0 ? " w" : " b";
    try {
      const State position = State::from_fen(placement(board) + mover + " - - 0 1");
      if (!Line<Chess>(position).outcome().over()) return position;
    } catch (const GameError&) {  // the king of the side that has moved could be taken
    }
  }
}

}  // namespace alphazero
