// Tests of training/safetensors.hpp: what is written comes back; every kind of broken file has its
// own message.
// Not: number formats one by one (number_format_test.cpp).
#include "tawpipe/training/safetensors.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/file_size_limit.hpp"
#include "support/random.hpp"
#include "support/scratch_folder.hpp"

using support::file_bytes;
using support::put_file;
using support::ScratchFolder;
using tawpipe::InputError;
using tawpipe::training::NewTensor;
using tawpipe::training::NumberFormat;
using tawpipe::training::SafetensorsFile;
using tawpipe::training::SafetensorsWriter;

namespace {

/// A file with this header and that many bytes of data after it.
std::string with_header(std::string_view header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes += header;
  return bytes + std::string(data_bytes, '\0');
}

/// What opening a file of these bytes says, or "" if it opens.
std::string refusal(const std::string& bytes) {
  const ScratchFolder folder;
  put_file(folder / "x", bytes);
  try {
    const SafetensorsFile file{folder / "x"};
    return "";
  } catch (const InputError& error) {
    std::string message = error.what();
    CHECK(message.find('\n') == std::string::npos);
    const auto at = message.find(folder / "x");
    CHECK(at != std::string::npos);
    return message.replace(at, (folder / "x").size(), "x");
  }
}

void check_refused(const std::string& bytes, std::string_view why) {
  const std::string message = refusal(bytes);
  CAPTURE(message);
  CHECK(message.starts_with("safetensors file 'x'"));
  CHECK(message.find(why) != std::string::npos);
}
void check_refused(std::string_view header, std::size_t data_bytes, std::string_view why) {
  check_refused(with_header(header, data_bytes), why);
}

/// Two tensors and metadata: 3 floats, 2x2 whole numbers.
void write_example(const std::string& path) {
  SafetensorsWriter writer{path, {{"a.weight", NumberFormat::f32, {3}}, {"b", NumberFormat::i32, {2, 2}}}, {{"dim", "3"}}};
  writer.write<float>(std::vector<float>{0.5F, -1.25F, 3.F});
  writer.write<std::int32_t>(std::vector<std::int32_t>{1, 2});
  writer.write<std::int32_t>(std::vector<std::int32_t>{-3, 4});
  writer.finish();
}

}  // namespace

TEST_CASE("tensors that were written come back with names, shapes and numbers") {
  const ScratchFolder folder;
  write_example(folder / "x");
  const SafetensorsFile file{folder / "x"};
  CHECK(file.names() == std::vector<std::string>{"a.weight", "b"});
  CHECK(file.metadata().at("dim") == "3");
  CHECK(file.tensor("a.weight").format == NumberFormat::f32);
  CHECK(file.tensor("b").shape == std::vector<std::int64_t>{2, 2});
  CHECK(file.tensor("b").count() == 4);
  CHECK(file.read<float>("a.weight") == std::vector<float>{0.5F, -1.25F, 3.F});
  CHECK(file.read<double>("a.weight") == std::vector<double>{0.5, -1.25, 3});
  CHECK(file.read<std::int64_t>("b") == std::vector<std::int64_t>{1, 2, -3, 4});
  CHECK(file.tensor("a.weight").begin % 8 == 0);
  CHECK(!std::filesystem::exists(folder / "x.partial"));
}

TEST_CASE("a part of a tensor is read alone") {
  const ScratchFolder folder;
  write_example(folder / "x");
  const SafetensorsFile file{folder / "x"};
  std::vector<double> part(2);
  file.read<double>("b", 2, part);
  CHECK(part == std::vector<double>{-3, 4});
  CHECK_THROWS_WITH_AS(file.read<double>("b", 3, part), doctest::Contains("has 4 numbers; 2 from 3 on are not among them"),
                       InputError);
  CHECK_THROWS_WITH_AS(file.read<double>("b", -1, part), doctest::Contains("2 from -1 on"), InputError);
}

TEST_CASE("more numbers than one block are converted whole, on both ways") {
  const ScratchFolder folder;
  std::vector<float> numbers((std::size_t{1} << 16) + 5);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>(i % 200) / 4;  // exact in BF16: below 50, quarters
  SafetensorsWriter writer{folder / "x", {{"n", NumberFormat::bf16, {static_cast<std::int64_t>(numbers.size())}}}};
  writer.write<float>(numbers);
  writer.finish();
  CHECK(SafetensorsFile{folder / "x"}.read<float>("n") == numbers);
}

