#include "games/foreign/foreign.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace alphazero {

using foreign::Facts;
using foreign::Position;
using foreign::Rules;

namespace {

// Positions that were met lately, each in the one slot of its key: the engine's walks and replayed games come
// to the same ones again and again, and making one takes longer than all else that is done with it.
constexpr std::size_t kRecent = 1 << 13;
constexpr std::size_t kLocks = 64;
constexpr std::size_t kMostShown = 40;  // moves of a line in a message

class RecentPositions {
 public:
  std::shared_ptr<const Position> find(std::uint64_t key, const Position& before, Move move) {
    const std::lock_guard lock(mutex_[key % kLocks]);
    const std::shared_ptr<const Position>& found = slots_[key % kRecent];
    if (found == nullptr || found->key != key || found->moves.size() != before.moves.size() + 1)
      return nullptr;
    const bool follows = found->moves.back() == move && found->origin == before.origin &&
                         std::equal(before.moves.begin(), before.moves.end(), found->moves.begin());
    return follows ? found : nullptr;
  }

  void keep(std::shared_ptr<const Position> position) {
    const std::uint64_t key = position->key;
    const std::lock_guard lock(mutex_[key % kLocks]);
    slots_[key % kRecent].swap(position);
  }

  void clear() {
    for (std::size_t slot = 0; slot < kRecent; ++slot) {
      const std::lock_guard lock(mutex_[slot % kLocks]);  // as of its keys: kLocks divides kRecent
      slots_[slot].reset();
    }
  }

 private:
  std::array<std::mutex, kLocks> mutex_;
  std::vector<std::shared_ptr<const Position>> slots_{kRecent};
};

// One of the symmetries in use. Where an image is not known, actions has one that no other action has.
struct Turn {
  std::vector<std::int32_t> numbers;
  std::vector<Move> actions;
};

// What there is of the game in use. Never destroyed: at the end of the process Python is gone before it.
struct InUse {
  std::string name;
  std::shared_ptr<const Rules> rules;
  std::shared_ptr<const Position> start;
  RecentPositions recent;
  std::vector<Turn> turns;           // symmetry s is turns[s - 1]
  std::vector<bool> is_image_known;  // of each action, under all of them
};

InUse& in_use() {
  static InUse* const game = new InUse;
  return *game;
}

std::atomic<std::int64_t> num_positions{0};
std::atomic<std::uint64_t> num_origins{0};

std::string text_of(std::span<const Move> moves) {
  std::string text;
  for (const Move move : moves) {
    if (!text.empty()) text += ',';
    text += std::to_string(move);
  }
  return text.empty() ? "start" : text;
}

// For messages: of a long line its length and its end.
std::string shown(std::span<const Move> moves) {
  if (moves.size() <= kMostShown) return text_of(moves);
  return std::to_string(moves.size()) + ", the last ones " + text_of(moves.last(kMostShown / 4));
}

std::shared_ptr<const Position> make(Facts facts, std::vector<Move> moves, std::uint64_t key,
                                     std::uint64_t origin = 0) {
  if (facts.legal.size() > foreign::kMostLegal) {
    throw RulesError(in_use().name + ": " + std::to_string(facts.legal.size()) + " legal actions; expected " +
                     std::to_string(foreign::kMostLegal) + " at most (the moves so far: " + shown(moves) +
                     ")");
  }
  auto* const made = new Position;
  static_cast<Facts&>(*made) = std::move(facts);
  made->moves = std::move(moves);
  made->key = key;
  made->origin = origin;
  ++num_positions;
  return {made, [](const Position* position) {
            delete position;
            --num_positions;
          }};
}

std::uint64_t key_after(std::uint64_t key, Move move) { return mix64(key + kGolden + move); }

// Calls the rules; a fault of theirs names the position.
template <typename Call>
auto asked(const Position& position, const Call& call) {
  try {
    return call();
  } catch (const RulesError& error) {
    throw RulesError(std::string(error.what()) + " (the moves so far: " + shown(position.moves) + ")");
  }
}

// Takes each of 0 ... size - 1 once, and -1 where it may be; else throws.
void check_permutation(std::span<const std::int32_t> images, std::size_t size, bool may_be_unknown) {
  std::vector<bool> is_taken(size);
  const bool fits = images.size() == size && std::ranges::all_of(images, [&](std::int32_t image) {
                      if (image == -1) return may_be_unknown;
                      if (image < 0 || static_cast<std::size_t>(image) >= size || is_taken[image])
                        return false;
                      is_taken[image] = true;
                      return true;
                    });
  if (!fits) {
    throw GameError(in_use().name + ": a symmetry that is no permutation of " + std::to_string(size) +
                    (may_be_unknown ? " actions" : " numbers"));
  }
}

// The images, with numbers that are none in place of unknown ones.
std::vector<Move> completed(std::span<const std::int32_t> images) {
  std::vector<bool> is_taken(images.size());
  for (const std::int32_t image : images) {
    if (image >= 0) is_taken[image] = true;
  }
  std::vector<Move> all;
  all.reserve(images.size());
  std::size_t unused = 0;
  for (const std::int32_t image : images) {
    if (image < 0) {
      while (is_taken[unused]) ++unused;
      all.push_back(static_cast<Move>(unused++));
    } else {
      all.push_back(static_cast<Move>(image));
    }
  }
  return all;
}

}  // namespace

