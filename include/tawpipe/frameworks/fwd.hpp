// Settings of frameworks, and plans in their words: names for headers that only refer to them.
// Not: templates, options of single calls and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct DeepspeedSettings;
struct ForeignSetting;
struct FrameworkJob;
struct MegatronFlags;
struct Setting;
struct SettingsText;
struct TorchtitanSettings;
struct WrittenSetting;

}  // namespace tawpipe
