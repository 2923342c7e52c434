// The PGN lexer and parser under the sanitizers: awkward text, every cut, and noise.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "data/game_check.hpp"
#include "data/pgn_lexer.hpp"
#include "data/pgn_parser.hpp"
#include "games/chess/chess_game.hpp"

namespace {

using alphazero::pgn::parse_games;
using alphazero::pgn::PgnGames;

int num_checks = 0;

void check(bool holds, const char* what, std::string_view text) {
  ++num_checks;
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s\n--- text:\n%.*s\n", what, static_cast<int>(text.size()), text.data());
  std::exit(1);
}

constexpr std::string_view kAwkward =
    "\xEF\xBB\xBF; made by hand\r\n"
    "[Event \"one \\\"two\\\"\"]\r\n[White \"J\xF6rg\"]\r\n[Result \"1-0\"]\r\n\r\n"
    "{ brace { in ; brace\r\n\r\nover lines } 1.e4 $1 e5! (1...c5 {x ) y} 2.Nf3 (2.c3)) 2. Nf3?! ; rest }\r\n"
    "% escaped e9 line\r\n2...Nc6 3.Bb5 a6 1-0 {after}\r\n\r\n"
    "[Event \"blank\"]\n\n[Result \"*\"]\n\n*\n\n"
    "[Event \"uci\"]\n[Variant \"chess960\"]\n[FEN \"nbbrknrq/pppppppp/8/8/8/8/PPPPPPPP/NBBRKNRQ w KQkq - 0 "
    "1\"]\n\n"
    "d2d4 d7d5 1/2-1/2\n"
    "[Event \"null\"]\n\n1. e4 -- 2. d4 0-1\n\n"
    "[Event \"atomic\"]\n[Variant \"atomic\"]\n\n1. e4 *\n\n"
    "[Event \"bad fen\"]\n[FEN \"8/8/8/8/8/8/8/8 w - - 0 1\"]\n\n1. e4 *\n\n"
    "[Event \"open comment\"]\n\n1. e4 { never closed 1-0\n\n"
    "[Event \"open variation\"]\n\n1. e4 (1. d4 1-0\n\n"
    "[Event \"mate\"]\n[Result \"1-0\"]\n\n1. f3 e5 2. g4 Qh4# 1-0\n"
    "1. d4 d5 1/2-1/2 1. c4 e5 *\n";

// What must hold of any text whatever.
void check_sound(const PgnGames& games, std::string_view text) {
  const std::size_t rows = games.result.size();
  check(games.moves_offset.size() == rows + 1, "one offset more than games", text);
  check(static_cast<std::size_t>(games.moves_offset.back()) == games.moves.size(),
        "offsets end with the moves", text);
  check(games.games_read == static_cast<std::int64_t>(rows + games.quarantined.size()), "totals add up",
        text);
  check(games.white.offset.size() == rows + 1 && games.white_elo.value.size() == rows, "columns are even",
        text);
  const auto& fens = games.start_fen;
  const auto* fen_data = reinterpret_cast<const char*>(fens.bytes.data());
  const auto fault = alphazero::find_illegal_game<alphazero::Chess>(
      games.moves, games.moves_offset, {fen_data, fens.bytes.size()}, fens.offset);
  check(!fault.has_value(), "every imported move is legal", text);
  for (const auto& game : games.quarantined) {
    check(game.line <= games.lines && game.ply >= 0 && !game.reason.empty(), "a fault has a place", text);
  }
}

// Text cut where a game begins reads as in one piece.
void check_cuts(std::string_view text, std::size_t step) {
  const PgnGames whole = parse_games(text);
  check_sound(whole, text);
  for (std::size_t size = 1; size < text.size(); size += step) {
    const std::size_t cut = alphazero::pgn::last_game_begin(text.substr(0, size));
    check(cut < size, "a cut lies within the text", text);
    const PgnGames left = parse_games(text.substr(0, cut));
    const PgnGames right = parse_games(text.substr(cut));
    check(left.games_read + right.games_read == whole.games_read, "a cut changes no count", text);
    check(left.result.size() + right.result.size() == whole.result.size(), "a cut quarantines nothing", text);
    std::vector<alphazero::Move> moves = left.moves;
    moves.insert(moves.end(), right.moves.begin(), right.moves.end());
    check(moves == whole.moves, "a cut changes no move", text);
    check(left.lines + right.lines == whole.lines, "a cut changes no line", text);
  }
}

void check_awkward() {
  const PgnGames games = parse_games(kAwkward);
  // In order: one, blank, uci, null, atomic, bad fen, open comment, open variation, mate, two without tags.
  check(games.games_read == 11, "eleven games", kAwkward);
  check(games.quarantined.size() == 5, "five in quarantine", kAwkward);
  check(games.result == std::vector<std::int8_t>({1, 0, 0, 1, 0, 0}), "results", kAwkward);
  check(games.result_valid == std::vector<std::uint8_t>({1, 0, 1, 1, 1, 0}), "known results", kAwkward);
  check(games.contradiction == std::vector<std::uint8_t>({0, 0, 0, 1, 0, 0}), "black mated, header says 1-0",
        kAwkward);
  check(games.moves_offset == std::vector<std::int32_t>({0, 6, 6, 8, 12, 14, 16}), "plies", kAwkward);
}

void check_noise(std::uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);
  constexpr std::string_view kPieces[] = {"[Event \"",
                                          "\"]\n",
                                          "\n\n",
                                          "{",
                                          "}",
                                          "(",
                                          ")",
                                          ";",
                                          "%",
                                          "1.",
                                          "e4",
                                          "Nf6",
                                          "1-0",
                                          "*",
                                          "$3",
                                          "--",
                                          "\\",
                                          "\"",
                                          "[",
                                          "]",
                                          "\r",
                                          "O-O",
                                          "e8(Q)",
                                          "\xEF\xBB\xBF",
                                          "[FEN \"8/8/8/8/8/8/8/K1k5 w - - 0 1\"]\n",
                                          "[Variant \"chess960\"]\n",
                                          " ",
                                          "\n"};
  for (int round = 0; round < rounds; ++round) {
    std::string text;
    if (round % 3 == 0) {
      for (std::size_t size = random() % 400; text.size() < size;)
        text.push_back(static_cast<char>(random()));
    } else if (round % 3 == 1) {
      for (int n = static_cast<int>(random() % 80); n > 0; --n)
        text += kPieces[random() % std::size(kPieces)];
    } else {
      text = kAwkward;
      for (int n = static_cast<int>(random() % 12); n > 0; --n) {
        const std::size_t at = random() % text.size();
        switch (random() % 3) {
          case 0:
            text[at] = static_cast<char>(random());
            break;
          case 1:
            text.erase(at, random() % 20);
            break;
          default:
            text.insert(at, kPieces[random() % std::size(kPieces)]);
        }
        if (text.empty()) text = "*";
      }
    }
    check_cuts(text, round % 3 == 2 ? 37 : 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  check_awkward();
  check_cuts(kAwkward, 1);
  check_noise(1, argc > 1 ? std::atoi(argv[1]) : 600);
  std::printf("pgn_test: %d checks\n", num_checks);
  return 0;
}
