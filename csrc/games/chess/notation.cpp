// SAN and UCI. A SAN move is found backwards, from its target square: no list of moves is made.
#include "games/chess/notation.hpp"

#include <array>
#include <optional>

#include "games/chess/attacks.hpp"

namespace alphazero::chess {

namespace {

constexpr int kAny = -1;
constexpr std::string_view kPieceLetters = "PNBRQK";

constexpr bool is_file(char c) { return c >= 'a' && c <= 'h'; }
constexpr bool is_rank(char c) { return c >= '1' && c <= '8'; }

// What a SAN move says, castling aside.
struct SanMove {
  PieceType piece = kPawn;
  bool names_piece = false;
  int from_file = kAny;
  int from_rank = kAny;
  Square to = kNoSquare;
  Promotion promotion = kNoPromotion;
};

constexpr PieceType piece_of(char letter) {
  const std::size_t index = kPieceLetters.find(letter);
  return index == std::string_view::npos ? kNoPiece : static_cast<PieceType>(index);
}

constexpr Promotion promotion_from(char letter) {
  const PieceType piece = piece_of(static_cast<char>(letter & ~0x20));
  const bool possible = piece != kPawn && piece < kKing;
  return possible ? static_cast<Promotion>(piece) : kNoPromotion;  // kToKnight is kKnight, and so on
}

bool drop_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// Takes off what follows the move itself: check, mate, judgement, draw offer, 'e.p.'.
void drop_ornaments(std::string_view& text) {
  const auto is_ornament = [](char c) {
    return c == '+' || c == '#' || c == '!' || c == '?' || c == '=' || c == ' ';
  };
  const auto drop_marks = [&] {
    while (!text.empty() && is_ornament(text.back())) text.remove_suffix(1);
  };
  drop_marks();
  if (drop_suffix(text, "e.p.") || drop_suffix(text, "ep")) drop_marks();
}

// O-O, 0-0, o-o, with or without hyphens: 2 for the king's side, 3 for the queen's, 0 for neither.
int castling_length(std::string_view text) {
  int rings = 0;
  bool hyphen_allowed = false;
  for (const char c : text) {
    if (c == 'O' || c == '0' || c == 'o') {
      ++rings;
      hyphen_allowed = true;
    } else if (c == '-' && hyphen_allowed) {
      hyphen_allowed = false;
    } else {
      return 0;
    }
  }
  return hyphen_allowed && (rings == 2 || rings == 3) ? rings : 0;
}

// Takes a promotion off the end: 'Q', '=Q', '(Q)', '/Q'. False if there is something else there.
bool read_promotion(std::string_view& text, SanMove& move) {
  if (text.empty() || is_rank(text.back())) return true;
  const bool bracket = drop_suffix(text, ")");
  if (text.empty()) return false;
  move.promotion = promotion_from(text.back());
  if (move.promotion == kNoPromotion) return false;
  text.remove_suffix(1);
  if (bracket) return drop_suffix(text, "(");
  if (!drop_suffix(text, "=")) drop_suffix(text, "/");
  return true;
}

std::optional<SanMove> read_san(std::string_view text) {
  SanMove move;
  if (!read_promotion(text, move)) return std::nullopt;
  if (!text.empty() && piece_of(text.front()) != kNoPiece) {
    move.piece = piece_of(text.front());
    move.names_piece = true;
    text.remove_prefix(1);
  }
  if (text.size() < 2) return std::nullopt;
  const char file = text[text.size() - 2];
  const char rank = text[text.size() - 1];
  if (!is_file(file) || !is_rank(rank)) return std::nullopt;
  move.to = static_cast<Square>((rank - '1') * 8 + file - 'a');
  text.remove_suffix(2);
  if (!text.empty() && (text.back() == 'x' || text.back() == '-' || text.back() == ':'))
    text.remove_suffix(1);
  if (!text.empty() && is_rank(text.back())) {
    move.from_rank = text.back() - '1';
    text.remove_suffix(1);
  }
  if (!text.empty() && is_file(text.back())) {
    move.from_file = text.back() - 'a';
    text.remove_suffix(1);
  }
  if (!text.empty()) return std::nullopt;
  return move;
}

Move find_castling(const Position& position, bool king_side) {
  const Color us = position.side_to_move();
  const Square king = position.king(us);
  const Bitboard below_king = bit(king) - 1;
  const Bitboard rooks = position.castling_rooks() & back_rank(us) & (king_side ? ~below_king : below_king);
  if (!rooks) return 0;
  const auto rook = static_cast<Square>(lowest(rooks));
  return position.is_castling_legal(rook) ? make_move(king, rook) : Move{0};
}

// A move given by its squares; the king's two steps from the e-file mean castling.
Move find_by_squares(const Position& position, Square from, Square to, Promotion promotion) {
  const Color us = position.side_to_move();
  const int base = us == kWhite ? 0 : 56;
  const bool two_steps = to == base + 2 || to == base + 6;
  const Bitboard castling_rooks = position.castling_rooks() & back_rank(us);
  if (from == base + 4 && from == position.king(us) && two_steps && !(castling_rooks & bit(to))) {
    return promotion == kNoPromotion ? find_castling(position, to == base + 6) : Move{0};
  }
  const Move move = make_move(from, to, promotion);
  return position.is_legal(move) ? move : Move{0};
}

Bitboard named_squares(const SanMove& move) {
  Bitboard squares = ~Bitboard{0};
  if (move.from_file != kAny) squares &= file_mask(move.from_file);
  if (move.from_rank != kAny) squares &= rank_mask(move.from_rank);
  return squares;
}

// A pawn move that names no file is a push, so at most one pawn is meant.
Move find_pawn_move(const Position& position, const SanMove& move) {
  const Color us = position.side_to_move();
  const Bitboard last_rank = back_rank(opposite(us));
  if ((move.promotion != kNoPromotion) != ((last_rank & bit(move.to)) != 0)) return 0;
  Bitboard candidates = position.pieces(us, kPawn) & named_squares(move);
  if (position.pieces(opposite(us)) & bit(move.to) || move.to == position.en_passant()) {
    candidates &= pawn_attacks(opposite(us), move.to);
  } else {
    if (position.occupied() & bit(move.to)) return 0;
    const int back = us == kWhite ? -8 : 8;
    const int single = move.to + back;
    if (single < 0 || single > 63) return 0;
    Bitboard sources = bit(single);
    const bool fourth_rank = rank_of(move.to) == (us == kWhite ? 3 : 4);
    if (fourth_rank && !(position.occupied() & bit(single))) sources |= bit(single + back);
    candidates &= sources;
  }
  if (!candidates) return 0;
  const auto from = static_cast<Square>(lowest(candidates));
  return position.is_safe(from, move.to) ? make_move(from, move.to, move.promotion) : Move{0};
}

// Own pieces of `type` that legally reach `to` (an empty or enemy square), castling aside.
Bitboard legal_sources(const Position& position, PieceType type, Square to, Bitboard among) {
  const Color us = position.side_to_move();
  Bitboard candidates = piece_attacks(type, to, position.occupied()) & position.pieces(us, type) & among;
  Bitboard legal = 0;
  while (candidates) {
    const auto from = static_cast<Square>(pop_lowest(candidates));
    if (position.is_safe(from, to)) legal |= bit(from);
  }
  return legal;
}

void append_square(std::string& text, Square square) {
  text += static_cast<char>('a' + file_of(square));
  text += static_cast<char>('1' + rank_of(square));
}

// As much of the source square as tells the move from others of the same piece (PGN standard 8.2.3.4).
void append_source(std::string& text, Square from, Bitboard others) {
  if (!others) return;
  const bool shares_file = (others & file_mask(file_of(from))) != 0;
  const bool shares_rank = (others & rank_mask(rank_of(from))) != 0;
  if (shares_rank || !shares_file) text += static_cast<char>('a' + file_of(from));
  if (shares_file) text += static_cast<char>('1' + rank_of(from));
}

}  // namespace

Move parse_san(const Position& position, std::string_view san) {
  drop_ornaments(san);
  if (san.size() < 2) return 0;
  if (san[0] == 'O' || san[0] == '0' || san[0] == 'o') {
    const int length = castling_length(san);
    return length ? find_castling(position, length == 2) : Move{0};
  }
  const std::optional<SanMove> move = read_san(san);
  if (!move) return 0;
  if (!move->names_piece && move->from_file != kAny && move->from_rank != kAny) {
    const int from = move->from_rank * 8 + move->from_file;
    return find_by_squares(position, static_cast<Square>(from), move->to, move->promotion);
  }
  if (move->piece == kPawn) {
    SanMove pawn = *move;
    if (pawn.from_file == kAny) pawn.from_file = file_of(pawn.to);
    return find_pawn_move(position, pawn);
  }
  const Bitboard own = position.pieces(position.side_to_move());
  if (move->promotion != kNoPromotion || own & bit(move->to)) return 0;
  const Bitboard sources = legal_sources(position, move->piece, move->to, named_squares(*move));
  const bool unique = sources && !(sources & (sources - 1));
  return unique ? make_move(lowest(sources), move->to) : Move{0};
}

Move parse_uci(const Position& position, std::string_view uci) {
  if (uci.size() != 4 && uci.size() != 5) return 0;
  if (!is_file(uci[0]) || !is_rank(uci[1]) || !is_file(uci[2]) || !is_rank(uci[3])) return 0;
  const auto from = static_cast<Square>((uci[1] - '1') * 8 + uci[0] - 'a');
  const auto to = static_cast<Square>((uci[3] - '1') * 8 + uci[2] - 'a');
  const Promotion promotion = uci.size() == 5 ? promotion_from(uci[4]) : kNoPromotion;
  if (uci.size() == 5 && promotion == kNoPromotion) return 0;
  return find_by_squares(position, from, to, promotion);
}

std::string to_san(const Position& position, Move move) {
  const Square from = from_square(move);
  const Square to = to_square(move);
  const PieceType piece = position.type_on(from);
  std::string text;
  if (position.is_castling(move)) {
    text = to < from ? "O-O-O" : "O-O";
  } else {
    const bool capture = position.is_capture(move);
    if (piece != kPawn) {
      text += kPieceLetters[piece];
      append_source(text, from, legal_sources(position, piece, to, ~bit(from)));
    } else if (capture) {
      text += static_cast<char>('a' + file_of(from));
    }
    if (capture) text += 'x';
    append_square(text, to);
    if (promotion_of(move) != kNoPromotion) {
      text += '=';
      text += kPieceLetters[promotion_of(move)];
    }
  }
  Position after = position;
  after.apply(move);
  if (after.in_check()) text += after.has_legal_move() ? '+' : '#';
  return text;
}

std::string to_uci(const Position& position, Move move, bool chess960) {
  const Square from = from_square(move);
  Square to = to_square(move);
  const bool standard_squares = file_of(from) == 4 && (file_of(to) == 0 || file_of(to) == 7);
  if (!chess960 && standard_squares && position.is_castling(move)) {
    to = static_cast<Square>(to < from ? from - 2 : from + 2);
  }
  std::string text;
  append_square(text, from);
  append_square(text, to);
  if (promotion_of(move) != kNoPromotion) {
    text += static_cast<char>(kPieceLetters[promotion_of(move)] | 0x20);
  }
  return text;
}

}  // namespace alphazero::chess
