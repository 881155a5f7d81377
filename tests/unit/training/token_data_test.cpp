// Tests of training/token_data.hpp: the three kinds of files, damaged ones, parts.
// Not: microbatches (token_windows_test.cpp).
#include "tawpipe/training/token_data.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/scratch_folder.hpp"

using support::put_file;
using support::ScratchFolder;
using tawpipe::InputError;
using tawpipe::training::TokenFile;
using tawpipe::training::TokenFormat;
using tawpipe::training::TokenRange;

namespace {

template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

/// The header that llm.c writes: 256 int32.
std::string llmc_header(std::int32_t version, std::int32_t count, std::int32_t magic = 20240520) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header);
}

std::vector<std::int32_t> all(const TokenFile& file, std::int32_t vocab = 65536) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.count()));
  file.read(0, tokens, vocab);
  return tokens;
}

void check_refused(const std::string& name, const std::string& bytes, std::string_view why) {
  const ScratchFolder folder;
  put_file(folder / name, bytes);
  CHECK_THROWS_WITH_AS(TokenFile{folder / name}, doctest::Contains(std::string{why}.c_str()), InputError);
}

}  // namespace

TEST_CASE("a text gives its bytes, those of UTF-8 too") {
  const ScratchFolder folder;
  put_file(folder / "x.txt", "ab\n\xc3\xa9");  // é = c3 a9
  const TokenFile file{folder / "x.txt"};
  CHECK(all(file) == std::vector<std::int32_t>{97, 98, 10, 0xc3, 0xa9});
  CHECK(file.max_tokens() == 256);
}

TEST_CASE("plain 16-bit tokens and those behind a header are told apart") {
  const ScratchFolder folder;
  const std::vector<std::uint16_t> tokens{50256, 0, 7, 65535};
  put_file(folder / "plain.bin", bytes_of(tokens));
  put_file(folder / "header.bin", llmc_header(1, 4) + bytes_of(tokens));
  for (const char* name : {"plain.bin", "header.bin"}) {
    const TokenFile file{folder / name};
    CHECK(file.count() == 4);
    CHECK(file.max_tokens() == 65536);
    CHECK(all(file) == std::vector<std::int32_t>{50256, 0, 7, 65535});
  }
}

TEST_CASE("the format may be given against the name") {
  const ScratchFolder folder;
  put_file(folder / "x.bin", "abc");
  CHECK(TokenFile{folder / "x.bin", TokenFormat::bytes}.count() == 3);
  put_file(folder / "x.txt", "abcd");
  CHECK(all(TokenFile{folder / "x.txt", TokenFormat::uint16}) == std::vector<std::int32_t>{0x6261, 0x6463});
}

TEST_CASE("more tokens than one block are read, from any place") {
  const ScratchFolder folder;
  std::vector<std::uint16_t> tokens(10'000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i);
  put_file(folder / "x.bin", bytes_of(tokens));
  const TokenFile file{folder / "x.bin"};
  std::vector<std::int32_t> part(9'000);
  file.read(999, part, 65536);
  for (std::size_t i = 0; i < part.size(); ++i) REQUIRE(part[i] == static_cast<std::int32_t>(i) + 999);
}

TEST_CASE("files that are empty, cut off or of another kind are refused") {
  check_refused("x.txt", "", "is empty");
  check_refused("x.bin", "", "is empty");
  check_refused("x.bin", "abc", "has an odd number of bytes");
  check_refused("x.bin", llmc_header(1, 4).substr(0, 100), "is cut off: its header takes 1024 bytes, the file has 100");
  check_refused("x.bin", llmc_header(2, 1) + "ab", "has a header of version 2; version 1 is read");
  check_refused("x.bin", llmc_header(1, 2) + "abc", "is cut off: its header promises 2 tokens of 16 bits, 3 bytes follow it");
  check_refused("x.bin", llmc_header(1, 1) + "abcd", "is broken: its header promises 1 tokens of 16 bits, 4 bytes follow it");
  check_refused("x.bin", llmc_header(1, -1), "is broken: its header promises -1 tokens");
  check_refused("x.bin", llmc_header(1, 0), "holds no tokens");
  check_refused("x.bin", llmc_header(7, 1, 20240801) + "abcd", "holds tokens of 32 bits");
  CHECK_THROWS_WITH_AS(TokenFile{"no/such/file"}, "cannot read 'no/such/file': No such file or directory", InputError);
}

TEST_CASE("a token outside the vocabulary is named with its place") {
  const ScratchFolder folder;
  put_file(folder / "x.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 300, 4}));
  const TokenFile file{folder / "x.bin"};
  file.check_vocabulary(301);
  CHECK_THROWS_WITH_AS(file.check_vocabulary(300),
                       doctest::Contains("has the token 300 at position 2, outside the vocabulary of 300"), InputError);
  std::vector<std::int32_t> part(2);
  CHECK_THROWS_WITH_AS(file.read(2, part, 300), doctest::Contains("at position 2"), InputError);
  file.read(0, part, 300);
}

TEST_CASE("the end of the file is held out for validation") {
  const ScratchFolder folder;
  put_file(folder / "x.txt", std::string(25, 'a'));
  const TokenFile file{folder / "x.txt"};
  // a tenth of 25 is 2.5, so 2
  CHECK(file.training_part(0.1) == TokenRange{0, 23});
  CHECK(file.validation_part(0.1) == TokenRange{23, 25});
  CHECK(file.training_part(0) == TokenRange{0, 25});
  CHECK(file.validation_part(0).count() == 0);
  CHECK_THROWS_WITH_AS(file.training_part(1.5), doctest::Contains("must lie within 0 and 1"), InputError);
}
