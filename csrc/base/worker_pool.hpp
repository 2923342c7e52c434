// Threads that share a list of numbered tasks; the caller works along.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace alphazero {

// A thread without work looks for it for a while before it sleeps: rounds of search are shorter than the time
// the system takes to wake a thread.
class WorkerPool {
 public:
  // Called as task(index of the task, index of the worker in [0, num_workers)).
  using Task = std::function<void(std::size_t, int)>;

  // At least one worker: the caller is the first one, the others are threads that live as long as the pool.
  explicit WorkerPool(int num_workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int num_workers() const { return static_cast<int>(threads_.size()) + 1; }

  // Runs tasks 0 ... num_tasks - 1, each once, and returns when all are done. If tasks threw, the exception
  // of the lowest task is thrown here, whatever the number of workers. Calls from several threads take turns.
  void run(std::size_t num_tasks, const Task& task);

 private:
  void serve(int worker);
  void work(int worker);
  void keep_error(std::size_t task);

  std::vector<std::thread> threads_;
  std::mutex run_mutex_;  // one run() at a time

  // Sleep and waking. A sleeper counts itself before it looks a last time; who changes what it waits for
  // looks at the count afterwards: one of the two sees the other.
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::atomic<int> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stopping_{false};

  std::atomic<std::size_t> round_{0};  // counts run() calls, so that a worker joins each once
  std::atomic<int> busy_{0};           // threads still in this round
  // Each worker has a range of the tasks, the same in every run() of as many tasks, so that what a task
  // touches stays in one core's cache; who is done early helps the others.
  struct alignas(64) Range {
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;
  };
  std::vector<Range> ranges_;
  // Written before a round begins, read by its workers.
  const Task* task_ = nullptr;

  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::size_t error_task_ = 0;
};

}  // namespace alphazero
