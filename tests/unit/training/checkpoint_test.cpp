// Tests of training/checkpoint.hpp: everything comes back by any ranges; an interrupted write harms
// nothing; broken folders.
// Not: the tensor files themselves (safetensors_test.cpp).
#include "tawpipe/training/checkpoint.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/checkpoints.hpp"
#include "support/file_size_limit.hpp"
#include "support/random.hpp"
#include "support/scratch_folder.hpp"
#include "support/small_decoder.hpp"

using support::edit;
using support::file_bytes;
using support::fill;
using support::holds;
using support::names_in;
using support::put_file;
using support::read;
using support::ScratchFolder;
using support::small_decoder;
using support::state_of;
using support::write;
using tawpipe::Dtype;
using tawpipe::InputError;
using tawpipe::ParameterRange;
using tawpipe::Transformer;
using tawpipe::training::Checkpoint;
using tawpipe::training::CheckpointPart;
using tawpipe::training::find_checkpoint;
using tawpipe::training::ParameterValue;
using tawpipe::training::TrainingState;
using tawpipe::training::write_checkpoint;

namespace fs = std::filesystem;

TEST_CASE("a checkpoint gives back state, model, weights and moments, by any ranges") {
  const ScratchFolder folder;
  const Transformer model = small_decoder();
  const auto path =
      write_checkpoint(folder / "run", model, {.rope_theta = 5e5, .norm_epsilon = 1e-6, .positions = 64}, state_of(123),
                       [](const CheckpointPart& part, std::span<std::byte> bytes) { fill<float>(part, bytes, 0); });
  CHECK(path == folder / "run/step-000123");
  CHECK(names_in(path) ==
        std::set<std::string>{"checksums.json", "config.json", "model.safetensors", "optimizer.safetensors", "state.json"});
  CHECK(names_in(folder / "run") == std::set<std::string>{"latest", "step-000123"});

  const Checkpoint checkpoint{folder / "run"};
  CHECK(checkpoint.path() == path);
  CHECK(checkpoint.state() == state_of(123));
  CHECK(checkpoint.model().name == "small decoder");
  CHECK(checkpoint.model().dtype == Dtype::f32);
  CHECK(checkpoint.constants() == tawpipe::DecoderConstants{5e5, 1e-6, 64});
  checkpoint.expect(model, {5e5, 1e-6, 64});
  // Whole, and in three unequal pieces as three ranks might own them
  for (const auto value : {ParameterValue::weight, ParameterValue::first_moment, ParameterValue::second_moment}) {
    for (const ParameterRange range : {ParameterRange{0, 1080}, {0, 77}, {77, 700}, {700, 1080}, {5, 6}, {9, 9}}) {
      CHECK(holds(checkpoint, value, range));
    }
  }
}

TEST_CASE("an untied model in double precision keeps every bit") {
  const ScratchFolder folder;
  TrainingState state = state_of(1);
  state.dtype = Dtype::f64;
  const auto third = [](std::int64_t parameter) { return static_cast<double>(parameter) / 3; };
  write_checkpoint(folder / "run", small_decoder(false), {}, state, [&](const CheckpointPart& part, std::span<std::byte> bytes) {
    for (std::int64_t i = 0; i < part.range.count(); ++i) {
      const double number = third(part.range.begin + i);
      std::memcpy(bytes.data() + i * 8, &number, 8);
    }
  });
  const Checkpoint checkpoint{folder / "run"};
  CHECK(checkpoint.model().dtype == Dtype::f64);
  const auto weights = read(checkpoint, ParameterValue::weight, {0, 1160});
  for (std::size_t i = 0; i < weights.size(); ++i) REQUIRE(weights[i] == third(static_cast<std::int64_t>(i)));
}

TEST_CASE("parts cover weights and both moments once, each within one tensor") {
  const Transformer model{
      .name = "wide", .layers = 1, .hidden = 2048, .heads = 1, .kv_heads = 1, .intermediate = 8, .vocab = 600};
  std::int64_t covered = 0;
  const auto tensors = tawpipe::ParameterOrder{model}.tensors();
  std::size_t at = 0;
  for (const CheckpointPart& part : tawpipe::training::checkpoint_parts(model)) {
    CHECK(part.range.begin == covered % model.parameters());
    CHECK(part.range.count() <= 1 << 20);
    CHECK(static_cast<std::int64_t>(part.value) == covered / model.parameters());
    if (part.range.begin == 0) at = 0;
    while (tensors[at].range.end <= part.range.begin) ++at;
    CHECK(part.range.end <= tensors[at].range.end);
    covered += part.range.count();
  }
  CHECK(covered == 3 * model.parameters());
}

