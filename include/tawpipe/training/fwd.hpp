// What training reads and writes: names for headers that only refer to them.
// Not: templates, options of single calls and private helpers.
#pragma once

namespace tawpipe::inline v0::training {

class Checkpoint;
struct CheckpointCandidates;
class CheckpointFolder;
struct DataPosition;
class DurableFile;
class FixedMicrobatches;
class FolderLock;
class HuggingFaceWeights;
class InitialWeights;
class InputFile;
class MicrobatchSource;
struct NewTensor;
struct OpenedCheckpoint;
class SafetensorsFile;
class SafetensorsWriter;
class TokenFile;
class TokenWindows;
struct TrainingState;

}  // namespace tawpipe::training
