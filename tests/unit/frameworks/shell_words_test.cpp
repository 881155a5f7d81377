// Tests of frameworks/detail/shell_words.hpp: what variables make of words.
// Not: commands (shell_script_test.cpp).
#include "tawpipe/frameworks/detail/shell_words.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/shell.hpp"

using namespace tawpipe;

namespace shell_words_test {

using support::flags_of;
using support::has;
using support::listed;
using support::refusal;

TEST_CASE("in a text of flags only the word with an unset variable is unknown") {
  const std::string text =
      "CKPT=$1\nOPTIONS=\" \\\n --save $CKPT/a --num-layers 16 \\\n --bf16 --load $(cat a b)\"\np.py $OPTIONS\n";
  CHECK(listed(flags_of(text)) == "3: --save $1/a\n3: --num-layers 16\n4: --bf16\n4: --load $(cat a b)\n");
  CHECK(refusal(text).empty());
  CHECK(has(refusal("O=\"--save $A --num-layers $L\"\np.py $O\n"), "run.sh, line 1: --num-layers: $L is not set"));
}

TEST_CASE("defaults, alternatives, and assignment where nothing is set") {
  CHECK(listed(flags_of(": ${L:=4}\nSP=1; E=\np.py --num-layers $L ${SP:+--sequence-parallel} ${E:+--bf16} ${E:---fp16}\n")) ==
        "3: --num-layers 4\n3: --sequence-parallel\n3: --fp16\n");
  CHECK(listed(flags_of("L=4\np.py --num-layers ${X:-${L}} ${A[@]+\"${A[@]}\"}\n")).empty() == false);
  CHECK(listed(flags_of("A=(--bf16 --swiglu)\np.py --num-layers 4 \"${A[@]:-}\" ${A[@]+\"${A[@]}\"}\n")) ==
        "2: --num-layers 4\n1: --bf16\n1: --swiglu\n1: --bf16\n1: --swiglu\n");
  CHECK(listed(flags_of("L=4\np.py --num-layers ${X:-$((L * 2))} --seq-length ${L:?needed}\n")) ==
        "2: --num-layers 8\n2: --seq-length 4\n");
  CHECK(has(refusal("p.py --num-layers ${L:?}\n"), "${L:?} is not set"));
  CHECK(has(refusal("p.py --num-layers 4 --bf16 ${SP:+--sequence-parallel}\n"), "${SP:+--sequence-parallel} is not set"));
  CHECK(has(refusal("L=1; S=${L/1/2}\np.py --num-layers $S\n"), "${L/1/2} is not set"));
}

TEST_CASE("a command's own assignments do not change its words, and a subshell's end with it") {
  CHECK(listed(flags_of("TP=8\nTP=2 torchrun p.py --tensor-model-parallel-size $TP\n")) == "2: --tensor-model-parallel-size 8\n");
  CHECK(listed(flags_of("TP=8\nTP=2 bash -c 'p.py --tensor-model-parallel-size $TP'\n")) ==
        "2: --tensor-model-parallel-size 2\n");
  CHECK(listed(flags_of("TP=8; export TP=4\n( TP=2; cd x; TP=1 )\np.py --tensor-model-parallel-size $TP\n")) ==
        "3: --tensor-model-parallel-size 4\n");
  CHECK(listed(flags_of("A=(--bf16)\n(A+=(--swiglu); p.py --num-layers 4 ${A[@]})\n")) ==
        "2: --num-layers 4\n1: --bf16\n2: --swiglu\n");
  CHECK(listed(flags_of("unset A\np.py --num-layers 4 $A\n")) == "2: --num-layers 4\n");
}

TEST_CASE("arithmetic has comparisons, remainders and conditions") {
  const auto value = [](const std::string& sum) { return listed(flags_of(concat("N=6; p.py --num-layers $((", sum, "))\n"))); };
  CHECK(value("N % 4 + (N > 5) * 10") == "1: --num-layers 12\n");
  CHECK(value("-N + 10 == 4 && !0") == "1: --num-layers 1\n");
  CHECK(value("${N} / 0") == "1: --num-layers $((${N} / 0))\n");
  CHECK(value("M + 1") == "1: --num-layers $((M + 1))\n");
}

}  // namespace shell_words_test
