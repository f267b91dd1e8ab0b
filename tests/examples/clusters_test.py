#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clusters_test.py BUILD SOURCE: what rondorun makes of each job file under the variables of its scheduler."""

import os
import pathlib
import socket
import stat
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve()
FILES = pathlib.Path(sys.argv[2]).resolve() / "examples/clusters"
CLEAN = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
NODES = 2


def explain(words, variables):
    """The lines of --explain as a dictionary; words are the job's, from rondorun on."""
    assert words[0] == "rondorun", words
    ended = subprocess.run(
        [BUILD / "bin/rondorun", "--explain", *words[1:]], env=CLEAN | variables, capture_output=True, text=True, timeout=30
    )
    if ended.returncode != 0:
        raise AssertionError(f"{words} with {variables}: {ended.stderr}")
    return {line[:16].strip(): line[17:] for line in ended.stdout.splitlines()}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def yaml_documents(name):
    try:
        import yaml
    except ImportError:
        print("skipped: the YAML files of clusters, as this python3 has no yaml")
        raise unittest.SkipTest("no yaml")
    with open(FILES / name) as file:
        return list(yaml.safe_load_all(file))


def mounted_at(spec, container):
    """The path of the mounted secret's file, and its mode."""
    volume = next(volume for volume in spec["volumes"] if "secret" in volume)
    mount = next(mount for mount in container["volumeMounts"] if mount["name"] == volume["name"])
    return mount["mountPath"] + "/secret", volume["secret"]["defaultMode"]


class KubernetesTest(unittest.TestCase):
    def check_nodes(self, command, variables_of, master, port=None, spec=None, container=None):
        path, mode = mounted_at(spec, container)
        self.assertEqual(mode, 0o400)
        self.assertEqual(command[-1], "my_program")
        said = []
        for node in range(NODES):
            said.append(explain(command, variables_of(node)))
            self.assertTrue(said[-1]["nodes"].startswith("2, "), said[-1])
            self.assertTrue(said[-1]["node rank"].startswith(f"{node}, "), said[-1])
            self.assertTrue(said[-1]["ranks here"].startswith("4, "), said[-1])
            self.assertTrue(said[-1]["node 0"].startswith(master + ", "), said[-1])
            self.assertTrue(said[-1]["secret"].startswith(f"in {path}, "), said[-1])
        self.assertEqual(said[0]["port"], said[1]["port"])
        self.assertEqual(said[0]["job"].split(",")[0], said[1]["job"].split(",")[0])
        if port:
            self.assertTrue(said[0]["port"].startswith(port + ", "), said[0])

    def test_indexed_job(self):
        service, job = yaml_documents("job.yaml")
        self.assertEqual((service["kind"], job["kind"]), ("Service", "Job"))
        self.assertEqual(service["spec"]["clusterIP"], "None")
        name, spec = job["metadata"]["name"], job["spec"]
        pod = spec["template"]["spec"]
        self.assertEqual(service["spec"]["selector"], {"batch.kubernetes.io/job-name": name})
        self.assertEqual((spec["completionMode"], spec["completions"], spec["parallelism"]), ("Indexed", NODES, NODES))
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        container = pod["containers"][0]
        self.check_nodes(
            container["command"],
            lambda node: {"JOB_COMPLETION_INDEX": str(node)},
            f"{name}-0.{pod['subdomain']}",
            spec=pod,
            container=container,
        )

    def test_jobset(self):
        (jobset,) = yaml_documents("jobset.yaml")
        (replicated,) = jobset["spec"]["replicatedJobs"]
        spec = replicated["template"]["spec"]
        self.assertEqual((spec["completionMode"], spec["completions"], spec["parallelism"]), ("Indexed", NODES, NODES))
        self.assertEqual(replicated["replicas"], 1)
        pod = spec["template"]["spec"]
        container = pod["containers"][0]
        name, subdomain = jobset["metadata"]["name"], jobset["spec"]["network"]["subdomain"]
        self.check_nodes(
            container["command"],
            lambda node: {"JOB_COMPLETION_INDEX": str(node)},
            f"{name}-{replicated['name']}-0-0.{subdomain}",
            spec=pod,
            container=container,
        )

    def test_trainjob(self):
        (job,) = yaml_documents("trainjob.yaml")
        trainer, name = job["spec"]["trainer"], job["metadata"]["name"]
        (override,) = job["spec"]["podTemplateOverrides"]
        self.assertEqual(override["targetJobs"], [{"name": "node"}])
        self.check_nodes(
            trainer["command"],
            lambda node: {
                "PET_NNODES": str(trainer["numNodes"]),
                "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
                "PET_NODE_RANK": str(node),
                "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
                "PET_MASTER_PORT": "29400",
                "JOB_COMPLETION_INDEX": str(node),
            },
            f"{name}-node-0-0.{name}",
            "29400",
            spec=override["spec"],
            container=override["spec"]["containers"][0],
        )

    def test_pytorchjob(self):
        (job,) = yaml_documents("pytorchjob.yaml")
        specs, name = job["spec"]["pytorchReplicaSpecs"], job["metadata"]["name"]
        self.assertEqual(sum(spec["replicas"] for spec in specs.values()), NODES)
        pod = specs["Worker"]["template"]["spec"]
        self.assertEqual(specs["Master"]["template"]["spec"], pod)
        container = pod["containers"][0]
        self.assertEqual(container["name"], "pytorch")
        self.check_nodes(
            container["command"],
            lambda node: {
                "RANK": str(node),
                "WORLD_SIZE": str(NODES),
                "MASTER_ADDR": "localhost" if node == 0 else f"{name}-master-0",
                "MASTER_PORT": "23456",
            },
            f"{name}-master-0",
            "23456",
            spec=pod,
            container=container,
        )

    def test_openpai(self):
        (job,) = yaml_documents("openpai.yaml")
        ((role, task),) = job["taskRoles"].items()
        self.assertEqual(task["instances"], NODES)
        self.assertEqual(task["resourcePerInstance"]["ports"], {"SynPort": 1})
        write, start = task["commands"]
        words = start.split()
        with tempfile.TemporaryDirectory() as folder:
            secret = pathlib.Path(folder) / "secret"
            line = write.replace("<% $secrets.job %>", "0f" * 32).replace("/tmp/rondo.secret", str(secret))
            subprocess.run(["bash", "-c", line], check=True, timeout=10)
            self.assertEqual(secret.read_text(), "0f" * 32 + "\n")
            self.assertEqual(stat.S_IMODE(secret.stat().st_mode), 0o600)
        for node in range(NODES):
            said = explain(
                words,
                {
                    "PAI_CURRENT_TASK_ROLE_NAME": role,
                    "PAI_TASK_INDEX": str(node),
                    f"PAI_TASK_ROLE_TASK_COUNT_{role}": str(NODES),
                    f"PAI_HOST_IP_{role}_0": "10.1.0.4",
                    f"PAI_{role}_0_SynPort_PORT": "34567",
                    "PAI_JOB_NAME": job["name"],
                },
            )
            self.assertTrue(said["node rank"].startswith(f"{node}, "), said)
            self.assertTrue(said["node 0"].startswith("10.1.0.4, "), said)
            self.assertTrue(said["port"].startswith("34567, "), said)
            self.assertTrue(said["secret"].startswith("in /tmp/rondo.secret, "), said)
            self.assertIn(str(words[words.index("--secret-file") + 1]), write)


