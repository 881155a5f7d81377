// Vocabularies of tokenizers by the names that scripts give them.
// Not: their files, which are not read.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/megatron_flags.hpp"
#include "tawpipe/frameworks/setting.hpp"

namespace tawpipe::inline v0::detail {

/// The tokens of a tokenizer, by a part of its name or path; 0: not known.
/// Source: vocab_size of the models' config.json; of GPT-2 the length of its vocabulary.
inline int tokens_of(std::string_view name) {
  struct Vocabulary {
    std::string_view part;
    int tokens;
  };
  // The first that is found: narrower names come before wider ones.
  static constexpr Vocabulary known[] = {
      {"gpt-oss", 201088},  {"gptoss", 201088},       {"gpt2", 50257},         {"llama-4", 202048},
      {"llama4", 202048},   {"llama-3", 128256},      {"llama3", 128256},      {"llama-2", 32000},
      {"llama2", 32000},    {"tinyllama", 32000},     {"codellama", 32016},    {"mixtral-8x22b", 32768},
      {"mixtral", 32000},   {"mistral-nemo", 131072}, {"mistral", 32000},      {"qwen3.5", 248320},
      {"qwen", 151936},     {"deepseek-v3", 129280},  {"deepseek-r1", 129280}, {"deepseek-v2", 102400},
      {"deepseek", 102400}, {"gemma-3", 262144},      {"gemma", 256000},       {"nemotron-h", 131072},
      {"nemotron", 256000}, {"bloom", 250880},        {"falcon", 65024},       {"baichuan2", 125696},
      {"baichuan", 64000},  {"chatglm", 65024},       {"glm-4", 151552},       {"phi-4", 100352},
      {"phi-3", 32064},     {"starcoder2", 49152},    {"starcoder", 49152},    {"olmo", 100278},
      {"gpt-neox", 50277},  {"pythia", 50277},        {"t5", 32100},           {"llama", 32000}};
  std::string lower{name};
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Vocabulary& one : known) {
    if (lower.find(one.part) != std::string::npos) return one.tokens;
  }
  return 0;
}

/// Sets the vocabulary where the flags do not: as `given`, or of the tokenizer that they name, or one
/// of its kind, with a note.
inline void assume_vocabulary(ReadSettings<MegatronFlags>& read, int given) {
  MegatronFlags& flags = read.values;
  if (flags.vocab > 0 || flags.padded_vocab > 0) {
    const std::string_view name = flags.vocab > 0 ? "--vocab-size" : "--padded-vocab-size";
    const int said = flags.vocab > 0 ? flags.vocab : flags.padded_vocab;
    if (given > 0 && given != said) read.fail(name, concat("is ", said, ", and ", given, " tokens are asked for"));
    return;
  }
  if (given > 0) {
    flags.vocab = given;
    return;
  }
  if (flags.layers == 0 || flags.hidden == 0 || flags.heads == 0) return;  // no model is said either
  const auto value = [&](std::string_view name) -> std::string {
    const Setting* setting = read.find(name);
    return setting == nullptr ? "" : join(setting->values, " ");
  };
  const std::string type = value("--tokenizer-type");
  const bool byte_pairs = type.starts_with("GPT2") || (type.empty() && read.has("--merge-file"));
  for (const std::string_view name :
       {"--tokenizer-name-or-path", "--tokenizer-model", "--patch-tokenizer-type", "--tokenizer-type", "--load"}) {
    const std::string said = byte_pairs ? "gpt2" : value(name);
    if (const int tokens = tokens_of(said); tokens > 0) {
      flags.vocab = tokens;
      read.note(byte_pairs ? "--merge-file" : name,
                concat("a vocabulary of ", tokens, " tokens is assumed; --vocab-size says another"));
      return;
    }
  }
  // Most tokenizers of SentencePiece have 32,000 tokens; those of newer models 100,000 to 200,000.
  const bool sentence = type.find("SentencePiece") != std::string::npos;
  flags.vocab = sentence ? 32000 : 128256;
  read.notes.push_back(one_line(concat(read.text.source, ": no --vocab-size, and a tokenizer that is not known: ", flags.vocab,
                                       " tokens are assumed; --vocab-size says how many there are")));
}

}  // namespace tawpipe::v0::detail
