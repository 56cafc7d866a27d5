# A unique word frames every answer, so that output of login scripts can be left out.
their_locale=${LC_ALL-}
LC_ALL=C; export LC_ALL
mark() { printf '\n@%s %s\n' "$nonce" "$*"; }
# A shell that is not a login shell may not know where the cluster keeps Slurm.
if ! command -v squeue >/dev/null 2>&1; then
  [ ! -r /etc/profile ] || . /etc/profile >/dev/null 2>&1
  PATH=$PATH:/usr/local/bin:/opt/slurm/bin:/usr/local/slurm/bin:/cm/shared/apps/slurm/current/bin
  export PATH
fi
# A plan has all options of sbatch: what login scripts set here would win over them.
for setting in SLURM_CLUSTERS SLURM_HINT SLURM_TIME_FORMAT \
  $(env | grep -oE '^(SBATCH|SQUEUE|SACCT|SCANCEL)_[A-Z_]+'); do unset "$setting"; done
me=$(id -un)
cluster_name() { scontrol show config 2>/dev/null | sed -n 's/^ClusterName *= *//p'; }
# End the program where the job is not one of this cluster.
refuse_elsewhere() {
  here=$(cluster_name)
  [ "$cluster" = "$here" ] && return
  mark unreachable "the job is on cluster $cluster, and this is $here"; exit
}
# Is there a folder on the way to this path that we may not look into?
hidden() {
  above=$1
  while [ ! -d "${above:-/}" ]; do
    case $above in */*) above=${above%/*};; *) return 1;; esac
  done
  [ ! -x "${above:-/}" ]
}
# Hand a script to Slurm, which lets the job inherit what is here: so with the user's own `mask` and
# locale. `id` becomes what looks like one, because a site may have put words of its own around
# sbatch; without any it is empty, and the answer is no.
hand_over() { # a file for the complaints of sbatch, then words for sbatch
  complaints=$1; shift
  id=$(
    umask "$mask"
    if [ -n "$their_locale" ]; then LC_ALL=$their_locale; else unset LC_ALL; fi
    sbatch --parsable "$@" 2>"$complaints"
  )
  id=$(printf '%s\n' "$id" | sed -n 's/^\([0-9][0-9]*\)\(;[^ ]*\)\{0,1\}$/\1/p' | tail -n 1)
  [ -n "$id" ]
}
# Slurm's id of our job of that name; empty if the queue has none. %F is the id of a whole array.
queued_id() { squeue -h -u "$me" -n "$1" -o "${2:-%i}" 2>/dev/null | head -n 1; }
# No submission of this number will ever run: whatever Slurm may have of it finds the claim taken, and
# is cancelled. False when one has begun.
withdraw() { # number
  mkdir -p "$job_dir/claims" && mkdir "$job_dir/claims/$token.$1.0" 2>/dev/null || return
  echo withdrawn > "$job_dir/claims/$token.$1.0/owner" || return
  scancel -u "$me" -n "tao-job-$job_id" >/dev/null 2>&1 || :
}
mark begin