TEST_CASE("empty tensors, single numbers and a file without tensors are files too") {
  const ScratchFolder folder;
  SafetensorsWriter writer{folder / "x", {{"none", NumberFormat::f32, {0, 5}}, {"one", NumberFormat::f64, {}}}};
  writer.write<double>(std::vector<double>{2.5});
  writer.finish();
  const SafetensorsFile file{folder / "x"};
  CHECK(file.read<float>("none").empty());
  CHECK(file.read<double>("one") == std::vector<double>{2.5});
  SafetensorsWriter{folder / "y", {}}.finish();
  CHECK(SafetensorsFile{folder / "y"}.names().empty());
}

TEST_CASE("a missing tensor, a wrong shape and whole numbers from fractions are refused by name") {
  const ScratchFolder folder;
  write_example(folder / "x");
  const SafetensorsFile file{folder / "x"};
  CHECK_THROWS_WITH_AS(file.tensor("a.wight"), doctest::Contains("has no tensor 'a.wight'; did you mean 'a.weight'?"),
                       InputError);
  CHECK_THROWS_WITH_AS(file.tensor("b", {4}), doctest::Contains("has shape [2, 2]; [4] is needed"), InputError);
  CHECK_THROWS_WITH_AS(file.read<int>("a.weight"), doctest::Contains("cannot be used: it holds fractions"), InputError);
  CHECK_THROWS_WITH_AS(file.read<std::uint16_t>("b"), doctest::Contains("it holds -3, which is out of range here"), InputError);
}

TEST_CASE("each kind of broken file has its own message") {
  const std::string entry = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  check_refused("", "has 0 bytes; the length of its header takes 8");
  check_refused("abc", "has 3 bytes; the length of its header takes 8");
  check_refused(std::string(8, '\xff'),
                "claims a header of 18446744073709551615 bytes, but has 8 in all: it is cut off, or of another kind");
  check_refused(with_header("{}", 0).substr(0, 9),
                "claims a header of 2 bytes, but has 9 in all: it is cut off, or of another kind");
  check_refused("", 0, "has a header that does not start with '{': it is of another kind");
  check_refused("[]", 0, "has a header that does not start with '{': it is of another kind");
  check_refused("{", 0, "not JSON: line 1, column 2: ");
  check_refused("{\"a\xff\":1}", 0, "not JSON: line 1, column 4: ");
  check_refused("{\"a\":1e999}", 0, "not JSON: line 1, column 10: number overflow");
  check_refused("{\"a\":[[[[1]]]]}", 0, "lists and objects stand more than 3 deep in each other");
  check_refused("{\"a\":1}", 0, "a: expected an object {...}, not 1");
  check_refused("{" + entry + "," + entry + "}", 8, "the key 'a' stands twice in one object");
  check_refused(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8,
                "a: the key 'dtype' stands twice in one object");
  check_refused(R"({"a":{"dtype":"F32","shape":[2]}})", 8, "a: 'data_offsets' is missing");
  check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", 8, "a: unknown key 'more'");
  check_refused(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", 8,
                "a.dtype: unknown dtype 'F99'; known: F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, "
                "BOOL, F8_E5M2, F8_E4M3");
  check_refused(R"({"a":{"dtype":4,"shape":[2],"data_offsets":[0,8]}})", 8, "a.dtype: expected a text in quotes, not 4");
  check_refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
                "has a broken tensor 'a': shape [3] of F32 takes 12 bytes, its data_offsets have 8");
  check_refused(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8, "a.shape: expected a list [...], not 2");
  check_refused(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8,
                "a.shape[0]: expected a whole number from 0 to 9223372036854775807, not -2");
  check_refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8,
                "has a broken tensor 'a': its shape is too large");
  check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8,
                "a.data_offsets: expected two numbers, not a list of 1");
  check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8,
                "has a broken tensor 'a': it ends at byte 0, before its begin at 8");
  check_refused("{" + entry + "}", 7, "is cut off: tensor 'a' ends at byte 8 of the data, the file has 7");
  check_refused("{" + entry + "}", 9, "has 1 bytes after its last tensor that belong to none");
  check_refused("{" + entry + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8,
                "has overlapping tensors: 'a' and 'b'");
  check_refused("{" + entry + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[9,13]}})", 13,
                "has a gap of 1 bytes before tensor 'b'");
  check_refused(R"({"__metadata__":[]})", 0, "__metadata__: expected an object {...}, not a list");
  check_refused(R"({"__metadata__":{"k":1}})", 0, "__metadata__.k: expected a text in quotes, not 1");
}

