// PGN text as tokens: tags, words and comments of the main line, results. Variations, glyphs and move numbers
// are skipped here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace alphazero::pgn {

enum class TokenKind : std::uint8_t {
  kEnd,            // no further token (in unfinished text: none that is known in full)
  kTag,            // [name "value"]
  kWord,           // should be a move
  kResult,         // 1-0, 0-1, 1/2-1/2, *
  kComment,        // {text}
  kOpenComment,    // a comment that the next game or the end of the text cuts off
  kOpenVariation,  // the same for a variation
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::size_t begin = 0;          // offset of the first byte
  std::string_view text{};        // word, result, comment, or the name of a tag
  std::string_view value{};       // of a tag, as written (escapes and all)
  int dots = 0;                   // word: dots of the move number before it; '1.' is White's, '1...' Black's
  bool after_text = false;        // tag: something other than tags stands between it and the tag before
  bool after_blank_line = false;  // tag: it is '[Event "' at the start of a line after an empty one
};

// One token after another. An empty line followed by '[Event "' begins a game wherever it stands, in an
// open comment as well: one missing brace must not swallow the games after it, and text can be cut
// there without knowing what came before. The time is linear in the text, whatever it holds: what is found
// ahead of the place reached is remembered until that place is passed.
class Lexer {
 public:
  // `complete` false: the text goes on beyond its end, so a token that touches the end is not told.
  Lexer(std::string_view text, bool complete) : text_(text), complete_(complete) {}
  Token next();

 private:
  Token lex_tag();
  Token lex_word(std::size_t begin);
  bool skip_comment();    // false: cut off (pos_ at the cut)
  bool skip_variation();  // the same
  void skip_line();
  bool skip_number();  // false: it is a word
  bool looks_like_tag(std::size_t at) const;
  bool at_line_start(std::size_t at) const;
  std::size_t word_end(std::size_t at) const;
  std::size_t line_end();       // of the line at pos_
  std::size_t comment_close();  // the next '}', or npos
  std::size_t value_end(std::string_view line, std::size_t begin);

  std::string_view text_;
  std::size_t pos_ = 0;
  bool complete_;
  bool in_header_ = false;  // the last token was a tag and only tags followed
  bool seen_text_ = false;  // since the last tag
  int dots_ = 0;            // since the last word, as far as a move number began them
  std::optional<std::size_t> line_end_;
  std::optional<std::size_t> comment_close_;
  std::size_t end_without_plain_close_ = 0;  // of a line in which no tag's value ends without an escape
};

// Where a game begins in the stream of tokens.
class GameBoundaries {
 public:
  // True if this token is the first of a new game.
  bool begins_game(const Token& token);
  bool open() const { return open_; }

 private:
  bool open_ = false;
  bool in_moves_ = false;    // a word or result was seen in this game
  bool terminated_ = false;  // a result was seen in this game
  bool event_seen_ = false;
};

// Offset of the last game in `text` that is known to begin there, text beginning with a game and going
// on beyond its end; 0 if there is none but the first. The text may be cut there.
std::size_t last_game_begin(std::string_view text);

}  // namespace alphazero::pgn
