#include "data/lc0_games.hpp"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "data/lc0_history.hpp"
#include "data/lc0_record.hpp"
#include "games/chess/chess_game.hpp"
#include "games/line.hpp"

namespace alphazero::lc0 {
namespace {

using chess::Color;
using chess::Position;

constexpr float kTolerance = 1e-4F;     // of a value beyond its bounds, as the store has it
constexpr double kSumTolerance = 0.01;  // of a policy; lc0's rescorer allows as much

std::string text_of(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
  return text;
}

[[noreturn]] void refuse(const std::string& name, const std::string& value, const std::string& expected) {
  throw GameError(name + ' ' + value + "; expected " + expected);
}

void expect_between(float value, float low, float high, const char* name, const char* expected) {
  const bool fits = value >= low - kTolerance && value <= high + kTolerance;  // not NaN
  if (!fits) refuse(name, text_of(value), expected);
}

void check_q(float value, const char* name) { expect_between(value, -1, 1, name, "-1 to 1"); }
void check_d(float value, const char* name) { expect_between(value, 0, 1, name, "0 to 1"); }
void check_count(float value, const char* name) {
  const bool fits = value >= 0 && value <= std::numeric_limits<float>::max();
  if (!fits) refuse(name, text_of(value), "a number from 0");
}
void check_finite(float value, const char* name) {
  if (!std::isfinite(value)) refuse(name, text_of(value), "a finite number");
}

void check_bytes(const Record& record) {
  constexpr std::array<const char*, 4> kCastlings = {"castling_us_ooo", "castling_us_oo", "castling_them_ooo",
                                                     "castling_them_oo"};
  for (std::size_t i = 0; i < kCastlings.size(); ++i) {
    if (record.castling[i] > 1) refuse(kCastlings[i], std::to_string(record.castling[i]), "0 or 1");
  }
  if (record.black_to_move > 1) {
    refuse("side_to_move", std::to_string(record.black_to_move), "0 or 1");
  }
  constexpr std::uint8_t kKnown = kBestIsProven | kTooLong | kAdjudicated | kNotTrainedOn;
  if ((record.invariance_info & ~kKnown) != 0) {
    refuse("invariance_info", std::to_string(record.invariance_info), "bits 3 to 6 alone in input format 1");
  }
}

void check_values(const Record& record) {
  check_q(record.root_q, "root_q");
  check_q(record.best_q, "best_q");
  check_q(record.played_q, "played_q");
  check_d(record.root_d, "root_d");
  check_d(record.best_d, "best_d");
  check_d(record.played_d, "played_d");
  if (!std::isnan(record.orig_q)) check_q(record.orig_q, "orig_q");
  if (!std::isnan(record.orig_d)) check_d(record.orig_d, "orig_d");
  if (!std::isnan(record.orig_m)) check_finite(record.orig_m, "orig_m");
  check_finite(record.root_m, "root_m");
  check_finite(record.best_m, "best_m");
  check_finite(record.played_m, "played_m");
  check_count(record.plies_left, "plies_left");
  check_count(record.policy_kld, "policy_kld");
  check_finite(record.q_st, "q_st");
}

// +1 white won, 0 drawn, -1.
int result_of(const Record& record) {
  const float q = record.result_q;
  if (q != -1 && q != 0 && q != 1) refuse("result_q", text_of(q), "-1, 0 or 1");
  if (record.result_d != (q == 0 ? 1.0F : 0.0F)) {
    refuse("result_d", text_of(record.result_d),
           q == 0 ? "1 with a result_q of 0" : "0 with a result_q of -1 or 1");
  }
  return record.black_to_move ? -static_cast<int>(q) : static_cast<int>(q);
}

End end_of(Termination termination, std::uint8_t marks) {
  if ((marks & kTooLong) != 0) return End::kTooLong;
  if ((marks & kAdjudicated) != 0) return End::kAdjudicated;
  switch (termination) {
    case Termination::kWin:
      return End::kWin;
    case Termination::kStalemate:
      return End::kStalemate;
    case Termination::kRepetition:
      return End::kRepetition;
    case Termination::kFiftyMoves:
      return End::kFiftyMoves;
    case Termination::kInsufficientMaterial:
      return End::kInsufficientMaterial;
    default:
      return End::kUnknown;
  }
}

// Indices of the probabilities that are not kIllegal, ascending: a few dozen among 1,858, found by blocks.
void find_marked(const std::uint8_t* probabilities, std::vector<int>& marked) {
  constexpr std::size_t kBlock = 32;
  constexpr std::size_t kNumWhole = chess::kNumPolicyMoves / kBlock * kBlock;
  constexpr auto kBits = std::bit_cast<std::uint32_t>(kIllegal);
  std::array<std::uint32_t, kBlock> block;
  const auto look = [&](std::size_t begin, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      if (block[i] != kBits) marked.push_back(static_cast<int>(begin + i));
    }
  };
  marked.clear();
  for (std::size_t begin = 0; begin < kNumWhole; begin += kBlock) {
    std::memcpy(block.data(), probabilities + begin * sizeof(float), sizeof block);
    std::uint32_t differs = 0;
    for (const std::uint32_t bits : block) differs |= bits ^ kBits;
    if (differs != 0) look(begin, kBlock);
  }
  constexpr std::size_t kRest = chess::kNumPolicyMoves - kNumWhole;
  std::memcpy(block.data(), probabilities + kNumWhole * sizeof(float), kRest * sizeof(float));
  look(kNumWhole, kRest);
}

}  // namespace

