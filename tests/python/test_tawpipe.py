"""Tests of the Python module as a user has it: installed from a wheel. Run by install_test.py, or by hand where it is installed."""
import copy
import functools
import gc
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np
import tawpipe

os.environ["COLUMNS"] = "1000"  # the command breaks no line

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
PROBLEM = dict(cluster="a800x24-10gbe", model="llama-48x1024", sequence=16384, global_batch=1536, cost="roofline")
SMALL = dict(cluster="3x8", model="llama-48x1024", sequence=4096, microbatches=48)
compared = functools.cache(lambda: tawpipe.compare(**PROBLEM))
FIXED = "fixed:forward=1ms,backward_input=1ms,backward_weight=1ms,transfer=0ms"


class Answers(unittest.TestCase):
    def test_compare_prints_the_table_of_the_command(self):
        table = compared()
        command = os.environ.get("TAWPIPE_COMMAND")
        if command:
            shown = subprocess.run([command, "compare", "--cluster", PROBLEM["cluster"], "--model", PROBLEM["model"], "--sequence",
                                    "16384", "--global-batch", "1536", "--cost", "roofline"], capture_output=True, text=True, check=True).stdout
            self.assertTrue(shown.split("\n\nNo schedule of any kind")[0].rstrip().endswith(str(table).rstrip()), shown)
        self.assertEqual(table[0]["schedule"], "tawpipe")
        baselines = tawpipe.compare(**PROBLEM, baselines=True)
        self.assertEqual([row["schedule"] for row in baselines], ["tawpipe", "weipipe", "fsdp", "1f1b", "gpipe"])
        self.assertEqual({row["recompute"] for row in baselines}, {"full"})
        self.assertIsInstance(table.rows()[0], dict)
        self.assertIn("<table>", table._repr_html_())

    def test_lines_of_the_readme_run(self):
        block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
        shown = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, cwd=tempfile.gettempdir())
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn(str(compared()).rstrip(), shown.stdout)

    def test_simulate_has_schedule_timeline_and_summary(self):
        best = tawpipe.simulate("tawpipe", **SMALL)
        summary = best.to_dict()
        self.assertEqual(summary["tasks"], len(best.schedule))
        self.assertEqual(best.timeline.end.max(), summary["makespan_ps"])
        self.assertEqual(best.schedule.options["prefetch"], "on")
        self.assertTrue(tawpipe.validate(best).ok)
        self.assertIn('"traceEvents"', best.chrome_trace())
        self.assertIn("kernels", summary["cost"])
        self.assertAlmostEqual(summary["gap"], summary["makespan_s"] / summary["bound_s"] - 1)
        self.assertNotIn("gap", tawpipe.simulate(best.schedule, cluster="3x8").to_dict())
        command = os.environ.get("TAWPIPE_COMMAND")
        if command:
            shown = subprocess.run([command, "simulate", "--schedule", "tawpipe", "--cluster", "3x8", "--model", "llama-48x1024",
                                    "--sequence", "4096", "--microbatches", "48", "--fold", "off", "--json", "-"],
                                   capture_output=True, text=True, check=True).stdout
            self.assertEqual(json.loads(shown), summary)
        self.assertLess(summary["interval_s"][0], summary["interval_s"][1])
        for one in tawpipe.compare("1f1b", "fsdp", **TINY):
            self.assertLess(one["interval_s"][0], one["interval_s"][1])

    def test_schedules_clusters_and_answers_are_pickled_and_predictions_say_what_to_pickle(self):
        best = tawpipe.simulate("1f1b", **SMALL)
        for value in (best.schedule, tawpipe.cluster("3x8")):
            self.assertEqual(pickle.loads(pickle.dumps(value)).to_json(), value.to_json())
            self.assertEqual(copy.deepcopy(value).to_json(), value.to_json())
        for answer in (tawpipe.bound(**TINY), tawpipe.compare("1f1b", **TINY)):
            self.assertEqual(str(pickle.loads(pickle.dumps(answer))), str(answer))
        with self.assertRaisesRegex(TypeError, "pickle its to_dict"):
            pickle.dumps(best)

    def test_the_version_is_the_command_s(self):
        command = os.environ.get("TAWPIPE_COMMAND")
        if command:
            shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
            self.assertIn(tawpipe.__version__, shown)
        self.assertRegex(tawpipe.__version__, r"^\d+\.\d+\.\d+$")

    def test_a_plan_is_simulated_by_its_own_numbers(self):
        problem = dict(cluster="dgx-h100*2", model="llama-8x2048", sequence=4096, global_batch=64)
        row = tawpipe.plan(**problem, top=1, budget=200_000)[0]
        sizes, command = row["axes"], row["command"]
        options = {key: value for key, value in row["options"].items() if key not in ("tensor", "context", "data")}
        again = tawpipe.simulate(
            row["schedule"], **problem, microbatch=row["microbatch_size"], recompute=row["recompute"], options=options,
            tensor_parallel=sizes["tensor"], context_parallel=sizes["context"], data_parallel=sizes["data"], layout=row["layout"],
            context_exchange=row["context_exchange"], loss_chunk=row["loss_chunk"], shard_states=row["shard_states"],
            overlap_grad_reduce="--overlap-grad-reduce on" in command, overlap_param_gather="--overlap-param-gather on" in command,
            tp_comm_overlap="--tp-comm-overlap on" in command, fold="auto")
        self.assertEqual(again.to_dict()["makespan_ps"], row["makespan_ps"], command)
        with self.assertRaisesRegex(TypeError, "unexpected argument 'sequence_paralel'"):
            tawpipe.simulate("1f1b", **SMALL, sequence_paralel=True)

    def test_cuda_graphs_save_gaps_between_kernels(self):
        times = [tawpipe.simulate("1f1b", **SMALL, cuda_graphs=graphs).makespan_s for graphs in ("iteration", "layers", "none")]
        self.assertEqual(times, sorted(set(times)))
        with self.assertRaisesRegex(tawpipe.InputError, "cuda_graphs layers needs cost kernels"):
            tawpipe.simulate("1f1b", **SMALL, cuda_graphs="layers", cost="roofline")

    def test_a_measured_step_gives_the_cost_of_other_layouts(self):
        predicted = tawpipe.simulate("1f1b", **SMALL).makespan_s
        measured = tawpipe.simulate("1f1b", **SMALL, step_time=f"{2 * predicted}s").to_dict()["measured_step"]
        self.assertEqual(measured["cost"], "kernels:speed=0.5")
        self.assertAlmostEqual(tawpipe.simulate("1f1b", **SMALL, cost=measured["cost"]).makespan_s / predicted, 2, places=3)
        self.assertNotIn("measured_step", tawpipe.simulate("1f1b", **SMALL).to_dict())

    def test_cluster_and_model_are_values_too(self):
        cluster = tawpipe.cluster("3x8")
        model = tawpipe.model({"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 48, "num_attention_heads": 16,
                               "intermediate_size": 2816, "vocab_size": 32000, "torch_dtype": "float16"})
        self.assertEqual((cluster.nodes, cluster.ranks, model.layers), (3, 8 * 3, 48))
        self.assertEqual(tawpipe.cluster("3x8", device="H100-80G").device(0)["name"], "H100-80G")
        slow, fast = (tawpipe.simulate("fsdp", cluster=tawpipe.cluster("3x8", inter_node=speed), model="llama-8x512",
                                       sequence=512, global_batch=24).makespan_s for speed in ("1Gbps", "100Gbps"))
        self.assertGreater(slow, fast)
        again = tawpipe.cluster(__import__("json").loads(cluster.to_json()))
        with self.assertRaisesRegex(tawpipe.InputError, "inter_node is for a cluster's name or file"):
            tawpipe.cluster(cluster, inter_node="1Gbps")
        first = tawpipe.simulate("1f1b", cluster=cluster, model=model, sequence=4096, microbatches=48)
        self.assertEqual(first.makespan_s,
                         tawpipe.simulate("1f1b", cluster=again, model=model, sequence=4096, microbatches=48).makespan_s)

    def test_options_are_those_of_the_schedule(self):
        slow = tawpipe.simulate("1f1b", options={"overlap": False}, **SMALL)
        fast = tawpipe.simulate("1f1b", options={"overlap": True}, **SMALL)
        self.assertLessEqual(fast.makespan_s, slow.makespan_s)

    def test_weights_are_gathered_in_8_bits(self):
        def gathered(**more):
            schedule = tawpipe.simulate("fsdp", cluster="dgx-h100", model="llama-3-8b", sequence=4096, global_batch=8,
                                        gemm_format="fp8", **more).schedule
            return int(schedule.task_bytes[schedule.tasks["op"] == tawpipe.OPS.index("all_gather")].sum())
        self.assertLess(gathered(gathered_weights="gemm"), 0.7 * gathered())
        with self.assertRaisesRegex(tawpipe.InputError, "gemm"):
            gathered(gathered_weights="fp8")

    def test_swiglu_is_fused_unless_said_otherwise(self):
        def memory(**more):
            return max(tawpipe.simulate("1f1b", cluster="1x4", model="llama-8x512", sequence=512, microbatches=8, recompute="none",
                                        **more).to_dict()["peak_memory_bytes"])
        self.assertEqual(memory(), memory(swiglu="fused"))
        self.assertLess(memory(), memory(swiglu="unfused"))

    def test_layers_run_as_whose_code_it_says(self):
        def seconds(**more):
            problem = dict(cluster="dgx-h100", model="llama-3-8b", sequence=8192, global_batch=16)
            return tawpipe.simulate("fsdp", **problem, **more).makespan_s

        self.assertEqual(seconds(), seconds(layer_code="megatron", early_stop=False, attention="fused"))
        self.assertLess(seconds(early_stop=True), seconds())
        self.assertLess(seconds(), seconds(attention="unfused"))
        self.assertEqual(seconds(layer_code="torchtitan"), seconds(layer_code="torchtitan", early_stop=True))

    def test_lists_are_tables(self):
        self.assertIn("tawpipe", [row["name"] for row in tawpipe.schedules()])
        self.assertIn("dgx-h100", [row["name"] for row in tawpipe.clusters()])
        self.assertIn("H100-80G", [row["name"] for row in tawpipe.devices()])
        self.assertGreater(len(tawpipe.models()), 5)


