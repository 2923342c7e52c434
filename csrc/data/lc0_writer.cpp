#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "data/lc0_games.hpp"
#include "data/lc0_record.hpp"
#include "games/chess/chess_game.hpp"
#include "games/line.hpp"

namespace alphazero::lc0 {
namespace {

using chess::Position;

enum Number : std::size_t {
  kBestD,
  kPlayedQ,
  kPlayedD,
  kOrigQ,
  kOrigD,
  kRootM,
  kBestM,
  kPlayedM,
  kOrigM,
  kPliesLeft,
  kPolicyKld,
  kQSt,
};

[[noreturn]] void fail(std::size_t ply, const std::string& what) {
  throw GameError("ply " + std::to_string(ply) + ": " + what);
}

class Writer {
 public:
  explicit Writer(const StoredGame& game) : game_(game), is_searched_(!game.flags.empty()) { check(); }

  std::vector<std::uint8_t> write() {
    Line<Chess> line(game_.start.empty() ? Position::initial() : Position::from_fen(game_.start));
    std::vector<std::uint8_t> file;
    for (std::size_t ply = 0; ply < game_.moves.size(); ++ply) {
      if (!line.state().is_legal(game_.moves[ply])) {
        fail(ply, "move " + std::to_string(game_.moves[ply]) + " is not legal");
      }
      if (!is_searched_ || game_.policy_offset[ply] != game_.policy_offset[ply + 1]) {
        alignas(8) const Record record = record_of(line, ply);
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(&record);
        file.insert(file.end(), bytes, bytes + sizeof record);
      }
      line.push(game_.moves[ply]);
    }
    return file;
  }

 private:
  void check() const {
    const std::size_t plies = game_.moves.size();
    const auto fits = [plies](std::size_t size) { return size == 0 || size == plies; };
    bool good = fits(game_.best_move.size());
    for (const auto& number : game_.numbers) good = good && fits(number.size());
    if (is_searched_) {
      good = good && game_.flags.size() == plies && game_.root_q.size() == plies &&
             game_.root_d.size() == plies && game_.best_q.size() == plies && game_.visits.size() == plies &&
             game_.policy_offset.size() == plies + 1 && game_.policy_offset.front() == 0 &&
             std::is_sorted(game_.policy_offset.begin(), game_.policy_offset.end()) &&
             game_.policy_offset.back() == game_.policy_move.size() &&
             game_.policy_prob.size() == game_.policy_move.size();
    }
    if (!good || game_.result < -1 || game_.result > 1) {
      throw GameError("columns of the game do not fit each other");
    }
  }

  Record record_of(const Line<Chess>& line, std::size_t ply) {
    const Position& position = line.state();
    alignas(8) Record record{};
    record.version = kVersion6;
    record.input_format = kClassicalInput;
    encode_position(line, record);
    position.legal_moves(legal_);
    record.probabilities.fill(kIllegal);
    for (const Move move : legal_) probability(record, position, move) = 0;
    record.invariance_info = marks_of(ply);
    const int result = position.side_to_move() == chess::kWhite ? game_.result : -game_.result;
    record.result_q = static_cast<float>(result);
    record.result_d = result == 0 ? 1 : 0;
    const Move played = game_.moves[ply];
    const Move best = is_searched_ ? take_search(record, position, ply) : played;
    if (!is_searched_) {
      probability(record, position, played) = 1;
      record.root_q = record.best_q = record.result_q;
      record.root_d = record.result_d;
    }
    record.played_idx = static_cast<std::uint16_t>(chess::policy_index(played, position.side_to_move()));
    record.best_idx = static_cast<std::uint16_t>(chess::policy_index(best, position.side_to_move()));
    take_numbers(record, ply, played == best);
    return record;
  }

