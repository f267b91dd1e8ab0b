// SPDX-License-Identifier: Apache-2.0
// What is written about the flags, of the one table. A test compares it with the files that hold it.
#include <fmt/format.h>

#include "tools/rondorun/flags.hpp"

namespace rondo::launcher {
namespace {

std::string_view word_for(Honoured honoured) {
  switch (honoured) {
    case Honoured::same:
      return "same";
    case Honoured::different:
      return "different";
    case Honoured::refused:
      return "refused";
    case Honoured::own:
      return "";
  }
  return "";
}

std::string heading(const Flag& flag) {
  return fmt::format("{}--{}{}{}", flag.letter == 0 ? "" : fmt::format("-{}, ", flag.letter), flag.name,
                     flag.value.empty() ? "" : " ", flag.value);
}

// A minus that is one when it is copied, and no request of troff's.
std::string troff(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '-' || letter == '\\') result += '\\';
    result += letter;
  }
  return result;
}

// "--nnodes, --max-restarts", of the flags that are so on several nodes.
std::string list_of(OnNodes kind) {
  std::string all;
  for (const Flag& row : flags())
    if (row.on_nodes == kind)
      all += fmt::format("{}\\fB{}\\fR", all.empty() ? "" : ", ", troff(fmt::format("--{}", row.name)));
  return all;
}

std::string several_nodes() {
  return ".SH SEVERAL NODES\n"
         "A launcher that does not have these as node 0 has them is refused, by the flag's name: " +
         list_of(OnNodes::compared) +
         ";\nof \\-\\-join\\-timeout and \\-\\-rdzv\\-conf only where the nodes are MIN:MAX.\n"
         "The same holds for the program, its arguments and what belongs to them, unless \\-\\-rdzv\\-id names the "
         "job: " +
         list_of(OnNodes::command) +
         ".\nBy these the launchers find each other, and do not meet, or are told so, where they differ: " +
         list_of(OnNodes::meeting) + ".\nEach node has its own: " + list_of(OnNodes::own) + ".\n";
}

}  // namespace

std::string torchrun_page() {
  std::string page =
      "# torchrun's flags\n\n"
      "What `rondorun` makes of each flag of torchrun's. Underscores may stand for the dashes within a name, and of a\n"
      "flag that is given twice the last counts. A variable stands for a flag that is not given, as under torchrun: 0\n"
      "turns a switch off. Abbreviated names are refused. A program that torchrun starts works as one of "
      "`rondorun`'s:\n"
      "[the launcher](launcher.md).\n\n"
      "This page is printed by `rondorun --print-page torchrun`.\n\n"
      "| flag | variable | | |\n|---|---|---|---|\n";
  for (const Flag& row : flags()) {
    if (row.honoured == Honoured::own) continue;
    const std::string variable = variable_of(row);
    page += fmt::format("| `{}` | {} | {} | {} |\n", heading(row), variable.empty() ? "" : "`" + variable + "`",
                        word_for(row.honoured), row.why);
  }
  return page;
}

std::string man_page() {
  std::string page =
      ".TH RONDORUN 1 \"\" Rondo \"User Commands\"\n"
      ".SH NAME\nrondorun \\- run a program as the ranks of one job\n"
      ".SH SYNOPSIS\n.B rondorun\n[\\fIflags\\fR] [\\-\\-] \\fIprogram\\fR [\\fIarguments\\fR]\n"
      ".SH DESCRIPTION\nStarts the ranks of a job on one or several nodes, and sees that they all end.\n"
      "Where a scheduler starts one rondorun on each node, it says how many there are and which is which.\n"
      "Flags have torchrun's names and meanings, with dashes or underscores within.\n"
      ".SH FLAGS\n";
  for (const Flag& row : flags()) {
    if (row.honoured == Honoured::refused) continue;
    page += fmt::format(".TP\n\\fB{}\\fR\n{}.{}\n", troff(heading(row)), troff(row.help),
                        row.why.empty() ? "" : "\nUnlike torchrun's: " + troff(row.why) + ".");
  }
  page += ".SH REFUSED\nThese flags of torchrun's are errors here:\n";
  for (const Flag& row : flags())
    if (row.honoured == Honoured::refused)
      page += fmt::format(".TP\n\\fB{}\\fR\n{}.\n", troff(heading(row)), troff(row.why));
  page += several_nodes();
  page +=
      ".SH ENVIRONMENT\nA variable PET_NAME stands for a flag of torchrun's that is not given, PET_NNODES for "
      "\\-\\-nnodes.\nRanks get RANK, WORLD_SIZE, LOCAL_RANK and what else torchrun sets, RONDO_CORES and, where it is "
      "not set,\nOMP_NUM_THREADS.\n"
      ".SH SIGNALS\nSIGUSR2 makes a folder of what each rank is in while the job goes on, for \\fBrondo explain\\fR; "
      "it is passed on to\nprocesses that have a handler for it. SIGINT, SIGTERM, SIGQUIT, SIGHUP and SIGUSR1 are "
      "passed on "
      "to all.\n"
      ".SH EXIT STATUS\n0 when every rank ended with 0, or was left behind by those that did; else that of the rank "
      "that failed first, 128 and the number of "
      "the signal\nthat killed it, 127 or 126 when the program cannot be started, 2 for a wrong command line.\n";
  return page;
}

// Flags until the program has come, which completes as itself.
std::string bash_completion() {
  std::string words, valued;
  for (const Flag& row : flags()) {
    if (row.honoured == Honoured::refused) continue;
    words += fmt::format("{}--{}", words.empty() ? "" : " ", row.name);
    if (row.value.empty()) continue;
    for (const std::string& name : {fmt::format("--{}", row.name), fmt::format("-{}", row.letter)})
      if (name.size() > 2)
        valued += "|" + name;
      else if (row.letter != 0)
        valued += "|" + name;
  }
  return fmt::format(
      "# Completion of rondorun for bash; printed by rondorun --print-completion bash.\n"
      "_rondorun() {{\n"
      "  local flags=\"{}\"\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} i=1\n"
      "  COMPREPLY=()\n"
      "  while ((i < COMP_CWORD)); do\n"
      "    case ${{COMP_WORDS[i]}} in\n"
      "      {}) ((i += 2)) ;;\n"
      "      -*) ((i += 1)) ;;\n"
      "      *) break ;;\n"
      "    esac\n"
      "  done\n"
      "  if ((i < COMP_CWORD)); then\n"
      "    compopt -o default\n"
      "  elif ((i > COMP_CWORD)); then\n"
      "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
      "  elif [[ $current == -* ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$current\")\n"
      "  else\n"
      "    mapfile -t COMPREPLY < <(compgen -c -f -- \"$current\")\n"
      "  fi\n"
      "}}\n"
      "complete -F _rondorun rondorun\n",
      words, valued.substr(1));
}

}  // namespace rondo::launcher
