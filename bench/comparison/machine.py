# SPDX-License-Identifier: Apache-2.0
"""What the machine is, and who else uses it while a launch runs."""
import os
import time

CORES = len(os.sched_getaffinity(0))
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_model():
    """The name, and where the kernel tells them the numbers: virtual machines call several generations alike."""
    found = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            found.setdefault(name.strip(), value.strip())
    if "model name" not in found:
        return os.uname().machine
    if "cpu family" not in found:
        return found["model name"]
    return "%s (family %s, model %s)" % (found["model name"], found["cpu family"], found["model"])


def describe():
    """Lines for the head of a file of results."""
    system = os.uname()
    return ["date: " + time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "cpu: %s, %d cores" % (cpu_model(), CORES),
            "kernel: %s %s %s" % (system.sysname, system.release, system.machine)]


def cpu_of_others():
    """CPU seconds used so far by all user processes but this one and its children. A child that ended counts in its
    parent, so what came and went in between counts too. Kernel threads do not: they may work for us."""
    own, kthreadd, ticks = os.getpid(), 2, 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in (own, kthreadd):
            continue
        try:
            with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) not in (own, kthreadd):
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS


def idle_seconds():
    with open("/proc/stat", encoding="utf-8") as file:
        fields = file.readline().split()
    return (int(fields[4]) + int(fields[5])) / TICKS / os.cpu_count()


def wait_until_idle(limit_s, sample_s=0.1):
    """Returns the seconds waited, at most about limit_s."""
    begin = time.monotonic()
    while time.monotonic() - begin < limit_s:
        idle = idle_seconds()
        time.sleep(sample_s)
        if idle_seconds() - idle >= 0.9 * sample_s:
            break
    return time.monotonic() - begin
