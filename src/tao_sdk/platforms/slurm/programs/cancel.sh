# Stop a job: one that waits at once, one that runs by its own batch script, which gives it time.
umask 077
# A number of Slurm's means another job on another cluster.
here=$(cluster_name)
if [ "$cluster" != "$here" ]; then
  mark unreachable "the job is on cluster $cluster, and this is $here"; exit
fi
asked_before=no; [ ! -e "$job_dir/canceled" ] || asked_before=yes
# Nobody submits it again from here on, and whoever is just doing so takes it back. Should the mark
# fail (a full disk), the job is stopped all the same.
touch "$job_dir/unwanted" 2>/dev/null
ids=; [ ! -r "$job_dir/submissions" ] || ids=$(cut -d' ' -f2 "$job_dir/submissions")
for id in ${ids:-$slurm_id}; do
  if ! found=$(squeue -h -r -j "$id" -o '%T %j' 2>&1); then
    case $found in *'Invalid job id'*) continue;; *) mark unreachable "$found"; exit;; esac
  fi
  state=${found%% *}
  case ${found#* } in "$name"|tao-array-*) ;; *) continue;; esac  # given out again
  case $state in
    ''|COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED|BOOT_FAIL|DEADLINE|OUT_OF_MEMORY|REVOKED)
      continue;;
  esac
  # A job that had ended by itself was not cancelled.
  touch "$job_dir/canceled"
  case $state in
    RUNNING) if [ "$asked_before" = yes ]; then scancel "$id"; else scancel --batch --signal=USR2 "$id"; fi;;
    *) scancel "$id";;
  esac
done 2>&1
mark done
