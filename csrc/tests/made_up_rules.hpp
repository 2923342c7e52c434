// Rules outside the core for its tests: players take cells in turn, and who takes every third one moves
// again.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/error.hpp"
#include "games/foreign/foreign.hpp"

namespace alphazero::testing {

struct Cells : foreign::Held {
  static constexpr int kCount = 9;
  std::array<std::int8_t, kCount> owner{};  // 1: the first player
  bool first_moves = true;

  bool is_full() const { return std::ranges::find(owner, 0) == owner.end(); }
  // Cell i counts i + 1, the last one 1 less, so that games may be drawn.
  int lead() const {
    int sum = 0;
    for (int i = 0; i < kCount; ++i) sum += owner[i] * (i + 1 - i / (kCount - 1));
    return sum;
  }
  void take(int cell) {
    owner[cell] = first_moves ? 1 : -1;
    if (cell % 3 != 0) first_moves = !first_moves;
  }
  // The first player's result with best play of both.
  int exact() const {
    if (is_full()) return lead() > 0 ? 1 : lead() < 0 ? -1 : 0;
    int best = first_moves ? -1 : 1;
    for (int cell = 0; cell < kCount; ++cell) {
      if (owner[cell] != 0) continue;
      Cells after = *this;
      after.take(cell);
      best = first_moves ? std::max(best, after.exact()) : std::min(best, after.exact());
    }
    return best;
  }
};

// fails_at: the number of cells taken at which the rules fail.
class CellRules final : public foreign::Rules {
 public:
  explicit CellRules(int fails_at = Cells::kCount + 1) : fails_at_(fails_at) {}

  static const Cells& cells(const foreign::Facts& facts) { return static_cast<const Cells&>(*facts.held); }

  foreign::Facts initial() const override { return facts_of(Cells()); }
  foreign::Facts of(const foreign::Held& state) const override {
    return facts_of(static_cast<const Cells&>(state));
  }
  foreign::Facts after(const foreign::Facts& before, Move move) const override {
    Cells next = cells(before);
    if (std::ranges::count(next.owner, 0) == Cells::kCount - fails_at_) throw RulesError("cells.py:1: oops");
    next.take(move);
    return facts_of(next);
  }
  void observe(const foreign::Facts& facts, std::span<float> planes) const override {
    for (int i = 0; i < Cells::kCount; ++i) {
      planes[i] = static_cast<float>(facts.first_moves ? cells(facts).owner[i] : -cells(facts).owner[i]);
    }
  }
  std::string move_text(const foreign::Facts&, Move move) const override {
    return "c" + std::to_string(move);
  }
  std::string drawing(const foreign::Facts&) const override { return "cells"; }

  static void use(int fails_at = Cells::kCount + 1) {
    foreign::use_rules({"cells", 3, 3, 1, Cells::kCount, Cells::kCount},
                       std::make_shared<CellRules>(fails_at));
  }

 private:
  static foreign::Facts facts_of(const Cells& cells) {
    foreign::Facts facts;
    facts.first_moves = cells.first_moves;
    facts.is_over = cells.is_full();
    if (facts.is_over) facts.result = static_cast<std::int8_t>(cells.exact());
    for (Move cell = 0; cell < Cells::kCount; ++cell) {
      if (cells.owner[cell] == 0) facts.legal.push_back(cell);
    }
    facts.held = std::make_shared<Cells>(cells);
    return facts;
  }

  int fails_at_;
};

}  // namespace alphazero::testing