TINY = dict(cluster="2x4", model="llama-8x512", sequence=2048, global_batch=16)


class Plans(unittest.TestCase):
    def test_what_another_cluster_would_buy_is_an_argument(self):
        plans = tawpipe.plan(what_if=["nodes=4", "network=800Gbps"], schedules=["ddp", "1f1b"], **TINY)
        self.assertEqual([one["what"] for one in plans.what_if], ["4 nodes", "800 Gbps adapters"])
        self.assertGreater(plans.what_if[0]["speed"], 0)
        self.assertIn("What to buy", str(plans))
        with self.assertRaisesRegex(tawpipe.InputError, "nodes=8"):
            tawpipe.plan(what_if=["more"], **TINY)

    def test_plan_is_the_command_s(self):
        plans = tawpipe.plan(**TINY, top=2)
        self.assertTrue(plans.proven_best)
        self.assertFalse(plans.stopped)
        self.assertIn(len(plans), (1, 2))
        times = [plan["makespan_s"] for plan in plans]
        self.assertEqual(times, sorted(times))
        self.assertIn("<table>", plans._repr_html_())
        self.assertGreater(len(plans.pareto), 0)
        command = os.environ.get("TAWPIPE_COMMAND")
        if command:
            shown = subprocess.run([command, "plan", "--cluster", "2x4", "--model", "llama-8x512", "--sequence", "2048",
                                    "--global-batch", "16", "--top", "2"], capture_output=True, text=True, check=True).stdout
            self.assertEqual(shown, str(plans))

    def test_constraints_and_tokens(self):
        plans = tawpipe.plan(cluster="2x4", model="llama-8x512", sequence=2048, tokens=32768, tensor_parallel=2,
                             schedules=["1f1b", "fsdp"], recompute="full", overlap_grad_reduce=True)
        self.assertTrue(all(plan["axes"]["tensor"] == 2 for plan in plans))
        self.assertIn("--overlap-grad-reduce on", plans[0]["command"])
        with self.assertRaisesRegex(tawpipe.InputError, "global_batch"):
            tawpipe.plan(cluster="2x4", model="llama-8x512", sequence=2048)

    def test_compared_schedules_have_the_gap(self):
        for row in tawpipe.compare("1f1b", "tawpipe", **TINY):
            self.assertAlmostEqual(row["gap"], row["makespan_s"] / row["bound_s"] - 1)
            self.assertGreater(row["gap"], 0)

    def test_bound_is_below_the_best(self):
        bound = tawpipe.bound(**TINY)
        self.assertTrue(bound["fits"])
        self.assertLessEqual(bound["bound_s"], tawpipe.plan(**TINY)[0]["makespan_s"])
        self.assertIn("No schedule takes less than", str(bound))

    def test_other_threads_run_and_ctrl_c_keeps_the_best(self):
        script = ("import os, signal, sys, threading, time, tawpipe\n"
                  "main = threading.main_thread().ident\n"
                  "def interrupt():\n"
                  "    while sys._current_frames()[main].f_code.co_name != 'plan': time.sleep(0.05)\n"
                  "    time.sleep(1)\n"
                  "    os.kill(os.getpid(), signal.SIGINT)\n"
                  "threading.Thread(target=interrupt, daemon=True).start()\n"
                  "plans = tawpipe.plan(cluster='a800x24-10gbe', model='llama-48x1024', sequence=16384, global_batch=96,"
                  " budget=10**15)\n"
                  "print(plans.stopped, len(plans) > 0 or bool(plans.complaint))\n")
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
        self.assertEqual((ended.returncode, ended.stdout.strip()), (0, "True True"), ended.stderr)


