// Values of JSON that know their file: names for headers that only refer to them.
// Not: templates, options of single calls and private helpers.
#pragma once

namespace tawpipe::inline v0 {

class JsonDocument;
struct JsonLimits;
struct JsonTree;
class JsonValue;

}  // namespace tawpipe
