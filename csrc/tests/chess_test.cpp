// Chess rules under the sanitizers: known perft counts, random games, damaged FEN and SAN.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "games/chess/attacks.hpp"
#include "games/chess/lc0_encoding.hpp"
#include "games/chess/notation.hpp"
#include "games/chess/position.hpp"

namespace {

using namespace alphazero;
using namespace alphazero::chess;

using Random = std::mt19937_64;

void require(bool condition, const char* what, const std::string& where) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s: %s\n", what, where.c_str());
  std::exit(1);
}

struct Count {
  const char* fen;
  int depth;
  std::uint64_t nodes;
};

// Boards with more pawns and promoted pieces than eight pawns can become, and those at the limit.
struct Material {
  const char* fen;
  const char* refused;  // part of the message; null: it is read
};

constexpr Material kMaterial[] = {
    {"QQQQ3Q/5Q2/Q6Q/2Q5/Q5Q1/3Q4/1Q4QQ/1K2k3 w - - 0 1", "white has 14 pawns and promoted pieces"},
    {"7K/P7/8/8/8/8/qqqq4/k1qqqqqq w - - 0 1", "black has 9 pawns and promoted pieces"},
    {"k7/8/8/8/8/8/PPPPPPPP/K1QQ4 w - - 0 1", "white has 9 pawns and promoted pieces"},
    {"k7/8/8/8/8/8/PPPPPPPP/KRRR4 w - - 0 1", "white has 9 pawns and promoted pieces"},
    {"k7/8/8/8/8/8/PPPPPPPP/KNNN4 w - - 0 1", "white has 9 pawns and promoted pieces"},
    {"k7/8/8/8/8/8/PPPPPPP1/KNNNBBB1 w - - 0 1", "white has 9 pawns and promoted pieces"},
    {"k7/8/8/8/8/8/PPPPPPPP/KQRRBBNN w - - 0 1", nullptr},
    {"k7/8/8/8/8/8/PPPPPPP1/KQQRRBBN w - - 0 1", nullptr},
    {"k7/8/8/8/8/8/QQQQQQQQ/KQRRBBNN b - - 0 1", nullptr},
    {"kqqqqqqq/qqrrbbnn/8/8/8/8/8/7K w - - 0 1", nullptr},
    {"k7/8/8/8/8/8/NNN5/KNNNNNNN w - - 0 1", nullptr},
    {"k7/8/8/8/8/8/RRR5/KRRRRRRR b - - 0 1", nullptr},
};

// Petrovic 1964: the most moves of a position that play can reach.
constexpr std::string_view kMostMoves = "R6R/3Q4/1Q4Q1/4Q3/2Q4Q/Q4Q2/pp1Q4/kBNN1KB1 w - - 0 1";

// https://www.chessprogramming.org/Perft_Results and, for the last four (Chess960 castling, en passant along
// pins), the perft files of python-chess.
constexpr Count kCounts[] = {
    {"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", 4, 197281},
    {"r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", 3, 97862},
    {"8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1", 4, 43238},
    {"r2q1rk1/pP1p2pp/Q4n2/bbp1p3/Np6/1B3NBn/pPPP1PPP/R3K2R b KQ - 0 1", 3, 9467},
    {"rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8", 3, 62379},
    {"r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10", 3, 89890},
    {"r1k1r2q/p1ppp1pp/8/8/8/8/P1PPP1PP/R1K1R2Q w KQkq -", 3, 12333},
    {"8/8/8/4B2b/6nN/8/5P2/2R1K2k w Q -", 3, 9002},
    {"2r5/8/8/8/8/8/6PP/k2KR3 w K -", 4, 57700},
    {"1b1k4/8/8/1rPpK3/8/8/8/8 w - d6", 3, 555},
};

// Starts from which random games meet promotions, en passant, pins and castling of every kind.
constexpr std::string_view kStarts[] = {
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
    "nrk1rbbq/ppp1pppp/8/3p4/8/5N2/PPPPPPPP/NRK1RBBQ w EBeb - 0 1",
    "rk2r3/pppppppp/8/8/8/8/PPPPPPPP/1R2KR2 w FBea - 0 1",
    "4k3/pppppppp/8/8/8/8/PPPPPPPP/4K3 w - - 0 1",
    "8/P1k3P1/8/3pP3/3Pp3/8/p1K3p1/8 w - d6 0 1",
    "r3k2r/1P4P1/8/8/8/8/1p4p1/R3K2R b KQkq - 3 40",
    "4k3/8/8/8/8/8/8/qRK4R w HB - 0 1",  // the rook shields the king until it castles
};

void test_perft() {
  for (const Count& known : kCounts) {
    const std::uint64_t nodes = perft(Position::from_fen(known.fen), known.depth);
    require(nodes == known.nodes, "perft count", std::string(known.fen) + ": " + std::to_string(nodes));
  }
}

void test_material() {
  for (const Material& material : kMaterial) {
    std::string said;
    try {
      Position::from_fen(material.fen);
    } catch (const GameError& error) {
      said = error.what();
    }
    const bool expected = material.refused ? said.find(material.refused) != said.npos : said.empty();
    require(expected, "material", std::string(material.fen) + ": '" + said + "'");
  }
  require(Position::from_fen(kMostMoves).num_legal_moves() == 218, "most moves", std::string(kMostMoves));
}

