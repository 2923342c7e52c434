// Three ways in which programs write evaluations into comments; docs/data_format.md describes them and
// whose view each one takes. Anything else, and any number that no engine means, is no evaluation.
#include "data/pgn_comment.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

namespace alphazero::pgn {
namespace {

constexpr int kMostCentipawns = 100'000;  // TCEC's engines go up to 990 pawns
constexpr int kMostMoves = 1'000;         // to mate
constexpr int kMostDepth = 1'000;
constexpr std::uint64_t kMostClockMs = 3'600'000'000;  // 1,000 hours, and fits into 32 bits

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes parts from the front of a text.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool at_end() const { return text_.empty(); }
  std::string_view rest() const { return text_; }

  bool skip(char wanted) {
    if (text_.empty() || text_.front() != wanted) return false;
    text_.remove_prefix(1);
    return true;
  }

  bool skip_spaces() {
    const std::size_t before = text_.size();
    while (!text_.empty() && is_space(text_.front())) text_.remove_prefix(1);
    return text_.size() < before;
  }

  // +1 or -1.
  int take_sign() {
    if (skip('-')) return -1;
    skip('+');
    return 1;
  }

  // Digits, at most `most`; one that is too large is passed over and is `most` + 1.
  std::optional<std::uint64_t> take_number(std::uint64_t most) {
    if (text_.empty() || !is_digit(text_.front())) return std::nullopt;
    std::uint64_t number = 0;
    while (!text_.empty() && is_digit(text_.front())) {
      number = std::min(number * 10 + static_cast<std::uint64_t>(text_.front() - '0'), most + 1);
      text_.remove_prefix(1);
    }
    return number;
  }

  // What follows a decimal point, in units of 10^-places, rounded to the nearest; 0 where there is no point.
  std::uint64_t take_fraction(int places, bool& has_digits) {
    if (!skip('.')) return 0;
    std::uint64_t number = 0;
    bool rounds_up = false;
    for (int place = 0;; ++place) {
      const bool is_given = !text_.empty() && is_digit(text_.front());
      if (!is_given && place >= places) break;
      const int digit = is_given ? text_.front() - '0' : 0;
      if (place < places) number = number * 10 + static_cast<std::uint64_t>(digit);
      if (place == places) rounds_up = digit >= 5;
      if (is_given) {
        has_digits = true;
        text_.remove_prefix(1);
      }
    }
    return number + (rounds_up ? 1 : 0);
  }

