// A recorded run as reference.py writes it, for programs that have no JSON; and what f32 may differ
// from it.
// Not: the recording itself (sim/papers/reference_run.hpp reads it).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer.hpp"

namespace gpu {

/// A recorded run; models MicrobatchTokens.
class Reference {
 public:
  explicit Reference(const std::string& file) {
    std::ifstream in{file, std::ios::binary};
    if (!in) throw tawpipe::InputError(tawpipe::concat("'", file, "' cannot be read; tests/gpu/reference.py writes it"));
    for (std::string line; std::getline(in, line) && line != "end";) {
      std::istringstream words{line};
      std::string kind;
      std::string name;
      words >> kind >> name;
      if (kind == "number") words >> numbers_[name];
      if (kind != "tensor") continue;
      Tensor& tensor = tensors_[name];
      words >> tensor.type >> tensor.count >> tensor.offset;
    }
    data_.assign(std::istreambuf_iterator<char>{in}, {});
    const auto integer = [&](const char* key) { return static_cast<int>(number(key)); };
    model = {.name = "reference",
             .layers = integer("n_layers"),
             .hidden = integer("dim"),
             .heads = integer("n_heads"),
             .kv_heads = integer("n_kv_heads"),
             .intermediate = integer("hidden"),
             .vocab = integer("vocab_size"),
             .tied = integer("tied") != 0,
             .dtype = tawpipe::Dtype::f32,
             .head_dim = integer("head_dim")};
    batch = {.sequence = integer("seq"), .microbatch_size = integer("micro_batch"), .global_batch = 0};
    batch.global_batch = batch.microbatch_size * integer("n_micro");
    tokens_ = read<std::int32_t>("tokens", "i32");
    targets_ = read<std::int32_t>("targets", "i32");
  }

  tawpipe::Transformer model;
  tawpipe::Batch batch;

  double number(const std::string& key) const { return numbers_.at(key); }
  std::vector<double> numbers(const std::string& tensor) const { return read<double>(tensor, "f64"); }
  int steps() const { return static_cast<int>(number("steps")); }

  void fetch(std::int64_t, std::int32_t microbatch, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    const auto at = static_cast<std::ptrdiff_t>(microbatch * batch.tokens());
    std::copy_n(tokens_.begin() + at, tokens.size(), tokens.begin());
    std::copy_n(targets_.begin() + at, targets.size(), targets.begin());
  }
  /// [parameter]
  std::vector<float> initial() const {
    std::vector<float> all(static_cast<std::size_t>(model.parameters()));
    for (const tawpipe::ParameterTensor& tensor : tawpipe::ParameterOrder{model}.tensors()) {
      const auto from = read<double>("init/" + tensor.name, "f64");
      std::transform(from.begin(), from.end(), all.begin() + tensor.range.begin, [](double x) { return static_cast<float>(x); });
    }
    return all;
  }
  /// The largest difference of the losses over what is allowed for one microbatch (1e-5) and a
  /// step's mean (2e-6).
  double losses_off(const std::vector<std::vector<double>>& losses) const {
    const auto each = read<double>("loss_mb.f64", "f64");
    const auto means = read<double>("loss.f64", "f64");
    const auto count = static_cast<std::size_t>(batch.microbatches());
    double worst = 0;
    for (std::size_t step = 0; step < losses.size(); ++step) {
      double sum = 0;
      for (std::size_t m = 0; m < count; ++m) {
        sum += losses[step][m];
        worst = larger(worst, std::abs(losses[step][m] - each[step * count + m]) / 1e-5);
      }
      worst = larger(worst, std::abs(sum / static_cast<double>(count) - means[step]) / 2e-6);
    }
    return worst;
  }
  /// The same of parameters after `step`: of an entry (3e-4) and of a tensor's l2 norm, relative to
  /// it (3e-5).
  double parameters_off(int step, std::span<const float> found) const {
    double worst = 0;
    for (const tawpipe::ParameterTensor& tensor : tawpipe::ParameterOrder{model}.tensors()) {
      const std::string name = tawpipe::concat("step", step, "/", tensor.name);
      if (!tensors_.contains(name)) continue;
      const auto wanted = read<double>(name, "f64");
      double square = 0;
      double norm = 0;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double difference = static_cast<double>(found[static_cast<std::size_t>(tensor.range.begin) + i]) - wanted[i];
        worst = larger(worst, std::abs(difference) / 3e-4);
        square += difference * difference;
        norm += wanted[i] * wanted[i];
      }
      worst = larger(worst, std::sqrt(square / norm) / 3e-5);
    }
    return worst;
  }

 private:
  struct Tensor {
    std::string type;
    std::size_t count = 0;
    std::size_t offset = 0;
  };
  /// As std::max, but a NaN stays.
  static double larger(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

  template <class T>
  std::vector<T> read(const std::string& name, const char* type) const {
    const Tensor& tensor = tensors_.at(name);
    if (tensor.type != type || tensor.offset + tensor.count * sizeof(T) > data_.size()) {
      throw tawpipe::InputError(tawpipe::concat(name, " of the reference is broken; write it anew by tests/gpu/reference.py"));
    }
    std::vector<T> values(tensor.count);
    std::memcpy(values.data(), data_.data() + tensor.offset, tensor.count * sizeof(T));
    return values;
  }

  std::map<std::string, double> numbers_;
  std::map<std::string, Tensor> tensors_;
  std::string data_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
};

}  // namespace gpu
