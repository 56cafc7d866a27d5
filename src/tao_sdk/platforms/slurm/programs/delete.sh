# Remove what a job left.
# On another cluster a folder of that name is another folder.
refuse_elsewhere
# Where the shared folder is not mounted nothing is there, and nothing is gone.
jobs=${job_dir%/*}
[ -d "$jobs" ] || { mark away "$jobs"; exit; }
rm -rf -- "$job_dir" "$results"
if [ -e "$job_dir" ] || [ -e "$results" ]; then mark failed; else mark done; fi
