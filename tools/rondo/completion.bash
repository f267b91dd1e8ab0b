# Completion of rondo for bash.
_rondo() {
  local current=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "explain --help --version" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "--trace --help" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -d -- "$current")
  fi
}
complete -F _rondo rondo
