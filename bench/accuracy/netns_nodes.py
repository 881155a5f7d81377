#!/usr/bin/env python3
"""Trains over MPI between network namespaces that stand for nodes, and holds what is measured against what was predicted.

Each node is a namespace of network and host name on this machine. A bridge with shaped links joins the nodes, so ranks of one
node talk by shared memory and ranks of two nodes at --rate; the launcher has a bridge of its own. All ranks share this
machine's cores, so --pace holds every computation to a device that is slower than a share of them. For each schedule it prints

* the time of an iteration, and what `tawpipe simulate` predicts with a cost that `tawpipe calibrate` found in the timelines of
  the schedules of --calibrate-on;
* the bytes that leave the nodes in an iteration by the kernel's counters, and what the schedule has.

Needs root, iproute2, Open MPI and a tawpipe built with MPI; cleans up behind itself. Where namespaces are forbidden, all ranks
share the shaped loopback (--loopback): one link for all messages, which no cluster has, so times are measured but not predicted.
Not: a measure of time on a real cluster.

    bench/accuracy/netns_nodes.py --tawpipe build/bin/tawpipe --nodes 2 --ranks 2 --rate 400mbit
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

DATA, LAUNCH = "10.98.0", "10.99.0"  # what messages go over, and what mpirun's daemons do
# Open MPI's own way with long messages over TCP puts each as a whole into the socket's queue, where the answer to a message that
# comes the other way then waits for it: a link would carry one direction at a time.
TCP = {"btl_tcp_flags": "send", "btl_tcp_sndbuf": 131072, "mpi_yield_when_idle": 1, "hwloc_base_binding_policy": "none"}


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, **options)


def mca(options):
    return [word for name, value in options.items() for word in ("--mca", name, value)]


class Nodes:
    """The namespaces, while the object is entered."""

    def __init__(self, count, rate, delay):
        self.names = [f"tpnode{i}" for i in range(count)]
        self.rate, self.delay = rate, delay

    def shape(self, prefix, interface):
        # Packets as a wire has them: the bucket below counts, and lets pass, whole ones.
        run(*prefix, "ip", "link", "set", interface, "gso_max_size", 3000)
        run(*prefix, "tc", "qdisc", "add", "dev", interface, "root", "handle", "1:", "tbf", "rate", self.rate,
            "burst", "16kb", "latency", "50ms")
        if self.delay:  # a kernel may lack netem
            run(*prefix, "tc", "qdisc", "add", "dev", interface, "parent", "1:", "netem", "delay", self.delay)

    def __enter__(self):
        try:
            for bridge in ("tpdata", "tplaunch"):
                run("ip", "link", "add", bridge, "type", "bridge")
                run("ip", "link", "set", bridge, "up")
            run("ip", "address", "add", f"{LAUNCH}.254/24", "dev", "tplaunch")
            for i, name in enumerate(self.names):
                inside = ["ip", "netns", "exec", name]
                run("ip", "netns", "add", name)
                run(*inside, "ip", "link", "set", "lo", "up")
                for bridge, end, network in (("tpdata", "data", DATA), ("tplaunch", "launch", LAUNCH)):
                    run("ip", "link", "add", f"tp{end}{i}", "type", "veth", "peer", "name", end, "netns", name)
                    run("ip", "link", "set", f"tp{end}{i}", "master", bridge, "up")
                    run(*inside, "ip", "address", "add", f"{network}.{i + 1}/24", "dev", end)
                    run(*inside, "ip", "link", "set", end, "up")
                self.shape([], f"tpdata{i}")
                self.shape(inside, "data")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        quiet = dict(check=False, stderr=subprocess.DEVNULL)
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], **quiet)
        for bridge in ("tpdata", "tplaunch"):
            subprocess.run(["ip", "link", "delete", bridge], **quiet)

    def bytes_out(self):
        """Of each node, since it was made: what its end of the bridge has received."""
        return [int(pathlib.Path(f"/sys/class/net/tpdata{i}/statistics/rx_bytes").read_text()) for i in range(len(self.names))]

    def mpirun(self, ranks, folder):
        """The command that starts so many processes in the namespaces: a script in ssh's place enters them."""
        agent, hosts = folder / "agent", folder / "hosts"
        agent.write_text('#!/bin/sh\nnode=$1; shift\nexec ip netns exec "$node" unshare --uts sh -c "hostname $node; exec $*"\n')
        agent.chmod(0o755)
        hosts.write_text("".join(f"{name} slots={ranks // len(self.names)}\n" for name in self.names))
        return ["mpirun", "--allow-run-as-root", "--hostfile", hosts, "--map-by", "slot", "-np", ranks,
                *mca({"plm_rsh_agent": agent, "oob_tcp_if_include": f"{LAUNCH}.0/24", "btl": "self,vader,tcp",
                      "btl_tcp_if_include": f"{DATA}.0/24", **TCP})]