class Arrays(unittest.TestCase):
    def test_tasks_are_named_fields(self):
        schedule = tawpipe.simulate("1f1b", **SMALL).schedule
        tasks = schedule.tasks
        forward = tasks["op"] == tawpipe.OPS.index("forward")
        self.assertEqual(np.count_nonzero(forward), 48 * 24)
        self.assertEqual(set(tasks["rank"][forward]), set(range(24)))
        begin, items = schedule.dependencies
        self.assertEqual((len(begin), begin[-1]), (len(schedule) + 1, len(items)))
        computed = schedule.program(3)[tasks["op"][schedule.program(3)] == tawpipe.OPS.index("forward")]
        self.assertEqual(list(tasks["microbatch"][computed]), list(range(48)))
        self.assertEqual(set(tasks["rank"][computed]), {3})
        self.assertEqual(len(schedule.buffers["bytes"]), len(schedule.buffers["rank"]))
        moved = schedule.task_bytes[tasks["op"] == tawpipe.OPS.index("pass")]
        self.assertTrue((moved > 0).all())

    def test_views_copy_nothing_cannot_be_written_and_outlive_their_owner(self):
        prediction = tawpipe.simulate("1f1b", **SMALL)
        start, tasks = prediction.timeline.start, prediction.schedule.tasks
        with self.assertRaises(ValueError):
            start[0] = 1
        expected = start.copy(), tasks.copy()
        del prediction
        gc.collect()
        np.testing.assert_array_equal(start, expected[0])
        self.assertTrue((tasks == expected[1]).all())

    def test_a_million_tasks_cross_in_less_time_than_one_of_them_copied(self):
        schedule = tawpipe.simulate("1f1b", cluster="1x64", microbatches=4096, cost=FIXED).schedule
        self.assertGreater(len(schedule), 1_000_000)
        begin = time.thread_time()  # of this thread's processor: others may keep it waiting
        tasks = schedule.tasks
        crossing = time.thread_time() - begin
        begin = time.thread_time()
        tasks.copy()
        self.assertLess(crossing, max(time.thread_time() - begin, 0.1))


