// A stranger's program that asks how to train.
// Not: what is answered (cli/plan_library_test.cpp).
#include <tawpipe/answers/plan_answer.hpp>

#include <cstdio>

int main() {
  tawpipe::answers::PlanQuestion question{.schedules = {"ddp"}, .emit = "megatron"};
  question.job.set("cluster", "1x2");
  question.job.set("model", "llama-4x256");
  question.job.set("sequence", "1k");
  question.job.set("global-batch", "8");
  const tawpipe::answers::PlanAnswer found = answer(question);
  std::puts(to_json(found).dump(2).c_str());
  return found.emitted ? 0 : 1;
}
