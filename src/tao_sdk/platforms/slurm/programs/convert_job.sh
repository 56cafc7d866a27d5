# Runs as a job of its own: fetch an image and pack it as a squashfs file.
partial=$cached.partial.$SLURM_JOB_ID
work=$temp/tao-sqsh-$SLURM_JOB_ID
layers=$temp/tao-sqsh-layers-$(id -u)
trap 'rm -rf -- "$partial" "$work"' EXIT
trap 'exit 143' TERM INT
(umask 077 && mkdir -p "$work/run" "$work/data" "$layers") || exit
# All of it here: a node may have no runtime folder for a user who did not log in there, and homes
# are small.
export ENROOT_TEMP_PATH=$work ENROOT_RUNTIME_PATH=$work/run ENROOT_DATA_PATH=$work/data
export ENROOT_CACHE_PATH=$layers
# In the background: a signal to this shell is heard at once.
srun -n1 -p "$partition" enroot import -o "$partial" "$uri" &
wait $! || exit
if [ "$(head -c 4 "$partial")" != hsqs ]; then
  echo "[ERROR] enroot wrote no squashfs file" >&2
  exit 65
fi
# Jobs that run from the older file keep it, wherever they are.
[ ! -e "$cached" ] || ln "$cached" "$cached.replaced.$SLURM_JOB_ID"
mv -f "$partial" "$cached"
