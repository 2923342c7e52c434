#include "data/worker_pool.hpp"

#include <utility>

namespace alphazero {
namespace {

// Before a thread sleeps it looks this often: work that comes in short rounds would else wait for the system
// to wake it, each time longer than the round itself. Some 20 microseconds.
constexpr int kSpins = 2000;

template <typename Ready>
bool spin_until(const Ready& ready) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (ready()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return false;
}

}  // namespace

WorkerPool::WorkerPool(int num_workers) {
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
  {
    const std::lock_guard lock(mutex_);
    task_ = &task;
    num_tasks_ = num_tasks;
    next_task_ = 0;
    error_ = nullptr;
    busy_ = static_cast<int>(threads_.size());
    ++round_;
  }
  wake_.notify_all();
  work(0);
  spin_until([this] { return busy_.load(std::memory_order_acquire) == 0; });
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void WorkerPool::serve(int worker) {
  std::size_t seen_round = 0;
  while (true) {
    spin_until([&] { return round_.load(std::memory_order_acquire) != seen_round; });
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || round_ != seen_round; });
      if (stopping_) return;
      seen_round = round_;
    }
    work(worker);
    {
      const std::lock_guard lock(mutex_);
      --busy_;
    }
    done_.notify_one();
  }
}

void WorkerPool::work(int worker) {
  for (std::size_t index = next_task_++; index < num_tasks_; index = next_task_++) {
    try {
      (*task_)(index, worker);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_ || index < error_task_) {
        error_ = std::current_exception();
        error_task_ = index;
      }
    }
  }
}

}  // namespace alphazero