foreign::Replayed Rules::replay(std::span<const Move> moves) const {
  Replayed found{initial(), 0};
  for (const Move move : moves) {
    if (!std::ranges::binary_search(found.facts.legal, move)) break;
    found.facts = after(found.facts, move);
    ++found.num_legal;
  }
  return found;
}

void foreign::use_rules(const Sizes& sizes, std::shared_ptr<const Rules> rules) {
  InUse& game = in_use();
  if (sizes.num_moves < 1 || sizes.num_moves > kMostMoves) {
    throw GameError(sizes.name + ": " + std::to_string(sizes.num_moves) + " actions; expected 1 to " +
                    std::to_string(kMostMoves));
  }
  game.recent.clear();
  game.start.reset();
  if (num_positions > 0) {
    game.start = make(game.rules->initial(), {}, kGolden);  // which stays in use
    throw GameError(sizes.name + ": positions of " + game.name +
                    " are still in use; expected one game of OpenSpiel or Python a process");
  }
  game.name = sizes.name;
  game.rules = std::move(rules);
  Foreign::kName = game.name;
  Foreign::kBoardHeight = sizes.height;
  Foreign::kBoardWidth = sizes.width;
  Foreign::kNumFloatPlanes = sizes.num_planes;
  Foreign::kPolicySize = sizes.num_moves;
  Foreign::kMaxLegalMoves = std::min(sizes.num_moves, kMostLegal);
  Foreign::kMaxPlies = sizes.max_plies;
  use_symmetries({});
  game.start = make(game.rules->initial(), {}, kGolden);
}

void foreign::use_symmetries(std::vector<Symmetry> symmetries) {
  InUse& game = in_use();
  if (symmetries.size() > kMostSymmetries) {
    throw GameError(game.name + ": " + std::to_string(symmetries.size()) + " symmetries; expected " +
                    std::to_string(kMostSymmetries) + " at most beside the identity");
  }
  const auto num_actions = static_cast<std::size_t>(Foreign::kPolicySize);
  std::vector<Turn> turns;
  std::vector<bool> is_image_known(num_actions, true);
  for (Symmetry& symmetry : symmetries) {
    check_permutation(symmetry.numbers, Foreign::num_numbers(), false);
    check_permutation(symmetry.actions, num_actions, true);
    for (std::size_t action = 0; action < num_actions; ++action) {
      if (symmetry.actions[action] < 0) is_image_known[action] = false;
    }
    turns.push_back({std::move(symmetry.numbers), completed(symmetry.actions)});
  }
  game.turns = std::move(turns);
  game.is_image_known = std::move(is_image_known);
  Foreign::kNumSymmetries = 1 + static_cast<int>(game.turns.size());
}

bool foreign::State::operator==(const State& other) const {
  if (symmetry != other.symmetry) return false;
  if (position == other.position) return true;
  return position != nullptr && other.position != nullptr && position->origin == other.position->origin &&
         position->moves == other.position->moves;
}

Foreign::State Foreign::initial() {
  if (in_use().start == nullptr) throw GameError("no game of OpenSpiel or Python is in use");
  return {in_use().start};
}

Foreign::State Foreign::from_held(const foreign::Held& held) {
  initial();  // throws where no game is in use
  const std::uint64_t origin = ++num_origins;
  return {make(in_use().rules->of(held), {}, mix64(kGolden + mix64(origin)), origin)};
}

Move Foreign::turned_move(Move move, int symmetry) {
  if (symmetry == 0 || move >= kPolicySize) return move;  // which no symmetry knows
  return in_use().turns[symmetry - 1].actions[move];
}

bool Foreign::can_turn(const State& state) {
  if (kNumSymmetries == 1) return true;
  const std::vector<bool>& is_known = in_use().is_image_known;
  return std::ranges::all_of(state.position->legal, [&](Move move) { return is_known[move]; });
}

