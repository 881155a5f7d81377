#!/usr/bin/env python3
"""Trains over MPI between network namespaces that stand for nodes, and measures what goes between them.

Each node is a namespace of network and host name on this machine. A bridge with shaped links joins the nodes, so ranks of one
node talk by shared memory and ranks of two nodes at --rate; the launcher has a bridge of its own. For each schedule it prints
the iteration's time, the bytes that leave a node in an iteration by the kernel's counters, and what `tawpipe simulate`
predicts for them. Needs root, iproute2, Open MPI and a tawpipe built with MPI; cleans up behind itself.
Not: a measure of time on a real cluster: all nodes share this machine's cores.

    bench/accuracy/netns_nodes.py --tawpipe build/bin/tawpipe --nodes 2 --ranks 2 --rate 200mbit
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

DATA, LAUNCH = "10.98.0", "10.99.0"  # what messages go over, and what mpirun's daemons do


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, **options)


class Nodes:
    """The namespaces, while the object is entered."""

    def __init__(self, count, rate, delay):
        self.names = [f"tpnode{i}" for i in range(count)]
        self.rate, self.delay = rate, delay

    def shape(self, prefix, interface):
        run(*prefix, "tc", "qdisc", "add", "dev", interface, "root", "handle", "1:", "tbf", "rate", self.rate,
            "burst", "128kb", "latency", "50ms")
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


def mpirun(nodes, ranks, folder):
    """The command that starts processes in the namespaces: a script in ssh's place enters them."""
    agent, hosts = folder / "agent", folder / "hosts"
    agent.write_text('#!/bin/sh\nnode=$1; shift\nexec ip netns exec "$node" unshare --uts sh -c "hostname $node; exec $*"\n')
    agent.chmod(0o755)
    hosts.write_text("".join(f"{name} slots={ranks}\n" for name in nodes.names))
    options = {"plm_rsh_agent": agent, "oob_tcp_if_include": f"{LAUNCH}.0/24", "btl": "self,vader,tcp",
               "btl_tcp_if_include": f"{DATA}.0/24", "mpi_yield_when_idle": 1, "hwloc_base_binding_policy": "none"}
    command = ["mpirun", "--allow-run-as-root", "--hostfile", hosts, "--map-by", "slot", "-np", len(nodes.names) * ranks]
    for name, value in options.items():
        command += ["--mca", name, value]
    return command


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tawpipe", type=pathlib.Path, default=pathlib.Path("build/bin/tawpipe"))
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="of each node")
    parser.add_argument("--rate", default="200mbit", help="of each node's link, as tc takes it")
    parser.add_argument("--delay", default="", help="of each node's link, as netem takes it, such as 1ms")
    parser.add_argument("--schedules", nargs="+", default=["tawpipe", "weipipe", "1f1b", "fsdp"])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--global-batch", type=int, default=16)
    parser.add_argument("--data", default="examples/data/new_testament.txt")
    parser.add_argument("--iterations", type=int, default=3, help="that are measured, after two others")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("netns_nodes.py: namespaces need root")
    tawpipe = given.tawpipe.resolve()
    problem = ["--sequence", given.sequence, "--global-batch", given.global_batch]
    cluster = ["--cluster", f"{given.nodes}x{given.ranks}"]
    results = []
    with tempfile.TemporaryDirectory() as name, Nodes(given.nodes, given.rate, given.delay) as nodes:
        folder = pathlib.Path(name)
        model = folder / "config.json"  # one file for both
        model.write_text(json.dumps({"model_type": "llama", "vocab_size": 256, "hidden_size": given.hidden,
                                     "num_hidden_layers": given.layers, "num_attention_heads": given.hidden // 32,
                                     "num_key_value_heads": given.hidden // 32, "intermediate_size": given.hidden * 8 // 3,
                                     "tie_word_embeddings": False, "max_position_embeddings": given.sequence,
                                     "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "torch_dtype": "bfloat16"}))
        problem += ["--model", model]
        start = mpirun(nodes, given.ranks, folder)

        def train(schedule, steps):
            """The report of a run of so many steps, and the bytes that left each node in it."""
            out = folder / "report.json"
            before = nodes.bytes_out()
            run(*start, tawpipe, "train", "--backend", "mpi", "--schedule", schedule, *problem, "--data", given.data, "--clip", 0,
                "--steps", steps, "--json", out, stdout=subprocess.DEVNULL, timeout=600)
            return json.loads(out.read_text()), [b - a for a, b in zip(before, nodes.bytes_out())]

        print(f"{'schedule':10} {'iteration':>10} {'bytes between nodes, an iteration: measured':>44} {'predicted':>14} {'ratio':>7}")
        for schedule in given.schedules:
            # What does not repeat (start, end) is in both runs; two steps, so that connections are there.
            _, short = train(schedule, 2)
            report, long = train(schedule, 2 + given.iterations)
            measured = sum(b - a for a, b in zip(short, long)) / given.iterations
            simulated = json.loads(run(tawpipe, "simulate", "--schedule", schedule, *problem, *cluster, "--recompute", "none",
                                       "--microbatch", 1, "--json", "-", capture_output=True).stdout)["traffic"]
            # Simulated in bfloat16, trained in float32: everything is twice as long.
            predicted = 2 * simulated["inter_node_bytes"]
            sent, planned = sum(report["rank_sent_bytes"]), predicted + 2 * simulated["intra_node_bytes"]
            if sent != planned:  # other numbers than those simulated: what follows would compare two things
                sys.exit(f"{schedule}: the ranks sent {sent} bytes in an iteration, the schedule has {planned}")
            results.append({"schedule": schedule, "iteration_seconds": report["iteration_seconds"],
                            "inter_node_bytes_measured": measured, "inter_node_bytes_predicted": predicted})
            print(f"{schedule:10} {report['iteration_seconds']:8.2f} s {measured:44,.0f} {predicted:14,.0f} "
                  f"{measured / predicted:7.4f}", flush=True)
    if given.json:
        given.json.write_text(json.dumps({"nodes": given.nodes, "ranks": given.ranks, "rate": given.rate, "delay": given.delay,
                                          "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