// Reads one file; its columns are those of one game.
class Games::Reader {
 public:
  void take(std::span<const std::uint8_t> piece) {
    num_bytes_ += piece.size();
    while (!piece.empty()) {
      if (rest_.empty() && record_bytes_ != 0 && piece.size() >= record_bytes_) {
        read(piece.data());
        piece = piece.subspan(record_bytes_);
        continue;
      }
      const std::size_t whole = record_bytes_ != 0 ? record_bytes_ : sizeof version_;
      const std::size_t added = std::min(whole - rest_.size(), piece.size());
      rest_.insert(rest_.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(added));
      piece = piece.subspan(added);
      if (rest_.size() < whole) return;
      if (record_bytes_ == 0) {
        read_version();
      } else {
        read(rest_.data());
        rest_.clear();
      }
    }
  }

  void finish() const {
    if (number_ > 0 && rest_.empty()) return;
    const std::string size = std::to_string(num_bytes_) + " bytes";
    if (record_bytes_ == 0) refuse("file of", size, "records");
    refuse("file of", size, "records of " + std::to_string(record_bytes_) + " bytes each");
  }

  int result() const { return result_; }
  End end() const { return end_of(line_->outcome().termination, marks_); }

  std::string start;
  std::vector<Move> moves, best_move;
  std::vector<std::uint8_t> flags;
  std::vector<float> root_q, root_d, best_q;
  std::vector<std::uint32_t> visits;
  std::array<std::vector<float>, kNumberNames.size()> numbers;
  std::vector<std::uint32_t> policy_offset{0};
  std::vector<Move> policy_move;
  std::vector<std::uint16_t> policy_prob;
  std::uint32_t version() const { return version_; }

 private:
  void check_version(std::uint32_t version) const {
    if (version == version_ && (version == kVersion6 || version == kVersion7)) return;
    const bool is_old = version < kVersion6;
    throw GameError("version " + std::to_string(version) +
                    (version != version_ ? "; expected " + std::to_string(version_) + " as the records before"
                     : is_old            ? "; expected 6 or 7 (older ones hold no move played)"
                                         : "; expected 6 or 7"));
  }

  void read_version() {
    std::memcpy(&version_, rest_.data(), sizeof version_);
    naming_record([&] { check_version(version_); });
    record_bytes_ = version_ == kVersion6 ? sizeof(Record) : sizeof(Record7);
  }

  // A record, and its probabilities where they lie: they are most of it.
  void read(const std::uint8_t* bytes) {
    constexpr std::size_t kBegin = offsetof(Record, probabilities);
    constexpr std::size_t kEnd = offsetof(Record, planes);
    alignas(8) Record7 record;
    std::memcpy(&record, bytes, kBegin);
    std::memcpy(reinterpret_cast<std::uint8_t*>(&record) + kEnd, bytes + kEnd, record_bytes_ - kEnd);
    probabilities_ = bytes + kBegin;
    naming_record([&] { take(record); });
    ++number_;
  }

  template <typename Do>
  void naming_record(Do work) const {
    try {
      work();
    } catch (const GameError& error) {
      throw GameError("record " + std::to_string(number_) + ": " + error.what());
    }
  }

  float probability(int index) const {
    float value;
    std::memcpy(&value, probabilities_ + static_cast<std::size_t>(index) * sizeof value, sizeof value);
    return value;
  }

