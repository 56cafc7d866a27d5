# What this cluster has. Looks, never creates.
mark version; sinfo --version 2>&1
mark cluster; cluster_name
mark pyxis; srun --help 2>&1 | grep -c -e --container-image
mark programs
for program in enroot apptainer singularity srun sbatch squeue sacct scontrol; do
  command -v "$program" >/dev/null 2>&1 && echo "$program"
done
# A question about no job shows whether accounting answers.
mark accounting; sacct -n -X -P -j 0 -o JobID >/dev/null 2>&1; echo $?
mark partitions; scontrol -o show partition 2>/dev/null
mark mounts
printf '%s\n' "$mounts" | while IFS= read -r mount; do [ ! -e "$mount" ] || echo "$mount"; done
mark base
folder=$base
while [ ! -d "$folder" ] && [ "$folder" != / ]; do folder=$(dirname "$folder"); done
[ -w "$folder" ] && echo writable
