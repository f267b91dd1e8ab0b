# Completion of rondo for bash.
_rondo() {
  local current=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "explain top --help --version" -- "$current")
  elif [[ ${COMP_WORDS[1]} == top && $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "--json --help" -- "$current")
  elif [[ ${COMP_WORDS[1]} == top ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(pgrep -u "$UID" -x rondorun)" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "--trace --help" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -d -- "$current")
  fi
}
complete -F _rondo rondo
