// Tables, pictures, pages and files of other programs: names for headers that only refer to them.
// Not: templates, options of single calls and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct ChakraTrace;
struct Chart;
struct Drawing;
class FlightRecorderReader;
struct KinetoNames;
struct PytorchSchedule;
struct ReportPage;
class Table;

}  // namespace tawpipe
