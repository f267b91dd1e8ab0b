# SPDX-License-Identifier: Apache-2.0
"""The command line of bench/compare."""
import argparse

COLLECTIVES = ("all_reduce", "all_gather", "broadcast", "reduce_scatter", "all_to_all", "barrier", "reduce", "gather",
               "scatter")
IN_PLACE = tuple(name + "_in_place" for name in ("all_reduce", "reduce", "reduce_scatter", "all_gather", "gather", "scatter"))
VARIABLE = tuple(name + "_v" for name in ("all_gather", "all_to_all", "gather", "scatter"))
GROUPS = {"in_place": IN_PLACE, "variable": VARIABLE}  # words that stand for several
ALL_REDUCE_SIZES = "8,1K,4K,16K,64K,256K,1M,4M,16M,64M"
SIZES = "64,1K,16K,256K,4M,64M"
UNITS = {"K": 10, "M": 20, "G": 30}


def parse_size(text):
    digits, shift = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 0)
    if not digits.isdigit():
        raise argparse.ArgumentTypeError("'%s' is no size; write bytes as 8, 1K or 64M" % text)
    return int(digits) << shift


def at_least(least, of=int):
    """A parser of numbers."""
    def parse(text):
        try:
            number = of(text)
        except ValueError:
            number = None
        if number is None or not least <= number < float("inf"):
            raise argparse.ArgumentTypeError("'%s' is no number of at least %g" % (text, least))
        return number
    return parse


def words(text):
    return text.replace(",", " ").split()


def sizes(text):
    return [parse_size(word) for word in words(text)]


def ranks(text):
    found = []
    for word in words(text):
        if not word.isdigit() or not 2 <= int(word) <= 64:
            raise argparse.ArgumentTypeError("'%s' is no number of ranks from 2 to 64" % word)
        found.append(int(word))
    return found


def collectives(text):
    known = COLLECTIVES + IN_PLACE + VARIABLE + ("waiting",)
    found = [name for word in words(text) for name in GROUPS.get(word, (word,))]
    for word in found:
        if word not in known:
            raise argparse.ArgumentTypeError("'%s' is none of %s" % (word, ", ".join((*known, *GROUPS))))
    return found


def make_parser():
    parser = argparse.ArgumentParser(
        prog="compare", formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        description="Collectives of this library and of the peers that are installed or fetched, launched in "
        "turns on this host, checked, judged. Exit status: 0 every gate holds, 1 one is missed "
        "or not measured, 2 wrong use.")
    add = parser.add_argument
    add("--ours", default="build/release", help="a build or an installation of this library")
    add("--against", help="another one, compared as rondo-against")
    add("--windows", action="store_true", help="also ours with buffers from Communicator::allocate")
    add("--transport", choices=("shm", "tcp"), default="shm", help="tcp: every library is kept from shared memory")
    add("--no-peers", action="store_true", help="ours alone")
    add("--only", type=words, default=[], help="of the peers' configurations, only those whose name contains one of these")
    add("--cases", choices=("even", "odd", "types", "guard"), default="even",
        help="odd: odd worlds, counts and addresses against their even neighbours; types: element types and operators "
        "against sums of floats; guard: 24 cells against --against; these measure ours alone")
    add("--np", type=ranks, default="2,4,8", help="numbers of ranks")
    add("--collectives", type=collectives, default=",".join(COLLECTIVES),
        help="also 'in_place': results where inputs were; 'variable': blocks that differ; 'waiting': the CPU that a waiting rank uses")
    add("--sizes", type=sizes, default=SIZES, help="bytes of the larger buffer of a rank")
    add("--all-reduce-sizes", type=sizes, default=ALL_REDUCE_SIZES, help="the same for all_reduce")
    add("--pairs", type=at_least(1), default=5, help="pairs of near launches that end a cell; a gate needs 5, p99 20; with other "
        "--cases: launches of each configuration")
    add("--rounds", type=at_least(1), default=60, help="launches of a configuration that a cell may take")
    add("--budget-ms", type=at_least(1), default=25, help="timed part of a cell")
    add("--max-iterations", type=at_least(1), default=2000)
    add("--limit", type=at_least(1, float), default=60, help="seconds that a launch may take")
    add("--total", type=at_least(1, float), default=3600, help="seconds for all; --append goes on later")
    add("--quiet-wait", type=at_least(0, float), default=60, help="seconds to wait for an idle machine, in all")
    add("--retries", type=at_least(0), default=2, help="repeats of a launch during which others used over 4 %% of the CPU")
    add("--out", default="build/compare.csv", help="file of the rows; FILE.md gets the tables")
    add("--append", action="store_true", help="go on with the file instead of beginning it anew")
    add("--report-only", action="store_true", help="judge the file, measure nothing")
    add("--build", default="build/peers", help="folder for the programs of the peers")
    return parser
