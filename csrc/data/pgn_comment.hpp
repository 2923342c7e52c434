// What a comment in PGN says of the move before it: an evaluation and the clock.
#pragma once

#include <cstdint>
#include <string_view>

namespace alphazero::pgn {

// Where an evaluation is from (docs/data_format.md, eval_source).
enum class EvalSource : std::uint8_t {
  kAnnotation = 1,  // '[%eval ]': of the position after the move, from White's view
  kEngine = 2,      // the engine that made the move, of the position before it
};

// The columns eval_* and clock_ms of one ply; what is not known is not valid.
struct MoveNote {
  std::int32_t eval_cp = 0;    // for White
  std::int16_t eval_mate = 0;  // moves to mate, negative: Black mates
  std::uint16_t eval_depth = 0;
  std::uint32_t clock_ms = 0;
  EvalSource eval_source = EvalSource::kAnnotation;
  bool has_cp = false;  // at most one of has_cp and has_mate
  bool has_mate = false;
  bool has_depth = false;  // only with an evaluation
  bool has_clock = false;

  bool has_eval() const { return has_cp || has_mate; }
};

// Adds what a comment (the text between its braces) says and the note does not: the first comment of a move
// that has an evaluation, or a clock, counts. Any text may come; the time is linear in it.
void read_comment(std::string_view text, bool white_moved, MoveNote& note);

}  // namespace alphazero::pgn
