// Every game of the program. A line below gives a game its lines of play, searches, self-play, batch encoder
// and check of stored games, in the core and in Python; alphazero/games/registry.py has the rest about it.
#pragma once

#include "games/chess/chess_game.hpp"
#include "games/connect4/connect4.hpp"
#include "games/foreign/foreign.hpp"
#include "games/othello/othello.hpp"
#include "games/tictactoe/tictactoe.hpp"

// DO(G) for each game. A macro, as a template cannot instantiate others explicitly.
#define ALPHAZERO_OWN_GAMES(DO) \
  DO(Chess)                     \
  DO(Connect4)                  \
  DO(Othello)                   \
  DO(TicTacToe)

// With the one whose rules lie outside the core.
#define ALPHAZERO_ALL_GAMES(DO) \
  ALPHAZERO_OWN_GAMES(DO)       \
  DO(Foreign)
