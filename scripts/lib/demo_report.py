#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/demo measured -> report.json, a table, and the verdict.

Usage: demo_report.py DIR      reads DIR/runs/*/..., writes DIR/report.json, prints the table; exit 1 on a wrong result
       demo_report.py --batches RUN JOB=BATCH...   batches that would have made the full-depth iterations of that run
                                                   last GOAL_MS, as JOB=BATCH; never smaller ones

One folder per run, DIR/runs/<way>-<round>/:
    times.json           {"way","round","submit_ns","end_ns"}
    <job>.scontrol       scontrol -d show job, while it ran
    <job>-rank<r>.jsonl  metrics of a rank: one object per iteration, then one with "event":"end"
    <job>-directives.jsonl  every directive rank 0 agreed on
    trace-<node>.jsonl   the gate log of that node's jigsawd (docs/gate-log.md)
"""
import json
import pathlib
import re
import statistics
import sys

GOAL_MS = 50  # or the slowest job's, if that is longer
MOST_SAMPLES = 256
WAYS = ("exclusive", "shared_full", "shared_spb")
CONTROLS = ("no_turns", "same_phase")
TITLES = {"no_turns": "SPB without turns", "same_phase": "SPB, phases the same",
          "exclusive": "one after the other", "shared_full": "shared, full depth", "shared_spb": "shared, SPB"}


def json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def node_names(text):
    """'n[1-2,5]' -> ['n1', 'n2', 'n5']; scontrol folds nodes on which a job holds the same."""
    match = re.fullmatch(r"(.*)\[([0-9,-]+)\]", text)
    if not match:
        return text.split(",")
    names = []
    for part in match.group(2).split(","):
        first, _, last = part.partition("-")
        names += [f"{match.group(1)}{n:0{len(first)}}" for n in range(int(first), int(last or first) + 1)]
    return names


def gpus_of(scontrol_text):
    """What scontrol -d show job says of a job's GPUs: [('n1', 'gpu:1(IDX:0)'), ...]."""
    found = []
    for line in scontrol_text.splitlines():
        match = re.search(r"^\s*Nodes=(\S+) .*GRES=(\S*)", line)
        if match:
            found += [(name, match.group(2)) for name in node_names(match.group(1))]
    return found


def depth_of(directive, rank, world, num_blocks, iteration):
    """The pure function of runtime/plan/roles, written a second time, slowly, to check the log against.
    Policies that the demo uses: full and two-level."""
    if not directive or directive["generation"] == 0 or iteration < directive["first_iteration"]:
        return num_blocks
    table = directive["depth_of_level"]
    if directive["policy"] == "full":
        return table[-1]
    if directive["policy"] != "two-level":
        raise SystemExit(f"demo_report: the demo does not run the policy {directive['policy']}")
    k = (directive["direction"] * rank + iteration + directive["phase"]) % world
    return table[-1] if k < directive["full_workers"] else table[0]


def check_depths(run, job, ranks, directives):
    """Every rank's depth in every iteration against the agreed directives; the number of wrong ones."""
    wrong = 0
    for rank, lines in enumerate(ranks):
        for line in lines:
            if "iteration" not in line or "depth" not in line:
                continue
            current = None
            for directive in directives:
                if directive["first_iteration"] <= line["iteration"]:
                    current = directive
            want = depth_of(current, rank, len(ranks), line["num_blocks"], line["iteration"])
            if want != line["depth"]:
                wrong += 1
                print(f"demo_report: {run.name} {job} rank {rank} iteration {line['iteration']}: depth "
                      f"{line['depth']}, the agreed directive says {want}", file=sys.stderr)
    return wrong


def read_job(run, name):
    ranks = [json_lines(p) for p in sorted(run.glob(f"{name}-rank*.jsonl"))]
    if not ranks:
        raise SystemExit(f"demo_report: no metrics of job {name} in {run}")
    ends = [next((l for l in reversed(lines) if l.get("event") == "end"), None) for lines in ranks]
    if any(end is None for end in ends):
        raise SystemExit(f"demo_report: a rank of job {name} in {run} did not finish; see its .out file")
    log = run / f"{name}-directives.jsonl"
    directives = json_lines(log) if log.exists() else []
    placed = gpus_of((run / f"{name}.scontrol").read_text())
    iterations = [l for l in ranks[0] if "iteration" in l and "depth" in l]
    full = [l for l in iterations if l["depth"] == l["num_blocks"]][5:] or iterations
    job = {
        "name": name,
        "nodes": [n for n, _ in placed],
        "gpus": [f"{n}:{g}" for n, g in placed],
        "iterations": len(iterations),
        "mean_depth_fraction": statistics.mean(e["mean_depth_fraction"] for e in ends),
        "sha256": [e["sha256"] for e in ends],
        "forward_ms": round(statistics.median(l["forward_ms"] for l in full), 2),
        "backward_ms": round(statistics.median(l["backward_ms"] for l in full), 2),
        "depth_errors": check_depths(run, name, ranks, directives),
        "directives": len(directives),
        "end_ns": max(e["t_ns"] for e in ends),
        "start_ns": min(l["t_ns"] for lines in ranks for l in lines if "iteration" in l),
    }
    for key in ("accuracy", "val_loss"):
        if ends[0].get(key) is not None:
            job["loss" if key == "val_loss" else key] = ends[0][key]
    return job


def iteration_ms(job):
    """Compute time of a full-depth iteration, without what its turn and its sync wait for."""
    return job["forward_ms"] + job["backward_ms"]


def batches_for(run, batches):
    """{job: samples per worker} that give all jobs iterations of equal length, at least GOAL_MS, on this machine."""
    took = {name: iteration_ms(read_job(run, name)) for name in batches}
    goal = max([GOAL_MS] + list(took.values()))
    return {name: min(MOST_SAMPLES, max(batch, round(batch * goal / took[name]))) for name, batch in batches.items()}


def turns_of(trace):
    """Closed turns of a gate log: [(gpu, job, process, start_ns, end_ns, depth, num_blocks)]. A turn runs from its
    grant (or from when a gate closed on a process that was running) to its release."""
    open_turns, turns = {}, []
    for line in trace:
        if line["event"] == "start":
            open_turns.clear()  # nothing before it counts, and it names no GPU
            continue
        key = (line["gpu"], line.get("process"))
        if line["event"] in ("grant", "run"):
            open_turns.setdefault(key, line)
        elif line["event"] in ("release", "dead", "lease", "open") and key in open_turns:
            start = open_turns.pop(key)
            # At the grant a process still reports the iteration before: depth and iteration are those of the end.
            told = line if "depth" in line else start
            turns.append((line["gpu"], start["job"], key[1], start["t_ns"], line["t_ns"], told.get("depth", 0),
                          told.get("iteration", 0)))
    return turns


def overlap_fraction(turns):
    """Time in which two holders computed on one GPU, over time in which anybody held one."""
    both = held = 0
    for gpu in {t[0] for t in turns}:
        edges = sorted([(t[3], 1) for t in turns if t[0] == gpu] + [(t[4], -1) for t in turns if t[0] == gpu])
        level = 0
        for (at, step), (after, _) in zip(edges, edges[1:] + [(0, 0)]):
            level += step
            if level and after:
                held += after - at
                both += (after - at) if level > 1 else 0
    return both / held if held else 0.0


def read_runs(folder):
    runs = {way: [] for way in WAYS + CONTROLS}
    for run in sorted((folder / "runs").iterdir()):
        times = json.loads((run / "times.json").read_text())
        names = sorted(p.name[:-len(".scontrol")] for p in run.glob("*.scontrol"))
        jobs = [read_job(run, name) for name in names]
        turns = []
        for path in sorted(run.glob("trace-*.jsonl")):
            for turn in turns_of(json_lines(path)):
                turns.append((f"{path.stem[6:]}:{turn[0]}",) + turn[1:])
        runs[times["way"]].append({"round": times["round"], "makespan_s": (times["end_ns"] - times["submit_ns"]) / 1e9,
                                   "jobs": jobs, "turns": turns, "folder": run})
    return runs


def summarise(rounds):
    last = rounds[-1]
    makespans = [round(r["makespan_s"], 3) for r in rounds]
    jobs = []
    for index, job in enumerate(last["jobs"]):
        every = [r["jobs"][index] for r in rounds]
        merged = {k: v for k, v in job.items() if k not in ("end_ns", "start_ns")}
        merged["depth_errors"] = sum(j["depth_errors"] for j in every)
        for key in ("accuracy", "loss", "mean_depth_fraction", "forward_ms", "backward_ms"):
            if key in job:
                merged[key] = statistics.median(j[key] for j in every)
        jobs.append(merged)
    return {"makespan_s": statistics.median(makespans), "rounds_s": makespans, "jobs": jobs}


def ends_apart(round_):
    """How far apart the two jobs of a shared run ended, as a share of the run."""
    first = min(j["start_ns"] for j in round_["jobs"])
    ends = [j["end_ns"] for j in round_["jobs"]]
    return (max(ends) - min(ends)) / (max(ends) - first)


def build_report(folder, facts):
    runs = read_runs(folder)
    controls = {way: runs.pop(way) for way in CONTROLS}
    if not all(runs.values()):
        raise SystemExit("demo_report: not every way was run: " + ", ".join(w for w in WAYS if not runs[w]))
    report = dict(facts)
    report["runs"] = {way: summarise(rounds) for way, rounds in runs.items()}
    report["controls"] = {way: summarise(rounds) for way, rounds in controls.items() if rounds}
    makespan = {way: report["runs"][way]["makespan_s"] for way in WAYS}
    report["ratio_spb_to_full"] = round(makespan["shared_spb"] / makespan["shared_full"], 4)
    report["ratio_spb_to_exclusive"] = round(makespan["shared_spb"] / makespan["exclusive"], 4)
    shared = runs["shared_full"] + runs["shared_spb"]
    report["turn_overlap_fraction"] = round(max(overlap_fraction(r["turns"]) for r in shared), 6)
    report["turns_logged"] = sum(len(r["turns"]) for r in shared)
    report["ends_apart_fraction"] = round(statistics.median(ends_apart(r) for r in shared), 4)
    return report, runs


def verdicts(report, runs):
    """[(text, good)]: what the demo promises, checked."""
    checks = []
    for way in ("shared_full", "shared_spb"):
        same = all(r["jobs"][0]["gpus"] == r["jobs"][1]["gpus"] and len(r["jobs"][0]["gpus"]) == 2 for r in runs[way])
        checks.append((f"{TITLES[way]}: both jobs on the same GPUs of both nodes in every round", same))
    equal = all(len(set(j["sha256"])) == 1 for rounds in runs.values() for r in rounds for j in r["jobs"])
    checks.append(("parameters of all ranks of a job are equal at the end, in every run", equal))
    errors = sum(j["depth_errors"] for way in report["runs"].values() for j in way["jobs"])
    directed = all(j["directives"] > 0 for r in runs["shared_spb"] for j in r["jobs"])
    checks.append(("depths equal the pure function of the agreed directives", errors == 0 and directed))
    checks.append((f"turn overlap {report['turn_overlap_fraction']:.4f} under 0.01",
                   report["turns_logged"] > 0 and report["turn_overlap_fraction"] < 0.01))
    return checks


def conditions(report):
    """[(text, met)]: what the comparison assumes of the two jobs on this machine, and what it is to show. Timing: shown,
    never an error."""
    jobs = report["runs"]["exclusive"]["jobs"]
    turns = [iteration_ms(j) for j in jobs]
    ratios = [j["backward_ms"] / j["forward_ms"] for j in jobs]
    apart = report["ends_apart_fraction"]
    to_full, to_exclusive = report["ratio_spb_to_full"], report["ratio_spb_to_exclusive"]
    return [(f"SPB takes {to_full:.3f} of the time of sharing at full depth: at most 0.90", to_full <= 0.90),
            (f"SPB takes {to_exclusive:.3f} of the time of one after the other: less than 1", to_exclusive < 1),
            (f"full-depth iterations of {turns[0]:.0f} and {turns[1]:.0f} ms: at least 40 ms, within 1.3x",
             min(turns) >= 40 and max(turns) <= 1.3 * min(turns)),
            (f"backward {ratios[0]:.2f} and {ratios[1]:.2f} times forward: at least 1.7", min(ratios) >= 1.7),
            (f"the jobs of a shared run end within {100 * apart:.1f} % of each other: at most 5 %", apart <= 0.05)]


def quality(job):
    if "accuracy" in job:
        return f"{100 * job['accuracy']:.2f} % accuracy"
    return f"{job['loss']:.4f} loss" if "loss" in job else "-"


def print_table(report):
    print(f"\n{'way':<20} {'makespan':>9}  {'rounds (s)':<36} {'job':<7} {'quality':<17} {'depth':>6}  GPUs")
    for way in WAYS:
        run = report["runs"][way]
        rounds = " ".join(f"{s:.1f}" for s in run["rounds_s"])
        for index, job in enumerate(run["jobs"]):
            left = (f"{TITLES[way]:<20} {run['makespan_s']:>7.1f} s  {rounds:<36}" if index == 0 else " " * 68)
            print(f"{left} {job['name']:<7} {quality(job):<17} {job['mean_depth_fraction']:>6.3f}  "
                  + " ".join(job["gpus"]))
    for way, run in report["controls"].items():
        ratio = run["makespan_s"] / report["runs"]["shared_spb"]["makespan_s"]
        print(f"{TITLES[way]:<20} {run['makespan_s']:>7.1f} s  one control run, {ratio:.2f} of shared, SPB")
    print(f"\nSPB / shared at full depth  {report['ratio_spb_to_full']:.3f}"
          f"\nSPB / one after the other   {report['ratio_spb_to_exclusive']:.3f}"
          f"\nturn overlap                {report['turn_overlap_fraction']:.4f}")
    print("\nA GPU here is a device file that stands for one CPU core; depth is the mean share of full backward time.")


def main():
    if sys.argv[1] == "--batches":
        asked = dict(pair.split("=") for pair in sys.argv[3:])
        found = batches_for(pathlib.Path(sys.argv[2]), {name: int(batch) for name, batch in asked.items()})
        print(" ".join(f"{name}={batch}" for name, batch in found.items()))
        return 0
    folder = pathlib.Path(sys.argv[1])
    facts = json.loads((folder / "facts.json").read_text())
    report, runs = build_report(folder, facts)
    checks = verdicts(report, runs)
    report["conditions"] = [{"text": text, "met": met} for text, met in conditions(report)]
    report["checks"] = [{"text": text, "good": good} for text, good in checks]
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    print_table(report)
    for condition in report["conditions"]:
        print(f"  {'met ' if condition['met'] else 'off '} {condition['text']}")
    for text, good in checks:
        print(f"  {'ok  ' if good else 'FAIL'} {text}")
    return 0 if all(good for _, good in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
