slurm_id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
slurm_id=${slurm_id:-$SLURM_JOB_ID}
environment=$job_dir/env/$job_id.sh
logs=$job_dir/slurm-logs/tao-job-$job_id-$slurm_id

# Each attempt claims its number first. A second copy of a submission (sbatch had worked, its
# answer was lost) or one that was given up finds the claim taken, and leaves.
claim=$job_dir/claims/$token.${TAO_SUBMISSION:-1}.${SLURM_RESTART_COUNT:-0}
if error=$(mkdir "$claim" 2>&1); then
  # Not over another name: `settle` withdraws a claim that has been without one for minutes.
  if ! (set -C; echo "$slurm_id" > "$claim/owner"); then rmdir "$claim"; exit 73; fi
elif [ "$(cat "$claim/owner" 2>/dev/null)" != "$slurm_id" ]; then
  if [ -d "$claim" ]; then
    echo "tao-sdk: this job was withdrawn, or another copy of it has begun: leaving" >&2
    exit 0
  fi
  echo "tao-sdk: the job's folder cannot be written to: $error" >&2
  exit 73
fi

leave_canceled() { # Slurm then reports the job as cancelled, too
  : > "$claim/canceled"
  rm -f "$environment"
  scancel "$slurm_id"
  exit "${1:-143}"
}

signalled=; limit=; force=; ended=
# Slurm warns that the wall time is nearly over: let the program save and stop, and end it by force
# while there is still time for this script to requeue the job.
at_limit() {
  signalled=1; limit=1; : > "$claim/walltime"
  scancel --signal=URG "$slurm_id"
  left=$warn_seconds
  # The true end, where the controller can be asked.
  if end=$(squeue -h -j "$slurm_id" -o %e) && end=$(date -d "${end:-never}" +%s); then
    left=$((end - $(date +%s)))
  fi
  force_in "$((left > 120 ? left - 60 : left > 0 ? left / 2 : 0))"
}
# A user cancels the job: time to save, then force.
at_cancel() {
  signalled=1; : > "$claim/canceled"
  # Repeated, because tasks that are just being started do not get it; they obey the first one.
  (for _ in 1 2 3 4 5; do scancel --signal=URG "$slurm_id"; sleep 1; done) &
  force_in "$stop_seconds"
}
force_in() {
  [ -z "$force" ] || kill "$force"
  # The step alone: to kill the job would be to cancel it.
  (sleep "$1"; exec scancel --signal=KILL "$slurm_id.0") &
  force=$!
}
at_term() { signalled=1; ended=1; }
trap at_limit USR1; trap at_cancel USR2; trap at_term TERM

[ ! -e "$job_dir/unwanted" ] || leave_canceled
if [ ! -r "$environment" ]; then
  if grep -qx 0 "$job_dir/claims/$token".*.*/exit 2>/dev/null; then
    # Requeued in the very moment in which it had ended well.
    echo 0 > "$claim/exit"
    exit 0
  fi
  echo "tao-sdk: the environment of this job has been removed: submit it again" >&2
  echo 78 > "$claim/exit"
  exit 78
fi
mkdir -p "$results_root/$job_id"
mkdir -p -m 700 "$logs"
# Where the logs of this attempt begin: a requeued job goes on in the same files.
size() { if [ -f "$1" ]; then wc -c < "$1"; else echo 0; fi; }
echo "$(size "$logs/main.out") $(size "$logs/main.err")" \
  "$(size "$job_dir/slurm-logs/batch-$slurm_id.err")" > "$claim/log_starts"

# Variables of the job and of this script may have the same names: so the job's environment comes
# last, into a shell of its own, where everything of this script is a numbered word.
attempt=$(ls "$job_dir/claims" | grep -c "^$token\.[0-9]*\.[0-9]*$")
# By control groups Slurm signals the task alone, otherwise every process of it. SIGTERM would end
# the step: SIGURG is passed on as one.
case $(scontrol show config | sed -n 's/^ProctrackType *= *//p') in
  proctrack/linuxproc|proctrack/pgid) signals=urg;;
  *) signals=task;;
