// Ranks that share stages and compute the loss of a part of the vocabulary at a time: recorded numbers,
// and the messages and bytes of those that compute it at once.
// Not: the loss at once (tensor_test.cpp, context_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "papers/reference_run.hpp"
#include "support/reference_training.hpp"
#include "support/shared_stage_checks.hpp"
#include "support/tensor_training.hpp"
#include "tawpipe/schedule/compose.hpp"

namespace shared_loss_test {

using namespace tawpipe;
using namespace reference_training;

const std::string folder = std::string{TAWPIPE_TEST_DATA} + "/llama_golden";

Splitting in_chunks(int entries, bool by_tokens, ContextExchange exchange = ContextExchange::all_gather,
                    Recompute recompute = Recompute::none) {
  Splitting how{by_tokens, exchange, recompute};
  how.loss_chunk = entries;
  return how;
}

void check_recorded(const training::ReferenceRun& reference, const std::string& schedule, int ranks, const Mesh& axes,
                    const Splitting& how) {
  CAPTURE(schedule);
  CAPTURE(how.loss_chunk);
  CAPTURE(how.by_tokens);
  check_recorded_numbers(train_tensor_parallel<double>(reference, schedule, ranks, axes, how));
}

// 97 entries of configuration B: of two ranks the last one's part is padded, and its last chunk too.
TEST_CASE("recorded numbers with the loss in chunks by ranks that share the vocabulary, the tokens, or both, in f64") {
  const training::ReferenceRun a{folder + "/A"};
  const training::ReferenceRun b{folder + "/B"};
  for (const bool by_tokens : {false, true}) {
    for (const std::string schedule : {"1f1b", "zb-h1", "tawpipe"})
      check_recorded(a, schedule, 2, {.tensor = 2}, in_chunks(20, by_tokens));
    check_recorded(b, "zb-v", 1, {.tensor = 2}, in_chunks(7, by_tokens));
    check_recorded(b, "1f1b", 1, {.tensor = 2, .context = 2}, in_chunks(1, by_tokens, ContextExchange::ring));
  }
  for (const std::string schedule : {"1f1b", "zb-h1"}) check_recorded(b, schedule, 2, {.context = 2}, in_chunks(96, true));
  check_recorded(a, "zb-h1", 2, {.tensor = 2, .data = 2}, in_chunks(16, true, ContextExchange::all_gather, Recompute::full));
}

TEST_CASE("a loss in one chunk has the bits, messages and bytes of the loss at once") {
  const training::ReferenceRun reference{folder + "/A"};
  for (const bool by_tokens : {false, true}) {
    const Mesh axes{.tensor = 2, .context = 2};
    const auto train = [&](const Splitting& how) {
      return train_steps<double>(reference, tensor_schedule<double>(reference, "1f1b", 1, axes, how), axes, how, {});
    };
    const auto once = train({by_tokens});
    const auto whole = train(in_chunks(reference.model().vocab, by_tokens));
    const auto chunks = train(in_chunks(5, by_tokens));
    for (std::size_t step = 0; step < once.size(); ++step) {
      CHECK(whole[step].losses == once[step].losses);
      for (std::size_t r = 0; r < once[step].sent.size(); ++r) {
        CHECK(whole[step].sent[r].by_payload == once[step].sent[r].by_payload);
        CHECK(chunks[step].sent[r].by_payload == once[step].sent[r].by_payload);
      }
    }
  }
}

}  // namespace shared_loss_test
