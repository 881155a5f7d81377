// Tests of frameworks/shell_script.hpp and frameworks/shell_settings.hpp: which flags a script's
// command has.
// Not: what they mean (megatron_test.cpp).
#include "tawpipe/frameworks/shell_script.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/shell.hpp"

using namespace tawpipe;

namespace shell_script_test {

using support::flags_of;
using support::listed;
using support::notes_of;
using support::refusal;

TEST_CASE("a command's flags are those after the program, with the lines that they stand in") {
  CHECK(listed(flags_of("#!/bin/bash\n"
                        "set -ex  # stop at errors\n"
                        "cd /work && mkdir -p out\n"
                        "torchrun --nproc_per_node 8 pretrain_gpt.py \\\n"
                        "  --num-layers 32 --swiglu \\\n"
                        "  --seq-length=4096 \\\n"
                        "  --data-path 0.5 '/a b/c' \"0.5\" d 2>&1 | tee log.txt\n")) ==
        "5: --num-layers 32\n5: --swiglu\n6: --seq-length 4096\n7: --data-path 0.5 /a b/c 0.5 d\n");
}

TEST_CASE("variables, arrays, defaults and sums are filled in") {
  CHECK(listed(flags_of("export TP=8\n"
                        "PP=${2:-4}; LR='1e-4'\n"
                        "GPUS_PER_NODE=8\n"
                        "BATCH=$(( GPUS_PER_NODE * ($PP + 12) ))\n"
                        "MODEL_ARGS=(\n"
                        "  --num-layers 32  # as published\n"
                        "  --hidden-size 4096\n"
                        ")\n"
                        "MODEL_ARGS+=(--bf16)\n"
                        "PARALLEL=\"--tensor-model-parallel-size $TP \\\n"
                        "   --pipeline-model-parallel-size ${PP}\"\n"
                        "if [ -n \"$X\" ]; then\n"
                        "  echo \"$X\"\n"
                        "fi\n"
                        "python -u pretrain_gpt.py ${MODEL_ARGS[@]} $PARALLEL --global-batch-size ${BATCH} --lr $LR\n")) ==
        "6: --num-layers 32\n7: --hidden-size 4096\n9: --bf16\n10: --tensor-model-parallel-size 8\n"
        "11: --pipeline-model-parallel-size 4\n15: --global-batch-size 128\n15: --lr 1e-4\n");
}

TEST_CASE("products of large numbers, of either sign, are left as they are written") {
  CHECK(listed(flags_of("A=$((0 - 2000000000))\nB=$((A * A * A))\npython p.py --num-layers $B\n")) ==
        "3: --num-layers $((A * A * A))\n");
  CHECK(listed(flags_of("python p.py --num-layers 7 --seq-length $(( (3000 * 3000) * (3000 * 3000) - 1 ))\n")) ==
        "1: --num-layers 7\n1: --seq-length 80999999999999\n");
}

TEST_CASE("a file of flags, one line each or in arrays, needs no command") {
  CHECK(listed(flags_of("# mine\n--tensor-model-parallel-size 2\n--bf16\n")) == "2: --tensor-model-parallel-size 2\n3: --bf16\n");
  CHECK(listed(flags_of("A=(\n --micro-batch-size 2\n)\nB=(--swiglu)\n")) == "2: --micro-batch-size 2\n4: --swiglu\n");
}

TEST_CASE("conditions on values that the script sets are decided") {
  const std::string command = "pretrain_gpt.py --num-layers 4 ${A[@]} $B\n";
  const auto with = [&](const std::string& before) { return listed(flags_of("D=fp8; N=2; E=; B=\n" + before + command)); };
  const std::string layers = "5: --num-layers 4\n";
  CHECK(with("if [[ \"$D\" == \"fp8\" ]]; then\n A=(--bf16)\nfi\n") == "5: --num-layers 4\n3: --bf16\n");
  CHECK(with("if [ $D != fp8 ]; then\n A=(--bf16); else A=(--swiglu)\nfi\n") == "5: --num-layers 4\n3: --swiglu\n");
  CHECK(with("if [[ $D = x ]]; then\n A=(--bf16)\nelif [ $N -gt 1 ]; then A=(--swiglu); else A=(--x); fi\n\n") ==
        "6: --num-layers 4\n4: --swiglu\n");
  CHECK(with("if [[ $D == x ]] || [[ -z \"$E\" ]]; then A=(--bf16); fi\n\n\n") == layers + "2: --bf16\n");
  CHECK(with("if [[ $D == x ]] && [[ -z \"$E\" ]]; then A=(--bf16); else B=--swiglu; A=(); fi\n\n\n") ==
        layers + "2: --swiglu\n");
  CHECK(with("[ -n \"$E\" ] && B=--x\n[ -z \"$E\" ] && B=--bf16 || B=--x\nA=()\n") == layers + "3: --bf16\n");
  CHECK(with("if ! true; then A=(--x); fi\nif ! [ $N -eq 3 ]; then A=(--bf16); fi\n\n") == layers + "3: --bf16\n");
  // What only a run could tell: a pattern, a subshell, a call.
  for (const char* test :
       {"[[ $D == f* ]]", "(( N > X ))", "nvidia-smi", "[ -f x ]", "[[ $D =~ ^(a|fp8)$ ]]", "(true)", "test -d x"}) {
    CAPTURE(test);
    CHECK(refusal(concat("D=fp8; N=2\nif ", test, "; then\n A=(--bf16)\nfi\n", "pretrain_gpt.py --num-layers 4 ${A[@]}\n"))
              .starts_with("run.sh, line 2: only a run could tell whether this holds, and it decides --bf16"));
  }
  CHECK(refusal("mkdir x || TP=3\npretrain_gpt.py --tensor-model-parallel-size $TP\n").find("$TP is not set") !=
        std::string::npos);
  CHECK(refusal("mkdir x && TP=2\npretrain_gpt.py --tensor-model-parallel-size $TP\n").empty());
}

TEST_CASE("an unquoted array's words are split at spaces, as bash does") {
  CHECK(listed(flags_of("A=(\"--fp8-format hybrid\" \"--bf16\")\npretrain_gpt.py ${A[@]} --num-layers 4\n")) ==
        "1: --fp8-format hybrid\n1: --bf16\n2: --num-layers 4\n");
  CHECK(refusal("A=(\"--fp8-format hybrid\")\npretrain_gpt.py --num-layers 4 \"${A[@]}\"\n").find("'--fp8-format hybrid'") !=
        std::string::npos);
}

TEST_CASE("what only a run could tell is an error where it may matter") {
  CHECK(refusal("pretrain_gpt.py --num-layers $LAYERS\n") ==
        "run.sh, line 1: --num-layers: $LAYERS is not set in this file; write its value, set it before, or give it by --env");
  CHECK(refusal("pretrain_gpt.py --num-layers 4 \\\n --micro-batch-size `nproc`\n").find("line 2: --micro-batch-size: `...`") !=
        std::string::npos);
  CHECK(
      refusal("if nvidia-smi; then\n TP=2\nfi\npretrain_gpt.py --tensor-model-parallel-size $TP\n")
          .starts_with("run.sh, line 1: only a run could tell whether this holds, and it decides --tensor-model-parallel-size"));
  CHECK(refusal("pretrain_gpt.py --num-layers 4 --lr 0.1 $(cat flags)\n")
            .find("$(cat flags) is not set in this file and may hold flags") != std::string::npos);
  for (const char* extra : {"${EXTRA[@]}", "--lr 0.1 $EXTRA", "--bf16 $EXTRA $EXTRA", "${EXTRA}"}) {
    const std::string note = notes_of(concat("pretrain_gpt.py --num-layers 4 ", extra, "\n"));
    CAPTURE(note);
    CHECK(note.starts_with("run.sh: not set, and taken as empty: $"));
  }
  CHECK(notes_of("pretrain_gpt.py --num-layers 4 --bf16 $@\n").empty());  // it has no arguments
  CHECK(refusal("pretrain_gpt.py --num-layers 4 --data-path $DATA --save $OUT\n").empty());
}

TEST_CASE("a script that is none, or two, is refused with its lines") {
  CHECK(refusal("echo hello\n").find("run.sh: no command with Megatron-LM flags") == 0);
  CHECK(refusal("a.py --num-layers 4\nb.py --num-layers 8\n").find("line 2: a second command") != std::string::npos);
  CHECK(refusal("a.py --num-layers 'four\n") == "run.sh, line 1: a quote ' has no end");
  CHECK(refusal("A=(\n--num-layers 4\n") == "run.sh, line 1: the array A=( has no end");
  CHECK(refusal("a.py --num-layers \"4\n").find("a quote \" has no end") != std::string::npos);
  CHECK(refusal("a.py --num-layers ${A\n").find("${ has no end") != std::string::npos);
  CHECK(refusal("a.py --num-layers $(cat <<EOF\n").find("$( has no end") != std::string::npos);
  CHECK(!refusal("").empty());
}

TEST_CASE("the documents of a script") {
  const std::string flags = "A=(--num-layers 4)\nCMD=\"cd /x; python p.py ${A[@]}\"\n";
  CHECK(listed(flags_of(flags + "sbatch <<EOF\n#SBATCH -N 2\nsrun bash -c \"${CMD}\" | tee log\nEOF\n")) ==
        "1: --num-layers 4\n");
  CHECK(listed(flags_of(flags + "sbatch <<'EOF'\np.py \"${A[@]}\" --bf16\nEOF\n")) == "1: --num-layers 4\n4: --bf16\n");
  CHECK(listed(flags_of("cat > run.sh <<EOF\nN=7\np.py --num-layers \\$N\nEOF\nbash run.sh\n")) == "3: --num-layers 7\n");
  CHECK(listed(flags_of("read -r -d '' ARGS <<'EOF'\n--num-layers 4\n--bf16\nEOF\np.py $ARGS\n")) ==
        "2: --num-layers 4\n3: --bf16\n");
  CHECK(listed(flags_of("cat > x.yaml <<EOF\n--num-layers 9\nEOF\na.py --num-layers 4\n")) == "4: --num-layers 4\n");
}

TEST_CASE("functions are read where they are called, with their arguments") {
  CHECK(listed(flags_of("run() {\n  p.py --num-layers $1 --micro-batch-size ${2:-1}\n}\nrun 4\n")) ==
        "2: --num-layers 4\n2: --micro-batch-size 1\n");
  CHECK(listed(flags_of("function run { p.py \"$@\"; }\nrun --num-layers 4 \\\n  --bf16\n")) == "2: --num-layers 4\n3: --bf16\n");
  CHECK(listed(flags_of("L=1\nset_layers() { L=8; }\np.py --num-layers $L\n")) == "3: --num-layers 1\n");
  CHECK(listed(flags_of("L=1\nset_layers() { L=8; }\nset_layers\np.py --num-layers $L\n")) == "4: --num-layers 8\n");
  CHECK(listed(flags_of("train() {\n  p.py --num-layers 4\n}\nexport -f train\nsrun bash -c train\n")) == "2: --num-layers 4\n");
  CHECK(refusal("f() { f; }\nf\np.py --num-layers 4\n").empty());
}

TEST_CASE("arguments and environment") {
  const auto with = [](const std::string& text, const ScriptInputs& inputs) {
    return listed(shell_settings(megatron_table(), text, "run.sh", inputs));
  };
  CHECK(with("L=$1\nshift\np.py --num-layers $L \"$@\"\n", {.arguments = {"4", "--bf16"}}) == "3: --num-layers 4\n3: --bf16\n");
  CHECK(with("if [ $# -lt 1 ]; then L=2; else L=${1}; fi\np.py --num-layers $L\n", {}) == "2: --num-layers 2\n");
  CHECK(with("p.py --num-layers ${10}\n", {.arguments = {"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}}) ==
        "1: --num-layers 10\n");
  CHECK(with("TP=${TP:-2}\nPP=4\np.py --num-layers $TP --seq-length $PP\n", {.environment = {{"TP", "8"}, {"PP", "1"}}}) ==
        "3: --num-layers 8\n3: --seq-length 4\n");
  CHECK(with("V=$(( ($TP > 1) ? 12 : 6 ))\np.py --num-layers $V\n", {.environment = {{"TP", "8"}}}) == "2: --num-layers 12\n");
}

TEST_CASE("all that is wrong is said at once, and unknown flags in one note") {
  CHECK(refusal("p.py --num-layers x --hidden-size $H --bf16 1\n") ==
        "run.sh, line 1: --num-layers: expected a whole number, not 'x'; "
        "run.sh, line 1: --hidden-size: $H is not set in this file; write its value, set it before, or give it by --env; "
        "run.sh, line 1: --bf16: takes no value, but has '1'");
  CHECK(notes_of("p.py --num-layers 4 --data-impl mmap \\\n --micro-batch-sizes 2\n") ==
        "run.sh: unknown Megatron-LM flags, left out: --data-impl in line 1, --micro-batch-sizes in line 2, near "
        "--micro-batch-size (--strict refuses them)");
}

}  // namespace shell_script_test
