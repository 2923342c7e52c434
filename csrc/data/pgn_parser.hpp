// PGN text to columns: one entry a game that can be replayed, a note for each one that cannot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "games/game.hpp"

namespace alphazero::pgn {

// A column of nullable UTF-8 text in Arrow's layout: entry g is bytes[offset[g], offset[g + 1]).
struct TextColumn {
  std::vector<std::uint8_t> bytes;
  std::vector<std::int32_t> offset{0};
  std::vector<std::uint8_t> valid;

  void push(std::string_view text);  // of PGN: UTF-8, or else taken as Latin-1
  void push_null();
};

struct NumberColumn {
  std::vector<std::int32_t> value;  // 0 where not valid
  std::vector<std::uint8_t> valid;

  void push(std::optional<std::int32_t> number);
};

enum class Fault : std::uint8_t {
  kMove = 0,         // no legal move
  kNullMove = 1,     // '--' and the like
  kFen = 2,          // [FEN] is no position
  kVariant = 3,      // [Variant] is not chess
  kOpenComment = 4,  // moves may be missing: a comment or variation has no end
  kOpenVariation = 5,
};

// Of the quarantined games of a text, so many are described: a megabyte of faults must not become a gigabyte
// of reasons.
inline constexpr std::size_t kMostDescribed = 100'000;

struct QuarantinedGame {
  std::int32_t game;  // in this text, from 0
  std::int64_t line;  // of the fault in this text, from 0
  std::int32_t ply;   // plies that were read before it
  Fault fault;
  std::string reason;  // one line of UTF-8, with the offending text
};

// G games, M plies.
struct PgnGames {
  std::vector<Move> moves;                    // [M]
  std::vector<std::int32_t> moves_offset{0};  // [G + 1]
  std::vector<std::int8_t> result;            // [G] +1 white won, 0, -1; 0 where not valid
  std::vector<std::uint8_t> result_valid;     // [G]
  std::vector<std::uint8_t> is_chess960;      // [G]
  std::vector<std::uint8_t> contradiction;    // [G] mate or stalemate on the board, another result
  std::vector<std::int32_t> game;             // [G] number of the game in this text, from 0
  TextColumn start_fen;                       // null: standard start
  TextColumn termination, white, black, event, date;
  NumberColumn white_elo, black_elo;
  std::vector<std::int32_t> faulty_game;     // [Q] number of each quarantined game, ascending
  std::vector<std::uint8_t> fault;           // [Q] its Fault
  std::vector<QuarantinedGame> quarantined;  // the first kMostDescribed of the Q
  std::int64_t games_read = 0;               // G + Q
  std::int64_t lines = 0;                    // line ends in the text
};

// `text` begins and ends where games do (see last_game_begin). Never throws for what is in it.
PgnGames parse_games(std::string_view text);

}  // namespace alphazero::pgn