TEST_CASE("a missing file and a folder are refused") {
  const ScratchFolder folder;
  CHECK_THROWS_WITH_AS(SafetensorsFile{folder / "none"}, doctest::Contains("No such file or directory"), InputError);
  CHECK_THROWS_WITH_AS(SafetensorsFile{folder.path()}, doctest::Contains("it must be a file, not a folder"), InputError);
}

TEST_CASE("a file damaged at random is refused, or read with its tensors within the file") {
  const ScratchFolder folder;
  write_example(folder / "good");
  const std::string good = file_bytes(folder / "good");
  support::Random random{1};
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    const auto place = [&] { return static_cast<std::size_t>(random.between(0, static_cast<int>(bytes.size()) - 1)); };
    const bool cut = round % 4 == 0;
    if (cut) {
      bytes.resize(place());
    } else {
      for (int flips = random.between(1, 3); flips > 0; --flips) {
        char& byte = bytes[place()];
        byte = static_cast<char>(byte ^ (1 << random.between(0, 7)));
      }
    }
    put_file(folder / "x", bytes);
    try {
      const SafetensorsFile file{folder / "x"};
      CHECK(!cut);
      for (const std::string& name : file.names()) {
        const auto& entry = file.tensor(name);
        CHECK(entry.end <= static_cast<std::int64_t>(bytes.size()));
        try {
          CHECK(static_cast<std::int64_t>(file.read<double>(name).size()) == entry.count());
        } catch (const InputError&) {  // an F8 tensor after a flip in its dtype
        }
      }
    } catch (const InputError& error) {
      ++refused;
      CHECK(std::string_view{error.what()}.find('\n') == std::string_view::npos);
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("a full disk is one error that names the file; the file before stays, the partial one goes") {
  const ScratchFolder folder;
  write_example(folder / "x");
  const std::string before = file_bytes(folder / "x");
  const std::vector<float> numbers(100'000);  // 400 kB
  {
    const support::FileSizeLimit limit{65536};
    SafetensorsWriter writer{folder / "x", {{"n", NumberFormat::f32, {100'000}}}};
    CHECK_THROWS_WITH_AS(writer.write<float>(numbers), doctest::Contains("x': File too large"), InputError);
    CHECK(std::filesystem::exists(folder / "x.partial"));
  }
  CHECK(file_bytes(folder / "x") == before);
  CHECK(!std::filesystem::exists(folder / "x.partial"));
}

TEST_CASE("a writer that is given up leaves the file before as it was") {
  const ScratchFolder folder;
  write_example(folder / "x");
  const std::string before = file_bytes(folder / "x");
  { const SafetensorsWriter writer{folder / "x", {{"n", NumberFormat::f32, {1}}}}; }
  CHECK(file_bytes(folder / "x") == before);
  CHECK(!std::filesystem::exists(folder / "x.partial"));
}

TEST_CASE("a writer refuses names that stand twice, and folders that are missing") {
  const ScratchFolder folder;
  const NewTensor tensor{"n", NumberFormat::f32, {1}};
  CHECK_THROWS_WITH_AS((SafetensorsWriter{folder / "x", {tensor, tensor}}), doctest::Contains("stands twice"), InputError);
  CHECK(!std::filesystem::exists(folder / "x.partial"));
  CHECK_THROWS_WITH_AS((SafetensorsWriter{folder / "none/x", {tensor}}), doctest::Contains("none/x': No such file"), InputError);
}

TEST_CASE("the reference files open, with the parameters in their order") {
  const std::string path = TAWPIPE_SHARED "/reference/llama_golden/A/A.init.safetensors";
  if (!std::filesystem::exists(path)) return;
  const SafetensorsFile file{path};
  CHECK(file.metadata().at("dim") == "32");
  CHECK(file.tensor("embedding.weight").shape == std::vector<std::int64_t>{61, 32});
  std::int64_t parameters = 0;
  for (const auto& tensor : file.tensors()) parameters += tensor.count();
  CHECK(parameters == 55'488);
}
