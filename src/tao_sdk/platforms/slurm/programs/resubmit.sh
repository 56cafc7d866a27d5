# Hand a job to Slurm again. The process that takes the right first does it; a right whose owner died
# before sbatch answered is taken over after two minutes. If two submit after all, the claim that
# each attempt makes lets only one of them run.
mask=$(umask); umask 077
script=$job_dir/sbatch/job_$job_id.sbatch
right=$job_dir/claims/$token.$number.sbatch
note() { echo "$number $1 $cause $exclude" >> "$job_dir/submissions"; }
[ ! -e "$job_dir/unwanted" ] || { mark unwanted; exit; }
if [ "$(cat "$job_dir/claims/$token.$number.0/owner" 2>/dev/null)" = withdrawn ]; then
  mark refused; cat "$job_dir/sbatch/said"; exit
fi
if ! error=$(mkdir "$right" 2>&1); then
  [ -d "$right" ] || { mark refused; printf '%s\n' "$error"; exit; }
  if grep -q "^$number " "$job_dir/submissions" || [ -z "$(find "$right" -maxdepth 0 -mmin +2)" ]; then
    mark busy; exit
  fi
  # Its sbatch may have worked.
  queue=$(squeue -h -u "$me" -n "$name" -o %i 2>&1) || { mark busy; exit; }
  [ -z "$queue" ] || { note "${queue%%[!0-9]*}"; mark busy; exit; }
  mv -T "$right" "$right.$nonce" 2>/dev/null && mkdir "$right" 2>/dev/null || { mark busy; exit; }
fi

# This option replaces the script's own --exclude, so it includes its nodes. A job with --nodelist gets
# these nodes, bad ones included.
own=$(sed -n 's/^#SBATCH --exclude=//p' "$script")
! grep -q '^#SBATCH --nodelist=' "$script" || exclude=
again() {
  hand_over "$job_dir/sbatch/said" "--export=ALL,TAO_SUBMISSION=$number" "--begin=now+$pause" \
    ${exclude:+"--exclude=${own:+$own,}$exclude"} "$script"
}
in_queue() { id=$(queued_id "$name"); [ -n "$id" ]; }
if ! again && ! in_queue && [ -n "$exclude" ]; then
  # A bad node is better than none.
  exclude=; again || in_queue
fi
if [ -z "$id" ]; then
  # Refused; or the controller has it after all: then it must not run unnoticed.
  if withdraw "$number"; then
    mark refused
  else
    mark doubtful  # the right stays taken until a later poll knows
  fi
  cat "$job_dir/sbatch/said"; exit
fi
note "$id"
[ ! -e "$job_dir/unwanted" ] || { scancel "$id"; mark unwanted; exit; }
mark submitted "$id"