  void take(const Record7& record) {
    if (record.version != version_) check_version(record.version);
    if (record.input_format != kClassicalInput) {
      refuse("input format", std::to_string(record.input_format), "1 (classical, 112 planes)");
    }
    check_bytes(record);
    check_values(record);
    if (version_ == kVersion7) check_finite(record.d_st, "d_st");
    if (number_ == 0) {
      begin(record);
    } else {
      follow(record);
    }
    check_planes(record);
    const int result = result_of(record);
    if (number_ > 0 && result != result_) {
      refuse("result_q", text_of(record.result_q), "the result of the records before");
    }
    result_ = result;
    marks_ |= record.invariance_info & (kTooLong | kAdjudicated);
    take_policy();
    take_search(record);
  }

  void begin(const Record& record) {
    const Beginning beginning = beginning_of(record);
    if (!(beginning.position == Position::initial())) start = beginning.position.fen();
    line_.emplace(beginning.position);
    push_board();
    for (const Move move : beginning.moves) push_without_record(move);
  }

  // Plays what lies between the record before and this one: most often nothing.
  void follow(const Record& record) {
    const auto mover = static_cast<Color>(record.black_to_move);
    if (line_->state().side_to_move() == mover && boards_.back()[mover] == board_in(record, 0)) return;
    const auto between = moves_between(line_->state(), record);
    if (!between) {
      throw GameError("planes do not follow from the move played in record " + std::to_string(number_ - 1));
    }
    for (const Move move : *between) push_without_record(move);
  }

  // The record's position is the line's, as far back as the line goes.
  void check_planes(const Record& record) const {
    const Position& position = line_->state();
    const auto mover = position.side_to_move();
    if (record.black_to_move != mover) {
      refuse("side_to_move", std::to_string(record.black_to_move), "the side whose turn it is");
    }
    const std::size_t known = std::min<std::size_t>(boards_.size(), chess::kEncodedPositions);
    for (std::size_t back = 0; back < known; ++back) {
      if (board_in(record, back) != boards_[boards_.size() - 1 - back][mover]) {
        throw GameError("planes of the position " + std::to_string(back) +
                        " plies before are not those of the game");
      }
    }
    for (std::size_t at = 12; at < record.planes.size(); at += chess::kPlanesPerPosition) {
      const std::uint64_t plane = record.planes[at];
      if (plane != 0 && plane != ~std::uint64_t{0}) {
        throw GameError("plane " + std::to_string(at) + " (repetitions) is neither empty nor full");
      }
    }
    const auto other = static_cast<Color>(mover ^ 1);
    for (int i = 0; i < 4; ++i) {
      const bool right = position.can_castle(i < 2 ? mover : other, i % 2 == 1);
      if (record.castling[i] != static_cast<std::uint8_t>(right)) {
        throw GameError("castling rights are not those of the game");
      }
    }
    const int clock = std::min(position.halfmove_clock(), 255);
    if (record.rule50 != clock) {
      throw GameError("rule50 " + std::to_string(record.rule50) + "; expected " + std::to_string(clock) +
                      " by the moves of the game");
    }
  }

  void take_policy() {
    const Position& position = line_->state();
    find_marked(probabilities_, marked_);
    position.legal_moves(legal_);
    is_legal_.reset();
    for (const Move move : legal_) is_legal_.set(chess::policy_index(move, position.side_to_move()));
    double sum = 0;
    for (const int index : marked_) {
      const float share = probability(index);
      if (!(share >= 0 && share <= 1)) {
        refuse("probabilities[" + std::to_string(index) + "]", text_of(share), "-1 or 0 to 1");
      }
      if (!is_legal_[index]) {
        refuse("probabilities[" + std::to_string(index) + "]", text_of(share),
               "-1 for a move that is not legal");
      }
      sum += share;
    }
    if (marked_.size() != legal_.size()) {
      throw GameError("probabilities for " + std::to_string(marked_.size()) + " of " +
                      std::to_string(legal_.size()) + " legal moves; expected all");
    }
    if (!(std::abs(sum - 1) <= kSumTolerance)) {
      refuse("probabilities with a sum of", text_of(static_cast<float>(sum)), "1");
    }
    for (const int index : marked_) {
      const auto share = static_cast<std::uint16_t>(probability(index) * kFixedPoint + 0.5);
      if (share == 0) continue;
      policy_move.push_back(chess::policy_move(position, index));
      policy_prob.push_back(share);
    }
  }

