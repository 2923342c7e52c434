// Leaves that wait to be looked at: one thread puts them in and takes them out in order, all look at them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "search/leaf.hpp"

namespace alphazero {

// The owner alone calls push(), take(), cancel() and num_waiting(); any thread calls help().
template <Game G>
class LeafQueue {
 public:
  explicit LeafQueue(std::size_t capacity) : slots_(capacity) {}

  bool is_full() const { return num_waiting() == slots_.size(); }
  std::size_t num_waiting() const { return end_.load(std::memory_order_relaxed) - begin_; }
  // Whether take() finds the oldest leaf looked at.
  bool is_ready() const {
    return num_waiting() > 0 && slots_[begin_ % slots_.size()].is_done.load(std::memory_order_acquire);
  }

  // A leaf to be looked at. ask: fills it in.
  template <typename Ask>
  void push(Ask ask) {
    const std::size_t number = end_.load(std::memory_order_relaxed);
    Slot& slot = slots_[number % slots_.size()];
    slot.is_done.store(false, std::memory_order_relaxed);
    slot.error = nullptr;
    ask(slot.leaf);
    end_.store(number + 1, std::memory_order_release);
  }

  // Looks at the next leaf that nobody looks at; false: there is none.
  template <typename Look>
  bool help(Look look) {
    std::size_t number = begun_.load(std::memory_order_acquire);
    if (number >= end_.load(std::memory_order_acquire)) return false;
    if (!begun_.compare_exchange_strong(number, number + 1)) return true;
    Slot& slot = slots_[number % slots_.size()];
    try {
      look(slot.leaf);
    } catch (...) {
      slot.error = std::current_exception();
    }
    slot.is_done.store(true, std::memory_order_release);
    return true;
  }

  // The oldest leaf, looked at; it stays as it is until the next push(). Throws what the look threw.
  template <typename Look>
  Leaf<G>& take(Look look) {
    Slot& slot = slots_[begin_ % slots_.size()];
    while (!slot.is_done.load(std::memory_order_acquire)) {
      if (!help(look)) std::this_thread::yield();
    }
    ++begin_;
    if (slot.error) std::rethrow_exception(std::exchange(slot.error, nullptr));
    return slot.leaf;
  }

  // Takes out all leaves, looked at or not.
  void cancel() {
    const std::size_t end = end_.load(std::memory_order_relaxed);
    std::size_t begun = begun_.load(std::memory_order_acquire);
    while (begun < end && !begun_.compare_exchange_weak(begun, end)) {
    }
    for (; begin_ < begun; ++begin_) {
      while (!slots_[begin_ % slots_.size()].is_done.load(std::memory_order_acquire)) {
        std::this_thread::yield();
      }
    }
    begin_ = end;
  }

 private:
  struct alignas(64) Slot {
    std::atomic<bool> is_done{false};
    std::exception_ptr error;
    Leaf<G> leaf;
  };

  std::vector<Slot> slots_;
  std::size_t begin_ = 0;                          // numbers of leaves, counted from the first push()
  alignas(64) std::atomic<std::size_t> begun_{0};  // the first that nobody looks at
  alignas(64) std::atomic<std::size_t> end_{0};
};

}  // namespace alphazero