 private:
  std::string_view text_;
};

struct Evaluation {
  bool is_mate = false;
  int value = 0;  // centipawns or moves
};

// Moves to mate behind '#' or 'M', in moves or plies. Mate in 0 says nothing that the board does not.
std::optional<Evaluation> take_mate(Cursor& cursor, int sign, bool in_plies) {
  const auto number = cursor.take_number(2 * kMostMoves);
  if (!number) return std::nullopt;
  const int moves = static_cast<int>(in_plies ? (*number + 1) / 2 : *number);
  if (moves < 1 || moves > kMostMoves) return std::nullopt;
  return Evaluation{true, sign * moves};
}

// '0.35', '-1.2', '.5'; a whole number only if `or_whole`: some programs write centipawns so.
std::optional<Evaluation> take_pawns(Cursor& cursor, int sign, bool or_whole) {
  const auto pawns = cursor.take_number(kMostCentipawns / 100);
  bool has_digits = pawns.has_value();
  bool has_fraction = false;
  const bool has_point = cursor.rest().starts_with('.');
  const std::uint64_t hundredths = cursor.take_fraction(2, has_fraction);
  has_digits |= has_fraction;
  if (!has_digits || (!has_point && !or_whole)) return std::nullopt;
  const auto centipawns = static_cast<int>(pawns.value_or(0) * 100 + hundredths);
  if (centipawns > kMostCentipawns) return std::nullopt;
  return Evaluation{false, sign * centipawns};
}

// False: a depth that no engine means.
bool take_depth(Cursor& cursor, std::optional<int>& depth) {
  const auto number = cursor.take_number(kMostDepth);
  if (!number || *number > kMostDepth) return false;
  depth = static_cast<int>(*number);
  return true;
}

// 'h:mm:ss' with decimals of a second or without, in milliseconds.
std::optional<std::uint32_t> take_clock(Cursor& cursor) {
  std::uint64_t seconds = 0;
  for (int part = 0; part < 3; ++part) {
    if (part > 0 && !cursor.skip(':')) return std::nullopt;
    const auto number = cursor.take_number(kMostClockMs / 1000);
    if (!number) return std::nullopt;
    seconds = seconds * 60 + *number;
  }
  bool has_digits = false;
  const std::uint64_t clock_ms = seconds * 1000 + cursor.take_fraction(3, has_digits);
  if (clock_ms > kMostClockMs) return std::nullopt;
  return static_cast<std::uint32_t>(clock_ms);
}

void set_eval(MoveNote& note, const Evaluation& found, std::optional<int> depth, EvalSource source) {
  if (found.is_mate) {
    note.eval_mate = static_cast<std::int16_t>(found.value);
  } else {
    note.eval_cp = found.value;
  }
  note.has_mate = found.is_mate;
  note.has_cp = !found.is_mate;
  note.has_depth = depth.has_value();
  note.eval_depth = static_cast<std::uint16_t>(depth.value_or(0));
  note.eval_source = source;
}

void set_clock(MoveNote& note, std::optional<std::uint32_t> clock_ms) {
  if (!clock_ms || note.has_clock) return;
  note.clock_ms = *clock_ms;
  note.has_clock = true;
}

// Behind '[%eval': ' 0.35]', ' #-3]', ' -1.2,20]'.
void read_eval_command(Cursor cursor, MoveNote& note) {
  if (note.has_eval() || !cursor.skip_spaces()) return;
  const bool is_mate = cursor.skip('#');
  const int sign = cursor.take_sign();
  const auto found = is_mate ? take_mate(cursor, sign, false) : take_pawns(cursor, sign, true);
  std::optional<int> depth;
  if (!found || (cursor.skip(',') && !take_depth(cursor, depth))) return;
  cursor.skip_spaces();
  if (cursor.skip(']')) set_eval(note, *found, depth, EvalSource::kAnnotation);
}

// Behind '[%clk': ' 0:03:00]', ' 0:02:59.9]'.
void read_clock_command(Cursor cursor, MoveNote& note) {
  if (!cursor.skip_spaces()) return;
  const auto clock_ms = take_clock(cursor);
  cursor.skip_spaces();
  if (cursor.skip(']')) set_clock(note, clock_ms);
}

// True if there was any '[%'.
bool read_commands(std::string_view text, MoveNote& note) {
  bool found_any = false;
  for (std::size_t at = text.find("[%"); at != std::string_view::npos; at = text.find("[%", at + 2)) {
    found_any = true;
    const std::string_view command = text.substr(at + 2);
    if (command.starts_with("eval")) read_eval_command(Cursor(command.substr(4)), note);
    if (command.starts_with("clk")) read_clock_command(Cursor(command.substr(3)), note);
  }
  return found_any;
}

// cutechess and fastchess: '+0.35/12 1.2s', '-M4/20 0.5s, White mates', for the mover; mates in plies. The
// 's' is what tells it from Arena's comments, which look alike and count otherwise.
void read_engine_score(std::string_view text, bool white_moved, MoveNote& note) {
  Cursor cursor(text);
  const int sign = cursor.take_sign();
  const auto found = cursor.skip('M') ? take_mate(cursor, sign, true) : take_pawns(cursor, sign, false);
  std::optional<int> depth;
  if (!found || !cursor.skip('/') || !take_depth(cursor, depth) || !cursor.skip_spaces()) return;
  bool has_digits = cursor.take_number(1).has_value();
  cursor.take_fraction(3, has_digits);
  if (!has_digits || !cursor.skip('s')) return;
  cursor.skip_spaces();
  if (!cursor.at_end() && !cursor.skip(',')) return;
  set_eval(note, {found->is_mate, white_moved ? found->value : -found->value}, depth, EvalSource::kEngine);
}

// The values of a TCEC comment that say something here.
struct TcecValues {
  std::string_view wv, ev, depth, time_left;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// 'key=value' between commas. A line of moves (pv=) has no comma in it; the first of equal keys counts.
TcecValues find_tcec_values(std::string_view text) {
  TcecValues values;
  const auto take = [](std::string_view part, std::string_view key, std::string_view& value) {
    if (value.data() == nullptr && part.starts_with(key)) value = trimmed(part.substr(key.size()));
  };
  while (!text.empty()) {
    std::size_t begin = 0;
    while (begin < text.size() && is_space(text[begin])) ++begin;
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, comma - begin);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (part.empty()) continue;
    switch (part.front()) {
      case 'w':
        take(part, "wv=", values.wv);
        break;
      case 'e':
        take(part, "ev=", values.ev);
        break;
      case 't':
        take(part, "tl=", values.time_left);
        break;
      case 'd':
        take(part, "d=", values.depth);
        break;
      default:
        break;
    }
  }
  return values;
}

std::optional<std::uint32_t> read_time_left(std::string_view text) {
  Cursor cursor(text);
  if (text.find(':') != std::string_view::npos) {
    const auto clock_ms = take_clock(cursor);
    return cursor.at_end() ? clock_ms : std::nullopt;
  }
  const auto clock_ms = cursor.take_number(kMostClockMs);
  if (!clock_ms || !cursor.at_end() || *clock_ms > kMostClockMs) return std::nullopt;
  return static_cast<std::uint32_t>(*clock_ms);
}

// TCEC: 'd=30, ..., tl=3514094, ..., wv=0.24', before 2013 'ev=-0.24', both for White (in 2013 there are
// both, and ev is the mover's). Mates: 'M57', '-M59', '#4', '-#24'. Depths 0 and 1 stand for book moves.
void read_tcec(std::string_view text, MoveNote& note) {
  const TcecValues values = find_tcec_values(text);
  const std::string_view score = values.wv.data() != nullptr ? values.wv : values.ev;
  if (score.data() == nullptr) return;
  set_clock(note, read_time_left(values.time_left));
  if (note.has_eval()) return;
  Cursor cursor(score);
  const int sign = cursor.take_sign();
  const bool is_mate = cursor.skip('M') || cursor.skip('#');
  const auto found = is_mate ? take_mate(cursor, sign, false) : take_pawns(cursor, sign, false);
  if (!found || !cursor.at_end()) return;
  std::optional<int> depth;
  if (values.depth.data() != nullptr) {
    Cursor digits(values.depth);
    if (!take_depth(digits, depth) || !digits.at_end() || *depth < 2) return;
  }
  set_eval(note, *found, depth, EvalSource::kEngine);
}

}  // namespace

void read_comment(std::string_view text, bool white_moved, MoveNote& note) {
  if (read_commands(text, note)) return;
  text = trimmed(text);
  if (text.empty()) return;
  const char first = text.front();
  if (first == '+' || first == '-' || is_digit(first)) {
    if (!note.has_eval()) read_engine_score(text, white_moved, note);
    return;
  }
  read_tcec(text, note);
}

}  // namespace alphazero::pgn
