// A decoder as a config.json describes it: sizes, constants, and what was assumed.
// Not: the reading (model/huggingface_config.hpp).
#pragma once

#include <string>
#include <vector>

#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/model.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// What a config.json says of a model.
struct HuggingFaceConfig {
  /// In 16 bits, whatever the weights are stored in; its notes say what was assumed or left out.
  Transformer model = {};
  /// The same by kinds of layers, exactly: what `model` takes to be alike, or leaves out, is in it.
  Model decoder = {};
  /// Why `model` is not the decoder: its layers differ in this, as the beginning of a sentence
  /// ("Mamba-2 in 23 of 52 layers"); empty: it is, but for what its notes say.
  std::string unequal = {};
  /// Whether steps are predicted from `decoder`, not from `model`.
  bool is_by_kinds() const { return !unequal.empty() || !decoder.mtp.empty(); }
  DecoderConstants constants = {};
  std::string type = {};         ///< model_type, "mixtral"; empty where it is not given
  std::string stored_name = {};  ///< _name_or_path
  Dtype stored = Dtype::bf16;    ///< in which the weights are stored: torch_dtype, or dtype
  /// Sentences that name keys which predictions know how to take, and no computation here does.
  std::vector<std::string> not_computed = {};
};

}  // namespace tawpipe