class Errors(unittest.TestCase):
    def test_bad_input_is_a_value_error_in_words_of_python(self):
        with self.assertRaisesRegex(ValueError, "^global_batch is missing"):
            tawpipe.compare(cluster="3x8", model="llama-48x1024", sequence=4096)
        with self.assertRaisesRegex(tawpipe.InputError, "did you mean 'tawpipe'"):
            tawpipe.simulate("tawpip", **SMALL)
        with self.assertRaisesRegex(tawpipe.InputError, "cluster"):
            tawpipe.cluster({"nodes": 3})
        with self.assertRaises(IndexError):
            tawpipe.cluster("3x8").device(24)
        with self.assertRaises(TypeError):
            tawpipe.simulate("tawpipe", cluster=3, model="llama-48x1024", sequence=4096, microbatches=48)

    def test_a_wrong_type_is_named_and_a_large_number_is_bad_input(self):
        for name, value in (("sequence", 2048.5), ("sequence", True), ("tensor_parallel", "2"), ("usable_memory", "0.5"),
                            ("usable_memory", True), ("bucket", "5"), ("recompute", 3), ("layer_code", True), ("options", 5), ("cluster", 3),
                            ("cluster", b"3x8"), ("model", 3), ("baselines", 1), ("tensor_parallel", np.float32(2))):
            with self.subTest(name, value=value), self.assertRaisesRegex(TypeError, f"^{name} must be .*, not "):
                tawpipe.compare("1f1b", **{**SMALL, name: value})
        for name in ("sequence", "tensor_parallel", "microbatches"):
            with self.assertRaisesRegex(tawpipe.InputError, f"^{name} must be a whole number .*, not '1180591620717411303424'"):
                tawpipe.compare("1f1b", **{**SMALL, name: 2**70})
        self.assertEqual(tawpipe.simulate("1f1b", **{**SMALL, "sequence": "4k"}).makespan_s,
                         tawpipe.simulate("1f1b", **SMALL, recompute=None, reshard=None).makespan_s)
        same = tawpipe.simulate("1f1b", **{**SMALL, "sequence": np.int64(4096)})
        self.assertEqual(same.makespan_s, tawpipe.simulate("1f1b", **SMALL).makespan_s)
        for call in (lambda: tawpipe.simulate(None, **SMALL), lambda: tawpipe.validate("1f1b"),
                     lambda: tawpipe.compare(["1f1b"], **SMALL), lambda: tawpipe.plan(**TINY, schedules="1f1b"),
                     lambda: tawpipe.cluster("3x8", device=3), lambda: tawpipe.prove(3), lambda: tawpipe.doctor(3)):
            with self.assertRaisesRegex(TypeError, "^(schedules?|device|path|dumps) must be "):
                call()

    def test_what_is_missing_is_bad_input_everywhere(self):
        for call in (tawpipe.read_schedule, tawpipe.prove, tawpipe.doctor, tawpipe.cluster, tawpipe.model,
                     lambda path: tawpipe.plan(cluster="2x4", today=path),
                     lambda path: tawpipe.simulate("1f1b", **SMALL, cost=f"measured:{path}")):
            with self.assertRaisesRegex(tawpipe.InputError, "/missing.0"):
                call("/missing.0")
        with self.assertRaisesRegex(tawpipe.InputError, "^dumps is required"):
            tawpipe.doctor()
        with self.assertRaisesRegex(tawpipe.InputError, "^config 'small': 'num_hidden_layers' is missing"):
            tawpipe.model({"_name_or_path": "small"})

    def test_a_schedule_goes_through_json_and_a_broken_one_is_found(self):
        schedule = tawpipe.simulate("1f1b", cluster="1x2", microbatches=2, cost=FIXED).schedule
        text = schedule.to_json()
        self.assertEqual(tawpipe.Schedule.from_json(text).to_json(), text)
        with self.assertRaisesRegex(tawpipe.InputError, "line|JSON"):
            tawpipe.Schedule.from_json(text[:-20])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "schedule.json")
            path.write_text(text)
            self.assertEqual(tawpipe.read_schedule(path).to_json(), text)
        same = tawpipe.simulate(tawpipe.Schedule.from_json(text), cluster="1x2", cost=FIXED)
        self.assertEqual(same.makespan_s, tawpipe.simulate("1f1b", cluster="1x2", microbatches=2, cost=FIXED).makespan_s)


