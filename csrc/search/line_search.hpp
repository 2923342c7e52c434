// A list of positions searched side by side, each once: for matches, analysis, measurements.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "games/game.hpp"
#include "games/line.hpp"
#include "search/search_pool.hpp"

namespace alphazero {

// No noise; the move is the one with the largest share of the policy (PUCT), or sequential halving's (Gumbel
// with all noise 0).
template <Game G>
class LineSearch final : public SearchDriver<G> {
 public:
  // The games must not be over.
  LineSearch(std::vector<Line<G>> lines, const SearchSettings& settings, std::size_t num_slots)
      : settings_(settings), lines_(std::move(lines)), found_(lines_.size()), line_of_slot_(num_slots) {}

  bool next(std::size_t slot, Search<G>& search) override {
    const std::size_t number = next_line_++;
    if (number >= lines_.size()) return false;
    line_of_slot_[slot] = number;
    search.start(lines_[number], settings_);
    return true;
  }

  void finish(std::size_t slot, Search<G>& search) override {
    found_[line_of_slot_[slot]] = search.result(0.0, 0.0);
  }

  const std::vector<SearchResult>& found() const { return found_; }

 private:
  SearchSettings settings_;
  std::vector<Line<G>> lines_;
  std::vector<SearchResult> found_;
  std::vector<std::size_t> line_of_slot_;
  std::atomic<std::size_t> next_line_{0};
};

}  // namespace alphazero
