// Any text as PGN: every token, the place to cut, whole games, and the rules against what was read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "data/game_check.hpp"
#include "data/pgn_comment.hpp"
#include "data/pgn_lexer.hpp"
#include "data/pgn_parser.hpp"
#include "fuzz/fuzz.hpp"
#include "games/chess/chess_game.hpp"

namespace {

using namespace alphazero;
using fuzz::require;

void check_tokens(std::string_view text, bool complete) {
  pgn::Lexer lexer(text, complete);
  std::size_t last = 0;
  for (pgn::Token token = lexer.next(); token.kind != pgn::TokenKind::kEnd; token = lexer.next()) {
    require(token.begin >= last && token.begin < text.size(), "tokens go forwards");
    last = token.begin;
  }
}

// A note is within its bounds and at most one of centipawns and a mate.
void check_comments(std::string_view text) {
  for (const bool white_moved : {true, false}) {
    pgn::MoveNote note;
    pgn::read_comment(text, white_moved, note);
    require(!note.has_cp || !note.has_mate, "centipawns or a mate");
    require(!note.has_depth || note.has_eval(), "a depth is that of an evaluation");
    require(std::abs(note.eval_cp) <= 100'000 && std::abs(note.eval_mate) <= 1'000, "no absurd evaluation");
    require(!note.has_mate || note.eval_mate != 0, "a mate is somebody's");
    require(note.eval_depth <= 1'000 && note.clock_ms <= 3'600'000'000, "no absurd depth or clock");
  }
}

template <typename T>
void check_notes(const pgn::NoteColumn<T>& column, const pgn::PgnGames& games) {
  const std::size_t rows = games.result.size();
  require(column.offset.size() == rows + 1 && column.list_valid.size() == rows, "a list a game");
  require(static_cast<std::size_t>(column.offset.back()) == column.value.size() &&
              column.value.size() == column.valid.size(),
          "offsets end with the entries");
  for (std::size_t game = 0; game < rows; ++game) {
    const int plies =
        column.list_valid[game] != 0 ? games.moves_offset[game + 1] - games.moves_offset[game] : 0;
    require(column.offset[game + 1] - column.offset[game] == plies, "an entry a ply, or a null list");
  }
}

void check_text(const pgn::TextColumn& column, std::size_t rows) {
  require(column.offset.size() == rows + 1 && column.valid.size() == rows, "a text a game");
  require(static_cast<std::size_t>(column.offset.back()) == column.bytes.size(), "offsets end with the text");
}

pgn::PgnGames check_games(std::string_view text) {
  pgn::PgnGames games = pgn::parse_games(text);
  const std::size_t rows = games.result.size();
  require(games.moves_offset.size() == rows + 1, "one offset more than games");
  require(static_cast<std::size_t>(games.moves_offset.back()) == games.moves.size(),
          "offsets end with moves");
  require(games.games_read == static_cast<std::int64_t>(rows + games.quarantined.size()), "totals add up");
  for (const auto* column : {&games.start_fen, &games.termination, &games.white, &games.black, &games.event,
                             &games.date, &games.time_control}) {
    check_text(*column, rows);
  }
  check_notes(games.eval_cp, games);
  check_notes(games.eval_mate, games);
  check_notes(games.eval_depth, games);
  check_notes(games.eval_source, games);
  check_notes(games.clock_ms, games);
  for (const pgn::QuarantinedGame& game : games.quarantined) {
    require(game.reason.find('\n') == game.reason.npos, "a reason is one line");
    require(game.line >= 0 && game.line <= games.lines, "the line of a fault lies in the text");
  }
  const auto* fens = reinterpret_cast<const char*>(games.start_fen.bytes.data());
  const auto illegal = find_illegal_game<Chess>(
      games.moves, games.moves_offset, {fens, games.start_fen.bytes.size()}, games.start_fen.offset, nullptr);
  require(!illegal, "what was imported is legal", illegal ? illegal->reason : "");
  return games;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_comments(text);
  check_tokens(text, true);
  check_tokens(text, false);
  const pgn::PgnGames whole = check_games(text);
  const std::size_t cut = pgn::last_game_begin(text);
  require(cut <= size, "the cut lies in the text");
  if (cut == 0) return 0;
  const pgn::PgnGames first = check_games(text.substr(0, cut));
  const pgn::PgnGames second = check_games(text.substr(cut));
  require(first.games_read + second.games_read == whole.games_read, "a cut changes no game",
          std::to_string(cut));
  return 0;
}