  static void encode_position(const Line<Chess>& line, Record& record) {
    std::array<std::uint8_t, packed_bytes<Chess>()> packed;
    const auto frames = line.frames();
    const std::size_t shown = std::min<std::size_t>(frames.size(), Chess::kHistory);
    chess::encode_planes(frames.last(shown), HistoryFill::kFenOnly, packed.data());
    std::memcpy(record.planes.data(), packed.data(), sizeof record.planes);
    for (std::uint64_t& plane : record.planes) plane = reversed_files(plane);
    const std::uint8_t* bytes = packed.data() + sizeof record.planes;
    std::copy_n(bytes, 4, record.castling.begin());
    record.black_to_move = bytes[4];
    record.rule50 = bytes[5];
  }

  static float& probability(Record& record, const Position& position, Move move) {
    return record.probabilities[chess::policy_index(move, position.side_to_move())];
  }

  std::uint8_t marks_of(std::size_t ply) const {
    std::uint8_t marks = 0;
    if (game_.end == End::kTooLong) marks |= kTooLong | kAdjudicated;
    if (game_.end == End::kAdjudicated) marks |= kAdjudicated;
    if (!is_searched_) return marks;
    if ((game_.flags[ply] & kProven) != 0) marks |= kBestIsProven;
    if ((game_.flags[ply] & kTrainedOn) == 0) marks |= kNotTrainedOn;
    return marks;
  }

  // The policy and the search's own values; returns the best move.
  Move take_search(Record& record, const Position& position, std::size_t ply) const {
    Move best = 0;
    int largest = -1;
    for (std::uint32_t at = game_.policy_offset[ply]; at < game_.policy_offset[ply + 1]; ++at) {
      const Move move = game_.policy_move[at];
      if (std::find(legal_.begin(), legal_.end(), move) == legal_.end()) {
        fail(ply, "move " + std::to_string(move) + " of its policy is not legal");
      }
      probability(record, position, move) = static_cast<float>(game_.policy_prob[at] / kFixedPoint);
      if (game_.policy_prob[at] > largest) {
        largest = game_.policy_prob[at];
        best = move;
      }
    }
    record.root_q = game_.root_q[ply];
    record.root_d = game_.root_d[ply];
    record.best_q = game_.best_q[ply];
    record.visits = game_.visits[ply];
    if (game_.best_move.empty()) return best;
    best = game_.best_move[ply];
    if (std::find(legal_.begin(), legal_.end(), best) == legal_.end()) {
      fail(ply, "its best move " + std::to_string(best) + " is not legal");
    }
    return best;
  }

  // Numbers of the store, or by the rules of docs/data_format.md where it has none.
  void take_numbers(Record& record, std::size_t ply, bool played_best) const {
    const auto number = [&](Number which, float otherwise) {
      const auto& column = game_.numbers[which];
      return column.empty() || std::isnan(column[ply]) ? otherwise : column[ply];
    };
    const auto plies_left = static_cast<float>(game_.moves.size() - ply);
    record.best_d = number(kBestD, std::clamp(record.root_d, 0.0F, 1.0F - std::abs(record.best_q)));
    record.played_q = number(kPlayedQ, played_best ? record.best_q : record.root_q);
    record.played_d = number(kPlayedD, played_best ? record.best_d : record.root_d);
    record.orig_q = number(kOrigQ, kUnknown);
    record.orig_d = number(kOrigD, kUnknown);
    record.orig_m = number(kOrigM, kUnknown);
    record.plies_left = number(kPliesLeft, plies_left);
    record.root_m = number(kRootM, plies_left);
    record.best_m = number(kBestM, plies_left);
    record.played_m = number(kPlayedM, plies_left);
    record.policy_kld = number(kPolicyKld, 0);
    record.q_st = number(kQSt, 0);
  }

  const StoredGame& game_;
  bool is_searched_;
  std::vector<Move> legal_;
};

}  // namespace

std::vector<std::uint8_t> records_of(const StoredGame& game) { return Writer(game).write(); }

}  // namespace alphazero::lc0
