// CUB's reduction over a block of device code that runs on a host: its sum, right in thread 0.
// Not: CUB's order of sums.
#pragma once

#include <limits>

namespace cub {

template <class T, int threads>
class BlockReduce {
 public:
  struct TempStorage {
    T of_thread[threads];
  };
  explicit BlockReduce(TempStorage& storage) : storage_{&storage} {}

  T Sum(T mine) {
    storage_->of_thread[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x != 0) return std::numeric_limits<T>::quiet_NaN();
    T sum = 0;
    for (const T& one : storage_->of_thread) sum += one;
    return sum;
  }

 private:
  TempStorage* storage_;
};

}  // namespace cub
