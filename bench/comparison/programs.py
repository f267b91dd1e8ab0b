# SPDX-License-Identifier: Apache-2.0
"""Builds the programs of bench/peers, where the compilers and libraries for them are."""
import hashlib
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "bench" / "peers"
FLAGS = ["-O3", "-march=native", "-std=c++20"]  # most of a long cell's time goes into filling and checking its buffers


class Missing(Exception):
    """Why a program cannot be built here."""


def compiler():
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name.split()[0]):
            return name.split()
    raise Missing("there is no C++ compiler")


def ours_at(folder):
    """(include folders, folder of librondo.so) of a build or an installation."""
    folder = pathlib.Path(folder).resolve()
    cache = folder / "CMakeCache.txt"
    if cache.exists():
        with open(cache, encoding="utf-8") as file:
            source = next(line.split("=", 1)[1].strip() for line in file if line.startswith("CMAKE_HOME_DIRECTORY"))
        includes = sorted(pathlib.Path(source).glob("*/include")) + sorted(folder.glob("*/include"))
        library = folder
    else:
        includes = [folder / "include"]
        library = next((path.parent for path in folder.glob("lib*/**/librondo.so")), folder)
    if not (library / "librondo.so").exists():
        raise Missing("%s holds no librondo.so: build the target `rondo` of the release preset, or install it" % folder)
    return includes, library


def is_current(program, sources):
    return program.exists() and all(program.stat().st_mtime > source.stat().st_mtime for source in sources)


def build(name, into, command, libraries, headers=()):
    """Path of the program made of SOURCES/name.cpp."""
    source = SOURCES / (name + ".cpp")
    key = hashlib.sha1(" ".join(map(str, command + FLAGS + libraries)).encode()).hexdigest()[:8]
    program = pathlib.Path(into) / ("%s-%s" % (name, key))
    if not is_current(program, [source, *SOURCES.glob("*.hpp"), *headers]):
        pathlib.Path(into).mkdir(parents=True, exist_ok=True)
        temporary = program.with_suffix(".new")
        done = subprocess.run([*command, *FLAGS, str(source), "-o", str(temporary), *libraries],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            raise Missing("%s does not compile: %s" % (source.name, (errors or ["?"])[0]))
        temporary.replace(program)
    return program


def build_ours(folder, into):
    includes, library = ours_at(folder)
    flags = ["-I%s" % path for path in includes]
    headers = [header for path in includes for header in path.glob("rondo/*.hpp")]
    return build("rondo_peer", into, compiler() + flags,
                 ["-L%s" % library, "-Wl,-rpath,%s" % library, "-lrondo", "-pthread"], headers)


def build_mpi(name, into):
    """name: openmpi or mpich, as Debian's alternatives call them."""
    for needed in ("mpicxx." + name, "mpirun." + name):
        if not shutil.which(needed):
            raise Missing("there is no %s" % needed)
    return build("mpi_peer", into, ["mpicxx." + name], ["-pthread"])


def build_mpi_at(prefix, into):
    """With the MPI below a folder, such as a virtual environment."""
    return build("mpi_peer", into, compiler() + ["-I%s/include" % prefix], [*libraries_at(prefix), "-lmpi", "-pthread"])


def build_oneccl(prefix, into):
    """The static library is its build for CPUs; the shared one needs those of GPUs."""
    return build("oneccl_peer", into, compiler() + ["-I%s/include" % prefix],
                 ["%s/lib/ccl/cpu/lib/libccl.a" % prefix, *libraries_at(prefix), "-lintlc", "-lhwloc", "-ldl", "-pthread"])


def libraries_at(prefix):
    return ["-L%s/lib" % prefix, "-Wl,-rpath,%s/lib" % prefix]


def build_gloo(into):
    return build("gloo_peer", into, compiler(), ["-lgloo", "-pthread"])
