// PGN text to columns. The rules of chess come from games/chess; what a token is from pgn_lexer.
#include "data/pgn_parser.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>

#include "base/error.hpp"
#include "data/pgn_lexer.hpp"
#include "games/chess/notation.hpp"
#include "games/chess/position.hpp"

namespace alphazero::pgn {
namespace {

constexpr std::size_t kLongestQuote = 80;  // bytes of offending text in a reason
constexpr int kLargestElo = 9999;

enum Header : std::uint8_t {
  kResult,
  kVariant,
  kFen,
  kTermination,
  kWhite,
  kBlack,
  kEvent,
  kDate,
  kWhiteElo,
  kBlackElo,
  kTimeControl,
  kNumHeaders,
};

constexpr std::array<std::string_view, kNumHeaders> kHeaderNames = {
    "Result", "Variant", "FEN",      "Termination", "White",      "Black",
    "Event",  "Date",    "WhiteElo", "BlackElo",    "TimeControl"};

constexpr std::array<std::string_view, 6> kStandardNames = {"standard",  "normal",        "chess",
                                                            "classical", "from position", "?"};
constexpr std::array<std::string_view, 6> kChess960Names = {"chess960",      "chess 960",      "fischerandom",
                                                            "fischerrandom", "fischer random", "960"};

constexpr std::array<std::string_view, 5> kNullMoves = {"--", "Z0", "z0", "0000", "@@@@"};

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string lower(std::string_view text) {
  std::string lowered(text);
  for (char& c : lowered) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lowered;
}

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool is_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at++]);
    if (lead < 0x80) continue;
    if (lead < 0xC2 || lead > 0xF4) return false;
    const std::size_t more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (at + more > text.size()) return false;
    const auto second = static_cast<unsigned char>(text[at]);
    // Overlong forms, surrogates and code points above U+10FFFF (RFC 3629).
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
      return false;
    }
    for (std::size_t i = 0; i < more; ++i) {
      if ((static_cast<unsigned char>(text[at++]) & 0xC0) != 0x80) return false;
    }
  }
  return true;
}

// PGN is Latin-1 by its standard and UTF-8 by habit.
std::string to_utf8(std::string_view text) {
  if (is_utf8(text)) return std::string(text);
  std::string utf8;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x80) {
      utf8.push_back(c);
    } else {
      utf8.push_back(static_cast<char>(0xC0 | code >> 6));
      utf8.push_back(static_cast<char>(0x80 | (code & 0x3F)));
    }
  }
  return utf8;
}

std::string unescape(std::string_view value) {
  std::string text;
  for (std::size_t at = 0; at < value.size(); ++at) {
    if (value[at] == '\\' && at + 1 < value.size() && (value[at + 1] == '"' || value[at + 1] == '\\')) ++at;
    text.push_back(value[at]);
  }
  return text;
}

std::string quote(std::string_view text) {
  std::string quoted = "'";
  quoted += to_utf8(text.substr(0, kLongestQuote));
  if (text.size() > kLongestQuote) quoted += "...";
  for (char& c : quoted) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  quoted += "'";
  return quoted;
}

std::optional<std::int8_t> read_result(std::string_view text) {
  text = trim(text);
  if (text == "1-0") return 1;
  if (text == "0-1") return -1;
  if (text == "1/2-1/2" || text == "1/2") return 0;
  if (text == "1:0") return 1;
  if (text == "0:1") return -1;
  if (text == "\u00BD-\u00BD" || text == "\u00BD:\u00BD" || text == "\xBD-\xBD") return 0;
  return std::nullopt;
}

// The bytes of the ellipsis that a word begins with, in UTF-8 or as Windows has it.
std::size_t ellipsis(std::string_view word) {
  return word.starts_with("\u2026") ? 3 : word.starts_with('\x85') ? 1 : 0;
}

