// PGN text as tokens. Follows the PGN standard's import format (sections 5-8), with what files in the
// wild do besides: python-chess's reader is the yardstick where the standard is silent.
#include "data/pgn_lexer.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace alphazero::pgn {
namespace {

constexpr std::string_view kEventTag = "[Event \"";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

enum CharClass : std::uint8_t {
  kOther = 0,
  kSpace = 1,
  kDelimiter = 2,  // ends a word
  kDigit = 4,
  kLetter = 8,
  kGlyph = 16,  // may stand alone as an evaluation: '+-', '=', '!?'
};

constexpr std::array<std::uint8_t, 256> make_classes() {
  std::array<std::uint8_t, 256> classes{};
  for (const char c : {' ', '\t', '\n', '\r', '\v', '\f', '\0'})
    classes[static_cast<unsigned char>(c)] = kSpace;
  for (const char c : {'{', '}', '(', ')', ';', '$'}) classes[static_cast<unsigned char>(c)] = kDelimiter;
  for (int c = '0'; c <= '9'; ++c) classes[c] = kDigit;
  for (int c = 'a'; c <= 'z'; ++c) classes[c] = kLetter;
  for (int c = 'A'; c <= 'Z'; ++c) classes[c] = kLetter;
  for (const char c : {'!', '?', '+', '-', '=', '/', '#', '~'})
    classes[static_cast<unsigned char>(c)] = kGlyph;
  return classes;
}

constexpr std::array<std::uint8_t, 256> kClasses = make_classes();

std::uint8_t class_of(char c) { return kClasses[static_cast<unsigned char>(c)]; }

bool is_line_end(char c) { return c == '\n' || c == '\r'; }

bool is_result(std::string_view word) {
  return word == "1-0" || word == "0-1" || word == "1/2-1/2" || word == "1/2";
}

// True if '[Event "' at `at` stands at the start of a line and the line before is empty.
bool after_blank_line(std::string_view text, std::size_t at) {
  if (at == 0 || text[at - 1] != '\n') return false;
  std::size_t before = at - 1;
  while (before > 0 && (text[before - 1] == ' ' || text[before - 1] == '\t' || text[before - 1] == '\r')) {
    --before;
  }
  return before == 0 || text[before - 1] == '\n';
}

// First certain beginning of a game in [from, to), or npos.
std::size_t find_certain_begin(std::string_view text, std::size_t from, std::size_t to) {
  const std::string_view window = text.substr(0, to);
  for (std::size_t at = window.find(kEventTag, from); at != std::string_view::npos;
       at = window.find(kEventTag, at + 1)) {
    if (after_blank_line(text, at)) return at;
  }
  return std::string_view::npos;
}

std::size_t find_char(std::string_view text, std::size_t from, char wanted) {
  const void* found = std::memchr(text.data() + from, wanted, text.size() - from);
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace

bool Lexer::at_line_start(std::size_t at) const {
  while (at > 0 && (text_[at - 1] == ' ' || text_[at - 1] == '\t')) --at;
  return at == 0 || is_line_end(text_[at - 1]) || text_.substr(0, at).ends_with(kByteOrderMark);
}

bool Lexer::looks_like_tag(std::size_t at) const {
  const std::size_t begin = std::min(text_.find_first_not_of(" \t", at + 1), text_.size());
  std::size_t end = begin;
  while (end < text_.size() && ((class_of(text_[end]) & (kLetter | kDigit)) != 0 || text_[end] == '_')) ++end;
  if (end == begin) return false;
  while (end < text_.size() && (text_[end] == ' ' || text_[end] == '\t')) ++end;
  return end < text_.size() && text_[end] == '"';
}

std::size_t Lexer::line_end() {
  if (!line_end_ || *line_end_ < pos_) {
    std::size_t end = pos_;
    while (end < text_.size() && !is_line_end(text_[end])) ++end;
    line_end_ = end;
  }
  return *line_end_;
}

std::size_t Lexer::comment_close() {
  if (!comment_close_ || *comment_close_ < pos_) comment_close_ = find_char(text_, pos_, '}');
  return *comment_close_;
}

void Lexer::skip_line() { pos_ = line_end(); }

bool Lexer::skip_comment() {
  const std::size_t close = comment_close();
  const std::size_t end = close == std::string_view::npos ? text_.size() : close;
  // Most comments are one line: only the others can hold the beginning of a game.
  if (std::memchr(text_.data() + pos_, '\n', end - pos_) != nullptr) {
    const std::size_t begin = find_certain_begin(text_, pos_, end);
    if (begin != std::string_view::npos) {
      pos_ = begin;
      return false;
    }
  }
  pos_ = close == std::string_view::npos ? end : close + 1;
  return close != std::string_view::npos;
}

bool Lexer::skip_variation() {
  int depth = 0;
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    if (c == '{') {
      if (!skip_comment()) return false;
      continue;
    }
    if (c == ';' || (c == '%' && (pos_ == 0 || is_line_end(text_[pos_ - 1])))) {
      skip_line();
      continue;
    }
    if (c == '[' && at_line_start(pos_) && looks_like_tag(pos_)) return false;
    ++pos_;
    if (c == '(') ++depth;
    if (c == ')' && --depth == 0) return true;
  }
  return false;
}

// The value of a tag ends at the first quote before ']' that no backslash escapes, else at any such quote,
// else with the line (npos). A line of many tags is searched for the first kind once: what escapes what does
// not depend on the tag, because the quote that opens a value stands behind no backslash.
std::size_t Lexer::value_end(std::string_view line, std::size_t begin) {
  const bool none_is_plain = end_without_plain_close_ == line.size();
  std::size_t escaped_close = std::string_view::npos;
  for (std::size_t at = begin; at < line.size(); ++at) {
    const bool escape =
        line[at] == '\\' && at + 1 < line.size() && (line[at + 1] == '"' || line[at + 1] == '\\');
    if (escape) ++at;
    if (line[at] != '"') continue;
    const std::size_t after = line.find_first_not_of(" \t", at + 1);
    if (after == std::string_view::npos || line[after] != ']') continue;
    if (!escape || none_is_plain) return at;
    if (escaped_close == std::string_view::npos) escaped_close = at;
  }
  end_without_plain_close_ = line.size();
  return escaped_close;
}

Token Lexer::lex_tag() {
  Token token;
  token.kind = TokenKind::kTag;
  token.begin = pos_;
  token.after_text = seen_text_;
  token.after_blank_line = text_.substr(pos_).starts_with(kEventTag) && after_blank_line(text_, pos_);
  const std::size_t end = line_end();
  const std::string_view line = text_.substr(0, end);
  const std::size_t quote = line.find('"', pos_);
  const std::size_t name = line.find_first_not_of(" \t", pos_ + 1);
  token.text = line.substr(name, line.find_first_of(" \t\"", name) - name);
  const std::size_t close = value_end(line, quote + 1);
  if (close == std::string_view::npos) {
    token.value = line.substr(quote + 1);
    pos_ = end;
  } else {
    token.value = line.substr(quote + 1, close - quote - 1);
    pos_ = line.find(']', close) + 1;
  }
  in_header_ = true;
  seen_text_ = false;
  return token;
}

std::size_t Lexer::word_end(std::size_t at) const {
  while (at < text_.size() && (class_of(text_[at]) & (kSpace | kDelimiter)) == 0) ++at;
  // 'e8(Q)' is one word.
  if (at + 2 < text_.size() && text_[at] == '(' && text_[at + 2] == ')' &&
      std::string_view("QRBNqrbn").find(text_[at + 1]) != std::string_view::npos) {
    return at + 3;
  }
  return at;
}

bool Lexer::skip_number() {
  std::size_t at = pos_;
  while (at < text_.size() && (class_of(text_[at]) & kDigit) != 0) ++at;
  if (at < text_.size() && (text_[at] == '-' || text_[at] == '/')) return false;
  if (text_.substr(pos_, at - pos_) == "0000") return false;  // UCI's null move
  const std::size_t digits_end = at;
  while (at < text_.size() && text_[at] == '.') ++at;
  dots_ = static_cast<int>(std::min<std::size_t>(at - digits_end, 3));
  pos_ = at;
  return true;
}

Token Lexer::lex_word(std::size_t begin) {
  pos_ = word_end(begin);
  Token token;
  token.begin = begin;
  token.text = text_.substr(begin, pos_ - begin);
  token.kind = is_result(token.text) ? TokenKind::kResult : TokenKind::kWord;
  return token;
}

Token Lexer::next() {
  while (pos_ < text_.size()) {
    const std::size_t begin = pos_;
    const char c = text_[pos_];
    const std::uint8_t kind = class_of(c);
    if ((kind & kSpace) != 0) {
      ++pos_;
      continue;
    }
    if (c == ';' || (c == '%' && (pos_ == 0 || is_line_end(text_[pos_ - 1])))) {
      skip_line();
      continue;
    }
    if (c == '[' && (in_header_ || looks_like_tag(pos_))) {
      const Token token = looks_like_tag(pos_) ? lex_tag() : Token{};
      if (token.kind == TokenKind::kEnd) skip_line();  // in a header, a tag without a value
      if (!complete_ && line_end() == text_.size()) break;
      if (token.kind == TokenKind::kTag) return token;
      continue;
    }
    if (text_.substr(pos_, 3) == kByteOrderMark) {
      pos_ += 3;
      continue;
    }
    in_header_ = false;
    seen_text_ = true;
    if (c == '{') {
      if (skip_comment()) {
        return {
            .kind = TokenKind::kComment, .begin = begin, .text = text_.substr(begin + 1, pos_ - begin - 2)};
      }
      if (!complete_ && pos_ == text_.size()) break;
      return {.kind = TokenKind::kOpenComment, .begin = begin};
    }
    if (c == '(') {
      if (skip_variation()) continue;
      if (!complete_ && pos_ == text_.size()) break;
      return {.kind = TokenKind::kOpenVariation, .begin = begin};
    }
    if (c == '$') {
      ++pos_;
      while (pos_ < text_.size() && (class_of(text_[pos_]) & kDigit) != 0) ++pos_;
      continue;
    }
    if (c == '.' && dots_ == 1) dots_ = 3;  // '1. ... e5'
    // '%' in a line begins no word: a game that began with one would read otherwise at the start of a text.
    if (c == ')' || c == '}' || c == '.' || c == '%') {
      ++pos_;
      continue;
    }
    if ((kind & kDigit) != 0 && skip_number()) continue;
    if (c == '*') {
      ++pos_;
      return {.kind = TokenKind::kResult, .begin = begin, .text = text_.substr(begin, 1)};
    }
    Token token = lex_word(begin);
    if (!complete_ && pos_ + 2 >= text_.size()) break;  // 'e8' may go on as 'e8(Q)'
    if ((kind & kGlyph) != 0 && token.text != "--") {
      std::size_t at = 0;
      while (at < token.text.size() && (class_of(token.text[at]) & kGlyph) != 0) ++at;
      if (at == token.text.size()) continue;
    }
    if (token.text == "e.p." || token.text == "ep") continue;
    token.dots = std::exchange(dots_, 0);
    return token;
  }
  return {.kind = TokenKind::kEnd, .begin = text_.size()};
}

bool GameBoundaries::begins_game(const Token& token) {
  bool begins = false;
  if (token.kind == TokenKind::kTag) {
    const bool is_event = token.text == "Event";
    begins = !open_ || in_moves_ || token.after_text || token.after_blank_line || (is_event && event_seen_);
    if (begins) *this = GameBoundaries{};
    event_seen_ |= is_event;
    open_ = true;
  } else if (token.kind == TokenKind::kWord) {
    begins = !open_ || terminated_;
    if (begins) *this = GameBoundaries{};
    open_ = in_moves_ = true;
  } else if (token.kind == TokenKind::kResult && open_) {
    in_moves_ = terminated_ = true;
  }
  return begins;
}

std::size_t last_game_begin(std::string_view text) {
  for (std::size_t at = text.rfind(kEventTag); at != std::string_view::npos && at > 0;
       at = text.rfind(kEventTag, at - 1)) {
    if (after_blank_line(text, at)) return at;
  }
  // No certain beginning: read what is there.
  Lexer lexer(text, false);
  GameBoundaries boundaries;
  std::size_t last = 0;
  for (Token token = lexer.next(); token.kind != TokenKind::kEnd; token = lexer.next()) {
    if (boundaries.begins_game(token)) last = token.begin;
  }
  return last;
}

}  // namespace alphazero::pgn
