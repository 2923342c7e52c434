#include "data/lc0_history.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "base/error.hpp"
#include "games/chess/chess_game.hpp"

namespace alphazero::lc0 {
namespace {

using chess::Color;
using chess::Position;

constexpr int kNumCastlings = 4;
constexpr std::string_view kEveryCastling = "KQkq";

// KQkq of a record's rights, which are its mover's and the opponent's.
std::string castling_text(const Record& record) {
  std::string text;
  const std::size_t white = record.black_to_move ? 2 : 0;
  const std::size_t black = 2 - white;
  if (record.castling[white + 1]) text += 'K';
  if (record.castling[white]) text += 'Q';
  if (record.castling[black + 1]) text += 'k';
  if (record.castling[black]) text += 'q';
  return text;
}

std::string castling_text(const Position& position) {
  std::string text;
  for (int i = 0; i < kNumCastlings; ++i) {
    if (position.can_castle(i < 2 ? chess::kWhite : chess::kBlack, i % 2 == 0)) text += kEveryCastling[i];
  }
  return text;
}

// FEN of a board, which may be no position.
std::string fen_of(const Board& seen, Color viewer, Color to_move, std::string_view castling,
                   std::string_view en_passant, int halfmove_clock) {
  const Board board = viewer == chess::kWhite ? seen : other_side(seen);
  std::string text;
  for (int rank = 7; rank >= 0; --rank) {
    int empty = 0;
    for (int file = 0; file < 8; ++file) {
      const std::uint64_t square = std::uint64_t{1} << (rank * 8 + 7 - file);
      const auto has_piece = [&](std::uint64_t plane) { return (plane & square) != 0; };
      const auto piece = std::find_if(board.begin(), board.end(), has_piece);
      if (piece == board.end()) {
        ++empty;
        continue;
      }
      if (empty > 0) text += static_cast<char>('0' + empty);
      empty = 0;
      text += "PNBRQKpnbrqk"[piece - board.begin()];
    }
    if (empty > 0) text += static_cast<char>('0' + empty);
    if (rank > 0) text += '/';
  }
  text += to_move == chess::kWhite ? " w " : " b ";
  text += castling.empty() ? "-" : castling;
  text += ' ';
  text += en_passant;
  text += ' ' + std::to_string(halfmove_clock) + " 1";
  return text;
}

std::uint64_t occupied(const Board& board) {
  return std::accumulate(board.begin(), board.end(), std::uint64_t{0},
                         [](std::uint64_t all, std::uint64_t plane) { return all | plane; });
}

void check_single_pieces(const Board& board) {
  const int pieces = std::accumulate(board.begin(), board.end(), 0,
                                     [](int sum, std::uint64_t plane) { return sum + std::popcount(plane); });
  if (pieces != std::popcount(occupied(board))) {
    throw GameError("planes 0-11 have two pieces on a square; expected one");
  }
}

// The square behind a pawn that made a double step from `before` to `after`, both seen by the side that
// did not; "-" where no pawn did and nothing else changed.
std::string double_step(const Board& before, const Board& after, Color viewer) {
  constexpr std::size_t kTheirPawns = 6;
  for (std::size_t plane = 0; plane < before.size(); ++plane) {
    if (plane != kTheirPawns && before[plane] != after[plane]) return "-";
  }
  const std::uint64_t from = before[kTheirPawns] & ~after[kTheirPawns];
  const std::uint64_t to = after[kTheirPawns] & ~before[kTheirPawns];
  if (std::popcount(from) != 1 || from >> 48 == 0 || to != from >> 16) return "-";
  const int file = 7 - (std::countr_zero(from) & 7);
  return {static_cast<char>('a' + file), viewer == chess::kWhite ? '6' : '3'};
}

// The legal move after which the board is `target`, seen by `viewer`; 0 if there is none.
Move find_move(const Position& position, const Board& target, Color viewer) {
  std::vector<Move> legal;
  position.legal_moves(legal);
  for (const Move move : legal) {
    Position next = position;
    next.apply(move);
    if (board_of(next, viewer) == target) return move;
  }
  return 0;
}

// Plays the moves that lead through boards back - 1 ... 0 of a record; none where one is no legal move.
std::optional<std::vector<Move>> play(Position& position, const Record& record, std::size_t back) {
  const auto viewer = static_cast<Color>(record.black_to_move);
  std::vector<Move> moves;
  while (back-- > 0) {
    const Move move = find_move(position, board_in(record, back), viewer);
    if (move == 0) return std::nullopt;
    position.apply(move);
    moves.push_back(move);
  }
  return moves;
}

bool has_rights_of(const Position& position, const Record& record) {
  return castling_text(position) == castling_text(record);
}

// The beginning at the board `back` positions before the first record, if legal moves lead from there to it.
std::optional<Beginning> beginning_at(const Record& first, std::size_t back) {
  const auto viewer = static_cast<Color>(first.black_to_move);
  const auto to_move = static_cast<Color>((first.black_to_move + back) & 1);
  const Board board = board_in(first, back);
  std::string castling(kEveryCastling);  // those without king and rook in place are dropped
  int clock = std::max(0, first.rule50 - static_cast<int>(back));
  for (int attempt = 0; attempt < 2; ++attempt) {
    Beginning beginning{Position::from_fen(fen_of(board, viewer, to_move, castling, "-", clock)), {}};
    Position last = beginning.position;
    const std::string begun_with = castling_text(last);
    auto moves = play(last, first, back);
    if (!moves) return std::nullopt;
    if (has_rights_of(last, first)) {
      if (last.halfmove_clock() != first.rule50) return std::nullopt;
      beginning.moves = std::move(*moves);
      return beginning;
    }
    // What is too much at the record was never there.
    const std::string wanted = castling_text(first);
    const std::string found = castling_text(last);
    castling.clear();
    for (const char right : begun_with) {
      const bool surplus = found.find(right) != found.npos && wanted.find(right) == wanted.npos;
      if (!surplus) castling += right;
    }
  }
  return std::nullopt;
}

}  // namespace

Board board_in(const Record& record, std::size_t back) {
  Board board;
  for (std::size_t plane = 0; plane < board.size(); ++plane) {
    board[plane] = record.planes[back * chess::kPlanesPerPosition + plane];
  }
  return board;
}

Beginning beginning_of(const Record& first) {
  const auto viewer = static_cast<Color>(first.black_to_move);
  std::array<Board, chess::kEncodedPositions> boards;
  std::size_t known = 0;
  while (known < boards.size() && occupied(boards[known] = board_in(first, known)) != 0) {
    check_single_pieces(boards[known++]);
  }
  if (known == 0) throw GameError("planes 0-11 are empty; expected a position");
  // The first position of a game from a FEN stands for all that came before it.
  const bool is_filled = known == boards.size();
  while (known > 1 && boards[known - 1] == boards[known - 2]) --known;
  std::string en_passant = "-";
  if (known > 1) en_passant = double_step(boards[1], boards[0], viewer);
  const bool is_fen_with_en_passant = is_filled && known == 2 && en_passant != "-";
  if (known > 1 && !is_fen_with_en_passant) {
    try {
      if (auto beginning = beginning_at(first, known - 1)) return *beginning;
    } catch (const GameError&) {
      // What stands behind the record is no position: the record itself may be one.
    }
  }
  const std::string fen = fen_of(boards[0], viewer, viewer, castling_text(first), en_passant, first.rule50);
  Beginning beginning{Position::from_fen(fen), {}};
  if (!has_rights_of(beginning.position, first)) {
    throw GameError("castling rights '" + castling_text(first) + "' in " + quoted(fen) +
                    "; expected rights of kings and rooks in place");
  }
  return beginning;
}

std::optional<std::vector<Move>> moves_between(const Position& position, const Record& record) {
  const auto viewer = static_cast<Color>(record.black_to_move);
  const Board begin = board_of(position, viewer);
  for (std::size_t back = 0; back < chess::kEncodedPositions; ++back) {
    const bool fits = (back & 1) == static_cast<std::size_t>(position.side_to_move() != viewer);
    if (!fits || board_in(record, back) != begin) continue;
    Position last = position;
    if (auto moves = play(last, record, back)) return moves;
  }
  return std::nullopt;
}

}  // namespace alphazero::lc0
