# Completion of rondorun for bash; printed by rondorun --print-completion bash.
_rondorun() {
  local flags="--help --nproc-per-node --nnodes --node-rank --master-addr --master-port --rdzv-endpoint --rdzv-id --rdzv-backend --rdzv-conf --standalone --max-restarts --log-dir --redirects --tee --local-ranks-filter --role --module --run-path --no-python --numa-binding --shutdown-timeout --signals-to-handle --monitor-interval --start-method --print-completion --secret-file --new-secret --no-secret --encrypt --hosts --hostfile --ssh --interface --port-range --gpus-per-rank --mps --bind --failure-dir --watch --grace-period --continue-on-failure --replace --join-timeout --link-patience --ranks-filter --pass-local-rank --prefix --pty --color --explain --print-page --version"
  local current=${COMP_WORDS[COMP_CWORD]} i=1
  COMPREPLY=()
  while ((i < COMP_CWORD)); do
    case ${COMP_WORDS[i]} in
      --nproc-per-node|-n|--nnodes|--node-rank|--master-addr|--master-port|--rdzv-endpoint|--rdzv-id|--rdzv-backend|--rdzv-conf|--max-restarts|--log-dir|--redirects|-r|--tee|-t|--local-ranks-filter|--role|--numa-binding|--shutdown-timeout|--signals-to-handle|--monitor-interval|--start-method|--print-completion|--secret-file|--new-secret|--hosts|--hostfile|--ssh|--interface|--port-range|--gpus-per-rank|--bind|--failure-dir|--grace-period|--replace|--join-timeout|--link-patience|--ranks-filter|--pass-local-rank|--prefix|--pty|--color|--print-page) ((i += 2)) ;;
      -*) ((i += 1)) ;;
      *) break ;;
    esac
  done
  if ((i < COMP_CWORD)); then
    compopt -o default
  elif ((i > COMP_CWORD)); then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -c -f -- "$current")
  fi
}
complete -F _rondorun rondorun