void Foreign::turn_moves(std::vector<Move>& moves, int symmetry) {
  for (Move& move : moves) move = turned_move(move, symmetry);
  std::ranges::sort(moves);
}

Foreign::State Foreign::from_string(std::string_view text) {
  const auto fail = [text](const std::string& what) {
    throw GameError("position " + quoted(text) + ": " + what + "; expected start, or moves such as 4,0,8");
  };
  State state = initial();
  if (text == "start") return state;
  const char* next = text.data();
  const char* const end = next + text.size();
  while (true) {
    unsigned number = 0;
    const auto [after, fault] = std::from_chars(next, end, number);
    if (fault != std::errc() || number >= static_cast<unsigned>(kPolicySize))
      fail("a move is no number of one");
    if (!can_apply(state, static_cast<Move>(number)))
      fail("move " + std::to_string(number) + " is not legal");
    apply(state, static_cast<Move>(number));
    if (after == end) return state;
    if (*after != ',') fail("a comma is missing");
    next = after + 1;
  }
}

std::string Foreign::to_string(const State& state) {
  const Position& position = *state.position;
  if (position.origin == 0) return text_of(position.moves);
  return position.moves.empty() ? "state" : "state," + text_of(position.moves);
}

void Foreign::apply(State& state, Move move) {
  InUse& game = in_use();
  const Position& before = *state.position;
  const std::uint64_t key = key_after(before.key, move);
  std::shared_ptr<const Position> next = game.recent.find(key, before, move);
  if (next == nullptr) {
    Facts facts = asked(before, [&] { return game.rules->after(before, move); });
    std::vector<Move> moves;
    moves.reserve(before.moves.size() + 1);
    moves = before.moves;
    moves.push_back(move);
    next = make(std::move(facts), std::move(moves), key, before.origin);
    game.recent.keep(next);
  }
  state.position = std::move(next);
}

// Leaves the keys of the positions before each of the moves, and of the last one.
bool Foreign::replay(std::span<const Move> moves, State& state, std::vector<std::uint64_t>& keys) {
  const Position& start = *initial().position;
  Position game;
  game.moves.assign(moves.begin(), moves.end());
  foreign::Replayed found = asked(game, [&] { return in_use().rules->replay(moves); });
  const std::span<const Move> played = moves.first(found.num_legal);
  keys.assign(1, start.key);
  for (const Move move : played) keys.push_back(key_after(keys.back(), move));
  state = {make(std::move(found.facts), {played.begin(), played.end()}, keys.back())};
  return played.size() == moves.size();
}

bool Foreign::can_apply(const State& state, Move move) {
  return std::ranges::binary_search(state.position->legal, move);
}

Outcome Foreign::terminal(FrameSpan<State> line) {
  const Position& position = *line.back().state.position;
  if (!position.is_over) return {};
  if (position.result == 0) return {Termination::kDraw, 0};
  return {Termination::kWin,
          static_cast<std::int8_t>(position.first_moves ? position.result : -position.result)};
}

void Foreign::encode(FrameSpan<State> line, HistoryFill, std::uint8_t* packed) {
  const State& state = line.back().state;
  const Position& position = *state.position;
  const std::size_t count = num_numbers();
  thread_local std::vector<float> planes;
  planes.resize(count);
  asked(position, [&] { in_use().rules->observe(position, planes); });
  if (state.symmetry == 0) {
    std::memcpy(packed, planes.data(), count * sizeof(float));
  } else {
    const std::vector<std::int32_t>& to = in_use().turns[state.symmetry - 1].numbers;
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(packed + static_cast<std::size_t>(to[i]) * sizeof(float), &planes[i], sizeof(float));
    }
  }
  packed[count * sizeof(float)] = position.first_moves ? 0 : 1;
  packed[count * sizeof(float) + 1] = 1;
}

std::string Foreign::move_to_string(const State& state, Move move) {
  const Position& position = *state.position;
  return asked(position, [&] { return in_use().rules->move_text(position, move); });
}

Move Foreign::move_from_string(const State& state, std::string_view text) {
  for (const Move move : state.position->legal) {
    if (move_to_string(state, move) == text) return move;
  }
  for (const Move move : state.position->legal) {
    if (std::to_string(move) == text) return move;
  }
  throw GameError(
      quoted(text) + ": no legal move here" +
      (state.position->legal.empty()
           ? std::string("; the game is over")
           : "; expected one such as " + quoted(move_to_string(state, state.position->legal[0]))));
}

std::string Foreign::drawing(const State& state) {
  const Position& position = *state.position;
  return asked(position, [&] { return in_use().rules->drawing(position); });
}

}  // namespace alphazero
