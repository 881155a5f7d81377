#include "tawpipe/execute/cuda/rank_threads.hpp"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

using namespace tawpipe;
using cuda::RankThreads;

TEST_CASE("ranks as threads tell each other what each says, round by round") {
  constexpr int ranks = 5;
  constexpr int rounds = 200;
  RankThreads threads{ranks};
  std::vector<int> wrong(ranks, 0);
  threads.run([&](int rank) {
    for (int round = 0; round < rounds; ++round) {
      const auto heard = threads.exchange(rank, concat(rank, " in ", round));
      for (int r = 0; r < ranks; ++r) {
        if (heard[static_cast<std::size_t>(r)] != concat(r, " in ", round)) ++wrong[static_cast<std::size_t>(rank)];
      }
    }
  });
  CHECK(wrong == std::vector<int>(ranks, 0));
  CHECK(!threads.failed().load());
}

TEST_CASE("a thread that fails ends those that wait for it, and is named") {
  RankThreads threads{4};
  const auto run = [&] {
    threads.run([&](int rank) {
      threads.exchange(rank, "begun");
      if (rank == 2) throw DeviceError("cudaMalloc failed: out of memory");
      threads.exchange(rank, "never");
    });
  };
  CHECK_THROWS_WITH_AS(run(), "rank 2 failed: cudaMalloc failed: out of memory", DeviceError);
  CHECK(threads.failed().load());
}

TEST_CASE("what a rank waits for elsewhere it gives up by the flag") {
  RankThreads threads{3};
  const auto run = [&] {
    threads.run([&](int rank) {
      if (rank == 1) throw InputError("token 70000 is not in the vocabulary");
      while (!threads.failed().load()) std::this_thread::yield();
      throw DeviceError("another rank of this process has failed");
    });
  };
  CHECK_THROWS_WITH_AS(run(), "rank 1 failed: token 70000 is not in the vocabulary", InputError);
}

TEST_CASE("a message that names its rank already is left as it is") {
  RankThreads threads{2};
  const auto run = [&] {
    threads.run([&](int rank) {
      if (rank == 1) throw DeviceError("rank 1 has stalled: all-reduce");
      threads.exchange(rank, "");
    });
  };
  CHECK_THROWS_WITH_AS(run(), "rank 1 has stalled: all-reduce", DeviceError);
}

TEST_CASE("threads that fail alike fail with one message") {
  RankThreads threads{3};
  const auto run = [&] {
    threads.run([&](int rank) {
      const auto problems = threads.exchange(rank, rank == 2 ? "rank 2 on a: no memory" : "");
      throw InputError(problems[2]);
    });
  };
  CHECK_THROWS_WITH_AS(run(), "rank 2 on a: no memory", InputError);
}

TEST_CASE("a rank that ends early does not leave the others waiting") {
  RankThreads threads{3};
  const auto run = [&] {
    threads.run([&](int rank) {
      if (rank != 0) threads.exchange(rank, "");
    });
  };
  CHECK_THROWS_WITH_AS(run(), doctest::Contains("another rank of this process has ended"), DeviceError);
}

TEST_CASE("threads for no rank are refused") {
  CHECK_THROWS_WITH_AS(RankThreads{0}, doctest::Contains("at least one"), InputError);
}
