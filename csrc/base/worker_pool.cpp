#include "base/worker_pool.hpp"

#include <chrono>
#include <utility>

namespace alphazero {
namespace {

constexpr std::chrono::microseconds kPatience{50};
constexpr int kLooksPerClock = 64;

// Looks until `ready`, or patience ends.
template <typename Ready>
bool wait_awake(const Ready& ready) {
  if (ready()) return true;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  do {
    for (int look = 0; look < kLooksPerClock; ++look) {
      if (ready()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

WorkerPool::WorkerPool(int num_workers) : ranges_(num_workers) {
  for (int worker = 1; worker < num_workers; ++worker) {
    threads_.emplace_back([this, worker] { serve(worker); });
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::run(std::size_t num_tasks, const Task& task) {
  const std::lock_guard one_at_a_time(run_mutex_);
  task_ = &task;
  for (std::size_t worker = 0; worker < ranges_.size(); ++worker) {
    ranges_[worker].next = worker * num_tasks / ranges_.size();
    ranges_[worker].end = (worker + 1) * num_tasks / ranges_.size();
  }
  error_ = nullptr;
  busy_ = static_cast<int>(threads_.size());
  ++round_;
  if (sleepers_ > 0) {
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  work(0);
  const auto all_done = [this] { return busy_ == 0; };
  if (!wait_awake(all_done)) {
    std::unique_lock lock(mutex_);
    caller_sleeps_ = true;
    done_.wait(lock, all_done);
    caller_sleeps_ = false;
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void WorkerPool::serve(int worker) {
  std::size_t seen_round = 0;
  while (true) {
    const auto has_news = [&] { return stopping_ || round_ != seen_round; };
    if (!wait_awake(has_news)) {
      std::unique_lock lock(mutex_);
      ++sleepers_;
      wake_.wait(lock, has_news);
      --sleepers_;
    }
    if (stopping_) return;
    seen_round = round_;
    work(worker);
    if (--busy_ == 0 && caller_sleeps_) {
      const std::lock_guard lock(mutex_);
      done_.notify_one();
    }
  }
}

void WorkerPool::work(int worker) {
  for (std::size_t turn = 0; turn < ranges_.size(); ++turn) {
    Range& range = ranges_[(worker + turn) % ranges_.size()];
    for (std::size_t index = range.next++; index < range.end; index = range.next++) {
      try {
        (*task_)(index, worker);
      } catch (...) {
        keep_error(index);
      }
    }
  }
}

void WorkerPool::keep_error(std::size_t task) {
  const std::lock_guard lock(error_mutex_);
  if (!error_ || task < error_task_) {
    error_ = std::current_exception();
    error_task_ = task;
  }
}

}  // namespace alphazero
