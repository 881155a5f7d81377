// A recorded training run: a model's initial parameters, its data, and the losses, gradients and
// parameters that must follow.
// Not: running it (execute/) nor recording one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/training/safetensors.hpp"

namespace tawpipe::inline v0::training {

/// The largest difference of one kind of quantity, and what is allowed.
struct NumericsCheck {
  std::string quantity;  ///< e.g. "gradients"
  std::string worst;     ///< the tensor or step where it is
  double difference = 0;
  double tolerance = 0;
  std::int64_t compared = 0;  ///< values or tensors

  bool passes() const { return difference <= tolerance; }  // false for NaN
};

/// A folder with `*.config.json`, `*.init.safetensors`, `*.data.safetensors` and
/// `*.expect.safetensors`.
///
/// config.json: dim, n_layers, n_heads, n_kv_heads, head_dim, hidden (of SwiGLU), vocab_size, seq,
/// micro_batch, n_micro, tied, norm_eps, rope_theta, lr, beta1, beta2, eps, weight_decay, steps; with
/// experts n_experts and top_k, and where given expert_hidden (else `hidden`), n_shared_experts,
/// n_dense_layers (of width `hidden`), router softmax or sigmoid with n_group, topk_group, norm_topk_prob and
/// routed_scaling_factor, aux_coef, and attention gqa or mla with q_lora_rank, kv_lora_rank, qk_rope_head_dim and
/// v_head_dim.
/// init: the parameters by name. data: int32 tokens and targets [n_micro, micro_batch, seq], the
/// same at every step. expect: `loss.f64` [steps + 1] and `loss_mb.f64` [steps + 1, n_micro] before
/// each step's update (the last: after all); `grad0/NAME`; `step1/NAME`, `stepS/NAME` (S = steps);
/// `check/{grad0,step1,stepS}.{sum,l2,maxabs,proj}` for every parameter in order (config.json's param_order, where
/// given), where proj is the
/// sum of r_j v_j with r_j = ((j + 1) 2654435761 mod 2^32) / 2^32 - 1/2. Absent values are not
/// compared.
class ReferenceRun {
 public:
  /// @throws InputError  naming the file that is missing or broken, or the size that does not fit.
  explicit ReferenceRun(const std::string& folder) {
    const std::string config_file = find(folder, ".config.json");
    const JsonDocument document = read_json_file(config_file, "file", 1);
    const JsonValue config = document.root();
    const auto number = [&](const char* key) { return config.at(key).number(); };
    const auto integer = [&](const char* key) { return config.at(key).whole<int>(); };
    model_ = {.name = std::filesystem::path{config_file}.filename().string(),
              .layers = integer("n_layers"),
              .hidden = integer("dim"),
              .heads = integer("n_heads"),
              .kv_heads = integer("n_kv_heads"),
              .intermediate = integer("hidden"),
              .vocab = integer("vocab_size"),
              .tied = number("tied") != 0,
              .head_dim = integer("head_dim")};
    if (config.find_given("n_experts")) read_experts(config);
    read_attention(config);
    model_.check();
    batch_ = {.sequence = integer("seq"), .microbatch_size = integer("micro_batch"), .global_batch = 0};
    batch_.global_batch = batch_.microbatch_size * integer("n_micro");
    batch_.check();
    constants.norm_epsilon = number("norm_eps");
    constants.rope_theta = number("rope_theta");
    if (const auto names = config.find_given("param_order")) {
      for (const JsonValue name : *names) recorded_order_.push_back(name.text());
    }
    learning_rate = number("lr");
    beta1 = number("beta1");
    beta2 = number("beta2");
    epsilon = number("eps");
    weight_decay = number("weight_decay");
    steps = integer("steps");
    init_ = find(folder, ".init.safetensors");
    if (constants.router.sigmoid) read_bias();
    expect_ = find(folder, ".expect.safetensors");
    const SafetensorsFile data{find(folder, ".data.safetensors")};
    const std::vector<std::int64_t> shape{batch_.microbatches(), batch_.microbatch_size, batch_.sequence};
    data.tensor("tokens", shape);
    data.tensor("targets", shape);
    tokens_ = data.read<std::int32_t>("tokens");
    targets_ = data.read<std::int32_t>("targets");
  }

