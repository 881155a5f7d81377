// Tests of execute/host/paced.hpp: every pass is done, and none takes less than its operations say.
// Not: how long a pass takes at most; that depends on the machine.
#include "tawpipe/execute/host/paced.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

using tawpipe::BackwardArgs;
using tawpipe::Flops;
using tawpipe::FlopsPerSecond;
using tawpipe::ForwardArgs;
using tawpipe::StageWork;

namespace {

struct Recorder {
  std::string* calls;

  void forward(const ForwardArgs&) { *calls += "f"; }
  void backward(const BackwardArgs&) { *calls += "b"; }
  void backward_input(const BackwardArgs&) { *calls += "i"; }
  void backward_weight(const BackwardArgs&) { *calls += "w"; }
};

template <class Call>
double seconds_of(Call&& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("a paced layer takes the time of its operations") {
  StageWork stage;
  stage.forward = Flops{1e6};
  stage.recompute = Flops{1e6};
  stage.backward_input = Flops{2e6};
  stage.backward_weight = Flops{3e6};
  ForwardArgs forward;
  forward.stage = &stage;
  BackwardArgs backward;
  backward.stage = &stage;
  std::string calls;
  tawpipe::host::Paced<Recorder> paced{Recorder{&calls}, FlopsPerSecond{1e9}};
  CHECK(seconds_of([&] { paced.forward(forward); }) >= 1e-3);
  CHECK(seconds_of([&] { paced.backward(backward); }) >= 6e-3);
  CHECK(seconds_of([&] { paced.backward_input(backward); }) >= 3e-3);
  CHECK(seconds_of([&] { paced.backward_weight(backward); }) >= 3e-3);
  CHECK(calls == "fbiw");
}

TEST_CASE("without a pace a layer runs as fast as it goes") {
  StageWork stage;
  stage.forward = Flops{1e15};
  ForwardArgs forward;
  forward.stage = &stage;
  std::string calls;
  tawpipe::host::Paced<Recorder> paced{Recorder{&calls}, FlopsPerSecond{}};
  paced.forward(forward);
  CHECK(calls == "f");
}
