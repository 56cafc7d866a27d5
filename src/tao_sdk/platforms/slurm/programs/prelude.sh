# Every answer is framed by a word that nobody else prints: what login scripts say is left out.
LC_ALL=C; export LC_ALL
mark() { printf '\n@%s %s\n' "$nonce" "$*"; }
# A shell that is not a login shell may not know where the cluster keeps Slurm.
if ! command -v squeue >/dev/null 2>&1; then
  [ ! -r /etc/profile ] || . /etc/profile >/dev/null 2>&1
  PATH=$PATH:/usr/local/bin:/opt/slurm/bin:/usr/local/slurm/bin:/cm/shared/apps/slurm/current/bin
  export PATH
fi
me=$(id -un)
cluster_name() { scontrol show config 2>/dev/null | sed -n 's/^ClusterName *= *//p'; }
mark begin