class Loopback:
    """The machine's loopback as one shaped link for all ranks, while the object is entered."""

    names = ["localhost"]

    def __init__(self, rate):
        self.rate = rate

    def __enter__(self):
        run("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", self.rate, "burst", "128kb", "latency", "50ms")
        return self

    def __exit__(self, *_):
        run("tc", "qdisc", "delete", "dev", "lo", "root")

    def bytes_out(self):
        return [int(pathlib.Path("/sys/class/net/lo/statistics/tx_bytes").read_text())]

    def mpirun(self, ranks, _):
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", ranks, *mca({"btl": "self,tcp", **TCP})]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tawpipe", type=pathlib.Path, default=pathlib.Path("build/bin/tawpipe"))
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="of each node")
    parser.add_argument("--rate", default="400mbit", help="of each node's link, as tc takes it")
    parser.add_argument("--delay", default="", help="of each node's link, as netem takes it, such as 1ms")
    parser.add_argument("--pace", default="2.5GFLOPS", help="of each rank's device")
    parser.add_argument("--schedules", nargs="+", default=["tawpipe", "weipipe", "1f1b", "fsdp"])
    parser.add_argument("--calibrate-on", nargs=2, default=["tawpipe", "1f1b"], metavar="SCHEDULE", help="two of them")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--global-batch", type=int, default=16)
    parser.add_argument("--data", default="examples/data/new_testament.txt")
    parser.add_argument("--iterations", type=int, default=3, help="that are measured, after two others")
    parser.add_argument("--loopback", action="store_true", help="no namespaces: all ranks share one shaped link")
    parser.add_argument("--folder", type=pathlib.Path, help="keep timelines, schedules and the cost found here")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    given = parser.parse_args()
    if not set(given.calibrate_on) <= set(given.schedules):
        parser.error(f"--calibrate-on {' '.join(given.calibrate_on)}: both must be among --schedules")
    if os.geteuid() != 0:
        parser.error("namespaces and shaped links need root")
    return given