class ScriptTest(unittest.TestCase):
    """Batch scripts, with rondorun in its own folder and a stand-in for srun that makes two nodes."""

    def run_script(self, name, arguments, variables, srun="", ssh=""):
        with tempfile.TemporaryDirectory() as folder:
            for program, text in {"srun": srun, "ssh": ssh}.items():
                path = pathlib.Path(folder) / program
                path.write_text("#!/bin/bash\n" + text)
                path.chmod(0o755)
            (pathlib.Path(folder) / "my_program").write_text('#!/bin/sh\necho "rank $RANK of $WORLD_SIZE"\n')
            (pathlib.Path(folder) / "my_program").chmod(0o755)
            hosts = pathlib.Path(folder) / "hosts"
            hosts.write_text("127.0.0.1\n127.0.0.1\n127.0.0.2\n127.0.0.2\n")
            variables = {name: value.replace("FOLDER", folder) for name, value in variables.items()}
            path = f"{folder}:{BUILD / 'bin'}:{CLEAN['PATH']}"
            ended = subprocess.run(
                ["bash", FILES / name, *arguments],
                env=CLEAN | {"PATH": path} | variables,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=60,
            )
            left = {path.name for path in pathlib.Path(folder).iterdir()} - {"srun", "ssh", "my_program", "hosts"}
        self.assertEqual(left, set(), "the script leaves files behind")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return ended.stdout

    # As Slurm starts the tasks of a step, here on one host.
    STEP = """
for ((task = 0; task < %d; ++task)); do
  SLURM_STEP_ID=0 SLURM_PROCID=$task SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=%d SLURM_STEP_NUM_NODES=2 \\
    SLURM_STEP_NODELIST=127.0.0.1 "$@" &
done
wait
"""

    def test_slurm_with_rondorun(self):
        out = self.run_script(
            "slurm-rondorun.sbatch",
            ["my_program"],
            {"SLURM_JOB_ID": str(os.getpid()), "SLURM_SUBMIT_DIR": "FOLDER", "RANKS_PER_NODE": "2"},
            srun=self.STEP % (2, 2),
        )
        self.assertEqual(sorted(line.split("] ")[1] for line in out.splitlines()), [f"rank {i} of 4" for i in range(4)])

    def test_slurm_without_rondorun(self):
        out = self.run_script(
            "slurm-plain.sbatch",
            ["all_reduce"],
            {"SLURM_JOB_ID": str(os.getpid()), "SLURM_SUBMIT_DIR": "FOLDER", "MASTER_PORT": free_port()},
            srun=self.STEP % (4, 4),
        )
        self.assertEqual(sorted(out.splitlines()), [f"rank {i} of 4: the sum is 10" for i in range(4)])

    def test_pbs_and_lsf(self):
        ssh = 'while [[ $1 == -* ]]; do if [[ $1 == -o ]]; then shift; fi; shift; done; shift; exec sh -c "$*"\n'
        for name, variables in {
            "pbs.sh": {"PBS_O_WORKDIR": "FOLDER", "PBS_NODEFILE": "FOLDER/hosts"},
            "lsf.sh": {"LSB_DJOB_HOSTFILE": "FOLDER/hosts", "LSB_MCPU_HOSTS": "127.0.0.1 2 127.0.0.2 2"},
        }.items():
            out = self.run_script(name, [], variables, ssh=ssh)
            ranks = sorted(line.split("] ")[1] for line in out.splitlines())
            self.assertEqual(ranks, [f"rank {i} of 4" for i in range(4)], name)


class FilesTest(unittest.TestCase):
    def test_every_file_has_a_test_and_is_in_the_guide(self):
        source = pathlib.Path(__file__).read_text()
        guide = (FILES.parent.parent / "docs/clusters.md").read_text()
        for path in FILES.iterdir():
            self.assertIn(f'"{path.name}"', source)
            self.assertIn(f"clusters/{path.name}", guide)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
