// FEN text to a position and back.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/error.hpp"
#include "games/chess/attacks.hpp"
#include "games/chess/position.hpp"

namespace alphazero::chess {

namespace {

constexpr std::string_view kFenLetters = "pnbrqk";

constexpr bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

[[noreturn]] void refuse(std::string_view fen, const std::string& what) {
  throw GameError("FEN " + quoted(fen) + ": " + what);
}

struct Fields {
  std::array<std::string_view, 6> text;
  std::size_t count = 0;
};

Fields split(std::string_view fen) {
  Fields fields;
  std::size_t start = 0;
  while (true) {
    while (start < fen.size() && is_space(fen[start])) ++start;
    if (start == fen.size()) return fields;
    std::size_t end = start;
    while (end < fen.size() && !is_space(fen[end])) ++end;
    if (fields.count == fields.text.size()) refuse(fen, "more than 6 fields, expected 4 to 6");
    fields.text[fields.count++] = fen.substr(start, end - start);
    start = end;
  }
}

int read_counter(std::string_view fen, const char* name, std::string_view field) {
  int value = 0;
  bool good = !field.empty();
  for (const char c : field) {
    good = good && c >= '0' && c <= '9';
    if (good) value = value * 10 + (c - '0');
    good = good && value <= kMaxCounter;
  }
  if (!good) refuse(fen, std::string(name) + " " + quoted(field) + ": expected a number from 0 to 32767");
  return value;
}

Color color_of(char letter) { return letter >= 'a' ? kBlack : kWhite; }
char lower(char letter) { return static_cast<char>(letter | 0x20); }
char upper(char letter) { return static_cast<char>(letter & ~0x20); }

// [KQA-H]{0,2}[kqa-h]{0,2} or '-', as python-chess.
bool is_castling_field(std::string_view field) {
  if (field == "-") return true;
  constexpr std::string_view kWhiteLetters = "KQABCDEFGH";
  constexpr std::string_view kBlackLetters = "kqabcdefgh";
  int num_white = 0;
  int num_black = 0;
  for (const char c : field) {
    if (kWhiteLetters.find(c) != std::string_view::npos && num_black == 0) {
      ++num_white;
    } else if (kBlackLetters.find(c) != std::string_view::npos) {
      ++num_black;
    } else {
      return false;
    }
  }
  return num_white <= 2 && num_black <= 2;
}

}  // namespace

void Position::read_board(std::string_view fen, std::string_view field) {
  const auto fail = [&](const std::string& what) { refuse(fen, "board " + quoted(field) + ": " + what); };
  int rank = 7;
  int file = 0;
  char previous = '/';
  const auto expect_room = [&](int files) {
    if (file + files > 8) fail("rank " + std::to_string(rank + 1) + " has more than 8 files, expected 8");
  };
  for (const char c : field) {
    if (c == '/') {
      if (file != 8)
        fail("rank " + std::to_string(rank + 1) + " has " + std::to_string(file) + " files, expected 8");
      if (rank == 0) fail("more than 8 ranks, expected 8");
      --rank;
      file = 0;
    } else if (c >= '1' && c <= '8') {
      if (previous >= '1' && previous <= '8') fail("two digits in a row, expected one");
      expect_room(c - '0');
      file += c - '0';
    } else if (c == '~') {  // marks a promoted piece where captures can be dropped; without meaning here
      if (std::string_view("pnbrq").find(lower(previous)) == std::string_view::npos) {
        fail("'~' without a piece before it, expected one of pnbrqPNBRQ");
      }
    } else {
      const std::size_t type = kFenLetters.find(lower(c));
      if (type == std::string_view::npos) {
        fail("character " + quoted({&c, 1}) + ", expected one of pnbrqkPNBRQK, 1-8, /");
      }
      expect_room(1);
      place(color_of(c), static_cast<PieceType>(type), static_cast<Square>(rank * 8 + file));
      ++file;
    }
    previous = c;
  }
  if (rank != 0 || file != 8) {
    fail("ends after " + std::to_string(8 - rank) + " ranks and " + std::to_string(file) +
         " files, expected 8 ranks of 8 files");
  }
}

void Position::check_material(std::string_view fen) const {
  const Bitboard both_ends = back_rank(kWhite) | back_rank(kBlack);
  for (const Color color : {kWhite, kBlack}) {
    const auto expect = [&](const std::string& what, int number, int least, int most) {
      if (number >= least && number <= most) return;
      refuse(fen, std::string("board: ") + (color == kWhite ? "white" : "black") + " has " +
                      std::to_string(number) + " " + what + ", expected " +
                      (least == most ? "" : "at most ") + std::to_string(most));
    };
    const int pawns = count(pieces(color, kPawn));
    expect("kings", count(pieces(color, kKing)), 1, 1);
    expect("pieces", count(pieces(color)), 1, 16);
    expect("pawns", pawns, 0, 8);
    expect("pawns on the first or last rank", count(pieces(color, kPawn) & both_ends), 0, 0);
    int promoted = 0;
    for (const auto& [type, at_start] : {std::pair{kKnight, 2}, {kBishop, 2}, {kRook, 2}, {kQueen, 1}}) {
      promoted += std::max(0, count(pieces(color, type)) - at_start);
    }
    expect("pawns and promoted pieces (beyond 2 knights, 2 bishops, 2 rooks and 1 queen)", pawns + promoted,
           0, 8);
  }
  if (attackers(king(opposite(side_)), side_, occupied())) {
    refuse(fen, std::string("side to move ") + (side_ == kWhite ? "'w'" : "'b'") +
                    ": it could take the king, expected the side in check to move");
  }
}

// Rights whose king and rook stand where castling can start: at most the outermost named rook on
// either side of a king on its back rank (python-chess's clean_castling_rights).
Bitboard Position::castling_rights_in_place(Bitboard rooks) const {
  Bitboard kept = 0;
  for (const Color color : {kWhite, kBlack}) {
    const Bitboard named = rooks & pieces(color, kRook) & back_rank(color);
    const Bitboard king_board = pieces(color, kKing) & back_rank(color);
    if (!named || !king_board) continue;
    const Bitboard lowest_rook = named & -named;
    const Bitboard highest_rook = std::bit_floor(named);
    if (lowest_rook < king_board) kept |= lowest_rook;
    if (highest_rook > king_board) kept |= highest_rook;
  }
  return kept;
}

void Position::read_castling(std::string_view fen, std::string_view field) {
  if (!is_castling_field(field)) {
    refuse(fen,
           "castling " + quoted(field) + ": expected '-' or at most two of KQA-H, then at most two of kqa-h");
  }
  Bitboard named = 0;
  for (const char c : field) {
    if (c == '-') break;
    const Color color = color_of(c);
    const Bitboard rooks = pieces(color, kRook) & back_rank(color);
    const Bitboard below_king = bit(king(color)) - 1;
    if (lower(c) == 'k') {
      named |= std::bit_floor(rooks & ~below_king);  // the outermost rook
    } else if (lower(c) == 'q') {
      named |= rooks & below_king & -(rooks & below_king);
    } else {
      named |= file_mask(lower(c) - 'a') & back_rank(color);
    }
  }
  castling_rooks_ = castling_rights_in_place(named);
}

void Position::read_en_passant(std::string_view fen, std::string_view field) {
  if (field == "-") return;
  if (field.size() != 2 || field[0] < 'a' || field[0] > 'h' || field[1] < '1' || field[1] > '8') {
    refuse(fen, "en passant " + quoted(field) + ": expected '-' or a square");
  }
  const int target = (field[1] - '1') * 8 + field[0] - 'a';
  if (rank_of(target) != (side_ == kWhite ? 5 : 2)) return;
  const Bitboard passed_over = bit(target) | bit(side_ == kWhite ? target + 8 : target - 8);
  if (occupied() & passed_over || !(pieces(opposite(side_), kPawn) & bit(target ^ 8))) return;
  offer_en_passant(static_cast<Square>(target));
}

Position Position::from_fen(std::string_view fen) {
  const Fields fields = split(fen);
  if (fields.count < 4) {
    refuse(fen, std::to_string(fields.count) +
                    " fields, expected 4 to 6: board, side to move, castling, en passant, half-move clock, "
                    "move number");
  }
  Position position;
  position.read_board(fen, fields.text[0]);
  const std::string_view side = fields.text[1];
  if (side != "w" && side != "b") refuse(fen, "side to move " + quoted(side) + ": expected 'w' or 'b'");
  position.side_ = side == "w" ? kWhite : kBlack;
  position.check_material(fen);
  position.read_castling(fen, fields.text[2]);
  position.read_en_passant(fen, fields.text[3]);
  if (fields.count > 4) position.halfmove_clock_ = read_counter(fen, "half-move clock", fields.text[4]);
  if (fields.count > 5)
    position.fullmove_number_ = std::max(1, read_counter(fen, "move number", fields.text[5]));
  position.key_ = position.compute_key();
  return position;
}

std::string Position::fen() const {
  std::string text;
  text.reserve(90);
  for (int rank = 7; rank >= 0; --rank) {
    int empty = 0;
    for (int file = 0; file < 8; ++file) {
      const auto square = static_cast<Square>(rank * 8 + file);
      const PieceType type = type_on(square);
      if (type == kNoPiece) {
        ++empty;
        continue;
      }
      if (empty) text += static_cast<char>('0' + empty);
      empty = 0;
      text += by_color_[kWhite] & bit(square) ? upper(kFenLetters[type]) : kFenLetters[type];
    }
    if (empty) text += static_cast<char>('0' + empty);
    if (rank) text += '/';
  }
  text += side_ == kWhite ? " w " : " b ";
  append_castling(text);
  text += ' ';
  if (en_passant_ == kNoSquare) {
    text += '-';
  } else {
    text += static_cast<char>('a' + file_of(en_passant_));
    text += static_cast<char>('1' + rank_of(en_passant_));
  }
  return text + ' ' + std::to_string(halfmove_clock_) + ' ' + std::to_string(fullmove_number_);
}

// X-FEN: k and q mean the outermost rook, any other is named by its file.
void Position::append_castling(std::string& text) const {
  if (!castling_rooks_) text += '-';
  for (const Color color : {kWhite, kBlack}) {
    const Bitboard rooks = pieces(color, kRook) & back_rank(color);
    for (const bool king_side : {true, false}) {
      const Bitboard below_king = bit(king(color)) - 1;
      const Bitboard rook = castling_rooks_ & back_rank(color) & (king_side ? ~below_king : below_king);
      if (!rook) continue;
      const Bitboard further_out = king_side ? rooks & ~(rook | (rook - 1)) : rooks & (rook - 1);
      char letter = king_side ? 'k' : 'q';
      if (further_out) letter = static_cast<char>('a' + file_of(lowest(rook)));
      text += color == kWhite ? upper(letter) : letter;
    }
  }
}

}  // namespace alphazero::chess
