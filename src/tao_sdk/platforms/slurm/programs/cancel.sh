# Stop a job: a waiting one at once, a running one through its batch script, which gives it time.
umask 077
# On another cluster the same id is another job.
refuse_elsewhere
# No process submits it again from here on; one that is just doing so cancels its submission. If the
# mark cannot be made (a full disk), the job is stopped all the same.
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
  # The second time at once.
  if [ "$state" = RUNNING ] && [ ! -e "$job_dir/signalled" ]; then
    touch "$job_dir/signalled"
    scancel --batch --signal=USR2 "$id"
  else
    scancel "$id"
  fi
done 2>&1
mark done