class Case:
    """One model and batch, trained between the nodes."""

    def __init__(self, given, nodes, folder):
        self.given, self.nodes, self.folder, self.tawpipe = given, nodes, folder, given.tawpipe.resolve()
        model = folder / "config.json"
        heads = given.hidden // 32
        model.write_text(json.dumps({"model_type": "llama", "vocab_size": 256, "hidden_size": given.hidden,
                                     "num_hidden_layers": given.layers, "num_attention_heads": heads,
                                     "num_key_value_heads": heads, "intermediate_size": given.hidden * 8 // 3,
                                     "tie_word_embeddings": False, "max_position_embeddings": given.sequence,
                                     "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "torch_dtype": "float32"}))
        self.problem = ["--model", model, "--sequence", given.sequence, "--global-batch", given.global_batch]
        self.cluster = ["--cluster", f"{given.nodes}x{given.ranks}"]
        self.start = nodes.mpirun(given.nodes * given.ranks, folder)

    def file(self, schedule, kind):
        return self.folder / f"{schedule}.{kind}"

    def train(self, schedule, steps):
        """The report of a run of so many steps, and the bytes that left each node in it."""
        out = self.file(schedule, "report.json")
        before = self.nodes.bytes_out()
        run(*self.start, self.tawpipe, "train", "--backend", "mpi", "--schedule", schedule, *self.problem, "--data",
            self.given.data, "--clip", 0, "--steps", steps, "--pace", self.given.pace, "--json", out, "--timeline",
            self.file(schedule, "csv"), "--schedule-out", self.file(schedule, "json"), stdout=subprocess.DEVNULL, timeout=900,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        return json.loads(out.read_text()), [b - a for a, b in zip(before, self.nodes.bytes_out())]

    def measure(self, schedule):
        # What does not repeat (start, end) is in both runs; two steps, so that connections are there.
        _, short = self.train(schedule, 2)
        report, long = self.train(schedule, 2 + self.given.iterations)
        measured = sum(b - a for a, b in zip(short, long)) / self.given.iterations
        traffic = self.simulate(schedule)["traffic"]
        sent, planned = sum(report["rank_sent_bytes"]), traffic["inter_node_bytes"] + traffic["intra_node_bytes"]
        if sent != planned:  # other numbers than those simulated: what follows would compare two things
            sys.exit(f"{schedule}: the ranks sent {sent} bytes in an iteration, the schedule has {planned}")
        between = planned if self.given.loopback else traffic["inter_node_bytes"]  # over a loopback go all messages
        return {"schedule": schedule, "seconds_measured": statistics.median(report["step_seconds"][2:]),
                "inter_node_bytes_measured": measured, "inter_node_bytes_predicted": between}

    def simulate(self, schedule, *options):
        """The summary of the schedule that was run."""
        return json.loads(run(self.tawpipe, "simulate", "--schedule-file", self.file(schedule, "json"), *self.cluster,
                              "--recompute", "none", *options, "--json", "-", capture_output=True).stdout)

    def calibrate(self):
        """The cost that the timelines of two schedules tell."""
        flags = []
        for schedule in self.given.calibrate_on:
            flags += ["--timeline", self.file(schedule, "csv"), "--schedule-file", self.file(schedule, "json")]
        cost = self.folder / "cost.json"
        run(self.tawpipe, "calibrate", *flags, *self.cluster, "--out", cost, stdout=subprocess.DEVNULL)
        return f"measured:{cost}"


def main():
    given = arguments()
    if not given.loopback and subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        print("netns_nodes.py: this machine forbids network namespaces; all ranks share its shaped loopback", file=sys.stderr)
        given.loopback = True
    network = Loopback(given.rate) if given.loopback else Nodes(given.nodes, given.rate, given.delay)
    with tempfile.TemporaryDirectory() as name, network as nodes:
        folder = given.folder or pathlib.Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        case = Case(given, nodes, folder)
        results = []
        for schedule in given.schedules:
            print(f"{schedule} ...", file=sys.stderr, flush=True)
            results.append(case.measure(schedule))
        cost = None if given.loopback else case.calibrate()
        for one in results:
            one["calibrated_on"] = cost is not None and one["schedule"] in given.calibrate_on
            one["seconds_predicted"] = case.simulate(one["schedule"], "--cost", cost)["makespan_s"] if cost else None
    show(results)
    if given.json:
        setting = {key: value for key, value in vars(given).items() if key not in ("json", "tawpipe", "folder")}
        given.json.write_text(json.dumps({**setting, "results": results}, indent=2) + "\n")


def show(results):
    """Prints the table of docs/calibration.md."""
    print("| schedule | iteration measured | predicted | error | bytes between nodes measured | the schedule's | more |\n"
          "|---|---|---|---|---|---|---|")
    for one in results:
        seconds, predicted = one["seconds_measured"], one["seconds_predicted"]
        measured, planned = one["inter_node_bytes_measured"], one["inter_node_bytes_predicted"]
        time = f"{predicted:.2f} s | {predicted / seconds - 1:+.1%}" if predicted else "- | -"
        mark = " (calibrated on)" if one["calibrated_on"] else ""
        print(f"| `{one['schedule']}`{mark} | {seconds:.2f} s | {time} | {measured:,.0f} | {planned:,} | "
              f"{measured / planned - 1:+.2%} |".replace("%", " %"))


if __name__ == "__main__":
    main()