// A word without what stands around a move: '<b>Nf3</b>', '\u2026e5', 'e4\u00B1'.
std::string_view bare(std::string_view word) {
  for (;;) {
    const std::size_t markup = word.starts_with('<') ? word.find('>') : std::string_view::npos;
    if (markup != std::string_view::npos) {
      word.remove_prefix(markup + 1);
    } else if (const std::size_t dots = ellipsis(word); dots > 0) {
      word.remove_prefix(dots);
    } else {
      break;
    }
  }
  const auto is_of_move = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("+#=-!?/()@").find(c) != std::string_view::npos;
  };
  return word.substr(0, std::find_if_not(word.begin(), word.end(), is_of_move) - word.begin());
}

// Whether a word means a move, legal or not: it names a square, or castles.
bool means_move(std::string_view word) {
  for (std::size_t at = 0; at + 1 < word.size(); ++at) {
    const bool is_square = word[at] >= 'a' && word[at] <= 'h' && word[at + 1] >= '1' && word[at + 1] <= '8';
    const std::string_view sides = word.substr(at, 3);
    if (is_square || sides == "O-O" || sides == "0-0" || sides == "o-o") return true;
  }
  return false;
}

std::optional<std::int32_t> read_elo(std::string_view text) {
  text = trim(text);
  std::int32_t elo = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), elo);
  if (error != std::errc{} || end != text.data() + text.size() || elo < 1 || elo > kLargestElo)
    return std::nullopt;
  return elo;
}

bool has_chess960_castling(const chess::Position& position) {
  constexpr chess::Bitboard kStandardRooks = 0x8100000000000081;
  if ((position.castling_rooks() & ~kStandardRooks) != 0) return true;
  const auto off_e_file = [&](chess::Color color, chess::Square king) {
    return (position.can_castle(color, true) || position.can_castle(color, false)) &&
           position.king(color) != king;
  };
  return off_e_file(chess::kWhite, 4) || off_e_file(chess::kBlack, 60);
}

template <typename T>
std::optional<T> known(bool is_known, T number) {
  return is_known ? std::optional<T>(number) : std::nullopt;
}

// Counts lines up to offsets that only grow.
class LineCounter {
 public:
  explicit LineCounter(std::string_view text) : text_(text) {}
  std::int64_t lines_before(std::size_t offset) {
    while (pos_ < offset) {
      const void* found = std::memchr(text_.data() + pos_, '\n', offset - pos_);
      if (found == nullptr) break;
      pos_ = static_cast<std::size_t>(static_cast<const char*>(found) - text_.data()) + 1;
      ++lines_;
    }
    pos_ = std::max(pos_, offset);
    return lines_;
  }