  const Transformer& model() const { return model_; }
  const Batch& batch() const { return batch_; }
  DecoderConstants constants = {};
  double learning_rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  int steps = 0;

  /// The same data at every step (MicrobatchTokens). Microbatches may be any number of recorded ones together.
  void fetch(std::int64_t, std::int32_t microbatch, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    const auto at = static_cast<std::ptrdiff_t>(microbatch) * std::ssize(tokens);
    std::copy_n(tokens_.begin() + at, tokens.size(), tokens.begin());
    std::copy_n(targets_.begin() + at, targets.size(), targets.begin());
  }

  /// All initial parameters in the model's numbering.
  /// @throws InputError  if one is missing or has a different shape.
  template <class T>
  std::vector<T> initial() const {
    const SafetensorsFile file{init_};
    std::vector<T> all(static_cast<std::size_t>(model_.parameters()));
    for (const ParameterTensor& tensor : ParameterOrder{model_}.tensors()) {
      file.tensor(tensor.name, tensor.shape);
      file.read<T>(tensor.name, 0, part(std::span<T>{all}, tensor.range));
    }
    return all;
  }

  /// Compares losses. @param losses  [step, microbatch] of steps + 1 steps; a microbatch may be several recorded
  /// ones together
  template <class T>
  void check_losses(const std::vector<std::vector<double>>& losses, std::vector<NumericsCheck>& out) const {
    const SafetensorsFile file{expect_};
    constexpr bool sharp = std::is_same_v<T, double>;
    NumericsCheck mean{"mean loss of a step", "", 0, sharp ? 1e-12 : 2e-6, 0};
    NumericsCheck each{"loss of a microbatch", "", 0, sharp ? 1e-12 : 1e-5, 0};
    const auto means = file.read<double>("loss.f64");
    const auto all = file.read<double>("loss_mb.f64");
    const auto count = static_cast<std::size_t>(batch_.microbatches());
    if (means.size() < losses.size() || all.size() < losses.size() * count) {
      throw InputError(concat(quote(expect_), " has fewer losses than ", losses.size(), " steps of ", count, " microbatches"));
    }
    for (std::size_t step = 0; step < losses.size(); ++step) {
      double sum = 0;
      const std::size_t together = count / losses[step].size();
      for (std::size_t m = 0; m < losses[step].size(); ++m) {
        sum += losses[step][m];
        double recorded = 0;
        for (std::size_t i = 0; i < together; ++i) recorded += all[step * count + m * together + i];
        note(each, std::abs(losses[step][m] - recorded / static_cast<double>(together)),
             concat("step ", step, ", microbatch ", m));
      }
      note(mean, std::abs(sum / static_cast<double>(losses[step].size()) - means[step]), concat("step ", step));
    }
    out.push_back(mean);
    out.push_back(each);
  }

