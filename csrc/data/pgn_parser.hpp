// PGN text to columns: one entry a game that can be replayed, a note for each one that cannot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/pgn_comment.hpp"
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

// A column of lists of nullable numbers, in Arrow's layout. A game's list has an entry for each of its plies,
// entries [offset[g], offset[g + 1]), or is null and empty: then nothing is known of any of them.
template <typename T>
struct NoteColumn {
  std::vector<T> value;             // 0 where not valid
  std::vector<std::uint8_t> valid;  // of each entry
  std::vector<std::int32_t> offset{0};
  std::vector<std::uint8_t> list_valid;  // of each game

  // `number_of` gives an optional number of each note.
  template <typename NumberOf>
  void push(const std::vector<MoveNote>& notes, NumberOf number_of) {
    const auto is_known = [&](const MoveNote& note) { return number_of(note).has_value(); };
    const bool any = std::any_of(notes.begin(), notes.end(), is_known);
    if (any) {
      std::size_t at = value.size();
      value.resize(at + notes.size());
      valid.resize(at + notes.size());
      for (const MoveNote& note : notes) {
        const std::optional<T> number = number_of(note);
        value[at] = number.value_or(T{});
        valid[at++] = number.has_value();
      }
    }
    offset.push_back(static_cast<std::int32_t>(value.size()));
    list_valid.push_back(any);
  }
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
  TextColumn termination, white, black, event, date, time_control;
  NumberColumn white_elo, black_elo;
  NoteColumn<std::int32_t> eval_cp;  // this and what follows: docs/data_format.md, "Version 2"
  NoteColumn<std::int16_t> eval_mate;
  NoteColumn<std::uint16_t> eval_depth;
  NoteColumn<std::uint8_t> eval_source;
  NoteColumn<std::uint32_t> clock_ms;
  std::vector<std::int32_t> faulty_game;     // [Q] number of each quarantined game, ascending
  std::vector<std::uint8_t> fault;           // [Q] its Fault
  std::vector<QuarantinedGame> quarantined;  // the first kMostDescribed of the Q
  std::int64_t games_read = 0;               // G + Q
  std::int64_t skipped = 0;                  // words of the G games that are no moves
  std::int64_t lines = 0;                    // line ends in the text
};

// `text` begins and ends where games do (see last_game_begin). Never throws for what is in it.
PgnGames parse_games(std::string_view text);

}  // namespace alphazero::pgn