TEST_CASE("the last two checkpoints stay, and later ones of a run that went back") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  for (const int step : {10, 20, 30}) write(run, step);
  CHECK(names_in(run) == std::set<std::string>{"latest", "step-000020", "step-000030"});
  CHECK(file_bytes(run + "/latest") == "step-000030\n");
  write(run, 15);  // went back to an older one
  CHECK(find_checkpoint(run) == run + "/step-000015");
  CHECK(names_in(run) == std::set<std::string>{"latest", "step-000015", "step-000020", "step-000030"});
  write(run, 1'234'567);
  CHECK(names_in(run) == std::set<std::string>{"latest", "step-000030", "step-1234567"});
  CHECK(Checkpoint{run + "/step-000030"}.state().step == 30);
}

TEST_CASE("a checkpoint of the same step replaces the one before") {
  const ScratchFolder folder;
  write(folder / "run", 7, 0);
  write(folder / "run", 7, 0.5);
  CHECK(holds(Checkpoint{folder / "run"}, ParameterValue::weight, {0, 1080}, 0.5));
  CHECK(names_in(folder / "run") == std::set<std::string>{"latest", "step-000007"});
}

TEST_CASE("a failing write leaves the last good checkpoint, and nothing of its own") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  write(run, 10);
  const auto check_untouched = [&] {
    CHECK(names_in(run) == std::set<std::string>{"latest", "step-000010"});
    CHECK(holds(Checkpoint{run}, ParameterValue::second_moment, {0, 1080}));
  };
  for (const rlim_t bytes : {0, 100, 3000, 6000, 9000}) {  // 4320 bytes of weights, twice as many of moments, and headers
    {
      const support::FileSizeLimit full_disk{bytes};
      CHECK_THROWS_WITH_AS(write(run, 20), doctest::Contains("File too large"), InputError);
    }
    check_untouched();
  }
  int parts = 0;
  const auto broken = [&](const CheckpointPart&, std::span<std::byte>) {
    if (++parts == 40) throw tawpipe::DeviceError("rank 3 is gone");
  };
  CHECK_THROWS_AS(write_checkpoint(run, small_decoder(), {}, state_of(20), broken), tawpipe::DeviceError);
  check_untouched();
}

TEST_CASE("a process killed at any moment leaves a good checkpoint") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  write(run, 1);
  support::Random random{11};
  std::int64_t step = 1;
  for (int round = 0; round < 25 || (step == 1 && round < 200); ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (std::int64_t next = step;; ++next) write(run, next);  // the first replaces one of the same step
    }
    REQUIRE(child > 0);
    usleep(static_cast<useconds_t>(random.between(0, 5'000 * (round + 1))));  // longer and longer, for slow disks
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const Checkpoint checkpoint{run};
    CHECK(checkpoint.state().step >= step);
    for (const auto value : {ParameterValue::weight, ParameterValue::first_moment, ParameterValue::second_moment}) {
      CHECK(holds(checkpoint, value, {0, 1080}));
    }
    step = checkpoint.state().step;
  }
  CHECK(step > 1);
  write(run, step + 1);
  for (const std::string& name : names_in(run))
    CHECK((name == "latest" || name.size() == std::string_view{"step-000123"}.size()));
}

TEST_CASE("what a killed process leaves is passed over, and removed by the next write") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  write(run, 10);
  // killed while writing step 20
  fs::create_directory(run + "/step-000020.partial");
  put_file(run + "/step-000020.partial/model.safetensors.partial", "half");
  CHECK(find_checkpoint(run) == run + "/step-000010");
  // killed between the two renames that replace step 10
  fs::rename(run + "/step-000010", run + "/step-000010.replaced");
  CHECK(find_checkpoint(run) == run + "/step-000010.replaced");
  CHECK(Checkpoint{run}.state().step == 10);
  // killed after the rename of the very first, before `latest`
  fs::rename(run + "/step-000010.replaced", run + "/step-000010");
  fs::remove(run + "/latest");
  CHECK(find_checkpoint(run) == run + "/step-000010");
  fs::create_directory(run + "/step-000009.replaced");
  write(run, 30);
  CHECK(names_in(run) == std::set<std::string>{"latest", "step-000010", "step-000030"});
}

TEST_CASE("folders without a checkpoint are refused") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  CHECK_THROWS_WITH_AS(Checkpoint{run}, doctest::Contains("there is no folder"), InputError);
  fs::create_directory(run);
  CHECK_THROWS_WITH_AS(Checkpoint{run}, doctest::Contains("holds no checkpoint"), InputError);
  put_file(run + "/latest", "../../etc\n");
  CHECK_THROWS_WITH_AS(Checkpoint{run}, doctest::Contains("is broken: it must name a checkpoint"), InputError);
  put_file(run + "/latest", "step-000005\n");
  CHECK_THROWS_WITH_AS(Checkpoint{run}, doctest::Contains("names 'step-000005', which is not there"), InputError);
}

