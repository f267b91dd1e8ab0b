// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/flags.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>

namespace rondo::launcher {
namespace {

constexpr auto kSame = Honoured::same, kDifferent = Honoured::different, kRefused = Honoured::refused,
               kOwn = Honoured::own;
constexpr auto kEach = OnNodes::own, kCompared = OnNodes::compared, kCommand = OnNodes::command,
               kMeeting = OnNodes::meeting, kNone = OnNodes::none;
constexpr auto kOurs = WithHosts::ours;

constexpr std::array kFlags{
    Flag{"help", 'h', "", kSame, "this text", "", kNone, kOurs},
    Flag{"nproc-per-node", 'n', "N", kDifferent, "ranks on this node: a number, auto, cpu or gpu (1)",
         "cores are those that the affinity mask and the CPU quota allow, and not all; xpu is refused", kEach, kOurs},
    Flag{"nnodes", 0, "N|MIN:MAX", kSame, "nodes of the job (1); MIN:MAX: they may leave and come while it runs", "",
         kCompared, kOurs},
    Flag{"node-rank", 0, "N", kDifferent, "which node this is, from 0; left out: by arrival",
         "left out, nodes are numbered by arrival, and not 0", kEach, kOurs},
    Flag{"master-addr", 0, "HOST", kSame, "address of node 0", "", kMeeting, kOurs},
    Flag{"master-port", 0, "PORT", kSame, "where node 0 serves the rendezvous (29500)", "", kMeeting, kOurs},
    Flag{"rdzv-endpoint", 0, "HOST[:PORT]", kSame, "the two above in one", "", kMeeting, kOurs},
    Flag{"rdzv-id", 0, "NAME", kSame, "name of the job; the same on every node", "", kMeeting, kOurs},
    Flag{"rdzv-backend", 0, "NAME", kDifferent, "static or c10d; both mean our own",
         "static and c10d mean our own rendezvous, others are refused", kNone},
    Flag{"rdzv-conf", 0, "KEY=VALUE,...", kDifferent,
         "join_timeout=SECONDS, as --join-timeout; last_call_timeout=SECONDS, for more than MIN nodes (30)",
         "takes join_timeout and last_call_timeout, other keys are refused", kCompared},
    Flag{"standalone", 0, "", kSame, "one node (as is the default)", "", kNone},
    Flag{"max-restarts", 0, "N", kSame, "how often a failed job is started again, all ranks of it (0)", "", kCompared},
    Flag{"log-dir", 0, "DIR", kDifferent, "each rank's output also into DIR/RANK/stdout.log, stderr.log",
         "files lie in DIR/RANK, without a folder for each run", kEach},
    Flag{"redirects", 'r', "N", kDifferent, "1 stdout, 2 stderr, 3 both: only into the log directory",
         "one number for all ranks", kEach},
    Flag{"tee", 't', "N", kDifferent, "1, 2, 3: also into the log directory", "one number for all ranks", kEach},
    Flag{"local-ranks-filter", 0, "N,...", kSame,
         "only these local ranks' output is shown, and the last words of the one that fails first", "", kEach},
    Flag{"role", 0, "NAME", kSame, "given to the ranks as ROLE_NAME", "", kEach},
    Flag{"module", 'm', "", kSame, "the program is a module of Python's: python3 -u -m MODULE", "", kCommand},
    Flag{"run-path", 0, "", kDifferent, "the program is a file for python3, whatever its name",
         "each rank is a python3 of its own, from any path", kCommand},
    Flag{"no-python", 0, "", kDifferent, "what ends in .py is run as it is, too",
         "other programs than Python's need no flag", kCommand},
    Flag{"numa-binding", 0, "HOW", kDifferent,
         "node, socket, exclusive or core-complex, of each rank's GPU where there is one",
         "works without GPUs and without numactl, too", kEach},
    Flag{"shutdown-timeout", 0, "SECONDS", kDifferent, "as --grace-period", "5 s where it is not given, and not 30",
         kEach},
    Flag{"signals-to-handle", 0, "NAME,...", kDifferent, "accepted: those that are always passed on",
         "SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1 and SIGUSR2 are always passed on, others are refused", kNone},
    Flag{"monitor-interval", 0, "SECONDS", kDifferent, "accepted: ends are noticed at once", "has no effect", kNone},
    Flag{"start-method", 0, "NAME", kDifferent, "accepted: ranks are programs of their own", "has no effect", kNone},
    Flag{"print-completion", 0, "bash", kDifferent, "prints a completion script for bash and ends",
         "bash alone, and without shtab", kNone},
    Flag{"local-addr", 0, "ADDRESS", kRefused, "", "use --interface ADDRESS", kNone},
    Flag{"log-line-prefix-template", 0, "TEXT", kRefused, "", "lines begin with [rank], or --prefix none", kNone},
    Flag{"virtual-local-rank", 0, "", kRefused, "", "use --gpus-per-rank 1, which leaves LOCAL_RANK as it is", kNone},
    Flag{"duplicate-stdout-filters", 0, "TEXT,...", kRefused, "", "pipe the output through grep", kNone},
    Flag{"duplicate-stderr-filters", 0, "TEXT,...", kRefused, "", "pipe the output through grep", kNone},
    Flag{"logs-specs", 0, "NAME", kRefused, "", "it names code of torchrun's", kNone},
    Flag{"event-log-handler", 0, "NAME", kRefused, "", "it names code of torchrun's", kNone},
    Flag{"secret-file", 0, "FILE", kOwn, "the job's secret, the same on every node", "", kMeeting, kOurs},
    Flag{"new-secret", 0, "FILE", kOwn, "writes such a file (mode 0600) and ends", "", kNone},
    Flag{"no-secret", 0, "", kOwn, "several nodes without one: anybody may join", "", kMeeting, kOurs},
    Flag{"encrypt", 0, "", kOwn, "TLS for all connections between processes of the job; the same on every node", "",
         kMeeting},
    Flag{"hosts", 0, "NAME:N,...", kOwn,
         "starts N ranks on each of these hosts by ssh, from here; [IPv6]:N; :N left out: --nproc-per-node", "", kNone,
         kOurs},
    Flag{"hostfile", 0, "FILE", kOwn, "the same, with a host on each line", "", kNone, kOurs},
    Flag{"ssh", 0, "COMMAND", kOwn, "instead of ssh: it takes a host and a command (ssh -x -o BatchMode=yes ...)", "",
         kNone, kOurs},
    Flag{"interface", 0, "NAME", kOwn, "network interface or address for connections between ranks", "", kEach},
    Flag{"port-range", 0, "FIRST-LAST", kOwn, "ports of connections between ranks", "", kEach},
    Flag{"gpus-per-rank", 0, "N", kOwn,
         "sets CUDA_VISIBLE_DEVICES: so many GPUs for each rank, shared where there are fewer (left alone)", "", kEach},
    Flag{"mps", 0, "", kOwn, "runs NVIDIA's MPS meanwhile, so that ranks that share a GPU do not take turns on it", "",
         kEach},
    Flag{"bind", 0, "HOW", kOwn, "each rank to its share of the cores, or to their NUMA node: none, core, numa (none)",
         "", kEach},
    Flag{"failure-dir", 0, "DIR", kOwn,
         "where a job that fails leaves a folder of what each rank did last, for rondo explain; none: nowhere (.)", "",
         kEach},
    Flag{"watch", 0, "", kOwn,
         "shows what each rank is in, below its output at a terminal, elsewhere in a line every 10 s; see also rondo "
         "top",
         "", kEach},
    Flag{"grace-period", 0, "SECONDS", kOwn, "until what must end is killed (5)", "", kEach},
    Flag{"continue-on-failure", 0, "", kOwn,
         "the other ranks are never told to end, however late they shrink() to those that are left", "", kCompared},
    Flag{"replace", 0, "N", kOwn,
         "how often a process is started in the place of a lost rank, to join the others, which shrink() and grow() "
         "(0); on one node",
         "", kNone},
    Flag{"join-timeout", 0, "SECONDS", kOwn, "to wait for the other nodes (300)", "", kCompared},
    Flag{"link-patience", 0, "SECONDS", kOwn,
         "for another host that is silent; control connections have four times that and 20 s at least (1.75)", "",
         kCompared},
    Flag{"ranks-filter", 0, "N,...", kOwn, "as --local-ranks-filter by rank, over all nodes", "", kEach},
    Flag{"pass-local-rank", 0, "FLAG", kOwn,
         "each rank's last argument is --FLAG=LOCAL_RANK, as local-rank or local_rank", "", kCommand},
    Flag{"prefix", 0, "HOW", kOwn, "rank: [rank] before every line; none: ranks write for themselves", "", kEach},
    Flag{"pty", 0, "WHEN", kOwn, "auto: ranks write to terminals of their own where we do; always; never: to pipes", "",
         kEach},
    Flag{"color", 0, "WHEN", kOwn, "of prefixes: auto: at a terminal, unless NO_COLOR is set; always; never", "",
         kEach},
    Flag{"explain", 0, "", kOwn,
         "says which variables of which scheduler are used, what follows from them and why, and ends", "", kNone,
         kOurs},
    Flag{"print-page", 0, "NAME", kOwn, "prints what is made of the table of flags, man or torchrun, and ends", "",
         kNone},
    Flag{"version", 0, "", kOwn, "says which one this is", "", kNone},
};

std::string with(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

}  // namespace

std::span<const Flag> flags() { return kFlags; }

const Flag& flag(std::string_view name) {
  const auto found = std::find_if(kFlags.begin(), kFlags.end(), [&](const Flag& row) { return row.name == name; });
  if (found == kFlags.end()) throw std::logic_error("no row for the flag --" + std::string(name));
  return *found;
}

std::string spellings(const Flag& flag) {
  const std::string name(flag.name), underscored = with(name, '-', '_');
  std::string all = flag.letter == 0 ? "" : std::string("-") + flag.letter + ",";
  all += "--" + name;
  return underscored == name ? all : all + ",--" + underscored;
}

std::string variable_of(const Flag& flag) {
  if (flag.honoured == Honoured::own || flag.name == "help" || flag.name == "print-completion") return "";
  std::string variable = "PET_" + with(std::string(flag.name), '-', '_');
  for (char& letter : variable) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return variable;
}

}  // namespace rondo::launcher
