// A schedule from scratch, task by task: rank 0 keeps all weights, sends each stage to the workers
// before they use it, and sums their gradients. Dependencies follow from the buffers that tasks
// use; the order on each lane is ours.
#include <cstdio>
#include <vector>

#include "tawpipe/tawpipe.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;

namespace {

/// Worker r runs microbatch r - 1 through all stages. @param slots  stages that it can hold at a
/// time
Schedule server(const Workload& work, int workers, int stages, int slots) {
  ScheduleBuilder builder{"server", work, workers + 1};
  builder.stages(work.split(stages));
  const LaneId down = builder.lane("weights");
  const Bytes size{builder.stage(0).parameters * work.parameter_bytes().weight};
  std::vector<Rank> all{Rank{0}};
  std::vector<std::vector<BufferId>> slot(workers + 1), saved(workers + 1);  // [rank][slot], [rank][stage]
  std::vector<BufferId> streams(workers + 1), sums(workers + 1);             // [rank] activations; a stage's gradient
  for (int r = 1; r <= workers; ++r) {
    all.push_back(Rank{r});
    streams[r] = builder.persistent(r, Content{ContentKind::activation}, builder.stage(0).boundary);
    sums[r] = builder.persistent_copy(r, Content{ContentKind::gradients}, size);
    for (int i = 0; i < slots; ++i) slot[r].push_back(builder.persistent_copy(r, Content{ContentKind::weights}, size));
  }
  std::vector<BufferId> weights, gradients, optimizer;  // [stage] on rank 0
  for (int step = 0; step < 2 * stages; ++step) {       // forward through the stages, and back
    const bool forward = step < stages;
    const int s = forward ? step : 2 * stages - 1 - step;
    const PiecesId set = builder.pieces(builder.space().layers_of(s));
    if (forward) {
      weights.push_back(builder.persistent(0, {ContentKind::weights, StageId{s}, set}, size));
      gradients.push_back(builder.persistent(0, {ContentKind::gradients, StageId{s}, set}, size));
      optimizer.push_back(builder.persistent(0, {ContentKind::optimizer_state, StageId{s}, set}, size * 6));
    }
    Task message{.op = Op::broadcast, .payload = Payload::weights, .lane = down, .rank = Rank{0}, .stage = StageId{s}};
    message.group = builder.group(all);
    message.split = builder.split({set});  // the parameters that it carries
    message.bytes = size;
    std::vector<Use> uses{{weights[s], Access::read}};
    for (int r = 1; r <= workers; ++r) uses.push_back({slot[r][step % slots], Access::write});
    builder.add(message, uses);
    for (int r = 1; r <= workers; ++r) {
      Task task{.op = forward ? Op::forward : Op::backward, .rank = Rank{r}, .stage = StageId{s}, .microbatch = r - 1};
      if (!forward) task.split = message.split;
      uses = {{slot[r][step % slots], Access::read}, {streams[r], Access::read_write}};
      if (forward) saved[r].push_back(builder.transient(r, {ContentKind::saved, StageId{s}, r - 1}, builder.stage(s).saved));
      uses.push_back({saved[r][s], forward ? Access::write : Access::read});
      if (!forward) uses.push_back({sums[r], Access::write});
      builder.add(task, uses);
    }
    if (forward) continue;
    message.op = Op::reduce;
    message.payload = Payload::gradients;
    message.lane = builder.lane("gradients");
    uses = {{gradients[s], Access::accumulate}};
    for (int r = 1; r <= workers; ++r) uses.push_back({sums[r], Access::read});
    builder.add(message, uses);
    builder.add({.op = Op::update, .rank = Rank{0}, .stage = StageId{s}, .bytes = size * 8},
                {{gradients[s], Access::read}, {weights[s], Access::read_write}, {optimizer[s], Access::read_write}});
  }
  return builder.build();
}

}  // namespace

int main() {
  const FixedCost cost{.forward = 4_ms, .backward_input = 4_ms, .backward_weight = 4_ms, .transfer = 1_ms};
  Workload work = Workload::abstract(4, 3);
  work.parameter_bytes({.weight = 2, .gradient = 2, .optimizer = 12});  // 16 bits, Adam in 32
  for (const int slots : {1, 2}) {
    const Schedule schedule = server(work, 3, 8, slots);
    const Timeline timeline = simulate(schedule, cluster_from_dimensions("1x4"), cost);
    std::printf("%d slots: %zu tasks, %zu findings, %.1f ms, bubble %.1f %%\n", slots, schedule.tasks().size(),
                validate(schedule).findings().size(), 1e3 * to_seconds(timeline.makespan()),
                100 * bubble(schedule, timeline).ratio);
  }
}