  /// Compares one value a parameter, in the model's numbering, with `what`: "grad0", "step1" or
  /// "step" and the number of steps.
  template <class T>
  void check_parameters(const std::string& what, std::span<const T> values, std::vector<NumericsCheck>& out) const {
    const SafetensorsFile file{expect_};
    constexpr bool sharp = std::is_same_v<T, double>;
    const bool gradient = what == "grad0";
    const std::string words =
        gradient ? "gradients of step 1" : concat("parameters after ", what.substr(4), what == "step1" ? " step" : " steps");
    NumericsCheck entries{concat(words, ", largest entry", gradient || sharp ? " over the tensor's largest" : ""), "", 0,
                          sharp      ? 1e-11
                          : gradient ? 1e-5
                                     : 3e-4,
                          0};
    NumericsCheck norms{concat(words, ", l2 over the tensor's"), "", 0, sharp ? 1e-11 : gradient ? 5e-6 : 3e-5, 0};
    NumericsCheck sums{concat(words, ", sums over each tensor"), "", 0, 1e-11, 0};
    const auto tensors = ParameterOrder{model_}.tensors();
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const ParameterTensor& tensor = tensors[t];
      const std::span<const T> found = part(values, tensor.range);
      const std::string name = concat(what, "/", tensor.name);
      if (file.contains(name)) {
        const bool rounded = file.tensor(name).format != NumberFormat::f64;  // once, to float32: accurate to 6e-8
        const auto wanted = file.read<double>(name);
        double most = 0;
        double largest = 0;
        double square = 0;
        double norm = 0;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          const double value = static_cast<double>(found[i]);
          const double difference = sharp && rounded ? std::abs(static_cast<double>(static_cast<float>(value)) - wanted[i])
                                                     : std::abs(value - wanted[i]);
          const double allowed = sharp && rounded ? std::abs(wanted[i]) * 1.2e-7 : 0;  // one step of float32
          most = nan_max(most, difference <= allowed ? 0 : difference);
          largest = std::max(largest, std::abs(wanted[i]));
          square += difference <= allowed ? 0 : difference * difference;
          norm += wanted[i] * wanted[i];
        }
        // An expert that no token reaches has a gradient of 0: any other is as far off as it is large.
        note(entries, (gradient || sharp) && largest > 0 ? most / largest : most, tensor.name);
        note(norms, norm > 0 ? std::sqrt(square / norm) : std::sqrt(square), tensor.name);
      }
      if (sharp && file.contains(concat("check/", what, ".l2")))
        check_sums(file, what, recorded(tensor.name, t), tensor, found, sums);
    }
    for (const NumericsCheck& check : {entries, norms, sums}) {
      if (check.compared > 0) out.push_back(check);
    }
  }

 private:
  /// @return the number of a key, or what it is where it is not given
  static double number_or(const JsonValue& config, const char* key, double otherwise) {
    const auto value = config.find_given(key);
    return value ? value->number() : otherwise;
  }
  static int integer_or(const JsonValue& config, const char* key, int otherwise) {
    const auto value = config.find_given(key);
    return value ? value->whole<int>() : otherwise;
  }
  /// @throws InputError  if experts are not what the layers compute
  void read_experts(const JsonValue& config) {
    const int dense = model_.intermediate;
    model_.experts = config.at("n_experts").whole<int>();
    model_.experts_per_token = config.at("top_k").whole<int>();
    model_.intermediate = integer_or(config, "expert_hidden", dense);
    model_.shared_width = integer_or(config, "n_shared_experts", 0) * model_.intermediate;
    model_.dense_layers = integer_or(config, "n_dense_layers", 0);
    if (model_.dense_layers > 0) model_.dense_width = dense;
    constants.router.balance = number_or(config, "aux_coef", 0);
    const auto router = config.find_given("router");
    if (!router || router->text() == "softmax") return;
    if (router->text() != "sigmoid") router->fail("is not computed; it must be softmax or sigmoid");
    constants.router.sigmoid = true;
    constants.router.sum_to_one = number_or(config, "norm_topk_prob", 1) != 0;
    constants.router.scale = number_or(config, "routed_scaling_factor", 1);
    model_.expert_groups = integer_or(config, "n_group", 1);
    model_.groups_per_token = integer_or(config, "topk_group", 1);
  }
  void read_attention(const JsonValue& config) {
    const auto attention = config.find_given("attention");
    if (!attention || attention->text() == "gqa") return;
    if (attention->text() != "mla") attention->fail("is not computed; it must be gqa or mla");
    model_.query_rank = integer_or(config, "q_lora_rank", 0);
    model_.key_value_rank = config.at("kv_lora_rank").whole<int>();
    model_.rope_width = config.at("qk_rope_head_dim").whole<int>();
    model_.value_size = config.at("v_head_dim").whole<int>();
    constants.latent_epsilon = config.at("norm_eps").number();
  }
  /// The biases of the choice, which are no parameters.
  void read_bias() {
    const SafetensorsFile file{init_};
    for (int layer = model_.dense_layers; layer < model_.layers; ++layer) {
      const std::string name = concat("decoders.", layer, ".feed_forward.gate.e_score_correction_bias");
      file.tensor(name, {model_.experts});
      const std::vector<double> bias = file.read<double>(name);
      constants.router.bias.insert(constants.router.bias.end(), bias.begin(), bias.end());
    }
  }
  static std::string find(const std::string& folder, std::string_view ending) {
    std::error_code failed;
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator{folder, failed}) {
      if (entry.path().string().ends_with(ending)) found.push_back(entry.path().string());
    }
    if (failed) throw InputError(concat("the reference folder ", quote(folder), " cannot be read: ", failed.message()));
    if (found.size() != 1) {
      throw InputError(
          concat("the reference folder ", quote(folder), " must hold one file named *", ending, "; it has ", found.size()));
    }
    return found.front();
  }

  template <class T>
  static std::span<T> part(std::span<T> all, ParameterRange range) {
    return all.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.count()));
  }

  /// As std::max, but a NaN stays.
  static double nan_max(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

  static void note(NumericsCheck& check, double difference, const std::string& where) {
    ++check.compared;
    if (check.compared > 1 && !(difference > check.difference) && !std::isnan(difference)) return;
    if (std::isnan(check.difference)) return;
    check.difference = difference;
    check.worst = where;
  }

  /// The place of a tensor in the recorded order. @throws InputError  if it has none
  std::size_t recorded(const std::string& name, std::size_t otherwise) const {
    if (recorded_order_.empty()) return otherwise;
    const auto found = std::find(recorded_order_.begin(), recorded_order_.end(), name);
    if (found == recorded_order_.end()) throw InputError(concat("param_order of the reference lacks ", quote(name)));
    return static_cast<std::size_t>(found - recorded_order_.begin());
  }

  /// sum, l2, maxabs and proj of one tensor. Errors of sums grow with its l2 norm: times sqrt(n)
  /// for a plain sum.
  template <class T>
  static void check_sums(const SafetensorsFile& file, const std::string& what, std::size_t t, const ParameterTensor& tensor,
                         std::span<const T> found, NumericsCheck& check) {
    double sum = 0;
    double square = 0;
    double largest = 0;
    double projection = 0;
    for (std::size_t j = 0; j < found.size(); ++j) {
      const auto value = static_cast<double>(found[j]);
      const auto hash = static_cast<std::uint32_t>((j + 1) * 2654435761U);
      sum += value;
      square += value * value;
      largest = nan_max(largest, std::abs(value));
      projection += (static_cast<double>(hash) / 4294967296.0 - 0.5) * value;
    }
    const auto wanted = [&](const char* of) {
      double value = 0;
      file.read<double>(concat("check/", what, ".", of), static_cast<std::int64_t>(t), std::span<double>{&value, 1});
      return value;
    };
    const double norm = wanted("l2");
    const double scale = norm > 0 ? norm : 1;
    note(check, std::abs(std::sqrt(square) - norm) / scale, tensor.name + " (l2)");
    note(check, std::abs(largest - wanted("maxabs")) / scale, tensor.name + " (maxabs)");
    note(check, std::abs(projection - wanted("proj")) / scale, tensor.name + " (proj)");
    note(check, std::abs(sum - wanted("sum")) / (scale * std::sqrt(static_cast<double>(found.size()))), tensor.name + " (sum)");
  }

  Transformer model_;
  Batch batch_;
  std::string init_;
  std::string expect_;
  std::vector<std::string> recorded_order_;  ///< of parameters; empty: the model's
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
};

}  // namespace tawpipe::training