  Move legal_move(std::uint16_t index, const char* name) const {
    if (index >= chess::kNumPolicyMoves) refuse(name, std::to_string(index), "below 1858");
    if (!is_legal_[index]) refuse(name, std::to_string(index), "a legal move");
    return chess::policy_move(line_->state(), index);
  }

  void take_search(const Record7& record) {
    const Move played = legal_move(record.played_idx, "played_idx");
    best_move.push_back(legal_move(record.best_idx, "best_idx"));
    const bool is_trained_on = (record.invariance_info & kNotTrainedOn) == 0;
    const bool is_proven = (record.invariance_info & kBestIsProven) != 0;
    flags.push_back((is_trained_on ? kTrainedOn : 0) | (is_proven ? kProven : 0));
    root_q.push_back(record.root_q);
    root_d.push_back(record.root_d);
    best_q.push_back(record.best_q);
    visits.push_back(record.visits);
    push_numbers({record.best_d, record.played_q, record.played_d, record.orig_q, record.orig_d,
                  record.root_m, record.best_m, record.played_m, record.orig_m, record.plies_left,
                  record.policy_kld, record.q_st, version_ == kVersion7 ? record.d_st : kUnknown});
    push(played);
  }

  void push_without_record(Move move) {
    flags.push_back(0);
    best_move.push_back(move);
    for (auto* column : {&root_q, &root_d, &best_q}) column->push_back(0);
    visits.push_back(0);
    std::array<float, kNumberNames.size()> unknown;
    unknown.fill(kUnknown);
    push_numbers(unknown);
    push(move);
  }

  void push_numbers(const std::array<float, kNumberNames.size()>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) numbers[i].push_back(values[i]);
  }

  void push(Move move) {
    moves.push_back(move);
    policy_offset.push_back(static_cast<std::uint32_t>(policy_move.size()));
    line_->push(move);
    push_board();
  }

  void push_board() {
    const Board board = board_of(line_->state(), chess::kWhite);
    boards_.push_back({board, other_side(board)});
  }

  std::vector<std::uint8_t> rest_;               // of a record that is not whole yet
  const std::uint8_t* probabilities_ = nullptr;  // of the record at hand
  std::uint64_t num_bytes_ = 0;
  std::uint32_t version_ = 0;
  std::size_t record_bytes_ = 0;
  std::size_t number_ = 0;
  std::optional<Line<Chess>> line_;
  std::vector<std::array<Board, 2>> boards_;  // of the line, seen by white and by black
  int result_ = 0;
  std::uint8_t marks_ = 0;
  std::vector<int> marked_;
  std::vector<Move> legal_;
  std::bitset<chess::kNumPolicyMoves> is_legal_;
};

Games::Games() = default;
Games::~Games() = default;

void Games::begin() { reader_ = std::make_unique<Reader>(); }

void Games::take(std::span<const std::uint8_t> piece) {
  if (!reader_) throw std::logic_error("a game must begin before its records");
  reader_->take(piece);
}

void Games::finish() {
  if (!reader_) throw std::logic_error("a game must begin before it ends");
  const std::unique_ptr<Reader> reader = std::move(reader_);
  reader->finish();
  append(*reader);
}

void Games::add(std::span<const std::uint8_t> file) {
  begin();
  take(file);
  finish();
}

void Games::append(const Reader& reader) {
  const auto extend = [](auto& column, const auto& values) {
    column.insert(column.end(), values.begin(), values.end());
  };
  extend(moves, reader.moves);
  extend(best_move, reader.best_move);
  extend(flags, reader.flags);
  extend(root_q, reader.root_q);
  extend(root_d, reader.root_d);
  extend(best_q, reader.best_q);
  extend(visits, reader.visits);
  for (std::size_t i = 0; i < numbers.size(); ++i) extend(numbers[i], reader.numbers[i]);
  extend(policy_offset, reader.policy_offset);
  extend(policy_move, reader.policy_move);
  extend(policy_prob, reader.policy_prob);
  extend(fen_bytes, reader.start);
  moves_offset.push_back(static_cast<std::int32_t>(moves.size()));
  policy_part_offset.push_back(static_cast<std::int32_t>(policy_move.size()));
  fen_offset.push_back(static_cast<std::int32_t>(fen_bytes.size()));
  result.push_back(static_cast<std::int8_t>(reader.result()));
  end.push_back(static_cast<std::uint8_t>(reader.end()));
  version.push_back(static_cast<std::uint8_t>(reader.version()));
}

}  // namespace alphazero::lc0