class Orders(unittest.TestCase):
    def test_an_exported_order_ends_and_a_crossed_one_hangs(self):
        schedule = tawpipe.simulate("1f1b", cluster="1x4", microbatches=8, cost=FIXED).schedule
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "rows.csv")
            path.write_text(schedule.to_pytorch_csv(communication=True))
            self.assertTrue(tawpipe.prove(path).ok)
            path.write_text("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n")
            crossed = tawpipe.prove(path)
            self.assertFalse(crossed.ok)
            self.assertEqual(crossed["verdict"], "deadlock")
            with self.assertRaisesRegex(tawpipe.InputError, "semantics"):
                tawpipe.prove(path, semantics="ncl")


class Threads(unittest.TestCase):
    def test_other_threads_run_meanwhile(self):
        counted = []
        stop = threading.Event()

        def count():
            while not stop.is_set():
                counted.append(1)
                time.sleep(0.001)
        thread = threading.Thread(target=count)
        thread.start()
        tawpipe.simulate("1f1b", cluster="1x64", microbatches=2048, cost=FIXED)
        stop.set()
        thread.join()
        self.assertGreater(len(counted), 5)

    def test_compare_and_simulate_run_handlers_of_signals_while_they_compute(self):
        # One that only ran at the call's end would be called once: pending signals are one.
        script = ("import os, signal, sys, threading, time, tawpipe\n"
                  "handled = []\n"
                  "def handler(*_):\n"
                  "    handled.append(1)\n"
                  "    if len(handled) == 3: raise KeyboardInterrupt\n"
                  "signal.signal(signal.SIGINT, handler)\n"
                  "main = threading.main_thread().ident\n"
                  "def interrupt():\n"
                  "    while sys._current_frames()[main].f_code.co_name not in ('compare', 'simulate'): time.sleep(0.01)\n"
                  "    while len(handled) < 3:\n"
                  "        os.kill(os.getpid(), signal.SIGINT)\n"
                  "        time.sleep(0.1)\n"
                  "threading.Thread(target=interrupt, daemon=True).start()\n"
                  "try:\n"
                  "    tawpipe.{}\n"
                  "    print('not interrupted')\n"
                  "except KeyboardInterrupt:\n"
                  "    print('interrupted')\n")
        for call in ("compare(cluster='a800x24-10gbe', model='llama-48x1024', sequence=16384, global_batch=6144)",
                     f"simulate('1f1b', cluster='1x64', microbatches=8192, cost='{FIXED}')"):
            ended = subprocess.run([sys.executable, "-c", script.format(call)], capture_output=True, text=True, timeout=600)
            self.assertEqual((ended.returncode, ended.stdout.strip()), (0, "interrupted"), call + ended.stderr)

    def test_import_is_quick(self):
        # NumPy is imported when the first array is asked for.
        subprocess.run([sys.executable, "-c", "import sys, tawpipe; assert 'numpy' not in sys.modules"], check=True, cwd="/")


if __name__ == "__main__":
    unittest.main()
