// Errors, tables of text and 16-bit numbers: names for headers that only refer to them.
// Not: templates, options of single calls and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct Bfloat16;
class CsvReader;
class CsvTable;
class DeviceError;
class Error;
struct Half;
class HashIndex;
class InputError;
class ScheduleError;
class Stopped;
class StopScope;
class TimePoint;

}  // namespace tawpipe
