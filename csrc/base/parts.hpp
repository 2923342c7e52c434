// Work that is split among threads of its own: for calls that come too seldom to keep a pool of workers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

namespace alphazero {

// Calls work(begin, end) for parts of [0, count), each in a thread, the last in the caller's. A part has at
// least `least` numbers: starting a thread takes about 20 us. work must not throw.
template <typename Work>
void in_parts(std::size_t count, int num_threads, std::size_t least, const Work& work) {
  const auto most = static_cast<std::size_t>(std::max(1, num_threads));
  const std::size_t parts = std::clamp<std::size_t>(count / std::max<std::size_t>(1, least), 1, most);
  std::vector<std::thread> threads;
  threads.reserve(parts - 1);
  for (std::size_t part = 0; part + 1 < parts; ++part) {
    threads.emplace_back(work, count * part / parts, count * (part + 1) / parts);
  }
  work(count * (parts - 1) / parts, count);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace alphazero