TEST_CASE("each damage to a checkpoint has its own message") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  const auto check_refused = [&](std::string_view why) {
    try {
      const Checkpoint checkpoint{run};
      FAIL("read in spite of: " << why);
    } catch (const InputError& error) {
      const std::string message = error.what();
      INFO(message);
      CHECK(message.find(why) != std::string::npos);
      CHECK(message.find('\n') == std::string::npos);
    }
  };
  const auto fresh = [&] { return write(run, 5); };

  fs::remove(fresh() + "/optimizer.safetensors");
  check_refused("optimizer.safetensors': No such file");
  auto path = fresh();
  fs::resize_file(path + "/model.safetensors", fs::file_size(path + "/model.safetensors") - 4);
  check_refused("is cut off: tensor 'norm.weight'");
  path = fresh();
  fs::copy_file(write(folder / "other", 6) + "/model.safetensors", path + "/model.safetensors",
                fs::copy_options::overwrite_existing);
  check_refused("model.safetensors' belongs to another checkpoint");
  path = fresh();
  const auto other_model = write(folder / "other", 5, 0, small_decoder(false));
  for (const char* name : {"/model.safetensors", "/optimizer.safetensors"}) {
    fs::copy_file(other_model + name, path + name, fs::copy_options::overwrite_existing);
  }
  check_refused("belongs to another checkpoint");
  fs::copy_file(other_model + "/state.json", path + "/state.json", fs::copy_options::overwrite_existing);
  check_refused("has 21 tensors, the model has 20");
  path = fresh();
  edit(path + "/config.json", R"("vocab_size": 10)", R"("vocab_size": 11)");
  check_refused("'embedding.weight' in");
  check_refused("has shape [10, 8]; [11, 8] is needed");

  path = fresh();
  put_file(path + "/state.json", file_bytes(path + "/state.json").substr(0, 100));
  check_refused("state.json': not JSON: line ");
  for (const auto& [from, to, why] : std::vector<std::array<std::string, 3>>{
           {R"("version": 2)", R"("version": 1)", "version: expected a whole number from 2 to 2, not 1"},
           {"tawpipe-checkpoint", "something", "format: expected 'tawpipe-checkpoint', not"},
           {R"("step": 5)", R"("step": -5)", "step: expected a whole number from 0"},
           {R"("step": 5)", R"("stop": 5)", "'step' is missing"},
           {"float32", "bfloat16", "dtype: expected float32 or float64"},
           {"float32", "float64", "is F32, state.json says F64"},
           {R"("microbatches": 8)", R"("microbatches": "8")", "data.microbatches: expected a whole number"},
           {"adamw", "sgd", "optimizer.name: expected 'adamw'"},
           {R"("beta1": 0.9)", R"("beta1": null)", "beta1: expected a number"},
           {R"("random")", R"("randm")", "did you mean 'random'?"},
           {R"("settings": {)", R"("settings": [], "rest": {)", "settings: expected an object"}}) {
    path = fresh();
    edit(path + "/state.json", from, to);
    check_refused(why);
  }
}

TEST_CASE("a checkpoint of another model is refused by the first size that differs") {
  const ScratchFolder folder;
  const Checkpoint checkpoint{write(folder / "run", 5)};
  Transformer other = small_decoder();
  other.intermediate = 16;
  CHECK_THROWS_WITH_AS(checkpoint.expect(other, {}), doctest::Contains("has intermediate size 12, the model has 16"), InputError);
  CHECK_THROWS_WITH_AS(checkpoint.expect(small_decoder(false), {}), doctest::Contains("has tied embedding 1, the model has 0"),
                       InputError);
  other = small_decoder();
  other.window = 3;
  CHECK_THROWS_WITH_AS(checkpoint.expect(other, {}), doctest::Contains("has window 0, the model has 3"), InputError);
  CHECK_NOTHROW(checkpoint.expect(small_decoder(), {.positions = 5}));
  CHECK_THROWS_WITH_AS(checkpoint.expect(small_decoder(), {.rope_theta = 5e5}),
                       doctest::Contains("has other constants (rope_theta"), InputError);
}

TEST_CASE("a checkpoint in 16 bits is not written") {
  const ScratchFolder folder;
  TrainingState state = state_of(1);
  state.dtype = Dtype::bf16;
  CHECK_THROWS_WITH_AS(write_checkpoint(folder / "run", small_decoder(), {}, state, {}),
                       doctest::Contains("give float32 or float64"), InputError);
}

