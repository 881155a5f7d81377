// Layouts of published runs, said by flags.
// Not: their times (tawpipe reproduce, docs/accuracy.md).
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command_json.hpp"

using nlohmann::json;
using support::parsed;
using support::run;

namespace {

double fullest(const json& summary) {
  double most = 0;
  for (const json& bytes : summary.at("peak_memory_bytes")) most = std::max(most, bytes.get<double>());
  return most;
}

}  // namespace

TEST_CASE("the layout of Llama 3 405B on 16,384 H100 fits in 80 GiB as frameworks run SwiGLU, and not unfused") {
  // Grattafiori et al. 2024, arXiv:2407.21783, table 4, the row of 131,072 tokens; section 3.3.2.
  const std::string layout =
      "simulate --schedule interleaved-1f1b --option chunks=8 --cluster dgx-h100*2048 --model llama-3-405b --sequence 131072 "
      "--global-batch 128 --tensor-parallel 8 --context-parallel 16 --data-parallel 8 --layout tcds --recompute none "
      "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split --gradient-dtype float32 "
      "--loss-dtype model --shard-states gradients --reshard step --overlap-grad-reduce on --overlap-param-gather on --json -";
  const support::Result plain = run(layout);
  CHECK(plain.code == 0);
  CHECK(fullest(parsed(plain)) / (1 << 30) == doctest::Approx(72.4).epsilon(0.001));
  const support::Result unfused = run(layout + " --swiglu unfused");
  CHECK(unfused.code == 1);
  CHECK(fullest(parsed(unfused)) / (1 << 30) == doctest::Approx(85.4).epsilon(0.001));
  CHECK(run(layout + " --swiglu fused").out == plain.out);
  support::check_refused(run(layout + " --swiglu both"), {"--swiglu", "fused", "unfused"});
}

TEST_CASE("a script and a schedule file say themselves whether SwiGLU is fused") {
  const support::Folder folder;
  const std::string flags =
      "pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 --ffn-hidden-size 1408 --swiglu "
      "--vocab-size 32000 --seq-length 512 --micro-batch-size 1 --bf16";
  const std::string problem =
      "simulate --schedule 1f1b --cluster 1x4 --sequence 512 --global-batch 8 --recompute none --json - --model ";
  const auto memory = [&](const std::string& arguments) { return fullest(parsed(run(problem + arguments))); };
  const std::string fused = folder.write("fused.sh", flags);
  const std::string unfused = folder.write("unfused.sh", flags + " --no-bias-swiglu-fusion");
  CHECK(memory(fused) < memory(unfused));
  CHECK(memory(fused + " --swiglu unfused") == memory(unfused));
  CHECK(memory(unfused + " --swiglu fused") == memory(fused));
  const auto eager = [&](const std::string& how) { return memory("llama-8x512 --layer-code torchtitan-eager" + how); };
  CHECK(eager("") == eager(" --swiglu unfused"));
  CHECK(eager(" --swiglu fused") < eager(""));
  const std::string config = " --cluster 1x4 --model llama-8x512 --sequence 512 --global-batch 8 --recompute none";
  for (const std::string& how : {std::string{"fused"}, std::string{"unfused"}}) {
    const std::string file = folder / (how + ".json");
    CHECK(run("export --schedule 1f1b --out " + file + config + " --swiglu " + how).code == 0);
    CHECK(fullest(parsed(run("simulate --cluster 1x4 --json - --schedule-file " + file))) ==
          fullest(parsed(run("simulate --schedule 1f1b --json -" + config + " --swiglu " + how))));
  }
  const std::string gpt = folder.write("gpt.sh",
                                       "pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 "
                                       "--vocab-size 32000 --seq-length 512 --micro-batch-size 1 --bf16");
  support::check_refused(run(problem + gpt + " --swiglu fused"), {"--swiglu", "no gate"});
}