void check_move(const Position& position, Move move, const std::string& fen) {
  require(position.is_legal(move), "a listed move is legal", fen);
  const std::string san = to_san(position, move);
  require(parse_san(position, san) == move, "SAN gives the move back", san + " in " + fen);
  for (const bool chess960 : {false, true}) {
    const std::string uci = to_uci(position, move, chess960);
    require(parse_uci(position, uci) == move, "UCI gives the move back", uci + " in " + fen);
  }
  Position after = position;
  after.apply(move);
  const Color mover = position.side_to_move();
  require(!after.attackers(after.king(mover), opposite(mover), after.occupied()), "no king is left in check",
          san + " in " + fen);
  require(!after.in_check() || CheckingMoves(position)(move), "a move that gives check can",
          san + " in " + fen);
}

// The list of policy indices is that of the moves, in order.
void check_policy_indices(const Position& position, const std::vector<Move>& moves, const std::string& fen) {
  std::vector<std::uint16_t> expected, listed{1, 2, 3};
  for (const Move move : moves) {
    expected.push_back(static_cast<std::uint16_t>(policy_index(move, position.side_to_move())));
  }
  std::ranges::sort(expected);
  legal_policy_indices(position, listed);
  require(listed == expected, "the policy indices of the legal moves", fen);
}

// Everything that must hold between the ways of asking about one position.
void check_position(const Position& position, bool try_all_moves) {
  const std::string fen = position.fen();
  const Position again = Position::from_fen(fen);
  require(again == position, "FEN gives the position back", fen);
  require(again.key() == position.key(), "the incremental key is the key", fen);
  std::vector<Move> moves;
  position.legal_moves(moves);
  require(static_cast<int>(moves.size()) == position.num_legal_moves(), "count of legal moves", fen);
  require(moves.empty() != position.has_legal_move(), "has_legal_move", fen);
  for (const Move move : moves) check_move(position, move, fen);
  check_policy_indices(position, moves, fen);
  if (!try_all_moves) return;
  std::size_t num_legal = 0;
  for (int move = 0; move < 65536; ++move) num_legal += position.is_legal(static_cast<Move>(move));
  require(num_legal == moves.size(), "no move is legal but not listed", fen);
}

void test_random_games(Random& random) {
  std::vector<Move> moves;
  for (const std::string_view start : kStarts) {
    for (int game = 0; game < 10; ++game) {
      Position position = Position::from_fen(start);
      for (int ply = 0; ply < 120; ++ply) {
        check_position(position, ply % 40 == 17);
        position.legal_moves(moves);
        if (moves.empty()) break;
        position.apply(moves[random() % moves.size()]);
      }
    }
  }
}

// A few bytes replaced, doubled or dropped; new ones mostly from `alphabet`, some arbitrary.
std::string damaged(std::string text, std::string_view alphabet, Random& random) {
  for (std::uint64_t edits = random() % 4; edits; --edits) {
    const bool arbitrary = random() % 8 == 0;
    const char letter = arbitrary ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
    const std::size_t at = text.empty() ? 0 : random() % text.size();
    switch (random() % 3) {
      case 0:
        text.insert(at, 1, letter);
        break;
      case 1:
        if (!text.empty()) text.erase(at, 1);
        break;
      default:
        if (!text.empty()) text[at] = letter;
    }
  }
  return text;
}

Position random_position(Random& random) {
  Position position = Position::from_fen(kStarts[random() % std::size(kStarts)]);
  std::vector<Move> moves;
  for (std::uint64_t plies = random() % 60; plies; --plies) {
    position.legal_moves(moves);
    if (moves.empty()) break;
    position.apply(moves[random() % moves.size()]);
  }
  return position;
}

void test_damaged_fen(Random& random) {
  constexpr std::string_view kAlphabet = "pnbrqkPNBRQK12345678/wb-KQkqABCDEFGHabcdefgh 0369~";
  int num_read = 0;
  int num_refused = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const std::string text = damaged(random_position(random).fen(), kAlphabet, random);
    try {
      check_position(Position::from_fen(text), false);
      ++num_read;
    } catch (const GameError& error) {
      require(std::string_view(error.what()).find('\n') == std::string_view::npos, "one-line error", text);
      ++num_refused;
    }
  }
  require(num_read > 1000 && num_refused > 1000, "damaged FEN is both read and refused",
          std::to_string(num_read) + " and " + std::to_string(num_refused));
}

void test_damaged_san(Random& random) {
  constexpr std::string_view kAlphabet = "NBRQKPabcdefgh12345678xO0o-+#=!?()/:. qrbn";
  int num_read = 0;
  int num_refused = 0;
  std::vector<Move> moves;
  for (int trial = 0; trial < 2000; ++trial) {
    const Position position = random_position(random);
    position.legal_moves(moves);
    for (const Move move : moves) {
      const bool as_uci = random() % 4 == 0;
      const std::string text =
          damaged(as_uci ? to_uci(position, move) : to_san(position, move), kAlphabet, random);
      for (const Move read : {parse_san(position, text), parse_uci(position, text)}) {
        require(read == 0 || position.is_legal(read), "a move read is legal", text + " in " + position.fen());
        ++(read ? num_read : num_refused);
      }
    }
  }
  require(num_read > 1000 && num_refused > 1000, "damaged SAN is both read and refused",
          std::to_string(num_read) + " and " + std::to_string(num_refused));
}

}  // namespace

int main() {
  Random random(20240607);
  test_perft();
  test_material();
  test_random_games(random);
  test_damaged_fen(random);
  test_damaged_san(random);
  std::puts("chess: all tests passed");
}
