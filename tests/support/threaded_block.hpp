// Runs a GPU kernel's body with several threads a block on the host, so that its shares of work and
// its waits are proven.
// Not: fast, nor a GPU's order of sums.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "tawpipe/layers/cuda/block.hpp"

namespace support {

/// What the threads of a block have in common.
class Team {
 public:
  Team(int threads, std::int64_t shared) : threads_{threads}, numbers_(static_cast<std::size_t>(threads)) {
    // Memory in common is not initialised on a GPU.
    shared_.assign(static_cast<std::size_t>(shared), std::numeric_limits<float>::quiet_NaN());
  }

  int threads() const { return threads_; }
  float* shared() { return shared_.data(); }
  void wait() {
    std::unique_lock lock{mutex_};
    const std::int64_t round = round_;
    if (++arrived_ == threads_) {
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return round_ != round; });
    }
  }
  /// All threads' numbers, joined in the order of the threads.
  template <class Join>
  double joined(int thread, double x, Join join) {
    wait();
    numbers_[static_cast<std::size_t>(thread)] = x;
    wait();
    double all = numbers_[0];
    for (std::size_t t = 1; t < numbers_.size(); ++t) all = join(all, numbers_[t]);
    return all;
  }

 private:
  int threads_;
  std::vector<double> numbers_;
  std::vector<float> shared_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int arrived_ = 0;
  std::int64_t round_ = 0;
};

/// One thread's view of its block.
class ThreadedBlock {
 public:
  ThreadedBlock(std::int64_t index, std::int64_t count, int row, int thread, Team& team)
      : index_{index}, count_{count}, row_{row}, thread_{thread}, team_{&team} {}

  std::int64_t index() const { return index_; }
  std::int64_t count() const { return count_; }
  int row() const { return row_; }
  int thread() const { return thread_; }
  int threads() const { return team_->threads(); }
  template <class F>
  F sum(F x) const {
    return static_cast<F>(team_->joined(thread_, static_cast<double>(x), [](double a, double b) { return a + b; }));
  }
  tawpipe::layers::cuda::Pair sum(tawpipe::layers::cuda::Pair x) const { return {sum(x.first), sum(x.second)}; }
  float largest(float x) const {
    return static_cast<float>(team_->joined(thread_, static_cast<double>(x), [](double a, double b) { return std::max(a, b); }));
  }
  void sync() const { team_->wait(); }
  float* shared() const { return team_->shared(); }

 private:
  std::int64_t index_;
  std::int64_t count_;
  int row_;
  int thread_;
  Team* team_;
};

/// Every block of the body's grid with `threads` threads, one block after the other.
template <class Body>
void run_with_threads(const Body& body, int threads) {
  const tawpipe::layers::cuda::Grid grid = body.grid();
  Team team{threads, grid.shared};
  std::vector<std::thread> all;
  for (int thread = 0; thread < threads; ++thread) {
    all.emplace_back([&body, &team, grid, thread] {
      for (int row = 0; row < grid.rows; ++row) {
        for (std::int64_t index = 0; index < grid.blocks; ++index) {
          body(ThreadedBlock{index, grid.blocks, row, thread, team});
          team.wait();
        }
      }
    });
  }
  for (std::thread& one : all) one.join();
}

}  // namespace support