TEST_CASE("a byte that changed is found with its tensor or value") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  const auto check_refused = [&](std::string_view why) {
    CHECK_THROWS_WITH_AS(tawpipe::training::open_checkpoint(run), doctest::Contains(std::string{why}.c_str()), InputError);
  };
  const auto flip = [](const std::string& path, std::size_t at) {
    std::string bytes = file_bytes(path);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    put_file(path, bytes);
  };
  CHECK(tawpipe::training::open_checkpoint(write(run, 5)).passed_over.empty());
  auto path = write(run, 5);
  flip(path + "/model.safetensors", file_bytes(path + "/model.safetensors").size() - 1);
  check_refused("model.safetensors' is damaged: tensor 'norm.weight' is not what was written");
  path = write(run, 5);
  flip(path + "/optimizer.safetensors", file_bytes(path + "/optimizer.safetensors").size() - 1);
  check_refused("optimizer.safetensors' is damaged: tensor 'v/norm.weight'");
  path = write(run, 5);
  edit(path + "/state.json", R"("step": 5)", R"("step": 6)");
  check_refused("state.json' is damaged: its value '/step'");
  path = write(run, 5);
  edit(path + "/config.json", R"("rope_theta": 1)", R"("rope_theta": 2)");
  check_refused("config.json' is damaged: its value '/rope_theta'");
  path = write(run, 5);
  fs::remove(path + "/checksums.json");
  check_refused("checksums.json");
}

TEST_CASE("a checkpoint keeps a mixture of experts, and tells it from others") {
  const ScratchFolder folder;
  tawpipe::Transformer model = small_decoder();
  model.experts = 3;
  model.experts_per_token = 2;
  model.shared_width = 4;
  const Checkpoint checkpoint{write(folder / "run", 5, 0, model)};
  CHECK(checkpoint.model().parameters() == model.parameters());
  CHECK(read(checkpoint, ParameterValue::weight, {300, 302}) == std::vector<double>{300, 301});
  CHECK_NOTHROW(checkpoint.expect(model, {}));
  model.experts_per_token = 1;
  CHECK_THROWS_WITH_AS(checkpoint.expect(model, {}), doctest::Contains("has experts a token 2, the model has 1"), InputError);
}

TEST_CASE("of a run's folder the newest whole checkpoint is opened, and what is wrong with newer ones is said") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  write(run, 10);
  const auto newest = write(run, 20);
  fs::resize_file(newest + "/model.safetensors", fs::file_size(newest + "/model.safetensors") - 4);
  const auto opened = tawpipe::training::open_checkpoint(run);
  CHECK(opened.checkpoint.state().step == 10);
  REQUIRE(opened.passed_over.size() == 1);
  CHECK(opened.passed_over[0].find("step-000020/model.safetensors' is cut off") != std::string::npos);
  CHECK_THROWS_AS(tawpipe::training::open_checkpoint(newest), InputError);  // asked for by name: no other one
  fs::remove_all(newest);
  CHECK(tawpipe::training::open_checkpoint(run).passed_over.size() == 1);
}

TEST_CASE("no bit that flips, no byte that is cut or edited in a checkpoint goes unnoticed") {
  const ScratchFolder folder;
  const std::string whole = write(folder / "run", 5);
  const std::vector<std::string> names{"checksums.json", "config.json", "model.safetensors", "optimizer.safetensors",
                                       "state.json"};
  support::Random random{7};
  const auto below = [&](std::size_t count) { return static_cast<std::size_t>(random.between(0, static_cast<int>(count) - 1)); };
  for (int i = 0; i < 200; ++i) {
    const std::string copy = folder / "copy" + std::to_string(i);
    fs::copy(whole, copy);
    const std::string path = copy + "/" + names[below(names.size())];
    const std::string before = file_bytes(path);
    std::string bytes = before;
    const std::size_t at = below(bytes.size());
    switch (below(3)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes.resize(at);
        break;
      default:
        bytes.insert(at, 1, static_cast<char>('0' + below(10)));
    }
    put_file(path, bytes);
    INFO(path << " at " << at);
    try {
      tawpipe::training::open_checkpoint(copy);
      // Spaces between the values of checksums.json itself mean nothing; a digit or a letter does.
      CHECK(nlohmann::json::parse(bytes, nullptr, false) == nlohmann::json::parse(before, nullptr, false));
      CHECK(path.ends_with("checksums.json"));
    } catch (const InputError& error) {
      CHECK(std::string_view{error.what()}.find('\n') == std::string_view::npos);
    }
    fs::remove_all(copy);
  }
}
