# Supervises one job on its instance: image, GPUs, container, log, end. It needs no logged-in user. If
# it is killed, or the instance restarts, the next process that attends starts it again.
cd "$HOME/.tao-sdk/jobs/$job_id" || exit 1
umask 077
exec 9>>lock
flock -n 9 || exit 0
[ ! -e end ] || exit 0
say() { printf '%s\n' "$1" > phase.new && mv -f phase.new phase; }
one_line() { tr '\n' ' ' | tail -c 600; }
inspect() { docker inspect -f "$1" "$name" 2>&1; }
finish() { # exit code, or nothing for a job that never ran; why
  started= ended= oom=false
  if said=$(inspect '{{.State.StartedAt}} {{.State.FinishedAt}} {{.State.OOMKilled}}'); then
    read -r started ended oom <<END
$said
END
  fi
  canceled=no; [ ! -e canceled ] || canceled=yes
  printf '%s\n' "code $1" "started $started" "ended $ended" "oom $oom" "canceled $canceled" \
    "now $(date -u +%Y-%m-%dT%H:%M:%SZ)" "why $(printf '%s' "$2" | one_line)" > end.new
  sync end.new 2>/dev/null
  # The explanation of a failure needs them; clients remove them afterwards.
  if [ "$1" = 0 ] || [ "$canceled" = yes ]; then rm -f env.sh; fi
  rm -rf registry docker
  mv -f end.new end
  exit 0
}
fetch_image() {
  tries=0
  while :; do
    if [ -s registry ]; then
      mkdir -p docker
      docker --config docker login -u "$registry_user" --password-stdin "$registry" \
        < registry >/dev/null 2>login_said 9>&-
      said=$(docker --config docker pull -q "$image" 2>&1 9>&-) && return
      [ ! -s login_said ] || said="$said ($(grep -i error login_said | one_line))"
    else
      said=$(docker pull -q "$image" 2>&1 9>&-) && return
    fi
    tries=$((tries + 1))
    [ ! -e canceled ] || finish '' 'cancelled before it began'
    case $said in *denied*|*nauthorized*|*'not found'*|*unknown*|*'no basic auth'*) break;; esac
    [ "$tries" -lt 3 ] || break
    say "pulling $image again: $(printf '%s' "$said" | one_line)"
    sleep $((tries * 5))
  done
  finish '' "its image could not be pulled: $said"
}
# The GPUs that no other job has: `gpu_words` for Docker. False when they must be waited for.
take_gpus() {
  gpu_words=
  [ "$gpus" != 0 ] || return 0
  all=$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null)
  total=$(printf '%s\n' "$all" | grep -c .)
  wanted=$gpus; [ "$gpus" -gt 0 ] || wanted=$total
  [ "$total" -gt 0 ] || finish '' 'the instance has no GPUs (nvidia-smi names none)'
  [ "$wanted" -le "$total" ] || finish '' "not enough GPUs: $wanted asked for, and the instance has $total"
  free=
  for gpu in $all; do
    for held in ../*/gpus; do
      [ "$held" != "../$job_id/gpus" ] && [ -f "$held" ] && [ ! -e "${held%gpus}end" ] || continue
      grep -qx "$gpu" "$held" && continue 2
    done
    free="$free $gpu"
  done
  set -- $free
  if [ $# -lt "$wanted" ]; then
    say "waiting for GPUs: $wanted asked for, $# of $total of the instance are free"
    return 1
  fi
  : > gpus.new
  while [ "$wanted" -gt 0 ]; do echo "$1" >> gpus.new; shift; wanted=$((wanted - 1)); done
  mv -f gpus.new gpus
  gpu_words="\"device=$(tr '\n' , < gpus | sed 's/,$//')\""
}
launch() {
  docker image inspect "$image" >/dev/null 2>&1 || { say "pulling $image"; fetch_image; }
  exec 8>>../../start.lock
  while :; do
    flock 8
    [ ! -e canceled ] || finish '' 'cancelled before it began'
    take_gpus && break
    flock -u 8
    sleep 1
  done
  flock -u 8; exec 8>&-
  say "starting"
  set -- --shm-size "${shm:-$(awk '/^MemTotal/ { print int($2 / 2) "k" }' /proc/meminfo)}"
  [ "$(cat ../../init 2>/dev/null)" != yes ] || set -- "$@" --init
  if [ -n "$gpu_words" ]; then set -- "$@" --gpus "$gpu_words"; else set -- "$@" -e NVIDIA_VISIBLE_DEVICES=void; fi
  rm -f cid
  # What Docker itself says is no part of the job's log.
  if ! said=$(container "$@" 2>&1 9>&-); then return; fi
  docker start -a -i "$name" < env.sh > log 2>&1 9>&-
}
launched=
while :; do
  if ! state=$(inspect '{{.State.Status}} {{.State.StartedAt}} {{.State.ExitCode}}'); then
    case $state in
      *[Nn]'o such'*) state=none;;
      *) exit 1;; # Docker is not there for the moment
    esac
  fi
  case $state in
    none)
      [ -z "$launched" ] || finish '' "Docker did not make its container: $said"
      [ ! -s cid ] || finish '' 'its container was removed, and it left no word'
      launch; launched=yes;;
    created*)
      if [ -n "$launched" ]; then finish '' "Docker did not start its container: $(tail -n 3 log)"; fi
      docker rm -f "$name" >/dev/null 2>&1;;
    exited*|dead*)
      if [ -z "$launched" ]; then
        docker logs "$name" > log.again 2>&1
        [ "$(wc -c < log.again)" -lt "$(cat log 2>/dev/null | wc -c)" ] || mv -f log.again log
      fi
      case $state in *' 0001-01-01'*) finish '' "Docker did not start its container: $(tail -n 3 log)";; esac
      finish "${state##* }" '';;
    *)
      # Running, started by an earlier supervisor: its log is written anew until it ends.
      docker logs -f "$name" > log.again 2>&1 9>&-
      docker wait "$name" >/dev/null 2>&1 9>&-
      launched=;;
  esac
done
