// A file of tokens: text as bytes, or 16-bit tokens as in nanoGPT and llm.c.
// Not: which tokens make a microbatch (training/token_windows.hpp), nor a tokenizer.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/training/input_file.hpp"

namespace tawpipe::inline v0::training {

/// Tokens `begin` .. `end` - 1 of a file.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
  auto operator<=>(const TokenRange&) const = default;
};

/// The format of a token file. `by_name`: a name that ends in ".bin" means uint16, any other means
/// bytes.
enum class TokenFormat : std::uint8_t { by_name, bytes, uint16 };

/// A file of tokens, read by position; several threads may read at once.
///
/// bytes: each byte of the file is a token, 0 .. 255, so UTF-8 text needs no tokenizer.
/// uint16: little-endian 16-bit tokens, either plain (nanoGPT) or after a header of 256 int32:
/// 20240520, 1, count of tokens (llm.c). The first number distinguishes them: plain tokens would
/// have to begin with 55432, 308.
/// Sources: https://github.com/karpathy/nanoGPT data/*/prepare.py; https://github.com/karpathy/llm.c dev/data/data_common.py.
class TokenFile {
 public:
  /// @throws InputError  if the file cannot be read, is empty or cut off, has an odd number of
  /// bytes (uint16), or a header of a different version or count.
  explicit TokenFile(const std::string& path, TokenFormat format = TokenFormat::by_name) : file_{path} {
    if (file_.size() == 0) fail("is empty; give a text, or a .bin file of 16-bit tokens");
    if (format == TokenFormat::by_name) format = path.ends_with(".bin") ? TokenFormat::uint16 : TokenFormat::bytes;
    width_ = format == TokenFormat::uint16 ? 2 : 1;
    if (width_ == 2) read_header();
    count_ = (file_.size() - begin_) / width_;
    if (count_ == 0) fail("holds no tokens");
  }

  const std::string& path() const { return file_.path(); }
  const InputFile& file() const { return file_; }
  /// Tokens in the file.
  std::int64_t count() const { return count_; }
  /// The number of tokens that can occur: 256 for bytes, 65536 for uint16.
  std::int32_t max_tokens() const { return width_ == 1 ? 256 : 65536; }

  /// Tokens `first` .. `first + tokens.size()` - 1.
  /// @pre they are in the file
  /// @param vocab  each must be below it
  /// @throws InputError  if one is not, or the file cannot be read.
  void read(std::int64_t first, std::span<std::int32_t> tokens, std::int32_t vocab) const {
    std::array<std::byte, 8192> block;  // NOLINT: filled before it is read
    const std::size_t per_block = block.size() / static_cast<std::size_t>(width_);
    for (std::size_t at = 0; at < tokens.size(); at += per_block) {
      const std::span<std::int32_t> part = tokens.subspan(at, std::min(per_block, tokens.size() - at));
      const std::int64_t token = first + static_cast<std::int64_t>(at);
      file_.read_at(begin_ + token * width_, std::span{block}.first(part.size() * static_cast<std::size_t>(width_)));
      for (std::size_t i = 0; i < part.size(); ++i) {
        const std::size_t byte = i * static_cast<std::size_t>(width_);
        part[i] = std::to_integer<std::int32_t>(block[byte]);
        if (width_ == 2) part[i] |= std::to_integer<std::int32_t>(block[byte + 1]) << 8;
        if (part[i] >= vocab) outside(token + static_cast<std::int64_t>(i), part[i], vocab);
      }
    }
  }

  /// Reads the whole file.
  /// @throws InputError  if a token is not below `vocab`, naming the first one.
  void check_vocabulary(std::int32_t vocab) const {
    if (vocab >= max_tokens()) return;
    std::vector<std::int32_t> tokens(std::size_t{1} << 16);
    for (std::int64_t at = 0; at < count_; at += static_cast<std::int64_t>(tokens.size())) {
      const std::int64_t left = std::min(count_ - at, static_cast<std::int64_t>(tokens.size()));
      read(at, std::span{tokens}.first(static_cast<std::size_t>(left)), vocab);
    }
  }

  /// All tokens but the last `validation` (0 .. 1) of the file.
  /// @throws InputError  if `validation` is not within 0 .. 1.
  TokenRange training_part(double validation) const { return {0, count_ - held_out(validation)}; }
  /// The last `validation` of the file, rounded down to whole tokens.
  /// @throws InputError  as training_part().
  TokenRange validation_part(double validation) const { return {count_ - held_out(validation), count_}; }

 private:
  [[noreturn]] void fail(std::string_view why) const { throw InputError(concat("token file ", file_.shown_path(), " ", why)); }
  [[noreturn]] void outside(std::int64_t at, std::int32_t token, std::int32_t vocab) const {
    fail(concat("has the token ", token, " at position ", at, ", outside the vocabulary of ", vocab,
                "; give a model with a larger vocabulary, or the right file"));
  }

  std::int64_t held_out(double validation) const {
    if (!(validation >= 0 && validation <= 1)) {
      throw InputError(concat("a validation part of ", validation, " is impossible; it must lie within 0 and 1"));
    }
    return static_cast<std::int64_t>(std::floor(static_cast<double>(count_) * validation));
  }

  void read_header() {
    constexpr std::int64_t header_bytes = 1024;
    constexpr std::int32_t magic = 20240520;
    std::int32_t first = 0;
    if (file_.size() >= 4) file_.read_at(0, std::as_writable_bytes(std::span{&first, 1}));
    if (first == 20240801) fail("holds tokens of 32 bits (llm.c for LLaMA 3); tokens of 16 bits are read");
    if (first != magic) {
      if (file_.size() % 2 != 0) fail("has an odd number of bytes; tokens of 16 bits take two each");
      return;
    }
    if (file_.size() < header_bytes) fail(concat("is cut off: its header takes 1024 bytes, the file has ", file_.size()));
    std::array<std::int32_t, 3> header = {};
    file_.read_at(0, std::as_writable_bytes(std::span{header}));
    if (header[1] != 1) fail(concat("has a header of version ", header[1], "; version 1 is read"));
    const std::int64_t stored = file_.size() - header_bytes;
    if (header[2] < 0 || stored != std::int64_t{2} * header[2]) {
      fail(concat(header[2] >= 0 && stored < std::int64_t{2} * header[2] ? "is cut off" : "is broken", ": its header promises ",
                  header[2], " tokens of 16 bits, ", stored, " bytes follow it"));
    }
    begin_ = header_bytes;
  }

  InputFile file_;
  std::int64_t begin_ = 0;  ///< first byte of the first token
  std::int64_t width_ = 1;  ///< bytes of a token
  std::int64_t count_ = 0;
};

}  // namespace tawpipe::training
