// Tests of the table of decoders: each type stands once, and docs/models.md has each row as it is here.
// Not: what a type makes of a file (decoder_types_test.cpp, published_models_test.cpp).
#include "tawpipe/model/detail/decoder_families.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "tawpipe/core/text.hpp"

namespace decoder_families_test {

namespace {

using namespace tawpipe::detail;  // the table
using tawpipe::concat;
using tawpipe::NormPlace;
using tawpipe::QkNorm;

/// What a type has beside LLaMA, in the words of docs/models.md.
std::string differences(const DecoderType& type) {
  std::string words;
  const auto add = [&](bool has, const std::string& what) {
    if (has) words += concat(words.empty() ? "" : "; ", what);
  };
  add(type.does_read(latent), "latent attention");
  add(type.does_read(indexed), "an index that picks keys");
  add(type.does_read(delta_nets), "gated delta nets");
  add(type.does_read(mamba), "Mamba-2");
  add(type.does_read(experts), type.does_read(shared_experts) ? "experts, shared ones" : "experts");
  add(!type.layers.empty(), concat("layers `", type.layers, "`"));
  add(type.window > 0, concat("window ", type.window));
  add(type.norms == NormPlace::after, "norms after attention and MLP");
  add(type.norms == NormPlace::both, "norms before and after");
  add(type.norms == NormPlace::parallel, "one norm, attention and MLP side by side");
  add(type.norm_weights == NormWeights::scale_and_shift, "LayerNorm");
  add(type.norm_weights == NormWeights::none, "norms without weights");
  add(type.qk_norm == QkNorm::head, "norms of each head of queries and keys");
  add(type.qk_norm == QkNorm::width, "norms of all queries and of all keys");
  add(type.qkv_bias || type.output_bias || type.mlp_bias,
      concat("biases of", type.qkv_bias ? " queries, keys, values" : "", type.output_bias ? ", output" : "",
             type.mlp_bias ? (type.qkv_bias ? ", MLP" : " MLP") : ""));
  add(!type.gated, "no gate");
  add(type.output_gate, "attention's result times a gate");
  add(type.sinks, "sinks");
  add(type.expert_bias, "biases of experts");
  add(type.shared_gate, "a gate of the shared expert");
  add(type.learned_positions, "learned positions");
  add(type.tied, "tied");
  return words.empty() ? "nothing" : words;
}

}  // namespace

TEST_CASE("docs/models.md has each type of decoder, with what it has beside LLaMA") {
  std::ifstream in{TAWPIPE_TEST_DATA "/../../docs/models.md"};
  const std::string page{std::istreambuf_iterator<char>{in}, {}};
  REQUIRE(!page.empty());
  std::set<std::string_view> names;
  for (const DecoderType& type : decoder_types) {
    std::string row = "| ";
    for (const std::string_view name : tawpipe::split(type.names, ' ')) {
      row += concat(row == "| " ? "`" : ", `", name, "`");
      CHECK_MESSAGE(names.insert(name).second, name);
      CHECK_MESSAGE(why_refused(name).empty(), name);
    }
    row += concat(" | ", differences(type), " |\n");
    CHECK_MESSAGE(page.find(row) != std::string::npos, row);
  }
}

}  // namespace decoder_families_test
