// A FEN in the first line, then a move a byte: FEN, legal moves, SAN, UCI, encoding, play, search.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "fuzz/fuzz.hpp"
#include "games/chess/chess_game.hpp"
#include "games/chess/notation.hpp"
#include "games/line.hpp"
#include "search/line_search.hpp"

namespace {

using namespace alphazero;
using namespace alphazero::chess;
using fuzz::require;

constexpr std::size_t kMaxPlies = 40;

void check_moves(const Position& position, const std::vector<Move>& moves, const std::string& fen) {
  require(static_cast<int>(moves.size()) == position.num_legal_moves(), "count of legal moves", fen);
  require(moves.empty() != position.has_legal_move(), "has_legal_move", fen);
  require(moves.size() <= Chess::kMaxLegalMoves, "no more legal moves than buffers hold", fen);
  std::array<bool, kNumPolicyMoves> is_taken{};
  for (const Move move : moves) {
    require(position.is_legal(move) && Chess::can_apply(position, move), "a listed move is legal", fen);
    const int index = Chess::move_to_index(position, move);
    require(index >= 0 && index < kNumPolicyMoves && !is_taken[index], "a policy index each", fen);
    is_taken[index] = true;
    require(Chess::index_to_move(position, index) == move, "the index gives the move back", fen);
    require(parse_san(position, to_san(position, move)) == move, "SAN gives the move back", fen);
    for (const bool chess960 : {false, true}) {
      require(parse_uci(position, to_uci(position, move, chess960)) == move, "UCI gives the move back", fen);
    }
  }
}

void check_position(const Line<Chess>& line, const std::vector<Move>& moves) {
  const Position& position = line.state();
  const std::string fen = position.fen();
  const Position again = Position::from_fen(fen);
  require(again == position && again.key() == position.key(), "FEN gives the position back", fen);
  check_moves(position, moves, fen);
  std::vector<std::uint8_t> packed(packed_bytes<Chess>());
  for (const HistoryFill fill : {HistoryFill::kNo, HistoryFill::kFenOnly}) {
    Chess::encode(line.frames(), fill, packed.data());
  }
}

void search(const Line<Chess>& line) {
  if (line.outcome().over()) return;
  SearchSettings settings;
  settings.simulations = 4;
  LineSearch<Chess> driver({line}, settings, 1);
  SearchPool<Chess> pool(1, 1, settings.leaves, 1, HistoryFill::kFenOnly);
  fuzz::run<Chess>(pool, driver);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Reader input(data, size);
  const std::string_view fen = input.line();
  Position start;
  try {
    start = Position::from_fen(fen);
  } catch (const GameError& error) {
    const std::string_view said = error.what();
    require(said.find('\n') == said.npos && said.size() < 400, "a refusal is one line", std::string(said));
    return 0;
  }
  Line<Chess> line(start);
  std::vector<Move> moves;
  start.legal_moves(moves);
  check_position(line, moves);
  search(line);
  for (const Move read : {parse_san(start, input.text()), parse_uci(start, input.text())}) {
    require(read == 0 || start.is_legal(read), "a move read is legal", start.fen());
  }
  for (std::size_t ply = 0; ply < kMaxPlies && !input.empty() && !moves.empty(); ++ply) {
    line.push(moves[input.number<std::uint8_t>() % moves.size()]);
    line.state().legal_moves(moves);
    check_position(line, moves);
  }
  search(line);
  return 0;
}