esac
first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
(
  set -- "$job_id" "$results_root" "$attempt" "$signals" "$nodes" "$gpus" "$first_node" \
    "$(command -v srun)" "$logs" "$image" "$program"
  . "$environment"
  export TAO_JOB_ID=$1 TAO_RESULTS_ROOT=$2 TAO_API_RESULTS_DIR=$2 TAO_ATTEMPT=$3
  export TAO_GROUP_SIGNALS=$4
  if [ "$5" -gt 1 ]; then
    export WORLD_SIZE=$5 NNODES=$5 NUM_GPU_PER_NODE=$6 NPROC_PER_NODE=$6
    export MASTER_PORT=${MASTER_PORT:-29500} MASTER_ADDR=${MASTER_ADDR:-$7}
  fi
  shift 7
  run_tasks "$@"
) &
tasks=$!
# A signal interrupts `wait`, which then has to be repeated for the true exit code.
while :; do
  signalled=
  wait "$tasks"; code=$?
  [ -n "$signalled" ] || break
done
trap '' USR1 USR2 TERM
[ -z "$force" ] || kill "$force"
# srun ends with 0 when a node of its step is lost. What the tasks left proves that they went well.
went_well() {
  find "$results_root/$job_id" -maxdepth 1 -name 'tao_result*.json' -newer "$claim/owner" \
    -exec grep -lE '"exit_code": ?0[,}]' {} + 2>/dev/null | wc -l
}
if [ "$code" = 0 ] && [ -n "$ended" ]; then
  # Slurm has ended it, and goes on to requeue it perhaps. srun ends with 0 then, and so do
  # many programs that were asked to save and stop.
  code=143
elif [ "$code" = 0 ] && [ "$(went_well)" -lt "$nodes" ]; then
  exit 0  # the last word is Slurm's
fi
echo "$code" > "$claim/exit"

# Checkpoints that this attempt wrote, by their path in the results. What was staged is none.
written() {
  find "$results_root/$job_id" -type d \( -name inputs -o -name ptm -o -name .tao \) -prune \
    -o -type f -newer "$claim/owner" \( \
    -name '*.pth' -o -name '*.pth.tar' -o -name '*.pt' -o -name '*.ckpt' -o -name '*.tlt' \
    -o -name '*.hdf5' -o -name '*.safetensors' -o -name '*.bin' -o -name '*.distcp' \
    \) -printf '%P\n' 2>/dev/null
}
# Did this attempt get further than the earlier ones that met the wall time? One that begins at
# the beginning each time would otherwise be requeued for ever. Paths that differ in numbers only
# are a series: the last of one has to be new. A checkpoint without a number may be any.
advanced() {
  earlier=$(cat "$job_dir/claims/$token".*.*/checkpoints 2>/dev/null)
  written > "$claim/checkpoints"
  { sed 's/$/ new/' "$claim/checkpoints"; printf '%s\n' "$earlier" | sed 's/$/ old/'; } |
    sort -V | awk '
      { series = $0; sub(/ (new|old)$/, "", series) }
      gsub(/[0-9]+/, "#", series) { last[series] = $NF; next }
      $NF == "new" { further = 1 }
      END { for (series in last) if (last[series] == "new") further = 1; exit !further }'
}
# Has it come to its end just then, or saved and stopped as it was asked to? Both may end with 0.
reports_success() {
  status=$(ls -t "$results_root/$job_id"/{,*/}status.json 2>/dev/null | head -n 1)
  [ -n "$status" ] && tail -n 1 "$status" | grep -q '"SUCCESS"'
}
may_go_on() { [ "$may_requeue" = yes ] && [ ! -e "$job_dir/unwanted" ] && advanced; }

if [ -e "$claim/canceled" ]; then
  leave_canceled "$code"
elif [ -n "$limit" ] && ! { [ "$code" = 0 ] && reports_success; } && may_go_on; then
  echo "tao-sdk: the wall time is over and a checkpoint was written: requeued" >> "$logs/main.err"
  scontrol requeue "$slurm_id" && sleep 60
elif [ "$code" = 0 ]; then
  rm -f "$environment"
fi
exit "$code"