 private:
  std::string_view text_;
  std::size_t pos_ = 0;
  std::int64_t lines_ = 0;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), lexer_(text, true), lines_(text) {}

  PgnGames parse() {
    for (Token token = lexer_.next(); token.kind != TokenKind::kEnd; token = lexer_.next()) {
      const bool was_open = boundaries_.open();
      if (boundaries_.begins_game(token)) {
        if (was_open) finish_game();
        begin_game(token.begin);
      }
      if (boundaries_.open()) read(token);
    }
    if (boundaries_.open()) finish_game();
    games_.lines = lines_.lines_before(text_.size());
    return std::move(games_);
  }

 private:
  void begin_game(std::size_t begin) {
    begin_ = begin;
    headers_.fill(std::string_view{});
    header_begin_.fill(begin);
    notes_.clear();
    set_up_ = faulty_ = terminated_ = has_notes_ = false;
    num_skipped_ = 0;
    after_skipped_ = false;
    terminator_ = std::string_view{};
  }

  void read(const Token& token) {
    switch (token.kind) {
      case TokenKind::kTag:
        read_tag(token);
        break;
      case TokenKind::kWord:
        if (!set_up_) set_up();
        if (!faulty_) read_move(token);
        break;
      case TokenKind::kComment:
        read_note(token.text);
        break;
      case TokenKind::kResult:
        if (!terminated_) terminator_ = token.text;
        terminated_ = true;
        break;
      case TokenKind::kOpenComment:
        if (!terminated_) quarantine(token.begin, Fault::kOpenComment, "a comment without '}'");
        break;
      case TokenKind::kOpenVariation:
        if (!terminated_) quarantine(token.begin, Fault::kOpenVariation, "a variation without ')'");
        break;
      case TokenKind::kEnd:
        break;
    }
  }

  void read_tag(const Token& token) {
    const auto* name = std::find(kHeaderNames.begin(), kHeaderNames.end(), token.text);
    if (name == kHeaderNames.end()) return;
    const auto header = static_cast<std::size_t>(name - kHeaderNames.begin());
    headers_[header] = token.value;
    header_begin_[header] = token.begin;
  }

  void set_up() {
    set_up_ = true;
    has_fen_ = false;
    const std::string variant = lower(trim(headers_[kVariant]));
    is_chess960_ = contains(kChess960Names, variant);
    if (!variant.empty() && !is_chess960_ && !contains(kStandardNames, variant)) {
      quarantine(header_begin_[kVariant], Fault::kVariant,
                 "variant " + quote(headers_[kVariant]) + " is not supported");
      return;
    }
    position_ = initial_;
    const std::string_view fen = trim(headers_[kFen]);
    if (fen.empty()) return;
    try {
      position_ = chess::Position::from_fen(fen);
    } catch (const GameError& error) {
      quarantine(header_begin_[kFen], Fault::kFen, error.what());
      return;
    }
    is_chess960_ = is_chess960_ || has_chess960_castling(position_);
    has_fen_ = position_ != initial_;
    if (has_fen_) start_fen_ = position_.fen();
  }

  // What is no move is passed over; it was one if the moves after it do not fit.
  void read_move(const Token& token) {
    Move move = find_move(token.text);
    if (move == 0 && contains(kNullMoves, token.text)) {
      quarantine(token.begin, Fault::kNullMove, "null move " + quote(token.text));
      return;
    }
    if (move == 0) move = find_move(bare(token.text));
    if (move == 0 && !means_move(token.text)) {
      ++num_skipped_;
      after_skipped_ = true;
      skipped_ = token;
      return;
    }
    const bool is_blacks = token.dots > 1 || ellipsis(token.text) > 0;
    const bool is_others =
        num_skipped_ > 0 && token.dots > 0 && is_blacks != (position_.side_to_move() == chess::kBlack);
    if (move == 0 || is_others) {
      const Token& fault = after_skipped_ || is_others ? skipped_ : token;
      quarantine(fault.begin, Fault::kMove, "illegal or unreadable move " + quote(fault.text));
      return;
    }
    after_skipped_ = false;
    position_.apply(move);
    games_.moves.push_back(move);
    notes_.emplace_back();
  }

  // The legal move of a word; 0: none.
  Move find_move(std::string_view word) const {
    const Move move = chess::parse_san(position_, word);
    return move != 0 ? move : chess::parse_uci(position_, word);
  }

  // A comment belongs to the move of the main line before it.
  void read_note(std::string_view text) {
    if (faulty_ || terminated_ || notes_.empty()) return;
    MoveNote& note = notes_.back();
    read_comment(text, position_.side_to_move() == chess::kBlack, note);
    has_notes_ = has_notes_ || note.has_eval() || note.has_clock;
  }

  void quarantine(std::size_t at, Fault fault, std::string reason) {
    if (faulty_) return;
    faulty_ = true;
    games_.faulty_game.push_back(static_cast<std::int32_t>(games_.games_read));
    games_.fault.push_back(static_cast<std::uint8_t>(fault));
    if (games_.quarantined.size() == kMostDescribed) return;
    const auto plies = games_.moves.size() - static_cast<std::size_t>(games_.moves_offset.back());
    games_.quarantined.push_back({static_cast<std::int32_t>(games_.games_read),
                                  lines_.lines_before(std::max(at, begin_)), static_cast<std::int32_t>(plies),
                                  fault, std::move(reason)});
  }

  void finish_game() {
    if (!set_up_) set_up();
    if (num_skipped_ > 0 && notes_.empty())  // of a text that is no game
      quarantine(skipped_.begin, Fault::kMove, "illegal or unreadable move " + quote(skipped_.text));
    if (faulty_) {
      games_.moves.resize(static_cast<std::size_t>(games_.moves_offset.back()));
    } else {
      push_game();
    }
    ++games_.games_read;
  }

  void push_game() {
    games_.skipped += num_skipped_;
    std::optional<std::int8_t> result = read_result(headers_[kResult]);
    if (!result) result = read_result(terminator_);
    games_.moves_offset.push_back(static_cast<std::int32_t>(games_.moves.size()));
    games_.result.push_back(result.value_or(0));
    games_.result_valid.push_back(result.has_value());
    games_.is_chess960.push_back(is_chess960_);
    games_.contradiction.push_back(result.has_value() && contradicts(*result));
    games_.game.push_back(static_cast<std::int32_t>(games_.games_read));
    has_fen_ ? games_.start_fen.push(start_fen_) : games_.start_fen.push_null();
    push_header(games_.termination, kTermination);
    push_header(games_.white, kWhite);
    push_header(games_.black, kBlack);
    push_header(games_.event, kEvent);
    push_header(games_.date, kDate);
    push_header(games_.time_control, kTimeControl);
    games_.white_elo.push(read_elo(headers_[kWhiteElo]));
    games_.black_elo.push(read_elo(headers_[kBlackElo]));
    if (!has_notes_) notes_.clear();
    push_notes();
  }

  void push_notes() {
    games_.eval_cp.push(notes_, [](const MoveNote& n) { return known(n.has_cp, n.eval_cp); });
    games_.eval_mate.push(notes_, [](const MoveNote& n) { return known(n.has_mate, n.eval_mate); });
    games_.eval_depth.push(notes_, [](const MoveNote& n) { return known(n.has_depth, n.eval_depth); });
    games_.eval_source.push(notes_, [](const MoveNote& n) {
      return known(n.has_eval(), static_cast<std::uint8_t>(n.eval_source));
    });
    games_.clock_ms.push(notes_, [](const MoveNote& n) { return known(n.has_clock, n.clock_ms); });
  }

  bool contradicts(std::int8_t result) const {
    if (position_.has_legal_move()) return false;
    if (!position_.in_check()) return result != 0;
    return result != (position_.side_to_move() == chess::kBlack ? 1 : -1);
  }

  void push_header(TextColumn& column, Header header) {
    const std::string_view value = trim(headers_[header]);
    if (value.empty() || value == "?" || value == "????.??.??") {
      column.push_null();
    } else if (value.find('\\') != std::string_view::npos) {
      column.push(unescape(value));
    } else {
      column.push(value);
    }
  }

  std::string_view text_;
  Lexer lexer_;
  GameBoundaries boundaries_;
  LineCounter lines_;
  PgnGames games_;
  const chess::Position initial_ = chess::Position::initial();

  // Of the open game:
  std::size_t begin_ = 0;
  std::array<std::string_view, kNumHeaders> headers_;
  std::array<std::size_t, kNumHeaders> header_begin_{};
  chess::Position position_;
  std::string start_fen_;
  std::string_view terminator_;
  std::vector<MoveNote> notes_;   // of each of its moves
  std::int64_t num_skipped_ = 0;  // words that are no moves
  Token skipped_;                 // the newest of them
  bool after_skipped_ = false;    // no move was read since
  bool set_up_ = false;
  bool has_fen_ = false;
  bool is_chess960_ = false;
  bool faulty_ = false;
  bool terminated_ = false;
  bool has_notes_ = false;
};

}  // namespace

void TextColumn::push(std::string_view text) {
  if (is_utf8(text)) {
    bytes.insert(bytes.end(), text.begin(), text.end());
  } else {
    const std::string utf8 = to_utf8(text);
    bytes.insert(bytes.end(), utf8.begin(), utf8.end());
  }
  offset.push_back(static_cast<std::int32_t>(bytes.size()));
  valid.push_back(1);
}

void TextColumn::push_null() {
  offset.push_back(static_cast<std::int32_t>(bytes.size()));
  valid.push_back(0);
}

void NumberColumn::push(std::optional<std::int32_t> number) {
  value.push_back(number.value_or(0));
  valid.push_back(number.has_value());
}

PgnGames parse_games(std::string_view text) { return Parser(text).parse(); }

}  // namespace alphazero::pgn
