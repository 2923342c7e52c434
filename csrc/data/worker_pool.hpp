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

  std::vector<std::thread> threads_;
  std::mutex run_mutex_;  // one run() at a time
  std::mutex mutex_;      // guards what follows
  std::condition_variable wake_;
  std::condition_variable done_;
  std::atomic<std::size_t> round_{0};  // counts run() calls, so that a worker joins each once
  std::atomic<int> busy_{0};           // threads still in this round; both change under the mutex
  bool stopping_ = false;
  std::exception_ptr error_;
  std::size_t error_task_ = 0;

  // Written before a round begins, read by its workers.
  const Task* task_ = nullptr;
  std::size_t num_tasks_ = 0;
  std::atomic<std::size_t> next_task_{0};
};

}  // namespace alphazero
